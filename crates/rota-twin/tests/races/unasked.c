/* SPDX-License-Identifier: GPL-2.0-only */
/* Calls of the kernel's that do nothing in the explorer's scenes, or must not be made there. */
#include <stdlib.h>

/* The kernel's header has these for itself. */
#undef NULL
#undef __always_inline
#include "kernel.bpf.h"

void scx_bpf_error_bstr(char *format, unsigned long long *data, u32 size)
{
	exit(1);
}
void scx_bpf_exit_bstr(s64 code, char *format, unsigned long long *data, u32 size)
{
	exit(1);
}
void bpf_cpumask_release(struct bpf_cpumask *mask)
{
}
void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask)
{
}
bool bpf_cpumask_and(struct bpf_cpumask *both, const struct cpumask *a, const struct cpumask *b)
{
	return true;
}
bool bpf_cpumask_subset(const struct cpumask *part, const struct cpumask *whole)
{
	return true;
}
bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b)
{
	return true;
}
u32 bpf_cpumask_any_and_distribute(const struct cpumask *a, const struct cpumask *b)
{
	return 0;
}
void scx_bpf_put_cpumask(const struct cpumask *mask)
{
}
void scx_bpf_put_idle_cpumask(const struct cpumask *mask)
{
}
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it)
{
}
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime)
{
}
void bpf_rcu_read_lock(void)
{
}
void bpf_rcu_read_unlock(void)
{
}
void bpf_preempt_disable(void)
{
}
void bpf_preempt_enable(void)
{
}
long bpf_perf_event_read(void *map, u64 flags)
{
	return -1;
}
long bpf_get_branch_snapshot(void *entries, u32 size, u64 flags)
{
	return -1;
}
long bpf_probe_read_kernel_str(void *to, u32 size, const void *from)
{
	return 0;
}
