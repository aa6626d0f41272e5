/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler goes on when the daemon has ended, and waits for the next one. If none comes it hands the machine back
 * to the kernel: a promise that nobody looks after is none.
 *
 * The daemon is alive while it writes new times into live.alive_ns. Looks are counted, not time: after the machine was
 * suspended, the daemon has until the next look.
 */
#ifndef ROTA_GRACE_BPF_H
#define ROTA_GRACE_BPF_H

#include "state.bpf.h"

/* So many looks in the grace time. */
#define GRACE_LOOKS 8

struct grace {
	struct bpf_timer timer;
	u64 seen;  /* of live.alive_ns */
	u32 looks; /* in vain, one after the other */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct grace);
} graces SEC(".maps");

static __always_inline int looks_for_daemon(struct grace *grace)
{
	u64 at = bpf_ktime_get_ns() + live.grace_ns / GRACE_LOOKS;

	return bpf_timer_start(&grace->timer, at, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN);
}

static int grace_timer(void *map, u32 *key, struct grace *grace)
{
	u64 alive = live.alive_ns;

	grace->looks = alive == grace->seen ? grace->looks + 1 : 0;
	grace->seen = alive;
	if (grace->looks >= GRACE_LOOKS)
		scx_end(ROTA_EXIT_ABANDONED, "no daemon has come back within the grace time");
	else
		looks_for_daemon(grace);
	return 0;
}

/* Without a grace time the scheduler ends with the daemon. */
static __always_inline s32 begin_grace(void)
{
	u32 zero = 0;
	struct grace *grace = bpf_map_lookup_elem(&graces, &zero);
	s32 error;

	if (!grace)
		return -EINVAL;
	if (!live.grace_ns)
		return 0;
	error = bpf_timer_init(&grace->timer, &graces, CLOCK_MONOTONIC);
	error = error ?: bpf_timer_set_callback(&grace->timer, grace_timer);
	return error ?: looks_for_daemon(grace);
}

#endif /* ROTA_GRACE_BPF_H */
