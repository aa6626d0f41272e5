/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tenants or bindings have changed: the loader has waiting tasks looked at, and sent to where they belong now.
 */
#ifndef ROTA_REHOME_BPF_H
#define ROTA_REHOME_BPF_H

#include "fair_enqueue.bpf.h"

/*
 * The loader looks at a waiting task that belongs into the dispatch queue `dsq` now. Whether it is counted once more
 * from now on: also one that waits where it did, if its tenant has another class and it is looked for elsewhere.
 */
static __always_inline bool is_rehomed(struct task_ctx *t, u64 dsq, bool is_shared)
{
	bool in_line = is_shared && (line_kind(dsq) == ROTA_LINE_SHARED || line_kind(dsq) == ROTA_LINE_QUEUE);

	if (in_line ? line_kind(t->waits_in) == ROTA_LINE_SHARED : t->waits_in == dsq)
		return false;
	if (__sync_lock_test_and_set(&t->rehomed, 1))
		return false;
	__sync_fetch_and_add(&nr_rehomed, 1);
	return true;
}

/*
 * A waiting task is about to be sent to another queue. The queue that it leaves counts it no more, and the new one
 * counts it when it runs. The task's record changes only under its run queue's lock, which is not held here. So `left`
 * says what was done, and the CPU that clears it puts the counts right.
 */
static __always_inline void leave_queue(struct task_ctx *t, u32 queue, u64 now)
{
	if (t->counted && !__sync_lock_test_and_set(&t->left, queue + 1))
		queue_loses_thread(queue, false, now);
}

/* It was not sent after all: a CPU has taken it. */
static __always_inline void stay_in_queue(struct task_ctx *t, u64 now)
{
	u32 left = __sync_lock_test_and_set(&t->left, 0);

	if (left)
		queue_gains_thread(left - 1, now);
}

/* Whether a CPU serves shared tenants by the table in force. */
static __always_inline bool serves_shared(u32 cpu)
{
	return !is_housekeeping(cpu) && !is_exclusive(table_in_force(bpf_ktime_get_ns()), cpu);
}

/* Whether the task stands where it should as its tenant's front: the line's cores may be somebody's own now. */
static __always_inline bool stands_in_line(struct task_struct *p, const struct task_ctx *t, u32 tenant_id, u64 dsq)
{
	struct fair_domain *d = fair_domain((u32)dsq);

	return line_kind(dsq) == ROTA_LINE_SHARED && t->in_line >> 32 == tenant_id && d && !d->closed && !is_bound(p);
}

/* A waiting thread that belongs into a line now: where it goes; `dsq`, where it is, if it is in its place. */
__noinline u64 fair_rehome(struct task_struct *p __arg_trusted, u32 tenant_id, u64 dsq)
{
	struct task_ctx *t = task_ctx(p);
	u32 open = is_held(p) ? (u32)scx_bpf_task_cpu(p) : open_cpu(p);
	bool is_called;
	u64 target;

	if (!t || stands_in_line(p, t, tenant_id, dsq))
		return dsq;
	if (line_kind(dsq) == ROTA_LINE_BOUND && t->stands_for == tenant_id && is_bound(p) && may_run_on(p, (u32)dsq) &&
	    serves_shared((u32)dsq) && open != ROTA_NONE)
		return dsq;
	is_called = t->overdue;
	front_is_gone(t);
	target = fair_stand(p, t, tenant_id, open != ROTA_NONE ? open : scx_bpf_task_cpu(p));
	if (target == dsq) /* it keeps the place, also as an overdue thread */
		t->overdue = is_called;
	return target;
}

/*
 * Where a task belongs that waits in a dispatch queue. A task that waits on a CPU that may serve it keeps the place
 * there: any other would be drawn anew at each look.
 */
__noinline u64 belongs_to(struct task_struct *p __arg_trusted, u32 tenant_id, u32 vcpu, u32 queue, u64 dsq)
{
	u32 buffer = table_in_force(bpf_ktime_get_ns());
	u64 target = dsq_of(p, tenant_id, vcpu, queue, buffer);

	if (line_kind(target) == ROTA_LINE_SHARED)
		return fair_rehome(p, tenant_id, dsq);
	if (line_kind(target) == ROTA_LINE_PINNED && line_kind(dsq) == ROTA_LINE_PINNED &&
	    !is_exclusive(buffer, (u32)dsq) && may_run_on(p, (u32)dsq))
		return dsq;
	return target;
}

/* Moves the tasks that wait in a dispatch queue to where they belong since tenants or bindings have changed. */
SEC("syscall")
int rehome(struct rota_rehome *arg)
{
	struct task_struct *p;
	struct bpf_iter_scx_dsq it;
	u64 dsq = arg->dsq, moved = 0;

	arg->moved = 0;
	if (scx_bpf_dsq_nr_queued(dsq) <= 0)
		return 0;
	bpf_rcu_read_lock();
	if (bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		bpf_iter_scx_dsq_destroy(&it);
		bpf_rcu_read_unlock();
		return -EINVAL;
	}
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		struct task_ctx *t = task_ctx(p);
		struct membership m;
		u64 target, now = bpf_ktime_get_ns();
		bool counts, stays;

		classify(p, &m);
		target = belongs_to(p, m.tenant, m.vcpu, m.queue, dsq);
		counts = t && is_rehomed(t, target, is_shared_tenant(tenant_of(m.tenant)));
		stays = target == dsq;
		/* One that stays where it is and is another's now is moved, too: then no CPU has taken it meanwhile. */
		if (stays && (!t || t->m.queue == m.queue || line_kind(target) == ROTA_LINE_SHARED)) {
			if (counts && !t->waits_in) /* it has begun to run meanwhile */
				no_longer_rehomed(t);
			continue;
		}
		if (t && t->m.queue != m.queue)
			leave_queue(t, t->m.queue, now);
		if (t && line_kind(target) != ROTA_LINE_SHARED)
			front_is_gone(t);
		if (t && t->queued_since)
			brings_wait(target, t->queued_since);
		if (!stays)
			scx_bpf_dsq_move_set_vtime(&it, t && (t->in_line || t->overdue) ? t->tag : 0);
		if (scx_bpf_dsq_move_vtime(&it, p, target, 0)) {
			moved++;
			continue;
		}
		/* It runs by now, and is no front, whatever it was made. */
		if (t && line_kind(target) == ROTA_LINE_SHARED)
			front_is_gone(t);
		if (t)
			stay_in_queue(t, now);
		if (t && counts)
			no_longer_rehomed(t);
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	arg->moved = moved;
	return 0;
}

#endif /* ROTA_REHOME_BPF_H */
