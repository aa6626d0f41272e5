// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observer: for every tenant's cgroup, the intervals in which at least one of its threads was runnable
 * and none ran, whatever scheduler is at work. It follows each thread through the scheduler's tracepoints,
 * and shares no code and no counter with the scheduler that it watches.
 *
 * A thread is AWAY (blocked, or not seen yet), QUEUED (runnable) or RUNNING. The kernel emits one thread's
 * events one after another, so its record needs no lock; a tenant's record has one, as its threads move on
 * several CPUs at once.
 */
#include "observer.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define BPF_MAP_TYPE_HASH	  1
#define BPF_MAP_TYPE_ARRAY	  2
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define TASK_DEAD		  0x80 /* in the state in which a thread leaves its CPU for the last time */
#define NESTING_MAX		  8    /* levels of cgroups below a tenant's own that are still the tenant's */
#define NO_TENANT		  (~0u)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kernfs_node {
	__u64 id;
};

struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self; /* the first member, so that its address is the cgroup's */
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_struct {
	unsigned int on_cpu; /* narrower in newer kernels: an unsigned load is adjusted to that */
	int pid;
	struct css_set *cgroups;
};
#pragma clang attribute pop

enum state { AWAY, QUEUED, RUNNING };

struct thread {
	__u32 tenant;
	__u32 state;
};

/* By the cgroup's id: the tenant's place in `tenants`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TENANTS_MAX);
	__type(key, __u64);
	__type(value, __u32);
} cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TENANTS_MAX);
	__type(key, __u32);
	__type(value, struct tenant);
} tenants SEC(".maps");

/* By thread id: the tenants' threads. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THREADS_MAX);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* The program's only global variable, so that it is all of `.bss`. */
struct observation observation;

static __always_inline __u64 in_window(__u64 from, __u64 to)
{
	if (from < observation.start_ns)
		from = observation.start_ns;
	if (to > observation.end_ns)
		to = observation.end_ns;
	return to > from ? to - from : 0;
}

/* The bucket of scenario/histogram.rs. */
static __always_inline __u32 bucket(__u64 ns)
{
	__u32 octave = 0;

	for (int step = 32; step; step >>= 1)
		if (ns >> (SUB_BITS + octave) >> step)
			octave += step;
	if (!octave && ns < 1 << SUB_BITS)
		return ns;
	__u32 index = ((octave + 1) << SUB_BITS) + ((ns >> octave) & ((1 << SUB_BITS) - 1));
	return index < BUCKETS ? index : BUCKETS - 1;
}

/* After the counts have changed: begins or ends the tenant's times of want and of blackout. Under its lock.
 * Returns the length of a blackout that ended, 0 if none did. */
static __always_inline __u64 account(struct tenant *tenant, __u64 now)
{
	bool wanted = tenant->queued || tenant->running;
	bool starved = tenant->queued && !tenant->running;
	__u64 blackout = 0;

	if (wanted && !tenant->wanted_since) {
		tenant->wanted_since = now;
	} else if (!wanted && tenant->wanted_since) {
		tenant->wanted_ns += in_window(tenant->wanted_since, now);
		tenant->wanted_since = 0;
	}
	if (starved && !tenant->starved_since) {
		tenant->starved_since = now;
	} else if (!starved && tenant->starved_since) {
		blackout = in_window(tenant->starved_since, now);
		tenant->starved_since = 0;
	}
	if (blackout) {
		tenant->count++;
		tenant->total_ns += blackout;
		if (tenant->bound_ns && blackout > tenant->bound_ns)
			tenant->beyond_bound++;
		if (blackout > tenant->longest_ns)
			tenant->longest_ns = blackout;
	}
	return blackout;
}

/* One thread of a tenant goes from one state to another. */
static void change(__u32 index, enum state from, enum state to, __u64 now)
{
	struct tenant *tenant = bpf_map_lookup_elem(&tenants, &index);
	__u64 blackout;

	if (!tenant || from == to)
		return;
	bpf_spin_lock(&tenant->lock);
	tenant->queued += (to == QUEUED) - (from == QUEUED);
	tenant->running += (to == RUNNING) - (from == RUNNING);
	blackout = account(tenant, now);
	bpf_spin_unlock(&tenant->lock);
	if (blackout)
		__sync_fetch_and_add(&tenant->histogram[bucket(blackout)], 1);
}

/* The tenant whose cgroup this thread's cgroup is, or is below. */
static __u32 tenant_of(struct task_struct *task)
{
	struct cgroup *cgroup = task->cgroups->dfl_cgrp;

	for (int level = 0; level <= NESTING_MAX && cgroup; level++) {
		__u64 id = BPF_CORE_READ(cgroup, kn, id);
		__u32 *tenant = bpf_map_lookup_elem(&cgroups, &id);

		if (tenant)
			return *tenant;
		cgroup = (struct cgroup *)BPF_CORE_READ(cgroup, self.parent);
	}
	return NO_TENANT;
}

/* A thread is seen in a state. It may have come from another tenant's cgroup, or from none, since it was last
 * seen. Returns its tenant. */
static __u32 see(struct task_struct *task, enum state state, __u64 now)
{
	__u32 pid = task->pid, tenant = tenant_of(task);
	struct thread *thread = bpf_map_lookup_elem(&threads, &pid);

	if (!thread) {
		struct thread fresh = {.tenant = tenant, .state = AWAY};

		if (tenant == NO_TENANT)
			return NO_TENANT;
		if (bpf_map_update_elem(&threads, &pid, &fresh, 0) || !(thread = bpf_map_lookup_elem(&threads, &pid))) {
			__sync_fetch_and_add(&observation.unfollowed, 1);
			return tenant;
		}
	}
	if (thread->tenant != tenant) {
		change(thread->tenant, thread->state, AWAY, now);
		thread->state = AWAY;
		thread->tenant = tenant;
	}
	change(tenant, thread->state, state, now);
	thread->state = state;
	return tenant;
}

/* This CPU begins to run something else. */
static __always_inline void run(__u64 runs, __u64 now)
{
	__u32 key = 0;
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &key);

	if (!cpu)
		return;
	if (cpu->since && cpu->runs == IDLE)
		cpu->idle_ns += in_window(cpu->since, now);
	else if (cpu->since && cpu->runs == SYSTEM)
		cpu->system_ns += in_window(cpu->since, now);
	cpu->since = now;
	cpu->runs = runs;
}

static __always_inline void count(__u64 *counter, __u64 now)
{
	if (in_window(now, now + 1))
		__sync_fetch_and_add(counter, 1);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempted, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	__u64 now = bpf_ktime_get_ns();

	/* The one that comes first: a tenant that hands its CPU from thread to thread is not without service.
	 */
	if (next->pid)
		run(see(next, RUNNING, now) == NO_TENANT ? SYSTEM : TENANT, now);
	else
		run(IDLE, now);
	if (prev->pid) {
		bool goes_on = preempted || !prev_state;
		__u32 index = see(prev, goes_on ? QUEUED : AWAY, now);
		struct tenant *tenant = bpf_map_lookup_elem(&tenants, &index);

		if (tenant && goes_on)
			count(&tenant->preempted, now);
		if (!preempted && prev_state & TASK_DEAD) {
			__u32 pid = prev->pid;

			bpf_map_delete_elem(&threads, &pid);
		}
	}
	return 0;
}

/* A wake-up of a thread that has not yet left its CPU changes nothing: it runs on. */
static __always_inline int on_wake(struct task_struct *task)
{
	if (!task->on_cpu)
		see(task, QUEUED, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	return on_wake(task);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *task)
{
	return on_wake(task);
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *task, int cpu)
{
	__u32 index = tenant_of(task);
	struct tenant *tenant = bpf_map_lookup_elem(&tenants, &index);

	if (tenant)
		count(&tenant->migrated, bpf_ktime_get_ns());
	return 0;
}

char _license[] SEC("license") = "GPL";
