/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a CPU has lost that serves its vCPUs in windows, and that comes late to a decision: a timer was late, or
 * interrupts, the hypervisor below or another class had the CPU beyond the end of the slot in force.
 *
 * It is lost to the vCPUs that the CPU would have served meanwhile, window by window: earliest deadline first, as if it
 * had decided in time. Else they would take it from the windows of others.
 */
#ifndef ROTA_LOST_BPF_H
#define ROTA_LOST_BPF_H

#include "window.bpf.h"

/* A CPU that comes no later than this has lost nothing. */
#define LOST_LEAST_NS 500000ULL
/* So many turns are looked at, at most: those of some 100 ms, where the shortest period is a ms. */
#define LOST_TURNS_MAX 256

/*
 * Whether local vCPU `local` waited at a time in the past, as far as is known by now, and what it might have claimed.
 * `had`: the one that had the CPU then.
 */
__noinline int survey_past(u32 cpu, u32 local, u64 at, u32 had)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_table_vcpu *vcpu = c && windows_view(c, cpu) ? local_here(c, cpu, local) : NULL;
	struct rota_tenant *tenant = vcpu ? tenant_of(vcpu->tenant) : NULL;
	struct window *w;
	bool waits;
	u64 from;

	if (!tenant)
		return 0;
	w = window_of(c, local);
	roll_window(w, vcpu, at);
	c->windows.next = min_time(c->windows.next, w->end);
	from = local == had ? 0 : vcpu_waits_from(w, vcpu, tenant, at);
	waits = tenant->class == ROTA_CLASS_RESERVED && (local == had || vcpu_waits(vcpu, tenant, 0, false));
	if (!waits || from > at) {
		if (waits)
			c->windows.wakes = min_time(c->windows.wakes, from);
		w->rested = at;
		return 0;
	}
	if (from > w->seen)
		w->woke = from;
	wants_since(w, from, at);
	w->right = due_by(w, vcpu, w->end);
	if (w->right >= ROTA_WINDOW_LEAST_NS)
		c->windows.rights |= 1U << (local & 31);
	c->windows.waiting |= 1U << (local & 31);
	return 0;
}

/*
 * The vCPU that would have been served from `at` loses that time, and `had` has had it. Returns until when: the CPU
 * would have decided anew.
 */
__noinline u64 lose_turn(u32 cpu, u64 at, u64 now, u32 had)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_cpu_view *view = c ? windows_view(c, cpu) : NULL;
	u64 until;
	u32 i, local;

	if (!view)
		return now;
	c->windows.waiting = c->windows.rights = 0;
	c->windows.next = c->windows.wakes = now;
	bpf_for (i, 0, ROTA_WINDOW_VCPUS_MAX) {
		if (i >= view->nr_locals)
			break;
		survey_past(cpu, i, at, had);
	}
	if (!c->windows.waiting)
		return c->windows.wakes;
	until = min_time(c->windows.next, c->windows.wakes);
	local = first_to_end(c, c->windows.rights);
	if (local != ROTA_NONE) {
		until = min_time(until, at + window_of(c, local)->right);
		takes_from(window_of(c, local), until - at);
	}
	if (had != ROTA_NONE && had != local)
		takes_from(window_of(c, had), until - at);
	return until;
}

/* The time since `at` is charged to the vCPUs that have lost it. */
static __always_inline void lose_since(u32 cpu, u64 at, u64 now, u32 had)
{
	u32 i;

	bpf_for (i, 0, LOST_TURNS_MAX) {
		if (at >= now)
			break;
		at = lose_turn(cpu, at, now, had);
	}
	if (at < now && had != ROTA_NONE)
		window_charge(cpu, had, at, now);
}

/* Whether local vCPU `local` is served by the threads of a queue. */
__noinline bool is_queue_here(u32 cpu, u32 local, u32 queue)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_table_vcpu *vcpu = c && windows_view(c, cpu) ? local_here(c, cpu, local) : NULL;
	struct rota_tenant *tenant = vcpu ? tenant_of(vcpu->tenant) : NULL;

	return tenant && queue != ROTA_NONE && is_queue_of(vcpu, tenant, DSQ_QUEUE(queue));
}

/* A table has come into force as a vCPU had the CPU: since then that is of its windows. Returns until when. */
static __always_inline u64 charge_former(struct cpu_ctx *c, u32 cpu, u64 at, u64 now)
{
	u64 until = min_time(c->windows.had_until, now);
	u32 i, had = ROTA_NONE;

	c->windows.is_new = false;
	if (until <= at)
		return at;
	bpf_for (i, 0, ROTA_WINDOW_VCPUS_MAX) {
		if (had == ROTA_NONE && is_queue_here(cpu, i, c->windows.had_queue))
			had = i;
	}
	if (until - at > LOST_LEAST_NS)
		lose_since(cpu, at, until, had);
	else if (had != ROTA_NONE)
		window_charge(cpu, had, at, until);
	return until;
}

/* The CPU decides, and all that it has lost since it did so last is charged. */
static __always_inline void forfeit(struct cpu_ctx *c, u32 cpu, u64 now)
{
	u64 at = c->windows.lost_since == ROTA_NEVER ? c->slot.end : c->windows.lost_since;

	charge_lost(c);
	if (c->windows.is_new)
		at = charge_former(c, cpu, at, now);
	if (less(now, at) > LOST_LEAST_NS)
		lose_since(cpu, at, now, ROTA_NONE);
	c->windows.lost_since = ROTA_NEVER;
}

/* A turn of a queue has lasted from `since` up to now, and perhaps for longer than it was to: others have lost that. */
static __always_inline void charge_turn(struct cpu_ctx *c, u32 cpu, u32 queue, u64 since, u64 now)
{
	u32 local = c->turn.local;
	bool is_late = c->slot.in_windows && c->turn.level < ROTA_LEVEL_KERNEL && since < c->slot.end &&
		       less(now, c->slot.end) > LOST_LEAST_NS;

	if (c->turn.level == ROTA_LEVEL_OWNER || c->turn.level == ROTA_LEVEL_SECOND) {
		c->windows.had_until = now;
		c->windows.had_queue = queue;
	}
	if (local != ROTA_NONE)
		window_charge(cpu, local, since, is_late ? c->slot.end : now);
	if (!is_late)
		return;
	lose_since(cpu, c->slot.end, now, local);
	c->windows.lost_since = now;
}

#endif /* ROTA_LOST_BPF_H */
