/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fair shares between tenants without a reservation, across all CPUs: preemptive multi-queue fair queuing, made of
 * parts that no two CPUs fight for. docs/FAIRNESS.md has the algorithm, what differs from it here, and the bound.
 *
 * Each domain has a *line*, a dispatch queue ordered by tag. A tenant has one thread in it, its *front*
 * (front.bpf.h). So tags are fresh, however many threads a tenant has, and a pick looks at a constant number of tasks.
 * Threads that may not run on every open CPU are bound to one that they may run on, and wait there; others that they
 * may run on fetch them. Which CPU gives way to a thread that wakes is in yield.bpf.h.
 */
#ifndef ROTA_FAIR_BPF_H
#define ROTA_FAIR_BPF_H

#include "front.bpf.h"

/* Tasks of a line that are looked at for one that may run here, and is not overtaken by its tenant. */
#define FAIR_LOOKS 4

/*
 * How long a thread runs before its siblings' turn. On the floor, where little is given, a hundred of them have one
 * within two grants.
 */
static __always_inline u64 fair_quantum(u32 level, u32 siblings)
{
	if (level != ROTA_LEVEL_FLOOR)
		return max_time(quantum(siblings), ROTA_FAIR_SLICE_NS);
	return max_time(min_time(2 * ROTA_FLOOR_GRANT_NS / (siblings + 1), ROTA_FAIR_SLICE_NS), quantum_min(siblings));
}

/*
 * What a pick has to come before: the present thread, if it would go on. It goes on until its tenant is ahead by a
 * minimum slice, without what is left of this CPU's own booking.
 */
static __always_inline void bound_by_prev(struct run *r, struct cpu_ctx *c)
{
	struct rota_tenant *tenant = tenant_of(c->fair.served);
	struct fair_ctx *f = fair_ctx(c->fair.served);
	u64 ran = r->now - c->fair.served_since;

	r->prev_tenant = r->found = ROTA_NONE;
	r->has_bound = r->prev_bounds = false;
	if (r->prev_dsq != DSQ_SHARED(c->role.domain) || !is_shared_tenant(tenant) || !f ||
	    is_held_off(c->fair.served, r->now))
		return;
	r->prev_tenant = c->fair.served;
	r->has_bound = r->prev_bounds = true;
	r->bound = fair_next(c, c->fair.served, f) - weighted(tenant, ROTA_FAIR_SLICE_NS);
	r->prev_spent = c->spin.gives_way || ran >= fair_quantum(c->turn.level, fair_threads(tenant, f));
}

/*
 * By how much a front of another domain has to come before: its data are in that domain's cache. A front that has
 * waited for a rotation comes before one with about the same tag, as its line's CPUs may all be reserved.
 */
static __always_inline u64 fair_margin(const struct rota_tenant *tenant, const struct task_ctx *t, u64 now)
{
	if (now - t->waits_since < ROTA_ROTATION_NS)
		return weighted(tenant, ROTA_FAIR_SLICE_NS);
	return -weighted(tenant, ROTA_FAIR_GRAIN_NS);
}

/*
 * Whether a thread with this tag comes before all that this pick has seen. Siblings of the present thread come only
 * once that has had its turn. Siblings that are bound to different CPUs take turns by how long they wait, as their
 * tenant's clock is the same for all. A thread that spins may wait for any of them.
 */
static __always_inline bool comes_first(const struct run *r, const struct cpu_ctx *c, const struct task_ctx *t,
					u32 tenant, u64 tag, bool is_bound_abroad)
{
	u64 longer = c->spin.gives_way ? ROTA_FAIR_SLICE_NS : ROTA_QUANTUM_NS;

	if (tenant == r->prev_tenant && !r->prev_spent)
		return false;
	if (is_bound_abroad && tenant == r->found)
		return t->queued_since + longer < r->found_since;
	return !r->has_bound || (tenant == r->prev_tenant && r->prev_bounds) || vtime_before(tag, r->bound);
}

/*
 * The tenant whose task comes before all that this pick has seen, among the first of a line, or of those bound here.
 * The pick is bound by it from now on. ROTA_NONE: there is none. A line is ordered by clocks; tags are known only now,
 * with what is booked. A task whose tenant's clock has gone on is sent to its new place, unless it is alone. A bound
 * task is sent there once, so that its siblings' turns come.
 */
__noinline u32 fair_comes(struct run *r __arg_nonnull, u64 dsq, bool abroad)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	bool in_bound = line_kind(dsq) == ROTA_LINE_BOUND;
	u32 i, found = ROTA_NONE;
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;

	if (!c || !(in_bound ? may_wait(dsq) : shared_may_wait()) || (abroad && scx_bpf_dsq_nr_queued(dsq) <= 0))
		return ROTA_NONE;
	if (bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		bpf_iter_scx_dsq_destroy(&it);
		return ROTA_NONE;
	}
	bpf_for (i, 0, is_sampled(r->now) ? SAMPLE_LOOKS : FAIR_LOOKS) {
		struct rota_tenant *tenant;
		struct task_ctx *t;
		struct fair_ctx *f;
		u64 tag, margin;
		u32 number;

		p = bpf_iter_scx_dsq_next(&it);
		if (!p)
			break;
		t = task_ctx(p);
		number = t ? t->stands_for : ROTA_NONE;
		tenant = tenant_of(number);
		f = fair_ctx(number);
		if (!t || !f || !tenant || is_held_off(number, r->now) || !may_run_here(p, r->cpu))
			continue;
		if (!t->overdue && !t->raised && vtime_before(t->tag + ROTA_FAIR_GRAIN_NS, f->clock) &&
		    scx_bpf_dsq_nr_queued(dsq) > 1) {
			t->raised = in_bound;
			t->tag = f->clock;
			scx_bpf_dsq_move_set_vtime(&it, t->tag);
			scx_bpf_dsq_move_vtime(&it, p, dsq, 0);
		}
		tag = t->overdue ? t->tag : fair_next(c, number, f) + max_vtime(t->tag, f->clock) - f->clock;
		margin = abroad && !t->overdue && found == ROTA_NONE ? fair_margin(tenant, t, r->now) : 0;
		if (!comes_first(r, c, t, number, tag + margin, in_bound && abroad))
			continue;
		r->has_bound = true;
		r->prev_bounds = false;
		r->bound = tag;
		r->found = found = number;
		r->found_since = t->queued_since;
	}
	bpf_iter_scx_dsq_destroy(&it);
	return found;
}

/* A thread of the tenant that waits behind its front, and ran here last; the front ran elsewhere, and stays. */
static __always_inline bool serve_behind_front(struct run *r, u32 domain, u32 tenant_id, u32 level, u64 until)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct fair_place *place = fair_place(domain, tenant_id);

	return tenant && place && place->front_cpu != r->cpu && place->since &&
	       serve_own(r, DSQ_QUEUE(tenant->first_queue), level, until, place->since);
}

/*
 * Takes the tenant's front from a line: it gets another one. Or takes a thread of the tenant's that is bound to a CPU.
 * If it is gone meanwhile, the first that waits there.
 */
__noinline bool fair_take(struct run *r __arg_nonnull, u64 dsq, u32 tenant_id, u32 level, u64 until)
{
	u64 front = line_kind(dsq) == ROTA_LINE_SHARED ? IN_LINE(tenant_id, (u32)dsq) : 0, was;
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool moved = false;
	u32 i;

	if (!c)
		return false;
	if (front && serve_behind_front(r, (u32)dsq, tenant_id, level, until))
		return true;
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		bpf_for (i, 0, is_sampled(r->now) ? SAMPLE_LOOKS : 2 * FAIR_LOOKS) {
			struct task_ctx *t;

			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_ctx(p);
			if (!t || t->stands_for != tenant_id || !may_run_here(p, r->cpu))
				continue;
			was = front_leaves(t);
			if (was) /* another line's, if it is about to be sent there */
				front = was;
			moved = scx_bpf_dsq_move(&it, p, SCX_DSQ_LOCAL, 0);
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	if (front)
		fair_promote((u32)front - 1, front >> 32);
	if (!moved)
		return !is_sampled(r->now) && serve(r, dsq, level, until);
	r->keeps_prev = false;
	c->turn.picked = level;
	c->turn.until_ns = until;
	return true;
}

/*
 * Whether a thread waits that a CPU of the tenant could take, or a thread of another tenant has waited a short time
 * ago.
 */
__noinline bool fair_anyone(u32 cpu, u32 tenant, u64 now)
{
	bool may = shared_may_wait();
	u32 domain;

	if (nr_waiting(DSQ_BOUND(cpu)) > 0)
		return true;
	for (domain = 0; domain < settings.nr_domains; domain++) {
		struct fair_domain *d = fair_domain(domain);
		u64 waited = !d ? 0 : d->waiter == tenant ? d->waited_other : d->waited;

		if (d && (now - waited < ROTA_ROTATION_NS || (may && scx_bpf_dsq_nr_queued(DSQ_SHARED(domain)) > 0)))
			return true;
	}
	return false;
}

/*
 * When this CPU decides anew, as others wait: each CPU at a time of its own, so that they see what the others did; on
 * the floor, when a thread's turn may be over.
 */
static __always_inline u64 next_decision(struct run *r, struct cpu_ctx *c, u32 level, u64 until)
{
	u64 phase = ROTA_FAIR_SLICE_NS * r->cpu / nr_host_cpus;
	struct fair_domain *d = fair_domain(c->role.domain);

	if (level == ROTA_LEVEL_FLOOR)
		return min_time(until, r->now + quantum_min(d ? d->waiting : 0));
	return min_time(until, ((r->now - phase) / ROTA_FAIR_SLICE_NS + 1) * ROTA_FAIR_SLICE_NS + phase);
}

/* The same for a CPU that serves the tenant, or `until` if nobody else waits. */
static __always_inline u64 fair_until(struct run *r, struct cpu_ctx *c, u32 level, u32 tenant, u64 until)
{
	bool prev_waits = r->prev_tenant != ROTA_NONE && !r->keeps_prev; /* from after this decision on */

	return prev_waits || fair_anyone(r->cpu, tenant, r->now) ? next_decision(r, c, level, until) : until;
}

/*
 * Takes from another domain's line: one is looked at, another each time; or all, if there is nothing at home, or a
 * thread has asked for this CPU, which may be behind a sibling that waits elsewhere.
 */
__noinline bool fair_migrate(struct run *r __arg_nonnull, u32 level, u64 until)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	u32 i, looks, tenant;

	if (!c)
		return false;
	looks = r->has_bound && c->offer.gives_way ? 1 : settings.nr_domains;
	bpf_for (i, 0, looks) {
		u32 domain = c->fair.visits = (c->fair.visits + 1) % (settings.nr_domains ?: 1);

		if (domain == c->role.domain)
			continue;
		tenant = fair_comes(r, DSQ_SHARED(domain), true);
		if (tenant != ROTA_NONE && fair_take(r, DSQ_SHARED(domain), tenant, level, until))
			return true;
	}
	return false;
}

/* CPUs whose bound threads are looked at by a CPU that has nobody else to serve. */
#define FETCH_LOOKS 16

/*
 * The tenant of a thread that is bound to another CPU, r->from, may run here as well, and comes before all that this
 * pick has seen. One such CPU is looked at, or as above more. ROTA_NONE: there is none.
 */
__noinline u32 fair_abroad(struct run *r __arg_nonnull)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu), *other;
	u32 i, looks, tenant = ROTA_NONE;

	if (!c)
		return ROTA_NONE;
	looks = r->has_bound && c->offer.gives_way ? 1 : FETCH_LOOKS;
	for (i = 0; i < FETCH_LOOKS && i < looks && tenant == ROTA_NONE; i++) {
		r->from = next_bound(r->cpu);
		other = cpu_ctx(r->from);
		if (!other)
			return ROTA_NONE;
		if (!other->lines.bound)
			shows_bound(other);
		tenant = fair_comes(r, DSQ_BOUND(r->from), true);
	}
	return tenant;
}

/* Takes such a thread. */
static __always_inline bool fair_fetch(struct run *r, u32 level, u64 until)
{
	u32 tenant = fair_abroad(r);

	return tenant != ROTA_NONE && fair_take(r, DSQ_BOUND(r->from), tenant, level, until);
}

/* Of those in the line that this CPU serves, and of those bound to it. */
__noinline int call_all_overdue(struct run *r __arg_nonnull)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	struct fair_domain *d = c ? fair_domain(c->role.domain) : NULL;

	if (d && nr_waiting(DSQ_SHARED(c->role.domain)) > 0 && shall_call(&d->called, r->now))
		call_overdue(DSQ_SHARED(c->role.domain));
	if (c && nr_waiting(DSQ_BOUND(r->cpu)) > 0 && shall_call(&c->lines.called, r->now))
		call_overdue(DSQ_BOUND(r->cpu));
	return 0;
}

/* The first of the threads that are bound here, or in a sample the tenant's. */
static __always_inline bool serve_bound(struct run *r, u32 tenant, u32 level, u64 until)
{
	if (is_sampled(r->now))
		return fair_take(r, DSQ_BOUND(r->cpu), tenant, level, until);
	return serve(r, DSQ_BOUND(r->cpu), level, until);
}

/* The tenant that is furthest behind, or the present one if that is not ahead of it. */
__noinline bool serve_fair(struct run *r __arg_nonnull, u32 level, u64 until)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	u32 bound, line;

	if (!c)
		return false;
	/* A thread on its way while its tenant's front was taken is found at the end of that front's turn. */
	if (c->fair.lasting != ROTA_NONE)
		fair_promote(c->role.domain, c->fair.lasting);
	give_fronts();
	call_all_overdue(r);
	bound_by_prev(r, c);
	bound = fair_comes(r, DSQ_BOUND(r->cpu), false);
	line = fair_comes(r, DSQ_SHARED(c->role.domain), false);
	if ((bound_elsewhere(c) && fair_fetch(r, level, until)) ||
	    (settings.nr_domains > 1 && fair_migrate(r, level, until)) ||
	    (line != ROTA_NONE && fair_take(r, DSQ_SHARED(c->role.domain), line, level, until)) ||
	    (bound != ROTA_NONE && serve_bound(r, bound, level, until))) {
		c->turn.until_ns = fair_until(r, c, level, ROTA_NONE, until);
		return true;
	}
	if (r->prev_tenant == ROTA_NONE)
		return false;
	r->keeps_prev = true;
	c->turn.picked = level;
	c->turn.until_ns = fair_until(r, c, level, r->prev_tenant, until);
	return true;
}

#endif /* ROTA_FAIR_BPF_H */
