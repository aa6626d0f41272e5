/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rota's scheduler: a table of contents. Each operation is here, what it consists of is in the headers:
 *
 *   kernel.bpf.h   the kernel's types and calls that are used
 *   shared.h       what crosses to the loader: map values, counters, constants
 *   state.bpf.h    what is remembered per CPU, queue and task
 *   table.bpf.h    which vCPU owns a CPU now
 *   tenant.bpf.h   which tenant and queue a task belongs to
 *   waiting.bpf.h  whether anybody waits
 *   clock.bpf.h    what tenants without a reservation have received, by weight
 *   account.bpf.h  service, blackouts, lost time
 *   handover.bpf.h  a vCPU with slots on several CPUs: who has it, and who gets it next
 *   slot.bpf.h     a CPU in its slot, and the timer that ends it
 *   pick.bpf.h     what a CPU runs next
 *   exclusive.bpf.h  cores that one tenant has to itself
 *   place.bpf.h    where a task waits
 *   wake.bpf.h     which CPU a waking task is sent to, and which is told
 *   front.bpf.h    of a shared tenant's waiting threads the one in line
 *   fair.bpf.h     tenants without a reservation: who is next, and who gives way
 *   floor.bpf.h    what has waited too long
 *   control.bpf.h  what the loader has us do: publish a table, send waiting tasks where they belong now
 *
 * After Tableau (Vanga, thesis 2020, chapter 4).
 */
#include "kernel.bpf.h"
#include "shared.h"
#include "state.bpf.h"
#include "table.bpf.h"
#include "waiting.bpf.h"
#include "tenant.bpf.h"
#include "account.bpf.h"
#include "handover.bpf.h"
#include "exclusive.bpf.h"
#include "slot.bpf.h"
#include "pick.bpf.h"
#include "second.bpf.h"
#include "place.bpf.h"
#include "wake.bpf.h"
#include "front.bpf.h"
#include "fair.bpf.h"
#include "floor.bpf.h"
#include "control.bpf.h"

char _license[] SEC("license") = "GPL";

/* Kernel threads that can run nowhere else: at once, and what they take is counted as lost. */
static __always_inline bool is_bound_kernel_thread(struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

s32 STRUCT_OPS(rota_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *t = task_ctx(p);
	u64 now = bpf_ktime_get_ns();
	u32 cpu;

	if (!t)
		return prev_cpu;
	settle_membership(p, t, now);
	cpu = wake_cpu(p, t->m.tenant, t->m.vcpu, t->last_cpu, now);
	if (cpu < nr_host_cpus && goes_straight(p, t, cpu)) {
		t->straight = true;
		becomes_runnable(p, t, now);
		scx_insert(p, SCX_DSQ_LOCAL, ROTA_QUANTUM_NS, scx_enq_immediately());
		return cpu;
	}
	t->sent = true;
	return cpu < nr_host_cpus && may_run_on(p, cpu) ? cpu : prev_cpu;
}

/*
 * The task's place in the queue: siblings share by thread weight, the threads of background tenants carry their
 * tenant's time, no further ahead or behind than a quantum. Those bound to a CPU that is not for them come from
 * several tenants, whose times have nothing to do with each other: they take turns. One that waits in such a line, and
 * whose affinity or cgroup is changed, keeps its place: a program that changes them again and again would keep it
 * waiting for ever.
 */
static __always_inline u64 place_in_line(struct task_struct *p, struct task_ctx *t, struct queue_ctx *q, u64 dsq,
					 u64 now)
{
	u64 last = background_vtime + ROTA_QUANTUM_NS;

	if (dsq == DSQ_QUEUE(t->m.queue))
		return place_among_siblings(p, t, q);
	if ((dsq >> 32) == (DSQ_PINNED(0) >> 32))
		return t->queued_since ?: now;
	if ((t->waits_in >> 32) == (DSQ_BACKGROUND(0) >> 32))
		return vtime_before(last, t->tag) ? last : t->tag;
	q->fair_vtime = max_vtime(q->fair_vtime, background_vtime - ROTA_QUANTUM_NS);
	t->tag = vtime_before(last, q->fair_vtime) ? last : q->fair_vtime;
	return t->tag;
}

void STRUCT_OPS(rota_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *t = task_ctx(p);
	struct queue_ctx *q;
	u64 now, dsq, place;
	u32 cpu, level;
	bool sent;

	now = bpf_ktime_get_ns();
	if (t) {
		leaves_line(t); /* if it waited there, and was taken out to be changed */
		settle_membership(p, t, now);
		becomes_runnable(p, t, now);
	}
	if (!t || is_bound_kernel_thread(p)) {
		scx_insert(p, SCX_DSQ_LOCAL, ROTA_QUANTUM_NS, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	sent = t->sent || (enq_flags & SCX_ENQ_WAKEUP);
	t->sent = t->straight = false;
	q = siblings_of(&t->m);
	if (!q) {
		scx_fail("a task in a queue that is not there", t->m.queue);
		return;
	}
	dsq = dsq_of(p, t->m.tenant, t->m.vcpu, t->m.queue, table_in_force(now));
	if ((dsq >> 32) == (DSQ_SHARED(0) >> 32)) {
		fair_enqueue(p, enq_flags);
		return;
	}
	if ((dsq >> 32) == (DSQ_BACKGROUND(0) >> 32))
		dsq = idle_background_dsq(p, dsq);
	else if ((dsq >> 32) == (DSQ_PINNED(0) >> 32))
		dsq = idle_pinned_dsq(p, t->m.tenant, sent, dsq);
	place = place_in_line(p, t, q, dsq, now);
	begins_to_wait(t, dsq);
	t->queued_since = t->queued_since ?: now;
	t->overdue = false;
	scx_insert_vtime(p, dsq, quantum(q->nr_runnable), place, enq_flags);
	cpu = scx_bpf_task_cpu(p);
	if (dsq == DSQ_QUEUE(SYSTEM_QUEUE) && sent && !idles_housekept(cpu))
		tell_new_idle_cpu(p, dsq);
	if ((dsq >> 32) != (DSQ_QUEUE(0) >> 32)) { /* whatever its tenant has elsewhere */
		bool is_background = (dsq >> 32) == (DSQ_BACKGROUND(0) >> 32);

		tell_level((u32)dsq, is_background ? ROTA_LEVEL_BACKGROUND : ROTA_LEVEL_SHARED);
		return;
	}
	if (!sent) /* the CPU that it was on until now goes on with something else */
		cpu = wake_cpu(p, t->m.tenant, t->m.vcpu, t->last_cpu, now);
	level = tell(cpu < nr_host_cpus ? cpu : scx_bpf_task_cpu(p), t->m.tenant, t->m.vcpu, now);
	tell_others(p, t, level, now);
}

/* Where what ran until now would wait, if it would go on; 0 if not. Background work goes on where it is. */
static __always_inline u64 dsq_of_prev(struct task_struct *prev, u32 cpu, u32 buffer, u64 now)
{
	struct task_ctx *t;
	u64 dsq;

	if (!prev || !(prev->scx.flags & SCX_TASK_QUEUED) || is_bound_kernel_thread(prev) || !may_run_on(prev, cpu))
		return 0;
	t = task_ctx(prev);
	if (!t)
		return 0;
	settle_membership(prev, t, now);
	dsq = dsq_of(prev, t->m.tenant, t->m.vcpu, t->m.queue, buffer);
	if ((dsq >> 32) == (DSQ_BACKGROUND(0) >> 32) && !is_housekeeping(cpu) && !is_exclusive(buffer, cpu))
		return DSQ_BACKGROUND(cpu);
	return dsq;
}

/* A housekeeping CPU: the system, and whatever is bound to this CPU. */
__noinline bool pick_housekeeping(u32 cpu)
{
	return serve_floor(cpu) || serve(cpu, DSQ_QUEUE(SYSTEM_QUEUE), ROTA_LEVEL_SHARED, ROTA_NEVER) ||
	       serve(cpu, DSQ_PINNED(cpu), ROTA_LEVEL_SHARED, ROTA_NEVER) ||
	       serve(cpu, DSQ_BACKGROUND(cpu), ROTA_LEVEL_BACKGROUND, ROTA_NEVER);
}

__noinline bool pick_tenant(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);

	if (!c)
		return false;
	if (!c->prev_dsq && !c->waiting && !shared_may_wait()) {
		nobody_overdue(c);
		return (c->slot_queue != ROTA_NONE && serve_owner(cpu)) || (!is_unwanted(c) && serve_second_level(cpu));
	}
	if (serve_starving(cpu) || serve_owner(cpu) || serve_floor(cpu) || serve_second_level(cpu) ||
	    serve(cpu, DSQ_PINNED(cpu), ROTA_LEVEL_SHARED, c->slot_end))
		return true;
	if (c->exclusive)
		return false;
	return serve_fair(cpu, ROTA_LEVEL_SHARED, c->slot_end) ||
	       serve(cpu, DSQ_BACKGROUND(cpu), ROTA_LEVEL_BACKGROUND, c->slot_end);
}

/* The clocks by which newcomers join a line move with those who are served. */
static __always_inline void move_clocks(struct cpu_ctx *c, struct task_ctx *t, struct queue_ctx *q)
{
	if (!q)
		return;
	q->vtime = max_vtime(q->vtime, t->vtime);
	if (is_in_background(c))
		background_vtime = max_vtime(background_vtime, q->fair_vtime);
}

/* What the task has used counts for its next place in line. */
static __always_inline void charge_place(struct task_struct *p, struct task_ctx *t, struct queue_ctx *q,
					 struct cpu_ctx *c, u64 now)
{
	u64 used = now - t->charged;

	t->charged = now;
	t->vtime += used * ROTA_WEIGHT_ONE / (p->scx.weight ?: 1);
	if (q && is_in_background(c))
		__sync_fetch_and_add(&q->fair_vtime, used);
}

/*
 * Budgets and grants are charged for what ran until now before they decide who is next: it stops only afterwards, if it
 * would go on.
 */
static __always_inline void settle_prev(struct task_struct *prev, struct cpu_ctx *c, u32 cpu, u64 now)
{
	struct task_ctx *t = prev && (prev->scx.flags & SCX_TASK_QUEUED) ? task_ctx(prev) : NULL;

	if (!t || !t->running)
		return;
	charge_place(prev, t, siblings_of(&t->m), c, now);
	turn_ends(cpu, t->m.queue, TURN_GOES_ON, now);
}

/*
 * A kernel thread that can run nowhere else goes on when its CPU is told to look around: at the head of the CPU's own
 * queue it would have to wait for the turn of whoever is chosen here.
 */
static __always_inline bool goes_on_anyway(struct cpu_ctx *c, u32 cpu, struct task_struct *prev, u64 now)
{
	if (!prev || !(prev->scx.flags & SCX_TASK_QUEUED) || !is_bound_kernel_thread(prev))
		return false;
	pass_slot(c, cpu, now);
	scx_set_slice(prev, ROTA_QUANTUM_NS);
	return true;
}

/* What ran until now goes on, without leaving the CPU: a new turn begins. */
static __always_inline void keep_prev(struct cpu_ctx *c, u32 cpu, struct task_struct *prev)
{
	struct task_ctx *t = prev ? task_ctx(prev) : NULL;

	turn_begins(c, cpu, c->picked, c->now);
	goes_on_serving(c);
	fair_turn(c, tenant_of(c->served), c->now);
	if (t) {
		stands_in(c, t, c->now);
		move_clocks(c, t, siblings_of(&t->m));
	}
	if (prev)
		scx_set_slice(prev, ROTA_QUANTUM_NS);
}

/*
 * When a CPU that idles looks again, besides for its slots. A thread may be on its way into a queue that was looked at:
 * whoever put it there counted it before, and has then seen this CPU as busy. Or this CPU idled, was told of somebody
 * whom another one had taken, and is in the kernel's mask of idle CPUs again only after this: nobody was told of who
 * was counted a moment ago.
 */
static __always_inline void look_while_idle(struct cpu_ctx *c, u32 cpu)
{
	if (c->level == ROTA_LEVEL_IDLE && !c->other_since && !scx_cpu_idles(cpu))
		c->look_at = min_time(c->look_at, c->now + ROTA_LOOK_AGAIN_NS);
	if (!may_miss(c)) {
		c->missed_ns = 0;
		return;
	}
	c->missed_ns = c->missed_ns ? min_time(2 * c->missed_ns, ROTA_LOOK_IDLE_NS) : ROTA_LOOK_AGAIN_NS;
	c->look_at = min_time(c->look_at, c->now + c->missed_ns);
}

/* Nothing to run. */
static __always_inline void go_idle(struct cpu_ctx *c, u32 cpu)
{
	c->picked = ROTA_LEVEL_IDLE;
	look_while_idle(c, cpu);
	c->until_ns = min_time(c->slot_end, c->look_at);
	if (!dozes_off(c, cpu))
		arm(c, c->until_ns);
}

/* When this is: if what ran until now has blocked, that was a moment ago, and `stopping` has read the clock. */
static __always_inline u64 now_after(const struct cpu_ctx *c, struct task_struct *prev)
{
	bool has_blocked = prev && !(prev->scx.flags & SCX_TASK_QUEUED);

	return has_blocked && c->other_since ? c->other_since : bpf_ktime_get_ns();
}

void STRUCT_OPS(rota_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	bool finds;

	if (!c)
		return;
	c->overtaken = false;
	c->decided = true;
	c->dozes = 0;
	c->claimed = ROTA_NONE;
	c->look_at = ROTA_NEVER;
	c->now = now_after(c, prev);
	if (goes_on_anyway(c, cpu, prev, c->now))
		return;
	settle_prev(prev, c, cpu, c->now);
	if (follow_slots(c, cpu, c->now) && c->slot_tenant != ROTA_NONE)
		call_siblings(c->slot_tenant);
	pass_on_taken(c);
	c->prev_dsq = dsq_of_prev(prev, cpu, c->buffer, c->now);
	finds = c->housekeeping ? pick_housekeeping(cpu) : pick_tenant(cpu);
	hold_claimed(c);
	if (!finds) {
		go_idle(c, cpu);
		return;
	}
	if (c->level == ROTA_LEVEL_IDLE && c->picked >= ROTA_LEVEL_SHARED)
		pass_lines_on(cpu);
	if (c->keeps_prev)
		keep_prev(c, cpu, prev);
	if (c->passes_on) {
		c->passes_on = false;
		pass_on(c->slot_tenant, c->now);
	}
	c->until_ns = min_time(c->until_ns, c->look_at);
	arm(c, c->until_ns);
}

/*
 * The task leaves for another class, or has ended. What ran until now has been counted when it stopped; this is for who
 * waited. One whose cgroup, weight or CPUs are changed while it waits comes through enqueue again.
 */
void STRUCT_OPS(rota_disable, struct task_struct *p)
{
	struct task_ctx *t = task_ctx(p);
	u64 now;

	if (!t)
		return;
	no_longer_rehomed(t); /* the loader may have looked at it as it began to run for the last time */
	if (!t->counted)
		return;
	now = bpf_ktime_get_ns();
	leaves_line(t);
	waits_no_more(t);
	t->queued_since = 0;
	t->overdue = false;
	t->counted = false;
	if (!has_left(t, now))
		queue_loses_thread(t->m.queue, false, now);
}

void STRUCT_OPS(rota_running, struct task_struct *p)
{
	struct task_ctx *t = task_ctx(p);
	u32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *c = cpu_ctx(cpu);
	u64 now = bpf_ktime_get_ns();
	struct queue_ctx *q;
	u32 cause;
	u64 took;

	if (!c || !t)
		return;
	took = took_to_start(c, t, now);
	c->resumes = !t->counted; /* by no enqueue: its affinity, or what not, was changed as it ran */
	if (!t->straight) {	  /* which has been looked at a moment ago */
		u32 queue = t->m.queue;

		settle_membership(p, t, now);
		becomes_runnable(p, t, now); /* who came by no enqueue of ours */
		if (t->m.queue != queue)
			c->overtaken = true; /* it was somebody else's when it was chosen */
	}
	/*
	 * Who starts without a decision has waited in this CPU's own queue for another class to leave, if for anything.
	 * One whose cgroup or affinity is changed stops and runs again at once.
	 */
	cause = c->other_since && !c->decided && now - c->other_since > ROTA_LATE_MIN_NS ? ROTA_CAUSE_HIGHER_CLASS
											 : ROTA_CAUSE_ROTA;
	settle_other(c, cpu, now);
	if (t->straight)
		starts_straight(c, cpu, t->m.tenant, now);
	t->straight = false;
	/* What a task of another class has interrupted goes on without dispatch being asked. */
	if (c->overtaken && !is_bound_kernel_thread(p))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	turn_begins(c, cpu, is_bound_kernel_thread(p) ? ROTA_LEVEL_KERNEL : c->picked, now);
	starts_serving(c);
	t->running = true;
	t->run_since = t->charged = now;
	t->queued_since = 0;
	t->overdue = false;
	leaves_line(t);
	waits_no_more(t);
	fair_begins(cpu, t->m.tenant, now);
	fair_charge(c, took);
	service_begins(cpu, t->m.queue, t->m.tenant, cause, now);
	stands_in(c, t, now);
	q = queue_ctx(t->m.queue);
	if (q && t->last_cpu != cpu)
		__sync_fetch_and_add(&q->account.migrations, 1);
	t->last_cpu = cpu;
	move_clocks(c, t, siblings_of(&t->m));
}

/* What a task used is counted for it and for its queue. */
static __always_inline void settle_task(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, u32 cpu,
					bool runnable, u64 now)
{
	struct queue_ctx *q = queue_ctx(t->m.queue);
	struct rota_tenant *tenant = tenant_of(t->m.tenant);
	bool blocks;

	if (!q || !tenant || !t->running)
		return;
	t->running = false;
	stands_in_no_more(t, now);
	charge_place(p, t, siblings_of(&t->m), c, now);
	if (is_shared_tenant(tenant) && is_restricted(p))
		fair_finish(t, tenant, now - t->run_since);
	blocks = !runnable && t->counted && !has_left(t, now);
	if (!runnable)
		t->counted = false;
	turn_ends(cpu, t->m.queue, blocks ? TURN_BLOCKS : TURN_STOPS, now);
}

/*
 * Another class takes the CPU, with dispatch not asked. A thread that has some of its slice left would stay in the
 * CPU's own queue, where no other CPU finds it, for as long as that class wants; without any it comes through enqueue.
 */
static __always_inline void gives_way(struct cpu_ctx *c, struct task_struct *p)
{
	if (c->decided || is_bound_kernel_thread(p))
		return;
	scx_set_slice(p, 0);
	serves_no_more(c);
}

void STRUCT_OPS(rota_stopping, struct task_struct *p, bool runnable)
{
	struct task_ctx *t = task_ctx(p);
	u32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *c = cpu_ctx(cpu);
	u64 now;

	if (!c || !t)
		return;
	/* The decision's time is the next one's, as in the kernel's account: what ran until then has been charged. */
	now = runnable && c->decided ? c->now : bpf_ktime_get_ns();
	c->other_since = now;
	settle_task(p, t, c, cpu, runnable, now);
	c->served = ROTA_NONE;
	stops_serving(c, now);
	if (runnable) {
		fair_ends(c); /* dispatch has chosen another one, or was not asked */
		gives_way(c, p);
	}
}

void STRUCT_OPS(rota_update_idle, s32 cpu, bool idle)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	u64 now;

	if (!c)
		return;
	now = idle && c->decided ? c->now : bpf_ktime_get_ns(); /* this was the decision */
	settle_other(c, cpu, now);
	if (idle) {
		fair_ends(c);
		/* Said first, looked at after: who puts a thread where this CPU takes it from counts it first. */
		__sync_lock_test_and_set(&c->level, ROTA_LEVEL_IDLE);
		c->idle_since = now;
		if (may_miss(c))
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	if (c->idle_since)
		c->account.idle_ns += now - c->idle_since;
	c->idle_since = c->missed_ns = 0;
	c->other_since = now;
}

s32 STRUCT_OPS(rota_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_ctx *t = bpf_task_storage_get(&tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t)
		return -ENOMEM;
	classify(p, &t->m);
	t->cgroup = 0; /* the task may be on its way into another cgroup: look again when it first runs */
	t->last_cpu = t->stands_in_for = ROTA_NONE;
	return 0;
}

static __always_inline s32 init_cpu(u32 cpu)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct bpf_cpumask *both;
	s32 error;

	if (!c)
		return -EINVAL;
	both = bpf_cpumask_create();
	if (!both)
		return -ENOMEM;
	both = bpf_kptr_xchg(&c->both, both);
	if (both)
		bpf_cpumask_release(both);
	c->number = cpu;
	c->domain = cpu < ROTA_TABLE_CPUS_MAX ? settings.domain[cpu] : 0;
	fair_seat(c);
	c->sibling = cpu < ROTA_TABLE_CPUS_MAX ? settings.sibling[cpu] : cpu;
	c->housekeeping = is_housekeeping(cpu);
	c->slot_vcpu = c->slot_queue = c->slot_tenant = c->second_local = c->second_tenant = ROTA_NONE;
	c->held = c->serving = ROTA_NONE;
	c->served = c->lasting = c->prev_tenant = ROTA_NONE;
	c->dozes = 1; /* it may idle already */
	c->until_ns = c->slot_end = ROTA_NEVER;
	c->buffer = ROTA_NONE;
	c->background.served = c->pinned.served = c->shared.served = bpf_ktime_get_ns();
	error = bpf_timer_init(&c->timer, &cpus, CLOCK_MONOTONIC);
	error = error ?: bpf_timer_set_callback(&c->timer, slot_timer);
	error = error ?: scx_bpf_create_dsq(DSQ_BACKGROUND(cpu), -1);
	error = error ?: scx_bpf_create_dsq(DSQ_BOUND(cpu), -1);
	return error ?: scx_bpf_create_dsq(DSQ_PINNED(cpu), -1);
}

s32 STRUCT_OPS_SLEEPABLE(rota_init)
{
	s32 error = make_masks(ROTA_NONE);
	u32 i;

	bpf_for (i, 0, settings.nr_domains) {
		if (error)
			break;
		error = scx_bpf_create_dsq(DSQ_SHARED(i), -1);
	}
	bpf_for (i, 0, nr_host_cpus) {
		if (error)
			break;
		error = init_cpu(i);
	}
	bpf_for (i, 0, nr_queues) {
		if (error)
			break;
		error = scx_bpf_create_dsq(DSQ_QUEUE(i), -1);
	}
	return error;
}

void STRUCT_OPS(rota_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(exit_info.reason, sizeof(exit_info.reason), info->reason);
	bpf_probe_read_kernel_str(exit_info.msg, sizeof(exit_info.msg), info->msg);
	exit_info.code = info->exit_code;
	__sync_fetch_and_or(&exit_info.kind, info->kind);
}

SEC(".struct_ops.link")
struct sched_ext_ops rota = {
	.select_cpu = (void *)rota_select_cpu,
	.enqueue = (void *)rota_enqueue,
	.dispatch = (void *)rota_dispatch,
	.running = (void *)rota_running,
	.stopping = (void *)rota_stopping,
	.update_idle = (void *)rota_update_idle,
	.init_task = (void *)rota_init_task,
	.disable = (void *)rota_disable,
	.init = (void *)rota_init,
	.exit = (void *)rota_exit,
	/* Every task that stops comes through enqueue: the kernel would let those that exit, or are held by a CPU for a
	 * moment, run before the slot's owner. */
	.flags = SCX_OPS_ENQ_LAST | SCX_OPS_KEEP_BUILTIN_IDLE | SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED,
	.timeout_ms = 30000,
	.name = "rota",
};
