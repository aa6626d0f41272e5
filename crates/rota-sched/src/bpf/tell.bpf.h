/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPU is told that a thread waits (thesis section 4.2.1, "Unblocking vCPUs").
 *
 * A CPU is told only if it would run the task now: it is in the task's slot, or idles, or runs something lower.
 * Otherwise nobody is told, and the start of the next slot finds the task waiting.
 */
#ifndef ROTA_TELL_BPF_H
#define ROTA_TELL_BPF_H

#include "second.bpf.h"
#include "wake.bpf.h"

/*
 * A thread waits that the next slot of any of the tenant's CPUs may serve: CPUs that idle without a timer set one.
 * Publish, then look: each of them has left a mark, or sees the thread's count.
 */
__noinline int rouse_dozing(u32 tenant_id, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct queue_ctx *q = NULL;
	u32 tries, first = 0;
	u64 seen = 0;

	if (!tenant)
		return 0;
	bpf_for (tries, 0, MARK_WORDS * (64 + 1)) {
		struct cpu_ctx *c;
		u32 index, cpu;

		if (!seen) {
			first += q ? 64 : 0;
			q = first < tenant->nr_vcpus ? marks_of(tenant, first) : NULL;
			if (!q)
				break;
			seen = q->dozing;
			continue;
		}
		index = first + __builtin_ctzll(seen);
		seen &= seen - 1;
		unmark(&q->dozing, index);
		cpu = home_of(tenant_id, index, table_in_force(now), now);
		c = cpu == ROTA_NONE ? NULL : cpu_ctx(cpu);
		if (c && is_wanted(c))
			decide_if_idle(cpu);
	}
	return 0;
}

/*
 * A thread of the tenant waits, and its CPU may serve another one first: of the tenant's CPUs that serve their vCPUs in
 * windows one more is told, if it would serve a thread and was not told of any.
 */
__noinline int tell_window(u32 tenant_id, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	u32 buffer = table_in_force(now), i;

	bpf_for (i, 0, HOMES_TRIED) {
		struct cpu_ctx *c;
		u32 index, cpu;

		if (!tenant || i >= tenant->nr_vcpus)
			break;
		index = ((u32)(now >> 16) + i) % tenant->nr_vcpus; /* of many it begins with any */
		cpu = home_of(tenant_id, index, buffer, now);
		c = cpu == ROTA_NONE ? NULL : cpu_ctx(cpu);
		if (!c || !c->slot.in_windows || c->turn.overtaken || !unserved_until(tenant_id, index, cpu, now))
			continue;
		overtake(c, cpu);
		break;
	}
	return 0;
}

/*
 * A thread has taken a hungry slot's mark, and the slot has served another one, or is over with nobody served: if
 * somebody waits, another hungry slot is told.
 */
__noinline int pass_on(u32 tenant_id, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	u32 cpu;

	if (!tenant || nr_waiting(DSQ_QUEUE(tenant->first_queue)) <= 0)
		return 0;
	rouse_dozing(tenant_id, now);
	tell_window(tenant_id, now);
	cpu = hungry_cpu(NULL, tenant_id);
	if (cpu < nr_host_cpus)
		decide_anew(cpu);
	return 0;
}

/*
 * A thread was sent to this CPU, which dozed in a slot. If the CPU comes only after that slot, another one is told,
 * since no other CPU was.
 */
static __always_inline void pass_on_taken(struct cpu_ctx *c, u64 now)
{
	u32 taken = c->offer.taken_for ? __sync_lock_test_and_set(&c->offer.taken_for, 0) : 0;

	if (taken && taken - 1 != c->slot.tenant)
		pass_on(taken - 1, now);
}

/* Somebody waits in a line, for whichever of these CPUs comes: one that idles is told, if there is one. */
static __always_inline void tell_idle_cpu(struct bpf_cpumask *mask)
{
	s32 cpu = mask ? scx_bpf_pick_idle_cpu((const struct cpumask *)mask, 0) : -1;

	if (cpu >= 0)
		decide_if_idle(cpu);
}

static __always_inline void tell_idle_open_cpu(void)
{
	tell_idle_cpu(open_mask);
}

/* Whether it is a housekeeping CPU that idles: one that a task wakes on decides without being told. */
static __always_inline bool idles_housekept(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);

	return c && c->role.housekeeping && c->turn.level == ROTA_LEVEL_IDLE && !c->turn.other_since;
}

/*
 * The task has been counted where it waits, and no CPU was told. The waker's end of publish, then look: a CPU that has
 * begun to idle meanwhile is found here, or sees the count.
 */
__noinline int tell_new_idle_cpu(struct task_struct *p __arg_trusted, u64 dsq)
{
	u32 cpu = (u32)dsq;

	if (dsq == DSQ_QUEUE(SYSTEM_QUEUE))
		cpu = idle_housekeeping_cpu(p);
	else if (line_kind(dsq) != ROTA_LINE_BOUND || !scx_bpf_test_and_clear_cpu_idle(cpu))
		cpu = idle_open_cpu(p);
	if (cpu < nr_host_cpus)
		decide_if_idle(cpu);
	return 0;
}

/*
 * A CPU that idled serves another thread than the one of which it was told. That one has a higher level, or may run
 * only there. If a thread waits in a line still, its own or another domain's, an idle CPU is told.
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

/* The level at which CPU `cpu` would run a thread of this tenant now; ROTA_LEVEL_IDLE: not at all. */
static __always_inline u32 level_on(struct cpu_ctx *c, u32 cpu, const struct membership *m, struct rota_tenant *tenant,
				    u64 now)
{
	struct owner owner;
	struct rota_cpu_view *view;
	struct rota_table_vcpu *vcpu;

	if (tenant->class == ROTA_CLASS_SYSTEM)
		return c->role.housekeeping ? ROTA_LEVEL_SHARED : ROTA_LEVEL_BACKGROUND;
	if (c->role.housekeeping)
		return ROTA_LEVEL_BACKGROUND;
	if (tenant->class == ROTA_CLASS_SHARED)
		return ROTA_LEVEL_SHARED;
	table_look_up(cpu, now, &owner);
	if (!has_slots(tenant, owner.buffer))
		return ROTA_LEVEL_BACKGROUND;
	if (c->slot.in_windows && window_serves(cpu, m->tenant, m->vcpu, now))
		return ROTA_LEVEL_OWNER;
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
	if (level > c->turn.level || (level == ROTA_LEVEL_OWNER && c->slot.hungry)) {
		if (c->turn.level == ROTA_LEVEL_IDLE)
			scx_bpf_test_and_clear_cpu_idle(cpu); /* nobody else is sent there */
		overtake(c, cpu);
	} else if (c->offer.dozes || (!c->turn.armed_ns && c->turn.level == ROTA_LEVEL_IDLE)) {
		/* So that it sets its timer for the slot, also if it is only about to idle. */
		decide_if_idle(cpu);
	}
	return level;
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
	if ((level == ROTA_LEVEL_SECOND && second_gives_way(cpu, tenant_id, now)) ||
	    (level == ROTA_LEVEL_OWNER && c->slot.in_windows && c->turn.level == ROTA_LEVEL_OWNER)) {
		overtake(c, cpu);
		return level;
	}
	return tell_level(cpu, level);
}

/*
 * Tells the CPU in whose slot vCPU `index` of the tenant does not run, once a thread of it has been counted. Publish,
 * then look: a CPU that came to its slot before may have found no thread, and is told. A CPU that comes later looks,
 * and sees the count.
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
	/* Reads, and is the waker's barrier of publish, then look. */
	claim = __sync_fetch_and_or(&v->claimed_by, 0);
	table_look_up(cpu, now, &owner);
	if (c->slot.vcpu == number && c->slot.start == owner.start_ns && c->slot.generation == owner.generation &&
	    (claim & ~CLAIM_SECOND) != cpu + 1) {
		overtake(c, cpu);
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
			decide_if_idle(cpu);
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
 * Tells other CPUs than the one to which the thread was sent: slots that have begun since, or are marked by now. The
 * waker's end of publish, then look: a CPU that does not see the count has marked its slot before this looks. `level`
 * is the one at which the thread would run where it was sent to.
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
			decide_anew(cpu);
	}
	pass_on(m->tenant, now); /* the slot may serve another thread first, one that may run in few */
}

#endif /* ROTA_TELL_BPF_H */
