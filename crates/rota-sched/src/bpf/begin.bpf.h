/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU as the scheduler is loaded.
 */
#ifndef ROTA_BEGIN_BPF_H
#define ROTA_BEGIN_BPF_H

#include "pass.bpf.h"

static __always_inline s32 init_cpu(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct sampler *sampler = bpf_map_lookup_elem(&samplers, &cpu);
	struct bpf_cpumask *both;
	s32 error;

	if (!c || !sampler)
		return -EINVAL;
	both = bpf_cpumask_create();
	if (!both)
		return -ENOMEM;
	both = bpf_kptr_xchg(&c->both, both);
	if (both)
		bpf_cpumask_release(both);
	c->role.number = c->run.cpu = cpu;
	c->role.domain = cpu < ROTA_TABLE_CPUS_MAX ? settings.domain[cpu] : 0;
	fair_seat(c);
	c->role.sibling = cpu < ROTA_TABLE_CPUS_MAX ? settings.sibling[cpu] : cpu;
	c->role.housekeeping = is_housekeeping(cpu);
	c->slot.vcpu = c->slot.queue = c->slot.tenant = c->second.local = c->second.tenant = ROTA_NONE;
	c->turn.local = c->turn.picked_local = c->windows.owner = ROTA_NONE;
	c->windows.lost_since = ROTA_NEVER;
	c->claims.held = c->claims.serving = ROTA_NONE;
	c->fair.served = c->fair.lasting = ROTA_NONE;
	c->offer.dozes = 1;		 /* it may idle already */
	c->turn.line = ROTA_LINE_PINNED; /* no other line had a turn before it */
	c->turn.until_ns = c->slot.end = ROTA_NEVER;
	c->slot.buffer = ROTA_NONE;
	c->lines.background.served = c->lines.pinned.served = c->lines.shared.served = bpf_ktime_get_ns();
	error = bpf_timer_init(&c->timer, &cpus, CLOCK_MONOTONIC);
	error = error ?: bpf_timer_set_callback(&c->timer, slot_timer);
	error = error ?: bpf_timer_init(&sampler->timer, &samplers, CLOCK_MONOTONIC);
	error = error ?: scx_bpf_create_dsq(DSQ_BACKGROUND(cpu), -1);
	error = error ?: scx_bpf_create_dsq(DSQ_BOUND(cpu), -1);
	return error ?: scx_bpf_create_dsq(DSQ_PINNED(cpu), -1);
}

#endif /* ROTA_BEGIN_BPF_H */
