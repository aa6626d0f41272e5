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

/* A housekeeping CPU: the system, and whatever is bound to this CPU. */
__noinline bool pick_housekeeping(u32 cpu)
{
	return serve_floor(cpu) || serve(cpu, DSQ_QUEUE(SYSTEM_QUEUE), ROTA_LEVEL_SHARED, ROTA_NEVER) ||
	       serve(cpu, DSQ_PINNED(cpu), ROTA_LEVEL_SHARED, ROTA_NEVER) ||
	       serve(cpu, DSQ_BACKGROUND(cpu), ROTA_LEVEL_BACKGROUND, ROTA_NEVER);
}

__noinline bool pick_tenant(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (!c)
		return false;
	if (!c->run.prev_dsq && !c->lines.waiting && !shared_may_wait()) {
		nobody_overdue(c);
		return (c->slot.queue != ROTA_NONE && serve_owner(cpu)) || (!is_unwanted(c) && serve_second_level(cpu));
	}
	if (serve_starving(cpu) || serve_owner(cpu) || serve_floor(cpu) || serve_second_level(cpu) ||
	    serve(cpu, DSQ_PINNED(cpu), ROTA_LEVEL_SHARED, c->slot.end))
		return true;
	if (c->role.exclusive)
		return false;
	return serve_fair(cpu, ROTA_LEVEL_SHARED, c->slot.end) ||
	       serve(cpu, DSQ_BACKGROUND(cpu), ROTA_LEVEL_BACKGROUND, c->slot.end);
}

#endif /* ROTA_ORDER_BPF_H */
