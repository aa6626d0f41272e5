/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Virtual times: they start anywhere, and one a little before zero is before zero.
 */
#ifndef ROTA_CLOCK_BPF_H
#define ROTA_CLOCK_BPF_H

#include "state.bpf.h"

static __always_inline bool vtime_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

#endif /* ROTA_CLOCK_BPF_H */
