/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waking: where a task that wakes is sent, and which CPU is told (thesis section 4.2.1, "Unblocking vCPUs").
 *
 * A CPU is told only if it would run the task now: it is in the task's slot, or idles, or runs something lower.
 * Otherwise nobody is told, and the start of the next slot finds the task waiting.
 */
#ifndef ROTA_WAKE_BPF_H
#define ROTA_WAKE_BPF_H

#include "account.bpf.h"
#include "place.bpf.h"

/* Whether the CPU's sibling idles, if it has one. */
static __always_inline bool sibling_idles(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu), *sibling = c && c->sibling != cpu ? cpu_ctx(c->sibling) : NULL;

	return !sibling || sibling->level == ROTA_LEVEL_IDLE;
}

/*
 * An idle CPU of `mask` or less than 0: the task's own, if that is one of them, as its data are there; but a core that
 * idles comes before a CPU whose sibling is busy.
 */
static __always_inline s32 idle_cpu(const struct cpumask *mask, u32 own, bool own_fits)
{
	s32 cpu = -1;

	if (own_fits && !sibling_idles(own))
		cpu = scx_bpf_pick_idle_cpu(mask, SCX_PICK_IDLE_CORE);
	if (cpu < 0 && own_fits && scx_bpf_test_and_clear_cpu_idle(own))
		return own;
	return cpu < 0 ? scx_bpf_pick_idle_cpu(mask, 0) : cpu;
}

/*
 * An idle CPU of `set` on which the task may run, or ROTA_NONE. What both allow is looked at: of the set alone, or of
 * what the task may alone, one might be found that is of no use, though others idle.
 */
static __always_inline u32 idle_cpu_of(struct task_struct *p, struct bpf_cpumask *set, bool own_fits)
{
	struct cpu_ctx *here = cpu_ctx(bpf_get_smp_processor_id());
	struct bpf_cpumask *both;
	s32 cpu;

	if (p->nr_cpus_allowed >= nr_host_cpus) {
		cpu = idle_cpu((const struct cpumask *)set, scx_bpf_task_cpu(p), own_fits);
		return cpu < 0 ? ROTA_NONE : cpu;
	}
	both = here ? here->both : NULL;
	if (!both)
		return ROTA_NONE;
	bpf_cpumask_and(both, (const struct cpumask *)set, p->cpus_ptr);
	cpu = idle_cpu((const struct cpumask *)both, scx_bpf_task_cpu(p), own_fits);
	return cpu < 0 ? ROTA_NONE : cpu;
}

/* An idle CPU on which the system's task may run, or ROTA_NONE. */
static __always_inline u32 idle_housekeeping_cpu(struct task_struct *p)
{
	u32 own = scx_bpf_task_cpu(p);
	struct bpf_cpumask *mask;
	bool own_fits;

	if (is_held(p))
		return ROTA_NONE;
	own_fits = is_housekeeping(own) && may_run_on(p, own);
	mask = housekeeping_mask; /* read after that, which ends a section of RCU */
	return mask ? idle_cpu_of(p, mask, own_fits) : ROTA_NONE;
}

/* An idle CPU on which a shared tenant's task may run, or ROTA_NONE. */
static __always_inline u32 idle_open_cpu(struct task_struct *p)
{
	u32 own = scx_bpf_task_cpu(p);
	struct bpf_cpumask *mask;
	bool own_fits;

	if (is_held(p))
		return ROTA_NONE;
	own_fits = may_run_on(p, own);
	mask = open_mask; /* as above */
	if (!mask)
		return ROTA_NONE;
	own_fits = own_fits && bpf_cpumask_test_cpu(own, (const struct cpumask *)mask);
	return idle_cpu_of(p, mask, own_fits);
}

/* Somebody waits in a line, for whichever of these CPUs comes: one that idles is told, if there is one. */
static __always_inline void tell_idle_cpu(struct bpf_cpumask *mask)
{
	s32 cpu = mask ? scx_bpf_pick_idle_cpu((const struct cpumask *)mask, 0) : -1;

	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

static __always_inline void tell_idle_open_cpu(void)
{
	tell_idle_cpu(open_mask);
}

/* Whether it is a housekeeping CPU that idles: one that a task wakes on decides without being told. */
static __always_inline bool idles_housekept(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);

	return c && c->housekeeping && c->level == ROTA_LEVEL_IDLE && !c->other_since;
}

/*
 * The task has been counted where it waits, and no CPU was told. One may have begun to idle since one was last looked
 * for: before that it would have seen the count.
 */
__noinline int tell_new_idle_cpu(struct task_struct *p __arg_trusted, u64 dsq)
{
	u32 cpu = (u32)dsq;

	if (dsq == DSQ_QUEUE(SYSTEM_QUEUE))
		cpu = idle_housekeeping_cpu(p);
	else if ((dsq >> 32) != (DSQ_BOUND(0) >> 32))
		cpu = idle_open_cpu(p);
	else if (!scx_bpf_test_and_clear_cpu_idle(cpu))
		return 0;
	if (cpu < nr_host_cpus)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return 0;
}

/*
 * A CPU that idled now serves somebody who may not be the one that it was told of: of a higher class, as when a slot
 * begins while a thread of a shared tenant is sent there, or one that came meanwhile and may run there only. Who waits
 * in a line, be it another's of which the CPU was told like this, would go on waiting though others idle.
 */
__noinline int pass_lines_on(u32 cpu)
{
	bool may = shared_may_wait();
	u32 domain;

	if (is_housekeeping(cpu)) {
		if (nr_waiting(DSQ_QUEUE(SYSTEM_QUEUE)) > 0)
			tell_idle_cpu(housekeeping_mask);
		return 0;
	}
	for (domain = 0; may && domain < settings.nr_domains; domain++) {
		if (scx_bpf_dsq_nr_queued(DSQ_SHARED(domain)) > 0) {
			tell_idle_open_cpu();
			return 0;
		}
	}
	return 0;
}

/*
 * Where background work waits: if the CPU that it is given to does not idle, or was told of somebody else, at one that
 * idles.
 */
static __always_inline u64 idle_background_dsq(struct task_struct *p, u64 dsq)
{
	struct cpu_ctx *c = cpu_ctx((u32)dsq);
	u32 cpu;

	if (!c || (c->level == ROTA_LEVEL_IDLE && scx_bpf_test_and_clear_cpu_idle((u32)dsq)))
		return dsq;
	cpu = idle_open_cpu(p);
	return cpu == ROTA_NONE ? dsq : DSQ_BACKGROUND(cpu);
}

/*
 * Where a shared tenant's task waits that only housekeeping CPUs serve: at one that idles, if there is one. One that
 * wakes has been sent there.
 */
__noinline u64 idle_pinned_dsq(struct task_struct *p __arg_trusted, u32 tenant_id, bool sent, u64 dsq)
{
	u32 cpu = !sent && is_shared_tenant(tenant_of(tenant_id)) ? idle_housekeeping_cpu(p) : ROTA_NONE;

	return cpu == ROTA_NONE ? dsq : DSQ_PINNED(cpu);
}

/* The CPU of the only vCPU that the task may run in: of several the one of its slot, or another where it may run. */
__noinline u32 sole_home(struct task_struct *p __arg_trusted, u32 tenant_id, u32 sole, u32 buffer, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct rota_table_vcpu *vcpu;
	u32 cpu;

	if (!tenant)
		return ROTA_NONE;
	if (!migrates(tenant, buffer)) {
		vcpu = vcpu_of(tenant, sole, buffer);
		return vcpu ? vcpu->home_cpu : ROTA_NONE;
	}
	cpu = home_of(tenant_id, sole, buffer, now);
	if (cpu == ROTA_NONE || may_run_on(p, cpu))
		return cpu;
	return some_home(p, tenant_id, sole, 0, buffer);
}

/* The CPU that a task of this tenant and vCPU is sent to when it wakes; ROTA_NONE: where it was. */
__noinline u32 wake_cpu(struct task_struct *p __arg_trusted, u32 tenant_id, u32 only, u32 last_cpu, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	u32 buffer, sole;

	if (!tenant)
		return ROTA_NONE;
	if (tenant->class == ROTA_CLASS_SYSTEM)
		return idle_housekeeping_cpu(p);
	if (tenant->class == ROTA_CLASS_SHARED)
		return has_open(p) ? idle_open_cpu(p) : idle_housekeeping_cpu(p);
	buffer = table_in_force(now);
	if (!has_slots(tenant, buffer))
		return (u32)background_dsq(p, buffer);
	sole = sole_vcpu(tenant, only);
	return sole == ROTA_NONE ? choose_home(p, tenant_id, last_cpu, now)
				 : sole_home(p, tenant_id, sole, buffer, now);
}

/* The level at which CPU `cpu` would run a thread of this tenant now; ROTA_LEVEL_IDLE: not at all. */
static __always_inline u32 level_on(struct cpu_ctx *c, u32 cpu, const struct membership *m, struct rota_tenant *tenant,
				    u64 now)
{
	struct owner owner;
	struct rota_cpu_view *view;
	struct rota_table_vcpu *vcpu;

	if (tenant->class == ROTA_CLASS_SYSTEM)
		return c->housekeeping ? ROTA_LEVEL_SHARED : ROTA_LEVEL_BACKGROUND;
	if (c->housekeeping)
		return ROTA_LEVEL_BACKGROUND;
	if (tenant->class == ROTA_CLASS_SHARED)
		return ROTA_LEVEL_SHARED;
	table_look_up(cpu, now, &owner);
	if (!has_slots(tenant, owner.buffer))
		return ROTA_LEVEL_BACKGROUND;
	view = owner.vcpu == ROTA_NONE ? NULL : cpu_view(owner.buffer, cpu);
	vcpu = view ? table_vcpu(owner.buffer, view, owner.vcpu) : NULL;
	if (vcpu && vcpu->tenant == m->tenant && (m->vcpu == ROTA_NONE || m->vcpu == vcpu->index))
		return ROTA_LEVEL_OWNER;
	view = cpu_view(owner.buffer, cpu);
	vcpu = view ? table_vcpu(owner.buffer, view, first_vcpu(tenant, owner.buffer)) : NULL;
	return vcpu && !(vcpu->flags & ROTA_VCPU_CAPPED) ? ROTA_LEVEL_SECOND : ROTA_LEVEL_IDLE;
}

/* Tells CPU `cpu` that a thread waits that it would run at this level, if it should act on it. */
__noinline int tell_level(u32 cpu, u32 level)
{
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (!c)
		return 0;
	/* What is in a slot that was marked hungry is not the owner's, whatever it was when it started. */
	if (level > c->level || (level == ROTA_LEVEL_OWNER && c->slot_hungry)) {
		if (c->level == ROTA_LEVEL_IDLE)
			scx_bpf_test_and_clear_cpu_idle(cpu); /* nobody else is sent there */
		c->overtaken = true;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	} else if (c->dozes || (!c->armed_ns && c->level == ROTA_LEVEL_IDLE)) {
		/* So that it sets its timer for the slot, be it that it is only about to idle. */
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
	return level;
}

/* Whether the tenant in the second level is a minimum slice ahead of one that waits there. */
__noinline bool second_gives_way(u32 cpu, u32 tenant_id, u64 now)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_tenant *present;
	u64 since, used, clock;

	if (!c || c->level != ROTA_LEVEL_SECOND)
		return false;
	present = tenant_of(c->second_tenant);
	if (!present)
		return false;
	since = c->turn_since;
	used = now > since ? now - since : 0;
	clock = second_clock(cpu, c->second_tenant) + weighted(present, used);
	return vtime_before(second_clock(cpu, tenant_id) + weighted(present, ROTA_FAIR_SLICE_NS), clock);
}

/* Tells CPU `cpu` that a thread of this tenant waits. Returns the level it would have there. */
__noinline int tell(u32 cpu, u32 tenant_id, u32 vcpu, u64 now)
{
	struct membership m = {.tenant = tenant_id, .vcpu = vcpu};
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct cpu_ctx *c = cpu_ctx(cpu);
	u32 level;

	if (!c || !tenant)
		return 0;
	is_wanted(c);
	level = level_on(c, cpu, &m, tenant, now);
	if (level == ROTA_LEVEL_SECOND && second_gives_way(cpu, tenant_id, now)) {
		c->overtaken = true;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return level;
	}
	return tell_level(cpu, level);
}

/*
 * A CPU in whose slot for vCPU `index` of the tenant nobody of it runs, if a thread of it is queued at `now` and has
 * been counted. It is told if it may have found nobody before; if it has not come to its slot yet it will look, and see
 * at least the counts.
 */
__noinline int tell_slot(u32 tenant_id, u32 index, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	u32 buffer = table_in_force(now), number, cpu, claim;
	struct queue_ctx *v;
	struct owner owner;
	struct cpu_ctx *c;

	if (!tenant || !migrates(tenant, buffer))
		return 0;
	number = vcpu_number(tenant, index, buffer);
	cpu = number == ROTA_NONE ? ROTA_NONE : cpu_in_force(buffer, number, now);
	c = cpu == ROTA_NONE ? NULL : cpu_ctx(cpu);
	v = queue_ctx(vcpu_entry(tenant, index));
	if (!c || !v)
		return 0;
	/* Reads, and orders what was counted before what is read from now on. */
	claim = __sync_fetch_and_or(&v->claimed_by, 0);
	table_look_up(cpu, now, &owner);
	if (c->slot_vcpu == number && c->slot_start == owner.start_ns && c->slot_generation == owner.generation &&
	    (claim & ~CLAIM_SECOND) != cpu + 1) {
		c->overtaken = true;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	return 0;
}

/* The CPUs of the tenant that idle without a timer, and may have a slot for a thread that is queued now, set one. */
__noinline int rouse(u32 tenant_id, u32 sole, u32 buffer)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct rota_table_vcpu *from, *to;
	struct rota_cpu_view *view;
	u32 i, homes;

	if (!tenant || !tenant->nr_vcpus)
		return 0;
	from = vcpu_of(tenant, sole == ROTA_NONE ? 0 : sole, buffer);
	to = vcpu_of(tenant, sole == ROTA_NONE ? tenant->nr_vcpus - 1 : sole, buffer);
	view = from && to ? cpu_view(buffer, 0) : NULL;
	if (!view)
		return 0;
	homes = to->first_home + to->nr_cpus - from->first_home;
	bpf_for (i, 0, HOMES_MAX) {
		struct cpu_ctx *c;
		u32 cpu;

		if (i >= homes)
			break;
		cpu = home_at(buffer, view, from, i);
		c = cpu_ctx(cpu);
		if (c && is_wanted(c))
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
	return 0;
}

/* The task was sent to its only vCPU's CPU, which may be another since: a new table has come into force meanwhile. */
__noinline int tell_new_home(struct task_struct *p __arg_trusted, u32 tenant_id, u32 sole)
{
	u64 now = bpf_ktime_get_ns(); /* after it was counted */
	u32 cpu = sole_home(p, tenant_id, sole, table_in_force(now), now);

	if (cpu < nr_host_cpus && cpu != scx_bpf_task_cpu(p))
		tell(cpu, tenant_id, sole, now);
	return 0;
}

/*
 * Tells those besides the CPU that the thread was sent to: slots that have begun since, or are marked by now. All of
 * it comes after the thread was counted; a CPU that sees neither the thread nor the count marks its slot before this
 * looks. `level` is the one at which it would run where it was sent to.
 */
static __always_inline void tell_others(struct task_struct *p, struct task_ctx *t, u32 level, u64 now)
{
	const struct membership *m = &t->m;
	struct rota_tenant *tenant = tenant_of(m->tenant);
	bool is_told = t->took_mark && level == ROTA_LEVEL_OWNER;
	u32 buffer, sole, cpu;

	t->took_mark = false;
	if (!tenant)
		return;
	sole = sole_vcpu(tenant, m->vcpu);
	if (!tenant->migrates && sole != ROTA_NONE) {
		tell_new_home(p, m->tenant, sole);
		return;
	}
	buffer = table_in_force(now);
	if (!has_slots(tenant, buffer))
		return;
	if (migrates(tenant, buffer)) {
		if (sole != ROTA_NONE)
			tell_slot(m->tenant, sole, now);
		rouse(m->tenant, sole, buffer);
	}
	if (sole != ROTA_NONE)
		return;
	if (!is_told) {
		rouse_dozing(m->tenant, now);
		cpu = take_hungry(p, m->tenant);
		t->took_mark = false;
		if (cpu < nr_host_cpus)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	pass_on(m->tenant, now); /* whoever waits already may be served before it there, be it that it may run in few */
}

#endif /* ROTA_WAKE_BPF_H */
