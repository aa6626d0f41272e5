// SPDX-License-Identifier: GPL-2.0-only
/*
 * The recorder: tells what every thread of the host does (runs, leaves its CPU and why, wakes up, and by what),
 * whatever scheduler is at work, as events in a ring. It decides nothing and sums nothing up.
 *
 * The ring's reader is not woken but looks by itself: waking it would be an event, which would wake it.
 */
#include "recorder.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_RINGBUF	  27
#define BPF_MAP_TYPE_TASK_STORAGE 29
#define BPF_F_NO_PREALLOC	  1
#define BPF_RB_NO_WAKEUP	  1
#define CREATE			  1
#define RING_BYTES		  (16 << 20)

#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_DEAD	     0x80 /* in the state in which a thread leaves its CPU for the last time */
#define PF_KTHREAD	     0x200000
#define NET_RX_SOFTIRQ	     3
#define SERVING_SOFTIRQ	     0x000100
#define HARDIRQ_OR_NMI	     0xff0000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct cpumask;

struct task_struct {
	int pid;
	unsigned int flags;
	unsigned int policy;
	int static_prio;
	unsigned int rt_priority;
	int nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	char comm[NAME_BYTES];
	struct css_set *cgroups;
};

/* Where the count is before 6.15. */
struct pcpu_hot___before {
	int preempt_count;
};
#pragma clang attribute pop

extern const int __preempt_count __ksym __weak;
extern const struct pcpu_hot___before pcpu_hot __ksym __weak;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} ring SEC(".maps");

/* What was told of a thread last: its cgroup. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} told SEC(".maps");

/* What a CPU is in the middle of. */
struct context {
	__u32 timers;  /* handlers of timers, one inside the other */
	__u32 softirq; /* its number + 1, or 0 */
	__s32 sender;  /* the thread that has asked for network packets to be received here; 0: a device has */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct context);
} contexts SEC(".maps");

/* Events for which the ring had no room. The program's only global variable, so that it is all of `.bss`. */
__u64 lost;

static __always_inline struct context *context(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&contexts, &key);
}

static __always_inline int preempt_count(void)
{
	if (bpf_ksym_exists(&__preempt_count))
		return *(int *)bpf_this_cpu_ptr(&__preempt_count);
	if (bpf_ksym_exists(&pcpu_hot))
		return ((struct pcpu_hot___before *)bpf_this_cpu_ptr(&pcpu_hot))->preempt_count;
	return 0;
}

static void tell(struct event what)
{
	struct event *event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);

	if (!event) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	*event = what;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* Tells who a thread is, unless that is known. */
static void introduce(struct task_struct *task)
{
	__u64 cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	__u64 *known = bpf_task_storage_get(&told, task, 0, CREATE);
	struct thread *thread;

	if (known && *known == cgroup)
		return;
	thread = bpf_ringbuf_reserve(&ring, sizeof(*thread), 0);
	if (!thread) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	if (known)
		*known = cgroup;
	thread->event = (struct event){.at_ns = bpf_ktime_get_ns(), .kind = THREAD, .tid = task->pid};
	thread->cgroup = cgroup;
	bpf_probe_read_kernel(thread->name, sizeof(thread->name), task->comm);
	thread->is_kernel = task->flags & PF_KTHREAD ? 1 : 0;
	thread->policy = task->policy;
	thread->static_prio = task->static_prio;
	thread->rt_priority = task->rt_priority;
	thread->nr_cpus = task->nr_cpus_allowed;
	thread->padding = 0;
	/* The kernel's own mask may be shorter; what is read beyond it are CPUs that no host has. */
	if (bpf_probe_read_kernel(thread->cpus, sizeof(thread->cpus), task->cpus_ptr))
		thread->nr_cpus = 0;
	bpf_ringbuf_submit(thread, BPF_RB_NO_WAKEUP);
}

/* What wakes a thread here and now. */
static __always_inline __s32 cause(void)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct context *here = context();
	int count = preempt_count();

	if (here && here->timers)
		return BY_TIMER;
	if (count & HARDIRQ_OR_NMI)
		return BY_OUTSIDE;
	if (here && here->softirq)
		return here->softirq == NET_RX_SOFTIRQ + 1 && here->sender ? here->sender : BY_OUTSIDE;
	if (count & SERVING_SOFTIRQ || !current->pid)
		return BY_OUTSIDE;
	return current->pid;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempted, struct task_struct *prev, struct task_struct *next, unsigned int state)
{
	enum how how = WAITS;

	if (preempted || !state)
		how = PREEMPTED;
	else if (state & TASK_DEAD)
		how = EXITS;
	else if (state & TASK_UNINTERRUPTIBLE)
		how = WAITS_FOR_DEVICE;
	if (prev->pid)
		introduce(prev);
	if (next->pid)
		introduce(next);
	tell((struct event){
		.at_ns = bpf_ktime_get_ns(),
		.kind = SWITCH,
		.cpu = bpf_get_smp_processor_id(),
		.tid = prev->pid,
		.other = next->pid,
		.how = how,
	});
	return 0;
}

static __always_inline int woken(struct task_struct *task, enum kind kind)
{
	introduce(task);
	tell((struct event){
		.at_ns = bpf_ktime_get_ns(),
		.kind = kind,
		.tid = task->pid,
		.other = kind == WOKEN ? 0 : cause(),
	});
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	return woken(task, WAKING);
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	return woken(task, WOKEN);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *task)
{
	return woken(task, STARTS);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	bpf_task_storage_delete(&told, task);
	introduce(task);
	return 0;
}

static __always_inline int timer(int change)
{
	struct context *here = context();

	if (here)
		here->timers += change > 0 || here->timers ? change : 0;
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_hrtimer)
{
	return timer(1);
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(on_hrtimer_exit)
{
	return timer(-1);
}

SEC("tp_btf/timer_expire_entry")
int BPF_PROG(on_timer)
{
	return timer(1);
}

SEC("tp_btf/timer_expire_exit")
int BPF_PROG(on_timer_exit)
{
	return timer(-1);
}

/* A packet that a thread sends to this host itself is received here as soon as the thread lets soft interrupts
 * in. What is woken by that, the thread has woken. */
SEC("tp_btf/softirq_raise")
int BPF_PROG(on_raise, unsigned int softirq)
{
	struct context *here = context();
	int count = preempt_count();

	if (!here || softirq != NET_RX_SOFTIRQ)
		return 0;
	if (count & HARDIRQ_OR_NMI)
		here->sender = 0;
	else if (!here->softirq)
		here->sender = bpf_get_current_task_btf()->pid;
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq, unsigned int softirq)
{
	struct context *here = context();

	if (here)
		here->softirq = softirq + 1;
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit)
{
	struct context *here = context();

	if (here)
		here->softirq = 0;
	return 0;
}

/* Run once on each CPU: says what runs there, which may go on without ever being switched from. */
SEC("raw_tp")
int look(void *unused)
{
	struct task_struct *current = bpf_get_current_task_btf();

	if (!current->pid)
		return 0;
	introduce(current);
	tell((struct event){
		.at_ns = bpf_ktime_get_ns(),
		.kind = RUNS,
		.cpu = bpf_get_smp_processor_id(),
		.tid = current->pid,
	});
	return 0;
}

char _license[] SEC("license") = "GPL";
