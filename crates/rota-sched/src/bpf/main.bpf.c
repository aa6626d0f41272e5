/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rota's scheduler: a table of contents. Each operation is here, what it consists of is in the headers:
 *
 *   what is given      kernel.bpf.h    the kernel's types and calls that are used
 *                      shared.h        what crosses to the loader: map values, counters, constants
 *                      state.bpf.h     what is remembered per CPU, queue and task
 *   the table          buffers.bpf.h   where tables lie
 *                      table.bpf.h     which vCPU owns a CPU now
 *                      homes.bpf.h     on which CPUs a vCPU has slots
 *                      slot.bpf.h      the slot in force on a CPU, and its timer
 *                      switch.bpf.h    from one slot to the next
 *                      handover.bpf.h  which CPU has a vCPU, and which CPU gets it next
 *   who                tenant.bpf.h    the tenant and the queue of a task
 *                      siblings.bpf.h  turns between the threads of one queue
 *                      cpus.bpf.h      the roles of CPUs, and on which of them a task may run
 *                      masks.bpf.h     the masks of CPUs by role
 *                      locals.bpf.h    the vCPUs of a CPU, and whether a thread waits for one of them
 *   waiting            line.bpf.h      where threads wait, how many, and for how long
 *                      bound.bpf.h     at which CPUs bound threads wait
 *                      place.bpf.h     in which line a task waits
 *                      enqueue.bpf.h   it waits there, and a CPU is told
 *                      offer.bpf.h     what tells wakers which CPU would take a thread
 *                      wake.bpf.h      which CPU a task that wakes is sent to
 *                      tell.bpf.h      which CPU is told
 *                      kick.bpf.h      how a CPU is made to decide
 *   what runs next     order.bpf.h     the levels, one after the other
 *                      pick.bpf.h      how a CPU takes a thread
 *                      floor.bpf.h     what has waited too long
 *                      window.bpf.h    what a vCPU may claim of a window
 *                      windows.bpf.h   which vCPU is next, where its CPU decides that
 *                      second.bpf.h    reserved tenants, beyond their slots
 *   shared tenants     fair.bpf.h      which tenant is next
 *                      front.bpf.h     the thread of a tenant that is in line
 *                      fair_enqueue.bpf.h  where a thread waits
 *                      straight.bpf.h  starting without a decision
 *                      yield.bpf.h     which CPU gives way
 *                      shares.bpf.h    what each has received, by weight
 *                      clock.bpf.h     virtual times
 *   turns              pass.bpf.h      a slot or a turn is over
 *                      turn.bpf.h      a turn goes on, or ends
 *                      charge.bpf.h    what it used
 *                      events.bpf.h    the moments to which others listen
 *                      account.bpf.h   service, blackouts, lost time
 *                      profile.bpf.h   where threads' time went, and for whom they waited
 *                      syscalls.bpf.h  what a system call waits for
 *                      spin.bpf.h      threads that wait busily give way to their siblings
 *                      branches.bpf.h  which of them the processor's records show
 *                      idle.bpf.h      a CPU finds nothing to run
 *   the loader         begin.bpf.h     a CPU as the scheduler is loaded
 *                      grace.bpf.h     how long the scheduler goes on without a daemon
 *                      control.bpf.h   publish a table, change weights
 *                      rehome.bpf.h    send waiting tasks to where they belong now
 *
 * After Tableau (Vanga, thesis 2020, chapter 4).
 */
#include "kernel.bpf.h"
#include "shared.h"
#include "buffers.bpf.h"
#include "state.bpf.h"
#include "table.bpf.h"
#include "kick.bpf.h"
#include "clock.bpf.h"
#include "shares.bpf.h"
#include "bound.bpf.h"
#include "line.bpf.h"
#include "account.bpf.h"
#include "siblings.bpf.h"
#include "charge.bpf.h"
#include "syscalls.bpf.h"
#include "profile.bpf.h"
#include "branches.bpf.h"
#include "spin.bpf.h"
#include "events.bpf.h"
#include "tenant.bpf.h"
#include "cpus.bpf.h"
#include "masks.bpf.h"
#include "handover.bpf.h"
#include "homes.bpf.h"
#include "slot.bpf.h"
#include "offer.bpf.h"
#include "locals.bpf.h"
#include "window.bpf.h"
#include "pick.bpf.h"
#include "second.bpf.h"
#include "place.bpf.h"
#include "wake.bpf.h"
#include "tell.bpf.h"
#include "enqueue.bpf.h"
#include "switch.bpf.h"
#include "front.bpf.h"
#include "yield.bpf.h"
#include "fair.bpf.h"
#include "straight.bpf.h"
#include "fair_enqueue.bpf.h"
#include "floor.bpf.h"
#include "windows.bpf.h"
#include "order.bpf.h"
#include "idle.bpf.h"
#include "pass.bpf.h"
#include "turn.bpf.h"
#include "rehome.bpf.h"
#include "control.bpf.h"
#include "begin.bpf.h"
#include "grace.bpf.h"

char _license[] SEC("license") = "GPL";

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

void STRUCT_OPS(rota_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *t = task_ctx(p);
	struct queue_ctx *q;
	u64 now, dsq;
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
	if (line_kind(dsq) == ROTA_LINE_SHARED)
		fair_enqueue(p, enq_flags);
	else
		line_enqueue(p, t, q, dsq, enq_flags, sent, now);
}

void STRUCT_OPS(rota_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	bool follows, finds;
	struct run *r;

	if (!c)
		return;
	r = &c->run;
	c->turn.decided = true;
	c->turn.picked_local = ROTA_NONE;
	c->offer.dozes = 0;
	c->claims.claimed = ROTA_NONE;
	r->look_at = ROTA_NEVER;
	r->now = now_after(c, prev);
	r->goes_on = turn_goes_on(c, prev, r->now);
	c->turn.overtaken = false;
	if (goes_on_anyway(c, cpu, prev, r->now))
		return;
	settle_prev(prev, c, cpu, r->now);
	settle_taken(c, cpu, r->now);
	follows = follow_slots(c, cpu, r->now);
	r->goes_on &= !follows;
	if ((follows || (c->slot.in_windows && !r->goes_on)) && c->slot.tenant != ROTA_NONE)
		call_siblings(c->slot.tenant);
	r->prev_dsq = dsq_of_prev(prev, cpu, c->slot.buffer, r->now);
	finds = c->role.housekeeping ? pick_housekeeping(r) : pick_tenant(r);
	hold_claimed(c);
	pass_on_taken(c, r->now);
	if (!finds) {
		go_idle(r, c);
		return;
	}
	if (c->turn.level == ROTA_LEVEL_IDLE && c->turn.picked >= ROTA_LEVEL_SHARED)
		pass_lines_on(cpu);
	if (r->keeps_prev)
		keep_prev(r, c, prev);
	if (r->passes_on) {
		r->passes_on = false;
		pass_on(c->slot.tenant, r->now);
	}
	c->turn.until_ns = min_time(c->turn.until_ns, r->look_at);
	arm(c, c->turn.until_ns);
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
	on_leaves(t, bpf_ktime_get_ns());
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
	u32 before, cause;
	u64 took;

	if (!c || !t)
		return;
	took = took_to_start(c, t, now);
	c->turn.resumes = !t->counted; /* by no enqueue: its affinity, or what not, was changed as it ran */
	if (!t->straight) {	       /* which has been looked at a moment ago */
		u32 queue = t->m.queue;

		settle_membership(p, t, now);
		becomes_runnable(p, t, now); /* a thread that came by no enqueue of ours */
		if (t->m.queue != queue)
			c->turn.overtaken = true; /* it was somebody else's when it was chosen */
	}
	/*
	 * A thread that starts without a decision may have waited in this CPU's own queue for another class to leave. A
	 * thread whose cgroup or affinity is changed stops and runs again at once.
	 */
	cause = c->turn.other_since && !c->turn.decided && now - c->turn.other_since > ROTA_LATE_MIN_NS
			? ROTA_CAUSE_HIGHER_CLASS
			: ROTA_CAUSE_ROTA;
	settle_other(c, cpu, ROTA_LATE_MIN_NS, now);
	if (t->straight)
		starts_straight(c, cpu, t->m.tenant, now);
	t->straight = false;
	/* What a task of another class has interrupted goes on without dispatch being asked. */
	if (c->turn.overtaken && !is_bound_kernel_thread(p))
		decide_anew(cpu);
	before = c->turn.local;
	turn_begins(c, cpu, is_bound_kernel_thread(p) ? ROTA_LEVEL_KERNEL : c->turn.picked, now);
	starts_serving(c);
	t->running = true;
	t->run_since = t->charged = now;
	t->queued_since = 0;
	t->overdue = false;
	leaves_line(t);
	waits_no_more(t);
	fair_begins(cpu, t->m.tenant, now);
	charge_start(c, before, took);
	on_starts(c, cpu, t, cause, now);
	q = queue_ctx(t->m.queue);
	if (q && t->last_cpu != cpu && t->last_cpu != ROTA_NONE)
		__sync_fetch_and_add(&q->account.migrations, 1);
	t->last_cpu = cpu;
	move_clocks(c, t, siblings_of(&t->m));
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
	now = runnable && c->turn.decided ? c->run.now : bpf_ktime_get_ns();
	c->turn.other_since = now;
	settle_task(p, t, c, cpu, runnable, now);
	c->fair.served = ROTA_NONE;
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
	now = idle && c->turn.decided ? c->run.now : bpf_ktime_get_ns(); /* this was the decision */
	if (!idle) {
		on_is_busy(c, cpu, now);
		c->idle.missed_ns = 0;
		return;
	}
	on_idles(c, cpu, now);
	fair_ends(c);
	/* Publish, then look; a waker's end is tell_new_idle_cpu. */
	__sync_lock_test_and_set(&c->turn.level, ROTA_LEVEL_IDLE);
	if (may_miss(c))
		decide_if_idle(cpu);
}

/* sched_yield; or KVM has seen that a vCPU waits busily, and asks for another one. Whether that is carried out. */
bool STRUCT_OPS(rota_yield, struct task_struct *from, struct task_struct *to)
{
	struct cpu_ctx *c = cpu_ctx(scx_bpf_task_cpu(from));
	struct task_ctx *t = task_ctx(from);

	if (!c || !t)
		return false;
	if (to)
		return on_vcpu_spins(c, from, t, task_ctx(to));
	on_yields(c, from, t);
	return false;
}

s32 STRUCT_OPS(rota_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_ctx *t = bpf_task_storage_get(&tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t)
		return -ENOMEM;
	classify(p, &t->m);
	t->cgroup = 0; /* the task may be on its way into another cgroup: look again when it first runs */
	t->last_cpu = t->stands_in_for = ROTA_NONE;
	t->turn_ns = ROTA_QUANTUM_NS;
	return 0;
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
	return error ?: begin_grace();
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
	.yield = (void *)rota_yield,
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
