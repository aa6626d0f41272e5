/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What tenants without a reservation have received, by weight (docs/FAIRNESS.md).
 *
 * A tenant's *clock* is the service of all its threads, divided by its weight. CPUs count what they give by themselves
 * and add it to the clock a grain at a time, so that no two of them fight for it. What a CPU is about to give is
 * *booked*, and counts with the clock: the tag of a request is where the clock will be when all that is in service has
 * ended. The system's virtual time is the largest tag at which a request was put into service, kept per domain of CPUs.
 */
#ifndef ROTA_SHARES_BPF_H
#define ROTA_SHARES_BPF_H

#include "clock.bpf.h"
#include "sample.bpf.h"

static __always_inline struct fair_ctx *fair_ctx(u32 tenant)
{
	return bpf_map_lookup_elem(&fair, &tenant);
}

static __always_inline struct fair_domain *fair_domain(u32 domain)
{
	return bpf_map_lookup_elem(&domains, &domain);
}

static __always_inline struct fair_place *fair_place(u32 domain, u32 tenant)
{
	u32 index = domain * settings.nr_tenants + tenant;

	return tenant < settings.nr_tenants ? bpf_map_lookup_elem(&places, &index) : NULL;
}

/* How many threads of a shared tenant would run, perhaps one too many: each vCPU of a VM has a queue of its own. */
static __always_inline u32 fair_threads(const struct rota_tenant *tenant, const struct fair_ctx *f)
{
	const struct queue_ctx *q = queue_ctx(tenant->first_queue);

	return (q ? q->nr_runnable : 0) + (tenant->kind == ROTA_KIND_VM ? f->backlog : 0);
}

/* So much service, in the tenant's virtual time. */
static __always_inline u64 weighted(const struct rota_tenant *tenant, u64 ns)
{
	return vtime_of(ns, tenant->weight ?: ROTA_WEIGHT_ONE);
}

static __always_inline bool is_shared_tenant(const struct rota_tenant *tenant)
{
	return tenant && tenant->class == ROTA_CLASS_SHARED;
}

/* Puts a clock forward to `at`, if it is behind. */
static __always_inline void put_forward(u64 *clock, u64 at)
{
	u64 seen = *clock;
	int i;

	for (i = 0; i < 4 && vtime_before(seen, at); i++)
		seen = __sync_val_compare_and_swap(clock, seen, at);
}

/* The system's virtual time: that of the domain in which it is furthest. */
__noinline u64 fair_v(u32 domain)
{
	struct fair_domain *d = fair_domain(domain);
	u64 v = d ? d->v : 0;
	u32 i;

	bpf_for (i, 0, settings.nr_domains) {
		d = fair_domain(i);
		if (d && vtime_before(v, d->v))
			v = d->v;
	}
	return v;
}

/*
 * Remembers what a domain's virtual time was a while ago, and catches up with other domains, also while that time
 * stands. A tenant that weighs little, or that alone may run on a CPU, takes the time far ahead. With each reading all
 * other clocks follow, so that a tenant that comes then, with that time for a clock, does not wait for them.
 */
static __always_inline void remember(struct fair_domain *d, u32 domain, u64 now)
{
	u64 since = d->remembered;

	if (now - since > ROTA_FAIR_CREDIT_NS && __sync_val_compare_and_swap(&d->remembered, since, now) == since) {
		put_forward(&d->v, fair_v(domain));
		d->v_before = d->v_since;
		d->v_since = d->v;
	}
}

/* One of a VM's queues has a thread again; a container has one queue. Returns whether it is the first one. */
static __always_inline bool fair_gains_queue(u32 vm)
{
	struct fair_ctx *f = vm ? fair_ctx(vm) : NULL;

	return !f || !__sync_fetch_and_add(&f->backlog, 1);
}

static __always_inline void fair_loses_queue(u32 vm)
{
	struct fair_ctx *f = vm ? fair_ctx(vm) : NULL;

	if (f)
		__sync_fetch_and_sub(&f->backlog, 1);
}

/* A tenant without a runnable thread has one again: it has no claim to the time that it left. */
__noinline int fair_joins(u32 cpu, u32 tenant)
{
	struct fair_ctx *f = fair_ctx(tenant);
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (f && c && is_shared_tenant(tenant_of(tenant)))
		put_forward(&f->clock, fair_v(c->role.domain));
	return 0;
}

/*
 * Where a tenant's next request begins, as this CPU sees it: behind all that CPUs have booked for the tenant; but for
 * what this one has, which it gives back if another tenant is next, and for what it has used and not told.
 */
static __always_inline u64 fair_next(struct cpu_ctx *c, u32 tenant, struct fair_ctx *f)
{
	return f->clock + f->booked + (tenant == c->fair.lasting ? c->fair.unsettled - c->fair.booked : 0);
}

/*
 * What this CPU has used of its tenant's time goes to the clock, and so much is booked from now on. Nobody lags further
 * than the system's time of a while ago.
 */
static __always_inline void settle_clock(struct cpu_ctx *c, struct fair_ctx *f, struct fair_domain *d, u64 booked)
{
	if (f && c->fair.unsettled)
		__sync_fetch_and_add(&f->clock, c->fair.unsettled);
	if (f && booked != c->fair.booked)
		__sync_fetch_and_add(&f->booked, booked - c->fair.booked);
	if (f && d)
		put_forward(&f->clock, d->v_before);
	c->fair.unsettled = 0;
	c->fair.booked = booked;
}

/* The present tenant was served here for so long. */
static __always_inline void fair_charge(struct cpu_ctx *c, u64 used)
{
	struct rota_tenant *tenant = tenant_of(c->fair.lasting);

	if (!is_shared_tenant(tenant))
		return;
	c->fair.unsettled += weighted(tenant, used);
	if (c->fair.unsettled >= weighted(tenant, ROTA_FAIR_GRAIN_NS))
		settle_clock(c, fair_ctx(c->fair.lasting), fair_domain(c->role.domain),
			     c->fair.booked > c->fair.unsettled ? c->fair.booked - c->fair.unsettled : 0);
}

/*
 * A reserved tenant was served here for so long beyond its slots (second.bpf.h). That has a clock of its own: if it
 * gives its reservation up it owes shared tenants nothing for it.
 */
static __always_inline void second_charge(struct cpu_ctx *c, u64 used)
{
	struct rota_tenant *tenant = tenant_of(c->second.tenant);
	struct fair_ctx *f = fair_ctx(c->second.tenant);

	if (tenant && f)
		__sync_fetch_and_add(&f->second, weighted(tenant, used));
}

/* The tenant has nothing more from this CPU for now: what is left of its turn is not booked any longer. */
static __always_inline void fair_ends(struct cpu_ctx *c)
{
	if (c->fair.booked || c->fair.unsettled)
		settle_clock(c, fair_ctx(c->fair.lasting), fair_domain(c->role.domain), 0);
}

/* What is to be booked for the turn, up to a minimum slice, so that others know of it. */
static __always_inline u64 fair_turn_of(const struct cpu_ctx *c, const struct rota_tenant *tenant, u64 now)
{
	u64 turn = c->turn.until_ns > now ? min_time(c->turn.until_ns - now, ROTA_FAIR_SLICE_NS) : 0;

	return weighted(tenant, turn);
}

/* The CPU has a bit of its own in its domain from now on, as the scheduler is loaded. */
static __always_inline void fair_seat(struct cpu_ctx *c)
{
	struct fair_domain *d = fair_domain(c->role.domain);
	u32 seat = d ? d->nr_cpus++ : ROTA_FAIR_BITS;

	if (!d || seat >= ROTA_FAIR_BITS)
		return;
	d->cpus[seat] = c->role.number;
	c->role.bit = 1ULL << seat;
}

/* Whether the CPU is one of those of its domain that serve the tenant, for others to see. */
static __always_inline void fair_shows(struct cpu_ctx *c, struct fair_place *place, bool serves)
{
	if (!place || !(place->gives_way & c->role.bit) == !serves)
		return;
	if (serves)
		__sync_fetch_and_or(&place->gives_way, c->role.bit);
	else
		__sync_fetch_and_and(&place->gives_way, ~c->role.bit);
}

/*
 * A turn of the tenant that is served begins, if it is a shared one: whom to ask first to give way, and how far the
 * system's virtual time is, is put right.
 */
static __always_inline void fair_turn(struct cpu_ctx *c, const struct rota_tenant *tenant, u64 now)
{
	struct fair_domain *d = fair_domain(c->role.domain);
	struct fair_ctx *f = fair_ctx(c->fair.served), *ahead;
	struct fair_place *place;
	u64 grain, tag, booked;

	c->offer.gives_way = c->turn.level <= ROTA_LEVEL_SHARED;
	if (!d || !f || !is_shared_tenant(tenant))
		return;
	grain = weighted(tenant, ROTA_FAIR_GRAIN_NS);
	tag = fair_next(c, c->fair.served, f);
	if (!is_sampled(now)) {
		if (vtime_before(d->v + grain, tag))
			put_forward(&d->v, tag);
		remember(d, c->role.domain, now);
	}
	booked = fair_turn_of(c, tenant, now);
	if (booked + c->fair.unsettled > c->fair.booked + grain) /* unless most of it is booked still */
		settle_clock(c, f, d, booked);
	fair_shows(c, fair_place(c->role.domain, c->fair.served), c->offer.gives_way);
	if (d->ahead == c->fair.served)
		return;
	place = fair_place(c->role.domain, d->ahead);
	ahead = place && place->gives_way ? fair_ctx(d->ahead) : NULL;
	if (!ahead || vtime_before(ahead->clock + grain, f->clock))
		d->ahead = c->fair.served;
}

/* A thread of a tenant starts on a CPU. */
__noinline int fair_begins(u32 cpu, u32 tenant_id, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	bool is_shared = is_shared_tenant(tenant);
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (!c)
		return 0;
	if (!is_shared || c->fair.lasting != tenant_id)
		fair_ends(c);
	c->fair.served = ROTA_NONE;
	if (c->fair.lasting != tenant_id)
		fair_shows(c, fair_place(c->role.domain, c->fair.lasting), false);
	if (is_shared) {
		/* A thread that is changed as it runs keeps the place: its turn goes on. */
		if (!c->turn.resumes || c->fair.lasting != tenant_id)
			c->fair.served_since = now;
		c->fair.served = c->fair.lasting = tenant_id;
	}
	fair_turn(c, is_shared ? tenant : NULL, now);
	return 0;
}

#endif /* ROTA_SHARES_BPF_H */
