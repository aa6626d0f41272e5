/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fair shares between tenants without a reservation, across all CPUs: preemptive multi-queue fair queuing, made of
 * parts that no two CPUs fight for. docs/FAIRNESS.md has the algorithm, what differs from it here, and the bound.
 *
 * Each domain has a *line*, a dispatch queue ordered by tag. A tenant has one thread in it, its *front*; the others
 * wait behind it in the tenant's own queue, and whoever takes the front puts the next one into the line, with the
 * clock as it is then. So tags are fresh, however many threads a tenant has, and a pick looks at a constant number of
 * tasks. Threads that may not run on every CPU are bound to one that they may run on, and wait there.
 *
 * A thread that wakes and is behind takes a CPU from a tenant that is ahead of it: its own last one, or the one that
 * its domain knows to be furthest ahead, or one of a few that are looked at in turn.
 */
#ifndef ROTA_FAIR_BPF_H
#define ROTA_FAIR_BPF_H

#include "clock.bpf.h"
#include "front.bpf.h"
#include "pick.bpf.h"
#include "wake.bpf.h"

/* Tasks of a line that are looked at for one that may run here, and is not overtaken by its tenant. */
#define FAIR_LOOKS 4
/* CPUs that are looked at for one that gives way, besides its own: those that domains know, and others in turn. */
#define FAIR_HINTS   4
#define FAIR_SAMPLES 3

/*
 * How long a thread runs before its siblings' turn. On the floor, where little is given, a hundred of them have one
 * within two grants.
 */
static __always_inline u64 fair_quantum(u32 level, u32 siblings)
{
	if (level != ROTA_LEVEL_FLOOR)
		return max_time(quantum(siblings), ROTA_FAIR_SLICE_NS);
	return max_time(min_time(2 * ROTA_FLOOR_GRANT_NS / (siblings + 1), ROTA_FAIR_SLICE_NS), ROTA_QUANTUM_MIN_NS);
}

/*
 * What a pick has to come before: the present thread, if it would go on. It goes on until its tenant is ahead by a
 * minimum slice, without what is left of this CPU's own booking.
 */
static __always_inline void bound_by_prev(struct cpu_ctx *c)
{
	struct rota_tenant *tenant = tenant_of(c->served);
	struct fair_ctx *f = fair_ctx(c->served);
	u64 ran = c->now - c->served_since;

	c->prev_tenant = ROTA_NONE;
	c->has_bound = false;
	if (c->prev_dsq != DSQ_SHARED(c->domain) || !is_shared_tenant(tenant) || !f)
		return;
	c->prev_tenant = c->served;
	c->has_bound = true;
	c->bound = fair_next(c, c->served, f) - weighted(tenant, ROTA_FAIR_SLICE_NS);
	c->prev_spent = ran >= fair_quantum(c->level, fair_threads(tenant, f));
}

/*
 * By how much a front of another domain has to come before: its data are in that one's cache. If it has waited for a
 * rotation already, as when its line's CPUs are all reserved, it comes before one that has about the same tag.
 */
static __always_inline u64 fair_margin(const struct rota_tenant *tenant, struct cpu_ctx *c, struct task_ctx *t)
{
	if (c->now - t->waits_since < ROTA_ROTATION_NS)
		return weighted(tenant, ROTA_FAIR_SLICE_NS);
	return -weighted(tenant, ROTA_FAIR_GRAIN_NS);
}

/*
 * The tenant whose task, among the first of a line, or of those bound here, may run here and comes before all that this
 * pick has seen; the pick is bound by it from now on. ROTA_NONE: there is none. A line is ordered by clocks, and the
 * tags are known only now, with what is booked. Who has a clock in the line that has gone on is sent to its place; of
 * those bound here each once, else the first of many siblings would go behind the others at each look.
 */
__noinline u32 fair_comes(u32 cpu, u64 dsq, bool abroad)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	bool is_bound = (dsq >> 32) == (DSQ_BOUND(0) >> 32);
	u32 i, found = ROTA_NONE;
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;

	if (!c || nr_waiting(dsq) <= 0)
		return ROTA_NONE;
	if (bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		bpf_iter_scx_dsq_destroy(&it);
		return ROTA_NONE;
	}
	bpf_for (i, 0, FAIR_LOOKS) {
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
		if (!t || !f || !tenant || !may_run_here(p, cpu))
			continue;
		if (!t->overdue && !t->raised && vtime_before(t->tag + ROTA_FAIR_GRAIN_NS, f->clock)) {
			t->raised = is_bound;
			t->tag = f->clock;
			scx_bpf_dsq_move_set_vtime(&it, t->tag);
			scx_bpf_dsq_move_vtime(&it, p, dsq, 0);
		}
		tag = t->overdue ? t->tag : fair_next(c, number, f) + max_vtime(t->tag, f->clock) - f->clock;
		margin = abroad && !t->overdue && found == ROTA_NONE ? fair_margin(tenant, c, t) : 0;
		if (number == c->prev_tenant ? !c->prev_spent : c->has_bound && !vtime_before(tag + margin, c->bound))
			continue;
		c->has_bound = true;
		c->bound = tag;
		found = number;
	}
	bpf_iter_scx_dsq_destroy(&it);
	return found;
}

/* Takes the tenant's front from a line: it gets another one. If it is gone meanwhile, the first of the line. */
__noinline bool fair_take(u32 cpu, u32 domain, u32 tenant_id, u32 level, u64 until)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	u64 front = IN_LINE(tenant_id, domain), was;
	bool moved = false;
	u32 i;

	if (!c)
		return false;
	if (!bpf_iter_scx_dsq_new(&it, DSQ_SHARED(domain), 0)) {
		bpf_for (i, 0, 2 * FAIR_LOOKS) {
			struct task_ctx *t;

			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_ctx(p);
			if (!t || t->stands_for != tenant_id || !may_run_here(p, cpu))
				continue;
			was = front_leaves(t);
			if (was) /* another line's, if it is about to be sent there */
				front = was;
			moved = scx_bpf_dsq_move(&it, p, SCX_DSQ_LOCAL, 0);
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	fair_promote((u32)front - 1, front >> 32);
	if (!moved)
		return serve(cpu, DSQ_SHARED(domain), level, until);
	c->keeps_prev = false;
	c->picked = level;
	c->until_ns = until;
	return true;
}

/* A thread of the tenant is to wait in the domain. */
static __always_inline void notes_wait(struct fair_domain *d, u32 tenant, u64 now)
{
	if (d->waiter != tenant) {
		d->waited_other = d->waited;
		d->waiter = tenant;
	} else if (now - d->waited <= ROTA_FAIR_GRAIN_NS) {
		return;
	}
	d->waited = now;
}

/*
 * Whether anyone waits that a CPU of the tenant could take, or somebody of another tenant has a short time ago: what is
 * found then has to be known.
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
static __always_inline u64 next_decision(struct cpu_ctx *c, u32 cpu, u32 level, u64 until)
{
	u64 phase = ROTA_FAIR_SLICE_NS * cpu / nr_host_cpus;

	if (level == ROTA_LEVEL_FLOOR)
		return min_time(until, c->now + ROTA_QUANTUM_MIN_NS);
	return min_time(until, ((c->now - phase) / ROTA_FAIR_SLICE_NS + 1) * ROTA_FAIR_SLICE_NS + phase);
}

/* The same for a CPU that serves the tenant, or `until` if nobody else waits. */
static __always_inline u64 fair_until(struct cpu_ctx *c, u32 cpu, u32 level, u32 tenant, u64 until)
{
	bool prev_waits = c->prev_tenant != ROTA_NONE && !c->keeps_prev; /* from after this decision on */

	return prev_waits || fair_anyone(cpu, tenant, c->now) ? next_decision(c, cpu, level, until) : until;
}

/*
 * Takes from another domain's line: one is looked at, another each time; or all, if there is nothing at home, or a
 * thread has asked for this CPU, which may be behind a sibling that waits elsewhere.
 */
__noinline bool fair_migrate(u32 cpu, u32 level, u64 until)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	u32 i, looks, tenant;

	if (!c)
		return false;
	looks = c->has_bound && c->gives_way ? 1 : settings.nr_domains;
	bpf_for (i, 0, looks) {
		u32 domain = c->visits = (c->visits + 1) % (settings.nr_domains ?: 1);

		if (domain == c->domain)
			continue;
		tenant = fair_comes(cpu, DSQ_SHARED(domain), true);
		if (tenant != ROTA_NONE && fair_take(cpu, domain, tenant, level, until))
			return true;
	}
	return false;
}

/* Of those in the line that this CPU serves, and of those bound to it. */
__noinline int call_all_overdue(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct fair_domain *d = c ? fair_domain(c->domain) : NULL;

	if (d && nr_waiting(DSQ_SHARED(c->domain)) > 0 && shall_call(&d->called, c->now))
		call_overdue(DSQ_SHARED(c->domain));
	if (c && nr_waiting(DSQ_BOUND(cpu)) > 0 && shall_call(&c->called, c->now))
		call_overdue(DSQ_BOUND(cpu));
	return 0;
}

/* The tenant that is furthest behind, or the present one if that is not ahead of it. */
__noinline bool serve_fair(u32 cpu, u32 level, u64 until)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	u32 bound, line;

	if (!c)
		return false;
	/* A thread that was on its way while its tenant's front was taken is found at the end of that one's turn. */
	if (c->lasting != ROTA_NONE)
		fair_promote(c->domain, c->lasting);
	give_fronts();
	call_all_overdue(cpu);
	bound_by_prev(c);
	bound = fair_comes(cpu, DSQ_BOUND(cpu), false);
	line = fair_comes(cpu, DSQ_SHARED(c->domain), false);
	if ((settings.nr_domains > 1 && fair_migrate(cpu, level, until)) ||
	    (line != ROTA_NONE && fair_take(cpu, c->domain, line, level, until)) ||
	    (bound != ROTA_NONE && serve(cpu, DSQ_BOUND(cpu), level, until))) {
		c->until_ns = fair_until(c, cpu, level, ROTA_NONE, until);
		return true;
	}
	if (c->prev_tenant == ROTA_NONE)
		return false;
	c->keeps_prev = true;
	c->picked = level;
	c->until_ns = fair_until(c, cpu, level, c->prev_tenant, until);
	return true;
}

/* By how much a CPU's tenant is ahead of a request with this tag that may take it; 0: it may not. */
static __always_inline u64 runs_ahead(struct cpu_ctx *c, u32 tenant_id, u64 tag)
{
	struct rota_tenant *tenant;
	struct fair_ctx *f;
	u64 next;

	if (!c->gives_way || c->housekeeping || c->exclusive)
		return 0;
	if (c->level == ROTA_LEVEL_BACKGROUND)
		return ROTA_NEVER;
	tenant = tenant_of(c->served);
	f = fair_ctx(c->served);
	if (c->level != ROTA_LEVEL_SHARED || c->served == tenant_id || !tenant || !f)
		return 0;
	next = f->clock + f->booked - c->booked - weighted(tenant, ROTA_FAIR_SLICE_NS);
	return vtime_before(tag, next) ? next - tag : 0;
}

/*
 * A CPU of the domain that serves the tenant furthest ahead there, from this one's place on; ROTA_NONE: none is known.
 * One that no longer does is not looked at again.
 */
static __always_inline u32 fair_hint(struct cpu_ctx *own, u32 domain)
{
	struct fair_domain *d = fair_domain(domain);
	u32 ahead = d ? d->ahead : ROTA_NONE;
	struct fair_place *place = fair_place(domain, ahead);
	u64 seen = place ? place->gives_way : 0;
	struct cpu_ctx *c;
	u32 seat;

	if (!d || !seen)
		return ROTA_NONE;
	seat = __builtin_ctzll(seen & -own->bit ?: seen);
	barrier_var(seat); /* the compiler knows that it is small, the verifier does not */
	c = cpu_ctx(d->cpus[seat % ROTA_FAIR_BITS]);
	if (!c)
		return ROTA_NONE;
	if (c->gives_way && c->served == ahead)
		return c->number;
	fair_shows(c, place, false);
	return ROTA_NONE;
}

/* The CPU to look at after `i` others for one that gives way; ROTA_NONE: none. */
static __always_inline u32 fair_candidate(struct cpu_ctx *own, u32 i)
{
	if (!i)
		return own->number;
	if (i > FAIR_HINTS)
		return own->sampled = (own->sampled + 1) % nr_host_cpus;
	return fair_hint(own, (own->domain + i - 1) % (settings.nr_domains ?: 1));
}

/*
 * A CPU that a thread with this tag may take from another tenant, and that nobody else takes: its own, the one that
 * its domain or another one knows to be furthest ahead, or one of a few others.
 */
__noinline u32 fair_victim(struct task_struct *p __arg_trusted, u32 cpu, u32 tenant_id, u64 tag)
{
	struct cpu_ctx *own = cpu_ctx(cpu), *best = NULL;
	u32 i, found = ROTA_NONE;
	u64 most = 0;

	if (!own)
		return ROTA_NONE;
	bpf_for (i, 0, 1 + FAIR_HINTS + FAIR_SAMPLES) {
		u32 other = fair_candidate(own, i);
		struct cpu_ctx *c = cpu_ctx(other);
		u64 ahead = c ? runs_ahead(c, tenant_id, tag) : 0;

		if (ahead <= most || !may_run_on(p, other))
			continue;
		most = ahead;
		best = c;
		found = other;
		if (!i)
			break;
	}
	if (!best || !__sync_lock_test_and_set(&best->gives_way, 0))
		return ROTA_NONE;
	fair_shows(best, fair_place(best->domain, best->served), false);
	return found;
}

/*
 * The tag of a thread's request. Threads that may run everywhere all have their tenant's clock: they wait one behind
 * the other. Each of the others has a line of its own tags, on which it moves as fast as its tenant's clock if all of
 * the tenant's threads get the same; but it waits no longer than for one slice of each.
 */
static __always_inline u64 fair_tag(struct task_struct *p, struct task_ctx *t, struct rota_tenant *tenant,
				    const struct fair_ctx *f)
{
	u64 clock = f->clock, latest;

	if (!is_restricted(p) || vtime_before(t->finish, clock))
		return clock;
	latest = clock + fair_threads(tenant, f) * weighted(tenant, ROTA_FAIR_SLICE_NS);
	return vtime_before(latest, t->finish) ? latest : t->finish;
}

/*
 * Whether a thread that wakes starts on the CPU that was picked for it, which idles, without a decision of that CPU.
 * That is what it would decide: nobody waits whom an idle CPU could take, or it has been told of them, and decides as
 * soon as the thread runs. A sibling that wakes meanwhile is not to take the CPU, too.
 */
static __always_inline bool goes_straight(struct task_struct *p, struct task_ctx *t, u32 cpu)
{
	struct rota_tenant *tenant = tenant_of(t->m.tenant);
	struct fair_ctx *f = fair_ctx(t->m.tenant);
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (!f || !c || c->housekeeping || !is_shared_tenant(tenant))
		return false;
	c->gives_way = 0;
	t->tag = fair_tag(p, t, tenant, f);
	return true;
}

/* The same for one that may run on its own CPU only: no CPU is asked for, and it comes to be queued. */
static __always_inline bool goes_straight_at_home(struct task_struct *p, struct task_ctx *t, u64 enq_flags)
{
	bool is_bound = p->nr_cpus_allowed == 1 || is_held(p);
	u32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (!(enq_flags & SCX_ENQ_WAKEUP) || !is_bound || !c || c->level != ROTA_LEVEL_IDLE || c->housekeeping ||
	    c->exclusive || !is_shared_tenant(tenant_of(t->m.tenant)) || !scx_bpf_test_and_clear_cpu_idle(cpu))
		return false;
	return goes_straight(p, t, cpu);
}

/*
 * Whether a CPU that has just begun to serve somebody else, without a decision, has to decide because of its slot. In
 * a slot in which it has found nobody of the owner it has left what tells wakers to come to it.
 */
static __always_inline bool slot_needs_decision(struct cpu_ctx *c, bool enters)
{
	struct rota_tenant *owner = c->slot_queue == ROTA_NONE ? NULL : tenant_of(c->slot_tenant);

	if (!owner)
		return false;
	if (enters || c->slot_moves || c->looks_since)
		return true;
	return owner->nr_vcpus > 1 && (!c->slot_hungry || is_mark_taken(c));
}

/*
 * A thread starts without a decision: what one would have left behind. Somebody may have come to wait while the CPU was
 * on its way, which nobody could tell: then one follows.
 */
static __always_inline void starts_straight(struct cpu_ctx *c, u32 cpu, u32 tenant, u64 now)
{
	bool enters = follow_slots(c, cpu, now);
	bool anyone;

	c->now = now;
	c->dozes = 0;
	anyone = fair_anyone(cpu, tenant, now);
	if (slot_needs_decision(c, enters) || c->exclusive || (anyone && nr_waiting(DSQ_SHARED(c->domain)) > 0))
		c->overtaken = true;
	c->prev_tenant = ROTA_NONE;
	c->picked = ROTA_LEVEL_SHARED;
	c->until_ns = anyone ? next_decision(c, cpu, ROTA_LEVEL_SHARED, c->slot_end) : c->slot_end;
	arm(c, c->until_ns);
}

/*
 * The CPU for a thread that waits, at which or at whose domain it waits: one that idles, or gives way to it, and is
 * told; or else its own. One that wakes has been sent to an idle CPU if there was one. If its own idles still because a
 * sibling that woke at the same time is on its way there, it looks further. A CPU that has found nobody is about to
 * idle without one that became a shared tenant's while it ran there, and is told of it.
 */
static __always_inline u32 fair_cpu(struct task_struct *p, struct task_ctx *t, u64 enq_flags, bool *is_told)
{
	u32 cpu = scx_bpf_task_cpu(p), other = ROTA_NONE;
	bool wakes = enq_flags & SCX_ENQ_WAKEUP;
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct fair_ctx *f;

	if (!c)
		return cpu;
	if (wakes && c->level == ROTA_LEVEL_IDLE && !c->housekeeping && !c->exclusive &&
	    __sync_lock_test_and_set(&c->gives_way, 0))
		other = cpu;
	if ((enq_flags & SCX_ENQ_LAST) && !c->housekeeping && !c->exclusive && may_run_on(p, cpu))
		other = cpu;
	else if (!wakes)
		other = idle_open_cpu(p);
	f = fair_ctx(t->m.tenant);
	if (other == ROTA_NONE && f)
		other = fair_victim(p, cpu, t->m.tenant, t->tag + f->booked);
	*is_told = other != ROTA_NONE;
	if (*is_told) {
		c = cpu_ctx(other);
		if (c)
			c->overtaken = true;
		scx_bpf_kick_cpu(other, SCX_KICK_PREEMPT);
		return other;
	}
	if ((c->housekeeping || c->exclusive) && !is_held(p))
		other = open_cpu(p);
	return other != ROTA_NONE ? other : cpu;
}

/* The service of one that may not run everywhere ends. */
static __always_inline void fair_finish(struct task_ctx *t, struct rota_tenant *tenant, u64 used)
{
	const struct fair_ctx *f = fair_ctx(t->m.tenant);

	if (f)
		t->finish = t->tag + weighted(tenant, used) * fair_threads(tenant, f);
}

/* The dispatch queue for a thread that is to wait at a CPU. */
static __always_inline u64 fair_stand(struct task_struct *p, struct task_ctx *t, u32 tenant_id, u32 cpu)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct fair_ctx *f = fair_ctx(tenant_id);
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct fair_place *place = c ? fair_place(c->domain, tenant_id) : NULL;
	struct fair_domain *d = c ? fair_domain(c->domain) : NULL;
	u64 now = bpf_ktime_get_ns();

	if (!place || !tenant || !f || !d)
		return DSQ_PINNED(cpu);
	/* An idle CPU was told: that is no wait. */
	if (c->level != ROTA_LEVEL_IDLE)
		notes_wait(d, tenant_id, now);
	t->queued_since = t->queued_since ?: now;
	t->stands_for = tenant_id;
	t->raised = false;
	t->tag = tag_in_line(t, fair_tag(p, t, tenant, f), now);
	if (is_restricted(p))
		return DSQ_BOUND(cpu);
	if (__sync_val_compare_and_swap(&place->front, 0, 1))
		return DSQ_QUEUE(tenant->first_queue);
	t->in_line = IN_LINE(tenant_id, c->domain);
	t->waits_since = now;
	return DSQ_SHARED(c->domain);
}

/* One that waits already, bound to a CPU, and is changed as it waits keeps its place: see place_in_line. */
static __always_inline void keep_place(struct task_ctx *t, u64 dsq, u64 tag)
{
	if ((dsq >> 32) == (DSQ_BOUND(0) >> 32) && vtime_before(tag, t->tag)) {
		t->tag = tag;
		t->raised = true;
	}
}

/* A thread of a tenant without a reservation is to wait. */
__noinline int fair_enqueue(struct task_struct *p __arg_trusted, u64 enq_flags)
{
	struct task_ctx *t = task_ctx(p);
	struct queue_ctx *q = t ? siblings_of(&t->m) : NULL;
	struct fair_ctx *f = t ? fair_ctx(t->m.tenant) : NULL;
	bool is_told = true, waits;
	struct cpu_ctx *c;
	u64 dsq, tag;
	u32 cpu;

	if (!q || !f) {
		scx_fail("a task of a shared tenant that is not there", t ? t->m.tenant : 0);
		return 0;
	}
	if (goes_straight_at_home(p, t, enq_flags)) {
		t->straight = true;
		scx_insert(p, SCX_DSQ_LOCAL, ROTA_QUANTUM_NS, enq_flags | scx_enq_immediately());
		return 0;
	}
	waits = (t->waits_in >> 32) == (DSQ_BOUND(0) >> 32) && t->stands_for == t->m.tenant;
	tag = t->tag;
	t->tag = f->clock;
	cpu = fair_cpu(p, t, enq_flags, &is_told);
	place_among_siblings(p, t, q); /* before it is noted that it waits: only who has not waited yet is new */
	dsq = fair_stand(p, t, t->m.tenant, cpu);
	if (waits)
		keep_place(t, dsq, tag);
	c = cpu_ctx(cpu);
	begins_to_wait(t, (dsq >> 32) == (DSQ_QUEUE(0) >> 32) && c ? DSQ_SHARED(c->domain) : dsq);
	if (!is_told)
		tell_new_idle_cpu(p, dsq);
	/* One that was overdue already before it was changed is called by nobody again. */
	scx_insert_vtime(p, dsq, ROTA_QUANTUM_NS,
			 (dsq >> 32) == (DSQ_QUEUE(0) >> 32) && !t->overdue ? t->vtime : t->tag, enq_flags);
	return 0;
}

#endif /* ROTA_FAIR_BPF_H */
