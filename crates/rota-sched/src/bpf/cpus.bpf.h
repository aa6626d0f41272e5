/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The roles of CPUs, and on which of them a task may run. A CPU is one of three:
 *
 *   housekeeping  the system's own; it serves shared tenants only where they have no other CPU
 *   exclusive     its core belongs to one tenant alone, by a mark in the table. There run the tenant, and what can run
 *                 nowhere else: kernel threads of the CPU and tasks that are bound to it
 *   open          all others
 *
 * Other tasks are kept away from exclusive CPUs in three places: where a task is to wait (place.bpf.h), what a CPU
 * takes up (order.bpf.h), and which idle CPUs are found (masks.bpf.h). The marks of the table in force decide. The
 * masks follow a moment later, when the loader has seen the table in force; it then sends elsewhere the tasks that were
 * placed by the old masks.
 */
#ifndef ROTA_CPUS_BPF_H
#define ROTA_CPUS_BPF_H

#include "state.bpf.h"
#include "table.bpf.h"

/* Whether one tenant has the CPU's core to itself in the table of a buffer. */
static __always_inline bool is_exclusive(u32 buffer, u32 cpu)
{
	struct rota_cpu_view *view = buffer < ROTA_NR_BUFFERS ? cpu_view(buffer, cpu) : NULL;

	return view && (view->flags & ROTA_CPU_EXCLUSIVE);
}

/* A CPU that serves shared tenants, of those that the task may run on; ROTA_NONE if it may on none. */
static __always_inline u32 shared_cpu(struct task_struct *p)
{
	struct bpf_cpumask *mask;
	u32 cpu = nr_host_cpus;

	bpf_rcu_read_lock();
	mask = open_mask;
	if (mask)
		cpu = bpf_cpumask_any_and_distribute((const struct cpumask *)mask, p->cpus_ptr);
	bpf_rcu_read_unlock();
	return cpu < nr_host_cpus ? cpu : ROTA_NONE;
}

/* A CPU for a task that is not to come to such a core, of those that it may run on; ROTA_NONE if it may on no other. */
static __always_inline u32 open_cpu(struct task_struct *p)
{
	u32 cpu = shared_cpu(p);
	struct bpf_cpumask *mask;

	bpf_rcu_read_lock();
	mask = housekeeping_mask;
	if (cpu >= nr_host_cpus && mask)
		cpu = bpf_cpumask_any_and_distribute((const struct cpumask *)mask, p->cpus_ptr);
	bpf_rcu_read_unlock();
	return cpu < nr_host_cpus ? cpu : ROTA_NONE;
}

static __always_inline bool is_housekeeping(u32 cpu)
{
	return cpu < ROTA_TABLE_CPUS_MAX && (settings.housekeeping[cpu / 64] & (1ULL << (cpu % 64)));
}

static __always_inline bool is_restricted(struct task_struct *p)
{
	return p->nr_cpus_allowed < nr_host_cpus || is_held(p);
}

/* In an operation of the scheduler, which the kernel calls under RCU. */
static __always_inline bool may_run_here(struct task_struct *p, u32 cpu)
{
	if (is_held(p))
		return cpu == scx_bpf_task_cpu(p);
	return p->nr_cpus_allowed >= nr_host_cpus || bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

static __always_inline bool may_run_on(struct task_struct *p, u32 cpu)
{
	bool may;

	if (!is_restricted(p))
		return true;
	bpf_rcu_read_lock(); /* the programs of control.bpf.h run outside of it */
	may = may_run_here(p, cpu);
	bpf_rcu_read_unlock();
	return may;
}

static __always_inline bool may_be_housekept(struct task_struct *p)
{
	struct bpf_cpumask *mask;
	struct cpu_ctx *c;
	bool may;

	if (is_held(p)) {
		c = cpu_ctx(scx_bpf_task_cpu(p));
		return c && c->role.housekeeping;
	}
	bpf_rcu_read_lock();
	mask = housekeeping_mask;
	may = mask && bpf_cpumask_intersects((const struct cpumask *)mask, p->cpus_ptr);
	bpf_rcu_read_unlock();
	return may;
}

/* Whether a CPU serves shared tenants on which the task may run. */
static __always_inline bool has_open(struct task_struct *p)
{
	return p->nr_cpus_allowed >= nr_host_cpus ? nr_open : shared_cpu(p) != ROTA_NONE;
}

/*
 * Whether a shared tenant's thread waits at one CPU, as it may not run on each that serves shared tenants: its affinity
 * or a cpuset leaves out more than housekeeping CPUs and those that one tenant has to itself.
 */
static __always_inline bool is_bound(struct task_struct *p)
{
	struct bpf_cpumask *mask;
	bool roams;

	if (!is_restricted(p))
		return false;
	if (is_held(p) || p->nr_cpus_allowed < nr_open)
		return true;
	bpf_rcu_read_lock();
	mask = open_mask;
	roams = mask && bpf_cpumask_subset((const struct cpumask *)mask, p->cpus_ptr);
	bpf_rcu_read_unlock();
	return !roams;
}

/* Whether the CPU's sibling idles, if it has one. */
static __always_inline bool sibling_idles(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu), *sibling = c && c->role.sibling != cpu ? cpu_ctx(c->role.sibling) : NULL;

	return !sibling || sibling->turn.level == ROTA_LEVEL_IDLE;
}

/*
 * An idle CPU of `mask` or less than 0: the task's own, if that is one of them, as its data are there; but a core that
 * idles comes before a CPU whose sibling is busy.
 */
static __always_inline s32 idle_cpu(const struct cpumask *mask, u32 own, bool own_fits)
{
	s32 cpu = -1;

	if (own_fits && !sibling_idles(own))
		cpu = scx_bpf_pick_idle_cpu(mask, SCX_PICK_IDLE_CORE);
	if (cpu < 0 && own_fits && scx_bpf_test_and_clear_cpu_idle(own))
		return own;
	return cpu < 0 ? scx_bpf_pick_idle_cpu(mask, 0) : cpu;
}

/*
 * An idle CPU of `set` on which the task may run, or ROTA_NONE. What both allow is looked at: of the set alone, or of
 * what the task may alone, one might be found that is of no use, though others idle.
 */
static __always_inline u32 idle_cpu_of(struct task_struct *p, struct bpf_cpumask *set, bool own_fits)
{
	struct cpu_ctx *here = cpu_ctx(bpf_get_smp_processor_id());
	struct bpf_cpumask *both;
	s32 cpu;

	if (p->nr_cpus_allowed >= nr_host_cpus) {
		cpu = idle_cpu((const struct cpumask *)set, scx_bpf_task_cpu(p), own_fits);
		return cpu < 0 ? ROTA_NONE : cpu;
	}
	both = here ? here->both : NULL;
	if (!both)
		return ROTA_NONE;
	bpf_cpumask_and(both, (const struct cpumask *)set, p->cpus_ptr);
	cpu = idle_cpu((const struct cpumask *)both, scx_bpf_task_cpu(p), own_fits);
	return cpu < 0 ? ROTA_NONE : cpu;
}

/* An idle CPU on which the system's task may run, or ROTA_NONE. */
static __always_inline u32 idle_housekeeping_cpu(struct task_struct *p)
{
	u32 own = scx_bpf_task_cpu(p);
	struct bpf_cpumask *mask;
	bool own_fits;

	if (is_held(p))
		return ROTA_NONE;
	own_fits = is_housekeeping(own) && may_run_on(p, own);
	mask = housekeeping_mask; /* read after that, which ends a section of RCU */
	return mask ? idle_cpu_of(p, mask, own_fits) : ROTA_NONE;
}

/* An idle CPU on which a shared tenant's task may run, or ROTA_NONE. */
static __always_inline u32 idle_open_cpu(struct task_struct *p)
{
	u32 own = scx_bpf_task_cpu(p);
	struct bpf_cpumask *mask;
	bool own_fits;

	if (is_held(p))
		return ROTA_NONE;
	own_fits = may_run_on(p, own);
	mask = open_mask; /* as above */
	if (!mask)
		return ROTA_NONE;
	own_fits = own_fits && bpf_cpumask_test_cpu(own, (const struct cpumask *)mask);
	return idle_cpu_of(p, mask, own_fits);
}

#endif /* ROTA_CPUS_BPF_H */
