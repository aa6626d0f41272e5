/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the time of each queue's threads went: running, waiting for a CPU, or blocked, by what they waited for. And for
 * whom they waited: which tenants ran meanwhile on the CPU where they then ran. Nothing is decided by it.
 *
 * Each thread spends its time on one thing (enum rota_spent), from one of the moments of events.bpf.h to the next. A
 * queue counts its threads that do so now, and their time until that number changed last. So what goes on can be read
 * at any time, and the sum of all is the threads' lifetime.
 */
#ifndef ROTA_PROFILE_BPF_H
#define ROTA_PROFILE_BPF_H

#include "state.bpf.h"
#include "syscalls.bpf.h"

static __always_inline struct profile *profile_of(u32 queue)
{
	return bpf_map_lookup_elem(&profiles, &queue);
}

/* Under the profile's lock. Other CPUs may have read their clock a little later than this one. */
static __always_inline void settle_spent(struct rota_spent_time *spent, u64 now)
{
	if (now <= spent->since)
		return;
	spent->ns += spent->threads * (now - spent->since);
	spent->since = now;
}

/*
 * A thread of the queue spends its time on `to` from now on, and no longer on `from`. Both are enum rota_spent and 1; 0
 * is nothing. Returns since when the queue is in use; a thread of a former one, `born` earlier, is none of its own.
 */
__noinline u64 changes_spending(u32 queue, u64 born, u32 from, u32 to, u64 now)
{
	struct profile *p = profile_of(queue);

	if (!p)
		return 0;
	bpf_spin_lock(&p->lock);
	if (from && from <= ROTA_NR_SPENT && born == p->born) {
		settle_spent(&p->spent[from - 1], now);
		p->spent[from - 1].threads--;
	}
	if (to && to <= ROTA_NR_SPENT) {
		settle_spent(&p->spent[to - 1], now);
		p->spent[to - 1].threads++;
	}
	if (from == ROTA_SPENT_RUNNING + 1 && to == ROTA_SPENT_WAITING + 1)
		p->preempted++;
	bpf_spin_unlock(&p->lock);
	return p->born;
}

/* The thread's own account: its time since then was spent on that, and what follows is spent on `to`. */
static __always_inline void goes_over(struct rota_spending *s, u32 to, u64 now)
{
	u32 from = s->on;

	if (from && from <= ROTA_NR_SPENT && now > s->since)
		s->ns[from - 1] += now - s->since;
	s->on = to;
	s->since = now;
}

/* The task's queue may be another one since it was counted. Its own account begins anew there. */
static __always_inline void spends(struct task_ctx *t, u32 to, u64 now)
{
	struct rota_spending *s = &t->spending;
	u32 from = s->on;

	if (s->queue != t->m.queue) {
		if (from)
			changes_spending(s->queue, s->born, from, 0, now);
		from = s->on = 0;
		__builtin_memset(s->ns, 0, sizeof(s->ns));
	}
	s->born = changes_spending(t->m.queue, s->born, from, to, now);
	s->queue = t->m.queue;
	s->tenant = t->m.tenant;
	goes_over(s, to, now);
}

/* A thread of the queue has waited for so long as the tenant ran. A new tenant takes the place of the least. */
__noinline int waited_for(u32 queue, u32 tenant, u64 ns)
{
	struct profile *p = profile_of(queue);
	u32 i, at = 0;

	if (!p)
		return 0;
	bpf_spin_lock(&p->lock);
	for (i = 0; i < ROTA_WAITED_FOR; i++) {
		if (p->waited_for[i].tenant == tenant) {
			at = i;
			break;
		}
		if (p->waited_for[i].ns < p->waited_for[at].ns)
			at = i;
	}
	if (p->waited_for[at].tenant != tenant) {
		p->waited_for_rest_ns += p->waited_for[at].ns;
		p->waited_for[at].tenant = tenant;
		p->waited_for[at].ns = 0;
	}
	p->waited_for[at].ns += ns;
	bpf_spin_unlock(&p->lock);
	return 0;
}

/* As no tenant ran, or longer ago than the CPU remembers. */
__noinline int waited_for_nobody(u32 queue, u64 nobody, u64 unseen)
{
	struct profile *p = profile_of(queue);

	if (!p)
		return 0;
	bpf_spin_lock(&p->lock);
	p->waited_for_nobody_ns += nobody;
	p->waited_unseen_ns += unseen;
	bpf_spin_unlock(&p->lock);
	return 0;
}

/* A thread of the queue has waited from `since` to `now`, and starts on the CPU: who ran there, the last ones first. */
__noinline int tell_waited(u32 cpu, u32 queue, u64 since, u64 now)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	u64 nobody = 0;
	u32 i, count;

	if (!c)
		return 0;
	count = c->past.count;
	bpf_for (i, 0, ROTA_PAST_TURNS) {
		struct past_turn *turn = &c->past.turns[(count - 1 - i) % ROTA_PAST_TURNS];
		u64 to = min_time(turn->to, now), from = max_time(turn->from, since);

		if (now <= since || !turn->to)
			break;
		if (to <= since) {
			nobody += now - since;
			now = since;
			break;
		}
		nobody += now - to;
		if (from < to)
			waited_for(queue, turn->tenant, to - from);
		now = min_time(from, to);
	}
	waited_for_nobody(queue, nobody, now > since ? now - since : 0);
	return 0;
}

/* The tenant ran on the CPU from then to now. A turn that follows its tenant's last one at once goes on with that. */
__noinline int remember_turn(u32 cpu, u32 tenant, u64 from, u64 now)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct past_turn *turn;

	if (!c)
		return 0;
	turn = &c->past.turns[(c->past.count - 1) % ROTA_PAST_TURNS];
	if (turn->tenant != tenant || from > turn->to + ROTA_LATE_MIN_NS) {
		turn = &c->past.turns[c->past.count++ % ROTA_PAST_TURNS];
		turn->tenant = tenant;
		turn->from = from;
	}
	turn->to = now;
	return 0;
}

/* What a thread waits for that is about to block; enum rota_spent and 1. Nothing if it ends. */
static __always_inline u32 blocks_for(struct task_struct *p, const struct task_ctx *t)
{
	u32 state = p->__state, spent;
	s32 call;

	if (state == TASK_RUNNING) /* it is changed as it runs, and goes on at once */
		return ROTA_SPENT_WAITING + 1;
	if (state & TASK_DEAD)
		return 0;
	if (p->flags & PF_KTHREAD)
		return ROTA_SPENT_UNKNOWN + 1;
	call = syscall_of(p);
	if (call < 0) /* a fault: its page comes from a disk */
		return (state & TASK_UNINTERRUPTIBLE ? ROTA_SPENT_DEVICES : ROTA_SPENT_UNKNOWN) + 1;
	spent = call_waits_for(call);
	if (spent == ROTA_SPENT_HALTED && t->m.vcpu == ROTA_NONE)
		spent = ROTA_SPENT_DEVICES;
	return spent + 1;
}

static __always_inline void profile_wants(struct task_ctx *t, u64 now)
{
	spends(t, ROTA_SPENT_WAITING + 1, now);
}

/* A thread starts that has waited for so long, while no tenant ran on its CPU. */
__noinline u64 starts_at_once(u32 queue, u64 born, u64 waited, u64 now)
{
	struct profile *p = profile_of(queue);

	if (!p)
		return 0;
	bpf_spin_lock(&p->lock);
	if (born == p->born) {
		settle_spent(&p->spent[ROTA_SPENT_WAITING], now);
		p->spent[ROTA_SPENT_WAITING].threads--;
	}
	settle_spent(&p->spent[ROTA_SPENT_RUNNING], now);
	p->spent[ROTA_SPENT_RUNNING].threads++;
	p->waited_for_nobody_ns += waited;
	bpf_spin_unlock(&p->lock);
	return p->born;
}

/* Whether nobody has run on the CPU since then, as most often if a thread was sent to an idle CPU. */
static __always_inline bool none_ran_since(const struct cpu_ctx *c, u64 since)
{
	u64 to = c->past.turns[(c->past.count - 1) % ROTA_PAST_TURNS].to;

	return to && to <= since;
}

static __always_inline void profile_starts(struct cpu_ctx *c, u32 cpu, struct task_ctx *t, u64 now)
{
	struct rota_spending *s = &t->spending;

	if (s->on == ROTA_SPENT_WAITING + 1 && now > s->since) {
		if (s->queue == t->m.queue && none_ran_since(c, s->since)) {
			s->born = starts_at_once(s->queue, s->born, now - s->since, now);
			goes_over(s, ROTA_SPENT_RUNNING + 1, now);
			return;
		}
		tell_waited(cpu, t->m.queue, s->since, now);
	}
	spends(t, ROTA_SPENT_RUNNING + 1, now);
}

static __always_inline void profile_stops(struct task_struct *p, u32 cpu, struct task_ctx *t, bool runnable, u64 now)
{
	remember_turn(cpu, t->m.tenant, t->spending.since, now);
	spends(t, runnable ? ROTA_SPENT_WAITING + 1 : blocks_for(p, t), now);
}

/* The thread runs, and says that others may run. */
static __always_inline void profile_yields(struct task_ctx *t)
{
	struct profile *p = profile_of(t->m.queue);

	if (p)
		__sync_fetch_and_add(&p->yields, 1);
}

static __always_inline void profile_leaves(struct task_ctx *t, u64 now)
{
	if (t->spending.on)
		spends(t, 0, now);
}

#endif /* ROTA_PROFILE_BPF_H */
