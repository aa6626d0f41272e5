/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The end of a turn: what it used goes to the accounts, and to the grants and clocks by which the next turn is decided.
 */
#ifndef ROTA_CHARGE_BPF_H
#define ROTA_CHARGE_BPF_H

#include "account.bpf.h"
#include "line.bpf.h"
#include "lost.bpf.h"

/* A grant is taken in what is left between slots, in several pieces if need be. */
static __always_inline void charge_floor(struct cpu_ctx *c, u64 used, u64 now)
{
	struct line *line = line_of(c, c->turn.line);

	if (!used) /* it was charged as the next one was chosen */
		return;
	line->left_ns -= min_time(line->left_ns, used);
	if (c->lines.starving)
		line->served = line->turned = now;
	else
		line_has_turn(line, now);
}

/* What the turn took from what it was given, by level. */
static __always_inline void charge_level(struct cpu_ctx *c, u64 used, u64 now)
{
	switch (c->turn.level) {
	case ROTA_LEVEL_BACKGROUND:
		c->account.background_ns += used;
		line_has_turn(&c->lines.background, now);
		break;
	case ROTA_LEVEL_SECOND:
		second_charge(c, used);
		c->account.second_level_ns += used;
		break;
	case ROTA_LEVEL_SHARED:
		if (c->fair.served != ROTA_NONE || c->role.housekeeping) /* and not one that is bound to this CPU */
			line_has_turn(&c->lines.shared, now);
		c->account.second_level_ns += used;
		break;
	case ROTA_LEVEL_FLOOR:
		c->account.background_ns += used;
		charge_floor(c, used, now);
		break;
	}
}

/*
 * Deciding for a thread that starts, and changing to it, took so long: its tenant is charged. In a window only what
 * changes among the vCPU's own threads take: the budgets have room for all others.
 */
static __always_inline void charge_start(struct cpu_ctx *c, u32 before, u64 took)
{
	if (c->turn.level == ROTA_LEVEL_SECOND)
		second_charge(c, took);
	if (c->turn.local != ROTA_NONE && c->turn.local == before)
		takes_from(window_of(c, c->turn.local), took);
	fair_charge(c, took);
}

/* What becomes of the thread whose turn ends. */
enum turn_end {
	TURN_GOES_ON,
	TURN_STOPS,  /* and would go on */
	TURN_BLOCKS, /* and its queue counts it no more */
};

/* Settles what a queue used on this CPU since the turn began, or was last settled. */
__noinline int turn_ends(u32 cpu, u32 queue, enum turn_end how, u64 now)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct queue_ctx *q = queue_ctx(queue);
	u64 used, interrupt, steal;
	bool last = false;

	if (!c || !q)
		return 0;
	used = now - c->turn.since;
	interrupt = c->turn.interrupt_ns;
	steal = c->turn.steal_ns;
	read_stolen(cpu, &c->turn.interrupt_ns, &c->turn.steal_ns);
	/* A CPU that was offline may have begun its counts anew. */
	interrupt = c->turn.interrupt_ns > interrupt ? c->turn.interrupt_ns - interrupt : 0;
	steal = c->turn.steal_ns > steal ? c->turn.steal_ns - steal : 0;
	c->account.lost_ns[ROTA_CAUSE_INTERRUPT] += interrupt;
	c->account.lost_ns[ROTA_CAUSE_STEAL] += steal;
	bpf_spin_lock(&q->lock);
	q->account.used_ns += used;
	if (q->nr_runnable)
		count_wanted(q, now);
	if (c->turn.level == ROTA_LEVEL_OWNER) {
		q->account.used_in_slots_ns += used;
		q->account.lost_ns[ROTA_CAUSE_INTERRUPT] += interrupt;
		q->account.lost_ns[ROTA_CAUSE_STEAL] += steal;
	}
	/* After what the turn lost: that is no part of a blackout that begins now. */
	if (how != TURN_GOES_ON)
		last = queue_stops_thread(q, how == TURN_BLOCKS, now);
	bpf_spin_unlock(&q->lock);
	if (last)
		fair_loses_queue(q->vm);
	if (c->turn.level == ROTA_LEVEL_FLOOR)
		blame_floor(c, cpu, interrupt, steal, now);
	else if (c->turn.level == ROTA_LEVEL_KERNEL)
		blame(cpu, ROTA_CAUSE_KERNEL_THREAD, lost_to_owner(cpu, c->turn.since, now));
	charge_level(c, used, now);
	charge_turn(c, cpu, queue, c->turn.since, now);
	if (c->fair.served != ROTA_NONE)
		fair_charge(c, used);
	c->turn.since = now;
	return 0;
}

#endif /* ROTA_CHARGE_BPF_H */
