/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The floor: what has waited too long for its turn is served out of a CPU's unreserved time, before the second level,
 * and if there is none, out of slots (see the constants in shared.h).
 */
#ifndef ROTA_FLOOR_BPF_H
#define ROTA_FLOOR_BPF_H

#include "fair.bpf.h"
#include "pick.bpf.h"

/* Nobody waits in any line. */
static __always_inline void nobody_overdue(struct cpu_ctx *c)
{
	c->pinned.left_ns = c->background.left_ns = c->shared.left_ns = 0;
	c->pinned.served = c->background.served = c->shared.served = c->now;
}

/*
 * What has waited in this line for longer than `wait` gets a grant, and the CPU until it is used up or `until`. Many
 * share it.
 */
__noinline bool serve_overdue(u32 cpu, u32 line, u64 wait, u64 grant, u64 until)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct floor *floor;
	u64 dsq, turn;
	bool waits;

	if (!c || (c->exclusive && line != FLOOR_PINNED))
		return false;
	dsq = line == FLOOR_SHARED   ? DSQ_SHARED(c->domain)
	      : line == FLOOR_PINNED ? DSQ_PINNED(cpu)
				     : DSQ_BACKGROUND(cpu);
	floor = floor_of(c, line);
	waits = nr_waiting(dsq) > 0 || c->prev_dsq == dsq || (line == FLOOR_SHARED && nr_waiting(DSQ_BOUND(cpu)) > 0);
	if (!waits) {
		floor->left_ns = 0;
		floor->served = c->now;
		return false;
	}
	if (c->now - floor->served > wait)
		floor->left_ns = grant;
	if (!floor->left_ns)
		return false;
	turn = grant * (ROTA_FLOOR_ROUND_NS / wait) / (scx_bpf_dsq_nr_queued(dsq) + 1);
	until = min_time(until, c->now + min_time(floor->left_ns, max_time(turn, ROTA_QUANTUM_MIN_NS)));
	if (line == FLOOR_SHARED ? !serve_fair(cpu, ROTA_LEVEL_FLOOR, until)
				 : !serve(cpu, dsq, ROTA_LEVEL_FLOOR, until))
		return false;
	c->floor_line = line;
	return true;
}

/* The floor, in unreserved time, which ends with the next slot. */
__noinline bool serve_floor(u32 cpu)
{
	u64 wait = ROTA_FLOOR_WAIT_NS, grant = ROTA_FLOOR_GRANT_NS;
	struct cpu_ctx *c = cpu_ctx(cpu);

	return c && (serve_overdue(cpu, FLOOR_PINNED, ROTA_PINNED_WAIT_NS, ROTA_PINNED_GRANT_NS, c->slot_end) ||
		     serve_overdue(cpu, FLOOR_BACKGROUND, wait, grant, c->slot_end) ||
		     serve_overdue(cpu, FLOOR_SHARED, wait, grant, c->slot_end));
}

/* Who has starved for seconds, for want of unreserved time, takes a turn from anyone. */
__noinline bool serve_starving(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	u32 line;

	if (!c ||
	    c->now - min_time(c->pinned.served, min_time(c->background.served, c->shared.served)) <= ROTA_STARVING_NS)
		return false;
	bpf_for (line, FLOOR_PINNED, FLOOR_SHARED + 1) {
		if (c->now - floor_of(c, line)->served > ROTA_STARVING_NS &&
		    serve_overdue(cpu, line, ROTA_STARVING_NS, ROTA_PINNED_GRANT_NS, ROTA_NEVER))
			return true;
	}
	return false;
}

#endif /* ROTA_FLOOR_BPF_H */
