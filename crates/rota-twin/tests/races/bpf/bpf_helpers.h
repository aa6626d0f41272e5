/* SPDX-License-Identifier: GPL-2.0-only */
/* As the simulator's, but that CPUs run at once here: locks are locks, and atomic operations are atomic. */
#define ROTA_NATIVE_CPUS_AT_ONCE
#include "../../../src/native/bpf/bpf_helpers.h"

#define __noinline __attribute__((noinline))

u64 bpf_ktime_get_ns(void);
u32 bpf_get_smp_processor_id(void);
void *bpf_task_storage_get(void *map, struct task_struct *task, void *value, u64 flags);
void bpf_spin_lock(void *lock);
void bpf_spin_unlock(void *lock);
