/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A slot or a turn is over: by the timer, or as something has the CPU that no slot can stop.
 */
#ifndef ROTA_PASS_BPF_H
#define ROTA_PASS_BPF_H

#include "windows.bpf.h"

/*
 * What no slot can stop, a task of another class or a bound kernel thread, keeps the CPU from one slot to the next:
 * what it takes is counted slot by slot.
 */
static __always_inline void pass_slot(struct cpu_ctx *c, u32 cpu, u64 now)
{
	c->turn.overtaken = true;
	serves_no_more(c);
	if (c->turn.other_since) {
		scx_reenqueue_local(); /* what was about to start may do so elsewhere */
		/* A switch at a slot's end counts too: else a short slot could come again and again. */
		settle_other(c, cpu, 0, now);
		c->turn.other_since = now;
	} else {
		turn_ends(cpu, SYSTEM_QUEUE, TURN_GOES_ON, now);
	}
	follow_slots(c, cpu, now);
	if (c->slot.in_windows)
		enter_window(c, cpu, next_in_window(cpu, now, 0, 0), now);
	c->turn.until_ns = c->slot.end;
	arm(c, c->slot.end);
}

/* A slot or a turn is over: the CPU decides anew. Runs on the CPU concerned. */
static int slot_timer(void *map, u32 *cpu, struct cpu_ctx *c)
{
	u64 now = bpf_ktime_get_ns();

	c->turn.armed_ns = 0;
	if (now < c->turn.until_ns) {
		arm(c, c->turn.until_ns);
		return 0;
	}
	if (c->turn.other_since || c->turn.level == ROTA_LEVEL_KERNEL)
		pass_slot(c, *cpu, now);
	else
		decide_anew(*cpu);
	return 0;
}

#endif /* ROTA_PASS_BPF_H */
