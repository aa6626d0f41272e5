/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The *locals* of a CPU: the vCPUs with slots on it, and whether a thread waits for one of them.
 */
#ifndef ROTA_LOCALS_BPF_H
#define ROTA_LOCALS_BPF_H

#include "account.bpf.h"
#include "handover.bpf.h"
#include "line.bpf.h"
#include "offer.bpf.h"

/* Whether a thread waits in a dispatch queue; `counted`: or is about to. */
static __always_inline bool waits_in(u64 dsq, bool counted)
{
	return counted ? may_wait(dsq) : nr_waiting(dsq) > 0;
}

/* Whether the threads of a dispatch queue may use the slots of the tenant's vCPU: its own, or its VM monitor's. */
static __always_inline bool is_queue_of(const struct rota_table_vcpu *vcpu, const struct rota_tenant *tenant, u64 dsq)
{
	u64 service = DSQ_QUEUE(tenant->first_queue);

	return dsq == service || (tenant->kind == ROTA_KIND_VM && dsq == service + 1 + vcpu->index);
}

/*
 * Whether the tenant's vCPU has a thread for this CPU: one that waits, or is
 * about to if `counted`, or the present one.
 */
static __always_inline bool vcpu_waits(const struct rota_table_vcpu *vcpu, const struct rota_tenant *tenant,
				       u64 prev_dsq, bool counted)
{
	u64 service, own;

	own = service = DSQ_QUEUE(tenant->first_queue);
	if (tenant->kind == ROTA_KIND_VM)
		own += 1 + vcpu->index;
	return prev_dsq == own || prev_dsq == service || waits_in(own, counted) ||
	       (own != service && waits_in(service, counted));
}

/* Whether a vCPU with slots on several CPUs does here what it does outside of them: on its trailing CPU. */
static __always_inline bool trails(const struct rota_table_vcpu *vcpu, struct rota_tenant *tenant, struct cpu_ctx *c,
				   u32 cpu)
{
	struct queue_ctx *v = queue_ctx(vcpu_entry(tenant, vcpu->index));
	u64 trailing;

	if (!v)
		return false;
	trailing = v->trailing;
	return trailing >> 16 == c->slot.generation ? (u16)trailing == cpu : vcpu->home_cpu == cpu;
}

/*
 * Whether a thread may come that its next slot here would serve, though none is queued. For a vCPU that migrates that
 * is any runnable thread, perhaps on another CPU now. For others it is a thread on its way into the queue, sent to
 * another of the tenant's CPUs. The dozing mark is left for its waker.
 */
static __always_inline bool may_come(const struct rota_table_vcpu *vcpu, const struct rota_tenant *tenant)
{
	struct queue_ctx *q;

	if (vcpu->nr_cpus > 1) {
		q = queue_ctx(tenant->first_queue + (tenant->kind == ROTA_KIND_VM ? 1 + vcpu->index : 0));
		return q && q->nr_runnable;
	}
	q = tenant->nr_vcpus > 1 ? marks_of(tenant, vcpu->index) : NULL;
	if (!q)
		return false;
	mark(&q->dozing, vcpu->index);
	q = queue_ctx(tenant->first_queue);
	return q && queue_waits(q);
}

/*
 * Whether a vCPU with slots on this CPU has a thread for it: for the second level, if it is uncapped and this is its
 * CPU; or for one of its coming slots.
 */
static __always_inline bool local_waits(struct run *r, struct cpu_ctx *c, const struct rota_table_vcpu *vcpu,
					struct rota_tenant *tenant, bool second_level)
{
	if (tenant->class != ROTA_CLASS_RESERVED)
		return false;
	if (!second_level)
		return may_come(vcpu, tenant) || vcpu_waits(vcpu, tenant, r->prev_dsq, true);
	if ((vcpu->flags & ROTA_VCPU_CAPPED) || (vcpu->nr_cpus > 1 && !trails(vcpu, tenant, c, r->cpu)))
		return false;
	return vcpu_waits(vcpu, tenant, r->prev_dsq, false);
}

/* How many of this CPU's vCPUs take part in its second level. */
static __always_inline u32 nr_locals(struct cpu_ctx *c, u32 cpu)
{
	struct rota_cpu_view *view = c->slot.buffer < ROTA_NR_BUFFERS ? cpu_view(c->slot.buffer, cpu) : NULL;

	if (!view)
		return 0;
	return view->nr_locals < ROTA_LOCALS_MAX ? view->nr_locals : ROTA_LOCALS_MAX;
}

/* Local vCPU `local` of this CPU, if there is one. */
static __always_inline struct rota_table_vcpu *local_here(struct cpu_ctx *c, u32 cpu, u32 local)
{
	struct rota_cpu_view *view = c->slot.buffer < ROTA_NR_BUFFERS ? cpu_view(c->slot.buffer, cpu) : NULL;

	return view && local < view->nr_locals ? local_vcpu(c->slot.buffer, view, local) : NULL;
}

#endif /* ROTA_LOCALS_BPF_H */
