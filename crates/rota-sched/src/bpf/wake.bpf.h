/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPU a task that wakes is sent to (thesis section 4.2.1, "Unblocking vCPUs").
 */
#ifndef ROTA_WAKE_BPF_H
#define ROTA_WAKE_BPF_H

#include "offer.bpf.h"
#include "place.bpf.h"
#include "window.bpf.h"

/* Homes of a tenant with many vCPUs that are tried when one is looked for; the next waker goes on from there. */
#define HOMES_TRIED 8

/*
 * A hungry slot's CPU, for the task if one is given: its mark is taken. ROTA_NONE if no slot is hungry. A slot whose
 * timer is late may be over and still marked: that mark is left to its CPU. The time is read after the mark, so that a
 * slot that has just begun is in force.
 */
static __always_inline u32 hungry_cpu(struct task_struct *p, u32 tenant_id)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct queue_ctx *q = NULL;
	u32 tries, first = 0;
	u64 seen = 0;

	if (!tenant)
		return ROTA_NONE;
	bpf_for (tries, 0, HOMES_TRIED + MARK_WORDS) {
		struct cpu_ctx *c;
		u32 index, cpu;
		u64 now;

		if (!seen) {
			first += q ? 64 : 0;
			q = first < tenant->nr_vcpus ? marks_of(tenant, first) : NULL;
			if (!q)
				break;
			seen = q->hungry;
			continue;
		}
		index = first + __builtin_ctzll(seen);
		seen &= seen - 1;
		now = bpf_ktime_get_ns();
		cpu = home_of(tenant_id, index, table_in_force(now), now);
		c = cpu == ROTA_NONE ? NULL : cpu_ctx(cpu);
		if (!c || (p && !may_run_on(p, cpu)) || !owns_until(tenant_id, index, cpu, now))
			continue;
		if (unmark(&q->hungry, index)) {
			c->offer.dozes = 0; /* nor is it free for another thread: see take_dozing */
			return cpu;
		}
	}
	return ROTA_NONE;
}

/* A hungry slot's CPU to send the task to, which takes its mark; or ROTA_NONE. */
__noinline u32 take_hungry(struct task_struct *p __arg_trusted, u32 tenant_id)
{
	struct task_ctx *t = task_ctx(p);
	u32 cpu = hungry_cpu(p, tenant_id);

	if (t)
		t->took_mark = cpu != ROTA_NONE;
	return cpu;
}

/* If vCPU `index` of the tenant owns the CPU now, which serves somebody else: until when; else 0. */
__noinline u64 unserved_until(u32 tenant_id, u32 index, u32 cpu, u64 now)
{
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (!c || (c->turn.level == ROTA_LEVEL_OWNER && c->slot.tenant == tenant_id))
		return 0;
	return c->slot.in_windows ? window_serves(cpu, tenant_id, index, now) : owns_until(tenant_id, index, cpu, now);
}

/*
 * The home for a waking thread of a tenant with several vCPUs: a slot in force that serves nobody of the tenant; else,
 * uncapped, a CPU that idles or runs something lower; else where it was, or the next in turn.
 */
__noinline u32 choose_home(struct task_struct *p __arg_trusted, u32 tenant_id, u32 first, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	u32 buffer = table_in_force(now), best, best_level = ROTA_LEVEL_SECOND, unserved = ROTA_NONE, i;

	if (!tenant || !tenant->nr_vcpus)
		return ROTA_NONE;
	best = take_hungry(p, tenant_id);
	if (best != ROTA_NONE)
		return best;
	bpf_for (i, 0, HOMES_TRIED) {
		u32 index = (first + i) % tenant->nr_vcpus, cpu;
		struct cpu_ctx *c;
		u64 until;

		if (i >= tenant->nr_vcpus)
			break;
		cpu = home_of(tenant_id, index, buffer, now);
		c = cpu == ROTA_NONE ? NULL : cpu_ctx(cpu);
		if (!c || !may_run_on(p, cpu))
			continue;
		until = unserved_until(tenant_id, index, cpu, now);
		if (until && take_dozing(p, c, until, now))
			return cpu;
		if (until && unserved == ROTA_NONE)
			unserved = cpu;
		if (c->turn.level < best_level) {
			best_level = c->turn.level;
			best = cpu;
		}
	}
	if (unserved != ROTA_NONE)
		return unserved;
	return best != ROTA_NONE ? best : some_home(p, tenant_id, ROTA_NONE, first, buffer);
}

/* The CPU of the only vCPU that the task may run in: of several the one of its slot, or another where it may run. */
__noinline u32 sole_home(struct task_struct *p __arg_trusted, u32 tenant_id, u32 sole, u32 buffer, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct rota_table_vcpu *vcpu;
	u32 cpu;

	if (!tenant)
		return ROTA_NONE;
	if (!migrates(tenant, buffer)) {
		vcpu = vcpu_of(tenant, sole, buffer);
		return vcpu ? vcpu->home_cpu : ROTA_NONE;
	}
	cpu = home_of(tenant_id, sole, buffer, now);
	if (cpu == ROTA_NONE || may_run_on(p, cpu))
		return cpu;
	return some_home(p, tenant_id, sole, 0, buffer);
}

/* The CPU that a task of this tenant and vCPU is sent to when it wakes; ROTA_NONE: where it was. */
__noinline u32 wake_cpu(struct task_struct *p __arg_trusted, u32 tenant_id, u32 only, u32 last_cpu, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	u32 buffer, sole;

	if (!tenant)
		return ROTA_NONE;
	if (tenant->class == ROTA_CLASS_SYSTEM)
		return idle_housekeeping_cpu(p);
	if (tenant->class == ROTA_CLASS_SHARED)
		return has_open(p) ? idle_open_cpu(p) : idle_housekeeping_cpu(p);
	buffer = table_in_force(now);
	if (!has_slots(tenant, buffer))
		return (u32)background_dsq(p, buffer);
	sole = sole_vcpu(tenant, only);
	return sole == ROTA_NONE ? choose_home(p, tenant_id, last_cpu, now)
				 : sole_home(p, tenant_id, sole, buffer, now);
}

#endif /* ROTA_WAKE_BPF_H */
