/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waking: where a task that wakes is sent, and which CPU is told (thesis section 4.2.1, "Unblocking vCPUs").
 *
 * A CPU is told only if it would run the task now: it is in the task's slot, or idles, or runs something lower.
 * Otherwise nobody is told, and the start of the next slot finds the task waiting.
 */
#ifndef ROTA_WAKE_BPF_H
#define ROTA_WAKE_BPF_H

#include "account.bpf.h"
#include "place.bpf.h"

/* An idle CPU of `mask`, or ROTA_NONE. */
static __always_inline u32 idle_cpu_of(struct task_struct *p, struct bpf_cpumask *mask)
{
	s32 cpu;

	if (!mask)
		return ROTA_NONE;
	cpu = scx_bpf_pick_idle_cpu((const struct cpumask *)mask, 0);
	return cpu >= 0 && may_run_on(p, cpu) ? cpu : ROTA_NONE;
}

/* The CPU that a task is sent to when it wakes; ROTA_NONE: where it was. */
__noinline u32 wake_cpu(struct task_struct *p __arg_trusted, u64 now)
{
	struct task_ctx *t = task_ctx(p);
	struct rota_tenant *tenant = t ? tenant_of(t->m.tenant) : NULL;
	u32 buffer = table_in_force(now), sole;

	if (!tenant)
		return ROTA_NONE;
	switch (tenant->class) {
	case ROTA_CLASS_SYSTEM:
		return idle_cpu_of(p, housekeeping_mask);
	case ROTA_CLASS_SHARED:
		return idle_cpu_of(p, open_mask);
	case ROTA_CLASS_RESERVED:
		if (!has_slots(tenant, buffer))
			break;
		sole = sole_vcpu(tenant, &t->m);
		return sole != ROTA_NONE ? home_of(tenant, sole, buffer)
					 : choose_home(p, t->m.tenant, t->last_cpu, now);
	}
	return (u32)background_dsq(p, buffer);
}

/* The level at which CPU `cpu` would run a thread of this tenant now; ROTA_LEVEL_IDLE: not at all. */
static __always_inline u32 level_on(struct cpu_ctx *c, u32 cpu, const struct membership *m, struct rota_tenant *tenant,
				    u64 now)
{
	struct owner owner;
	struct rota_cpu_view *view;
	struct rota_table_vcpu *vcpu;

	if (tenant->class == ROTA_CLASS_SYSTEM)
		return c->housekeeping ? ROTA_LEVEL_SHARED : ROTA_LEVEL_BACKGROUND;
	if (c->housekeeping)
		return ROTA_LEVEL_BACKGROUND;
	if (tenant->class == ROTA_CLASS_SHARED)
		return ROTA_LEVEL_SHARED;
	table_look_up(cpu, now, &owner);
	if (!has_slots(tenant, owner.buffer))
		return ROTA_LEVEL_BACKGROUND;
	view = owner.vcpu == ROTA_NONE ? NULL : cpu_view(owner.buffer, cpu);
	vcpu = view ? table_vcpu(owner.buffer, view, owner.vcpu) : NULL;
	if (vcpu && vcpu->tenant == m->tenant && (m->vcpu == ROTA_NONE || m->vcpu == vcpu->index))
		return ROTA_LEVEL_OWNER;
	view = cpu_view(owner.buffer, cpu);
	vcpu = view ? table_vcpu(owner.buffer, view, first_vcpu(tenant, owner.buffer)) : NULL;
	return vcpu && !(vcpu->flags & ROTA_VCPU_CAPPED) ? ROTA_LEVEL_SECOND : ROTA_LEVEL_IDLE;
}

/* Tells CPU `cpu` that a thread of this tenant waits, if it should act on it. */
__noinline int tell(u32 cpu, u32 tenant_id, u32 vcpu, u64 now)
{
	struct membership m = {.tenant = tenant_id, .vcpu = vcpu};
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct cpu_ctx *c = cpu_ctx(cpu);
	u32 level;

	if (!c || !tenant)
		return 0;
	level = level_on(c, cpu, &m, tenant, now);
	if (level > c->level) {
		c->overtaken = true;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	} else if (!c->armed_ns && c->level == ROTA_LEVEL_IDLE) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE); /* so that it sets its timer for the slot */
	}
	return 0;
}

#endif /* ROTA_WAKE_BPF_H */
