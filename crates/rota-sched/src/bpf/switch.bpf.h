/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * From one slot to the next: the look-up, and what is left behind.
 */
#ifndef ROTA_SWITCH_BPF_H
#define ROTA_SWITCH_BPF_H

#include "charge.bpf.h"
#include "slot.bpf.h"
#include "tell.bpf.h"
#include "window.bpf.h"

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
		forget_windows(c, table_since(owner->buffer));
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
	c->slot.in_windows = windows_view(c, cpu);
	c->role.exclusive = is_exclusive(slot.buffer, cpu);
	return true;
}

#endif /* ROTA_SWITCH_BPF_H */
