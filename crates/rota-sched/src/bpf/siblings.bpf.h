/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Turns between the threads of one queue: by what each has used, divided by its weight.
 */
#ifndef ROTA_SIBLINGS_BPF_H
#define ROTA_SIBLINGS_BPF_H

#include "line.bpf.h"

/*
 * The queue by whose clocks a task takes turns with its siblings. A reserved VM's vCPUs have a queue each; without a
 * reservation they share what the VM has, though each has an account of its own.
 */
static __always_inline struct queue_ctx *siblings_of(const struct membership *m)
{
	const struct rota_tenant *tenant = tenant_of(m->tenant);

	return queue_ctx(tenant && tenant->class != ROTA_CLASS_RESERVED ? tenant->first_queue : m->queue);
}

/* How long a thread may run before its siblings' turn, by how many share the queue. */
static __always_inline u64 quantum(u32 siblings)
{
	return max_time(min_time(ROTA_ROTATION_NS / (siblings + 1), ROTA_QUANTUM_NS), quantum_min(siblings));
}

/*
 * In a crowd a thread comes after all that wait: by what each has used, some would wait for many rotations of seconds
 * each. What blocks before its turn is over has the rest of the turn first. It may hold what all others wait for, as a
 * lock of the kernel, and would be a rotation late each time. What a change of task takes is of the turn as well.
 */
static __always_inline u64 place_in_crowd(struct task_ctx *t, struct queue_ctx *q)
{
	u64 turn = quantum(q->nr_runnable);

	t->turn_ns += ROTA_CHANGE_NS;
	if (t->turn_ns < turn)
		return --t->turn_at;
	t->turn_ns = 0;
	return t->turn_at = t->vtime = max_vtime(t->vtime, q->last);
}

/*
 * A thread that blocks RCU comes before its siblings, as if it had waited for a round. In a crowd of thousands a
 * section that takes two turns would else last for a rotation of seconds. Its turns are charged as any others.
 */
static __always_inline u64 place_for_rcu(void)
{
	return bpf_ktime_get_ns() - ROTA_FLOOR_ROUND_NS - OVERDUE_FIRST;
}

/*
 * A thread's place among those of its queue: by what it has used, no further ahead or behind than a quantum. A new
 * thread is a ms behind, so that a stream of new processes does not overtake the threads that wait. A thread that
 * spins comes after all that wait (spin.bpf.h). A thread is placed once, and keeps its place if it is changed.
 */
static __always_inline u64 place_among_siblings(struct task_struct *p, struct task_ctx *t, struct queue_ctx *q)
{
	u64 weight = p->scx.weight ?: 1, place;

	if (t->last_cpu == ROTA_NONE && !t->queued_since)
		t->vtime = q->vtime + vtime_of(ROTA_NEWCOMER_NS, weight);
	t->vtime = vtime_within(t->vtime, q->vtime, ROTA_QUANTUM_NS, vtime_of(ROTA_QUANTUM_NS, weight));
	if (blocks_rcu(p))
		return place_for_rcu();
	place = q->nr_runnable > ROTA_CROWD && !t->queued_since ? place_in_crowd(t, q) : t->vtime;
	if (t->gives_way)
		place = t->vtime = max_vtime(t->vtime, q->last);
	q->last = max_vtime(q->last, place);
	return place;
}

/* Ticks end the turns of a few siblings; many take turns shorter than a tick, which only the timer can end. */
static __always_inline u64 crowd_until(struct run *r, u32 queue, u64 until)
{
	struct queue_ctx *q = queue_ctx(queue);

	if (!q || q->nr_runnable <= ROTA_ROTATION_NS / ROTA_QUANTUM_NS)
		return until;
	return min_time(until, r->now + quantum(q->nr_runnable));
}

/* The same for a CPU's line: all that wait there have a turn in a round. */
static __always_inline u64 line_until(struct run *r, u64 dsq, u64 until)
{
	s32 waiting = nr_waiting(dsq);

	return waiting <= ROTA_CROWD ? until : min_time(until, r->now + ROTA_FLOOR_ROUND_NS / waiting);
}

/*
 * The same for threads that wait for slots of a tenant, as a slot begins. Siblings take turns by what each has used, a
 * quantum more or less. In a small share a second of their turns may take half a minute of slots.
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

#endif /* ROTA_SIBLINGS_BPF_H */
