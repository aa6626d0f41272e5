/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a CPU takes a thread from where it waits. Each step tries to move one waiting thread to the CPU, or else lets the
 * present one go on if it is of the same kind. In which order a CPU asks is in order.bpf.h.
 */
#ifndef ROTA_PICK_BPF_H
#define ROTA_PICK_BPF_H

#include "account.bpf.h"
#include "handover.bpf.h"
#include "offer.bpf.h"
#include "siblings.bpf.h"

/* Gives the CPU to a dispatch queue until `until`, if a thread waits there or the present one belongs there. */
__noinline bool serve(struct run *r __arg_nonnull, u64 dsq, u32 level, u64 until)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);

	if (!c)
		return false;
	r->keeps_prev = false;
	/* Of a line it is known: another call here would be one too deep for the verifier. */
	if ((line_kind(dsq) != ROTA_LINE_SHARED && !may_wait(dsq)) || !scx_move_to_local(dsq)) {
		if (r->prev_dsq != dsq)
			return false;
		r->keeps_prev = true;
	}
	c->turn.picked = level;
	c->turn.until_ns = until;
	return true;
}

/* Threads of a queue that are looked at for one that ran here last. */
#define OWN_LOOKS 8

/*
 * The same for the thread of a queue that ran on this CPU last, as its data are here: if it has not come much later
 * than the first, or since then. So each goes before few others, and none waits long. `since` is 0 for the first.
 */
__noinline bool serve_own(struct run *r __arg_nonnull, u64 dsq, u32 level, u64 until, u64 since)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool moved = false;
	u32 i;

	if (!c || scx_bpf_dsq_nr_queued(dsq) < (since ? 1 : 2))
		return false;
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		bpf_for (i, 0, OWN_LOOKS) {
			struct task_ctx *t;

			p = bpf_iter_scx_dsq_next(&it);
			t = p ? task_ctx(p) : NULL;
			if (!t || t->overdue)
				break;
			since = since ?: t->queued_since;
			if (t->queued_since > since + ROTA_FAIR_SLICE_NS)
				break;
			if (t->last_cpu != r->cpu || !may_run_here(p, r->cpu))
				continue;
			moved = scx_bpf_dsq_move(&it, p, SCX_DSQ_LOCAL, 0);
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	if (!moved)
		return false;
	r->keeps_prev = false;
	c->turn.picked = level;
	c->turn.until_ns = until;
	return true;
}

/* Runs threads of vCPU `index` of a tenant: of its queue, and for a VM its monitor's others in turn with it. */
__noinline bool serve_threads(struct run *r __arg_nonnull, u32 tenant_id, u32 index, u32 level, u64 until)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	u32 service, own;
	bool first;
	u64 turn;

	if (!tenant || !c || tenant->class != ROTA_CLASS_RESERVED)
		return false;
	service = tenant->first_queue;
	if (tenant->kind != ROTA_KIND_VM) {
		until = crowd_until(r, service, until);
		return (may_wait(DSQ_QUEUE(service)) && serve_own(r, DSQ_QUEUE(service), level, until, 0)) ||
		       serve(r, DSQ_QUEUE(service), level, until);
	}
	own = service + 1 + index;
	if (nr_waiting(DSQ_QUEUE(service)) <= 0 && r->prev_dsq != DSQ_QUEUE(service))
		return serve(r, DSQ_QUEUE(own), level, until);
	/* Both wait: they take turns, in a slot so that it has one of each; or another slot has the monitor's. */
	r->passes_on = level == ROTA_LEVEL_OWNER;
	turn = level == ROTA_LEVEL_OWNER ? (c->slot.end - c->slot.start) / 2 + 1 : ROTA_QUANTUM_NS;
	until = crowd_until(r, service, min_time(until, r->now + min_time(turn, ROTA_QUANTUM_NS)));
	first = c->turn.service_first = !c->turn.service_first;
	return serve(r, DSQ_QUEUE(first ? service : own), level, until) ||
	       serve(r, DSQ_QUEUE(first ? own : service), level, until);
}

/*
 * Runs vCPU `index` of a tenant, if no other CPU does. The tenant may grow meanwhile, and the vCPU have another entry.
 * So the CPU looks for the entry again after its claim, and the loader's word ends claims by the former one.
 */
__noinline bool serve_vcpu(struct run *r __arg_nonnull, u32 tenant_id, u32 index, u32 level, u64 until)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	u32 entry;

	if (!tenant || !c)
		return false;
	entry = vcpu_entry(tenant, index);
	if (!claim_vcpu(r->cpu, entry, level))
		return false;
	if (vcpu_entry(tenant, index) == entry && !is_claimed_formerly(c, tenant, index) &&
	    serve_threads(r, tenant_id, index, level, until))
		return true;
	unclaim(c, entry);
	return false;
}

/*
 * Nobody to run in a slot. If a thread of the owner is on its way into the queue, the CPU will look again: each
 * time after as long as that has gone on, however often it has decided meanwhile.
 */
static __always_inline void look_again(struct run *r, struct cpu_ctx *c)
{
	struct queue_ctx *owner = queue_ctx(c->slot.queue);

	/* After unclaim: a CPU that lets go of the vCPU, or queues a thread, has changed the counts before. */
	if (!owner || !queue_waits(owner) || nr_waiting(DSQ_QUEUE(c->slot.queue)) > 0) {
		c->slot.looks_since = 0;
		return;
	}
	if (!c->slot.looks_since)
		c->slot.looks_since = r->now;
	r->look_at = r->now + max_time(r->now - c->slot.looks_since, ROTA_LOOK_AGAIN_NS);
}

__noinline bool serve_owner(struct run *r __arg_nonnull)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	struct rota_tenant *tenant;

	if (!c || c->slot.queue == ROTA_NONE)
		return false;
	tenant = tenant_of(c->slot.tenant);
	if (!tenant)
		return false;
	/* Publish, then look: the mark, and the queue once more; a waker's end is tell_others. */
	if (serve_vcpu(r, c->slot.tenant, c->slot.index, ROTA_LEVEL_OWNER, c->slot.end) ||
	    (tenant->nr_vcpus > 1 && mark_hungry(c, c->slot.index) &&
	     serve_vcpu(r, c->slot.tenant, c->slot.index, ROTA_LEVEL_OWNER, c->slot.end))) {
		if (tenant->nr_vcpus > 1 || c->slot.hungry)
			clear_served(c);
		return true;
	}
	look_again(r, c);
	return false;
}

#endif /* ROTA_PICK_BPF_H */
