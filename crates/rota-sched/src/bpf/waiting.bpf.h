/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether anybody waits, without asking the kernel, whose dispatch queues are found in a hash table: a CPU that is
 * about to idle would ask for each of a dozen.
 *
 * A thread is counted before it is put into a dispatch queue, and until it runs, or is taken out by the kernel, or
 * comes through enqueue again. So who finds a count of 0 finds that queue empty; above 0 it may be empty all the same,
 * as the thread is in some CPU's own queue by then, and the kernel is asked. Counted is with the CPU, or the queue,
 * where the thread waits; of shared tenants, whose threads are moved from queue to line by others, with the domain, and
 * all domains are looked at. Those that the loader sends elsewhere while they wait, or that are looked for elsewhere
 * from now on, are counted once more, for everybody (rehome).
 */
#ifndef ROTA_WAITING_BPF_H
#define ROTA_WAITING_BPF_H

#include "clock.bpf.h"

/* Counts those who wait in a dispatch queue. */
__noinline int count_waiting(u64 dsq, u32 change)
{
	struct fair_domain *d;
	struct queue_ctx *q;
	struct cpu_ctx *c;

	if ((dsq >> 32) == (DSQ_QUEUE(0) >> 32)) {
		q = queue_ctx((u32)dsq);
		if (q)
			__sync_fetch_and_add(&q->waiting, change);
	} else if ((dsq >> 32) == (DSQ_SHARED(0) >> 32)) {
		d = fair_domain((u32)dsq);
		if (d)
			__sync_fetch_and_add(&d->waiting, change);
	} else {
		c = cpu_ctx((u32)dsq);
		if (c)
			__sync_fetch_and_add(&c->waiting, change);
	}
	return 0;
}

static __always_inline void no_longer_rehomed(struct task_ctx *t)
{
	if (__sync_lock_test_and_set(&t->rehomed, 0))
		__sync_fetch_and_sub(&nr_rehomed, 1);
}

/* The task is in no dispatch queue any more. */
static __always_inline void waits_no_more(struct task_ctx *t)
{
	if (t->waits_in)
		count_waiting(t->waits_in, -1);
	t->waits_in = 0;
	if (t->rehomed)
		no_longer_rehomed(t);
}

/*
 * A task that has waited since then is about to be put into a CPU's line, perhaps from another CPU's. It has waited
 * for this line as well, if that had no turn meanwhile: else who is sent from CPU to CPU would wait for ever.
 */
__noinline int brings_wait(u64 dsq, u64 since)
{
	struct cpu_ctx *c = cpu_ctx((u32)dsq);
	struct floor *floor;

	if (!c)
		return 0;
	if ((dsq >> 32) == (DSQ_PINNED(0) >> 32))
		floor = &c->pinned;
	else if ((dsq >> 32) == (DSQ_BACKGROUND(0) >> 32))
		floor = &c->background;
	else if ((dsq >> 32) == (DSQ_BOUND(0) >> 32))
		floor = &c->shared;
	else
		return 0;
	since = max_time(since, floor->turned);
	if (since < floor->served)
		floor->served = since;
	return 0;
}

/* The task is about to be put into a dispatch queue; `dsq` of a shared tenant's: the line of a domain. */
static __always_inline void begins_to_wait(struct task_ctx *t, u64 dsq)
{
	waits_no_more(t);
	t->waits_in = dsq;
	count_waiting(dsq, 1);
	if (t->queued_since)
		brings_wait(dsq, t->queued_since);
}

/* Whether a thread may wait in a line of shared tenants, or behind its tenant's front. */
__noinline bool shared_may_wait(void)
{
	u32 domain;

	if (nr_rehomed)
		return true;
	/* The loader has said how many before the verifier looks: no iterator is needed, which costs more than this. */
	for (domain = 0; domain < settings.nr_domains; domain++) {
		struct fair_domain *d = fair_domain(domain);

		if (d && d->waiting)
			return true;
	}
	return false;
}

/* Whether a thread may wait in a dispatch queue, which is neither a line nor that of a shared tenant. */
static __always_inline bool may_wait(u64 dsq)
{
	struct queue_ctx *q;
	struct cpu_ctx *c;

	if (nr_rehomed)
		return true;
	if ((dsq >> 32) == (DSQ_QUEUE(0) >> 32)) {
		q = queue_ctx((u32)dsq);
		return q && q->waiting;
	}
	c = cpu_ctx((u32)dsq);
	return c && c->waiting;
}

/* How many wait there, or in a line. */
static __always_inline s32 nr_waiting(u64 dsq)
{
	bool may = (dsq >> 32) == (DSQ_SHARED(0) >> 32) ? shared_may_wait() : may_wait(dsq);

	return may ? scx_bpf_dsq_nr_queued(dsq) : 0;
}

/*
 * Whether somebody is counted where the CPU takes threads from, and may be on its way there. Besides slots, which have
 * marks for that.
 */
static __always_inline bool may_miss(const struct cpu_ctx *c)
{
	const struct queue_ctx *system = c->housekeeping ? queue_ctx(SYSTEM_QUEUE) : NULL;

	if (c->waiting || c->exclusive)
		return c->waiting;
	return c->housekeeping ? system && system->waiting : shared_may_wait();
}

/*
 * The loader looks at a waiting task that belongs into the dispatch queue `dsq` now. Whether it is counted once more
 * from now on: also one that waits where it did, if its tenant has another class and it is looked for elsewhere.
 */
static __always_inline bool is_rehomed(struct task_ctx *t, u64 dsq, bool is_shared)
{
	bool in_line = is_shared && ((dsq >> 32) == (DSQ_SHARED(0) >> 32) || (dsq >> 32) == (DSQ_QUEUE(0) >> 32));

	if (in_line ? (t->waits_in >> 32) == (DSQ_SHARED(0) >> 32) : t->waits_in == dsq)
		return false;
	if (__sync_lock_test_and_set(&t->rehomed, 1))
		return false;
	__sync_fetch_and_add(&nr_rehomed, 1);
	return true;
}

#endif /* ROTA_WAITING_BPF_H */
