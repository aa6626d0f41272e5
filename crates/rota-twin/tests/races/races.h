/* SPDX-License-Identifier: GPL-2.0-only */
/* What the explorer and the instrumented scheduler have of each other. Included after kernel.bpf.h. */
#ifndef ROTA_RACES_H
#define ROTA_RACES_H

#define CPUS  3 /* two with slots, and one from which threads are woken */
#define TASKS 2

struct sched_ext_ops;
struct task_ctx;
struct bpf_timer;

/* Where it begins, and what happens. Times are in ns from a round's start. */
struct scene {
	const char *name;
	unsigned int slots[2][2];
	_Bool capped;
	int awake;		      /* tasks that run or wait from the start */
	unsigned long long starts[2]; /* the scene is set at the first, and explored from the second on */
	unsigned long long then;      /* the clock says this from some moment on */
	int blocks;		      /* the task that blocks at some moment, + 1 */
	int wakes;		      /* the task that is woken at some moment once it sleeps, + 1 */
	_Bool taken;		      /* a higher class takes the first CPU at some moment, and keeps it */
	_Bool grows;		      /* the tenant gets other queues at some moment */
	_Bool background;	      /* the tenant has no slots, and higher classes have all but the first CPU */
	_Bool shared;		      /* the same of a shared tenant */
	_Bool told;		      /* the first CPU is told of somebody whom another one has taken */
	int changes;		      /* the task that is changed at some moment as it waits, + 1 */
};

void begin(const struct scene *scene);
const struct sched_ext_ops *operations(void);
struct task_ctx *task_storage(unsigned int task);
unsigned int cpu_of_timer(const struct bpf_timer *timer);
void fire(unsigned int cpu);
void grow(void);
void look_again_at_waiting(void);
unsigned long long dsq_of_tenant(const struct scene *scene);
int is_shared(const void *address);
void show_vcpu(void);
void make_writable(void *at, unsigned long size);
void tell_number(const char *name, unsigned long long value);

#endif /* ROTA_RACES_H */
