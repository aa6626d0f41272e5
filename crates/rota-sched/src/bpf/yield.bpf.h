/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPU gives way to a shared tenant's thread that is behind: its own last one, or the one that its domain knows to
 * be furthest ahead, or one of a few that are looked at in turn.
 */
#ifndef ROTA_YIELD_BPF_H
#define ROTA_YIELD_BPF_H

#include "cpus.bpf.h"
#include "shares.bpf.h"

/* CPUs that are looked at for one that gives way, besides its own: those that domains know, and others in turn. */
#define FAIR_HINTS   min_time(4, settings.nr_domains)
#define FAIR_SAMPLES min_time(3, nr_host_cpus - 1)

/* By how much a CPU's tenant is ahead of a request of the thread with this tag; 0: the thread may not take the CPU. */
__noinline u64 runs_ahead(struct task_struct *p __arg_trusted, u32 cpu, u32 tenant_id, u64 tag)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_tenant *tenant;
	struct fair_ctx *f;
	u64 next;

	if (!c || !c->offer.gives_way || c->role.housekeeping || c->role.exclusive)
		return 0;
	if (c->turn.level == ROTA_LEVEL_BACKGROUND)
		return may_run_on(p, cpu) ? ROTA_NEVER : 0;
	if (c->turn.level != ROTA_LEVEL_SHARED || c->fair.served == tenant_id || !may_run_on(p, cpu))
		return 0;
	tenant = tenant_of(c->fair.served);
	f = fair_ctx(c->fair.served);
	if (!tenant || !f)
		return 0;
	next = f->clock + f->booked - c->fair.booked - weighted(tenant, ROTA_FAIR_SLICE_NS);
	return vtime_before(tag, next) ? next - tag : 0;
}

/*
 * A CPU of the domain that serves the tenant furthest ahead there, from this one's place on; ROTA_NONE: none is known.
 * One that no longer does is not looked at again.
 */
static __always_inline u32 fair_hint(struct cpu_ctx *own, u32 domain)
{
	struct fair_domain *d = fair_domain(domain);
	u32 ahead = d ? d->ahead : ROTA_NONE;
	struct fair_place *place = fair_place(domain, ahead);
	u64 seen = place ? place->gives_way : 0;
	struct cpu_ctx *c;
	u32 seat;

	if (!d || !seen)
		return ROTA_NONE;
	seat = __builtin_ctzll(seen & -own->role.bit ?: seen);
	barrier_var(seat); /* the compiler knows that it is small, the verifier does not */
	c = cpu_ctx(d->cpus[seat % ROTA_FAIR_BITS]);
	if (!c)
		return ROTA_NONE;
	if (c->offer.gives_way && c->fair.served == ahead)
		return c->role.number;
	fair_shows(c, place, false);
	return ROTA_NONE;
}

/* The CPU to look at after `i` others for one that gives way, `cpu` first; ROTA_NONE: none. */
__noinline u32 fair_candidate(u32 cpu, u32 i)
{
	struct cpu_ctx *own = cpu_ctx(cpu);

	if (!i || !own)
		return cpu;
	if (i > FAIR_HINTS)
		return own->fair.sampled = (own->fair.sampled + 1) % nr_host_cpus;
	return fair_hint(own, (own->role.domain + i - 1) % (settings.nr_domains ?: 1));
}

/*
 * A CPU that a thread with this tag may take from another tenant, and that nobody else takes: its own, the one that
 * its domain or another one knows to be furthest ahead, or one of a few others.
 */
__noinline u32 fair_victim(struct task_struct *p __arg_trusted, u32 cpu, u32 tenant_id, u64 tag)
{
	u32 i, found = ROTA_NONE;
	struct cpu_ctx *c;
	u64 most = 0;

	bpf_for (i, 0, 1 + FAIR_HINTS + FAIR_SAMPLES) {
		u32 other = fair_candidate(cpu, i);
		u64 ahead = other == ROTA_NONE ? 0 : runs_ahead(p, other, tenant_id, tag);

		if (ahead <= most)
			continue;
		most = ahead;
		found = other;
		if (!i)
			break;
	}
	c = cpu_ctx(found);
	if (!c || !__sync_lock_test_and_set(&c->offer.gives_way, 0))
		return ROTA_NONE;
	fair_shows(c, fair_place(c->role.domain, c->fair.served), false);
	return found;
}

#endif /* ROTA_YIELD_BPF_H */
