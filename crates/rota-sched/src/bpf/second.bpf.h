/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The second level: what slots leave goes to uncapped reserved tenants, on the CPUs of their slots. It is shared as
 * what is left then is among tenants without a reservation (shares.bpf.h). A tenant's clock is what it has had beyond
 * its slots, on all CPUs together, by what it has reserved. Of the vCPUs that wait on a CPU the one whose clock is
 * furthest behind has the next turn. It interrupts the present one if it is a minimum slice behind that.
 *
 * There is no line and no virtual time of the system. The table names the few vCPUs that may wait on a CPU, and each is
 * asked. None there is further behind the one furthest ahead than ROTA_FAIR_CREDIT_NS. What is beyond that it is
 * forgiven, on this CPU alone: neighbours elsewhere have had something else.
 */
#ifndef ROTA_SECOND_BPF_H
#define ROTA_SECOND_BPF_H

#include "locals.bpf.h"
#include "pick.bpf.h"

/* What this CPU remembers of local vCPU `local`, masked where the verifier can see it. */
static __always_inline struct second_place *second_place(struct cpu_ctx *c, u64 local)
{
	barrier_var(local);
	return &c->second.places[local & (ROTA_LOCALS_MAX - 1)];
}

/* The tenant's clock on CPU `cpu`, on which it has a vCPU. */
__noinline u64 second_clock(u32 cpu, u32 tenant_id)
{
	struct fair_ctx *f = fair_ctx(tenant_id);
	struct cpu_ctx *c = cpu_ctx(cpu);
	u32 locals, i;

	if (!c || !f)
		return 0;
	locals = nr_locals(c, cpu);
	bpf_for (i, 0, locals) {
		struct rota_table_vcpu *vcpu = local_here(c, cpu, i);

		if (vcpu && vcpu->tenant == tenant_id)
			return f->second + second_place(c, i)->forgiven;
	}
	return f->second;
}

/* The tenant is behind by too much: all its vCPUs on this CPU, as they have one clock, are put forward. */
__noinline int second_forgives(u32 cpu, u32 tenant_id, u64 lag)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	u32 locals, i;

	if (!c)
		return 0;
	locals = nr_locals(c, cpu);
	bpf_for (i, 0, locals) {
		struct rota_table_vcpu *vcpu = local_here(c, cpu, i);

		if (vcpu && vcpu->tenant == tenant_id)
			second_place(c, i)->forgiven += lag;
	}
	return 0;
}

/* Whether the vCPU is in the middle of a turn: then it goes on, unless somebody is a minimum slice further behind. */
static __always_inline bool second_goes_on(struct run *r, struct cpu_ctx *c, u32 local)
{
	return local == c->second.local && c->turn.level == ROTA_LEVEL_SECOND && r->now < c->second.until;
}

/* Takes the local vCPU for the one whose turn it is, if a thread of it waits and it is behind those seen before. */
__noinline int see_local(struct run *r __arg_nonnull, u32 local)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	struct rota_table_vcpu *vcpu = c ? local_here(c, r->cpu, local) : NULL;
	struct rota_tenant *tenant = vcpu ? tenant_of(vcpu->tenant) : NULL;
	struct fair_ctx *f = vcpu ? fair_ctx(vcpu->tenant) : NULL;
	struct second_run *seen = &r->second;
	u64 tag;

	if (!c || !tenant || !f || !local_waits(r, c, vcpu, tenant, true))
		return 0;
	tag = f->second + second_place(c, local)->forgiven;
	if (seen->found == ROTA_NONE || vtime_before(seen->most, tag))
		seen->most = tag;
	if (second_goes_on(r, c, local))
		tag -= weighted(tenant, ROTA_FAIR_SLICE_NS);
	/* vCPUs of one tenant have one clock: they take turns. */
	if (seen->found == ROTA_NONE || vtime_before(tag, seen->least) ||
	    (tag == seen->least && second_place(c, local)->served < second_place(c, seen->found)->served)) {
		seen->found = local;
		seen->least = tag;
	}
	return 0;
}

/*
 * The local vCPU whose turn it is, of those with a thread that waits and that were not tried in vain; ROTA_NONE: none.
 */
static __always_inline u32 next_local(struct run *r, struct cpu_ctx *c, u64 tried)
{
	u32 locals = nr_locals(c, r->cpu), i;

	r->second.found = ROTA_NONE;
	bpf_for (i, 0, locals) {
		u32 local = i & (ROTA_LOCALS_MAX - 1);

		if (!(tried >> local & 1))
			see_local(r, local);
	}
	return r->second.found;
}

/* A turn of local vCPU `local`, if what waits there may run here. */
__noinline bool serve_local(struct run *r __arg_nonnull, u32 local)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	struct rota_table_vcpu *vcpu;
	struct rota_tenant *tenant;
	struct fair_ctx *f;
	u64 until, clock;

	if (!c)
		return false;
	vcpu = local_here(c, r->cpu, local);
	tenant = vcpu ? tenant_of(vcpu->tenant) : NULL;
	f = vcpu ? fair_ctx(vcpu->tenant) : NULL;
	if (!tenant || !f)
		return false;
	clock = f->second + second_place(c, local)->forgiven;
	if (vtime_before(clock, r->second.most - ROTA_FAIR_CREDIT_NS))
		second_forgives(r->cpu, vcpu->tenant, r->second.most - ROTA_FAIR_CREDIT_NS - clock);
	until = second_goes_on(r, c, local) ? c->second.until : r->now + ROTA_QUANTUM_NS;
	until = min_time(c->slot.end, until);
	if (!serve_vcpu(r, vcpu->tenant, vcpu->index, ROTA_LEVEL_SECOND, until))
		return false;
	c->second.until = until;
	c->second.local = c->turn.picked_local = local;
	c->second.tenant = vcpu->tenant;
	second_place(c, local)->served = r->now;
	return true;
}

/*
 * One turn of the second level. What waits for a vCPU may be bound to other CPUs: then the next one is asked, and so on
 * to the last, as a tenant may have many here.
 */
__noinline bool serve_second_level(struct run *r __arg_nonnull)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	u64 tried = 0;
	u32 tries;

	if (!c)
		return false;
	bpf_for (tries, 0, ROTA_LOCALS_MAX) {
		u32 local = next_local(r, c, tried);

		if (local >= ROTA_LOCALS_MAX)
			return false;
		if (serve_local(r, local))
			return true;
		tried |= 1ULL << local;
	}
	return false;
}

/* Whether the tenant in the second level is a minimum slice ahead of one that waits there. */
__noinline bool second_gives_way(u32 cpu, u32 tenant_id, u64 now)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_tenant *present;
	u64 since, used, clock;

	if (!c || c->turn.level != ROTA_LEVEL_SECOND)
		return false;
	present = tenant_of(c->second.tenant);
	if (!present)
		return false;
	since = c->turn.since;
	used = now > since ? now - since : 0;
	clock = second_clock(cpu, c->second.tenant) + weighted(present, used);
	return vtime_before(second_clock(cpu, tenant_id) + weighted(present, ROTA_FAIR_SLICE_NS), clock);
}

#endif /* ROTA_SECOND_BPF_H */
