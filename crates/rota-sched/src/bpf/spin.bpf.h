/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads that wait busily give way to their siblings.
 *
 * While siblings wait for their turns, a CPU looks at the thread that it runs every 100 us, or more seldom, and takes
 * its *fingerprint*: a hash of its integer registers. A loop that waits for memory to change has one or a few. A loop
 * that computes has another one each time. If half of a window's fingerprints repeat, the thread spins. Where it did is
 * remembered as a *site*: there two looks are enough, soon one after the other. What spins comes after all its
 * siblings, once, and loses nothing else: no tenant gives way to another one.
 *
 * A loop whose progress is in memory or in floating point registers alone looks the same. So a thread that is seen to
 * spin again and again in one way, and does nothing else between, is given longer and longer, up to a whole turn.
 *
 * After Huang et al., HPDC 2021, section 3.2, which takes its fingerprints from branch records. These need no PMU.
 * Threads that count as they wait, or wait ever longer, are seen by their branches only, where those are recorded. A
 * thread that computes in registers looks the same there, and so has a whole period each time. Threads in system
 * calls, as vCPUs are, are not seen.
 */
#ifndef ROTA_SPIN_BPF_H
#define ROTA_SPIN_BPF_H

#include "branches.bpf.h"
#include "kick.bpf.h"
#include "siblings.bpf.h"

/* Samples of a window, and how many of them have a fingerprint that another one had. */
#define SPIN_SAMPLES 8
#define SPIN_REPEATS 4
/* So often seen to spin in one way, a thread is looked at half as soon; twice as often, a fifth; and so on. */
#define SPIN_ALIKE 8
/* A thread that computes is looked at half as often, and in the end a quarter. */
#define SPIN_COMPUTES 2
/* Sites that are remembered, of 64 bytes of a program each. Two in one place forget each other. */
#define SPIN_SITES	256
#define SPIN_SITE_SHIFT 6

static u64 spin_sites[SPIN_SITES];

/* The fingerprint of a thread that an interrupt found in its program: an odd number. */
static __always_inline u64 fingerprint(struct task_struct *p)
{
	return user_registers(p) | 1;
}

/* Whether that is one, and no loop. */
static __always_inline bool is_fingerprint(u64 spins_at)
{
	return spins_at & 1;
}

/* Where that was; and where it is remembered that threads have spun there. */
static __always_inline u64 site_of(struct task_struct *p)
{
	return mix_register(p->tgid, user_ip(p) >> SPIN_SITE_SHIFT);
}

static __always_inline u64 *site_at(u64 site)
{
	return &spin_sites[site >> 32 & (SPIN_SITES - 1)];
}

/* Whether a sibling of the task waits that this CPU could take in its place. */
static __always_inline bool sibling_waits(const struct cpu_ctx *c, const struct task_ctx *t)
{
	const struct rota_tenant *tenant = tenant_of(t->m.tenant);
	const struct fair_place *place;

	if (!tenant || !tenant->oversubscribe)
		return false;
	if (tenant->class != ROTA_CLASS_SHARED)
		return nr_waiting(DSQ_QUEUE(t->m.queue)) > 0;
	place = fair_place(c->role.domain, t->m.tenant);
	return c->lines.bound || (place && place->front);
}

/* How long it takes until the thread is looked at next: longer and longer, if it computes or is seen in vain. */
static __always_inline u64 spin_period(const struct task_ctx *t)
{
	u64 alike = t->spins_alike / SPIN_ALIKE, again;

	if (t->spins_at) {
		again = is_fingerprint(t->spins_at) ? ROTA_SPIN_AGAIN_NS : ROTA_SPIN_SAMPLE_NS;
		return min_time(again * (1 + alike * alike), ROTA_QUANTUM_NS);
	}
	return ROTA_SPIN_SAMPLE_NS << min_time(t->computes, SPIN_COMPUTES);
}

static __always_inline void looks_at(struct cpu_ctx *c, struct sampler *sampler, u64 at)
{
	c->spin.at = at;
	bpf_timer_start(&sampler->timer, at, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN);
}

/* A thread starts on the CPU, or has another turn: it is looked at, if that may matter. */
static __always_inline void spin_starts(struct cpu_ctx *c, u32 cpu, struct task_ctx *t, u64 now)
{
	u64 at = now + spin_period(t);
	struct sampler *sampler;

	c->spin.gives_way = c->spin.rests = t->gives_way = false;
	c->spin.pid = 0;
	if (!c->spin.is_ready || (c->spin.at && c->spin.at <= at) || !sibling_waits(c, t))
		return;
	sampler = bpf_map_lookup_elem(&samplers, &cpu);
	if (sampler)
		looks_at(c, sampler, at);
}

/* It spins, with that fingerprint or in that loop: its siblings have a turn. */
static __always_inline void gives_way_to_siblings(struct cpu_ctx *c, u32 cpu, struct task_ctx *t, u64 print, u64 now)
{
	struct queue_ctx *q = queue_ctx(t->m.queue);

	c->spin.rests = true;
	t->spins_alike = t->spins_at == print ? t->spins_alike + 1 : 0;
	t->spins_at = print;
	t->computes = 0;
	if (q) {
		__sync_fetch_and_add(&q->account.spins, 1);
		__sync_fetch_and_add(&q->account.spins_ns, now - c->spin.since);
	}
	c->spin.gives_way = t->gives_way = true;
	ends_turn(cpu);
}

/* It would let others run first: its siblings have a turn, if there are any. */
static __always_inline void yields_to_siblings(struct cpu_ctx *c, struct task_struct *p, struct task_ctx *t)
{
	scx_set_slice(p, 0);
	c->spin.gives_way = t->gives_way = sibling_waits(c, t);
}

/*
 * The processor has told KVM that a vCPU waits in a loop, or the guest has. KVM asks for another vCPU of the VM, `to`.
 * The vCPU in the loop gives way if any sibling waits for a CPU, and siblings run in their usual order. Returns whether
 * it gives way.
 */
static __always_inline bool yields_to_vcpu(struct cpu_ctx *c, struct task_struct *p, struct task_ctx *t,
					   const struct task_ctx *to)
{
	struct queue_ctx *q = queue_ctx(t->m.queue);

	if (to->m.tenant != t->m.tenant || !sibling_waits(c, t))
		return false;
	yields_to_siblings(c, p, t);
	if (q)
		__sync_fetch_and_add(&q->account.spins, 1);
	return true;
}

/* The thread is looked at anew. */
static __always_inline void window_begins(struct spin *s, u64 now)
{
	u32 i;

	for (i = 0; i < SPIN_BITS / 64; i++)
		s->seen[i] = 0;
	s->samples = s->repeats = 0;
	s->since = now;
}

/* Counts a fingerprint. Whether the window ends, and the thread has spun in it. */
static __always_inline bool counts_repeats(struct spin *s, struct task_ctx *t, u64 print, u64 now)
{
	u64 bit = print >> 32 & (SPIN_BITS - 1);

	if (s->seen[bit / 64] >> bit % 64 & 1) {
		s->repeats++;
		t->computes = 0;
	}
	s->seen[bit / 64] |= 1ULL << bit % 64;
	if (++s->samples < SPIN_SAMPLES)
		return false;
	if (s->repeats >= SPIN_REPEATS)
		return true;
	t->computes += !s->repeats;
	window_begins(s, now);
	return false;
}

/* One look at what the CPU runs. Returns how long it takes until the next one; 0: that was enough for this turn. */
static __always_inline u64 look(struct cpu_ctx *c, struct sampler *sampler, u32 cpu, struct task_struct *p,
				struct task_ctx *t, u64 now)
{
	u64 loop, print, last = c->spin.last, site, *known;

	if (c->spin.pid != p->pid) {
		window_begins(&c->spin, max_time(t->run_since, now - ROTA_SPIN_SAMPLE_NS));
		last = 0;
	}
	c->spin.pid = p->pid;
	c->spin.last = 0;
	if (syscall_of(p) >= 0) { /* it makes progress, or waits in the kernel */
		t->spins_at = 0;
		window_begins(&c->spin, now);
		return spin_period(t);
	}
	c->spin.last = print = fingerprint(p);
	loop = loop_of(sampler, cpu);
	site = site_of(p);
	known = site_at(site);
	if (print == t->spins_at || (*known == site && print == last)) {
		gives_way_to_siblings(c, cpu, t, print, now);
		return 0;
	}
	if (loop) {
		gives_way_to_siblings(c, cpu, t, loop, now);
		return 0;
	}
	t->spins_at = 0;
	if (counts_repeats(&c->spin, t, print, now)) {
		*known = site;
		gives_way_to_siblings(c, cpu, t, print, now);
		return 0;
	}
	return *known == site ? ROTA_SPIN_AGAIN_NS : spin_period(t);
}

/* Runs on the CPU concerned, until nobody waits for what it runs. */
static int spin_timer(void *map, u32 *cpu, struct sampler *sampler)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *t = p ? task_ctx(p) : NULL;
	struct cpu_ctx *c = cpu_ctx(*cpu);
	u64 now = bpf_ktime_get_ns(), period;

	if (!c)
		return 0;
	c->spin.at = 0;
	if (!t || (p->flags & PF_KTHREAD) || c->spin.rests || !sibling_waits(c, t))
		return 0;
	period = look(c, sampler, *cpu, p, t, now);
	if (period)
		looks_at(c, sampler, now + period);
	return 0;
}

/* The first thread starts on the CPU. The kernel lets rota_init set no callback that reads misses: it may sleep. */
static __always_inline void spin_begins(struct cpu_ctx *c, u32 cpu)
{
	struct sampler *sampler;

	if (c->spin.is_ready)
		return;
	sampler = bpf_map_lookup_elem(&samplers, &cpu);
	c->spin.is_ready = sampler && !bpf_timer_set_callback(&sampler->timer, spin_timer);
}

#endif /* ROTA_SPIN_BPF_H */
