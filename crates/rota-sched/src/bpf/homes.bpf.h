/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A vCPU's *homes*: the CPUs on which it has slots in a table.
 */
#ifndef ROTA_HOMES_BPF_H
#define ROTA_HOMES_BPF_H

#include "cpus.bpf.h"
#include "handover.bpf.h"

/* The `i`th CPU with slots of the vCPU; ROTA_NONE if the buffer is damaged. */
static __always_inline u32 home_at(u32 buffer, const struct rota_cpu_view *view, const struct rota_table_vcpu *vcpu,
				   u32 i)
{
	u32 *home = table_at(buffer, view->homes + ((u64)vcpu->first_home + i) * sizeof(u32), sizeof(u32));

	return home ? *home : ROTA_NONE;
}

/* The CPU on which a slot of vCPU number `number` is in force; ROTA_NONE if there is none. */
__noinline u32 cpu_in_force(u32 buffer, u32 number, u64 now)
{
	struct rota_cpu_view *view = buffer < ROTA_NR_BUFFERS ? cpu_view(buffer, 0) : NULL;
	struct rota_table_vcpu *vcpu = view ? table_vcpu(buffer, view, number) : NULL;
	u32 i;

	if (!vcpu)
		return ROTA_NONE;
	bpf_for (i, 0, ROTA_VCPU_CPUS_MAX) {
		struct owner owner;
		u32 cpu;

		if (i >= vcpu->nr_cpus)
			break;
		cpu = home_at(buffer, view, vcpu, i);
		table_look_up(cpu, now, &owner);
		if (owner.vcpu == number && owner.buffer == buffer)
			return cpu;
	}
	return ROTA_NONE;
}

/* Whether one of the tenant's vCPUs has slots on several CPUs in a buffer's table. */
static __always_inline bool migrates(const struct rota_tenant *tenant, u32 buffer)
{
	return buffer < ROTA_NR_BUFFERS && (tenant->migrates >> buffer & 1);
}

/* Homes that are looked at for a task that may not run everywhere; vCPUs of a CPU for one of the tenant's. */
#define HOMES_MAX  ROTA_VCPU_CPUS_MAX
#define LOCALS_MAX 256

/* The tenant's first vCPU record in a buffer; ROTA_NONE if it has none there. No array index: the verifier objects. */
static __always_inline u32 first_vcpu(const struct rota_tenant *tenant, u32 buffer)
{
	if (buffer >= ROTA_NR_BUFFERS)
		return ROTA_NONE;
	return buffer ? tenant->first_vcpu[1] : tenant->first_vcpu[0];
}

/* The number of the tenant's vCPU `index` in a buffer's table; ROTA_NONE if it has no slots there. */
static __always_inline u32 vcpu_number(const struct rota_tenant *tenant, u32 index, u32 buffer)
{
	u32 first = first_vcpu(tenant, buffer);

	return first == ROTA_NONE || index >= tenant->nr_vcpus ? ROTA_NONE : first + index;
}

static __always_inline struct rota_table_vcpu *vcpu_of(const struct rota_tenant *tenant, u32 index, u32 buffer)
{
	u32 number = vcpu_number(tenant, index, buffer);
	struct rota_cpu_view *view = number == ROTA_NONE ? NULL : cpu_view(buffer, 0);

	return view ? table_vcpu(buffer, view, number) : NULL;
}

/* The CPU on which a slot of the tenant's vCPU is in force, or else its trailing CPU; ROTA_NONE if it has no slots. */
__noinline u32 home_of(u32 tenant_id, u32 index, u32 buffer, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct rota_table_vcpu *vcpu = tenant ? vcpu_of(tenant, index, buffer) : NULL;
	struct queue_ctx *v;
	u64 generation;
	u32 cpu;

	if (!vcpu || vcpu->nr_cpus <= 1)
		return vcpu ? vcpu->home_cpu : ROTA_NONE;
	cpu = cpu_in_force(buffer, vcpu_number(tenant, index, buffer), now);
	if (cpu != ROTA_NONE)
		return cpu;
	v = queue_ctx(vcpu_entry(tenant, index));
	generation = buffer ? live.tables[1].generation : live.tables[0].generation;
	return v && v->trailing >> 16 == generation ? (u16)v->trailing : vcpu->home_cpu;
}

static __always_inline bool has_slots(struct rota_tenant *tenant, u32 buffer)
{
	return tenant->class == ROTA_CLASS_RESERVED && first_vcpu(tenant, buffer) != ROTA_NONE;
}

/*
 * A CPU of the tenant's vCPU `sole`, or of any of its vCPUs if that is ROTA_NONE, on which the task may run; ROTA_NONE
 * if there is none. The table lists the CPUs of a tenant's vCPUs one after the other: it is begun with the one that is
 * number `first` among these.
 */
__noinline u32 some_home(struct task_struct *p __arg_trusted, u32 tenant_id, u32 sole, u32 first, u32 buffer)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct rota_table_vcpu *from, *to;
	struct rota_cpu_view *view;
	u32 i, homes;

	if (!tenant || !tenant->nr_vcpus)
		return ROTA_NONE;
	from = vcpu_of(tenant, sole == ROTA_NONE ? 0 : sole, buffer);
	to = vcpu_of(tenant, sole == ROTA_NONE ? tenant->nr_vcpus - 1 : sole, buffer);
	view = from && to ? cpu_view(buffer, 0) : NULL;
	if (!view)
		return ROTA_NONE;
	homes = to->first_home + to->nr_cpus - from->first_home;
	bpf_for (i, 0, HOMES_MAX) {
		u32 cpu;

		if (i >= homes)
			break;
		cpu = home_at(buffer, view, from, (first + i) % homes);
		if (cpu != ROTA_NONE && may_run_on(p, cpu))
			return cpu;
	}
	return ROTA_NONE;
}

/* Whether one of the tenant's vCPUs, or its vCPU `sole` if that is not ROTA_NONE, has slots on the CPU. */
__noinline bool is_home(u32 tenant_id, u32 sole, u32 cpu, u32 buffer)
{
	struct rota_cpu_view *view = cpu_view(buffer, cpu);
	u32 i;

	bpf_for (i, 0, LOCALS_MAX) {
		struct rota_table_vcpu *vcpu;

		if (!view || i >= view->nr_locals)
			break;
		vcpu = local_vcpu(buffer, view, i);
		if (vcpu && vcpu->tenant == tenant_id && (sole == ROTA_NONE || vcpu->index == sole))
			return true;
	}
	return false;
}

/* The end of the slot of the tenant's vCPU `index` that is in force on the CPU; 0: there is none. */
__noinline u64 owns_until(u32 tenant_id, u32 index, u32 cpu, u64 now)
{
	struct owner owner;
	struct rota_cpu_view *view;
	struct rota_table_vcpu *vcpu;

	table_look_up(cpu, now, &owner);
	if (owner.vcpu == ROTA_NONE || owner.buffer >= ROTA_NR_BUFFERS)
		return 0;
	view = cpu_view(owner.buffer, cpu);
	vcpu = view ? table_vcpu(owner.buffer, view, owner.vcpu) : NULL;
	return vcpu && vcpu->tenant == tenant_id && vcpu->index == index ? owner.end_ns : 0;
}

#endif /* ROTA_HOMES_BPF_H */
