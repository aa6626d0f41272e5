/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What crosses the border between the guest's scheduler and the program that loads it. crates/rota-agent/src/shared.rs
 * mirrors this file, and both say how large each structure is.
 */
#ifndef ROTA_GUEST_LIVE_H
#define ROTA_GUEST_LIVE_H

#include "shared.h"

/* CPU numbers of a guest are below this. */
#define GUEST_CPUS_MAX 1024

/* Load-time settings. */
struct guest_settings {
	__u32 nr_cpus;	   /* the highest CPU number + 1 */
	__u32 table_bytes; /* of one buffer */
	__u64 online[GUEST_CPUS_MAX / 64];
};

/* What loader and scheduler both touch while it runs. Times in tables are the host's. */
struct guest_live {
	struct rota_table_ref tables[ROTA_NR_BUFFERS];
	__s64 offset_ns;	      /* the host's CLOCK_MONOTONIC less the guest's */
	__u32 stolen[GUEST_CPUS_MAX]; /* of each CPU's time of late, in thousandths: what the kernel shows as steal */
};

/* Of one CPU, since the scheduler began. */
struct guest_account {
	__u64 left;	  /* slot ends before which the running thread was off the CPU, or all threads were */
	__u64 caught;	  /* slot ends at which one still ran that could have been moved */
	__u64 strays;	  /* threads that began to run where the CPU was stopped, or about to be */
	__u64 moved;	  /* threads that went elsewhere since their own CPU was stopped, or about to be */
	__u64 back;	  /* threads that came back to their own CPU */
	__u64 distrusted; /* times that slots began late too often, and the timetable was not believed for a while */
	__u64 spins;	  /* times that a thread waited busily, and gave way */
};

_Static_assert(sizeof(struct guest_settings) == 136, "settings size");
_Static_assert(sizeof(struct guest_live) == 4136, "live size");
_Static_assert(sizeof(struct guest_account) == 56, "account size");

#endif /* ROTA_GUEST_LIVE_H */
