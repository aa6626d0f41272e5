/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A shared tenant's thread is to wait: at which CPU, in which line, with what tag.
 */
#ifndef ROTA_FAIR_ENQUEUE_BPF_H
#define ROTA_FAIR_ENQUEUE_BPF_H

#include "straight.bpf.h"
#include "yield.bpf.h"

/*
 * The CPU at which, or in whose domain's line, a thread waits. It is an idle CPU or one that gives way, which is told,
 * or else the thread's own. A waking thread was sent to an idle CPU if there was one. Its own CPU may seem idle while a
 * sibling is on its way there: then it looks further. A thread that becomes a shared tenant's as it runs is queued
 * while its CPU is about to idle (SCX_ENQ_LAST): that CPU is told.
 */
static __always_inline u32 fair_cpu(struct task_struct *p, struct task_ctx *t, u64 enq_flags, bool *is_told)
{
	u32 cpu = scx_bpf_task_cpu(p), other = ROTA_NONE;
	bool wakes = enq_flags & SCX_ENQ_WAKEUP;
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct fair_ctx *f;

	if (!c)
		return cpu;
	if (wakes && c->turn.level == ROTA_LEVEL_IDLE && !c->role.housekeeping && !c->role.exclusive &&
	    __sync_lock_test_and_set(&c->offer.gives_way, 0))
		other = cpu;
	if ((enq_flags & SCX_ENQ_LAST) && !c->role.housekeeping && !c->role.exclusive && may_run_on(p, cpu))
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
			overtake(c, other);
		return other;
	}
	if ((c->role.housekeeping || c->role.exclusive) && !is_held(p))
		other = open_cpu(p);
	return other != ROTA_NONE ? other : cpu;
}

/* The dispatch queue for a thread that is to wait at a CPU. */
static __always_inline u64 fair_stand(struct task_struct *p, struct task_ctx *t, u32 tenant_id, u32 cpu)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct fair_ctx *f = fair_ctx(tenant_id);
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct fair_place *place = c ? fair_place(c->role.domain, tenant_id) : NULL;
	struct fair_domain *d = c ? fair_domain(c->role.domain) : NULL;
	u64 now = bpf_ktime_get_ns();

	if (!place || !tenant || !f || !d)
		return DSQ_PINNED(cpu);
	/* An idle CPU was told: that is no wait. */
	if (c->turn.level != ROTA_LEVEL_IDLE)
		notes_wait(d, tenant_id, now);
	t->queued_since = t->queued_since ?: now;
	t->stands_for = tenant_id;
	t->raised = false;
	t->tag = tag_in_line(t, fair_tag(p, t, tenant, f), now);
	t->waits_since = now;
	if (is_bound(p))
		return DSQ_BOUND(cpu);
	if (__sync_val_compare_and_swap(&place->front, 0, 1))
		return DSQ_QUEUE(tenant->first_queue);
	t->in_line = IN_LINE(tenant_id, c->role.domain);
	place->front_cpu = t->last_cpu;
	place->since = t->queued_since;
	return DSQ_SHARED(c->role.domain);
}

/* A bound thread that is changed as it waits keeps the place. */
static __always_inline void keep_place(struct task_ctx *t, u64 dsq, u64 tag)
{
	if (line_kind(dsq) == ROTA_LINE_BOUND && vtime_before(tag, t->tag)) {
		t->tag = tag;
		t->raised = true;
	}
}

/*
 * The place of a thread in its dispatch queue: behind a front by what it has used, elsewhere by tag. An overdue thread
 * keeps the place, as no later call would move it there. A thread that blocks RCU comes before its siblings.
 */
static __always_inline u64 place_in(struct task_struct *p, struct task_ctx *t, u64 dsq)
{
	if (t->overdue || line_kind(dsq) == ROTA_LINE_SHARED)
		return t->tag;
	if (blocks_rcu(p)) {
		t->raised |= line_kind(dsq) == ROTA_LINE_BOUND;
		return place_for_rcu();
	}
	return line_kind(dsq) == ROTA_LINE_QUEUE ? t->vtime : t->tag;
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
	waits = line_kind(t->waits_in) == ROTA_LINE_BOUND && t->stands_for == t->m.tenant;
	tag = t->tag;
	t->tag = f->clock;
	cpu = fair_cpu(p, t, enq_flags, &is_told);
	place_among_siblings(p, t, q); /* before it is noted that it waits: a new one has not waited yet */
	dsq = fair_stand(p, t, t->m.tenant, cpu);
	if (waits)
		keep_place(t, dsq, tag);
	c = cpu_ctx(cpu);
	begins_to_wait(t, line_kind(dsq) == ROTA_LINE_QUEUE && c ? DSQ_SHARED(c->role.domain) : dsq);
	if (!is_told)
		tell_new_idle_cpu(p, dsq);
	scx_insert_vtime(p, dsq, ROTA_QUANTUM_NS, place_in(p, t, dsq), enq_flags);
	return 0;
}

#endif /* ROTA_FAIR_ENQUEUE_BPF_H */
