/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a CPU runs next. First the slot's owner; then, in time that the owner leaves or nobody reserved:
 *
 *   the floor     what has waited too long for its turn (floor.bpf.h)
 *   second level  uncapped reserved tenants with a slot on this CPU, by what they reserved (second.bpf.h)
 *   shared        tenants without a reservation, by weight (fair.bpf.h)
 *   background    what everyone else leaves, in turn
 *
 * Each step tries to move one waiting thread to the CPU, or else lets the present one go on if it is of the same kind.
 * What one run of dispatch knows (time, table, what ran until now) is in the CPU's state: now, buffer, prev_dsq.
 */
#ifndef ROTA_PICK_BPF_H
#define ROTA_PICK_BPF_H

#include "account.bpf.h"
#include "slot.bpf.h"
#include "waiting.bpf.h"

/* How long a thread may run before its siblings' turn, by how many share the queue. */
static __always_inline u64 quantum(u32 siblings)
{
	u64 part = ROTA_ROTATION_NS / (siblings + 1);

	if (part > ROTA_QUANTUM_NS)
		return ROTA_QUANTUM_NS;
	return part < ROTA_QUANTUM_MIN_NS ? ROTA_QUANTUM_MIN_NS : part;
}

/*
 * A thread's place among those of its queue: by what it has used, no further ahead or behind than a quantum, whoever
 * slept, or had the CPU while nobody else wanted it. Who is new is a ms behind: before those that wait, ever more
 * processes of a script would keep them waiting for ever. So it is placed once: one whose affinity changes as it waits
 * keeps its place.
 */
static __always_inline u64 place_among_siblings(struct task_struct *p, struct task_ctx *t, struct queue_ctx *q)
{
	u64 weight = p->scx.weight ?: 1;
	u64 last = q->vtime + ROTA_QUANTUM_NS * ROTA_WEIGHT_ONE / weight;

	if (t->last_cpu == ROTA_NONE && !t->queued_since)
		t->vtime = q->vtime + ROTA_NEWCOMER_NS * ROTA_WEIGHT_ONE / weight;
	else if (vtime_before(last, t->vtime))
		t->vtime = last;
	t->vtime = max_vtime(t->vtime, q->vtime - ROTA_QUANTUM_NS);
	return t->vtime;
}

/* Gives the CPU to a dispatch queue until `until`, if a thread waits there or the present one belongs there. */
__noinline bool serve(u32 cpu, u64 dsq, u32 level, u64 until)
{
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (!c)
		return false;
	c->keeps_prev = false;
	/* Of a line it is known: another call here would be one too deep for the verifier. */
	if (((dsq >> 32) != (DSQ_SHARED(0) >> 32) && !may_wait(dsq)) || !scx_move_to_local(dsq)) {
		if (c->prev_dsq != dsq)
			return false;
		c->keeps_prev = true;
	}
	c->picked = level;
	c->until_ns = until;
	return true;
}

/* Ticks end the turns of a few siblings; many take turns shorter than a tick, which only the timer can end. */
static __always_inline u64 crowd_until(struct cpu_ctx *c, u32 queue, u64 until)
{
	struct queue_ctx *q = queue_ctx(queue);

	if (!q || q->nr_runnable <= ROTA_ROTATION_NS / ROTA_QUANTUM_NS)
		return until;
	return min_time(until, c->now + quantum(q->nr_runnable));
}

/* Runs threads of vCPU `index` of a tenant: of its queue, and for a VM its monitor's others in turn with it. */
__noinline bool serve_threads(u32 cpu, u32 tenant_id, u32 index, u32 level, u64 until)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct cpu_ctx *c = cpu_ctx(cpu);
	u32 service, own;
	bool first;
	u64 turn;

	if (!tenant || !c || tenant->class != ROTA_CLASS_RESERVED)
		return false;
	service = tenant->first_queue;
	if (tenant->kind != ROTA_KIND_VM)
		return serve(cpu, DSQ_QUEUE(service), level, crowd_until(c, service, until));
	own = service + 1 + index;
	if (nr_waiting(DSQ_QUEUE(service)) <= 0 && c->prev_dsq != DSQ_QUEUE(service))
		return serve(cpu, DSQ_QUEUE(own), level, until);
	/* Both wait: they take turns, in a slot so that it has one of each; or another slot has the monitor's. */
	c->passes_on = level == ROTA_LEVEL_OWNER;
	turn = level == ROTA_LEVEL_OWNER ? (c->slot_end - c->slot_start) / 2 : ROTA_QUANTUM_NS;
	until = min_time(until, c->now + min_time(turn, ROTA_QUANTUM_NS));
	first = c->service_first = !c->service_first;
	return serve(cpu, DSQ_QUEUE(first ? service : own), level, until) ||
	       serve(cpu, DSQ_QUEUE(first ? own : service), level, until);
}

/*
 * Runs vCPU `index` of a tenant, if no other CPU does. The tenant may grow meanwhile: who has claimed the vCPU looks
 * for its entry again, so that the loader's word is the end of claims by the former one.
 */
__noinline bool serve_vcpu(u32 cpu, u32 tenant_id, u32 index, u32 level, u64 until)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct cpu_ctx *c = cpu_ctx(cpu);
	u32 entry;

	if (!tenant || !c)
		return false;
	entry = vcpu_entry(tenant, index);
	if (!claim_vcpu(cpu, entry, level))
		return false;
	if (vcpu_entry(tenant, index) == entry && !is_claimed_formerly(c, tenant, index) &&
	    serve_threads(cpu, tenant_id, index, level, until))
		return true;
	unclaim(c, entry);
	return false;
}

/*
 * Nobody to run in a slot. If a thread of the owner is on its way into the queue, the CPU will look again: each
 * time after as long as that has gone on, however often it has decided meanwhile.
 */
static __always_inline void look_again(struct cpu_ctx *c)
{
	struct queue_ctx *owner = queue_ctx(c->slot_queue);

	/* After unclaim: whoever lets go of the vCPU, or queues a thread, has changed the counts before. */
	if (!owner || !queue_waits(owner) || nr_waiting(DSQ_QUEUE(c->slot_queue)) > 0) {
		c->looks_since = 0;
		return;
	}
	if (!c->looks_since)
		c->looks_since = c->now;
	c->look_at = c->now + max_time(c->now - c->looks_since, ROTA_LOOK_AGAIN_NS);
}

__noinline bool serve_owner(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_tenant *tenant;

	if (!c || c->slot_queue == ROTA_NONE)
		return false;
	tenant = tenant_of(c->slot_tenant);
	if (!tenant)
		return false;
	/* Marked first, looked at again after: a waker does the two in the opposite order. */
	if (serve_vcpu(cpu, c->slot_tenant, c->slot_index, ROTA_LEVEL_OWNER, c->slot_end) ||
	    (tenant->nr_vcpus > 1 && mark_hungry(c, c->slot_index) &&
	     serve_vcpu(cpu, c->slot_tenant, c->slot_index, ROTA_LEVEL_OWNER, c->slot_end))) {
		if (tenant->nr_vcpus > 1 || c->slot_hungry)
			clear_served(c);
		return true;
	}
	look_again(c);
	return false;
}

/* Whether a thread waits in a dispatch queue; `counted`: or is about to. */
static __always_inline bool waits_in(u64 dsq, bool counted)
{
	return counted ? may_wait(dsq) : nr_waiting(dsq) > 0;
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
	return trailing >> 16 == c->slot_generation ? (u16)trailing == cpu : vcpu->home_cpu == cpu;
}

/*
 * Whether a thread may come that its next slot here would serve, though none is queued: for a vCPU that migrates
 * any that would run, be it on another CPU now; for others one that is on its way into the queue and may have been
 * sent to another of the tenant's CPUs. Marks what that one will look for.
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
static __always_inline bool local_waits(struct cpu_ctx *c, u32 cpu, const struct rota_table_vcpu *vcpu,
					struct rota_tenant *tenant, bool second_level)
{
	if (tenant->class != ROTA_CLASS_RESERVED)
		return false;
	if (!second_level)
		return may_come(vcpu, tenant) || vcpu_waits(vcpu, tenant, c->prev_dsq, true);
	if ((vcpu->flags & ROTA_VCPU_CAPPED) || (vcpu->nr_cpus > 1 && !trails(vcpu, tenant, c, cpu)))
		return false;
	return vcpu_waits(vcpu, tenant, c->prev_dsq, false);
}

/* How many of this CPU's vCPUs take part in its second level. */
static __always_inline u32 nr_locals(struct cpu_ctx *c, u32 cpu)
{
	struct rota_cpu_view *view = c->buffer < ROTA_NR_BUFFERS ? cpu_view(c->buffer, cpu) : NULL;

	if (!view)
		return 0;
	return view->nr_locals < ROTA_LOCALS_MAX ? view->nr_locals : ROTA_LOCALS_MAX;
}

/* Local vCPU `local` of this CPU, if there is one. */
static __always_inline struct rota_table_vcpu *local_here(struct cpu_ctx *c, u32 cpu, u32 local)
{
	struct rota_cpu_view *view = c->buffer < ROTA_NR_BUFFERS ? cpu_view(c->buffer, cpu) : NULL;

	return view && local < view->nr_locals ? local_vcpu(c->buffer, view, local) : NULL;
}

/* Whether a thread waits for one of this CPU's slots: an idle CPU then needs its timer. */
__noinline bool anyone_waits(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	u32 locals, i;

	if (!c)
		return false;
	locals = nr_locals(c, cpu);
	bpf_for (i, 0, locals) {
		struct rota_table_vcpu *vcpu = local_here(c, cpu, i);
		struct rota_tenant *tenant = vcpu ? tenant_of(vcpu->tenant) : NULL;

		if (tenant && local_waits(c, cpu, vcpu, tenant, false))
			return true;
	}
	return locals == ROTA_LOCALS_MAX; /* there may be more than can be looked at */
}

/*
 * That nobody waits for one of this CPU's slots was found, and holds until the CPU is told of somebody, as it is of
 * every thread that may wait for a slot here, or another table is in force.
 */
static __always_inline bool is_unwanted(const struct cpu_ctx *c)
{
	return c->unwanted && !c->prev_dsq && !nr_rehomed;
}

/* The same, looked at where it is not known. */
static __always_inline bool slots_are_unwanted(struct cpu_ctx *c, u32 cpu)
{
	if (is_unwanted(c))
		return true;
	__sync_lock_test_and_set(&c->unwanted, 1); /* before it is looked, as `dozes` is */
	if (!anyone_waits(cpu))
		return true;
	c->unwanted = 0;
	return false;
}

/*
 * The CPU is about to idle: without its timer, if no thread waits for one of its slots, and no new table is about to
 * come. Then nobody waits for its second level either.
 */
static __always_inline bool dozes_off(struct cpu_ctx *c, u32 cpu)
{
	/* Said first, looked at after: who queues a thread for a slot here counts it first, and then looks. */
	__sync_lock_test_and_set(&c->dozes, 1);
	if (c->look_at == ROTA_NEVER && table_next(c->now) == ROTA_NEVER && slots_are_unwanted(c, cpu))
		return true;
	c->dozes = 0;
	return false;
}

#endif /* ROTA_PICK_BPF_H */
