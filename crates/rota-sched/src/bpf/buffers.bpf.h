/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where tables lie: two buffers, and each CPU's part of both.
 */
#ifndef ROTA_BUFFERS_BPF_H
#define ROTA_BUFFERS_BPF_H

#include "kernel.bpf.h"
#include "shared.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ROTA_NR_BUFFERS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(u32));
	__uint(value_size, ROTA_TABLE_ALIGN); /* set to table_bytes by the loader */
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ROTA_NR_BUFFERS); /* times nr_host_cpus, set by the loader */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct rota_cpu_view);
} views SEC(".maps");

/* Times of CLOCK_MONOTONIC: they do not wrap, and ROTA_NEVER is the last of them. */
static __always_inline u64 max_time(u64 a, u64 b)
{
	return a < b ? b : a;
}

static __always_inline u64 min_time(u64 a, u64 b)
{
	return a < b ? a : b;
}

#endif /* ROTA_BUFFERS_BPF_H */
