/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler remembers: maps, per-CPU, per-queue and per-task state, and how each is found.
 *
 * A CPU's state is written by that CPU alone and read by others as a hint. A queue's state belongs to one tenant: the
 * CPUs that serve the tenant share it, nobody else does.
 */
#ifndef ROTA_STATE_BPF_H
#define ROTA_STATE_BPF_H

#include "buffers.bpf.h"

const volatile struct rota_settings settings SEC(".rodata.settings");

#define nr_host_cpus settings.nr_cpus
#define nr_queues    settings.nr_queues
#define table_bytes  settings.table_bytes

/* The kernel's dispatch queues that we use, one a line. */
#define LINE_DSQ(kind, at)  ((u64)ROTA_LINE_##kind << 32 | (at))
#define DSQ_QUEUE(queue)    LINE_DSQ(QUEUE, queue)
#define DSQ_PINNED(cpu)	    LINE_DSQ(PINNED, cpu)
#define DSQ_BACKGROUND(cpu) LINE_DSQ(BACKGROUND, cpu)
#define DSQ_SHARED(domain)  LINE_DSQ(SHARED, domain)
#define DSQ_BOUND(cpu)	    LINE_DSQ(BOUND, cpu)

static __always_inline enum rota_line line_kind(u64 dsq)
{
	return dsq >> 32;
}

/* Queue 0 and tenant 0 are the system's: every task that is in no tenant. */
#define SYSTEM_TENANT 0
#define SYSTEM_QUEUE  0

/*
 * A queue: the threads of a container, one vCPU thread of a VM, or a VM monitor's other threads. The lock guards the
 * counts and the times of service, which several CPUs change when they serve one container.
 */
struct queue_ctx {
	struct bpf_spin_lock lock;
	u32 nr_runnable; /* runnable or running */
	u32 nr_running;
	u32 vm; /* the tenant's number if it is a VM, which has several */
	u64 wanted_since;
	u64 blackout_since;
	u32 waiting;	/* at most so many are in its dispatch queue: see line.bpf.h */
	u32 claimed_by; /* by the CPU that serves the vCPU whose entry this is; 0: nobody does */
	struct rota_queue_account account;
	u64 waits_from; /* a thread came to wait then, and none waited in the dispatch queue */
	u64 lost_at_blackout[ROTA_NR_CAUSES];
	u64 promised_from; /* which promise the account is about */
	u64 vtime;	   /* of the thread last started: newcomers begin here */
	u64 last;	   /* the place furthest back that any thread of it was given */
	u64 fair_vtime;	   /* of the whole tenant, for background tenants */
	/* Marks of vCPUs 64 i to 64 i + 63, in the tenant's entry first_queue + i (offer.bpf.h). */
	u64 hungry; /* the vCPU's slot is in force and found nobody to run */
	u64 dozing; /* the vCPU's CPU idles without a timer, perhaps: see rouse_dozing */
	/* As claimed_by, of one vCPU: a container's vCPU k has these in entry first_queue + k (handover.bpf.h). */
	u32 wanted_by; /* a claim of the CPU to be kicked when it is let go of; 0: none */
	u64 trailing;  /* generation << 16 | the CPU of its last slot, if it migrates */
};

/*
 * A tenant's clock, written by the CPUs that serve it: a shared one's, a grain at a time; and what a reserved one has
 * beyond its slots.
 */
struct fair_ctx {
	u64 clock;   /* its service by its weight */
	u64 booked;  /* the same of what CPUs are about to give it */
	u32 backlog; /* of a VM: queues with a thread that is runnable or running */
	u64 called;  /* when overdue threads were last looked for, behind a front or in its slots */
	u64 second;  /* a reserved tenant's clock: what it had beyond its slots, by what it reserves */
} __attribute__((aligned(ROTA_CACHE_LINE)));

/* CPUs of a domain of which others know by a bit whom they serve: all, if the machine is known (domains.rs). */
#define ROTA_FAIR_BITS 64

/* CPUs with one line. Written at most once for a grain of service. */
struct fair_domain {
	u64 v; /* the system's virtual time */
	u64 v_since;
	u64 v_before; /* a credit's length before that at least */
	u64 remembered;
	u64 waited;	  /* when a thread was last sent to wait here */
	u64 waited_other; /* the same of a thread of another tenant than the last */
	u32 waiter;	  /* that tenant */
	u32 ahead;	  /* of the tenants served here the one that is furthest ahead: a hint */
	u64 called;	  /* when overdue threads were last looked for */
	u32 lacks_front;  /* a tenant that waits without one, and 1; 0: none; ROTA_NONE: several: see front_is_gone */
	/* Not where all look for the times. At most so many wait that were sent to wait here: see line.bpf.h */
	u32 waiting __attribute__((aligned(ROTA_CACHE_LINE)));
	/* The domain's CPUs at which bound threads may wait, a bit each. */
	u64 bound __attribute__((aligned(ROTA_CACHE_LINE)));
	/* Which CPU each of these bits stands for, and each of fair_place's. */
	u32 cpus[ROTA_FAIR_BITS] __attribute__((aligned(ROTA_CACHE_LINE)));
	u32 nr_cpus;
	u32 closed; /* none of them serves shared tenants: nobody is to wait in this line */
} __attribute__((aligned(ROTA_CACHE_LINE)));

/* Of one tenant in one line. */
struct fair_place {
	u32 front;     /* it has one */
	u32 front_cpu; /* on which that ran last; the two are hints */
	u64 since;     /* it came to wait */
	u64 gives_way; /* the domain's CPUs that serve it, and were not asked yet to give way: a hint */
} __attribute__((aligned(ROTA_CACHE_LINE)));

/* A line of the floor, as a CPU knows it. */
struct line {
	u64 left_ns;	   /* of its grant; 0: it has none now */
	u64 turned;	   /* when it had its last turn */
	u64 served;	   /* when it had a turn or was empty; before that, if a thread brought its wait */
	u64 starving_wait; /* from one grant to the next for starved threads; 0: none has starved */
};

/* A vCPU in the second level of a CPU. */
struct second_place {
	u64 served;   /* when it had its last turn */
	u64 forgiven; /* to be added to its tenant's clock, by the table in force: see second.bpf.h */
};

/* A vCPU of a CPU that serves its vCPUs in windows: window.bpf.h. */
struct window {
	u64 budget;
	u64 start;
	u64 end;
	u64 left;
	u64 since;	 /* its line begins there */
	u64 used;	 /* since then */
	u64 early_since; /* as `since` and `used`, of what it has before others whose windows end before */
	u64 early_used;
	u64 woke;
	u64 seen;	  /* it wanted to run then */
	u64 rested;	  /* it did not then */
	u64 right;	  /* as it was last looked for the one that is next */
	u64 rate;	  /* of its line, in 2^-20 */
	u64 spared;	  /* what it has left of a window in the end, on average */
	u64 changes_left; /* so much may its wake-ups take of others, which it pays: in this window */
	u32 own;	  /* the queues whose threads it serves, as of windows.epoch: its own, and its tenant's */
	u32 service;
};

/* What a CPU is: written as the scheduler is loaded, but for `exclusive`. */
struct role {
	u32 number;
	u32 domain;
	u64 bit;     /* its own in its domain; 0 if there are more CPUs than bits */
	u32 sibling; /* another CPU of its core; itself if there is none */
	bool housekeeping;
	bool exclusive; /* in the table in force: see cpus.bpf.h */
};

/* The turn on a CPU: what runs, at what level, and until when. */
struct turn {
	u64 since;	    /* when what runs now started, or its account was last settled */
	u64 until_ns;	    /* when what runs now must end; ROTA_NEVER: when it likes */
	u64 armed_ns;	    /* when the timer fires; 0: not armed */
	u32 level;	    /* enum rota_level, of what runs now */
	u32 picked;	    /* enum rota_level, of what dispatch has chosen and the kernel is about to run */
	u32 line;	    /* which line of the floor it is of, if it is the floor's */
	u32 local;	    /* the local vCPU that it is of, where vCPUs are served in windows; ROTA_NONE */
	u32 picked_local;   /* the same of what dispatch has chosen */
	bool decided;	    /* dispatch was asked since the turn began */
	bool overtaken;	    /* a slot ended or its owner woke since dispatch last decided: see running */
	bool resumes;	    /* what starts to run was changed as it ran, and has stopped for that only */
	bool service_first; /* a VM's turn: its monitor's threads before its vCPU thread */
	u64 other_since;    /* neither idle nor one of our tasks since then; 0: not now */
	u64 interrupt_ns;   /* the kernel's counts when the turn started */
	u64 steal_ns;
};

/* What a run of dispatch has seen of the vCPUs that wait for the second level. */
struct second_run {
	u32 found; /* the local vCPU whose turn it is; ROTA_NONE: none */
	u64 least; /* its clock */
	u64 most;  /* the clock furthest ahead */
};

/*
 * One run of dispatch: what it knows, and what it has found. It is passed to all that takes part in the decision. Its
 * memory is the CPU's, as the stack has no room for it; nothing but `now` is read of it once the run is over.
 */
struct run {
	u32 cpu;
	u64 now;
	u64 prev_dsq;	 /* where what ran until now would wait, if it would go on; 0: it would not */
	u64 look_at;	 /* a thread is on its way: when to look for it again; ROTA_NEVER */
	bool goes_on;	 /* the turn that was decided is not over: another thread of its vCPU may have the rest */
	bool keeps_prev; /* what ran until now has been chosen */
	bool passes_on;	 /* a monitor's thread waits behind its vCPU thread in this slot, perhaps */
	/* What a pick among shared tenants has to come before. */
	bool prev_spent; /* it is the turn of the present thread's siblings */
	bool has_bound;
	bool prev_bounds; /* the present thread, which its siblings need not come before */
	u32 prev_tenant;  /* the shared tenant of what ran until now and would go on; ROTA_NONE */
	u64 bound;
	u32 found; /* whose thread that is, since when it waits; ROTA_NONE: it does not */
	u64 found_since;
	u32 from; /* the CPU whose bound threads were looked at last */
	struct second_run second;
};

/* Entries and claims of vCPUs (handover.bpf.h); ROTA_NONE: none. */
struct claims {
	u32 claimed; /* by the run of dispatch */
	u32 claim;
	u32 held; /* by what dispatch chose last */
	u32 held_claim;
	u32 serving; /* by what is on the CPU */
	u32 serving_claim;
};

/* The slot in force on a CPU. */
struct slot {
	u64 start;
	u64 end;
	u64 generation;
	u64 looks_since; /* one of the owner's threads is on its way since then, at least; 0: none */
	u64 lost_ns;	 /* already counted as lost, for any cause */
	u32 buffer;	 /* of the table in force */
	u32 epoch;	 /* of memberships, as the owner was looked up */
	u32 tenant;
	u32 index;	 /* which of the tenant's vCPUs */
	u32 vcpu;	 /* index into the table's vcpus, ROTA_NONE: idle */
	u32 queue;	 /* the owner's; ROTA_NONE: idle */
	u32 hungry;	 /* the vCPU number + 1 that is marked hungry for this slot; 0: none */
	bool moves;	 /* the owner has slots on other CPUs as well */
	bool in_windows; /* the CPU decides whose it is: windows.bpf.h */
};

/* What a CPU offers to wakers. */
struct offer {
	u32 dozes;     /* it idles without a timer: see rouse */
	u32 taken_for; /* number + 1 of the tenant whose thread was sent here as it dozed: take_dozing */
	u32 unwanted;  /* nobody was found to wait for its slots, or told of since: see dozes_off */
	u32 gives_way; /* it was not asked yet to give way to a shared tenant's thread */
};

/* The lines of a CPU. */
struct lines {
	u32 waiting;  /* at most so many are in its dispatch queues: see line.bpf.h */
	u32 bound;    /* of these, that are bound to it: other CPUs may take them */
	u32 starving; /* enum rota_line: the one with a grant for starved threads */
	u64 called;   /* when threads were last looked for that are bound to it and overdue */
	struct line background;
	struct line pinned;
	struct line shared;
};

/* The second level of a CPU. */
struct second {
	u32 local; /* the local vCPU that had the last turn; ROTA_NONE: none had */
	u32 tenant;
	u64 until; /* when that turn ends at the latest */
	struct second_place places[ROTA_LOCALS_MAX];
};

/* The vCPUs of a CPU that serves them in windows, and which of them is next. */
struct windows {
	u64 next;	/* the next window of any of them begins */
	u64 until;	/* the turn of the one that is next ends */
	u64 end;	/* its window ends */
	u64 part;	/* of its budget that it has left, where others go before it that have more: part_left */
	u64 lost_ns;	/* of the slot, and not yet charged to its owner */
	u64 wakes;	/* one of them that slept has woken: see lost.bpf.h */
	u64 lost_since; /* what the CPU has lost since then is not charged yet; ROTA_NEVER: since the slot ended */
	u64 had_until;	/* the last turn of a vCPU was settled then: see lost.bpf.h */
	u32 had_queue;	/* where its threads waited */
	bool is_new;	/* the CPU has yet to decide by the table in force */
	u32 asked;	/* the next decision is among all vCPUs: one has woken, or the CPU was told */
	u32 owner;	/* the local vCPU whose the slot in force is; ROTA_NONE: nobody's */
	u32 waiting;	/* a bit for each local vCPU that would run */
	u32 alone;	/* and is its tenant's only vCPU */
	u32 rights;	/* and has a right */
	u32 woken;	/* and has woken since the CPU decided last */
	u32 nr;		/* so many it has, as of epoch; 0: they have to be looked up */
	u32 epoch;
	u32 interrupted; /* and had one as another one's interrupted it, which has paid for its return */
	struct window locals[ROTA_WINDOW_VCPUS_MAX];
};

/* The shared tenants that a CPU serves. */
struct fair {
	u32 served;  /* the tenant; ROTA_NONE: none */
	u32 lasting; /* the one served last: the following two are its virtual time */
	u64 booked;
	u64 unsettled; /* used, and not yet in its clock */
	u64 served_since;
	u32 sampled;
	u32 visits;  /* the domain looked at last */
	u32 fetches; /* the CPU whose bound threads were looked at last: its domain and bit, as one number */
};

/* A CPU that idles. */
struct idle {
	u64 since;     /* idle since then; 0: not now */
	u64 missed_ns; /* it looks for missed threads after so long; 0: it does not */
};

/* A stretch of time in which one tenant's threads ran on a CPU. */
struct past_turn {
	u64 from;
	u64 to;
	u32 tenant;
};

/* The last stretches on a CPU, in a ring: profile.bpf.h. */
#define ROTA_PAST_TURNS 32
struct past {
	u32 count; /* of all so far; the last one is at count - 1 */
	struct past_turn turns[ROTA_PAST_TURNS];
};

/* A queue's profile, as the loader knows it. */
struct profile {
	struct bpf_spin_lock lock;
	u32 reserved;
	u64 born;
	struct rota_spent_time spent[ROTA_NR_SPENT];
	struct rota_waited_for waited_for[ROTA_WAITED_FOR];
	u64 waited_for_rest_ns;
	u64 waited_for_nobody_ns;
	u64 waited_unseen_ns;
	u64 preempted;
	u64 yields;
};

/* Bits for the fingerprints of a window, one each. */
#define SPIN_BITS 512

/* What a CPU has seen of the thread that it runs: spin.bpf.h. */
struct spin {
	u64 seen[SPIN_BITS / 64]; /* a bit for each fingerprint of the window */
	u64 since;		  /* the window began */
	u64 last;		  /* the fingerprint of the sample before; 0: none */
	s32 pid;		  /* the thread */
	u32 samples;
	u32 repeats;
	u64 at;		/* when it looks next; 0: it does not */
	bool is_ready;	/* its timer calls what looks */
	bool rests;	/* it has been looked at enough in this turn */
	bool gives_way; /* it spins: its siblings have a turn */
};

/* What a CPU remembers. The kernel looks for a timer, and for a pointer to a mask, here and not in a part. */
struct cpu_ctx {
	struct rota_cpu_account account;
	struct bpf_timer timer;
	struct bpf_cpumask __kptr *both; /* scratch, of an operation that this CPU carries out: see idle_cpu_of */
	struct role role;
	struct turn turn;
	struct run run;
	struct claims claims;
	struct slot slot;
	struct offer offer;
	struct lines lines;
	struct fair fair;
	struct idle idle;
	struct second second;
	struct windows windows;
	struct past past;
	struct spin spin;
} __attribute__((aligned(ROTA_CACHE_LINE)));

/* A branch as the processor has recorded it: struct perf_branch_entry. */
struct branch {
	u64 from;
	u64 to;
	u64 flags;
};

/* So many the oldest processors record. */
#define ROTA_BRANCHES 16

/* The timer by which a CPU looks at the thread that it runs: spin.bpf.h. What it has seen: branches.bpf.h. */
struct sampler {
	struct bpf_timer timer;
	s64 misses[ROTA_NR_MISSES];
	struct branch branches[ROTA_BRANCHES];
};

/* Where a task belongs. */
struct membership {
	u32 tenant;
	u32 vcpu; /* of a VM; ROTA_NONE: any */
	u32 queue;
};

/* A task: where it belongs and since when it runs. */
struct task_ctx {
	struct rota_spending spending; /* profile.bpf.h */
	u64 cgroup;		       /* where it was when that was decided */
	u32 epoch;		       /* of the decision; stale if not the live one */
	struct membership m;
	bool counted;	/* as runnable in its queue */
	bool running;	/* as running in its queue */
	bool sent;	/* select_cpu has chosen its CPU, and it is not queued yet */
	bool straight;	/* it is in an idle CPU's own queue, and has not run since: see goes_straight */
	bool took_mark; /* of a hungry slot, the one that it was sent to */
	u32 left;	/* the number + 1 of a queue that no longer counts it: see leave_queue; 0: none */
	u32 last_cpu;
	u32 stands_in_for; /* a monitor's thread: the queue of the vCPU whose slot it uses; ROTA_NONE: none */
	u64 run_since;
	u64 charged;	  /* what it used up to then is in its vtime */
	u64 vtime;	  /* among its siblings */
	u64 turn_ns;	  /* what it has had of its turn: see place_in_crowd; a quantum or more: none is left */
	u64 turn_at;	  /* its place for that turn */
	u64 tag;	  /* of a shared tenant's request; or its place in a background line */
	u64 finish;	  /* of the last one */
	u32 stands_for;	  /* for whom it waits in a line: `m` may be of before it became that tenant's */
	bool raised;	  /* its tag has followed its tenant's clock as it waits, bound to a CPU */
	u64 in_line;	  /* the line in which it is the front: see IN_LINE; 0: none */
	u64 waits_since;  /* as the front */
	u64 queued_since; /* for its turn; 0: it runs, or has not waited since */
	bool overdue;	  /* it comes before all that are not, whatever it has had: see tag_in_line */
	u64 waits_in;	  /* where it is counted: see line.bpf.h; 0: it does not wait */
	u32 rehomed;	  /* it is counted in nr_rehomed */
	bool gives_way;	  /* it was seen to spin: it comes after all its siblings, once */
	u32 computes;	  /* so many windows of it had no fingerprint twice */
	u32 spins_alike;  /* so often one after the other, in the same way: see spin.bpf.h */
	u64 spins_at;	  /* how it was seen to spin last, by fingerprint or loop; 0: it has done something else */
};

_Static_assert(__builtin_offsetof(struct queue_ctx, account) == sizeof(struct rota_queue_head), "the loader reads it");
_Static_assert(__builtin_offsetof(struct cpu_ctx, account) == 0, "the loader reads it");
_Static_assert(sizeof(struct profile) == sizeof(struct rota_profile), "the loader reads it");
_Static_assert(__builtin_offsetof(struct task_ctx, spending) == 0, "rota profile reads it");
_Static_assert(__builtin_offsetof(struct fair_ctx, clock) == 0, "the loader reads it");
_Static_assert(__builtin_offsetof(struct fair_domain, v_before) == __builtin_offsetof(struct rota_fair_times, v_before),
	       "the loader reads it");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_ctx);
} cpus SEC(".maps");

/* Of each CPU: a map's value has room for one timer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sampler);
} samplers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct queue_ctx);
} queues SEC(".maps");

/* Of each queue. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct profile);
} profiles SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rota_tenant);
} tenants SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fair_ctx);
} fair SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fair_domain);
} domains SEC(".maps");

/* Of each domain's tenants, one domain after the other. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fair_place);
} places SEC(".maps");

/* cgroup id -> tenant */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, u32);
} cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rota_vcpu_thread);
} vcpu_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} tasks SEC(".maps");

volatile struct rota_live live SEC(".data.live");
struct rota_exit exit_info SEC(".data.exit");
u64 background_vtime; /* of the background tenant last started: others begin here; a hint, never ahead of that */
/* At most so many wait that the loader has looked at meanwhile: see line.bpf.h. */
u32 nr_rehomed __attribute__((aligned(ROTA_CACHE_LINE)));

#define private(name) SEC(".bss." #name) __hidden __attribute__((aligned(8)))
private(masks) struct bpf_cpumask __kptr *housekeeping_mask;
private(masks) struct bpf_cpumask __kptr *open_mask; /* all other CPUs that no tenant has to itself */
u32 nr_open;					     /* so many */

static __always_inline struct cpu_ctx *cpu_ctx(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline struct line *line_of(struct cpu_ctx *c, enum rota_line kind)
{
	if (kind == ROTA_LINE_SHARED || kind == ROTA_LINE_BOUND)
		return &c->lines.shared;
	return kind == ROTA_LINE_PINNED ? &c->lines.pinned : &c->lines.background;
}

static __always_inline struct queue_ctx *queue_ctx(u32 queue)
{
	return bpf_map_lookup_elem(&queues, &queue);
}

static __always_inline struct rota_tenant *tenant_of(u32 tenant)
{
	return bpf_map_lookup_elem(&tenants, &tenant);
}

static __always_inline struct task_ctx *task_ctx(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, NULL, 0);
}

#endif /* ROTA_STATE_BPF_H */
