/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads that wait busily give way to those that wait on their CPU, for which they wait perhaps.
 *
 * While others wait, a timer looks at the thread that runs and takes the fingerprint of its registers, as the host's
 * scheduler does: spin.bpf.h there says why, and what is not seen. A thread's window goes on over its turns, which are
 * short here, until it sleeps. Where threads have spun before, two looks are enough, one soon after the other.
 */
#ifndef ROTA_GUEST_SPIN_BPF_H
#define ROTA_GUEST_SPIN_BPF_H

#include "place.bpf.h"

/* From one look to the next, and where threads have spun before. */
#define SPIN_LOOK_NS  100000ULL
#define SPIN_AGAIN_NS 20000ULL
/* Looks of a window, and how many of them have a fingerprint that another one had. */
#define SPIN_LOOKS   8
#define SPIN_REPEATS 4
/* A thread that computes is looked at half as often, and in the end a quarter; not if it has spun of late. */
#define SPIN_COMPUTES  2
#define SPIN_LATELY_NS 100000000ULL
/* Places in programs that are remembered, of 64 bytes each. Two in one slot forget each other. */
#define SPIN_SITES	256
#define SPIN_SITE_SHIFT 6

static u64 spin_sites[SPIN_SITES];

/* A CPU's timer for this. */
struct spinner {
	struct bpf_timer timer;
	u64 at; /* when it fires; 0: it is not set */
} __attribute__((aligned(ROTA_CACHE_LINE)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* nr_host_cpus, set by the loader */
	__type(key, u32);
	__type(value, struct spinner);
} spinners SEC(".maps");

static __always_inline void looks_after(struct spinner *s, u64 period)
{
	s->at = bpf_ktime_get_ns() + period;
	bpf_timer_start(&s->timer, s->at, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN);
}

static __always_inline u64 spin_period(const struct task_ctx *t)
{
	if (t->spun && bpf_ktime_get_ns() - t->spun < SPIN_LATELY_NS)
		return SPIN_LOOK_NS;
	return SPIN_LOOK_NS << (t->computes < SPIN_COMPUTES ? t->computes : SPIN_COMPUTES);
}

/* Whether it matters that a thread waits busily: others wait, here or perhaps elsewhere. */
static __always_inline bool matters(u32 cpu)
{
	return scx_bpf_dsq_nr_queued(cpu) || is_crowded();
}

/* A thread starts on the CPU, or has another turn: it is looked at, if that may matter. On the CPU itself. */
static __always_inline void spin_starts(u32 cpu, const struct task_ctx *t)
{
	struct spinner *s = bpf_map_lookup_elem(&spinners, &cpu);

	if (s && t && !s->at && matters(cpu))
		looks_after(s, spin_period(t));
}

/* The thread is looked at anew. */
static __always_inline void window_begins(struct task_ctx *t)
{
	t->seen = t->print = 0;
	t->looks = t->repeats = 0;
}

/* It sleeps, and so does not wait busily. */
static __always_inline void spin_sleeps(struct task_ctx *t)
{
	t->computes += t->looks && !t->repeats;
	window_begins(t);
}

/* Whether a window ends with this fingerprint, and the thread has spun in it. */
static __always_inline bool counts_repeats(struct task_ctx *t, u64 print)
{
	u64 bit = 1ULL << (print >> 32 & 63);

	if (t->seen & bit) {
		t->repeats++;
		t->computes = 0;
	}
	t->seen |= bit;
	if (++t->looks < SPIN_LOOKS)
		return false;
	if (t->repeats >= SPIN_REPEATS)
		return true;
	t->computes += !t->repeats;
	window_begins(t);
	return false;
}

/* One look. Whether the thread spins; `site` is where it is, and has been if threads have spun there. */
static __always_inline bool spins(struct task_struct *p, struct task_ctx *t, u64 site, u64 *known)
{
	u64 print = user_registers(p) | 1, last = t->print;

	if (*known == site && print == last)
		return true;
	if (counts_repeats(t, print)) {
		*known = site;
		return true;
	}
	t->print = print;
	return false;
}

static int spin_look(void *map, u32 *key, struct spinner *s)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *t = p ? task_ctx(p) : NULL;
	struct vcpu *v = vcpu_of(*key);
	u64 site, *known;

	s->at = 0;
	if (!t || !v || !v->busy || !matters(*key))
		return 0;
	/* Its turn is over: the kernel sees that at its ticks alone. */
	if (bpf_ktime_get_ns() - v->since >= slice_now() && scx_bpf_dsq_nr_queued(*key)) {
		scx_bpf_kick_cpu(*key, SCX_KICK_PREEMPT);
		return 0;
	}
	if (p->flags & PF_KTHREAD || t->gives_way) {
		looks_after(s, SPIN_LOOK_NS);
		return 0;
	}
	if (syscall_of(p) >= 0) { /* it makes progress, or waits in the kernel */
		window_begins(t);
		looks_after(s, spin_period(t));
		return 0;
	}
	site = mix_register(p->tgid, user_ip(p) >> SPIN_SITE_SHIFT);
	known = &spin_sites[site >> 32 & (SPIN_SITES - 1)];
	if (spins(p, t, site, known)) {
		window_begins(t);
		t->gives_way = true;
		t->spun = bpf_ktime_get_ns();
		v->account.spins++;
		scx_bpf_kick_cpu(*key, SCX_KICK_PREEMPT);
		return 0;
	}
	looks_after(s, *known == site ? SPIN_AGAIN_NS : spin_period(t));
	return 0;
}

#endif /* ROTA_GUEST_SPIN_BPF_H */
