/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Virtual times, as numbers alone: no map, no call of the kernel, so that crates/rota-sched/tests/clock runs this text.
 *
 * A virtual time is service divided by weight. It starts anywhere, and wraps: of two times that are less than half of
 * all numbers apart, the one a little before zero is before zero.
 */
#ifndef ROTA_CLOCK_BPF_H
#define ROTA_CLOCK_BPF_H

#include "shared.h"

static __always_inline bool vtime_before(__u64 a, __u64 b)
{
	return (__s64)(a - b) < 0;
}

static __always_inline __u64 max_vtime(__u64 a, __u64 b)
{
	return vtime_before(a, b) ? b : a;
}

static __always_inline __u64 min_vtime(__u64 a, __u64 b)
{
	return vtime_before(a, b) ? a : b;
}

/* So much service, at a weight above 0: ROTA_WEIGHT_ONE leaves it as it is. */
static __always_inline __u64 vtime_of(__u64 ns, __u64 weight)
{
	return ns * ROTA_WEIGHT_ONE / weight;
}

/* The time nearest to `at` that is no further behind the reference, and no further ahead of it, than so much. */
static __always_inline __u64 vtime_within(__u64 at, __u64 reference, __u64 behind, __u64 ahead)
{
	return max_vtime(min_vtime(reference + ahead, at), reference - behind);
}

#endif /* ROTA_CLOCK_BPF_H */
