/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel as this scheduler sees it: every type, constant and call that it uses, and nothing else. Types name only
 * the fields read here; libbpf finds their true offsets in the running kernel's BTF. Where kernels differ, the
 * difference is settled in this file by asking the kernel what it has.
 *
 * A simulator that provides what is declared here can run the scheduler; so keep the list short.
 */
#ifndef ROTA_KERNEL_BPF_H
#define ROTA_KERNEL_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
typedef _Bool bool;
#define true  1
#define false 0
#define NULL  ((void *)0)
#define ROTA_NO_LINUX_TYPES

/* From linux/bpf.h. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum {
	BPF_ANY = 0,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_F_TIMER_ABS = 1,
	BPF_F_TIMER_CPU_PIN = 2,
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define CLOCK_MONOTONIC 1
#define PF_KTHREAD	0x00200000
#define EAGAIN		11
#define EINVAL		22
#define ENOMEM		12

struct bpf_timer {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

struct bpf_spin_lock {
	__u32 val;
};

struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

struct bpf_iter_scx_dsq {
	u64 __opaque[6];
} __attribute__((aligned(8)));

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Opaque here, but named in calls: libbpf wants definitions for those. */
struct cpumask {
	unsigned long bits[1];
};
typedef struct cpumask cpumask_t;

struct bpf_cpumask {
	cpumask_t cpumask;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	int level;
	struct cgroup *ancestors[];
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
};

/* What a thread owes RCU when it leaves a read section. */
union rcu_special {
	struct {
		u8 blocked; /* it was stopped in there */
	} b;
};

struct task_struct {
	u32 flags;
	__u16 migration_disabled;
	union rcu_special rcu_read_unlock_special;
	int nr_cpus_allowed;
	u32 __state;
	const cpumask_t *cpus_ptr;
	struct sched_ext_entity scx;
	s32 pid;
	s32 tgid;
	struct css_set *cgroups;
};

/* What a thread has left in its registers as it entered the kernel, on each architecture. */
struct pt_regs___x86 {
	u64 orig_ax;
	u64 r15, r14, r13, r12, r11, r10, r9, r8;
	u64 bp, bx, ax, cx, dx, si, di;
	u64 ip, sp;
};

struct pt_regs___arm64 {
	s32 syscallno;
	u64 regs[31];
	u64 sp, pc;
};

struct kernel_cpustat {
	u64 cpustat[10];
};

struct scx_init_task_args;
struct scx_exit_task_args;

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
};

struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
};

#pragma clang attribute pop

/* The operations that are implemented; libbpf fits them into the kernel's structure by name. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*update_idle)(s32 cpu, bool idle);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*disable)(struct task_struct *p);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

/* Index of interrupt, soft interrupt and steal time in kernel_cpustat: enum cpu_usage_stat. */
enum cpu_usage_stat {
	CPUTIME_SOFTIRQ = 3,
	CPUTIME_IRQ = 4,
	CPUTIME_STEAL = 7,
};

/* Of task_struct's __state. */
enum task_state {
	TASK_RUNNING = 0,
	TASK_UNINTERRUPTIBLE = 2,
	TASK_DEAD = 0x80,
};

enum scx_task_flags {
	SCX_TASK_QUEUED = 1,
};

enum scx_enq_flags {
	SCX_ENQ_IMMED = 1ULL << 33,
};

#define SCX_DSQ_LOCAL		       0x8000000000000002ULL
#define SCX_ENQ_WAKEUP		       0x1ULL
#define SCX_ENQ_PREEMPT		       (1ULL << 32)
#define SCX_ENQ_LAST		       (1ULL << 41)
#define SCX_KICK_IDLE		       1ULL
#define SCX_KICK_PREEMPT	       2ULL
#define SCX_PICK_IDLE_CORE	       1ULL
#define SCX_OPS_KEEP_BUILTIN_IDLE      1ULL
#define SCX_OPS_ENQ_LAST	       2ULL
#define SCX_OPS_ENQ_EXITING	       4ULL
#define SCX_OPS_ENQ_MIGRATION_DISABLED 16ULL

/* Calls that every supported kernel (6.16 and later) has in the same form. */
s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
s32 scx_bpf_pick_idle_cpu(const cpumask_t *allowed, u64 flags) __ksym;
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
void scx_bpf_error_bstr(char *fmt, unsigned long long *data, u32 data__sz) __ksym;
void scx_bpf_exit_bstr(s64 exit_code, char *fmt, unsigned long long *data, u32 data__sz) __ksym;
struct bpf_cpumask *bpf_cpumask_create(void) __ksym;
void bpf_cpumask_release(struct bpf_cpumask *mask) __ksym;
void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask) __ksym;
bool bpf_cpumask_and(struct bpf_cpumask *both, const struct cpumask *a, const struct cpumask *b) __ksym;
bool bpf_cpumask_subset(const struct cpumask *part, const struct cpumask *whole) __ksym;
bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b) __ksym;
u32 bpf_cpumask_any_and_distribute(const struct cpumask *a, const struct cpumask *b) __ksym;
const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
const struct cpumask *scx_bpf_get_idle_cpumask(void) __ksym;
void scx_bpf_put_idle_cpumask(const struct cpumask *mask) __ksym;
void scx_bpf_put_cpumask(const struct cpumask *mask) __ksym;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym;
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym;
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
void bpf_preempt_disable(void) __ksym;
void bpf_preempt_enable(void) __ksym;

/* Per-CPU times of the kernel's own accounting: interrupts, soft interrupts, steal. */
extern const struct kernel_cpustat kernel_cpustat __ksym __weak;

/* Calls whose form changed: 6.19 returns a success and packs arguments, 7.1 adds flags to the move. */
bool scx_bpf_dsq_insert___v2___compat(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert___v1(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args) __ksym __weak;
void scx_bpf_dsq_insert_vtime___v1(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
				   u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_to_local___v2(u64 dsq_id, u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_to_local___v1(u64 dsq_id) __ksym __weak;
bool scx_bpf_task_set_slice___v2(struct task_struct *p, u64 slice) __ksym __weak;

/* From 6.19 on. Before, it may be called only while a CPU is taken away, from an operation that newer kernels drop. */
void scx_bpf_reenqueue_local___v2___compat(void) __ksym __weak;

static __always_inline void scx_insert(struct task_struct *p, u64 dsq, u64 slice, u64 enq_flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2___compat))
		scx_bpf_dsq_insert___v2___compat(p, dsq, slice, enq_flags);
	else
		scx_bpf_dsq_insert___v1(p, dsq, slice, enq_flags);
}

static __always_inline void scx_insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime, u64 enq_flags)
{
	if (bpf_core_type_exists(struct scx_bpf_dsq_insert_vtime_args)) {
		struct scx_bpf_dsq_insert_vtime_args args = {
			.dsq_id = dsq,
			.slice = slice,
			.vtime = vtime,
			.enq_flags = enq_flags,
		};

		__scx_bpf_dsq_insert_vtime(p, &args);
	} else {
		scx_bpf_dsq_insert_vtime___v1(p, dsq, slice, vtime, enq_flags);
	}
}

static __always_inline bool scx_move_to_local(u64 dsq)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2))
		return scx_bpf_dsq_move_to_local___v2(dsq, 0);
	return scx_bpf_dsq_move_to_local___v1(dsq);
}

static __always_inline void scx_set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice___v2))
		scx_bpf_task_set_slice___v2(p, slice);
	else
		p->scx.slice = slice;
}

/* What waits in this CPU's own queue comes through enqueue again in a moment. Whether the kernel can do that. */
static __always_inline bool scx_reenqueue_local(void)
{
	if (!bpf_ksym_exists(scx_bpf_reenqueue_local___v2___compat))
		return false;
	scx_bpf_reenqueue_local___v2___compat();
	return true;
}

/* Whether the task has to stay on its CPU for a moment. While a BPF program runs, this holds its own task once more. */
static __always_inline bool is_held(struct task_struct *p)
{
	return p->migration_disabled > (p == bpf_get_current_task_btf());
}

/* Whether the kernel's mask of idle CPUs has the CPU, and nobody has picked it. */
static __always_inline bool scx_cpu_idles(u32 cpu)
{
	const struct cpumask *mask = scx_bpf_get_idle_cpumask();
	bool idles = bpf_cpumask_test_cpu(cpu, mask);

	scx_bpf_put_idle_cpumask(mask);
	return idles;
}

/* Into a CPU's own queue only to run there at once: what another class is before comes through enqueue. Since 7.1. */
static __always_inline u64 scx_enq_immediately(void)
{
	return bpf_core_enum_value_exists(enum scx_enq_flags, SCX_ENQ_IMMED)
		       ? bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_IMMED)
		       : 0;
}

/* The number of the system call that a thread is in; negative in a fault or interrupt. */
static __always_inline s32 syscall_of(struct task_struct *p)
{
	const void *registers = (const void *)bpf_task_pt_regs(p);

	if (bpf_core_field_exists(struct pt_regs___x86, orig_ax))
		return (s32)((const struct pt_regs___x86 *)registers)->orig_ax;
	return ((const struct pt_regs___arm64 *)registers)->syscallno;
}

/*
 * Whether the thread was stopped inside of a read section of RCU. Until it leaves that, no grace period of the host
 * ends, and after 21 s the kernel ends the scheduler. Kernels whose sections cannot be interrupted have no such field.
 */
static __always_inline bool blocks_rcu(const struct task_struct *p)
{
	return bpf_core_field_exists(struct task_struct, rcu_read_unlock_special) &&
	       p->rcu_read_unlock_special.b.blocked;
}

/* Where in its program a thread is that an interrupt found there. */
static __always_inline u64 user_ip(struct task_struct *p)
{
	const void *registers = (const void *)bpf_task_pt_regs(p);

	if (bpf_core_field_exists(struct pt_regs___x86, orig_ax))
		return ((const struct pt_regs___x86 *)registers)->ip;
	return ((const struct pt_regs___arm64 *)registers)->pc;
}

static __always_inline u64 mix_register(u64 hash, u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

/* A hash of the integer registers with which an interrupt found a thread in its program, without where it was there. */
static __always_inline u64 user_registers(struct task_struct *p)
{
	const void *registers = (const void *)bpf_task_pt_regs(p);
	u64 hash = 0;
	u32 i;

	if (bpf_core_field_exists(struct pt_regs___x86, orig_ax)) {
		const struct pt_regs___x86 *x86 = registers;

		hash = mix_register(mix_register(mix_register(hash, x86->ax), x86->bx), x86->cx);
		hash = mix_register(mix_register(mix_register(hash, x86->dx), x86->si), x86->di);
		hash = mix_register(mix_register(mix_register(hash, x86->bp), x86->sp), x86->r8);
		hash = mix_register(mix_register(mix_register(hash, x86->r9), x86->r10), x86->r11);
		hash = mix_register(mix_register(mix_register(hash, x86->r12), x86->r13), x86->r14);
		return mix_register(hash, x86->r15);
	}
	for (i = 0; i < 31; i++)
		hash = mix_register(hash, ((const struct pt_regs___arm64 *)registers)->regs[i]);
	return mix_register(hash, ((const struct pt_regs___arm64 *)registers)->sp);
}

/* Whether the kernel's numbers of system calls are those of arm64, which most architectures share. */
static __always_inline bool has_generic_syscalls(void)
{
	return bpf_core_field_exists(struct pt_regs___arm64, syscallno);
}

/* Ends the scheduler with a reason; the kernel's own takes over. For broken invariants only. */
#define scx_fail(text, value)                                                                                          \
	({                                                                                                             \
		static char scx_fail_format[] = "rota: " text ": %llu";                                                \
		unsigned long long scx_fail_data[] = {(value)};                                                        \
		scx_bpf_error_bstr(scx_fail_format, scx_fail_data, sizeof(scx_fail_data));                             \
	})

/* Ends the scheduler in good order, with a code and a reason. */
#define scx_end(code, text)                                                                                            \
	({                                                                                                             \
		static char scx_end_format[] = text;                                                                   \
		unsigned long long scx_end_data[] = {0};                                                               \
		scx_bpf_exit_bstr(code, scx_end_format, scx_end_data, sizeof(scx_end_data));                           \
	})

#define STRUCT_OPS(name, args...)                                                                                      \
	SEC("struct_ops/" #name)                                                                                       \
	BPF_PROG(name, ##args)

#define STRUCT_OPS_SLEEPABLE(name, args...)                                                                            \
	SEC("struct_ops.s/" #name)                                                                                     \
	BPF_PROG(name, ##args)

#endif /* ROTA_KERNEL_BPF_H */
