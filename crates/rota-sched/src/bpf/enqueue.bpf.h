/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A thread is to wait in its queue, or in a line of a CPU: it has its place there, and a CPU is told.
 * fair_enqueue.bpf.h is for the lines of shared tenants.
 */
#ifndef ROTA_ENQUEUE_BPF_H
#define ROTA_ENQUEUE_BPF_H

#include "place.bpf.h"
#include "tell.bpf.h"

/* `sent`: it wakes, or select_cpu has chosen its CPU. */
static __always_inline void line_enqueue(struct task_struct *p, struct task_ctx *t, struct queue_ctx *q, u64 dsq,
					 u64 enq_flags, bool sent, u64 now)
{
	u32 cpu, level;
	u64 place;

	if (line_kind(dsq) == ROTA_LINE_BACKGROUND)
		dsq = idle_background_dsq(p, dsq);
	else if (line_kind(dsq) == ROTA_LINE_PINNED)
		dsq = idle_pinned_dsq(p, t->m.tenant, sent, dsq);
	place = place_in_line(p, t, q, dsq, now);
	/* One that has been stopped waits since then, which its vCPU has been seen to do. */
	if (line_kind(dsq) == ROTA_LINE_QUEUE && nr_waiting(dsq) <= 0)
		q->waits_from = t->queued_since ?: sent ? now : t->charged;
	begins_to_wait(t, dsq);
	t->queued_since = t->queued_since ?: now;
	t->overdue = false;
	scx_insert_vtime(p, dsq, quantum(q->nr_runnable), place, enq_flags);
	cpu = scx_bpf_task_cpu(p);
	if (dsq == DSQ_QUEUE(SYSTEM_QUEUE) && sent && !idles_housekept(cpu))
		tell_new_idle_cpu(p, dsq);
	if (line_kind(dsq) != ROTA_LINE_QUEUE) { /* whatever its tenant has elsewhere */
		bool is_background = line_kind(dsq) == ROTA_LINE_BACKGROUND;

		tell_level((u32)dsq, is_background ? ROTA_LEVEL_BACKGROUND : ROTA_LEVEL_SHARED);
		return;
	}
	if (!sent) /* the CPU that it was on until now goes on with something else */
		cpu = wake_cpu(p, t->m.tenant, t->m.vcpu, t->last_cpu, now);
	level = tell(cpu < nr_host_cpus ? cpu : scx_bpf_task_cpu(p), t->m.tenant, t->m.vcpu, now);
	tell_others(p, t, level, now);
}

#endif /* ROTA_ENQUEUE_BPF_H */
