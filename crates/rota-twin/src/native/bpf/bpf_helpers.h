/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What libbpf's header of this name gives to BPF programs, for the same programs compiled for this machine.
 * kernel.bpf.h includes it; what that declares as calls of the kernel, the model provides (src/rota/calls.rs).
 */
#ifndef ROTA_NATIVE_BPF_HELPERS_H
#define ROTA_NATIVE_BPF_HELPERS_H

#define SEC(name)
#define __always_inline inline __attribute__((always_inline))
#define __hidden
#define __kptr
#define __arg_trusted
#define __arg_nonnull
#define __ksym
/* Not weak: a call that the model lacks is found when the simulator is linked. */
#define __weak

/* The model is the newest kernel, on x86-64. */
#define NATIVE_HAS_orig_ax		   true
#define NATIVE_HAS_syscallno		   false
#define NATIVE_HAS_rcu_read_unlock_special true
/* Guests have no real-time threads. */
#define NATIVE_HAS_prio				false
#define bpf_ksym_exists(call)			true
#define bpf_core_type_exists(type)		true
#define bpf_core_field_exists(type, field)	NATIVE_HAS_##field
#define bpf_core_enum_value_exists(type, value) true
#define bpf_core_enum_value(type, value)	(value)

#define barrier_var(var) asm volatile("" : "+r"(var))

/* As in BPF, the bounds are read once, and the variable keeps its last value. */
#define bpf_for(i, start, end)                                                                                         \
	for (int i##_next = (start), i##_end = (end); i##_next < i##_end && ((i) = i##_next, true); i##_next++)

/* A map's definition is its type; at run time the variable holds where its values are (enum native_map_kind). */
#define __uint(name, value) int(*name)[value] NATIVE_BESIDE_##name
#define __type(name, value) typeof(value) *name
#define NATIVE_BESIDE_type
#define NATIVE_BESIDE_max_entries
#define NATIVE_BESIDE_map_flags
#define NATIVE_BESIDE_key_size
/* Values whose size only the loader knows have none here. */
#define NATIVE_BESIDE_value_size , (*value)[0]

struct native_map {
	u8 *values;
	u32 entries;
	u32 value_size;
};

#define NATIVE_MAP_TYPE(map) (sizeof(*(map)->type) / sizeof(int))

/* A size that is known here costs no multiplication. */
static __always_inline void *native_array_at(const void *map, u32 index, u64 size)
{
	const struct native_map *array = map;

	if (index >= array->entries)
		return NULL;
	__builtin_assume(array->values != NULL);
	return array->values + index * (size ? (size + 7) / 8 * 8 : array->value_size);
}

void *native_hash_find(const void *map, const void *key);

#define bpf_map_lookup_elem(map, key)                                                                                  \
	(NATIVE_MAP_TYPE(map) == BPF_MAP_TYPE_ARRAY ? native_array_at(map, *(const u32 *)(key), sizeof(*(map)->value)) \
						    : native_hash_find(map, key))

struct task_struct;
struct bpf_timer;

struct task_struct *bpf_get_current_task_btf(void);
long bpf_timer_init(struct bpf_timer *timer, void *map, u64 flags);
long bpf_timer_set_callback(struct bpf_timer *timer, void *callback);
long bpf_timer_start(struct bpf_timer *timer, u64 at, u64 flags);
long bpf_perf_event_read(void *map, u64 flags);
long bpf_get_branch_snapshot(void *entries, u32 size, u64 flags);
long bpf_probe_read_kernel_str(void *to, u32 size, const void *from);
void *native_cpustat(u32 cpu);

/* A task's registers are behind that. */
#define bpf_task_pt_regs(task) ((u64)(task) + sizeof(struct task_struct) + sizeof(void *))

/* The only variable of each CPU is the kernel's account of its time. */
#define bpf_per_cpu_ptr(variable, cpu) ((const typeof(*(variable)) *)native_cpustat(cpu))

#define bpf_kptr_xchg(kptr, value) __sync_lock_test_and_set(kptr, value)

/* tests/races has CPUs act at once, and its own of what is there. */
#ifndef ROTA_NATIVE_CPUS_AT_ONCE
#include "one_cpu.h"
#endif

#endif /* ROTA_NATIVE_BPF_HELPERS_H */
