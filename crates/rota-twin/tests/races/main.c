/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every way in which CPUs can hand a vCPU over: it is never on two of them, and where its slot is it is in the end.
 * One argument: how many preemptions a run may have.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* The kernel's header has these for itself. */
#undef NULL
#undef __always_inline
#include "kernel.bpf.h"
#include "shared.h"
#include "races.h"
#include "explore.h"
#include "kernel.h"

#define MS	  1000000ULL
#define ROUND	  (1000 * 10 * MS)
#define STEPS_MAX 100

static const struct scene *scene;

static const struct scene scenes[] = {
	{.name = "from slot to slot",
	 .slots = {{0, 4000000}, {4000000, 8000000}},
	 .capped = true,
	 .awake = 1,
	 .starts = {1 * MS, 1 * MS},
	 .then = 4 * MS},
	{.name = "from slot to slot, two threads",
	 .slots = {{0, 4000000}, {4000000, 8000000}},
	 .capped = true,
	 .awake = 2,
	 .starts = {1 * MS, 1 * MS},
	 .then = 4 * MS},
	{.name = "from slot to slot, uncapped",
	 .slots = {{0, 4000000}, {4000000, 8000000}},
	 .awake = 1,
	 .starts = {1 * MS, 1 * MS},
	 .then = 4 * MS},
	{.name = "from the second level",
	 .slots = {{0, 4000000}, {6000000, 9000000}},
	 .awake = 1,
	 .starts = {1 * MS, 5 * MS},
	 .then = 6 * MS},
	{.name = "from the second level, two threads",
	 .slots = {{0, 4000000}, {6000000, 9000000}},
	 .awake = 2,
	 .starts = {1 * MS, 5 * MS},
	 .then = 6 * MS},
	{.name = "waking up beside a slot",
	 .slots = {{0, 4000000}, {6000000, 9000000}},
	 .capped = true,
	 .starts = {5 * MS, 5 * MS},
	 .then = 6 * MS,
	 .wakes = 1},
	{.name = "waking up between slots",
	 .slots = {{0, 4000000}, {4000000, 8000000}},
	 .capped = true,
	 .starts = {3 * MS, 3 * MS},
	 .then = 4 * MS,
	 .wakes = 1},
	{.name = "waking up between slots, uncapped",
	 .slots = {{0, 4000000}, {4000000, 8000000}},
	 .starts = {3 * MS, 3 * MS},
	 .then = 4 * MS,
	 .wakes = 1},
	{.name = "blocking, and waking up",
	 .slots = {{0, 4000000}, {4000000, 8000000}},
	 .capped = true,
	 .awake = 1,
	 .starts = {1 * MS, 3 * MS},
	 .then = 4 * MS,
	 .blocks = 1,
	 .wakes = 1},
	{.name = "a sibling wakes up",
	 .slots = {{0, 4000000}, {4000000, 8000000}},
	 .capped = true,
	 .awake = 1,
	 .starts = {1 * MS, 3 * MS},
	 .then = 4 * MS,
	 .wakes = 2},
	{.name = "a higher class takes the CPU before the slot ends",
	 .slots = {{0, 4000000}, {4000000, 8000000}},
	 .capped = true,
	 .awake = 1,
	 .starts = {1 * MS, 3 * MS},
	 .then = 4 * MS,
	 .taken = true},
	{.name = "a higher class takes the CPU from two threads",
	 .slots = {{0, 4000000}, {4000000, 8000000}},
	 .capped = true,
	 .awake = 2,
	 .starts = {1 * MS, 3 * MS},
	 .then = 4 * MS,
	 .taken = true},
	{.name = "a higher class takes the CPU from the second level",
	 .slots = {{0, 4000000}, {6000000, 9000000}},
	 .awake = 1,
	 .starts = {1 * MS, 5 * MS},
	 .then = 6 * MS,
	 .taken = true},
	{.name = "the tenant grows between slots",
	 .slots = {{0, 4000000}, {4000000, 8000000}},
	 .capped = true,
	 .awake = 1,
	 .starts = {1 * MS, 3 * MS},
	 .then = 4 * MS,
	 .grows = true},
	{.name = "the tenant grows in the second level",
	 .slots = {{0, 4000000}, {6000000, 9000000}},
	 .awake = 2,
	 .starts = {1 * MS, 5 * MS},
	 .then = 6 * MS,
	 .grows = true},
	{.name = "a thread is changed as it waits beside another that blocks",
	 .background = true,
	 .awake = 2,
	 .starts = {1 * MS, 2 * MS},
	 .then = 2 * MS,
	 .blocks = 1,
	 .changes = 2},
	{.name = "a thread wakes up as another blocks",
	 .shared = true,
	 .awake = 1,
	 .starts = {1 * MS, 2 * MS},
	 .then = 2 * MS,
	 .blocks = 1,
	 .wakes = 2},
	{.name = "a thread wakes up as an idle CPU was told of another in vain",
	 .shared = true,
	 .starts = {1 * MS, 2 * MS},
	 .then = 2 * MS,
	 .wakes = 2,
	 .told = true},
};

void tell_number(const char *name, unsigned long long value)
{
	fprintf(stderr, "  %s %llu\n", name, value);
}

void make_writable(void *at, unsigned long size)
{
	const u64 page = 4096, start = (u64)at & ~(page - 1);

	if (mprotect((void *)start, (u64)at + size - start, PROT_READ | PROT_WRITE))
		exit(1);
}

static void fail(const char *what)
{
	int cpu;

	fprintf(stderr, "%s: %s, in run %lu:", scene->name, what, runs_so_far());
	show_choices();
	for (cpu = 0; cpu < CPUS; cpu++) {
		fprintf(stderr, "  CPU %d runs %d, timer %llu, reschedules %d\n", cpu, cpus_now[cpu].current,
			cpus_now[cpu].timer_ns ? cpus_now[cpu].timer_ns - ROUND : 0, cpus_now[cpu].resched);
	}
	show_vcpu();
	exit(1);
}

void check_running(void)
{
	int task, running = 0;

	for (task = 0; task < TASKS; task++)
		running += tasks_now[task].runs;
	if (running > 1)
		fail("one vCPU on two CPUs");
}

/* Everything that there is a cause for, one after the other. */
static void settle(void)
{
	int cpu, steps = 0;
	bool done;

	do {
		done = true;
		for (cpu = 0; cpu < CPUS; cpu++) {
			cpus_now[0].acts_as = cpu;
			if (cpu_step(cpu))
				done = false;
		}
		if (++steps > STEPS_MAX)
			fail("it does not come to rest");
	} while (!done);
}

static void set_scene(void)
{
	int task, cpu;

	machine_reset();
	clock_ns = ROUND + scene->starts[0];
	begin(scene);
	machine_begin();
	for (task = 0; task < TASKS; task++)
		tasks_now[task].sleeps = true;
	for (cpu = 1; !scene->slots[0][1] && cpu < CPUS; cpu++)
		cpus_now[cpu].taken = true;
	/* As when a table is published. */
	for (cpu = 0; cpu < CPUS; cpu++)
		cpus_now[cpu].resched = true;
	settle();
	for (task = 0; task < scene->awake; task++)
		wake(task);
	settle();
	clock_ns = ROUND + scene->starts[1];
	settle();
	if (!scene->slots[0][1]) /* the other one came from there */
		tasks_now[1].cpu = CPUS - 1;
}

static void clock_works(int actor)
{
	yield_to_others();
	clock_ns = ROUND + scene->then;
}

static void blocker_works(int actor)
{
	if (scene->taken) {
		yield_to_others();
		cpus_now[0].taken = cpus_now[0].resched = true;
	}
	if (scene->grows) {
		yield_to_others();
		call(grow);
	}
	if (scene->told && scx_bpf_test_and_clear_cpu_idle(0))
		cpus_now[0].resched = true;
	if (!scene->blocks)
		return;
	yield_to_others();
	tasks_now[scene->blocks - 1].blocks = tasks_now[scene->blocks - 1].queued;
}

static bool sleeps(int actor, void *unused)
{
	return tasks_now[scene->wakes - 1].sleeps;
}

static void waker_works(int actor)
{
	if (scene->changes)
		change(scene->changes - 1, dsq_of_tenant(scene));
	if (!scene->wakes)
		return;
	wait_until(sleeps, NULL);
	wake(scene->wakes - 1);
}

/* The rest of the second slot, with nothing left to chance. Times at which timers fire come one after the other. */
static void finish(void)
{
	int last = scene->slots[1][1] ? 1 : 0; /* where the tenant ends up */
	u64 end_ns = ROUND + (scene->slots[last][1] ?: 3 * MS), next_ns;
	int cpu, task;

	if (scene->grows) {
		settle();
		call(look_again_at_waiting);
	}
	for (;;) {
		settle();
		next_ns = end_ns;
		for (cpu = 0; cpu < CPUS; cpu++)
			if (cpus_now[cpu].timer_ns && cpus_now[cpu].timer_ns < next_ns)
				next_ns = cpus_now[cpu].timer_ns;
		if (next_ns == end_ns)
			break;
		clock_ns = next_ns;
	}
	if (!scene->changes && tasks_now[scene->wakes ? scene->wakes - 1 : 0].sleeps)
		fail("the scene has not ended");
	if (cpus_now[last].current == NOBODY)
		fail("a CPU without the thread that waits for it");
	for (task = 0; task < TASKS; task++)
		if (!tasks_now[task].sleeps && !has_place(task, dsq_of_tenant(scene)))
			fail("a thread that nobody finds");
}

static void explore(int preemptions)
{
	static const actor_work works[] = {cpu_works, cpu_works, waker_works, clock_works, blocker_works};

	explore_anew();
	set_scene();
	while (next_run(works, sizeof(works) / sizeof(works[0]), preemptions)) {
		finish();
		set_scene();
	}
	printf("%s: %lu runs\n", scene->name, runs_so_far());
}

int main(int argc, char **argv)
{
	int preemptions = argc > 1 ? atoi(argv[1]) : 2;

	for (scene = scenes; scene < scenes + sizeof(scenes) / sizeof(scenes[0]); scene++)
		explore(preemptions);
	return 0;
}
