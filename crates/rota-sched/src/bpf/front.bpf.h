/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fronts: of each shared tenant that waits in a domain one thread is in the domain's line, and the others wait behind
 * it in their tenant's queue. Whoever takes it from there makes the next one the front; where it goes otherwise, the
 * next CPU that serves shared tenants does.
 */
#ifndef ROTA_FRONT_BPF_H
#define ROTA_FRONT_BPF_H

#include "clock.bpf.h"
#include "wake.bpf.h"

/* Before what any clock of a tenant says by as much as two of them can ever be apart. */
#define OVERDUE_FIRST (1ULL << 62)
/* Tasks of a line that are looked at for those that are overdue. */
#define LINE_MAX 1024

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
 * The task may have been its tenant's front, and goes without being taken from the line: it has been changed, or a
 * CPU has taken it for somebody else. Returns whether one waits behind it, who is behind nobody then.
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

/*
 * With what tag a task stands in a line, by which its tenant has had so much. Who is overdue comes before all that are
 * not, in the order in which they came: a tenant of little weight is not to wait, where next to nothing is left, until
 * the kernel's watchdog thinks its threads forgotten. It is charged for that turn as for any other.
 */
static __always_inline u64 tag_in_line(struct task_ctx *t, u64 tag, u64 now)
{
	t->overdue = t->queued_since && now - t->queued_since > ROTA_STARVING_NS;
	return t->overdue ? t->queued_since - OVERDUE_FIRST : tag;
}

/* Who has become overdue in a dispatch queue, be it behind a front, goes to its head. */
static __always_inline void call_overdue(u64 dsq)
{
	u64 now = bpf_ktime_get_ns();
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	u32 i;

	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		bpf_for (i, 0, LINE_MAX) {
			struct task_ctx *t;

			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_ctx(p);
			if (!t || t->overdue)
				continue;
			t->tag = tag_in_line(t, t->tag, now);
			if (!t->overdue)
				continue;
			scx_bpf_dsq_move_set_vtime(&it, t->tag);
			scx_bpf_dsq_move_vtime(&it, p, dsq, 0);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
}

/* Whether it is time to look for them again, for one of those that ask. */
static __always_inline bool shall_call(u64 *called, u64 now)
{
	u64 last = *called;

	return now - last > ROTA_FLOOR_WAIT_NS && __sync_val_compare_and_swap(called, last, now) == last;
}

/*
 * The same for who waits for slots of a tenant, as one begins: of many siblings in a small share each would have its
 * turn by what it has used, a quantum more or less, and that may be half a minute of slots for each second of turns.
 */
__noinline int call_siblings(u32 tenant_id)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct fair_ctx *f = fair_ctx(tenant_id);
	u64 dsq;

	if (!tenant || !f || !shall_call(&f->called, bpf_ktime_get_ns()))
		return 0;
	dsq = DSQ_QUEUE(tenant->first_queue);
	if (scx_bpf_dsq_nr_queued(dsq) > 0)
		call_overdue(dsq);
	return 0;
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
	if (scx_bpf_dsq_nr_queued(dsq) <= 0 || __sync_val_compare_and_swap(&place->front, 0, 1))
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

#endif /* ROTA_FRONT_BPF_H */
