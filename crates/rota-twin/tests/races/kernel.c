/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Of sched_ext what the scheduler needs here, with CPUs that do it at once: run queues with their locks, dispatch
 * queues, kicks that go out when a CPU has left its locks, timers. The calls' order is that of kernel/sched/ext.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The kernel's header has these for itself. */
#undef NULL
#undef __always_inline
#include "kernel.bpf.h"
#include "shared.h"
#include "races.h"
#include "explore.h"
#include "kernel.h"

#define DSQS 16

static struct task_struct tasks[TASKS];
static struct cgroup cgroup;
static struct kernfs_node node = {.id = 7};
static struct css_set set = {.dfl_cgrp = &cgroup};
static struct cpumask everywhere, idlers;

struct task tasks_now[TASKS];
struct cpu cpus_now[CPUS];
u64 clock_ns;
static struct {
	u64 id;
	int tasks[TASKS];
	int count;
} dsqs[DSQS];

/* Which CPU does what is being done. */
static int here(void)
{
	int actor = this_actor();

	return actor < 0 ? cpus_now[0].acts_as : actor < CPUS ? actor : CPUS - 1;
}

static bool is_free(int actor, void *lock)
{
	return !*(bool *)lock;
}

static void take(bool *lock)
{
	yield_to_others();
	while (*lock)
		wait_until(is_free, lock);
	*lock = true;
}

static int number_of(const struct task_struct *p)
{
	return p - tasks;
}

static struct task_struct *shown(int task)
{
	tasks[task].scx.flags = tasks_now[task].queued ? SCX_TASK_QUEUED : 0;
	tasks[task].scx.slice = tasks_now[task].slice;
	return &tasks[task];
}

void machine_reset(void)
{
	int i;

	memset(dsqs, 0, sizeof(dsqs));
	memset(tasks_now, 0, sizeof(tasks_now));
	memset(cpus_now, 0, sizeof(cpus_now));
	for (i = 0; i < TASKS; i++)
		tasks[i] = (struct task_struct){.nr_cpus_allowed = CPUS,
						.cpus_ptr = &everywhere,
						.scx.weight = 100,
						.pid = i + 1,
						.cgroups = &set};
	for (i = 0; i < CPUS; i++)
		cpus_now[i].current = NOBODY;
	cgroup.kn = &node;
}

void machine_begin(void)
{
	int i;

	for (i = 0; i < TASKS; i++)
		operations()->init_task(shown(i), NULL);
}

static int dsq_find(u64 id)
{
	int i;

	for (i = 0; i < DSQS && dsqs[i].id; i++)
		if (dsqs[i].id == id)
			return i;
	if (i == DSQS)
		exit(1);
	dsqs[i].id = id;
	return i;
}

static void dsq_push(int dsq, int task)
{
	dsqs[dsq].tasks[dsqs[dsq].count++] = task;
}

static int dsq_pop(int dsq)
{
	int task;

	if (!dsqs[dsq].count)
		return NOBODY;
	task = dsqs[dsq].tasks[0];
	memmove(dsqs[dsq].tasks, dsqs[dsq].tasks + 1, sizeof(int) * --dsqs[dsq].count);
	return task;
}

static int place_in(int dsq, int task)
{
	int place = 0;

	while (place < dsqs[dsq].count && dsqs[dsq].tasks[place] != task)
		place++;
	return place;
}

/* Whether it was there. */
static bool dsq_remove(int dsq, int task)
{
	int place = place_in(dsq, task);

	if (place == dsqs[dsq].count)
		return false;
	memmove(dsqs[dsq].tasks + place, dsqs[dsq].tasks + place + 1, sizeof(int) * (--dsqs[dsq].count - place));
	return true;
}

static void local_push(int cpu, int task)
{
	cpus_now[cpu].local[cpus_now[cpu].nr_local++] = task;
	tasks_now[task].cpu = cpu;
}

/* enqueue, and then what it asked for. */
static void enqueue(int task, u64 flags)
{
	tasks_now[task].sent_to = 0;
	operations()->enqueue(shown(task), flags);
	yield_to_others();
	if (tasks_now[task].sent_to == SCX_DSQ_LOCAL)
		local_push(tasks_now[task].cpu, task);
	else
		dsq_push(dsq_find(tasks_now[task].sent_to), task);
}

/* The kicks that a CPU has asked for go out now that it holds no lock. */
static void send_kicks(int cpu)
{
	while (cpus_now[cpu].nr_kicks) {
		struct kick kick = cpus_now[cpu].kicks[--cpus_now[cpu].nr_kicks];
		struct cpu *target = &cpus_now[kick.cpu];

		take(&target->lock);
		if (!kick.if_idle && target->current != NOBODY)
			tasks_now[target->current].slice = 0;
		if (!kick.if_idle || target->current == NOBODY)
			target->resched = true;
		target->lock = false;
	}
}

static int pick(int cpu, int prev)
{
	struct cpu *c = &cpus_now[cpu];

	if (prev != NOBODY && tasks_now[prev].queued && tasks_now[prev].slice)
		return prev;
	if (!c->nr_local)
		operations()->dispatch(cpu, prev == NOBODY ? NULL : shown(prev));
	if (prev != NOBODY && tasks_now[prev].queued && tasks_now[prev].slice)
		return prev;
	return c->nr_local ? c->local[0] : NOBODY;
}

/* What comes after this until the switch is the kernel's, and no longer the task's. */
static void stop(int task, bool runnable)
{
	tasks_now[task].runs = false;
	operations()->stopping(shown(task), runnable);
}

/* A higher class has the CPU: what ran stays in the CPU's own queue until the scheduler has that queued anew. */
static void give_up(int cpu)
{
	struct cpu *c = &cpus_now[cpu];
	int prev = c->current;

	c->current = NOBODY;
	if (prev == NOBODY)
		return;
	stop(prev, true);
	if (tasks_now[prev].slice)
		local_push(cpu, prev);
	else
		enqueue(prev, 0);
}

/* Later, with the lock taken again. */
static void queue_anew(int cpu)
{
	struct cpu *c = &cpus_now[cpu];

	if (!c->queues_anew)
		return;
	c->queues_anew = false;
	take(&c->lock);
	while (c->nr_local)
		enqueue(c->local[--c->nr_local], 0);
	c->lock = false;
}

static void schedule(int cpu)
{
	struct cpu *c = &cpus_now[cpu];
	int prev, next;

	take(&c->lock);
	c->resched = false;
	prev = c->current;
	if (prev != NOBODY && tasks_now[prev].blocks) {
		tasks_now[prev].blocks = tasks_now[prev].queued = false;
		stop(prev, false);
	}
	if (c->taken) {
		give_up(cpu);
		c->lock = false;
		return;
	}
	next = pick(cpu, prev);
	if (next != prev) {
		if (prev != NOBODY && tasks_now[prev].queued) {
			stop(prev, true);
			enqueue(prev, 0);
		}
		c->current = next;
		if (next != NOBODY) {
			memmove(c->local, c->local + 1, sizeof(int) * --c->nr_local);
			c->idle = false;
			if (prev == NOBODY)
				operations()->update_idle(cpu, false);
			tasks_now[next].runs = true;
			operations()->running(shown(next));
		} else {
			c->idle = true;
			yield_to_others();
			operations()->update_idle(cpu, true);
		}
		check_running();
	} else if (next == NOBODY) {
		c->idle = true;
	}
	if (prev != NOBODY && !tasks_now[prev].queued)
		tasks_now[prev].sleeps = true;
	c->lock = false;
}

static bool has_cause(int cpu, void *unused)
{
	struct cpu *c = &cpus_now[cpu];

	return c->resched || (c->timer_ns && clock_ns >= c->timer_ns) ||
	       (c->current != NOBODY && tasks_now[c->current].blocks);
}

bool cpu_step(int cpu)
{
	struct cpu *c = &cpus_now[cpu];

	if (!has_cause(cpu, NULL))
		return false;
	if (!c->resched && c->timer_ns && clock_ns >= c->timer_ns) {
		c->timer_ns = 0;
		fire(cpu);
	} else {
		schedule(cpu);
	}
	queue_anew(cpu);
	send_kicks(cpu);
	return true;
}

void cpu_works(int cpu)
{
	for (;;)
		if (!cpu_step(cpu))
			wait_until(has_cause, NULL);
}

void wake(int task)
{
	int cpu;

	tasks_now[task].sent_to = 0;
	cpu = tasks_now[task].cpu = operations()->select_cpu(shown(task), tasks_now[task].cpu, 8);
	take(&cpus_now[cpu].lock);
	tasks_now[task].queued = true;
	tasks_now[task].sleeps = false;
	if (tasks_now[task].sent_to)
		local_push(cpu, task);
	else
		enqueue(task, SCX_ENQ_WAKEUP);
	if (cpus_now[cpu].current == NOBODY)
		cpus_now[cpu].resched = true;
	cpus_now[cpu].lock = false;
	send_kicks(here());
}

void change(int task, u64 dsq_id)
{
	struct cpu *c = &cpus_now[tasks_now[task].cpu];

	take(&c->lock);
	if (dsq_remove(dsq_find(dsq_id), task))
		enqueue(task, 0);
	c->lock = false;
	send_kicks(here());
}

void call(void (*work)(void))
{
	work();
	send_kicks(here());
}

/* The kernel's calls. */

u64 bpf_ktime_get_ns(void)
{
	yield_to_others();
	return clock_ns;
}

u32 bpf_get_smp_processor_id(void)
{
	return here();
}

struct task_struct *bpf_get_current_task_btf(void)
{
	return NULL;
}

void *bpf_task_storage_get(void *map, struct task_struct *task, void *value, u64 flags)
{
	return task_storage(number_of(task));
}

void *native_hash_find(const void *map, const void *key)
{
	static u32 tenant = 1;

	return &tenant;
}

void *native_cpustat(u32 cpu)
{
	static struct kernel_cpustat none;

	return &none;
}

void bpf_spin_lock(void *lock)
{
	take(lock);
}

void bpf_spin_unlock(void *lock)
{
	*(bool *)lock = false;
}

long bpf_timer_init(struct bpf_timer *timer, void *map, u64 flags)
{
	return 0;
}

long bpf_timer_set_callback(struct bpf_timer *timer, void *callback)
{
	return 0;
}

long bpf_timer_start(struct bpf_timer *timer, u64 at, u64 flags)
{
	cpus_now[cpu_of_timer(timer)].timer_ns = at;
	return 0;
}

s32 scx_bpf_create_dsq(u64 dsq_id, s32 numa_node)
{
	dsq_find(dsq_id);
	return 0;
}

s32 scx_bpf_dsq_nr_queued(u64 dsq_id)
{
	yield_to_others();
	return dsqs[dsq_find(dsq_id)].count;
}

void scx_bpf_kick_cpu(s32 cpu, u64 flags)
{
	struct cpu *c = &cpus_now[here()];

	if (c->nr_kicks == KICKS)
		exit(1);
	c->kicks[c->nr_kicks++] = (struct kick){cpu, flags & SCX_KICK_IDLE};
}

bool scx_bpf_test_and_clear_cpu_idle(s32 cpu)
{
	bool idle;

	yield_to_others();
	idle = cpus_now[cpu].idle;
	cpus_now[cpu].idle = false;
	return idle;
}

s32 scx_bpf_pick_idle_cpu(const cpumask_t *allowed, u64 flags)
{
	int cpu;

	for (cpu = 0; cpu < CPUS; cpu++)
		if (scx_bpf_test_and_clear_cpu_idle(cpu))
			return cpu;
	return -1;
}

const struct cpumask *scx_bpf_get_idle_cpumask(void)
{
	return &idlers;
}

/* All others have every CPU. */
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask)
{
	yield_to_others();
	return mask != &idlers || cpus_now[cpu].idle;
}

s32 scx_bpf_task_cpu(const struct task_struct *p)
{
	return tasks_now[number_of(p)].cpu;
}

bool scx_bpf_dsq_insert___v2___compat(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags)
{
	tasks_now[number_of(p)].sent_to = dsq_id;
	tasks_now[number_of(p)].slice = slice;
	return true;
}

bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args)
{
	return scx_bpf_dsq_insert___v2___compat(p, args->dsq_id, args->slice, args->enq_flags);
}

/* The task's run queue is locked while it moves, so it has left its CPU then; this CPU's is not meanwhile. */
static void moved_here(int task)
{
	int cpu = here(), from = tasks_now[task].cpu;

	if (from != cpu) {
		cpus_now[cpu].lock = false;
		take(&cpus_now[from].lock);
		tasks_now[task].cpu = cpu;
		cpus_now[from].lock = false;
		take(&cpus_now[cpu].lock);
	}
	local_push(cpu, task);
}

bool scx_bpf_dsq_move_to_local___v2(u64 dsq_id, u64 enq_flags)
{
	int task;

	yield_to_others();
	task = dsq_pop(dsq_find(dsq_id));
	if (task != NOBODY)
		moved_here(task);
	return task != NOBODY;
}

void scx_bpf_reenqueue_local___v2___compat(void)
{
	cpus_now[here()].queues_anew = true;
}

bool scx_bpf_task_set_slice___v2(struct task_struct *p, u64 slice)
{
	tasks_now[number_of(p)].slice = slice;
	return true;
}

struct bpf_cpumask *bpf_cpumask_create(void)
{
	static struct bpf_cpumask mask;

	return &mask;
}

/* Who waits when it begins. */
struct walk {
	u64 dsq;
	u16 tasks[TASKS];
	u32 count, next;
};

_Static_assert(sizeof(struct walk) <= sizeof(struct bpf_iter_scx_dsq), "a walk fits");

bool has_place(int task, u64 dsq_id)
{
	int cpu, i, dsq = dsq_find(dsq_id);

	for (cpu = 0; cpu < CPUS; cpu++)
		for (i = -1; i < cpus_now[cpu].nr_local; i++)
			if ((i < 0 ? cpus_now[cpu].current : cpus_now[cpu].local[i]) == task)
				return true;
	return place_in(dsq, task) < dsqs[dsq].count;
}

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags)
{
	int dsq = dsq_find(dsq_id);
	struct walk *walk = (struct walk *)it;

	*walk = (struct walk){.dsq = dsq_id, .count = dsqs[dsq].count};
	for (u32 i = 0; i < walk->count; i++)
		walk->tasks[i] = dsqs[dsq].tasks[i];
	return 0;
}

struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it)
{
	struct walk *walk = (struct walk *)it;
	int dsq = dsq_find(walk->dsq);

	yield_to_others();
	while (walk->next < walk->count) {
		int task = walk->tasks[walk->next++];

		if (place_in(dsq, task) < dsqs[dsq].count)
			return shown(task);
	}
	return NULL;
}

/* From a line to this CPU's own queue, with the locks as above. */
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 flags)
{
	int task = number_of(p);

	yield_to_others();
	if (dsq_id != SCX_DSQ_LOCAL || !dsq_remove(dsq_find(((struct walk *)it)->dsq), task))
		return false;
	moved_here(task);
	return true;
}

/* With the lock of the task's run queue, if it waits there still. */
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 flags)
{
	int task = number_of(p), cpu = tasks_now[task].cpu;
	bool moves;

	take(&cpus_now[cpu].lock);
	moves = dsq_remove(dsq_find(((struct walk *)it)->dsq), task);
	if (moves)
		dsq_push(dsq_find(dsq_id), task);
	cpus_now[cpu].lock = false;
	return moves;
}

const struct cpumask *scx_bpf_get_online_cpumask(void)
{
	return &everywhere;
}
