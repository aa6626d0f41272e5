/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A *sample*: for some tens of ms no shared or background tenant but one is served, so that it is seen how that one
 * gets on alone. The rest is held off. Slots, reserved tenants, the system and the floor go on as ever. The loader says
 * until when, and nobody needs to end it.
 *
 * What was held off is made good by clocks alone. That of the tenant goes on as it is served, and the system's virtual
 * time stands meanwhile. So afterwards all others are behind it, by what it had, and none is forgiven anything.
 */
#ifndef ROTA_SAMPLE_BPF_H
#define ROTA_SAMPLE_BPF_H

#include "state.bpf.h"

/* Tasks of a line that are looked at in a sample: the tenant's may be behind those of many others. */
#define SAMPLE_LOOKS 256

static __always_inline bool is_sampled(u64 now)
{
	return now < live.sample_until_ns;
}

/* Whether a shared or background tenant is not to be served now. */
static __always_inline bool is_held_off(u32 tenant, u64 now)
{
	return is_sampled(now) && tenant != live.sample_tenant;
}

/* The same where the time is not known. */
static __always_inline bool is_held_off_now(u32 tenant)
{
	return live.sample_until_ns && is_held_off(tenant, bpf_ktime_get_ns());
}

#endif /* ROTA_SAMPLE_BPF_H */
