/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The constant-time look-up: which vCPU owns a CPU at a time, and until when (thesis section 4.2.1, see rota_table.h).
 *
 * Which table is in force is a function of time alone: the published table with the latest from_ns that has come. So
 * all CPUs change over at the same instant without a word between them, and none can see two tables in one round.
 *
 * Who includes this has said before what `live` is, with the tables that are published, and nr_host_cpus, table_bytes.
 */
#ifndef ROTA_TABLE_BPF_H
#define ROTA_TABLE_BPF_H

#include "buffers.bpf.h"

struct owner {
	u32 vcpu;   /* index into the table's vCPU records; ROTA_NONE: nobody */
	u32 buffer; /* ROTA_NONE: no table is in force */
	u64 start_ns;
	u64 end_ns; /* CLOCK_MONOTONIC; ROTA_NEVER: nothing in the table ends this */
	u64 generation;
};

/* `size` bytes at `offset` of a buffer, or NULL if they are not inside. */
static __always_inline void *table_at(u32 buffer, u64 offset, u64 size)
{
	u8 *bytes = bpf_map_lookup_elem(&tables, &buffer);

	if (!bytes || offset > table_bytes - size)
		return NULL;
	return bytes + offset;
}

static __always_inline u32 table_in_force(u64 now)
{
	u64 first = live.tables[0].from_ns, second = live.tables[1].from_ns;
	bool has_first = first <= now, has_second = second <= now;

	if (has_first && (!has_second || first > second))
		return 0;
	return has_second ? 1 : ROTA_NONE;
}

/* When the table that is published but not yet in force comes into force; ROTA_NEVER if there is none. */
static __always_inline u64 table_next(u64 now)
{
	u64 first = live.tables[0].from_ns, second = live.tables[1].from_ns;

	if (first > now)
		return second > now && second < first ? second : first;
	return second > now ? second : ROTA_NEVER;
}

/* When the table in a buffer came into force, or will. */
static __always_inline u64 table_since(u32 buffer)
{
	return buffer ? live.tables[1].from_ns : live.tables[0].from_ns;
}

static __always_inline struct rota_cpu_view *cpu_view(u32 buffer, u32 cpu)
{
	u32 index = buffer * nr_host_cpus + cpu;

	return bpf_map_lookup_elem(&views, &index);
}

static __always_inline struct rota_table_vcpu *table_vcpu(u32 buffer, const struct rota_cpu_view *view, u32 vcpu)
{
	if (vcpu >= view->nr_vcpus)
		return NULL;
	return table_at(buffer, view->vcpus + (u64)vcpu * sizeof(struct rota_table_vcpu),
			sizeof(struct rota_table_vcpu));
}

/* The CPU's slot number `slot`; NULL beyond its last one. */
static __always_inline struct rota_table_slot *slot_at(u32 buffer, const struct rota_cpu_view *view, u32 slot)
{
	if (slot >= view->nr_slots)
		return NULL;
	return table_at(buffer, view->slots + (u64)slot * sizeof(struct rota_table_slot),
			sizeof(struct rota_table_slot));
}

/* The slot in force at `offset` of the CPU's round, or else the next one; NULL if there is none before its end. */
static __always_inline struct rota_table_slot *slot_from(u32 buffer, const struct rota_cpu_view *view, u32 offset)
{
	const struct rota_table_slice *slice;
	struct rota_table_slot *slot;
	u32 number;

	/* Bounds are the certifier's matter; these checks keep a damaged buffer from leading anywhere. */
	slice = table_at(buffer, view->slices + (u64)(offset / view->slice_ns) * sizeof(*slice), sizeof(*slice));
	if (!slice)
		return NULL;
	number = slice->slot - view->first_slot + (offset >= slice->boundary_ns);
	slot = slot_at(buffer, view, number);
	return slot && offset >= slot->end_ns ? slot_at(buffer, view, number + 1) : slot;
}

/* Who owns `cpu` at `now`; nobody where it serves its vCPUs in windows. */
__noinline int table_look_up(u32 cpu, u64 now, struct owner *owner)
{
	struct rota_cpu_view *view;
	struct rota_table_slot *slot;
	u64 round;
	u32 offset;

	if (!owner)
		return 0; /* a global function, which the verifier looks at once: it asks for this */
	owner->vcpu = ROTA_NONE;
	owner->start_ns = 0;
	owner->end_ns = table_next(now);
	owner->generation = 0;
	owner->buffer = table_in_force(now);
	if (owner->buffer >= ROTA_NR_BUFFERS)
		return 0;
	owner->generation = owner->buffer ? live.tables[1].generation : live.tables[0].generation;
	view = cpu_view(owner->buffer, cpu);
	if (!view || (view->flags & ROTA_CPU_WINDOWS) || !view->nr_slots || !view->length_ns || !view->slice_ns)
		return 0;
	offset = now % view->length_ns;
	round = now - offset;
	owner->start_ns = round;
	owner->end_ns = min_time(owner->end_ns, round + view->length_ns);
	slot = slot_from(owner->buffer, view, offset);
	if (!slot)
		return 0; /* idle to the end of the round */
	if (offset < slot->start_ns) {
		owner->end_ns = min_time(owner->end_ns, round + slot->start_ns);
		return 0;
	}
	owner->vcpu = slot->vcpu;
	owner->start_ns = round + slot->start_ns;
	owner->end_ns = min_time(owner->end_ns, round + slot->end_ns);
	return 0;
}

/* The record of the vCPU that is number `local` of those with slots on this CPU. */
static __always_inline struct rota_table_vcpu *local_vcpu(u32 buffer, struct rota_cpu_view *view, u32 local)
{
	u32 *number = table_at(buffer, view->locals + (u64)local * sizeof(u32), sizeof(u32));

	return number ? table_vcpu(buffer, view, *number) : NULL;
}

#endif /* ROTA_TABLE_BPF_H */
