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

#include "state.bpf.h"

static __always_inline u32 tenant_of_cgroup(struct cgroup *cgroup)
{
	int depth;

	bpf_for(depth, 0, ROTA_CGROUP_DEPTH) {
		u64 id;
		u32 *tenant;

		if (!cgroup)
			break;
		id = BPF_CORE_READ(cgroup, kn, id);
		tenant = bpf_map_lookup_elem(&cgroups, &id);
		if (tenant)
			return *tenant;
		cgroup = BPF_CORE_READ(cgroup, self.parent, cgroup);
	}
	return SYSTEM_TENANT;
}

/* The queue of a task of `tenant`; its vCPU number if it is a vCPU thread. */
static __always_inline u32 queue_of(struct task_struct *p, u32 tenant_id, struct rota_tenant *tenant, u32 *vcpu)
{
	struct rota_vcpu_thread *thread;
	u32 tid = p->pid;

	*vcpu = ROTA_NONE;
	if (tenant->kind != ROTA_KIND_VM)
		return tenant->first_queue;
	thread = bpf_map_lookup_elem(&vcpu_threads, &tid);
	if (!thread || thread->tenant != tenant_id || thread->index >= tenant->nr_vcpus)
		return tenant->first_queue;
	*vcpu = thread->index;
	return tenant->first_queue + 1 + thread->index;
}

static __always_inline bool task_is_stale(struct task_struct *p, struct task_ctx *t)
{
	return t->epoch != live.membership_epoch || t->cgroup != BPF_CORE_READ(p, cgroups, dfl_cgrp, kn, id);
}

/* Decides anew where the task belongs. Its counts stay where they are: the caller moves them. */
static __noinline u32 classify(struct task_struct *p, struct task_ctx *t)
{
	struct cgroup *cgroup;
	struct rota_tenant *tenant;
	u32 epoch = live.membership_epoch, id, vcpu = ROTA_NONE, queue = SYSTEM_QUEUE;

	if (!p || !t)
		return SYSTEM_QUEUE;
	cgroup = BPF_CORE_READ(p, cgroups, dfl_cgrp);
	t->cgroup = BPF_CORE_READ(cgroup, kn, id);
	id = tenant_of_cgroup(cgroup);
	tenant = tenant_of(id);
	if (!tenant || tenant->class == ROTA_CLASS_NONE) {
		id = SYSTEM_TENANT;
		tenant = tenant_of(id);
	}
	if (tenant)
		queue = queue_of(p, id, tenant, &vcpu);
	t->tenant = id;
	t->vcpu = vcpu;
	t->epoch = epoch;
	return queue;
}

/* The CPU that the table gives to the task's vCPU first; ROTA_NONE if the task has no one vCPU with slots. */
static __always_inline u32 sole_vcpu(struct rota_tenant *tenant, struct task_ctx *t)
{
	if (t->vcpu != ROTA_NONE)
		return t->vcpu;
	return tenant->nr_vcpus == 1 ? 0 : ROTA_NONE;
}

#endif /* ROTA_TENANT_BPF_H */
