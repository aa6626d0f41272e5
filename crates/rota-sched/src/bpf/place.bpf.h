/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a task waits: its class, and the CPUs on which it may run, decide in which dispatch queue.
 *
 * A reserved tenant's threads wait in their queue, from which each of its slots takes. A shared tenant's threads wait
 * in the line of a domain, background threads in that of a CPU. A task that may not run on any CPU of its tenant waits
 * for what others leave; or pinned to its own CPU, and lives on that CPU's floor.
 */
#ifndef ROTA_PLACE_BPF_H
#define ROTA_PLACE_BPF_H

#include "homes.bpf.h"
#include "tenant.bpf.h"

/* Where a task waits that belongs to no slot of its CPU: there, if it may run nowhere but on others' own cores. */
static __always_inline u64 pinned_dsq(struct task_struct *p, u32 buffer)
{
	u32 cpu = scx_bpf_task_cpu(p), open;

	if (!is_exclusive(buffer, cpu) || is_held(p))
		return DSQ_PINNED(cpu);
	open = open_cpu(p);
	return DSQ_PINNED(open != ROTA_NONE ? open : cpu);
}

/* Where background work of this task goes: spread by the ring, as long as it may run there. */
__noinline u64 background_dsq(struct task_struct *p __arg_trusted, u32 buffer)
{
	u32 cpu = live.background_ring[(u32)p->pid % ROTA_RING];

	if (cpu >= nr_host_cpus || !may_run_on(p, cpu))
		cpu = scx_bpf_task_cpu(p);
	if (!is_exclusive(buffer, cpu))
		return DSQ_BACKGROUND(cpu);
	if (is_held(p))
		return DSQ_PINNED(cpu);
	cpu = open_cpu(p);
	return cpu != ROTA_NONE ? DSQ_BACKGROUND(cpu) : DSQ_PINNED(scx_bpf_task_cpu(p));
}

/*
 * Where a shared tenant's task waits: in line with all others, if it may run on a CPU that takes from such a line.
 * Housekeeping CPUs do not; they have it in turn with the system if there is no other.
 */
static __always_inline u64 shared_dsq(struct task_struct *p, u32 buffer)
{
	u32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *c = cpu_ctx(cpu);
	u64 line = DSQ_SHARED(c ? c->role.domain : 0);

	if (is_held(p))
		return is_exclusive(buffer, cpu) || is_housekeeping(cpu) ? DSQ_PINNED(cpu) : line;
	return has_open(p) ? line : pinned_dsq(p, buffer);
}

/* The dispatch queue in which the task waits. */
__noinline u64 dsq_of(struct task_struct *p __arg_trusted, u32 tenant_id, u32 vcpu, u32 queue, u32 buffer)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct membership m = {.tenant = tenant_id, .vcpu = vcpu, .queue = queue};
	u32 cpu, sole;

	if (!tenant)
		return DSQ_QUEUE(SYSTEM_QUEUE);

	switch (tenant->class) {
	case ROTA_CLASS_SYSTEM:
		return may_be_housekept(p) ? DSQ_QUEUE(SYSTEM_QUEUE) : pinned_dsq(p, buffer);
	case ROTA_CLASS_SHARED:
		return shared_dsq(p, buffer);
	case ROTA_CLASS_RESERVED:
		break;
	default:
		return background_dsq(p, buffer);
	}
	if (!has_slots(tenant, buffer))
		return background_dsq(p, buffer);
	if (!is_restricted(p))
		return DSQ_QUEUE(queue);
	sole = sole_vcpu(tenant, m.vcpu);
	cpu = scx_bpf_task_cpu(p);
	if ((may_run_on(p, cpu) && is_home(tenant_id, sole, cpu, buffer)) || /* which finds one among hundreds, too */
	    some_home(p, tenant_id, sole, 0, buffer) != ROTA_NONE)
		return DSQ_QUEUE(queue);
	/*
	 * Its tenant has nothing here: what others leave. A thread that is held for a moment may hold up others by
	 * that.
	 */
	return is_held(p) ? pinned_dsq(p, buffer) : background_dsq(p, buffer);
}

/*
 * Where background work waits: if the CPU that it is given to does not idle, or was told of somebody else, at one that
 * idles.
 */
static __always_inline u64 idle_background_dsq(struct task_struct *p, u64 dsq)
{
	struct cpu_ctx *c = cpu_ctx((u32)dsq);
	u32 cpu;

	if (!c || (c->turn.level == ROTA_LEVEL_IDLE && scx_bpf_test_and_clear_cpu_idle((u32)dsq)))
		return dsq;
	cpu = idle_open_cpu(p);
	return cpu == ROTA_NONE ? dsq : DSQ_BACKGROUND(cpu);
}

/*
 * Where a shared tenant's task waits that only housekeeping CPUs serve: at one that idles, if there is one. One that
 * wakes has been sent there.
 */
__noinline u64 idle_pinned_dsq(struct task_struct *p __arg_trusted, u32 tenant_id, bool sent, u64 dsq)
{
	u32 cpu = !sent && is_shared_tenant(tenant_of(tenant_id)) ? idle_housekeeping_cpu(p) : ROTA_NONE;

	return cpu == ROTA_NONE ? dsq : DSQ_PINNED(cpu);
}

/*
 * The task's place in its queue or line. Siblings share by thread weight. Threads of background tenants carry their
 * tenant's time, no further ahead or behind than a quantum. Pinned threads come from several tenants, whose times have
 * nothing to do with each other: they take turns. A thread that is changed as it waits keeps the place. A thread that
 * blocks RCU comes a quantum before its last one in a background line, and has waited for a round in a pinned one.
 */
static __always_inline u64 place_in_line(struct task_struct *p, struct task_ctx *t, struct queue_ctx *q, u64 dsq,
					 u64 now)
{
	u64 last = background_vtime + ROTA_QUANTUM_NS;

	if (dsq == DSQ_QUEUE(t->m.queue))
		return place_among_siblings(p, t, q);
	if (line_kind(dsq) == ROTA_LINE_PINNED)
		return t->queued_since ?: blocks_rcu(p) ? now - ROTA_FLOOR_ROUND_NS : now;
	if (blocks_rcu(p))
		return min_vtime(last, t->tag) - ROTA_QUANTUM_NS;
	if (line_kind(t->waits_in) == ROTA_LINE_BACKGROUND)
		return min_vtime(last, t->tag);
	q->fair_vtime = max_vtime(q->fair_vtime, background_vtime - ROTA_QUANTUM_NS);
	t->tag = min_vtime(last, q->fair_vtime);
	return t->tag;
}

/* Where what ran until now would wait, if it would go on; 0 if not. Background work goes on where it is. */
static __always_inline u64 dsq_of_prev(struct task_struct *prev, u32 cpu, u32 buffer, u64 now)
{
	struct task_ctx *t;
	u64 dsq;

	if (!prev || !(prev->scx.flags & SCX_TASK_QUEUED) || is_bound_kernel_thread(prev) || !may_run_on(prev, cpu))
		return 0;
	t = task_ctx(prev);
	if (!t)
		return 0;
	settle_membership(prev, t, now);
	dsq = dsq_of(prev, t->m.tenant, t->m.vcpu, t->m.queue, buffer);
	if (line_kind(dsq) == ROTA_LINE_BACKGROUND && !is_housekeeping(cpu) && !is_exclusive(buffer, cpu))
		return DSQ_BACKGROUND(cpu);
	return dsq;
}

#endif /* ROTA_PLACE_BPF_H */
