/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a CPU runs next. First the slot's owner; then, in time that the owner leaves or nobody reserved:
 *
 *   the floor     what has waited too long for its turn (floor.bpf.h)
 *   second level  uncapped reserved tenants with a slot on this CPU, by what they reserved (second.bpf.h)
 *   shared        tenants without a reservation, by weight (fair.bpf.h)
 *   background    what everyone else leaves, in turn
 */
#ifndef ROTA_ORDER_BPF_H
#define ROTA_ORDER_BPF_H

#include "floor.bpf.h"
#include "windows.bpf.h"

/* A thread of one of the CPU's own lines. */
static __always_inline bool serve_in_turn(struct run *r, u64 dsq, u32 level, u64 until)
{
	return serve(r, dsq, level, line_until(r, dsq, until));
}

/* A housekeeping CPU: the system, and whatever is bound to this CPU. */
__noinline bool pick_housekeeping(struct run *r __arg_nonnull)
{
	u64 until = crowd_until(r, SYSTEM_QUEUE, ROTA_NEVER);

	return serve_floor(r) || serve(r, DSQ_QUEUE(SYSTEM_QUEUE), ROTA_LEVEL_SHARED, until) ||
	       serve_in_turn(r, DSQ_PINNED(r->cpu), ROTA_LEVEL_SHARED, ROTA_NEVER) ||
	       serve_in_turn(r, DSQ_BACKGROUND(r->cpu), ROTA_LEVEL_BACKGROUND, ROTA_NEVER);
}

/* The slot's owner, or the vCPU that comes next where the CPU decides that itself. */
static __always_inline bool serve_slot(struct run *r, const struct cpu_ctx *c)
{
	return c->slot.in_windows ? serve_windows(r) : serve_owner(r);
}

__noinline bool pick_tenant(struct run *r __arg_nonnull)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	bool own;

	if (!c)
		return false;
	if (!r->prev_dsq && !c->lines.waiting && !shared_may_wait() && !bound_elsewhere(c)) {
		nobody_overdue(r, c);
		if (serve_rest(r))
			return true;
		if ((c->slot.in_windows || c->slot.queue != ROTA_NONE) && serve_slot(r, c))
			return true;
		return !is_unwanted(r, c) && serve_second_level(r);
	}
	own = own_may_wait(r, c);
	if (serve_starving(r) || serve_rest(r) || serve_slot(r, c) || serve_floor(r) || serve_second_level(r) ||
	    (own && serve_in_turn(r, DSQ_PINNED(r->cpu), ROTA_LEVEL_SHARED, c->slot.end)))
		return true;
	if (c->role.exclusive)
		return false;
	return serve_fair(r, ROTA_LEVEL_SHARED, c->slot.end) ||
	       (own && !is_sampled(r->now) &&
		serve_in_turn(r, DSQ_BACKGROUND(r->cpu), ROTA_LEVEL_BACKGROUND, c->slot.end));
}

#endif /* ROTA_ORDER_BPF_H */
