/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simplest sched_ext scheduler there can be: one queue, first in, first out, 4 ms each. What Rota's operations cost
 * is measured beside what its cost. The kernel's own default places waking tasks.
 */
#include "kernel.bpf.h"

#define QUEUE	 1ULL
#define SLICE_NS 4000000ULL

char _license[] SEC("license") = "GPL";

void STRUCT_OPS(fifo_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_insert(p, QUEUE, SLICE_NS, enq_flags);
}

void STRUCT_OPS(fifo_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_move_to_local(QUEUE);
}

s32 STRUCT_OPS_SLEEPABLE(fifo_init)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops fifo = {
	.enqueue = (void *)fifo_enqueue,
	.dispatch = (void *)fifo_dispatch,
	.init = (void *)fifo_init,
	.name = "fifo",
};
