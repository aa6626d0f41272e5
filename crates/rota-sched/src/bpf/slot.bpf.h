/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The slot in force on a CPU: whose it is, and the timer that ends it.
 */
#ifndef ROTA_SLOT_BPF_H
#define ROTA_SLOT_BPF_H

#include "handover.bpf.h"
#include "state.bpf.h"
#include "table.bpf.h"

/* Two tables within one slot of the older one cannot be: the change-over ends every slot (see table_look_up). */
static __always_inline void check_generation(struct cpu_ctx *c, const struct owner *owner, u64 now)
{
	if (owner->generation == c->account.generation)
		return;
	if (owner->generation < c->account.generation || (c->slot.end != ROTA_NEVER && now < c->slot.end))
		c->account.mixed++;
	c->account.generation = owner->generation;
}

/*
 * Whose the slot is, and where the owner's threads wait and its claims are kept: a tenant that grows has other queues
 * from one moment to the next.
 */
static __always_inline void find_owner(struct cpu_ctx *c, u32 cpu, const struct owner *owner)
{
	struct rota_cpu_view *view;
	struct rota_table_vcpu *vcpu;
	struct rota_tenant *tenant;

	c->slot.epoch = live.membership_epoch; /* changes after the tenants do */
	c->slot.queue = ROTA_NONE;
	c->slot.tenant = ROTA_NONE;
	c->slot.moves = false;
	if (owner->vcpu == ROTA_NONE || owner->buffer >= ROTA_NR_BUFFERS)
		return;
	view = cpu_view(owner->buffer, cpu);
	vcpu = view ? table_vcpu(owner->buffer, view, owner->vcpu) : NULL;
	tenant = vcpu ? tenant_of(vcpu->tenant) : NULL;
	if (!tenant || tenant->class != ROTA_CLASS_RESERVED)
		return;
	c->slot.tenant = vcpu->tenant;
	c->slot.index = vcpu->index;
	c->slot.queue = tenant->first_queue + (tenant->kind == ROTA_KIND_VM ? 1 + vcpu->index : 0);
	c->slot.moves = vcpu->nr_cpus > 1;
	if (c->slot.moves)
		trail(vcpu_entry(tenant, vcpu->index), owner->generation, cpu);
}

/*
 * Whether the slot that the CPU knows is in force still, its owner has the same queues, and no table that ends it has
 * been published.
 */
static __always_inline bool is_in_slot(const struct cpu_ctx *c, u64 now)
{
	u64 generation = 0;

	if (table_in_force(now) != c->slot.buffer || c->slot.epoch != live.membership_epoch)
		return false;
	if (!c->slot.in_windows && (now < c->slot.start || now >= c->slot.end || table_next(now) < c->slot.end))
		return false;
	if (c->slot.buffer != ROTA_NONE)
		generation = c->slot.buffer ? live.tables[1].generation : live.tables[0].generation;
	return generation == c->slot.generation;
}

/* Has the timer fire at `at`, on this CPU. */
static __always_inline void arm(struct cpu_ctx *c, u64 at)
{
	if (at == ROTA_NEVER || c->turn.armed_ns == at)
		return;
	c->turn.armed_ns = at;
	bpf_timer_start(&c->timer, at, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN);
}

#endif /* ROTA_SLOT_BPF_H */
