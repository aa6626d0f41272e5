/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fronts. Of each shared tenant that waits in a domain one thread is in the domain's line. The others wait behind it in
 * their tenant's queue. The CPU that takes the front makes the next thread the front. If the front leaves otherwise,
 * the next CPU that serves shared tenants does.
 */
#ifndef ROTA_FRONT_BPF_H
#define ROTA_FRONT_BPF_H

#include "tell.bpf.h"

/* In which line a task is its tenant's front. */
#define IN_LINE(tenant, domain) ((u64)(tenant) << 32 | ((domain) + 1))

/* The task is no longer its tenant's front. Returns in which line it was; 0: it was not. */
static __always_inline u64 front_leaves(struct task_ctx *t)
{
	u64 was = t->in_line ? __sync_lock_test_and_set(&t->in_line, 0) : 0;
	struct fair_place *place = was ? fair_place((u32)was - 1, was >> 32) : NULL;

	if (place)
		place->front = 0;
	return was;
}

/* A tenant may wait in a domain without a front: the next CPU that serves shared tenants gives it one. */
static __always_inline void lacks_front(u32 domain, u32 tenant)
{
	struct fair_domain *d = fair_domain(domain);
	u32 other = d ? __sync_val_compare_and_swap(&d->lacks_front, 0, tenant + 1) : 0;

	if (other && other != tenant + 1)
		d->lacks_front = ROTA_NONE;
}

/*
 * The task may have been its tenant's front, and leaves the line without being taken from it. It was changed, or a CPU
 * took it for another tenant. Returns whether threads wait behind it, which have no front then.
 */
static __always_inline bool front_is_gone(struct task_ctx *t)
{
	u64 was = front_leaves(t);
	struct rota_tenant *tenant = was ? tenant_of(was >> 32) : NULL;

	if (!tenant || scx_bpf_dsq_nr_queued(DSQ_QUEUE(tenant->first_queue)) <= 0)
		return false;
	lacks_front((u32)was - 1, was >> 32);
	return true;
}

/* The same where a CPU that idles may be told. A function of its own, as enqueue has no stack to spare. */
static __noinline int tell_front_is_gone(struct task_ctx *t)
{
	if (front_is_gone(t))
		tell_idle_open_cpu();
	return 0;
}

/* The task is no longer where it waited. */
static __always_inline void leaves_line(struct task_ctx *t)
{
	if (t->in_line)
		tell_front_is_gone(t);
}

/* The tenant's next thread becomes its front in a domain, if there is one. */
__noinline int fair_promote(u32 domain, u32 tenant_id)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct fair_place *place = fair_place(domain, tenant_id);
	struct fair_domain *d = fair_domain(domain);
	struct fair_ctx *f = fair_ctx(tenant_id);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	u64 dsq, now;

	if (!is_shared_tenant(tenant) || !place || !f || !d || d->closed)
		return 0;
	dsq = DSQ_QUEUE(tenant->first_queue);
	if (place->front || scx_bpf_dsq_nr_queued(dsq) <= 0 || __sync_val_compare_and_swap(&place->front, 0, 1))
		return 0;
	now = bpf_ktime_get_ns();
	if (shall_call(&f->called, now))
		call_overdue(dsq);
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0) && (p = bpf_iter_scx_dsq_next(&it))) {
		struct task_ctx *t = task_ctx(p);

		if (t) {
			t->tag = tag_in_line(t, f->clock, now);
			t->stands_for = tenant_id;
			t->in_line = IN_LINE(tenant_id, domain);
			t->waits_since = now;
			place->front_cpu = t->last_cpu;
			place->since = t->queued_since;
			scx_bpf_dsq_move_set_vtime(&it, t->tag);
			if (scx_bpf_dsq_move_vtime(&it, p, DSQ_SHARED(domain), 0)) {
				bpf_iter_scx_dsq_destroy(&it);
				return 1;
			}
			t->in_line = 0;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	place->front = 0;
	return 0;
}

/* The tenants that wait without a front get one: see front_is_gone. */
static __always_inline void give_fronts(void)
{
	u32 domain, tenant;

	for (domain = 0; domain < settings.nr_domains; domain++) {
		struct fair_domain *d = fair_domain(domain);
		u32 lacks = d && d->lacks_front ? __sync_lock_test_and_set(&d->lacks_front, 0) : 0;

		if (lacks == ROTA_NONE)
			bpf_for (tenant, 0, settings.nr_tenants)
				fair_promote(domain, tenant);
		else if (lacks)
			fair_promote(domain, lacks - 1);
	}
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
 * The tag of a thread's request. Threads that may run on all open CPUs have their tenant's clock: they wait one behind
 * the other. Each of the others has a line of its own tags, on which it moves as fast as its tenant's clock if all of
 * the tenant's threads get the same; but it waits no longer than for one slice of each, and so long if it spins.
 */
static __always_inline u64 fair_tag(struct task_struct *p, struct task_ctx *t, struct rota_tenant *tenant,
				    const struct fair_ctx *f)
{
	u64 clock = f->clock, latest;

	if (!is_bound(p) || blocks_rcu(p) || (vtime_before(t->finish, clock) && !t->gives_way))
		return clock;
	latest = clock + fair_threads(tenant, f) * weighted(tenant, ROTA_FAIR_SLICE_NS);
	return t->gives_way ? latest : min_vtime(latest, t->finish);
}

/* The service of a bound thread ends. */
static __always_inline void fair_finish(struct task_ctx *t, struct rota_tenant *tenant, u64 used)
{
	const struct fair_ctx *f = fair_ctx(t->m.tenant);

	if (f)
		t->finish = t->tag + weighted(tenant, used) * fair_threads(tenant, f);
}

#endif /* ROTA_FRONT_BPF_H */
