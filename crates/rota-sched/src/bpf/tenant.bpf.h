/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which tenant a task belongs to, and which queue it waits in.
 *
 * A task's cgroup decides: the nearest ancestor that the loader has bound to a tenant. The answer is kept with the task
 * and holds until the task moves to another cgroup (seen by the cgroup's id, so that no controller needs to be on) or
 * the bindings change (live.membership_epoch).
 */
#ifndef ROTA_TENANT_BPF_H
#define ROTA_TENANT_BPF_H

#include "events.bpf.h"
#include "siblings.bpf.h"

static __always_inline u64 cgroup_of(struct task_struct *p)
{
	return p->cgroups->dfl_cgrp->kn->id;
}

/*
 * The nearest of a task's cgroups at which a tenant may be. However deep a tenant nests cgroups of its own, its tasks
 * stay its own.
 */
static __always_inline struct cgroup *nearest_cgroup(struct task_struct *p)
{
	u64 at = bpf_core_field_offset(struct cgroup, ancestors) + (ROTA_CGROUP_DEPTH - 1) * sizeof(struct cgroup *);
	struct cgroup *cgroup = BPF_CORE_READ(p, cgroups, dfl_cgrp), *ancestor = NULL;

	if (!cgroup || BPF_CORE_READ(cgroup, level) < ROTA_CGROUP_DEPTH)
		return cgroup;
	bpf_probe_read_kernel(&ancestor, sizeof(ancestor), (void *)cgroup + at);
	return ancestor;
}

__noinline u32 find_tenant(struct task_struct *p __arg_trusted)
{
	struct cgroup *cgroup = nearest_cgroup(p);
	int depth;

	bpf_for (depth, 0, ROTA_CGROUP_DEPTH) {
		struct rota_tenant *tenant;
		u32 *number;
		u64 id;

		if (!cgroup)
			break;
		id = BPF_CORE_READ(cgroup, kn, id);
		number = bpf_map_lookup_elem(&cgroups, &id);
		tenant = number ? tenant_of(*number) : NULL;
		if (tenant && tenant->class != ROTA_CLASS_NONE)
			return *number;
		cgroup = BPF_CORE_READ(cgroup, self.parent, cgroup);
	}
	return SYSTEM_TENANT;
}

/*
 * A VM's thread that is no vCPU is the tenant's that has the monitor's threads. Where that tenant is gone, or is a VM,
 * the thread stays the VM's.
 */
static __always_inline void count_to_monitor(struct rota_tenant *vm, struct membership *m)
{
	struct rota_tenant *monitor = tenant_of(vm->monitor);

	if (!monitor || monitor->class == ROTA_CLASS_NONE || monitor->kind == ROTA_KIND_VM)
		return;
	m->tenant = vm->monitor;
	m->queue = monitor->first_queue;
}

/* Decides where a task belongs: its tenant's one queue, or a VM's queue of its own or for the monitor's threads. */
static __always_inline void classify(struct task_struct *p, struct membership *m)
{
	struct rota_vcpu_thread *thread;
	struct rota_tenant *tenant;
	u32 tid = p->pid;

	m->tenant = find_tenant(p);
	m->vcpu = ROTA_NONE;
	m->queue = SYSTEM_QUEUE;
	tenant = tenant_of(m->tenant);
	if (!tenant)
		return;
	m->queue = tenant->first_queue;
	if (tenant->kind != ROTA_KIND_VM)
		return;
	thread = bpf_map_lookup_elem(&vcpu_threads, &tid);
	if (!thread || thread->tenant != m->tenant || thread->index >= tenant->nr_vcpus) {
		count_to_monitor(tenant, m);
		return;
	}
	m->vcpu = thread->index;
	m->queue += 1 + thread->index;
}

/* The one vCPU that serves a task that is vCPU `vcpu` of a VM, or none; ROTA_NONE if several may. */
static __always_inline u32 sole_vcpu(struct rota_tenant *tenant, u32 vcpu)
{
	if (vcpu != ROTA_NONE)
		return vcpu;
	return tenant->nr_vcpus == 1 ? 0 : ROTA_NONE;
}

/* Whether the task's present queue no longer counts it; settles what was left half-way when a CPU took it meanwhile. */
static __always_inline bool has_left(struct task_ctx *t, u64 now)
{
	u32 left = t->left ? __sync_lock_test_and_set(&t->left, 0) : 0;

	if (!left || left == t->m.queue + 1)
		return left;
	queue_gains_thread(left - 1, now);
	return false;
}

/* Moves the task's counts to where it belongs now. */
__noinline int move_membership(struct task_struct *p __arg_trusted, u64 now)
{
	struct task_ctx *t = task_ctx(p);
	struct membership m;
	struct queue_ctx *q;
	u32 epoch;
	u64 cgroup;
	bool left;

	if (!t)
		return 0;
	epoch = live.membership_epoch;
	cgroup = cgroup_of(p);
	classify(p, &m);
	t->cgroup = cgroup;
	t->epoch = epoch;
	left = has_left(t, now);
	if ((m.queue != t->m.queue || left) && t->counted) {
		if (!left)
			queue_loses_thread(t->m.queue, t->running, now);
		if (queue_gains_thread(m.queue, now))
			fair_joins(scx_bpf_task_cpu(p), m.tenant);
		if (t->running)
			queue_gains_service(m.queue, m.tenant, now);
	}
	/* What it used among others says nothing of its place here. */
	q = m.queue != t->m.queue ? siblings_of(&m) : NULL;
	if (q) {
		t->vtime = q->vtime;
		t->turn_ns = ROTA_QUANTUM_NS;
	}
	t->m = m;
	return 0;
}

/* A thread would run from now on: its queue counts it. */
static __always_inline void becomes_runnable(struct task_struct *p, struct task_ctx *t, u64 now)
{
	if (t->counted)
		return;
	t->counted = true;
	on_wants(p, t, now);
}

/* Where the task belongs is up to date from now on. */
static __always_inline void settle_membership(struct task_struct *p, struct task_ctx *t, u64 now)
{
	if (t->epoch != live.membership_epoch || t->cgroup != cgroup_of(p) || t->left)
		move_membership(p, now);
}

/* Kernel threads that can run nowhere else: at once, and what they take is counted as lost. */
static __always_inline bool is_bound_kernel_thread(struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

#endif /* ROTA_TENANT_BPF_H */
