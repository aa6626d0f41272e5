/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a guest knows of its CPUs, and what can be expected of each: it runs until a time, or it is stopped.
 *
 * Slots are what a CPU has at least. Between them it may go on, if nobody else wants the host's CPU. So a CPU is
 * *taken* once it was seen to be stopped after a slot. From then on it is without threads between its slots. Once a
 * second it is seen whether that is still so. Where no table is in force, a CPU that lost much of its time of late is
 * no place to go.
 */
#ifndef ROTA_GUEST_VCPU_BPF_H
#define ROTA_GUEST_VCPU_BPF_H

#include "kernel.bpf.h"
#include "live.h"

const volatile struct guest_settings settings SEC(".rodata.settings");
volatile struct guest_live live SEC(".data.live");
struct rota_exit exit_info SEC(".data.exit");

#define nr_host_cpus settings.nr_cpus
#define table_bytes  settings.table_bytes

#include "table.bpf.h"

/*
 * Threads leave so long before a slot ends, beyond what the CPU's timer was late of late: time for a change of threads
 * and an interrupt. No timer is taken to be later than LEAD_MAX_NS.
 */
#define LEAD_NS	    30000ULL
#define LEAD_MAX_NS 500000ULL
/* A CPU that stops sooner is no place to go. */
#define STAY_NS 200000ULL
/* A timer that is later than this was held up by somebody else, who has the host's CPU. */
#define LATE_NS 250000ULL
/* So long after the end of its slot a CPU that still runs has the host's for itself. */
#define TRY_NS 200000ULL
/* For so long a CPU is taken without another look. */
#define BELIEF_NS 1000000000ULL
/* So many slots that are not as published, more than are, and the timetable is not believed for BELIEF_NS. */
#define BROKEN_MAX 4
/* In thousandths of a CPU's time: more stolen than this is much. */
#define STOLEN_MUCH 50
/* For how long a thread runs if others wait; less while a CPU is stopped, so that all come forward together. */
#define SLICE_NS 3000000ULL
#define SHORT_NS 500000ULL
/* Threads of higher priority than this are real-time ones, and not this scheduler's. */
#define MAX_RT_PRIO 100

/* A CPU: written by itself, and read by others as a hint. Times are the host's. */
struct vcpu {
	struct guest_account account;
	struct bpf_timer timer;
	u64 due;	/* of the timer; 0: it is not set */
	u64 tries;	/* then it is seen whether the CPU is stopped; 0: it is not asked */
	u64 taken;	/* when it last was; 0: nobody else has it between its slots */
	u64 distrusted; /* when too many slots had not been as published */
	u64 ends;	/* a thread was about to be moved before the slot that ends then; 0: none is */
	u64 late;	/* the timer before slots' ends: the latest, forgotten by and by */
	u64 since;	/* what runs has run since then */
	u32 broken;
	u32 spoilt;  /* the present slot is not as published */
	u32 busy;    /* a thread of this scheduler's runs */
	s32 home;    /* its own CPU */
	s32 recalls; /* what runs is wanted there; -1: it is not */
} __attribute__((aligned(ROTA_CACHE_LINE)));

_Static_assert(__builtin_offsetof(struct vcpu, account) == 0, "the loader reads it");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* nr_host_cpus, set by the loader */
	__type(key, u32);
	__type(value, struct vcpu);
} vcpus SEC(".maps");

/*
 * Where a time is among a CPU's slots: when the slot ends, with this bit, or when the next one begins; 0 if no table in
 * force has an end for this. Slots that touch are one.
 */
#define IN_SLOT (1ULL << 63)

static __always_inline struct vcpu *vcpu_of(u32 cpu)
{
	return bpf_map_lookup_elem(&vcpus, &cpu);
}

static __always_inline u64 host_time(void)
{
	return bpf_ktime_get_ns() + live.offset_ns;
}

/* Until then CPUs serve threads whose own CPU is stopped; a hint. */
u64 crowded_until;

static __always_inline bool is_crowded(void)
{
	return host_time() < crowded_until;
}

/* For how long a thread runs if others wait. */
static __always_inline u64 slice_now(void)
{
	return is_crowded() ? SHORT_NS : SLICE_NS;
}

/* How long before a slot's end threads leave. */
static __always_inline u64 lead_of(const struct vcpu *v)
{
	return LEAD_NS + v->late;
}

/* A change of the online CPUs ends the scheduler, so they are those of the beginning. */
__noinline bool is_online(u32 cpu)
{
	return cpu < GUEST_CPUS_MAX && settings.online[cpu / 64] & 1ULL << cpu % 64;
}

/* The slot or gap at `at` alone, to the end of the table's round at most. */
__noinline u64 stretch_at(u32 cpu, u64 at)
{
	struct owner owner;

	table_look_up(cpu, at, &owner);
	if (owner.buffer == ROTA_NONE || owner.end_ns == ROTA_NEVER)
		return 0;
	return owner.end_ns | (owner.vcpu == ROTA_NONE ? 0 : IN_SLOT);
}

/* Where `at` is among a CPU's slots. A CPU that has all of its time, or none, has no end for it. */
__noinline u64 moment_at(u32 cpu, u64 at)
{
	u64 moment = stretch_at(cpu, at), next;
	u32 i;

	for (i = 0; i < 3 && moment; i++) {
		next = stretch_at(cpu, moment & ~IN_SLOT);
		if (next && (next ^ moment) & IN_SLOT)
			return moment;
		moment = next;
	}
	return 0;
}

/* The same of now, if the CPU's timetable is believed. */
static __always_inline u64 moment_of(u32 cpu, const struct vcpu *v, u64 now)
{
	return v->distrusted && now - v->distrusted < BELIEF_NS ? 0 : moment_at(cpu, now);
}

/* Until when a CPU runs: 0 if it is stopped, or about to be, and ROTA_NEVER if nothing is known to stop it. */
__noinline u64 runs_until(u32 cpu)
{
	struct vcpu *v = vcpu_of(cpu);
	u64 now = host_time(), moment, end;

	if (!v)
		return 0;
	moment = moment_of(cpu, v, now);
	if (!moment) {
		bool in_force = table_in_force(now) < ROTA_NR_BUFFERS;

		return !in_force && live.stolen[cpu % GUEST_CPUS_MAX] > STOLEN_MUCH ? 0 : ROTA_NEVER;
	}
	if (!v->taken)
		return ROTA_NEVER;
	end = (moment & ~IN_SLOT) - lead_of(v);
	return v->ends > now || !(moment & IN_SLOT) || end <= now ? 0 : end;
}

/* Whether a CPU is a place to go. */
__noinline bool is_there(u32 cpu)
{
	u64 until = runs_until(cpu);

	return until == ROTA_NEVER || until >= host_time() + STAY_NS;
}

/* When a CPU that is stopped goes on; ROTA_NEVER if that is not known. */
__noinline u64 goes_on_at(u32 cpu)
{
	u64 moment = moment_at(cpu, host_time());

	if (moment & IN_SLOT)
		moment = moment_at(cpu, moment & ~IN_SLOT);
	return moment && !(moment & IN_SLOT) ? moment : ROTA_NEVER;
}

#endif /* ROTA_GUEST_VCPU_BPF_H */
