/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Starting *straight*: a thread of a shared tenant starts on the idle CPU that was picked for it, without a decision of
 * that CPU.
 */
#ifndef ROTA_STRAIGHT_BPF_H
#define ROTA_STRAIGHT_BPF_H

#include "fair.bpf.h"
#include "windows.bpf.h"

/*
 * Whether a waking thread starts on the idle CPU that was picked for it, without a decision of that CPU. That is what
 * the CPU would decide, unless another thread waits that it could take. It has been told of such a thread, and decides
 * as soon as this one runs. No sibling that wakes meanwhile takes the CPU, too.
 */
static __always_inline bool goes_straight(struct task_struct *p, struct task_ctx *t, u32 cpu)
{
	struct rota_tenant *tenant = tenant_of(t->m.tenant);
	struct fair_ctx *f = fair_ctx(t->m.tenant);
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (!f || !c || c->role.housekeeping || !is_shared_tenant(tenant) || is_held_off_now(t->m.tenant))
		return false;
	c->offer.gives_way = 0;
	t->tag = fair_tag(p, t, tenant, f);
	return true;
}

/* The same for one that may run on its own CPU only: no CPU is asked for, and it comes to be queued. */
static __always_inline bool goes_straight_at_home(struct task_struct *p, struct task_ctx *t, u64 enq_flags)
{
	bool is_bound = p->nr_cpus_allowed == 1 || is_held(p);
	u32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (!(enq_flags & SCX_ENQ_WAKEUP) || !is_bound || !c || c->turn.level != ROTA_LEVEL_IDLE ||
	    c->role.housekeeping || c->role.exclusive || !is_shared_tenant(tenant_of(t->m.tenant)) ||
	    is_held_off_now(t->m.tenant) || !scx_bpf_test_and_clear_cpu_idle(cpu))
		return false;
	return goes_straight(p, t, cpu);
}

/*
 * Whether a CPU that has begun to serve another tenant, without a decision, has to decide because of its slot. In a
 * slot in which it has found no thread of the owner it has left a mark, and wakers come to it.
 */
static __always_inline bool slot_needs_decision(struct cpu_ctx *c, bool enters)
{
	struct rota_tenant *owner = c->slot.queue == ROTA_NONE ? NULL : tenant_of(c->slot.tenant);

	if (!owner)
		return false;
	if (enters || c->slot.moves || c->slot.looks_since)
		return true;
	return owner->nr_vcpus > 1 && (!c->slot.hungry || is_mark_taken(c));
}

/*
 * What a decision would have left behind, for a thread that starts without one. A decision follows if a thread has
 * begun to wait while the CPU was on its way: its waker could not tell this CPU.
 */
static __always_inline void starts_straight(struct cpu_ctx *c, u32 cpu, u32 tenant, u64 now)
{
	bool enters = follow_slots(c, cpu, now);
	bool anyone, waits = c->slot.in_windows && !windows_rest(cpu, now, 0) && survey_windows(cpu, now, 0, 0);

	if (waits)
		c->windows.lost_since = min_time(c->windows.lost_since, c->slot.end);
	if (c->slot.in_windows)
		enter_window(c, cpu, ROTA_NONE, now);
	c->run.now = now;
	c->offer.dozes = 0;
	anyone = fair_anyone(cpu, tenant, now);
	if (slot_needs_decision(c, enters) || waits || c->role.exclusive ||
	    (anyone && nr_waiting(DSQ_SHARED(c->role.domain)) > 0))
		c->turn.overtaken = true;
	c->turn.picked = ROTA_LEVEL_SHARED;
	c->turn.until_ns = anyone ? next_decision(&c->run, c, ROTA_LEVEL_SHARED, c->slot.end) : c->slot.end;
	arm(c, c->turn.until_ns);
}

#endif /* ROTA_STRAIGHT_BPF_H */
