/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * From one slot to the next: the look-up, what is left behind, and the timer.
 */
#ifndef ROTA_SWITCH_BPF_H
#define ROTA_SWITCH_BPF_H

#include "charge.bpf.h"
#include "slot.bpf.h"
#include "tell.bpf.h"

/* Brings the CPU's idea of its slot up to date. */
static __noinline int enter_slot(struct cpu_ctx *c, u32 cpu, const struct owner *owner, u64 now)
{
	if (c->slot.epoch != live.membership_epoch)
		c->offer.unwanted = 0; /* marks that it has left for wakers may be a former queue's */
	if (owner->start_ns == c->slot.start && owner->vcpu == c->slot.vcpu &&
	    owner->generation == c->slot.generation) {
		c->slot.end = owner->end_ns;
		if (c->slot.epoch != live.membership_epoch) {
			clear_hungry(c);
			find_owner(c, cpu, owner);
		}
		return 0;
	}
	if (is_mark_taken(c))
		pass_on(c->slot.tenant, now);
	/* A mark may be the next slot's by now, on another CPU. */
	if (c->slot.moves)
		c->slot.hungry = 0;
	clear_hungry(c);
	check_generation(c, owner, now);
	if (owner->generation != c->slot.generation) {
		c->offer.unwanted = 0;
		__builtin_memset(c->second.places, 0, sizeof(c->second.places));
	}
	c->slot.start = owner->start_ns;
	c->slot.end = owner->end_ns;
	c->slot.generation = owner->generation;
	c->slot.vcpu = owner->vcpu;
	c->slot.lost_ns = 0;
	c->slot.looks_since = 0;
	find_owner(c, cpu, owner);
	return 0;
}

/* The same for all that is kept of the table in force. Returns whether the slot may be another one. */
static __always_inline bool follow_slots(struct cpu_ctx *c, u32 cpu, u64 now)
{
	struct owner slot;

	if (is_in_slot(c, now))
		return false;
	table_look_up(cpu, now, &slot);
	enter_slot(c, cpu, &slot, now);
	c->slot.buffer = slot.buffer;
	c->role.exclusive = is_exclusive(slot.buffer, cpu);
	return true;
}

/*
 * What no slot can stop, a task of another class or a bound kernel thread, keeps the CPU from one slot to the next:
 * what it takes is counted slot by slot.
 */
static __always_inline void pass_slot(struct cpu_ctx *c, u32 cpu, u64 now)
{
	struct owner slot;

	c->turn.overtaken = true;
	serves_no_more(c);
	if (c->turn.other_since) {
		scx_reenqueue_local(); /* what was about to start may do so elsewhere */
		settle_other(c, cpu, now);
		c->turn.other_since = now;
	} else {
		turn_ends(cpu, SYSTEM_QUEUE, TURN_GOES_ON, now);
	}
	table_look_up(cpu, now, &slot);
	enter_slot(c, cpu, &slot, now);
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

#endif /* ROTA_SWITCH_BPF_H */
