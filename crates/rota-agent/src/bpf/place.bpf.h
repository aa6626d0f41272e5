/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where threads run: each has a *home*, the CPU where it ran last of its own accord. One whose home is stopped goes
 * elsewhere and keeps its home, as the tag of interference-resilient scheduling (IRS, section 4.3.3). So it comes back
 * when its home runs again, and gives way to the threads at home where it is a guest.
 */
#ifndef ROTA_GUEST_PLACE_BPF_H
#define ROTA_GUEST_PLACE_BPF_H

#include "vcpu.bpf.h"

struct task_ctx {
	u64 vtime;
	s32 home; /* -1: it has not run yet */
	/* What was seen of it as it ran: spin.bpf.h. */
	u32 looks;
	u32 repeats;
	u32 computes;	/* so many windows without a repeat */
	bool gives_way; /* it spun in this turn, or the last one */
	u64 spun;	/* when it last did; 0: never */
	u64 seen;	/* of its fingerprints, a bit each */
	u64 print;	/* the last one; 0: there is none */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} tasks SEC(".maps");

static __always_inline struct task_ctx *task_ctx(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, NULL, 0);
}

/* It cannot be moved. */
static __always_inline bool stays(struct task_struct *p)
{
	return p->nr_cpus_allowed == 1 || is_held(p);
}

static __always_inline bool may_run(struct task_struct *p, u32 cpu)
{
	return is_online(cpu) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

__noinline bool idles(u32 cpu)
{
	return scx_cpu_idles(cpu) && !scx_bpf_dsq_nr_queued(cpu);
}

/* How much a CPU has to do: 0 if it idles, and ROTA_NONE if it is no place to go. */
__noinline u32 load_of(u32 cpu)
{
	struct vcpu *v = vcpu_of(cpu);

	if (!v || !is_there(cpu))
		return ROTA_NONE;
	return scx_cpu_idles(cpu) ? 0 : 1 + v->busy + (u32)scx_bpf_dsq_nr_queued(cpu);
}

/*
 * Where to go from `from`: the CPU that runs and has least to do, of several the one that runs longest. If none runs,
 * of those that idle the first to go on, if that is before `from` does; else -1.
 */
static __noinline s32 refuge(struct task_struct *p, u32 from)
{
	u64 from_at = goes_on_at(from), first_at = ROTA_NEVER, longest = 0;
	s32 best = -1, first = -1;
	u32 i, least = ROTA_NONE;

	bpf_for (i, 0, nr_host_cpus) {
		u32 load;
		u64 at;

		if (i == from || !may_run(p, i))
			continue;
		load = load_of(i);
		if (load < ROTA_NONE) {
			at = runs_until(i);
			if (load < least || (load == least && at > longest)) {
				least = load;
				longest = at;
				best = i;
			}
		} else if (idles(i)) {
			at = goes_on_at(i);
			if (at < first_at && at + STAY_NS < from_at) {
				first_at = at;
				first = i;
			}
		}
	}
	return best >= 0 ? best : first;
}

/* A thread of a CPU that is stopped waits on another one. */
static __always_inline void crowds(u32 home)
{
	u64 until = goes_on_at(home);

	if (until != ROTA_NEVER)
		crowded_until = max_time(crowded_until, until);
}

/* A CPU that idles and runs, not `not`; -1 if there is none. */
__noinline s32 idle_there(struct task_struct *p __arg_trusted, u32 not)
{
	u32 i;

	bpf_for (i, 0, nr_host_cpus) {
		if (i != not&&may_run(p, i) && idles(i) && is_there(i))
			return i;
	}
	return -1;
}

/* Whether what runs on a CPU is away from its own. */
static __always_inline bool has_guest(const struct vcpu *v, u32 cpu)
{
	return v->busy && v->home != (s32)cpu;
}

/* Where a thread goes that wakes. */
static __always_inline s32 wakes_on(struct task_struct *p, struct task_ctx *t, s32 prev)
{
	s32 other, home = t->home >= 0 && may_run(p, t->home) ? t->home : prev;
	struct vcpu *v = vcpu_of(home);
	bool home_is_there;

	if (!v || !may_run(p, home))
		return prev;
	home_is_there = is_there(home);
	if (home_is_there && (idles(home) || has_guest(v, home)))
		return home;
	other = idle_there(p, home);
	if (other >= 0)
		return other;
	if (home_is_there)
		return home;
	__sync_fetch_and_add(&v->account.moved, 1);
	other = refuge(p, home);
	return other >= 0 ? other : home;
}

/* Where a thread waits that has run on `cpu` and would go on. */
static __always_inline s32 goes_on_on(struct task_struct *p, struct task_ctx *t, u32 cpu, struct vcpu *v)
{
	s32 to, recalls = v->recalls;

	v->recalls = -1;
	if (recalls >= 0 && recalls == t->home && may_run(p, recalls) && is_there(recalls)) {
		__sync_fetch_and_add(&v->account.back, 1);
		return recalls;
	}
	if (runs_until(cpu))
		return cpu;
	to = refuge(p, cpu);
	if (to < 0)
		return cpu;
	__sync_fetch_and_add(&v->account.moved, 1);
	return to;
}

#endif /* ROTA_GUEST_PLACE_BPF_H */
