/* SPDX-License-Identifier: GPL-2.0-only */
/* The machine of the explorer. */
#ifndef ROTA_RACES_KERNEL_H
#define ROTA_RACES_KERNEL_H

#define NOBODY (-1)
#define KICKS  16

struct task {
	int cpu;
	bool queued; /* on a run queue */
	bool runs;
	bool blocks; /* as soon as its CPU sees it */
	bool sleeps; /* and has left its CPU */
	u64 slice;
	u64 sent_to; /* the dispatch queue that enqueue has named */
};

struct kick {
	int cpu;
	bool if_idle;
};

struct cpu {
	bool lock; /* of its run queue */
	bool idle; /* as the kernel's mask says */
	bool resched;
	bool taken; /* by a higher class, as soon as the CPU sees it, and for good */
	bool queues_anew;
	int current;
	int local[TASKS];
	int nr_local;
	u64 timer_ns; /* 0: not set */
	struct kick kicks[KICKS];
	int nr_kicks;
	int acts_as; /* of CPU 0: the CPU that sets the scene */
};

extern struct task tasks_now[TASKS];
extern struct cpu cpus_now[CPUS];
extern u64 clock_ns;

void machine_reset(void);
void machine_begin(void);
/* Does what a CPU has a cause to do; false if there is none. */
bool cpu_step(int cpu);
void cpu_works(int cpu);
void wake(int task);
/* Its weight or the like is changed as it waits in this dispatch queue, if it does: it is queued anew. */
void change(int task, u64 dsq_id);
/* Whether a task runs, is about to, or waits in this dispatch queue. */
bool has_place(int task, u64 dsq_id);
/* What a system call does, and the kicks that it asks for. */
void call(void (*work)(void));
/* After each change of what runs. */
void check_running(void);

#endif /* ROTA_RACES_KERNEL_H */
