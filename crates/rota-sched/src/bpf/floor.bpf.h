/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The floor: what has waited too long for its turn is served out of a CPU's unreserved time, before the second level,
 * and if there is none, out of slots (see the constants in shared.h).
 */
#ifndef ROTA_FLOOR_BPF_H
#define ROTA_FLOOR_BPF_H

#include "fair.bpf.h"

/* No thread waits in any line. */
static __always_inline void nobody_overdue(struct run *r, struct cpu_ctx *c)
{
	c->lines.pinned.left_ns = c->lines.background.left_ns = c->lines.shared.left_ns = 0;
	line_is_served(&c->lines.pinned, r->now);
	line_is_served(&c->lines.background, r->now);
	line_is_served(&c->lines.shared, r->now);
}

/*
 * What has waited in this line for longer than `wait` gets a grant, and the CPU until it is used up or `until`. Many
 * share it.
 */
__noinline bool serve_overdue(struct run *r __arg_nonnull, u32 kind, u64 wait, u64 grant, u64 until)
{
	bool is_shared = kind == ROTA_LINE_SHARED, may, waits;
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	struct line *line;
	u32 waiting;
	u64 dsq, turn;

	if (!c || (c->role.exclusive && kind != ROTA_LINE_PINNED) || (c->role.housekeeping && is_shared))
		return false;
	dsq = line_dsq(c, r->cpu, kind);
	line = line_of(c, kind);
	/* Where a line has had a turn lately, the kernel is not asked whether a thread waits there. */
	may = is_shared ? c->lines.bound || shared_may_wait() : may_wait(dsq);
	if (may && !line->left_ns && r->now - line->served <= wait)
		return false;
	waits = nr_waiting(dsq) > 0 || r->prev_dsq == dsq || (is_shared && nr_waiting(DSQ_BOUND(r->cpu)) > 0);
	if (!waits) {
		line->left_ns = 0;
		line_is_served(line, r->now);
		return false;
	}
	if (r->now - line->served > wait)
		line->left_ns = grant;
	if (!line->left_ns)
		return false;
	waiting = scx_bpf_dsq_nr_queued(dsq);
	turn = grant * (ROTA_FLOOR_ROUND_NS / wait) / (waiting + 1);
	until = min_time(until, r->now + min_time(line->left_ns, max_time(turn, quantum_min(waiting))));
	if (is_shared ? !serve_fair(r, ROTA_LEVEL_FLOOR, until) : !serve(r, dsq, ROTA_LEVEL_FLOOR, until))
		return false;
	c->turn.line = kind;
	return true;
}

/* A line's turn of the floor, in unreserved time, which ends with the next slot. */
static __always_inline bool serve_line(struct run *r, struct cpu_ctx *c, enum rota_line kind)
{
	if (kind == ROTA_LINE_PINNED)
		return serve_overdue(r, kind, ROTA_PINNED_WAIT_NS, ROTA_PINNED_GRANT_NS, c->slot.end);
	return serve_overdue(r, kind, ROTA_FLOOR_WAIT_NS, ROTA_FLOOR_GRANT_NS, c->slot.end);
}

/* The pinned line comes first, but not twice in a row: it could use alone a ms that comes every now and then. */
__noinline bool serve_floor(struct run *r __arg_nonnull)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	bool first;

	if (!c)
		return false;
	if (!own_may_wait(r, c)) {
		c->lines.pinned.left_ns = c->lines.background.left_ns = 0;
		line_is_served(&c->lines.pinned, r->now);
		line_is_served(&c->lines.background, r->now);
		return serve_line(r, c, ROTA_LINE_SHARED);
	}
	first = c->turn.line != ROTA_LINE_PINNED;
	return (first && serve_line(r, c, ROTA_LINE_PINNED)) || serve_line(r, c, ROTA_LINE_BACKGROUND) ||
	       serve_line(r, c, ROTA_LINE_SHARED) || (!first && serve_line(r, c, ROTA_LINE_PINNED));
}

/* The least time from one grant to the next for threads that have starved. */
#define STARVING_WAIT_MIN_NS (ROTA_PINNED_GRANT_NS * 100 / ROTA_STARVING_PART)

/*
 * The time from one such grant to the next in a line. All threads that wait there have a turn within a round, as in the
 * floor. It gets no longer while a thread starves there, though ever fewer wait.
 */
static __always_inline u64 starving_wait(const struct cpu_ctx *c, const struct line *line, enum rota_line kind)
{
	const struct fair_domain *d = kind == ROTA_LINE_SHARED ? fair_domain(c->role.domain) : NULL;
	u64 threads = (u64)c->lines.waiting + (d ? d->waiting : 0) + 1;
	u64 wait = ROTA_FLOOR_ROUND_NS * (ROTA_PINNED_GRANT_NS / quantum_min(threads)) / threads;

	wait = max_time(STARVING_WAIT_MIN_NS, min_time(wait, ROTA_STARVING_NS));
	return line->starving_wait ? min_time(line->starving_wait, wait) : wait;
}

/* Starved threads of the background line come first there, in the order in which they came. */
__noinline int call_background(u32 cpu)
{
	call_overdue(DSQ_BACKGROUND(cpu));
	return 0;
}

/* More threads than all grants of the floor have turns for, in the time that the kernel gives a thread. */
static __always_inline bool overflows(struct run *r, struct cpu_ctx *c, enum rota_line kind)
{
	const struct fair_domain *d = kind == ROTA_LINE_SHARED ? fair_domain(c->role.domain) : NULL;
	u32 waiting = d ? d->waiting : nr_waiting(line_dsq(c, r->cpu, kind));

	return waiting > ROTA_CROWD * ROTA_QUANTUM_MIN_NS / ROTA_QUANTUM_LEAST_NS;
}

/*
 * Whether a thread has starved in a line that overflows, or has had no turn for long, but for such grants. Where slots
 * follow one another the line is not looked at, and its first thread may have come just now. It is noted since when
 * that thread waits.
 */
static __always_inline bool has_starved(struct run *r, struct cpu_ctx *c, enum rota_line kind)
{
	struct line *line = line_of(c, kind);
	u64 since, wait;

	if (c->role.exclusive && kind != ROTA_LINE_PINNED)
		return false;
	wait = line->starving_wait ?: overflows(r, c, kind) ? STARVING_WAIT_MIN_NS : ROTA_STARVING_NS;
	if (r->now - line->served <= wait)
		return false;
	since = line_waits_since(r, c, kind);
	if (r->now - since <= ROTA_STARVING_NS) {
		line_is_served(line, max_time(line->served, since));
		return false;
	}
	if (kind == ROTA_LINE_BACKGROUND)
		call_background(r->cpu);
	line->starving_wait = starving_wait(c, line, kind);
	line->left_ns = ROTA_PINNED_GRANT_NS;
	return true;
}

/* A turn of a line that has starved, whatever slot is in force. */
static __always_inline bool serve_starved(struct run *r, enum rota_line kind)
{
	return serve_overdue(r, kind, ROTA_FLOOR_ROUND_NS, ROTA_PINNED_GRANT_NS, ROTA_NEVER);
}

/* The grant is for all starved threads of the line, until it is used up. */
static __always_inline bool starves_on(struct run *r, struct cpu_ctx *c)
{
	enum rota_line kind = c->lines.starving;

	return kind && r->now - line_waits_since(r, c, kind) > ROTA_STARVING_NS && serve_starved(r, kind);
}

/* A line that has starved for seconds, for want of unreserved time, takes a turn from any slot. */
__noinline bool serve_starving(struct run *r __arg_nonnull)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	u64 served;
	u32 kind;

	if (!c)
		return false;
	if (starves_on(r, c))
		return true;
	c->lines.starving = ROTA_LINE_NONE;
	served = min_time(c->lines.pinned.served, min_time(c->lines.background.served, c->lines.shared.served));
	if (r->now - served <= STARVING_WAIT_MIN_NS)
		return false;
	bpf_for (kind, ROTA_LINE_PINNED, ROTA_LINE_SHARED + 1) {
		if (has_starved(r, c, kind) && serve_starved(r, kind)) {
			c->lines.starving = kind;
			return true;
		}
	}
	return false;
}

#endif /* ROTA_FLOOR_BPF_H */
