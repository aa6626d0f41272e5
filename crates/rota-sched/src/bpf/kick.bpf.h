/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kicks: how another CPU, or this one, is made to decide.
 */
#ifndef ROTA_KICK_BPF_H
#define ROTA_KICK_BPF_H

#include "state.bpf.h"

/* What the CPU runs gives way to another thread of its vCPU, if one waits; else to others. */
static __always_inline void ends_turn(u32 cpu)
{
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* The CPU decides anew, whatever it runs: among all its vCPUs. */
static __always_inline void decide_anew(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (c)
		c->windows.asked = 1;
	ends_turn(cpu);
}

/* The same, and what it has decided until now no longer holds, even if it is about to start what it chose. */
static __always_inline void overtake(struct cpu_ctx *c, u32 cpu)
{
	c->turn.overtaken = true;
	decide_anew(cpu);
}

/* The CPU decides if it idles, or as soon as it does. */
static __always_inline void decide_if_idle(u32 cpu)
{
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

#endif /* ROTA_KICK_BPF_H */
