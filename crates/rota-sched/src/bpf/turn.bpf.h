/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A turn on a CPU: how it goes on, and what it is charged as it ends.
 */
#ifndef ROTA_TURN_BPF_H
#define ROTA_TURN_BPF_H

#include "front.bpf.h"
#include "pass.bpf.h"

/* The clocks by which newcomers join a line move with the threads that are served. */
static __always_inline void move_clocks(struct cpu_ctx *c, struct task_ctx *t, struct queue_ctx *q)
{
	if (!q)
		return;
	q->vtime = max_vtime(q->vtime, t->vtime);
	if (is_in_background(c))
		background_vtime = max_vtime(background_vtime, q->fair_vtime);
}

/* What the task has used counts for its next place in line. */
static __always_inline void charge_place(struct task_struct *p, struct task_ctx *t, struct queue_ctx *q,
					 struct cpu_ctx *c, u64 now)
{
	u64 used = now - t->charged;

	t->charged = now;
	t->turn_ns += used;
	t->vtime += vtime_of(used, p->scx.weight ?: 1);
	if (q && is_in_background(c))
		__sync_fetch_and_add(&q->fair_vtime, used);
}

/*
 * Budgets and grants are charged for the thread that ran until now before they decide which is next. It stops only
 * afterwards, if it would go on.
 */
static __always_inline void settle_prev(struct task_struct *prev, struct cpu_ctx *c, u32 cpu, u64 now)
{
	struct task_ctx *t = prev && (prev->scx.flags & SCX_TASK_QUEUED) ? task_ctx(prev) : NULL;

	if (!t || !t->running)
		return;
	charge_place(prev, t, siblings_of(&t->m), c, now);
	find_loser(c, cpu, now);
	turn_ends(cpu, t->m.queue, TURN_GOES_ON, now);
}

/* Another class leaves the CPU: what it has taken is counted before it is decided who is next. */
static __always_inline void settle_taken(struct cpu_ctx *c, u32 cpu, u64 now)
{
	if (!c->slot.in_windows || !c->turn.other_since)
		return;
	settle_other(c, cpu, ROTA_LATE_MIN_NS, now);
	c->turn.other_since = now;
}

/*
 * A kernel thread that can run nowhere else goes on when its CPU is told to look around. At the head of the CPU's own
 * queue it would wait for the turn of the thread that is chosen here.
 */
static __always_inline bool goes_on_anyway(struct cpu_ctx *c, u32 cpu, struct task_struct *prev, u64 now)
{
	if (!prev || !(prev->scx.flags & SCX_TASK_QUEUED) || !is_bound_kernel_thread(prev))
		return false;
	pass_slot(c, cpu, now);
	scx_set_slice(prev, ROTA_QUANTUM_NS);
	return true;
}

/* What ran until now goes on, without leaving the CPU: a new turn begins. */
static __always_inline void keep_prev(struct run *r, struct cpu_ctx *c, struct task_struct *prev)
{
	struct task_ctx *t = prev ? task_ctx(prev) : NULL;

	turn_begins(c, r->cpu, c->turn.picked, r->now);
	goes_on_serving(c);
	fair_turn(c, tenant_of(c->fair.served), r->now);
	if (t) {
		on_goes_on(c, t, r->now);
		move_clocks(c, t, siblings_of(&t->m));
	}
	if (prev)
		scx_set_slice(prev, ROTA_QUANTUM_NS);
}

/* When this is: if what ran until now has blocked, that was a moment ago, and `stopping` has read the clock. */
static __always_inline u64 now_after(const struct cpu_ctx *c, struct task_struct *prev)
{
	bool has_blocked = prev && !(prev->scx.flags & SCX_TASK_QUEUED);

	return has_blocked && c->turn.other_since ? c->turn.other_since : bpf_ktime_get_ns();
}

/* What a task used is counted for it and for its queue. */
static __always_inline void settle_task(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, u32 cpu,
					bool runnable, u64 now)
{
	struct queue_ctx *q = queue_ctx(t->m.queue);
	struct rota_tenant *tenant = tenant_of(t->m.tenant);
	bool blocks;

	if (!q || !tenant || !t->running)
		return;
	t->running = false;
	charge_place(p, t, siblings_of(&t->m), c, now);
	if (is_shared_tenant(tenant) && is_bound(p))
		fair_finish(t, tenant, now - t->run_since);
	find_loser(c, cpu, now);
	blocks = !runnable && t->counted && !has_left(t, now);
	if (!runnable)
		t->counted = false;
	if (blocks)
		on_blocks(p, cpu, t, now);
	else
		on_stops(p, cpu, t, runnable, now);
}

/*
 * Another class takes the CPU, with dispatch not asked. A thread that has some of its slice left would stay in the
 * CPU's own queue, where no other CPU finds it, for as long as that class wants; without any it comes through enqueue.
 */
static __always_inline void gives_way(struct cpu_ctx *c, struct task_struct *p)
{
	if (c->turn.decided || is_bound_kernel_thread(p))
		return;
	scx_set_slice(p, 0);
	serves_no_more(c);
}

#endif /* ROTA_TURN_BPF_H */
