/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A scheduler for Linux guests that know their timetable: threads leave a CPU just before its slot ends, for one that
 * runs then, and come back when its next slot begins. Each CPU has a queue, in the order of virtual time; a CPU without
 * threads takes some from the others. The kernel's own scheduler takes over when its loader ends, however it does.
 *
 *   vcpu.bpf.h   what can be expected of a CPU
 *   look.bpf.h   a CPU's timer
 *   place.bpf.h  where threads run
 *   spin.bpf.h   threads that wait busily
 *
 * The simulator's guests run this text: crates/rota-twin/src/rota/guest.rs.
 */
#include "vcpu.bpf.h"
#include "look.bpf.h"
#include "place.bpf.h"
#include "spin.bpf.h"

/* So many threads of a queue are looked at. */
#define LOOKS 16

char _license[] SEC("license") = "GPL";

u64 vtime_now = 1ULL << 40; /* of the thread last started: newcomers begin here; a hint */

s32 STRUCT_OPS(guest_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *t = task_ctx(p);
	struct vcpu *v;
	s32 cpu;

	if (!t)
		return prev_cpu;
	cpu = wakes_on(p, t, prev_cpu);
	v = vcpu_of(cpu);
	if (v && scx_bpf_test_and_clear_cpu_idle(cpu))
		scx_insert(p, SCX_DSQ_LOCAL, slice_now(), 0);
	return cpu;
}

/* A CPU that idles without a timer, since nobody ran: it is to set that. -1: there is none. */
__noinline s32 sleeper(u32 not)
{
	u32 i;

	bpf_for (i, 0, nr_host_cpus) {
		struct vcpu *v = vcpu_of(i);

		if (i != not&&v && !v->due && scx_cpu_idles(i))
			return i;
	}
	return -1;
}

/* Has the CPU where a thread was queued know of it, or another one that could take it; `first`: it runs at once. */
static __always_inline void tell(struct task_struct *p, s32 cpu, bool first)
{
	s32 idle;

	if (scx_bpf_test_and_clear_cpu_idle(cpu)) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	if (first) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return;
	}
	idle = idle_there(p, cpu);
	if (idle < 0)
		idle = sleeper(cpu);
	if (idle >= 0)
		scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
}

void STRUCT_OPS(guest_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p), to = cpu;
	struct task_ctx *t = task_ctx(p);
	struct vcpu *v = vcpu_of(cpu);
	u64 vtime;

	if (!t || !v) {
		scx_insert(p, SCX_DSQ_LOCAL, SHORT_NS, enq_flags);
		return;
	}
	if (stays(p) && p->flags & PF_KTHREAD) {
		scx_insert(p, SCX_DSQ_LOCAL, SLICE_NS, enq_flags);
		return;
	}
	if (!stays(p) && !(enq_flags & SCX_ENQ_WAKEUP))
		to = goes_on_on(p, t, cpu, v);
	v = vcpu_of(to);
	if (!v)
		return;
	if (enq_flags & SCX_ENQ_LAST && to == cpu) {
		/* Nobody else is there, and the CPU would idle beside it. */
		scx_insert(p, SCX_DSQ_LOCAL, slice_now(), enq_flags);
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	vtime = t->gives_way && !(enq_flags & SCX_ENQ_WAKEUP) ? max_time(t->vtime, vtime_now) + SLICE_NS
							      : max_time(t->vtime, vtime_now - SLICE_NS);
	if (t->home >= 0 && t->home != to && !runs_until(t->home))
		crowds(t->home);
	scx_insert_vtime(p, to, slice_now(), vtime, enq_flags);
	/* Who could not stay goes first, and so does who is at home where a guest runs. */
	tell(p, to, to != cpu || (t->home == to && has_guest(v, to)));
}

/* The threads that wait on a CPU which is stopped, or about to be, go elsewhere. */
static __always_inline void leave(u32 cpu, struct vcpu *v)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	u32 i;

	if (bpf_iter_scx_dsq_new(&it, cpu, 0)) {
		bpf_iter_scx_dsq_destroy(&it);
		return;
	}
	bpf_for (i, 0, LOOKS) {
		s32 to;

		p = bpf_iter_scx_dsq_next(&it);
		if (!p)
			break;
		to = stays(p) ? -1 : refuge(p, cpu);
		if (to < 0)
			continue;
		crowds(cpu);
		scx_bpf_dsq_move_vtime(&it, p, to, 0);
		scx_bpf_kick_cpu(to, SCX_KICK_PREEMPT);
		v->account.moved++;
	}
	bpf_iter_scx_dsq_destroy(&it);
}

/* A thread that waits on another CPU, of those at home here, comes to this one. */
__noinline bool fetch_own(u32 from, u32 cpu)
{
	struct bpf_iter_scx_dsq it;
	struct vcpu *v = vcpu_of(cpu);
	struct task_struct *p;
	bool found = false;
	u32 i;

	if (bpf_iter_scx_dsq_new(&it, from, 0)) {
		bpf_iter_scx_dsq_destroy(&it);
		return false;
	}
	bpf_for (i, 0, LOOKS) {
		struct task_ctx *t;

		p = bpf_iter_scx_dsq_next(&it);
		if (!p)
			break;
		t = task_ctx(p);
		if (!t || t->home != (s32)cpu || !may_run(p, cpu))
			continue;
		found = scx_bpf_dsq_move(&it, p, SCX_DSQ_LOCAL, 0);
		if (found)
			break;
	}
	bpf_iter_scx_dsq_destroy(&it);
	if (found && v)
		__sync_fetch_and_add(&v->account.back, 1);
	return found;
}

/* A CPU without threads takes one that waits elsewhere: one at home here, else one from the longest queue. */
__noinline bool fetch(u32 cpu)
{
	u32 i, most = 0;
	s32 longest = -1;

	bpf_for (i, 0, nr_host_cpus) {
		u32 waiting = i == cpu ? 0 : scx_bpf_dsq_nr_queued(i);

		if (!waiting)
			continue;
		if (fetch_own(i, cpu))
			return true;
		if (waiting > most) {
			most = waiting;
			longest = i;
		}
	}
	return longest >= 0 && scx_move_to_local(longest);
}

/* A CPU without threads has the one back that runs on another CPU where others wait. */
__noinline int call_home(u32 cpu)
{
	u32 i;

	bpf_for (i, 0, nr_host_cpus) {
		struct vcpu *other = vcpu_of(i);

		if (i == cpu || !other || !other->busy || other->home != (s32)cpu || !scx_bpf_dsq_nr_queued(i))
			continue;
		other->recalls = cpu;
		scx_bpf_kick_cpu(i, SCX_KICK_PREEMPT);
		return 0;
	}
	return 0;
}

/* Nobody waits on a CPU whose thread would go on: it does, unless it waits busily and another one waits elsewhere. */
static __always_inline void stay(u32 cpu, struct vcpu *v, struct task_struct *p)
{
	struct task_ctx *t = task_ctx(p);

	if (t && t->gives_way && is_there(cpu) && fetch(cpu))
		return;
	if (t)
		t->gives_way = false;
	if (v->recalls < 0)
		scx_set_slice(p, slice_now());
	spin_starts(cpu, t);
}

void STRUCT_OPS(guest_dispatch, s32 cpu, struct task_struct *prev)
{
	struct vcpu *v = vcpu_of(cpu);
	bool stops;

	if (!v)
		return;
	stops = !runs_until(cpu);
	if (stops && prev && prev->scx.flags & SCX_TASK_QUEUED && !stays(prev) && refuge(prev, cpu) >= 0) {
		/* It leaves first, through enqueue; those that wait have less time to lose. */
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	if (stops)
		leave(cpu, v);
	if (scx_move_to_local(cpu)) {
		look_later(cpu, v);
		return;
	}
	if (prev && prev->scx.flags & SCX_TASK_QUEUED) {
		stay(cpu, v, prev);
	} else if (!stops && is_there(cpu)) {
		fetch(cpu);
		call_home(cpu);
	}
	look_later(cpu, v);
}

void STRUCT_OPS(guest_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct task_ctx *t = task_ctx(p);
	struct vcpu *v = vcpu_of(cpu);

	if (!t || !v)
		return;
	/* It keeps its home while that is stopped. */
	if (t->home < 0 || (t->home != cpu && is_there(t->home)))
		t->home = cpu;
	if (t->vtime > vtime_now)
		vtime_now = t->vtime;
	v->busy = 1;
	v->home = t->home;
	v->recalls = -1;
	v->since = bpf_ktime_get_ns();
	t->gives_way = false;
	spin_starts(cpu, t);
	if (v->taken && !stays(p) && !runs_until(cpu))
		v->account.strays++;
	look_later(cpu, v);
}

void STRUCT_OPS(guest_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct task_ctx *t = task_ctx(p);
	struct vcpu *v = vcpu_of(cpu);

	if (!t || !v)
		return;
	t->vtime = max_time(t->vtime, vtime_now - SLICE_NS);
	t->vtime += (bpf_ktime_get_ns() - v->since) * ROTA_WEIGHT_ONE / (p->scx.weight ?: 1);
	v->busy = 0;
	if (!runnable)
		spin_sleeps(t);
	if (v->ends && !stays(p)) {
		if (host_time() < v->ends)
			v->account.left++;
		else
			v->account.caught++;
	}
	v->ends = 0;
}

s32 STRUCT_OPS(guest_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_ctx *t = bpf_task_storage_get(&tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t)
		return -ENOMEM;
	t->home = -1;
	t->vtime = vtime_now;
	return 0;
}

s32 STRUCT_OPS_SLEEPABLE(guest_init)
{
	u32 cpu;

	bpf_for (cpu, 0, nr_host_cpus) {
		struct spinner *s = bpf_map_lookup_elem(&spinners, &cpu);
		struct vcpu *v = vcpu_of(cpu);
		s32 error;

		if (!v || !s)
			return -EINVAL;
		v->home = v->recalls = -1;
		error = bpf_timer_init(&v->timer, &vcpus, CLOCK_MONOTONIC);
		error = error ?: bpf_timer_set_callback(&v->timer, look);
		error = error ?: bpf_timer_init(&s->timer, &spinners, CLOCK_MONOTONIC);
		error = error ?: bpf_timer_set_callback(&s->timer, spin_look);
		error = error ?: scx_bpf_create_dsq(cpu, -1);
		if (error)
			return error;
	}
	return 0;
}

void STRUCT_OPS(guest_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(exit_info.reason, sizeof(exit_info.reason), info->reason);
	bpf_probe_read_kernel_str(exit_info.msg, sizeof(exit_info.msg), info->msg);
	__sync_fetch_and_or(&exit_info.kind, info->kind);
}

SEC(".struct_ops.link")
struct sched_ext_ops rota_guest = {
	.select_cpu = (void *)guest_select_cpu,
	.enqueue = (void *)guest_enqueue,
	.dispatch = (void *)guest_dispatch,
	.running = (void *)guest_running,
	.stopping = (void *)guest_stopping,
	.init_task = (void *)guest_init_task,
	.init = (void *)guest_init,
	.exit = (void *)guest_exit,
	.flags = SCX_OPS_ENQ_LAST,
	.timeout_ms = 30000,
	.name = "rota_guest",
};
