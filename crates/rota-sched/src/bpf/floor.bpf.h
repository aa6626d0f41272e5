/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The floor: what has waited too long for its turn is served out of a CPU's unreserved time, before the second level,
 * and if there is none, out of slots (see the constants in shared.h).
 */
#ifndef ROTA_FLOOR_BPF_H
#define ROTA_FLOOR_BPF_H

#include "fair.bpf.h"

/* No thread waits in any line. */
static __always_inline void nobody_overdue(struct cpu_ctx *c)
{
	c->lines.pinned.left_ns = c->lines.background.left_ns = c->lines.shared.left_ns = 0;
	line_is_served(&c->lines.pinned, c->run.now);
	line_is_served(&c->lines.background, c->run.now);
	line_is_served(&c->lines.shared, c->run.now);
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

	if (!c || (c->role.exclusive && line != FLOOR_PINNED) || (c->role.housekeeping && line == FLOOR_SHARED))
		return false;
	dsq = line_dsq(c, cpu, line);
	floor = floor_of(c, line);
	waits = nr_waiting(dsq) > 0 || c->run.prev_dsq == dsq ||
		(line == FLOOR_SHARED && nr_waiting(DSQ_BOUND(cpu)) > 0);
	if (!waits) {
		floor->left_ns = 0;
		line_is_served(floor, c->run.now);
		return false;
	}
	if (c->run.now - floor->served > wait)
		floor->left_ns = grant;
	if (!floor->left_ns)
		return false;
	turn = grant * (ROTA_FLOOR_ROUND_NS / wait) / (scx_bpf_dsq_nr_queued(dsq) + 1);
	until = min_time(until, c->run.now + min_time(floor->left_ns, max_time(turn, ROTA_QUANTUM_MIN_NS)));
	if (line == FLOOR_SHARED ? !serve_fair(cpu, ROTA_LEVEL_FLOOR, until)
				 : !serve(cpu, dsq, ROTA_LEVEL_FLOOR, until))
		return false;
	c->turn.line = line;
	return true;
}

/*
 * The floor, in unreserved time, which ends with the next slot. The pinned line comes first, but not twice in a row: it
 * could use alone a ms that comes every now and then.
 */
__noinline bool serve_floor(u32 cpu)
{
	u64 wait = ROTA_FLOOR_WAIT_NS, grant = ROTA_FLOOR_GRANT_NS;
	struct cpu_ctx *c = cpu_ctx(cpu);
	bool first;

	if (!c)
		return false;
	first = c->turn.line != FLOOR_PINNED;
	if (first && serve_overdue(cpu, FLOOR_PINNED, ROTA_PINNED_WAIT_NS, ROTA_PINNED_GRANT_NS, c->slot.end))
		return true;
	return serve_overdue(cpu, FLOOR_BACKGROUND, wait, grant, c->slot.end) ||
	       serve_overdue(cpu, FLOOR_SHARED, wait, grant, c->slot.end) ||
	       (!first && serve_overdue(cpu, FLOOR_PINNED, ROTA_PINNED_WAIT_NS, ROTA_PINNED_GRANT_NS, c->slot.end));
}

/* The least time from one grant to the next for threads that have starved. */
#define STARVING_WAIT_MIN_NS (ROTA_PINNED_GRANT_NS * 100 / ROTA_STARVING_PART)

/*
 * The time from one such grant to the next in a line. All threads that wait there have a turn within a round, as in the
 * floor. It gets no longer while a thread starves there, though ever fewer wait.
 */
static __always_inline u64 starving_wait(const struct cpu_ctx *c, const struct floor *floor, u32 line)
{
	const struct fair_domain *d = line == FLOOR_SHARED ? fair_domain(c->role.domain) : NULL;
	u64 threads = (u64)c->lines.waiting + (d ? d->waiting : 0) + 1;
	u64 wait = ROTA_FLOOR_ROUND_NS * (ROTA_PINNED_GRANT_NS / ROTA_QUANTUM_MIN_NS) / threads;

	wait = max_time(STARVING_WAIT_MIN_NS, min_time(wait, ROTA_STARVING_NS));
	return floor->starving_wait ? min_time(floor->starving_wait, wait) : wait;
}

/* Starved threads of the background line come first there, in the order in which they came. */
__noinline int call_background(u32 cpu)
{
	call_overdue(DSQ_BACKGROUND(cpu));
	return 0;
}

/*
 * Whether a thread has starved in a line that has had no turn for long, but for such grants. Where slots follow one
 * another the line is not looked at, and its first thread may have come just now. It is noted since when that thread
 * waits.
 */
static __always_inline bool has_starved(struct cpu_ctx *c, u32 cpu, u32 line)
{
	struct floor *floor = floor_of(c, line);
	u64 since;

	if (c->role.exclusive && line != FLOOR_PINNED)
		return false;
	if (c->run.now - floor->served <= (floor->starving_wait ?: ROTA_STARVING_NS))
		return false;
	since = line_waits_since(c, cpu, line);
	if (c->run.now - since <= ROTA_STARVING_NS) {
		line_is_served(floor, max_time(floor->served, since));
		return false;
	}
	if (line == FLOOR_BACKGROUND)
		call_background(cpu);
	floor->starving_wait = starving_wait(c, floor, line);
	floor->left_ns = ROTA_PINNED_GRANT_NS;
	return true;
}

/* The grant is for all starved threads of the line, until it is used up. */
static __always_inline bool starves_on(struct cpu_ctx *c, u32 cpu)
{
	return c->lines.starving && c->run.now - line_waits_since(c, cpu, c->lines.starving - 1) > ROTA_STARVING_NS &&
	       serve_overdue(cpu, c->lines.starving - 1, ROTA_FLOOR_ROUND_NS, ROTA_PINNED_GRANT_NS, ROTA_NEVER);
}

/* A line that has starved for seconds, for want of unreserved time, takes a turn from any slot. */
__noinline bool serve_starving(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	u64 served;
	u32 line;

	if (!c)
		return false;
	if (starves_on(c, cpu))
		return true;
	c->lines.starving = 0;
	served = min_time(c->lines.pinned.served, min_time(c->lines.background.served, c->lines.shared.served));
	if (c->run.now - served <= STARVING_WAIT_MIN_NS)
		return false;
	bpf_for (line, FLOOR_PINNED, FLOOR_SHARED + 1) {
		if (has_starved(c, cpu, line) &&
		    serve_overdue(cpu, line, ROTA_FLOOR_ROUND_NS, ROTA_PINNED_GRANT_NS, ROTA_NEVER)) {
			c->lines.starving = line + 1;
			return true;
		}
	}
	return false;
}

#endif /* ROTA_FLOOR_BPF_H */
