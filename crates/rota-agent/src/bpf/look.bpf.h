/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU's timer: it fires just before a slot ends, so that threads leave. It fires just after, to see whether the
 * CPU is stopped, and as the next slot begins.
 */
#ifndef ROTA_GUEST_LOOK_BPF_H
#define ROTA_GUEST_LOOK_BPF_H

#include "vcpu.bpf.h"

/* As a thread's kernel has it; the scheduler's own list of fields leaves it out. */
struct task_struct___prio {
	int prio;
} __attribute__((preserve_access_index));

/* A real-time thread has the CPU that asks: to this scheduler's threads it is stopped. */
static __always_inline bool is_lent(void)
{
	const struct task_struct___prio *current = (const void *)bpf_get_current_task_btf();

	return bpf_core_field_exists(struct task_struct___prio, prio) && current->prio < MAX_RT_PRIO;
}

/* When the timer is to fire next, by the host's clock; ROTA_NEVER if it need not. */
static __always_inline u64 next_look(u32 cpu, struct vcpu *v, u64 now)
{
	u64 moment, end;

	if (v->tries > now)
		return v->tries;
	moment = moment_of(cpu, v, now);
	if (!moment)
		return v->distrusted && now - v->distrusted < BELIEF_NS ? v->distrusted + BELIEF_NS : ROTA_NEVER;
	if (!(moment & IN_SLOT))
		return moment;
	end = moment & ~IN_SLOT;
	if (v->taken && now + lead_of(v) < end)
		return end - lead_of(v);
	if (!v->taken || now - v->taken >= BELIEF_NS) {
		v->tries = end + TRY_NS;
		return v->tries;
	}
	return goes_on_at(cpu);
}

/* Sets the timer. On the CPU itself. */
static __always_inline void look_later(u32 cpu, struct vcpu *v)
{
	u64 at = next_look(cpu, v, host_time());

	if (at == ROTA_NEVER || at == v->due)
		return;
	v->due = at;
	bpf_timer_start(&v->timer, at - live.offset_ns, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN);
}

/* A slot was begun late, or the CPU was stopped in it. */
static __always_inline void slot_breaks(struct vcpu *v, u64 now)
{
	v->spoilt = 1;
	if (++v->broken < BROKEN_MAX)
		return;
	v->broken = 0;
	v->distrusted = now;
	v->account.distrusted++;
}

/* A slot is over, and nothing was seen to be wrong since this is asked, unless it was spoilt. */
static __always_inline void slot_is_over(struct vcpu *v)
{
	if (!v->spoilt && v->broken)
		v->broken--;
	v->spoilt = 0;
}

/* A slot ends in a moment. */
static __always_inline void slot_ends(struct vcpu *v, u64 now, u64 until)
{
	u64 late = now - v->due;

	if (v->ends)
		v->account.caught++; /* at its end before */
	v->ends = 0;
	if (v->busy)
		v->ends = until;
	else
		v->account.left++;
	v->late = late > v->late ? min_time(late, LEAD_MAX_NS) : v->late - (v->late - late) / 16;
}

/* Whether any thread runs: a guest that idles is not woken. */
__noinline bool somebody_runs(void)
{
	u32 i;

	bpf_for (i, 0, nr_host_cpus) {
		struct vcpu *v = vcpu_of(i);

		if (v && v->busy)
			return true;
	}
	return false;
}

static __noinline int look(void *map, u32 *key, struct vcpu *v)
{
	u64 now = host_time(), moment;
	u32 cpu = *key;
	bool tried = v->due == v->tries, late = now - v->due > LATE_NS;

	if (tried) {
		v->tries = 0;
		v->taken = late || is_lent() ? now : 0;
		if (!late)
			slot_is_over(v);
	} else if (late && moment_of(cpu, v, v->due) & IN_SLOT) {
		slot_breaks(v, now);
	}
	moment = moment_of(cpu, v, now);
	if (moment & IN_SLOT) {
		u64 end = moment & ~IN_SLOT;
		bool ends = v->taken && now + lead_of(v) >= end;

		if (ends) {
			slot_ends(v, now, end);
			slot_is_over(v);
		}
		scx_bpf_kick_cpu(cpu, ends && v->busy ? SCX_KICK_PREEMPT : SCX_KICK_IDLE);
	}
	v->due = 0;
	if (somebody_runs())
		look_later(cpu, v);
	return 0;
}

#endif /* ROTA_GUEST_LOOK_BPF_H */
