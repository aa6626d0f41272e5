/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU in its slots: entering a slot, the timer that ends it, and the marks that tell wakers where a slot is hungry.
 */
#ifndef ROTA_SLOT_BPF_H
#define ROTA_SLOT_BPF_H

#include "account.bpf.h"
#include "exclusive.bpf.h"
#include "handover.bpf.h"
#include "tenant.bpf.h"

/*
 * Marks of a tenant's vCPUs, by number: which slots are hungry, which CPUs doze. There is a queue's entry for each
 * vCPU, and as many of them as are needed have the marks of 64 each.
 */
static __always_inline struct queue_ctx *marks_of(const struct rota_tenant *tenant, u32 index)
{
	return queue_ctx(tenant->first_queue + index / 64);
}

static __always_inline bool is_marked(const u64 *marks, u32 index)
{
	return *marks & 1ULL << (index % 64);
}

static __always_inline bool unmark(u64 *marks, u32 index)
{
	u64 bit = 1ULL << (index % 64);

	return __sync_fetch_and_and(marks, ~bit) & bit;
}

/* Returns whether it was not marked. */
static __always_inline bool mark(u64 *marks, u32 index)
{
	if (is_marked(marks, index))
		return false;
	__sync_fetch_and_or(marks, 1ULL << (index % 64));
	return true;
}

/* The word with the mark of the slot owner's vCPU, or NULL. */
static __always_inline u64 *slot_marks(struct cpu_ctx *c, u32 index)
{
	struct rota_tenant *tenant = c->slot_queue == ROTA_NONE ? NULL : tenant_of(c->slot_tenant);
	struct queue_ctx *q = tenant ? marks_of(tenant, index) : NULL;

	return q ? &q->hungry : NULL;
}

static __always_inline void clear_hungry(struct cpu_ctx *c)
{
	u32 index = c->slot_hungry - 1;
	u64 *marks = c->slot_hungry ? slot_marks(c, index) : NULL;

	c->slot_hungry = 0;
	if (marks)
		unmark(marks, index);
}

/*
 * The slot is served: a mark would lead wakers astray. The CPU of the vCPU's last slot may have left one, if the vCPU
 * migrates, or did in a former table.
 */
static __always_inline void clear_served(struct cpu_ctx *c)
{
	u64 *marks = slot_marks(c, c->slot_index);

	c->slot_hungry = 0;
	if (marks && is_marked(marks, c->slot_index))
		unmark(marks, c->slot_index);
}

/*
 * Nobody to run in the slot of a tenant with several vCPUs: a waker will find the mark and send someone. If
 * another slot serves that one first, the mark is set again. Returns whether wakers may not have seen it until
 * now.
 */
static __always_inline bool mark_hungry(struct cpu_ctx *c, u32 index)
{
	u64 *marks = slot_marks(c, index);
	bool anew = !c->slot_hungry;

	if (!marks)
		return false;
	c->slot_hungry = index + 1;
	return mark(marks, index) || anew;
}

/* Whether a waker has taken the slot's mark, and nobody was served since. */
static __always_inline bool is_mark_taken(struct cpu_ctx *c)
{
	u64 *marks = c->slot_hungry ? slot_marks(c, c->slot_hungry - 1) : NULL;

	return marks && !is_marked(marks, c->slot_hungry - 1);
}

int pass_on(u32 tenant_id, u64 now); /* place.bpf.h */

/* Two tables within one slot of the older one cannot be: the change-over ends every slot (see table_look_up). */
static __always_inline void check_generation(struct cpu_ctx *c, const struct owner *owner, u64 now)
{
	if (owner->generation == c->account.generation)
		return;
	if (owner->generation < c->account.generation || (c->slot_end != ROTA_NEVER && now < c->slot_end))
		c->account.mixed++;
	c->account.generation = owner->generation;
}

/*
 * Whose the slot is, and where the owner's threads wait and its claims are kept: a tenant that grows has other queues
 * from one moment to the next.
 */
static __always_inline void find_owner(struct cpu_ctx *c, u32 cpu, const struct owner *owner)
{
	struct rota_cpu_view *view;
	struct rota_table_vcpu *vcpu;
	struct rota_tenant *tenant;

	c->slot_epoch = live.membership_epoch; /* changes after the tenants do */
	c->slot_queue = ROTA_NONE;
	c->slot_tenant = ROTA_NONE;
	c->slot_moves = false;
	if (owner->vcpu == ROTA_NONE || owner->buffer >= ROTA_NR_BUFFERS)
		return;
	view = cpu_view(owner->buffer, cpu);
	vcpu = view ? table_vcpu(owner->buffer, view, owner->vcpu) : NULL;
	tenant = vcpu ? tenant_of(vcpu->tenant) : NULL;
	if (!tenant || tenant->class != ROTA_CLASS_RESERVED)
		return;
	c->slot_tenant = vcpu->tenant;
	c->slot_index = vcpu->index;
	c->slot_queue = tenant->first_queue + (tenant->kind == ROTA_KIND_VM ? 1 + vcpu->index : 0);
	c->slot_moves = vcpu->nr_cpus > 1;
	if (c->slot_moves)
		trail(vcpu_entry(tenant, vcpu->index), owner->generation, cpu);
}

/* Brings the CPU's idea of its slot up to date. */
static __noinline int enter_slot(struct cpu_ctx *c, u32 cpu, const struct owner *owner, u64 now)
{
	if (c->slot_epoch != live.membership_epoch)
		c->unwanted = 0; /* marks that it has left for wakers may be a former queue's */
	if (owner->start_ns == c->slot_start && owner->vcpu == c->slot_vcpu &&
	    owner->generation == c->slot_generation) {
		c->slot_end = owner->end_ns;
		if (c->slot_epoch != live.membership_epoch) {
			clear_hungry(c);
			find_owner(c, cpu, owner);
		}
		return 0;
	}
	if (is_mark_taken(c))
		pass_on(c->slot_tenant, now);
	/* A mark may be the next slot's by now, on another CPU. */
	if (c->slot_moves)
		c->slot_hungry = 0;
	clear_hungry(c);
	check_generation(c, owner, now);
	if (owner->generation != c->slot_generation) {
		c->unwanted = 0;
		__builtin_memset(c->second_places, 0, sizeof(c->second_places));
	}
	c->slot_start = owner->start_ns;
	c->slot_end = owner->end_ns;
	c->slot_generation = owner->generation;
	c->slot_vcpu = owner->vcpu;
	c->slot_lost_ns = 0;
	c->looks_since = 0;
	find_owner(c, cpu, owner);
	return 0;
}

/*
 * Whether the slot that the CPU knows is in force still, its owner has the same queues, and no table that ends it has
 * been published.
 */
static __always_inline bool is_in_slot(const struct cpu_ctx *c, u64 now)
{
	u64 generation = 0;

	if (now < c->slot_start || now >= c->slot_end || table_in_force(now) != c->buffer ||
	    table_next(now) < c->slot_end || c->slot_epoch != live.membership_epoch)
		return false;
	if (c->buffer != ROTA_NONE)
		generation = c->buffer ? live.tables[1].generation : live.tables[0].generation;
	return generation == c->slot_generation;
}

/* The same for all that is kept of the table in force. Returns whether the slot may be another one. */
static __always_inline bool follow_slots(struct cpu_ctx *c, u32 cpu, u64 now)
{
	struct owner slot;

	if (is_in_slot(c, now))
		return false;
	table_look_up(cpu, now, &slot);
	enter_slot(c, cpu, &slot, now);
	c->buffer = slot.buffer;
	c->exclusive = is_exclusive(slot.buffer, cpu);
	return true;
}

/* Has the timer fire at `at`, on this CPU. */
static __always_inline void arm(struct cpu_ctx *c, u64 at)
{
	if (at == ROTA_NEVER || c->armed_ns == at)
		return;
	c->armed_ns = at;
	bpf_timer_start(&c->timer, at, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN);
}

/*
 * What no slot can stop, a task of another class or a bound kernel thread, keeps the CPU from one slot to the next:
 * what it takes is counted slot by slot.
 */
static __always_inline void pass_slot(struct cpu_ctx *c, u32 cpu, u64 now)
{
	struct owner slot;

	c->overtaken = true;
	serves_no_more(c);
	if (c->other_since) {
		scx_reenqueue_local(); /* what was about to start may do so elsewhere */
		settle_other(c, cpu, now);
		c->other_since = now;
	} else {
		turn_ends(cpu, SYSTEM_QUEUE, TURN_GOES_ON, now);
	}
	table_look_up(cpu, now, &slot);
	enter_slot(c, cpu, &slot, now);
	c->until_ns = c->slot_end;
	arm(c, c->slot_end);
}

/* A slot or a turn is over: the CPU decides anew. Runs on the CPU concerned. */
static int slot_timer(void *map, u32 *cpu, struct cpu_ctx *c)
{
	u64 now = bpf_ktime_get_ns();

	c->armed_ns = 0;
	if (now < c->until_ns) {
		arm(c, c->until_ns);
		return 0;
	}
	if (c->other_since || c->level == ROTA_LEVEL_KERNEL)
		pass_slot(c, *cpu, now);
	else
		scx_bpf_kick_cpu(*cpu, SCX_KICK_PREEMPT);
	return 0;
}

#endif /* ROTA_SLOT_BPF_H */
