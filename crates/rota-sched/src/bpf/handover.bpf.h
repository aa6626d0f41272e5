/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Handing a vCPU from one CPU to the next (thesis section 4.2.1, "Cross-core migrations").
 *
 * A vCPU may have slots on several CPUs. They never overlap, but a CPU may be late to end one. So a CPU *claims* a vCPU
 * before it serves it, in a slot or in the second level, and *lets go* of it when the last of its threads has stopped
 * there. No vCPU is served by two CPUs at once, whatever their timers do. A CPU that finds a vCPU claimed by another
 * asks for it, goes on with something else, and is kicked when the other lets go.
 *
 * No hand-over is lost. All writes here are atomic and ordered like the statements, on every processor.
 *
 * - Publish, then look: a CPU that asks writes `wanted_by`, and then looks at `claimed_by` again. A CPU that lets go
 *   clears `claimed_by`, and then looks at `wanted_by`.
 * - A CPU that lets go is taking the thread off: the thread is queued only a moment later. The kick goes out when the
 *   run queue's lock is free again, which is after that.
 * - A CPU that claims a vCPU just then finds it free and its queue empty. It sees from the queue's counts, which
 *   changed before, that a thread would run and does not. So it looks again after a moment (look_again), then after
 *   twice that, and so on to the end of the slot. It does the same for a thread that woke up and is on its way into the
 *   queue.
 * - A CPU that queues a thread and finds that a slot has begun elsewhere tells that slot's CPU (tell_slot). If it finds
 *   none, the slot's CPU comes to look after the counts have changed.
 *
 * A higher class may take the CPU from a thread at any moment. The thread then goes back into its queue, and its vCPU
 * is let go of (gives_way). Kernels before 6.19 cannot do the first, so there it is let go of when the slot is over,
 * and the thread stays where it is until that CPU is free.
 *
 * What a vCPU does outside of its slots it does on its *trailing CPU*, the one of its last slot, which is remembered
 * when a slot begins. If the vCPU sleeps, CPUs sleep through its slots as well, and the trailing CPU is an older one;
 * it matters only that there is one.
 */
#ifndef ROTA_HANDOVER_BPF_H
#define ROTA_HANDOVER_BPF_H

#include "kick.bpf.h"

/* A claim is the CPU's number + 1, and whether it is for the second level: the slot's CPU interrupts that at once. */
#define CLAIM_SECOND (1U << 31)

/* The queue's entry in which the claims on the tenant's vCPU `index` are kept: for a VM its thread's own queue. */
static __always_inline u32 vcpu_entry(const struct rota_tenant *tenant, u32 index)
{
	return tenant->first_queue + index + (tenant->kind == ROTA_KIND_VM);
}

/*
 * The vCPU can be claimed by other CPUs from now on, and a CPU that has asked for it is told. Nothing happens without
 * that claim.
 */
__noinline int let_go(u32 entry, u32 claim)
{
	struct queue_ctx *v = queue_ctx(entry);
	u32 wanted;

	if (!v || __sync_val_compare_and_swap(&v->claimed_by, claim, 0) != claim)
		return 0;
	wanted = v->wanted_by ? __sync_lock_test_and_set(&v->wanted_by, 0) : 0;
	wanted &= ~CLAIM_SECOND;
	if (wanted && wanted != (claim & ~CLAIM_SECOND))
		decide_anew(wanted - 1);
	return 0;
}

/*
 * The CPU waits until the vCPU's holder lets go of it. A CPU that asks for its slot goes before one that asks for the
 * second level.
 */
static __always_inline void ask(struct queue_ctx *v, u32 claim)
{
	u32 before = v->wanted_by;

	if (!(claim & CLAIM_SECOND))
		__sync_lock_test_and_set(&v->wanted_by, claim);
	else if (!before || before & CLAIM_SECOND)
		__sync_val_compare_and_swap(&v->wanted_by, before, claim);
}

/* Whether nobody had it. */
static __always_inline bool take_or_ask(struct queue_ctx *v, u32 claim)
{
	u32 other;

	if (!__sync_val_compare_and_swap(&v->claimed_by, 0, claim))
		return true;
	ask(v, claim);
	other = __sync_val_compare_and_swap(&v->claimed_by, 0, claim);
	if (!other) {
		__sync_val_compare_and_swap(&v->wanted_by, claim, 0);
		return true;
	}
	/* A slot ends by itself; what is done outside of slots goes on until a slot's CPU says so. */
	if ((other & CLAIM_SECOND) && !(claim & CLAIM_SECOND))
		decide_anew((other & ~CLAIM_SECOND) - 1);
	return false;
}

/* Whether a slot of the vCPU has begun on another CPU since the last one here, in the table in force. */
static __always_inline bool has_moved_on(const struct queue_ctx *v, u64 generation, u32 cpu)
{
	u64 trailing = v->trailing;

	return trailing >> 16 == generation && (u16)trailing != cpu;
}

/* A slot of a vCPU that migrates begins here. */
static __always_inline void trail(u32 entry, u64 generation, u32 cpu)
{
	struct queue_ctx *v = queue_ctx(entry);

	if (v)
		__sync_lock_test_and_set(&v->trailing, generation << 16 | cpu);
}

/* The dispatch that runs takes nothing of the vCPU's: it is let go of, unless a thread of it is still on the CPU. */
static __always_inline void unclaim(struct cpu_ctx *c, u32 entry)
{
	c->claims.claimed = ROTA_NONE;
	if (entry != c->claims.held && entry != c->claims.serving)
		let_go(entry, c->claims.claim);
}

/* Claims a vCPU for the dispatch that runs. */
__noinline bool claim_vcpu(u32 cpu, u32 entry, u32 level)
{
	u32 claim = (cpu + 1) | (level == ROTA_LEVEL_SECOND ? CLAIM_SECOND : 0);
	struct queue_ctx *v = queue_ctx(entry);
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (!c || !v)
		return false;
	if (entry == c->claims.held || entry == c->claims.serving) {
		if (claim != (entry == c->claims.held ? c->claims.held_claim : c->claims.serving_claim))
			__sync_lock_test_and_set(&v->claimed_by, claim);
		if (entry == c->claims.held)
			c->claims.held_claim = claim;
		if (entry == c->claims.serving)
			c->claims.serving_claim = claim;
	} else if (!take_or_ask(v, claim)) {
		return false;
	}
	c->claims.claimed = entry;
	c->claims.claim = claim;
	/* Publish, then look: the slot's CPU writes `trailing`, and then looks at the claim. */
	if (level != ROTA_LEVEL_SECOND || !has_moved_on(v, c->slot.generation, cpu))
		return true;
	unclaim(c, entry);
	return false;
}

/*
 * Whether another CPU has the vCPU by the entry that it had before its tenant grew. It is asked, as by the entry that
 * the vCPU has now, which this CPU has claimed. By the former one nobody claims it any more: see serve_vcpu.
 */
static __always_inline bool is_claimed_formerly(struct cpu_ctx *c, const struct rota_tenant *tenant, u32 index)
{
	u32 entry = tenant->former_entry + index;
	struct queue_ctx *v;

	if (index >= tenant->nr_former || entry == c->claims.claimed || entry == c->claims.held ||
	    entry == c->claims.serving)
		return false;
	v = queue_ctx(entry);
	if (!v)
		return false;
	if (!take_or_ask(v, c->claims.claim))
		return true;
	let_go(entry, c->claims.claim);
	return false;
}

/* The end of dispatch. What ran until now is still on the CPU if it has not blocked; it is let go of when it stops. */
static __always_inline void hold_claimed(struct cpu_ctx *c)
{
	if (c->claims.held != ROTA_NONE && c->claims.held != c->claims.claimed && c->claims.held != c->claims.serving)
		let_go(c->claims.held, c->claims.held_claim);
	c->claims.held = c->claims.claimed;
	c->claims.held_claim = c->claims.claim;
}

/* A thread starts, of the vCPU that dispatch has claimed. */
static __always_inline void starts_serving(struct cpu_ctx *c)
{
	c->claims.serving = c->claims.held;
	c->claims.serving_claim = c->claims.held_claim;
}

/* What ran until now goes on, perhaps for another vCPU that dispatch has claimed: the one before is let go of. */
static __always_inline void goes_on_serving(struct cpu_ctx *c)
{
	u32 before = c->claims.serving, claim = c->claims.serving_claim;

	starts_serving(c);
	if (before != ROTA_NONE && before != c->claims.serving)
		let_go(before, claim);
}

/* A thread has stopped, and its queue's counts know it. Its turn may be over with dispatch not asked: see pass_slot. */
static __always_inline void stops_serving(struct cpu_ctx *c, u64 now)
{
	if (c->claims.serving == ROTA_NONE)
		return;
	if (c->claims.serving == c->claims.held && now < c->turn.until_ns) {
		c->claims.serving = ROTA_NONE; /* a sibling follows, or it has blocked and dispatch is asked next */
		return;
	}
	if (c->claims.serving == c->claims.held)
		c->claims.held = ROTA_NONE;
	let_go(c->claims.serving, c->claims.serving_claim);
	c->claims.serving = ROTA_NONE;
}

/* Something that no slot can stop has the CPU, and the slot is over. */
static __always_inline void serves_no_more(struct cpu_ctx *c)
{
	if (c->claims.held != ROTA_NONE)
		let_go(c->claims.held, c->claims.held_claim);
	c->claims.held = c->claims.serving = ROTA_NONE;
}

#endif /* ROTA_HANDOVER_BPF_H */
