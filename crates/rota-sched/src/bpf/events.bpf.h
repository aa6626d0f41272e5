/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The moments in the lives of threads and CPUs: one function a moment, one call a listener. The accounts listen, the
 * charges of a turn, the profile, and the look for threads that spin. What looks at the scheduler in another way gets
 * its own file, and a call here.
 *
 *   wants    a thread would run from now on
 *   starts   it starts on a CPU
 *   goes on  its turn is over, and a new one begins at once
 *   stops    it stops, and would go on
 *   blocks   it stops, and would not
 *   yields   it runs, and says that others may
 *   leaves   it leaves for another class, or has ended
 *   idles    a CPU has nothing to run
 *   is busy  it has again
 */
#ifndef ROTA_EVENTS_BPF_H
#define ROTA_EVENTS_BPF_H

#include "charge.bpf.h"
#include "profile.bpf.h"
#include "spin.bpf.h"

static __always_inline void on_wants(struct task_struct *p, struct task_ctx *t, u64 now)
{
	if (queue_gains_thread(t->m.queue, now))
		fair_joins(scx_bpf_task_cpu(p), t->m.tenant);
	profile_wants(t, now);
}

/* `cause` is what held the thread up, if nothing else is known to have done so. */
static __always_inline void on_starts(struct cpu_ctx *c, u32 cpu, struct task_ctx *t, enum rota_cause cause, u64 now)
{
	service_begins(cpu, t->m.queue, t->m.tenant, cause, now);
	stands_in(c, t, now);
	profile_starts(c, cpu, t, now);
	spin_begins(c, cpu);
	spin_starts(c, cpu, t, now);
}

static __always_inline void on_goes_on(struct cpu_ctx *c, struct task_ctx *t, u64 now)
{
	stands_in(c, t, now);
	spin_starts(c, c->role.number, t, now);
}

/* Its queue may no longer count a thread that blocks: then it has stopped only, as the accounts see it. */
static __always_inline void on_stops(struct task_struct *p, u32 cpu, struct task_ctx *t, bool runnable, u64 now)
{
	stands_in_no_more(t, now);
	turn_ends(cpu, t->m.queue, TURN_STOPS, now);
	profile_stops(p, cpu, t, runnable, now);
}

static __always_inline void on_blocks(struct task_struct *p, u32 cpu, struct task_ctx *t, u64 now)
{
	stands_in_no_more(t, now);
	turn_ends(cpu, t->m.queue, TURN_BLOCKS, now);
	profile_stops(p, cpu, t, false, now);
}

static __always_inline void on_yields(struct cpu_ctx *c, struct task_struct *p, struct task_ctx *t)
{
	profile_yields(t);
	yields_to_siblings(c, p, t);
}

static __always_inline bool on_vcpu_spins(struct cpu_ctx *c, struct task_struct *p, struct task_ctx *t,
					  const struct task_ctx *to)
{
	return to && yields_to_vcpu(c, p, t, to);
}

static __always_inline void on_leaves(struct task_ctx *t, u64 now)
{
	profile_leaves(t, now);
}

static __always_inline void on_idles(struct cpu_ctx *c, u32 cpu, u64 now)
{
	settle_other(c, cpu, ROTA_LATE_MIN_NS, now);
	c->idle.since = now;
}

static __always_inline void on_is_busy(struct cpu_ctx *c, u32 cpu, u64 now)
{
	settle_other(c, cpu, ROTA_LATE_MIN_NS, now);
	if (c->idle.since)
		c->account.idle_ns += now - c->idle.since;
	c->idle.since = 0;
	c->turn.other_since = now;
}

#endif /* ROTA_EVENTS_BPF_H */
