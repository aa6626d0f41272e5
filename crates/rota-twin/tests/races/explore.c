/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All interleavings with a bounded number of preemptions, each run from the start (Musuvathi and Qadeer, *Iterative
 * context bounding for systematic testing of multithreaded programs*, PLDI 2007). That an actor is left because it
 * waits is no preemption.
 */
#include "explore.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define CHOICES_MAX 4096
#define STACK	    (256 << 10)

static struct {
	ucontext_t entry;
	jmp_buf left; /* where, once it has begun */
	bool begun;
	bool (*ready)(int actor, void *argument);
	void *argument;
	bool ended;
} actors[ACTORS_MAX];
static char stacks[ACTORS_MAX][STACK];
static jmp_buf outside;
static const actor_work *works;
static int nr_actors, current = -1, preemptions_left;

/* Of each moment at which there was one: which was taken, of how many. */
static struct {
	int taken, of;
} choices[CHOICES_MAX];
static int nr_choices, depth;
static unsigned long runs;

int this_actor(void)
{
	return current;
}

unsigned long runs_so_far(void)
{
	return runs;
}

void explore_anew(void)
{
	nr_choices = 0;
	runs = 0;
}

void show_choices(void)
{
	int i;

	for (i = 0; i < nr_choices; i++)
		if (choices[i].taken)
			fprintf(stderr, " %d:%d/%d", i, choices[i].taken, choices[i].of);
	fprintf(stderr, "\n");
}

static int choose(int of)
{
	if (of == 1)
		return 0;
	if (depth == CHOICES_MAX) {
		fprintf(stderr, "a run without an end\n");
		exit(1);
	}
	if (depth == nr_choices) {
		choices[nr_choices].taken = 0;
		choices[nr_choices++].of = of;
	}
	if (choices[depth].of != of) {
		fprintf(stderr, "run %lu is not as the one before it: %d choices, and not %d\n", runs, of,
			choices[depth].of);
		abort();
	}
	return choices[depth++].taken;
}

static bool is_ready(int actor)
{
	return !actors[actor].ended && (!actors[actor].ready || actors[actor].ready(actor, actors[actor].argument));
}

/* Who goes on: this one, another instead of it while preemptions are left, or whoever is ready if it is not. */
static void go_on(void)
{
	int self = current, ready[ACTORS_MAX], count = 0, i;
	bool preempts = self >= 0 && is_ready(self);

	if (preempts)
		ready[count++] = self;
	for (i = 0; i < nr_actors; i++)
		if (i != self && is_ready(i))
			ready[count++] = i;
	if (preempts && !preemptions_left)
		count = 1;
	i = count ? choose(count) : 0;
	preemptions_left -= preempts && i > 0;
	current = count ? ready[i] : -1;
	if (current == self)
		return;
	if (_setjmp(self < 0 ? outside : actors[self].left))
		return;
	if (current < 0)
		_longjmp(outside, 1);
	if (actors[current].begun)
		_longjmp(actors[current].left, 1);
	actors[current].begun = true;
	setcontext(&actors[current].entry);
}

void yield_to_others(void)
{
	if (current >= 0)
		go_on();
}

void wait_until(bool (*ready)(int actor, void *argument), void *argument)
{
	int self = current;

	actors[self].ready = ready;
	actors[self].argument = argument;
	go_on();
	actors[self].ready = NULL;
}

static void act(int actor)
{
	works[actor](actor);
	actors[actor].ended = true;
	go_on();
}

bool next_run(const actor_work *work, int count, int preemptions)
{
	int i;

	if (runs) {
		while (nr_choices && choices[nr_choices - 1].taken + 1 == choices[nr_choices - 1].of)
			nr_choices--;
		if (!nr_choices)
			return false;
		choices[nr_choices - 1].taken++;
	}
	runs++;
	depth = 0;
	works = work;
	nr_actors = count;
	preemptions_left = preemptions;
	for (i = 0; i < count; i++) {
		actors[i].ready = NULL;
		actors[i].ended = false;
		actors[i].begun = false;
		getcontext(&actors[i].entry);
		actors[i].entry.uc_stack.ss_sp = stacks[i];
		actors[i].entry.uc_stack.ss_size = STACK;
		makecontext(&actors[i].entry, (void (*)(void))act, 1, i);
	}
	current = -1;
	go_on();
	return true;
}
