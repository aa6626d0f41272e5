// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which operations of a sched_ext scheduler the kernel calls, in their order. Each program stands before the operation
 * of its name, whose arguments are behind one pointer. All of one task, and all of one CPU, are called under a lock
 * that orders them, so the ring has them in that order.
 */
#include "calls.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_RB_NO_WAKEUP     1

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct thread_info {
	__u32 cpu;
};

struct task_struct {
	struct thread_info thread_info;
	int pid;
};
#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} ring SEC(".maps");

/* Calls for which there was no room. */
__u64 lost;

static __always_inline __u64 argument(__u64 *ctx, int number)
{
	__u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (__u64 *)ctx[0] + number);
	return value;
}

static __always_inline int tell(__u32 call, struct task_struct *task, __u32 cpu, __u32 goes_on)
{
	struct record *r;

	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	r->call = call;
	r->task = task ? BPF_CORE_READ(task, pid) : 0;
	r->cpu = cpu;
	r->goes_on = goes_on;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline int tell_task(__u32 call, __u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)argument(ctx, 0);

	return tell(call, task, BPF_CORE_READ(task, thread_info.cpu), argument(ctx, 1) & 1);
}

SEC("fentry/select_cpu")
int select_cpu(__u64 *ctx)
{
	return tell_task(SELECT_CPU, ctx);
}

SEC("fentry/enqueue")
int enqueue(__u64 *ctx)
{
	return tell_task(ENQUEUE, ctx);
}

SEC("fentry/dispatch")
int dispatch(__u64 *ctx)
{
	return tell(DISPATCH, (struct task_struct *)argument(ctx, 1), argument(ctx, 0), 0);
}

SEC("fentry/running")
int running(__u64 *ctx)
{
	return tell_task(RUNNING, ctx);
}

SEC("fentry/stopping")
int stopping(__u64 *ctx)
{
	return tell_task(STOPPING, ctx);
}

SEC("fentry/update_idle")
int update_idle(__u64 *ctx)
{
	return tell(UPDATE_IDLE, 0, argument(ctx, 0), argument(ctx, 1) & 1);
}

char _license[] SEC("license") = "GPL";
