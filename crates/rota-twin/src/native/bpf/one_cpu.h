/* SPDX-License-Identifier: GPL-2.0-only */
/* What is simple because one CPU of the model runs at a time, and nothing interrupts it. */
#ifndef ROTA_NATIVE_ONE_CPU_H
#define ROTA_NATIVE_ONE_CPU_H

/* The kernel's verifier wants some functions for themselves; a compiler does better with a free hand. */
#define __noinline

/* When and where the operation is carried out that is being carried out: the model says so as it begins (calls.rs). */
struct native_moment {
	u64 now;
	u32 cpu;
};

struct native_moment native_moment;

static __always_inline u64 bpf_ktime_get_ns(void)
{
	return native_moment.now;
}

static __always_inline u32 bpf_get_smp_processor_id(void)
{
	return native_moment.cpu;
}

/* The address of a task's value lies behind what the kernel declares of the task; NULL if it was not made yet. */
#define bpf_task_storage_get(map, task, value, flags)                                                                  \
	((flags) ? native_storage_new(task) : *(void **)((struct task_struct *)(task) + 1))

void *native_storage_new(struct task_struct *task);

/*
 * What is one step for the kernel's CPUs is a plain read and a plain write here. A locked instruction would wait for
 * every write before it to leave the processor's buffer.
 */
#define NATIVE_CHANGE(to, changed)                                                                                     \
	({                                                                                                             \
		typeof(&*(to)) native_to = (to);                                                                       \
		typeof(*native_to) native_was = *native_to;                                                            \
		*native_to = (changed);                                                                                \
		native_was;                                                                                            \
	})
#define __sync_fetch_and_add(to, value)	      NATIVE_CHANGE(to, native_was + (value))
#define __sync_fetch_and_sub(to, value)	      NATIVE_CHANGE(to, native_was - (value))
#define __sync_fetch_and_and(to, value)	      NATIVE_CHANGE(to, native_was &(value))
#define __sync_fetch_and_or(to, value)	      NATIVE_CHANGE(to, native_was | (value))
#define __sync_lock_test_and_set(to, value)   NATIVE_CHANGE(to, value)
#define __sync_val_compare_and_swap(to, a, b) NATIVE_CHANGE(to, native_was == (a) ? (b) : native_was)

#define bpf_spin_lock(lock)   ((void)(lock))
#define bpf_spin_unlock(lock) ((void)(lock))

#endif /* ROTA_NATIVE_ONE_CPU_H */
