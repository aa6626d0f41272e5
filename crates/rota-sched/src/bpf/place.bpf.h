/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a waiting task waits, and on which CPU it is sent to wait there.
 *
 * A thread of a reserved tenant with slots waits in its queue, which each of its slots serves. Its home is the CPU that
 * the table gives to its vCPU; being enqueued under that CPU's lock, it cannot slip between "nobody waits" and "idle".
 * A vCPU with slots on several CPUs has its home where its slot is in force, or else where its last one was; a thread
 * that is queued while that changes is found by the rules of handover.bpf.h.
 * A thread that may not run on any CPU of its tenant waits pinned to its own CPU, and lives on that CPU's floor.
 */
#ifndef ROTA_PLACE_BPF_H
#define ROTA_PLACE_BPF_H

#include "exclusive.bpf.h"
#include "slot.bpf.h"
#include "waiting.bpf.h"

#define MARK_WORDS  (ROTA_TABLE_CPUS_MAX / 64) /* with marks of vCPUs that are looked at: see marks_of */
#define HOMES_TRIED 8 /* of a tenant with many vCPUs, when one is looked for; the next waker goes on from there */
#define HOMES_MAX   ROTA_VCPU_CPUS_MAX /* looked at for a task that may not run everywhere */
#define LOCALS_MAX  256		       /* vCPUs of a CPU that are looked at for one of the tenant's */

/* Whether the task has to stay on its CPU for a moment. While a BPF program runs, this holds its own task once more. */
static __always_inline bool is_held(struct task_struct *p)
{
	return p->migration_disabled > (p == bpf_get_current_task_btf());
}

static __always_inline bool is_restricted(struct task_struct *p)
{
	return p->nr_cpus_allowed < nr_host_cpus || is_held(p);
}

/* In an operation of the scheduler, which the kernel calls under RCU. */
static __always_inline bool may_run_here(struct task_struct *p, u32 cpu)
{
	if (is_held(p))
		return cpu == scx_bpf_task_cpu(p);
	return p->nr_cpus_allowed >= nr_host_cpus || bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

static __always_inline bool may_run_on(struct task_struct *p, u32 cpu)
{
	bool may;

	if (!is_restricted(p))
		return true;
	bpf_rcu_read_lock(); /* the programs of control.bpf.h run outside of it */
	may = may_run_here(p, cpu);
	bpf_rcu_read_unlock();
	return may;
}

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

static __always_inline bool may_be_housekept(struct task_struct *p)
{
	struct bpf_cpumask *mask;
	struct cpu_ctx *c;
	bool may;

	if (is_held(p)) {
		c = cpu_ctx(scx_bpf_task_cpu(p));
		return c && c->housekeeping;
	}
	bpf_rcu_read_lock();
	mask = housekeeping_mask;
	may = mask && bpf_cpumask_intersects((const struct cpumask *)mask, p->cpus_ptr);
	bpf_rcu_read_unlock();
	return may;
}

/* Where a task waits that belongs to no slot of its CPU: there, if it may run nowhere but on others' own cores. */
static __always_inline u64 pinned_dsq(struct task_struct *p, u32 buffer)
{
	u32 cpu = scx_bpf_task_cpu(p), open;

	if (!is_exclusive(buffer, cpu) || is_held(p))
		return DSQ_PINNED(cpu);
	open = open_cpu(p);
	return DSQ_PINNED(open != ROTA_NONE ? open : cpu);
}

/* Where background work of this task goes: spread by the ring, as long as it may run there. */
__noinline u64 background_dsq(struct task_struct *p __arg_trusted, u32 buffer)
{
	u32 cpu = live.background_ring[(u32)p->pid % ROTA_RING];

	if (cpu >= nr_host_cpus || !may_run_on(p, cpu))
		cpu = scx_bpf_task_cpu(p);
	if (!is_exclusive(buffer, cpu))
		return DSQ_BACKGROUND(cpu);
	if (is_held(p))
		return DSQ_PINNED(cpu);
	cpu = open_cpu(p);
	return cpu != ROTA_NONE ? DSQ_BACKGROUND(cpu) : DSQ_PINNED(scx_bpf_task_cpu(p));
}

/* Whether a CPU serves shared tenants on which the task may run. */
static __always_inline bool has_open(struct task_struct *p)
{
	return p->nr_cpus_allowed >= nr_host_cpus ? nr_open : shared_cpu(p) != ROTA_NONE;
}

/*
 * Where a shared tenant's task waits: in line with all others, if it may run on a CPU that takes from such a line.
 * Housekeeping CPUs do not; they have it in turn with the system if there is no other.
 */
static __always_inline u64 shared_dsq(struct task_struct *p, u32 buffer)
{
	u32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *c = cpu_ctx(cpu);
	u64 line = DSQ_SHARED(c ? c->domain : 0);

	if (is_held(p))
		return is_exclusive(buffer, cpu) || is_housekeeping(cpu) ? DSQ_PINNED(cpu) : line;
	return has_open(p) ? line : pinned_dsq(p, buffer);
}

/* The dispatch queue in which the task waits. */
__noinline u64 dsq_of(struct task_struct *p __arg_trusted, u32 tenant_id, u32 vcpu, u32 queue, u32 buffer)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct membership m = {.tenant = tenant_id, .vcpu = vcpu, .queue = queue};
	u32 cpu, sole;

	if (!tenant)
		return DSQ_QUEUE(SYSTEM_QUEUE);

	switch (tenant->class) {
	case ROTA_CLASS_SYSTEM:
		return may_be_housekept(p) ? DSQ_QUEUE(SYSTEM_QUEUE) : pinned_dsq(p, buffer);
	case ROTA_CLASS_SHARED:
		return shared_dsq(p, buffer);
	case ROTA_CLASS_RESERVED:
		break;
	default:
		return background_dsq(p, buffer);
	}
	if (!has_slots(tenant, buffer))
		return background_dsq(p, buffer);
	if (!is_restricted(p))
		return DSQ_QUEUE(queue);
	sole = sole_vcpu(tenant, m.vcpu);
	cpu = scx_bpf_task_cpu(p);
	if ((may_run_on(p, cpu) && is_home(tenant_id, sole, cpu, buffer)) || /* which finds one among hundreds, too */
	    some_home(p, tenant_id, sole, 0, buffer) != ROTA_NONE)
		return DSQ_QUEUE(queue);
	/* Its tenant has nothing here: what others leave. Who is held for a moment may hold up others by that. */
	return is_held(p) ? pinned_dsq(p, buffer) : background_dsq(p, buffer);
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

/*
 * A hungry slot's CPU, for the task if there is one: its mark is taken. ROTA_NONE if no slot is hungry. A slot may be
 * over and marked still, if the CPU's timer is late: its mark is left to that CPU. The time is read after the mark was
 * seen, as a slot that has just begun would not be in force before.
 */
static __always_inline u32 hungry_cpu(struct task_struct *p, u32 tenant_id)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct queue_ctx *q = NULL;
	u32 tries, first = 0;
	u64 seen = 0;

	if (!tenant)
		return ROTA_NONE;
	bpf_for (tries, 0, HOMES_TRIED + MARK_WORDS) {
		struct cpu_ctx *c;
		u32 index, cpu;
		u64 now;

		if (!seen) {
			first += q ? 64 : 0;
			q = first < tenant->nr_vcpus ? marks_of(tenant, first) : NULL;
			if (!q)
				break;
			seen = q->hungry;
			continue;
		}
		index = first + __builtin_ctzll(seen);
		seen &= seen - 1;
		now = bpf_ktime_get_ns();
		cpu = home_of(tenant_id, index, table_in_force(now), now);
		c = cpu == ROTA_NONE ? NULL : cpu_ctx(cpu);
		if (!c || (p && !may_run_on(p, cpu)) || !owns_until(tenant_id, index, cpu, now))
			continue;
		if (unmark(&q->hungry, index)) {
			c->dozes = 0; /* nor is it free for another thread: see take_dozing */
			return cpu;
		}
	}
	return ROTA_NONE;
}

/* A hungry slot's CPU to send the task to, which takes its mark; or ROTA_NONE. */
__noinline u32 take_hungry(struct task_struct *p __arg_trusted, u32 tenant_id)
{
	struct task_ctx *t = task_ctx(p);
	u32 cpu = hungry_cpu(p, tenant_id);

	if (t)
		t->took_mark = cpu != ROTA_NONE;
	return cpu;
}

/* A thread that has been counted may wait for one of the CPU's slots. Whether it idles without a timer, perhaps. */
static __always_inline bool is_wanted(struct cpu_ctx *c)
{
	/* What was counted before is ordered before what is read from now on: see dozes_off. */
	if (c->unwanted)
		__sync_lock_test_and_set(&c->unwanted, 0);
	return c->dozes;
}

/*
 * Who idles without a timer on a CPU of the tenant sets one, as a thread waits that its next slot there may serve.
 * All of them are marked that may do so since nobody waited last; none of those is missed that look after the
 * thread was counted.
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
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
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
	cpu = hungry_cpu(NULL, tenant_id);
	if (cpu < nr_host_cpus)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* If vCPU `index` of the tenant owns the CPU now, which serves somebody else: until when; else 0. */
__noinline u64 unserved_until(u32 tenant_id, u32 index, u32 cpu, u64 now)
{
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (!c || (c->level == ROTA_LEVEL_OWNER && c->slot_tenant == tenant_id))
		return 0;
	return owns_until(tenant_id, index, cpu, now);
}

/*
 * A CPU that idles without a timer is not marked in its slot: it is taken for one thread like a mark, if it is sure to
 * come to it before the end of the slot.
 */
static __always_inline bool take_dozing(struct task_struct *p, struct cpu_ctx *c, u64 until, u64 now)
{
	struct task_ctx *t = task_ctx(p);

	if (!t || !c->dozes || until < now + ROTA_LATE_MIN_NS || !__sync_lock_test_and_set(&c->dozes, 0))
		return false;
	t->took_mark = true;
	__sync_lock_test_and_set(&c->taken_for, t->m.tenant + 1);
	return true;
}

/*
 * The CPU dozed in a slot, and a thread was sent to it. If it comes only when that slot is over, be it that interrupts
 * had it, another one is told: nobody else was.
 */
static __always_inline void pass_on_taken(struct cpu_ctx *c)
{
	u32 taken = c->taken_for ? __sync_lock_test_and_set(&c->taken_for, 0) : 0;

	if (taken && taken - 1 != c->slot_tenant)
		pass_on(taken - 1, c->now);
}

/*
 * The home for a waking thread of a tenant with several vCPUs: a slot in force that serves nobody of the tenant; else,
 * uncapped, a CPU that idles or runs something lower; else where it was, or the next in turn.
 */
__noinline u32 choose_home(struct task_struct *p __arg_trusted, u32 tenant_id, u32 first, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	u32 buffer = table_in_force(now), best, best_level = ROTA_LEVEL_SECOND, unserved = ROTA_NONE, i;

	if (!tenant || !tenant->nr_vcpus)
		return ROTA_NONE;
	best = take_hungry(p, tenant_id);
	if (best != ROTA_NONE)
		return best;
	bpf_for (i, 0, HOMES_TRIED) {
		u32 index = (first + i) % tenant->nr_vcpus, cpu;
		struct cpu_ctx *c;
		u64 until;

		if (i >= tenant->nr_vcpus)
			break;
		cpu = home_of(tenant_id, index, buffer, now);
		c = cpu == ROTA_NONE ? NULL : cpu_ctx(cpu);
		if (!c || !may_run_on(p, cpu))
			continue;
		until = unserved_until(tenant_id, index, cpu, now);
		if (until && take_dozing(p, c, until, now))
			return cpu;
		if (until && unserved == ROTA_NONE)
			unserved = cpu;
		if (c->level < best_level) {
			best_level = c->level;
			best = cpu;
		}
	}
	if (unserved != ROTA_NONE)
		return unserved;
	return best != ROTA_NONE ? best : some_home(p, tenant_id, ROTA_NONE, first, buffer);
}

#endif /* ROTA_PLACE_BPF_H */
