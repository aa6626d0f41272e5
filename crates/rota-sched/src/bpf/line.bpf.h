/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lines: where threads wait, how many, and for how long.
 *
 * The kernel finds its dispatch queues in a hash table, and a CPU that is about to idle would ask for a dozen of them.
 * So threads that wait are counted here. A thread is counted before it is put into a dispatch queue, and until it runs,
 * or is taken out by the kernel, or comes through enqueue again. A count of 0 says that the queue is empty. Above 0 the
 * queue may be empty all the same, as the thread is in some CPU's own queue by then, and the kernel is asked.
 *
 * A thread is counted with the CPU, or the queue, where it waits. The threads of shared tenants are moved from queue to
 * line by others: they are counted with the domain, and all domains are looked at. Threads that the loader sends
 * elsewhere while they wait are counted once more, for everybody (rehome.bpf.h).
 *
 * A thread that has waited for long is *overdue*, and comes before all that are not. Each line remembers when it last
 * had a turn.
 */
#ifndef ROTA_LINE_BPF_H
#define ROTA_LINE_BPF_H

#include "bound.bpf.h"

/* Counts the threads that wait in a dispatch queue. */
__noinline int count_waiting(u64 dsq, u32 change)
{
	struct fair_domain *d;
	struct queue_ctx *q;
	struct cpu_ctx *c;

	switch (line_kind(dsq)) {
	case ROTA_LINE_QUEUE:
		q = queue_ctx((u32)dsq);
		if (q)
			__sync_fetch_and_add(&q->waiting, change);
		break;
	case ROTA_LINE_SHARED:
		d = fair_domain((u32)dsq);
		if (d)
			__sync_fetch_and_add(&d->waiting, change);
		break;
	default:
		c = cpu_ctx((u32)dsq);
		if (!c)
			break;
		__sync_fetch_and_add(&c->lines.waiting, change);
		if (line_kind(dsq) != ROTA_LINE_BOUND)
			break;
		__sync_fetch_and_add(&c->lines.bound, change);
		if (c->lines.bound)
			shows_bound(c);
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
 * A task that waits since then is about to be put into a CPU's line, perhaps from another CPU's. It keeps the place:
 * its wait counts for this line as well, from the line's last turn on.
 */
__noinline int brings_wait(u64 dsq, u64 since)
{
	struct cpu_ctx *c = cpu_ctx((u32)dsq);
	struct line *line;

	if (!c || line_kind(dsq) == ROTA_LINE_QUEUE || line_kind(dsq) == ROTA_LINE_SHARED)
		return 0;
	line = line_of(c, line_kind(dsq));
	since = max_time(since, line->turned);
	if (since < line->served)
		line->served = since;
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
	if (line_kind(dsq) == ROTA_LINE_QUEUE) {
		q = queue_ctx((u32)dsq);
		return q && q->waiting;
	}
	c = cpu_ctx((u32)dsq);
	return c && c->lines.waiting;
}

/* Whether a thread may wait in a line of the CPU's own, or would if it did not go on. */
static __always_inline bool own_may_wait(const struct run *r, const struct cpu_ctx *c)
{
	enum rota_line prev = line_kind(r->prev_dsq);

	return c->lines.waiting || nr_rehomed || prev == ROTA_LINE_PINNED || prev == ROTA_LINE_BACKGROUND;
}

/* How many wait there, or in a line. */
static __always_inline s32 nr_waiting(u64 dsq)
{
	bool may = line_kind(dsq) == ROTA_LINE_SHARED ? shared_may_wait() : may_wait(dsq);

	return may ? scx_bpf_dsq_nr_queued(dsq) : 0;
}

/* A line has had a turn of what is nobody's, or nobody waits there. */
static __always_inline void line_is_served(struct line *line, u64 now)
{
	line->served = now;
	line->starving_wait = 0;
}

static __always_inline void line_has_turn(struct line *line, u64 now)
{
	line->turned = now;
	line_is_served(line, now);
}

/* Before what any clock of a tenant says by as much as two of them can ever be apart. */
#define OVERDUE_FIRST (1ULL << 62)

/* The least turn of so many that wait. */
static __always_inline u64 quantum_min(u32 waiting)
{
	return max_time(ROTA_QUANTUM_LEAST_NS, ROTA_QUANTUM_MIN_NS * ROTA_CROWD / max_time(waiting, ROTA_CROWD));
}

/* Tasks of a line that are looked at for those that are overdue. */
#define LINE_MAX 1024

/*
 * The tag of a task in a line, where its tenant's clock has that tag. An overdue task comes before all that are not, in
 * the order in which they came. So a tenant of little weight does not wait, where next to nothing is left, until the
 * kernel's watchdog thinks its threads forgotten. The turn is charged as any other.
 */
static __always_inline u64 tag_in_line(struct task_ctx *t, u64 tag, u64 now)
{
	t->overdue = t->queued_since && now - t->queued_since > ROTA_STARVING_NS;
	return t->overdue ? t->queued_since - OVERDUE_FIRST : tag;
}

/* Calls the threads of a dispatch queue that have become overdue to its head, also those behind a front. */
static __always_inline void call_overdue(u64 dsq)
{
	u64 now = bpf_ktime_get_ns();
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	u32 i;

	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		bpf_for (i, 0, LINE_MAX) {
			struct task_ctx *t;

			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_ctx(p);
			if (!t || t->overdue)
				continue;
			t->tag = tag_in_line(t, t->tag, now);
			if (!t->overdue)
				continue;
			scx_bpf_dsq_move_set_vtime(&it, t->tag);
			scx_bpf_dsq_move_vtime(&it, p, dsq, 0);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
}

/* Whether it is time to look for them again, for one of those that ask. */
static __always_inline bool shall_call(u64 *called, u64 now)
{
	u64 last = *called;

	return now - last > ROTA_FLOOR_WAIT_NS && __sync_val_compare_and_swap(called, last, now) == last;
}

/* Where those of a line wait. Shared threads that are bound to the CPU have another queue there. */
static __always_inline u64 line_dsq(const struct cpu_ctx *c, u32 cpu, enum rota_line kind)
{
	if (kind == ROTA_LINE_SHARED)
		return DSQ_SHARED(c->role.domain);
	return kind == ROTA_LINE_PINNED ? DSQ_PINNED(cpu) : DSQ_BACKGROUND(cpu);
}

/* Since when anybody waits in a dispatch queue, or the first that has starved there; `now`: nobody does. */
__noinline u64 waits_since(u64 dsq, u64 now)
{
	struct bpf_iter_scx_dsq it;
	u64 since = now;
	u32 i;

	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		bpf_for (i, 0, LINE_MAX) {
			struct task_struct *p = bpf_iter_scx_dsq_next(&it);
			struct task_ctx *t = p ? task_ctx(p) : NULL;

			if (!p || now - since > ROTA_STARVING_NS)
				break;
			if (t && t->queued_since)
				since = min_time(since, t->queued_since);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return since;
}

/* Since when anybody waits in a line, or the first that has starved there. */
static __always_inline u64 line_waits_since(struct run *r, struct cpu_ctx *c, enum rota_line kind)
{
	u64 since = waits_since(line_dsq(c, r->cpu, kind), r->now);

	return kind == ROTA_LINE_SHARED ? min_time(since, waits_since(DSQ_BOUND(r->cpu), r->now)) : since;
}

#endif /* ROTA_LINE_BPF_H */
