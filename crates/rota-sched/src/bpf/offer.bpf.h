/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What tells a thread that wakes which CPU would take it: marks of a tenant's vCPUs, and words of CPUs that idle.
 *
 * A *hungry* mark says that the vCPU's slot is in force and found nobody to run; a *dozing* mark that a CPU of the vCPU
 * idles without a timer, perhaps. Wakers take marks and tell the CPU.
 */
#ifndef ROTA_OFFER_BPF_H
#define ROTA_OFFER_BPF_H

#include "state.bpf.h"

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
	struct rota_tenant *tenant = c->slot.queue == ROTA_NONE ? NULL : tenant_of(c->slot.tenant);
	struct queue_ctx *q = tenant ? marks_of(tenant, index) : NULL;

	return q ? &q->hungry : NULL;
}

static __always_inline void clear_hungry(struct cpu_ctx *c)
{
	u32 index = c->slot.hungry - 1;
	u64 *marks = c->slot.hungry ? slot_marks(c, index) : NULL;

	c->slot.hungry = 0;
	if (marks)
		unmark(marks, index);
}

/*
 * The slot is served: a mark would lead wakers astray. The CPU of the vCPU's last slot may have left one, if the vCPU
 * migrates, or did in a former table.
 */
static __always_inline void clear_served(struct cpu_ctx *c)
{
	u64 *marks = slot_marks(c, c->slot.index);

	c->slot.hungry = 0;
	if (marks && is_marked(marks, c->slot.index))
		unmark(marks, c->slot.index);
}

/*
 * Nobody to run in the slot of a tenant with several vCPUs: a waker will find the mark and send someone. If
 * another slot serves that one first, the mark is set again. Returns whether wakers may not have seen it until
 * now.
 */
static __always_inline bool mark_hungry(struct cpu_ctx *c, u32 index)
{
	u64 *marks = slot_marks(c, index);
	bool anew = !c->slot.hungry;

	if (!marks)
		return false;
	c->slot.hungry = index + 1;
	return mark(marks, index) || anew;
}

/* Whether a waker has taken the slot's mark, and nobody was served since. */
static __always_inline bool is_mark_taken(struct cpu_ctx *c)
{
	u64 *marks = c->slot.hungry ? slot_marks(c, c->slot.hungry - 1) : NULL;

	return marks && !is_marked(marks, c->slot.hungry - 1);
}

/*
 * No thread was found to wait for this CPU's slots. That holds until another table is in force, or the CPU is told of a
 * thread. It is told of each that may wait for a slot here.
 */
static __always_inline bool is_unwanted(struct run *r, const struct cpu_ctx *c)
{
	return c->offer.unwanted && !r->prev_dsq && !nr_rehomed;
}

/* Words with marks of vCPUs that are looked at: see marks_of. */
#define MARK_WORDS (ROTA_TABLE_CPUS_MAX / 64)

/* A thread that has been counted may wait for one of the CPU's slots. Whether it idles without a timer, perhaps. */
static __always_inline bool is_wanted(struct cpu_ctx *c)
{
	/* The waker's end of publish, then look: see dozes_off. */
	if (c->offer.unwanted)
		__sync_lock_test_and_set(&c->offer.unwanted, 0);
	return c->offer.dozes;
}

/*
 * A CPU that idles without a timer is not marked in its slot: it is taken for one thread like a mark, if it is sure to
 * come to it before the end of the slot.
 */
static __always_inline bool take_dozing(struct task_struct *p, struct cpu_ctx *c, u64 until, u64 now)
{
	struct task_ctx *t = task_ctx(p);

	if (!t || !c->offer.dozes || until < now + ROTA_LATE_MIN_NS || !__sync_lock_test_and_set(&c->offer.dozes, 0))
		return false;
	t->took_mark = true;
	__sync_lock_test_and_set(&c->offer.taken_for, t->m.tenant + 1);
	return true;
}

#endif /* ROTA_OFFER_BPF_H */
