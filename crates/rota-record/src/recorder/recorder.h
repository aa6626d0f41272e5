/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the recorder's BPF program and its reader share. The reader's mirror is in mod.rs, which compares the
 * sizes.
 */
#ifndef ROTA_RECORDER_H
#define ROTA_RECORDER_H

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

#define NAME_BYTES 16
#define MASK_WORDS 64 /* of a thread's CPUs: 4,096 */

enum kind { SWITCH = 1, WAKING, WOKEN, STARTS, RUNS, THREAD };

/* Why a thread leaves its CPU. */
enum how { PREEMPTED, WAITS, WAITS_FOR_DEVICE, EXITS };

/* In the place of a waker's thread id. */
#define BY_TIMER   (-1)
#define BY_OUTSIDE (-2)

/* Something that happened. */
struct event {
	__u64 at_ns;
	__u32 kind;
	__u32 cpu;
	__s32 tid;   /* SWITCH: who leaves; 0: nobody does */
	__s32 other; /* SWITCH: who comes; WAKING, STARTS: by whom */
	__u32 how;
	__u32 padding;
};

/* A thread that was not seen before, or has changed its cgroup or its name since. */
struct thread {
	struct event event;
	__u64 cgroup;
	char name[NAME_BYTES];
	__u32 is_kernel;
	__u32 policy;
	__s32 static_prio;
	__u32 rt_priority;
	__u32 nr_cpus;
	__u32 padding;
	__u64 cpus[MASK_WORDS];
};

_Static_assert(sizeof(struct event) == 32, "the reader's mirror has this size");
_Static_assert(sizeof(struct thread) == 80 + 8 * MASK_WORDS, "the reader's mirror has this size");

#endif
