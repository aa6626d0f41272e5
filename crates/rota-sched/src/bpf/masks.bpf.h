/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The masks of housekeeping and open CPUs, made anew for each table.
 */
#ifndef ROTA_MASKS_BPF_H
#define ROTA_MASKS_BPF_H

#include "cpus.bpf.h"
#include "shares.bpf.h"

/* A line none of whose CPUs is open takes nobody; once one is, each tenant that waits gets a front there. */
static __always_inline void close_lines(struct bpf_cpumask *open)
{
	u32 domain, i;

	bpf_for (domain, 0, settings.nr_domains) {
		struct fair_domain *d = fair_domain(domain);
		bool was_closed, closed;

		if (!d || !d->nr_cpus)
			continue;
		closed = true;
		bpf_for (i, 0, ROTA_FAIR_BITS) {
			if (i < d->nr_cpus &&
			    bpf_cpumask_test_cpu(d->cpus[i % ROTA_FAIR_BITS], (const struct cpumask *)open))
				closed = false;
		}
		was_closed = d->closed;
		d->closed = closed;
		if (was_closed && !closed)
			d->lacks_front = ROTA_NONE;
	}
}

/*
 * Makes the masks anew, for the table of a buffer; ROTA_NONE: for none. A CPU that is offline is in neither, as it
 * would serve no thread that waits for it. When CPUs come or go the scheduler ends, and begins anew.
 */
static __always_inline s32 make_masks(u32 buffer)
{
	struct bpf_cpumask *kept = bpf_cpumask_create(), *open = bpf_cpumask_create();
	const struct cpumask *online;
	u32 cpu, count = 0;

	if (!kept || !open) {
		if (kept)
			bpf_cpumask_release(kept);
		if (open)
			bpf_cpumask_release(open);
		return -ENOMEM;
	}
	online = scx_bpf_get_online_cpumask();
	bpf_for (cpu, 0, nr_host_cpus) {
		if (!bpf_cpumask_test_cpu(cpu, online))
			continue;
		if (is_housekeeping(cpu)) {
			bpf_cpumask_set_cpu(cpu, kept);
		} else if (!is_exclusive(buffer, cpu)) {
			bpf_cpumask_set_cpu(cpu, open);
			count++;
		}
	}
	scx_bpf_put_cpumask(online);
	nr_open = count;
	close_lines(open);
	kept = bpf_kptr_xchg(&housekeeping_mask, kept);
	if (kept)
		bpf_cpumask_release(kept);
	open = bpf_kptr_xchg(&open_mask, open);
	if (open)
		bpf_cpumask_release(open);
	return 0;
}

/* The table of a buffer is in force: idle CPUs are looked for among those that no tenant has to itself in it. */
SEC("syscall")
int open_cpus(struct rota_open *arg)
{
	return make_masks(arg->buffer);
}

#endif /* ROTA_MASKS_BPF_H */
