/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Accounts: which queue was served for how long, how long its blackouts were, and what was lost in a slot, by cause. Of
 * all that is kept here only the counts of a queue's threads are decided by.
 *
 * A *turn* is the time from when a task (or its account) starts on a CPU to when it ends there. A *blackout* of a queue
 * is a time in which one of its threads would run and none does. Time is *lost* when a slot's owner would run and
 * something that the table does not know has the CPU; it is counted by cause, so that no promise is broken silently.
 *
 * Functions that are not static are verified by the kernel once, on their own, and take numbers instead of pointers.
 */
#ifndef ROTA_ACCOUNT_BPF_H
#define ROTA_ACCOUNT_BPF_H

#include "shares.bpf.h"
#include "state.bpf.h"
#include "table.bpf.h"

/* Whether more threads of the queue would run than do. */
static __always_inline bool queue_waits(const struct queue_ctx *q)
{
	return q->nr_runnable > q->nr_running;
}

/* Under the queue's lock: what it wanted so far. Other CPUs may have read their clock a little later than this one. */
static __always_inline void count_wanted(struct queue_ctx *q, u64 now)
{
	if (now > q->wanted_since) {
		q->account.wanted_ns += now - q->wanted_since;
		q->wanted_since = now;
	}
}

/* Under the queue's lock: nothing that was lost until now is a cause of what is missed from now on. */
static __always_inline void mark_lost(struct queue_ctx *q)
{
	int i;

	for (i = 0; i < ROTA_NR_CAUSES; i++)
		q->lost_at_blackout[i] = q->account.lost_ns[i];
}

/* Under the queue's lock. */
static __always_inline void blackout_begins(struct queue_ctx *q, u64 now)
{
	q->blackout_since = now;
	mark_lost(q);
}

/*
 * What a cause has taken explains a blackout that is longer by so many times as much, of a tenant whose share is no
 * smaller than one part of that; and no longer than two of its bounds, since any chance may have been lost by a little.
 */
#define MISSED_PARTS 1024

/*
 * Under the queue's lock: counts a missed promise for the cause that took most, or for `cause` if what was taken does
 * not explain it.
 */
static __always_inline void count_missed(struct queue_ctx *q, u32 cause, u64 waited, u64 latency_ns)
{
	u64 most = waited > 2 * latency_ns ? (waited - 2 * latency_ns) / MISSED_PARTS : 0;
	int i;

	for (i = 0; i < ROTA_NR_CAUSES; i++) {
		u64 lost = q->account.lost_ns[i] - q->lost_at_blackout[i];

		if (lost > most) {
			most = lost;
			cause = i;
		}
	}
	q->account.missed++;
	for (i = 0; i < ROTA_NR_CAUSES; i++)
		q->account.missed_by_cause[i] += i == cause;
}

/* Whether the queue is that of a VM's own threads: what a VM is promised, its vCPUs are. */
static __always_inline bool is_monitors(const struct rota_tenant *tenant, u32 queue)
{
	return tenant->kind == ROTA_KIND_VM && queue == tenant->first_queue;
}

/* Under the queue's lock: service begins again. Only what is in a table is promised anything. */
static __always_inline void blackout_ends(struct queue_ctx *q, const struct rota_tenant *tenant, u32 queue, u32 cause,
					  u64 now)
{
	u64 latency_ns = tenant->promised_from ? tenant->latency_ns : 0;
	u64 since = max_time(q->blackout_since, q->promised_from);

	q->blackout_since = 0;
	if (since >= now || is_monitors(tenant, queue))
		return;
	if (now - since > q->account.blackout_max_ns)
		q->account.blackout_max_ns = now - since;
	if (latency_ns && now - since > latency_ns)
		count_missed(q, cause, now - since, latency_ns);
}

/* A promise that came into force opens the account anew; what was before was not promised. */
static __always_inline void follow_promise(struct queue_ctx *q, u64 promised_from)
{
	int i;

	if (q->promised_from == promised_from)
		return;
	q->promised_from = promised_from;
	q->account.blackout_max_ns = 0;
	q->account.missed = 0;
	for (i = 0; i < ROTA_NR_CAUSES; i++)
		q->account.missed_by_cause[i] = 0;
	mark_lost(q);
}

/* A thread that would run, and did not until now. Returns whether the tenant had none before. */
__noinline bool queue_gains_thread(u32 queue, u64 now)
{
	struct queue_ctx *q = queue_ctx(queue);
	bool first;

	if (!q)
		return false;
	bpf_spin_lock(&q->lock);
	first = !q->nr_runnable++;
	if (first)
		q->wanted_since = now;
	if (!q->nr_running && !q->blackout_since)
		blackout_begins(q, now);
	bpf_spin_unlock(&q->lock);
	return first && fair_gains_queue(q->vm);
}

/* A thread that was just counted runs already: it came from another queue. */
__noinline int queue_gains_service(u32 queue, u32 tenant_id, u64 now)
{
	struct queue_ctx *q = queue_ctx(queue);
	struct rota_tenant *tenant = tenant_of(tenant_id);

	if (!q || !tenant)
		return 0;
	bpf_spin_lock(&q->lock);
	follow_promise(q, tenant->promised_from);
	if (!q->nr_running++ && q->blackout_since)
		blackout_ends(q, tenant, queue, ROTA_CAUSE_ROTA, now);
	bpf_spin_unlock(&q->lock);
	return 0;
}

/* Under the queue's lock: a thread stops running. Returns whether it was the last one that would run. */
static __always_inline bool queue_stops_thread(struct queue_ctx *q, bool leaves, u64 now)
{
	if (q->nr_running)
		q->nr_running--;
	if (leaves && q->nr_runnable && !--q->nr_runnable)
		return true;
	if (!q->nr_running && q->nr_runnable)
		blackout_begins(q, now);
	return false;
}

__noinline int queue_loses_thread(u32 queue, bool running, u64 now)
{
	struct queue_ctx *q = queue_ctx(queue);
	bool last;

	if (!q)
		return 0;
	bpf_spin_lock(&q->lock);
	last = running ? queue_stops_thread(q, true, now) : q->nr_runnable && !--q->nr_runnable;
	if (last) {
		count_wanted(q, now);
		q->blackout_since = 0;
	}
	bpf_spin_unlock(&q->lock);
	if (last)
		fair_loses_queue(q->vm);
	return 0;
}

/*
 * What of [from, to) is lost to the slot's owner, as far as it is in the slot and the owner would have run. In a vCPU's
 * window all of it is, also if only its VM's monitor waits; in its account no time in which the owner runs elsewhere.
 */
__noinline u64 lost_to_owner(u32 cpu, u64 from, u64 to)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct queue_ctx *owner, *service;
	struct rota_tenant *tenant;

	if (!c || c->slot.queue == ROTA_NONE)
		return 0;
	owner = queue_ctx(c->slot.queue);
	tenant = tenant_of(c->slot.tenant);
	service = tenant ? queue_ctx(tenant->first_queue) : NULL;
	if (!owner || !service)
		return 0;
	from = max_time(from, c->slot.start);
	to = min_time(to, c->slot.end);
	if (from < to && (queue_waits(owner) || queue_waits(service)))
		c->windows.lost_ns += to - from;
	if (!queue_waits(owner))
		return 0;
	bpf_spin_lock(&owner->lock);
	follow_promise(owner, tenant->promised_from);
	if (!owner->nr_running)
		from = max_time(from, owner->blackout_since);
	bpf_spin_unlock(&owner->lock);
	return from < to ? to - from : 0;
}

/* So much was lost to the slot's owner. Of interrupts and the hypervisor the CPU itself counts all: see turn_ends. */
__noinline int blame(u32 cpu, u32 cause, u64 lost)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct queue_ctx *owner = c && lost ? queue_ctx(c->slot.queue) : NULL;

	if (!owner || cause >= ROTA_NR_CAUSES)
		return 0;
	bpf_spin_lock(&owner->lock);
	owner->account.lost_ns[cause] += lost;
	bpf_spin_unlock(&owner->lock);
	if (cause != ROTA_CAUSE_INTERRUPT && cause != ROTA_CAUSE_STEAL)
		c->account.lost_ns[cause] += lost;
	c->slot.lost_ns += lost;
	return 0;
}

/*
 * What the floor's turn up to now has taken from the slot; but for as much of it as was taken from the turn itself,
 * which that made longer.
 */
static __always_inline void blame_floor(struct cpu_ctx *c, u32 cpu, u64 interrupt, u64 steal, u64 now)
{
	u64 used = now - c->turn.since, lost = lost_to_owner(cpu, c->turn.since, now);
	u64 stolen = used ? lost * (min_time(interrupt + steal, used) * 1000 / used) / 1000 : 0;

	blame(cpu, ROTA_CAUSE_FLOOR, lost - stolen);
	blame(cpu, interrupt > steal ? ROTA_CAUSE_INTERRUPT : ROTA_CAUSE_STEAL, stolen);
}

/* What a task of another class had of the CPU since the last turn. Up to `least` it was a switch, and no loss. */
static __always_inline void settle_other(struct cpu_ctx *c, u32 cpu, u64 least, u64 now)
{
	u64 since = c->turn.other_since;

	if (since && now - since > least) {
		blame(cpu, ROTA_CAUSE_HIGHER_CLASS, lost_to_owner(cpu, since, now));
		if (c->slot.queue == ROTA_NONE)
			c->windows.lost_since = min_time(c->windows.lost_since, since);
	}
	c->turn.other_since = 0;
}

/* What interrupts and the hypervisor below have taken from a CPU, by the kernel's own accounts. */
static __always_inline void read_stolen(u32 cpu, u64 *interrupt_ns, u64 *steal_ns)
{
	const struct kernel_cpustat *stat = NULL;

	/* Not this CPU's: a task that runs elsewhere may be stopped from here. */
	if (bpf_ksym_exists(&kernel_cpustat))
		stat = bpf_per_cpu_ptr(&kernel_cpustat, cpu);
	if (!stat)
		return;
	*interrupt_ns = stat->cpustat[CPUTIME_SOFTIRQ] + stat->cpustat[CPUTIME_IRQ];
	*steal_ns = stat->cpustat[CPUTIME_STEAL];
}

static __always_inline void turn_begins(struct cpu_ctx *c, u32 cpu, u32 level, u64 now)
{
	c->turn.level = level;
	c->turn.decided = false;
	c->turn.since = now;
	c->turn.local = level == ROTA_LEVEL_OWNER || level == ROTA_LEVEL_SECOND ? c->turn.picked_local : ROTA_NONE;
	read_stolen(cpu, &c->turn.interrupt_ns, &c->turn.steal_ns);
}

/*
 * How long it took to decide for the thread that starts, and to change to it: the kernel counts that for it as well. A
 * program that changes tasks every 25 us would have 4 % more than its share.
 */
static __always_inline u64 took_to_start(const struct cpu_ctx *c, const struct task_ctx *t, u64 now)
{
	u64 since =
		c->turn.decided || t->straight ? c->turn.other_since : 0; /* else another class may have had the CPU */

	return since ? min_time(now - since, ROTA_LATE_MIN_NS) : 0;
}

/* Whether what runs is a background thread where it gets what others leave, or the floor. */
static __always_inline bool is_in_background(const struct cpu_ctx *c)
{
	return c->turn.level == ROTA_LEVEL_BACKGROUND ||
	       (c->turn.level == ROTA_LEVEL_FLOOR && c->turn.line == ROTA_LINE_BACKGROUND);
}

/*
 * A thread of the queue starts to run: its blackout, if there was one, ends. What nothing else has been counted for was
 * `cause`.
 */
__noinline int service_begins(u32 cpu, u32 queue, u32 tenant_id, u32 cause, u64 now)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct queue_ctx *q = queue_ctx(queue);
	struct rota_tenant *tenant = tenant_of(tenant_id);
	u64 late;

	if (!c || !q || !tenant || cause >= ROTA_NR_CAUSES)
		return 0;
	bpf_spin_lock(&q->lock);
	follow_promise(q, tenant->promised_from);
	q->nr_running++;
	q->account.dispatches++;
	/* A thread bound where its tenant has no slot is promised nothing, if no other thread of the tenant waits. */
	if (is_monitors(tenant, queue) || (tenant->promised_from && is_in_background(c) && !q->waiting)) {
		q->blackout_since = 0;
	} else if (q->nr_running == 1 && q->blackout_since) {
		late = now - max_time(c->slot.start, q->blackout_since);
		if (c->turn.level == ROTA_LEVEL_OWNER && late > c->slot.lost_ns + ROTA_LATE_MIN_NS) {
			late -= c->slot.lost_ns;
			q->account.lost_ns[cause] += late;
			c->account.lost_ns[cause] += late;
		}
		blackout_ends(q, tenant, queue, cause, now);
	}
	bpf_spin_unlock(&q->lock);
	return 0;
}

/*
 * Another thread of the owner uses its slot. The blackout until now is over, and counts if a tenant is given. No time
 * from `now` on is a blackout.
 */
__noinline int blackout_restarts(u32 queue, u32 tenant_id, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct queue_ctx *q = queue_ctx(queue);

	if (!q)
		return 0;
	bpf_spin_lock(&q->lock);
	if (!q->nr_running && q->blackout_since) {
		if (tenant) {
			follow_promise(q, tenant->promised_from);
			blackout_ends(q, tenant, queue, ROTA_CAUSE_ROTA, now);
		}
		blackout_begins(q, now);
	}
	bpf_spin_unlock(&q->lock);
	return 0;
}

/* The task uses the slot of the queue for which it stands in no more: that queue's wait begins now. */
static __always_inline void stands_in_no_more(struct task_ctx *t, u64 now)
{
	if (t->stands_in_for != ROTA_NONE)
		blackout_restarts(t->stands_in_for, ROTA_NONE, now);
	t->stands_in_for = ROTA_NONE;
}

/* A turn begins. In a vCPU's slot it may be its monitor's: then the slot serves the VM all the same. */
static __always_inline void stands_in(struct cpu_ctx *c, struct task_ctx *t, u64 now)
{
	stands_in_no_more(t, now);
	if (c->turn.level != ROTA_LEVEL_OWNER || c->slot.tenant != t->m.tenant || c->slot.queue == t->m.queue)
		return;
	t->stands_in_for = c->slot.queue;
	blackout_restarts(c->slot.queue, t->m.tenant, now);
}

#endif /* ROTA_ACCOUNT_BPF_H */
