/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The second level: what slots leave goes to uncapped reserved tenants, on the CPUs of their slots, and is shared among
 * them as what is left then is among tenants without a reservation (clock.bpf.h). A tenant's clock is what it has had
 * beyond its slots, on all CPUs together, by what it has reserved; of those who wait on a CPU the one whose clock is
 * furthest behind has the next turn, or interrupts the present one if it is a minimum slice behind that.
 *
 * There is no line and no virtual time of the system: who waits on a CPU is one of a few that the table names, and each
 * is asked. Nobody there is further behind the one furthest ahead than ROTA_FAIR_CREDIT_NS.
 */
#ifndef ROTA_SECOND_BPF_H
#define ROTA_SECOND_BPF_H

#include "pick.bpf.h"

#define SECOND_TRIES 4 /* local vCPUs that are asked for a turn, as what waits for one may be bound to other CPUs */

/* Local vCPU `local` of this CPU, if there is one. */
static __always_inline struct rota_table_vcpu *local_here(struct cpu_ctx *c, u32 cpu, u32 local)
{
	struct rota_cpu_view *view = c->buffer < ROTA_NR_BUFFERS ? cpu_view(c->buffer, cpu) : NULL;

	return view && local < view->nr_locals ? local_vcpu(c->buffer, view, local) : NULL;
}

/* When local vCPU `local` had its last turn, masked where the verifier can see it. */
static __always_inline u64 *second_served(struct cpu_ctx *c, u64 local)
{
	barrier_var(local);
	return &c->second_served[local & (ROTA_LOCALS_MAX - 1)];
}

/* Whether the vCPU is in the middle of a turn: then it goes on, unless somebody is a minimum slice further behind. */
static __always_inline bool second_goes_on(struct cpu_ctx *c, u32 local)
{
	return local == c->second_local && c->level == ROTA_LEVEL_SECOND && c->now < c->second_until;
}

/* Whose turn it is of those who wait on this CPU and were not tried in vain; ROTA_NONE: nobody's. */
__noinline u32 next_local(u32 cpu, u64 tried)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	u32 locals, i, found = ROTA_NONE;
	u64 least = 0, most = 0;

	if (!c)
		return ROTA_NONE;
	locals = nr_locals(c, cpu);
	bpf_for (i, 0, locals) {
		u32 local = i & (ROTA_LOCALS_MAX - 1);
		struct rota_table_vcpu *vcpu;
		struct rota_tenant *tenant;
		struct fair_ctx *f;
		u64 tag;

		if ((tried >> local & 1) || !local_waits(cpu, local, true))
			continue;
		vcpu = local_here(c, cpu, local);
		tenant = vcpu ? tenant_of(vcpu->tenant) : NULL;
		f = vcpu ? fair_ctx(vcpu->tenant) : NULL;
		if (!tenant || !f)
			continue;
		tag = f->clock;
		if (found == ROTA_NONE || vtime_before(most, tag))
			most = tag;
		if (second_goes_on(c, local))
			tag -= weighted(tenant, ROTA_FAIR_SLICE_NS);
		/* vCPUs of one tenant have one clock: they take turns. */
		if (found == ROTA_NONE || vtime_before(tag, least) ||
		    (tag == least && *second_served(c, local) < *second_served(c, found))) {
			found = local;
			least = tag;
		}
	}
	c->second_most = most;
	return found;
}

/* A turn of local vCPU `local`, if what waits there may run here. */
__noinline bool serve_local(u32 cpu, u32 local)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_table_vcpu *vcpu;
	struct rota_tenant *tenant;
	struct fair_ctx *f;
	u64 until;

	if (!c)
		return false;
	vcpu = local_here(c, cpu, local);
	tenant = vcpu ? tenant_of(vcpu->tenant) : NULL;
	f = vcpu ? fair_ctx(vcpu->tenant) : NULL;
	if (!tenant || !f)
		return false;
	put_forward(&f->clock, c->second_most - ROTA_FAIR_CREDIT_NS);
	until = second_goes_on(c, local) ? c->second_until : c->now + ROTA_QUANTUM_NS;
	until = min_time(c->slot_end, until);
	if (!serve_vcpu(cpu, vcpu->tenant, vcpu->index, ROTA_LEVEL_SECOND, until))
		return false;
	c->second_until = until;
	c->second_local = local;
	c->second_tenant = vcpu->tenant;
	*second_served(c, local) = c->now;
	return true;
}

/* One turn of the second level. */
__noinline bool serve_second_level(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	u64 tried = 0;
	u32 tries;

	if (!c)
		return false;
	bpf_for (tries, 0, SECOND_TRIES) {
		u32 local = next_local(cpu, tried);

		if (local >= ROTA_LOCALS_MAX)
			return false;
		if (serve_local(cpu, local))
			return true;
		tried |= 1ULL << local;
	}
	return false;
}

#endif /* ROTA_SECOND_BPF_H */
