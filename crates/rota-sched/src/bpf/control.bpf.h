/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the loader has the scheduler do, as programs that it runs by system call. Each argument was checked by the
 * loader; nothing here can fail half-way.
 */
#ifndef ROTA_CONTROL_BPF_H
#define ROTA_CONTROL_BPF_H

#include "fair.bpf.h"

/*
 * Publishes the table that the loader has put into a buffer (thesis section 4.2.1, "Synchronization-free table
 * switching"). It comes into force at the next boundary that is at least half a round away; CPUs find it by the clock.
 */
SEC("syscall")
int publish_table(struct rota_publish *arg)
{
	u64 now, boundary = arg->boundary_ns, from;
	u32 buffer = arg->buffer, cpu;
	volatile struct rota_table_ref *table;

	if (!boundary || buffer >= ROTA_NR_BUFFERS)
		return -EINVAL;
	table = buffer ? &live.tables[1] : &live.tables[0];
	table->generation = arg->generation;
	bpf_preempt_disable();
	now = bpf_ktime_get_ns();
	from = (now + boundary / 2 + boundary) / boundary * boundary;
	__sync_lock_test_and_set(&table->from_ns, from);
	now = bpf_ktime_get_ns();
	bpf_preempt_enable();
	if (now >= from)
		live.stalled_publishers++;
	arg->from_ns = from;
	arg->stored_ns = now;
	/* So that every CPU sets its timer for the change-over, even one that had nothing to wait for. */
	bpf_for (cpu, 0, nr_host_cpus)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* Whether a CPU serves shared tenants by the table in force. */
static __always_inline bool serves_shared(u32 cpu)
{
	return !is_housekeeping(cpu) && !is_exclusive(table_in_force(bpf_ktime_get_ns()), cpu);
}

/* Whether the task stands where it should as its tenant's front: the line's cores may be somebody's own now. */
static __always_inline bool stands_in_line(const struct task_ctx *t, u32 tenant_id, u64 dsq)
{
	struct fair_domain *d = fair_domain((u32)dsq);

	return (dsq >> 32) == (DSQ_SHARED(0) >> 32) && t->in_line >> 32 == tenant_id && d && !d->closed;
}

/* A waiting thread that belongs into a line now: where it goes; `dsq`, where it is, if it is in its place. */
__noinline u64 fair_rehome(struct task_struct *p __arg_trusted, u32 tenant_id, u64 dsq)
{
	struct task_ctx *t = task_ctx(p);
	u32 open = is_held(p) ? (u32)scx_bpf_task_cpu(p) : open_cpu(p);
	bool is_called;
	u64 target;

	if (!t || stands_in_line(t, tenant_id, dsq))
		return dsq;
	if ((dsq >> 32) == (DSQ_BOUND(0) >> 32) && t->stands_for == tenant_id && is_restricted(p) &&
	    may_run_on(p, (u32)dsq) && serves_shared((u32)dsq) && open != ROTA_NONE)
		return dsq;
	is_called = t->overdue;
	front_is_gone(t);
	target = fair_stand(p, t, tenant_id, open != ROTA_NONE ? open : scx_bpf_task_cpu(p));
	if (target == dsq) /* it stays in its place there, where it is called once it is overdue */
		t->overdue = is_called;
	return target;
}

/*
 * Where a task belongs that waits in a dispatch queue. One that waits with others on a CPU that somebody serves stays
 * there: another one would be drawn each time, where it would come before all who wait.
 */
__noinline u64 belongs_to(struct task_struct *p __arg_trusted, u32 tenant_id, u32 vcpu, u32 queue, u64 dsq)
{
	u32 buffer = table_in_force(bpf_ktime_get_ns());
	u64 target = dsq_of(p, tenant_id, vcpu, queue, buffer);

	if ((target >> 32) == (DSQ_SHARED(0) >> 32))
		return fair_rehome(p, tenant_id, dsq);
	if ((target >> 32) == (DSQ_PINNED(0) >> 32) && (dsq >> 32) == (DSQ_PINNED(0) >> 32) &&
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
		if (stays && (!t || t->m.queue == m.queue || (target >> 32) == (DSQ_SHARED(0) >> 32))) {
			if (counts && !t->waits_in) /* it has begun to run meanwhile */
				no_longer_rehomed(t);
			continue;
		}
		if (t && t->m.queue != m.queue)
			leave_queue(t, t->m.queue, now);
		if (t && (target >> 32) != (DSQ_SHARED(0) >> 32))
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
		if (t && (target >> 32) == (DSQ_SHARED(0) >> 32))
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

/* The table of a buffer is in force: idle CPUs are looked for among those that no tenant has to itself in it. */
SEC("syscall")
int open_cpus(struct rota_open *arg)
{
	return make_masks(arg->buffer);
}

/* Those of the tenant that wait in a dispatch queue of shared tenants have no later tag than this one. */
__noinline int tag_at_most(u64 dsq, u32 tenant, u64 latest)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;

	if (scx_bpf_dsq_nr_queued(dsq) <= 0)
		return 0;
	bpf_rcu_read_lock();
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		while ((p = bpf_iter_scx_dsq_next(&it))) {
			struct task_ctx *t = task_ctx(p);

			if (!t || t->stands_for != tenant || t->overdue || !vtime_before(latest, t->tag))
				continue;
			t->tag = latest;
			scx_bpf_dsq_move_set_vtime(&it, latest);
			scx_bpf_dsq_move_vtime(&it, p, dsq, 0);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return 0;
}

/*
 * A tenant has become a shared one, and has a clock as one that has just come; or its weight has grown, and it is ahead
 * by as much service as before, in terms of the new weight: else it would wait until all others have had their weights'
 * part of what it had by its former one.
 */
SEC("syscall")
int reweigh(struct rota_reweigh *arg)
{
	u32 number = arg->tenant, before = arg->weight_before, i;
	struct rota_tenant *tenant = tenant_of(number);
	struct fair_ctx *f = fair_ctx(number);
	u64 v = fair_v(0), clock = v;

	if (!f || !is_shared_tenant(tenant) || before >= tenant->weight)
		return 0;
	bpf_for (i, 0, 4) {
		u64 seen = f->clock;

		if (before && vtime_before(seen, v))
			return 0;
		clock = before ? v + (seen - v) * before / (tenant->weight ?: ROTA_WEIGHT_ONE) : v;
		if (__sync_val_compare_and_swap(&f->clock, seen, clock) == seen)
			break;
	}
	bpf_for (i, 0, settings.nr_domains)
		tag_at_most(DSQ_SHARED(i), number, clock);
	bpf_for (i, 0, nr_host_cpus)
		tag_at_most(DSQ_BOUND(i), number,
			    clock + fair_threads(tenant, f) * weighted(tenant, ROTA_FAIR_SLICE_NS));
	return 0;
}

/* Has every CPU decide anew. */
SEC("syscall")
int kick_all(void *unused)
{
	u32 cpu;

	bpf_for (cpu, 0, nr_host_cpus)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

#endif /* ROTA_CONTROL_BPF_H */
