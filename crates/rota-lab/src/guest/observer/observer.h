/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the observer's BPF program and its reader share. The reader's mirror is in mod.rs, which compares the
 * sizes.
 */
#ifndef ROTA_OBSERVER_H
#define ROTA_OBSERVER_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

#define TENANTS_MAX 256
#define THREADS_MAX 16384
/* The buckets of scenario/histogram.rs: 16 to an octave, the last one for 2^40 ns and more. */
#define SUB_BITS 4
#define BUCKETS	 ((40 - SUB_BITS + 1) << SUB_BITS)

/* The verifier knows the lock by this name. */
struct bpf_spin_lock {
	__u32 val;
};

/* What one tenant's threads are doing together, and what has come of it in the window. */
struct tenant {
	struct bpf_spin_lock lock;
	__u32 running; /* its threads on a CPU */
	__u32 queued;  /* its threads runnable, and not on a CPU */
	__u32 padding;
	__u64 starved_since; /* since when it has had queued threads and no running one; 0: it has not */
	__u64 wanted_since;  /* since when it has had threads queued or running; 0: it has none */
	__u64 bound_ns;	     /* blackouts longer than this are counted; the reader sets it */
	__u64 longest_ns;
	__u64 count;
	__u64 beyond_bound;
	__u64 total_ns;
	__u64 wanted_ns;
	__u64 preempted; /* times that one of its threads left a CPU and would have gone on */
	__u64 migrated;	 /* times that one of its threads came to another CPU */
	__u64 histogram[BUCKETS];
};

/* What one CPU runs, and how long it has run what in the window. */
enum { IDLE, SYSTEM, TENANT };
struct cpu {
	__u64 since; /* when it began to run what it runs; 0: not seen yet */
	__u64 runs;  /* IDLE, SYSTEM (a thread of no tenant) or TENANT */
	__u64 idle_ns;
	__u64 system_ns;
};

/* What is observed. */
struct observation {
	__u64 start_ns;	  /* the window in CLOCK_MONOTONIC, outside of which nothing counts; both ends are 0 */
	__u64 end_ns;	  /* until the reader sets them */
	__u64 unfollowed; /* sightings of threads that could not be followed because too many were */
};

_Static_assert(sizeof(struct tenant) == 96 + 8 * BUCKETS, "the reader's mirror has this size");

#endif
