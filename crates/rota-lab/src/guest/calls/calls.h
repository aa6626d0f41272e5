/* SPDX-License-Identifier: GPL-2.0-only */
/* What the tracer's BPF program and its reader share. The reader's mirror is in mod.rs. */
#ifndef ROTA_CALLS_H
#define ROTA_CALLS_H

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

enum call { SELECT_CPU, ENQUEUE, DISPATCH, RUNNING, STOPPING, UPDATE_IDLE };

/* One call of an operation. */
struct record {
	__u32 call;
	__s32 task; /* 0: none */
	__u32 cpu;
	__u32 goes_on; /* stopping: the task would; update_idle: the CPU idles */
};

#endif
