/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU that finds nothing to run: when it looks again, and whether it needs its timer.
 */
#ifndef ROTA_IDLE_BPF_H
#define ROTA_IDLE_BPF_H

#include "locals.bpf.h"
#include "sample.bpf.h"
#include "slot.bpf.h"

/*
 * Whether somebody is counted where the CPU takes threads from, and may be on its way there. Besides slots, which have
 * marks for that.
 */
static __always_inline bool may_miss(const struct cpu_ctx *c)
{
	const struct queue_ctx *system = c->role.housekeeping ? queue_ctx(SYSTEM_QUEUE) : NULL;

	if (c->lines.waiting || c->role.exclusive)
		return c->lines.waiting;
	return c->role.housekeeping ? system && system->waiting : shared_may_wait();
}

/* Whether a thread waits for one of this CPU's slots: an idle CPU then needs its timer. */
__noinline bool anyone_waits(struct run *r __arg_nonnull)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	u32 locals, i;

	if (!c)
		return false;
	locals = nr_locals(c, r->cpu);
	bpf_for (i, 0, locals) {
		struct rota_table_vcpu *vcpu = local_here(c, r->cpu, i);
		struct rota_tenant *tenant = vcpu ? tenant_of(vcpu->tenant) : NULL;

		if (tenant && local_waits(r, c, vcpu, tenant, false))
			return true;
	}
	return locals == ROTA_LOCALS_MAX; /* there may be more than can be looked at */
}

/* The same, looked at where it is not known. */
static __always_inline bool slots_are_unwanted(struct run *r, struct cpu_ctx *c)
{
	if (is_unwanted(r, c))
		return true;
	__sync_lock_test_and_set(&c->offer.unwanted, 1); /* publish, then look, as with `dozes` */
	if (!anyone_waits(r))
		return true;
	c->offer.unwanted = 0;
	return false;
}

/*
 * The CPU is about to idle: without its timer, if no thread waits for one of its slots, and no new table is about to
 * come. Then nobody waits for its second level either.
 */
static __always_inline bool dozes_off(struct run *r, struct cpu_ctx *c)
{
	/* Publish, then look; a waker's end is is_wanted. */
	__sync_lock_test_and_set(&c->offer.dozes, 1);
	if (r->look_at == ROTA_NEVER && table_next(r->now) == ROTA_NEVER && slots_are_unwanted(r, c))
		return true;
	c->offer.dozes = 0;
	return false;
}

/*
 * When a CPU that idles looks again, besides for its slots. A thread may be on its way into a queue at which the CPU
 * has looked. Its waker counted it, and then saw the CPU busy. A CPU that was told in vain is in the kernel's mask of
 * idle CPUs again only after this. Until then no waker's end of publish, then look finds it.
 */
static __always_inline void look_while_idle(struct run *r, struct cpu_ctx *c)
{
	if (c->turn.level == ROTA_LEVEL_IDLE && !c->turn.other_since && !scx_cpu_idles(r->cpu))
		r->look_at = min_time(r->look_at, r->now + ROTA_LOOK_AGAIN_NS);
	if (!may_miss(c)) {
		c->idle.missed_ns = 0;
		return;
	}
	c->idle.missed_ns = c->idle.missed_ns ? min_time(2 * c->idle.missed_ns, ROTA_LOOK_IDLE_NS) : ROTA_LOOK_AGAIN_NS;
	r->look_at = min_time(r->look_at, r->now + c->idle.missed_ns);
	if (is_sampled(r->now)) /* who waits may be held off */
		r->look_at = min_time(r->look_at, live.sample_until_ns);
}

/* Nothing to run. */
static __always_inline void go_idle(struct run *r, struct cpu_ctx *c)
{
	c->turn.picked = ROTA_LEVEL_IDLE;
	c->turn.local = ROTA_NONE;
	look_while_idle(r, c);
	c->turn.until_ns = min_time(c->slot.end, r->look_at);
	if (!dozes_off(r, c))
		arm(c, c->turn.until_ns);
}

#endif /* ROTA_IDLE_BPF_H */
