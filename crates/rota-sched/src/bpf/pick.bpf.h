/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a CPU runs next. First the slot's owner; then, in time that the owner leaves or nobody reserved:
 *
 *   the floor     what has waited too long for its turn (see the constants in shared.h)
 *   second level  uncapped reserved tenants with a slot on this CPU: equal parts of an epoch (thesis section 4.2.2)
 *   shared        tenants without a reservation, by weight
 *   background    what everyone else leaves, in turn
 *
 * Each step tries to move one waiting thread to the CPU, or else lets the present one go on if it is of the same kind.
 */
#ifndef ROTA_PICK_BPF_H
#define ROTA_PICK_BPF_H

#include "account.bpf.h"
#include "slot.bpf.h"

/* One run of dispatch. */
struct turn {
	u32 cpu;
	u64 now;
	struct cpu_ctx *c;
	struct task_struct *prev; /* what ran until now and would go on; NULL if it would not */
	struct task_ctx *prev_ctx;
	u64 prev_dsq;		  /* where prev would wait */
	u32 buffer;
	struct rota_cpu_view *view; /* NULL: this CPU has no slots */
};

/* How long a thread may run before its siblings' turn, by how many share the queue. */
static __always_inline u64 quantum(u32 siblings)
{
	u64 part = ROTA_ROTATION_NS / (siblings + 1);

	if (part > ROTA_QUANTUM_NS)
		return ROTA_QUANTUM_NS;
	return part < ROTA_QUANTUM_MIN_NS ? ROTA_QUANTUM_MIN_NS : part;
}

/* Gives the CPU to `dsq` until `until`, if a thread waits there or prev is one of it. */
static __always_inline bool serve(struct turn *turn, u64 dsq, u32 level, u64 until)
{
	struct cpu_ctx *c = turn->c;
	struct queue_ctx *q;

	if (scx_move_to_local(dsq)) {
		c->picked = level;
	} else if (turn->prev && turn->prev_dsq == dsq) {
		/* It goes on without leaving the CPU, so its turn is settled here if the new one is of another kind. */
		q = queue_ctx(turn->prev_ctx->queue);
		if (q)
			turn_ends(c, q, turn->now);
		turn_begins(c, level, turn->now);
		c->picked = level;
		scx_set_slice(turn->prev, ROTA_QUANTUM_NS);
	} else {
		return false;
	}
	/* Ticks end the turns of a few siblings; many need shorter ones, which only the timer can end. */
	c->until_ns = min_time(until, turn->now + ROTA_EPOCH_NS);
	return true;
}

/* Many siblings in a queue take turns shorter than a tick. */
static __always_inline u64 crowd_until(struct turn *turn, u32 queue, u64 until)
{
	struct queue_ctx *q = queue_ctx(queue);
	u64 part;

	if (!q || q->nr_runnable <= ROTA_ROTATION_NS / ROTA_QUANTUM_NS)
		return until;
	part = quantum(q->nr_runnable);
	return min_time(until, turn->now + part);
}

/* Runs the vCPU of a tenant: its queue, and for a VM its monitor's other threads in turn with it. */
static __always_inline bool serve_vcpu(struct turn *turn, struct rota_tenant *tenant, u32 index, u32 level, u64 until)
{
	u32 service = tenant->first_queue, own = service;
	bool first;

	if (tenant->kind != ROTA_KIND_VM)
		return serve(turn, DSQ_QUEUE(own), level, crowd_until(turn, own, until));
	own = service + 1 + index;
	first = turn->c->service_first = !turn->c->service_first;
	if (first && serve(turn, DSQ_QUEUE(service), level, min_time(until, turn->now + ROTA_QUANTUM_NS)))
		return true;
	/* The vCPU thread may have the whole slot if the monitor's threads do not wait. */
	if (serve(turn, DSQ_QUEUE(own), level,
		  scx_bpf_dsq_nr_queued(DSQ_QUEUE(service)) > 0 ? min_time(until, turn->now + ROTA_QUANTUM_NS) : until))
		return true;
	return !first && serve(turn, DSQ_QUEUE(service), level, min_time(until, turn->now + ROTA_QUANTUM_NS));
}

static __always_inline bool serve_owner(struct turn *turn)
{
	struct cpu_ctx *c = turn->c;
	struct rota_tenant *tenant;
	struct rota_table_vcpu *vcpu;

	if (c->slot_queue == ROTA_NONE || !turn->view)
		return false;
	vcpu = table_vcpu(turn->buffer, turn->view, c->slot_vcpu);
	tenant = vcpu ? tenant_of(vcpu->tenant) : NULL;
	if (!tenant)
		return false;
	if (serve_vcpu(turn, tenant, vcpu->index, ROTA_LEVEL_OWNER, c->slot_end)) {
		clear_hungry(c);
		return true;
	}
	if (tenant->nr_vcpus > 1 && tenant->kind != ROTA_KIND_VM && !c->slot_hungry) {
		/* Marked first, looked at again after: a waker does the two in the opposite order. */
		mark_hungry(c, vcpu->index);
		if (serve_vcpu(turn, tenant, vcpu->index, ROTA_LEVEL_OWNER, c->slot_end)) {
			clear_hungry(c);
			return true;
		}
	}
	return false;
}

/* The table's record of the CPU's local vCPU number `local`, if it takes part in the second level. */
static __always_inline struct rota_table_vcpu *uncapped_local(struct turn *turn, u32 local)
{
	struct rota_table_vcpu *vcpu;
	u32 *number;

	number = table_at(turn->buffer, turn->view->locals + (u64)local * sizeof(u32), sizeof(u32));
	vcpu = number ? table_vcpu(turn->buffer, turn->view, *number) : NULL;
	return vcpu && !(vcpu->flags & ROTA_VCPU_CAPPED) ? vcpu : NULL;
}

static __always_inline bool local_wants(struct rota_table_vcpu *vcpu)
{
	struct rota_tenant *tenant = tenant_of(vcpu->tenant);
	struct queue_ctx *q;

	if (!tenant || tenant->class != ROTA_CLASS_RESERVED)
		return false;
	q = queue_ctx(tenant->first_queue + (tenant->kind == ROTA_KIND_VM ? 1 + vcpu->index : 0));
	return q && q->nr_runnable;
}

/* A new epoch: every local vCPU that wants to run gets an equal part of it; what was left of the old one is gone. */
static __noinline void replenish(struct turn *turn)
{
	struct cpu_ctx *c = turn->c;
	u32 locals = turn->view ? turn->view->nr_locals : 0, wanting = 0;
	u64 wants = 0;
	u32 i;

	bpf_for(i, 0, ROTA_LOCALS_MAX) {
		struct rota_table_vcpu *vcpu;

		if (i >= locals)
			break;
		vcpu = uncapped_local(turn, i);
		if (vcpu && local_wants(vcpu)) {
			wants |= 1ULL << i;
			wanting++;
		}
	}
	bpf_for(i, 0, ROTA_LOCALS_MAX)
		*second_budget(c, i) = wants & (1ULL << i) ? ROTA_EPOCH_NS / wanting : 0;
	c->epoch_end = turn->now + ROTA_EPOCH_NS;
	c->epoch_generation = c->slot_generation;
}

/* One round over the local vCPUs, from where the last turn was: those with a budget, or those without. */
static __always_inline bool second_round(struct turn *turn, bool budgeted)
{
	struct cpu_ctx *c = turn->c;
	u32 locals = turn->view->nr_locals, i;

	if (locals > ROTA_LOCALS_MAX)
		locals = ROTA_LOCALS_MAX;
	bpf_for(i, 0, ROTA_LOCALS_MAX) {
		struct rota_table_vcpu *vcpu;
		struct rota_tenant *tenant;
		u32 local;
		s64 budget;

		if (i >= locals)
			break;
		local = (c->second_cursor + i) % locals;
		budget = *second_budget(c, local);
		if ((budget > 0) != budgeted)
			continue;
		vcpu = uncapped_local(turn, local);
		if (!vcpu || !local_wants(vcpu))
			continue;
		tenant = tenant_of(vcpu->tenant);
		if (!tenant)
			continue;
		if (!serve_vcpu(turn, tenant, vcpu->index, ROTA_LEVEL_SECOND,
				min_time(c->slot_end, turn->now + (budgeted ? budget : ROTA_QUANTUM_NS))))
			continue;
		c->second_local = local;
		c->second_cursor = local + !budgeted;
		return true;
	}
	return false;
}

static __always_inline bool serve_second_level(struct turn *turn)
{
	struct cpu_ctx *c = turn->c;

	if (!turn->view || !turn->view->nr_locals)
		return false;
	if (!before(turn->now, c->epoch_end) || c->epoch_generation != c->slot_generation)
		replenish(turn);
	if (second_round(turn, true))
		return true;
	/* Whoever woke within the epoch, or used its part up, takes what no budget claims. */
	return second_round(turn, false);
}

/* Has what waits in `dsq` waited longer than `wait`? Nothing waiting counts as served. */
static __always_inline bool overdue(u64 dsq, u64 *served, u64 wait, u64 now)
{
	if (scx_bpf_dsq_nr_queued(dsq) <= 0) {
		*served = now;
		return false;
	}
	return now - *served > wait;
}

static __always_inline bool serve_floor_of(struct turn *turn, u64 dsq, u64 *served, u64 wait, u64 grant)
{
	if (!overdue(dsq, served, wait, turn->now))
		return false;
	if (!serve(turn, dsq, ROTA_LEVEL_FLOOR, turn->now + grant))
		return false;
	*served = turn->now;
	return true;
}

/* The floor, in unreserved time; or, for what has starved for seconds, in anyone's. */
static __always_inline bool serve_floor(struct turn *turn, bool starving)
{
	struct cpu_ctx *c = turn->c;

	return serve_floor_of(turn, DSQ_PINNED(turn->cpu), &c->pinned_served,
			      starving ? ROTA_STARVING_NS : ROTA_PINNED_WAIT_NS, ROTA_PINNED_GRANT_NS) ||
	       serve_floor_of(turn, DSQ_BACKGROUND(turn->cpu), &c->background_served,
			      starving ? ROTA_STARVING_NS : ROTA_FLOOR_WAIT_NS,
			      starving ? ROTA_PINNED_GRANT_NS : ROTA_FLOOR_GRANT_NS);
}

/* Whether a thread waits for one of this CPU's slots: an idle CPU then needs its timer. */
static __always_inline bool anyone_waits(struct turn *turn)
{
	u32 i, locals = turn->view ? turn->view->nr_locals : 0;

	bpf_for(i, 0, ROTA_LOCALS_MAX) {
		struct rota_table_vcpu *vcpu;
		struct rota_tenant *tenant;
		u32 *number;

		if (i >= locals)
			break;
		number = table_at(turn->buffer, turn->view->locals + (u64)i * sizeof(u32), sizeof(u32));
		vcpu = number ? table_vcpu(turn->buffer, turn->view, *number) : NULL;
		tenant = vcpu ? tenant_of(vcpu->tenant) : NULL;
		if (!tenant)
			continue;
		if (scx_bpf_dsq_nr_queued(DSQ_QUEUE(tenant->first_queue)) > 0)
			return true;
		if (tenant->kind == ROTA_KIND_VM &&
		    scx_bpf_dsq_nr_queued(DSQ_QUEUE(tenant->first_queue + 1 + vcpu->index)) > 0)
			return true;
	}
	return locals > ROTA_LOCALS_MAX;
}

#endif /* ROTA_PICK_BPF_H */
