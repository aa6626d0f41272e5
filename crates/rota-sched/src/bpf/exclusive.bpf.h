/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Cores that one tenant has to itself. Their CPUs are marked in the table. There run the tenant, and what can run
 * nowhere else: kernel threads of the CPU and tasks that are bound to it. Everybody else is kept away in three places:
 * where a task is to wait (place.bpf.h), what a CPU takes up (pick.bpf.h), and which idle CPUs are found (the mask
 * here).
 *
 * The marks of the table in force decide; the mask follows a moment later, when the loader has seen the table in force,
 * and then sends whoever was wrongly placed meanwhile elsewhere.
 */
#ifndef ROTA_EXCLUSIVE_BPF_H
#define ROTA_EXCLUSIVE_BPF_H

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

/* A line none of whose CPUs is open takes nobody; once one is, each tenant that waits gets a front there. */
static __always_inline void close_lines(struct bpf_cpumask *open)
{
	u32 domain, i;

	bpf_for (domain, 0, settings.nr_domains) {
		struct fair_domain *d = fair_domain(domain);
		bool was_closed, closed;

		if (!d || !d->nr_cpus)
			continue;
		closed = true;
		bpf_for (i, 0, ROTA_FAIR_BITS) {
			if (i < d->nr_cpus &&
			    bpf_cpumask_test_cpu(d->cpus[i % ROTA_FAIR_BITS], (const struct cpumask *)open))
				closed = false;
		}
		was_closed = d->closed;
		d->closed = closed;
		if (was_closed && !closed)
			d->lacks_front = ROTA_NONE;
	}
}

/*
 * Makes the masks anew, for the table of a buffer; ROTA_NONE: for none. A CPU that is offline is in neither: nobody
 * serves who would wait for it. When CPUs come or go the scheduler ends, and begins anew.
 */
static __always_inline s32 make_masks(u32 buffer)
{
	struct bpf_cpumask *kept = bpf_cpumask_create(), *open = bpf_cpumask_create();
	const struct cpumask *online;
	u32 cpu, count = 0;

	if (!kept || !open) {
		if (kept)
			bpf_cpumask_release(kept);
		if (open)
			bpf_cpumask_release(open);
		return -ENOMEM;
	}
	online = scx_bpf_get_online_cpumask();
	bpf_for (cpu, 0, nr_host_cpus) {
		if (!bpf_cpumask_test_cpu(cpu, online))
			continue;
		if (is_housekeeping(cpu)) {
			bpf_cpumask_set_cpu(cpu, kept);
		} else if (!is_exclusive(buffer, cpu)) {
			bpf_cpumask_set_cpu(cpu, open);
			count++;
		}
	}
	scx_bpf_put_cpumask(online);
	nr_open = count;
	close_lines(open);
	kept = bpf_kptr_xchg(&housekeeping_mask, kept);
	if (kept)
		bpf_cpumask_release(kept);
	open = bpf_kptr_xchg(&open_mask, open);
	if (open)
		bpf_cpumask_release(open);
	return 0;
}

#endif /* ROTA_EXCLUSIVE_BPF_H */
