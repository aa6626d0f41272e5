/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * At which CPUs bound threads wait, for other CPUs to see: threads of shared tenants that may run on some of the open
 * CPUs only. Each waits at one of these, and any other of them that has less to do takes it there.
 */
#ifndef ROTA_BOUND_BPF_H
#define ROTA_BOUND_BPF_H

#include "shares.bpf.h"

/*
 * Whether bound threads wait at the CPU, for all others to see. The CPU that looks there and finds none takes the bit
 * back, and then looks at the count: a thread is counted before its waker looks at the bit.
 */
static __always_inline void shows_bound(struct cpu_ctx *c)
{
	struct fair_domain *d = fair_domain(c->role.domain);

	if (!d || !(d->bound & c->role.bit) == !c->lines.bound)
		return;
	if (!c->lines.bound)
		__sync_fetch_and_and(&d->bound, ~c->role.bit);
	if (c->lines.bound)
		__sync_fetch_and_or(&d->bound, c->role.bit);
}

/* Whether threads may wait that are bound to another CPU. */
static __always_inline bool bound_elsewhere(const struct cpu_ctx *c)
{
	u32 domain;

	for (domain = 0; domain < settings.nr_domains; domain++) {
		struct fair_domain *d = fair_domain(domain);

		if (d && (d->bound & ~(domain == c->role.domain ? c->role.bit : 0)))
			return true;
	}
	return false;
}

/* The next CPU, of all in turn, at which bound threads may wait; ROTA_NONE: there is none. */
__noinline u32 next_bound(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	u32 tries, next, domain;

	if (!c)
		return ROTA_NONE;
	next = c->fair.fetches + 1;
	for (tries = 0; tries <= settings.nr_domains; tries++) {
		struct fair_domain *d;
		u64 seen;

		domain = next / ROTA_FAIR_BITS % (settings.nr_domains ?: 1);
		d = fair_domain(domain);
		seen = d ? d->bound & (~0ULL << next % ROTA_FAIR_BITS) : 0;
		if (domain == c->role.domain)
			seen &= ~c->role.bit;
		if (seen) {
			u32 seat = __builtin_ctzll(seen);

			barrier_var(seat); /* as in fair_hint */
			c->fair.fetches = domain * ROTA_FAIR_BITS + seat;
			return d->cpus[seat % ROTA_FAIR_BITS];
		}
		next = (domain + 1) * ROTA_FAIR_BITS;
	}
	return ROTA_NONE;
}

#endif /* ROTA_BOUND_BPF_H */
