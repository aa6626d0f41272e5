/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What crosses the border between the scheduler and the program that loads it: map values and counters. Plain integers
 * only. crates/rota-sched/src/shared.rs mirrors this file; a test holds the two together field by field.
 */
#ifndef ROTA_SHARED_H
#define ROTA_SHARED_H

#include "rota_table.h"

#define ROTA_CACHE_LINE	     64
#define ROTA_NONE	     0xffffffffU
#define ROTA_NEVER	     0xffffffffffffffffULL
#define ROTA_NR_BUFFERS	     2
#define ROTA_RING	     1024 /* entries of the ring that spreads background threads over CPUs */
#define ROTA_LOCALS_MAX	     64	  /* vCPUs of a CPU that take part in its second level */
#define ROTA_CGROUP_DEPTH    32	  /* levels of nested cgroups, the root's included, at which tenants may be */
#define ROTA_EXIT_REASON_LEN 128
#define ROTA_EXIT_MSG_LEN    512

/* Others are held off for no longer than this while a tenant is sampled, and then not again for so long. */
#define ROTA_SAMPLE_MAX_NS  50000000ULL
#define ROTA_SAMPLE_REST_NS 1900000000ULL

/* How long a thread runs before its siblings in the same queue get their turn: this, divided among many siblings. */
#define ROTA_QUANTUM_NS	    4000000ULL
#define ROTA_ROTATION_NS    40000000ULL
#define ROTA_QUANTUM_MIN_NS 100000ULL
/*
 * More siblings than this are a *crowd*. They have their turns in the order in which they came. The more they are the
 * shorter a turn is, down to the least. So all have one before the kernel's watchdog thinks them forgotten.
 */
#define ROTA_CROWD	      512
#define ROTA_QUANTUM_LEAST_NS 20000ULL
/* What a change of task takes of such a turn. */
#define ROTA_CHANGE_NS 5000ULL
/* So far behind those that have had their turn a new thread joins its siblings. */
#define ROTA_NEWCOMER_NS 1000000ULL
/*
 * Fair shares (shares.bpf.h, fair.bpf.h). The minimum slice: longer than what a change of tasks and refilling a cache
 * take, shorter than what people and protocols notice. A grain of it at a time is told to other CPUs. Nobody lags
 * further than the system's virtual time was this long ago.
 */
#define ROTA_FAIR_SLICE_NS  1000000ULL
#define ROTA_FAIR_GRAIN_NS  (ROTA_FAIR_SLICE_NS / 8)
#define ROTA_FAIR_CREDIT_NS 100000000ULL
#define ROTA_WEIGHT_ONE	    100 /* the weight with which virtual time is time */
/* The floor: background gets this much of a CPU's unreserved time, this often, whatever else wants it. */
#define ROTA_FLOOR_GRANT_NS 5000000ULL
#define ROTA_FLOOR_WAIT_NS  1000000000ULL
/*
 * All threads that wait in one line of the floor have a turn within so much waiting. Where time is short the grants
 * themselves take as long again. That is before the kernel's watchdog thinks them forgotten.
 */
#define ROTA_FLOOR_ROUND_NS 10000000000ULL
/* The system's threads that may run on this CPU only, which is not its own: the same with shorter turns. */
#define ROTA_PINNED_GRANT_NS 1000000ULL
#define ROTA_PINNED_WAIT_NS  20000000ULL
/*
 * What has waited this long on a CPU that has no unreserved time takes a grant from a slot; it is counted as lost.
 * Where many wait there are more of these grants, but in each line no more than so many hundredths of the time.
 */
#define ROTA_STARVING_NS   5000000000ULL
#define ROTA_STARVING_PART 1
/*
 * A thread is on its way into a queue: the CPU looks again after this, then after twice that, and so on; one that idles
 * as somebody is counted, every so often in the end.
 */
#define ROTA_LOOK_AGAIN_NS 10000ULL
#define ROTA_LOOK_IDLE_NS  10000000ULL
/* A slot that begins this much late, or a turn this much delayed, is not counted as lost: the cost of a switch. */
#define ROTA_LATE_MIN_NS 20000ULL
/* While siblings wait for their turns, a CPU looks this often whether the thread that it runs spins (spin.bpf.h). */
#define ROTA_SPIN_SAMPLE_NS 100000ULL
/* So soon if the thread spun as it was looked at last. */
#define ROTA_SPIN_AGAIN_NS 20000ULL
/* Of each CPU: misses of the first-level data cache and of its TLB, in programs, where a daemon has them counted. */
#define ROTA_NR_MISSES 2
/* Of each queue: the tenants for which its threads waited longest (profile.bpf.h). */
#define ROTA_WAITED_FOR 8

enum rota_class {
	ROTA_CLASS_NONE = 0, /* no tenant: the map's empty entry */
	ROTA_CLASS_RESERVED = 1,
	ROTA_CLASS_SHARED = 2,
	ROTA_CLASS_BACKGROUND = 3,
	ROTA_CLASS_SYSTEM = 4, /* everything in no tenant, on a host with housekeeping CPUs */
};

enum rota_kind {
	ROTA_KIND_CONTAINER = 0, /* one queue, served by each of its slots */
	ROTA_KIND_VM = 1,	 /* one queue a vCPU thread, and one for the monitor's other threads */
};

/*
 * Where threads wait: the kind of a line, the upper half of the number of its dispatch queue. The lower half is the
 * number of a queue, a CPU or a domain.
 */
enum rota_line {
	ROTA_LINE_NONE = 0,
	ROTA_LINE_QUEUE = 1,	  /* a queue's threads; of a shared tenant those behind its front */
	ROTA_LINE_PINNED = 2,	  /* a CPU's: tasks that may run there only, and have no slot there */
	ROTA_LINE_BACKGROUND = 3, /* a CPU's: what has the time that all others leave */
	ROTA_LINE_SHARED = 4,	  /* a domain's: the fronts of shared tenants */
	ROTA_LINE_BOUND = 5,	  /* a CPU's: threads of shared tenants that may not run on all open CPUs */
};

/* What runs on a CPU, lowest first: a higher one may preempt a lower one. */
enum rota_level {
	ROTA_LEVEL_IDLE = 0,
	ROTA_LEVEL_BACKGROUND = 1,
	ROTA_LEVEL_SHARED = 2,
	ROTA_LEVEL_SECOND = 3,
	ROTA_LEVEL_FLOOR = 4,
	ROTA_LEVEL_OWNER = 5,
	ROTA_LEVEL_KERNEL = 6,
};

/* What kept an owner from its slot; the order of rota_sched::Cause::ALL. */
enum rota_cause {
	ROTA_CAUSE_KERNEL_THREAD = 0,
	ROTA_CAUSE_HIGHER_CLASS = 1,
	ROTA_CAUSE_INTERRUPT = 2,
	ROTA_CAUSE_STEAL = 3,
	ROTA_CAUSE_FLOOR = 4,
	ROTA_CAUSE_ROTA = 5,
	ROTA_NR_CAUSES = 6,
};

/* What a thread spends its time on; the order of rota_sched::Spent::ALL. */
enum rota_spent {
	ROTA_SPENT_RUNNING = 0,
	ROTA_SPENT_WAITING = 1, /* for a CPU */
	/* It is blocked, and waits for: */
	ROTA_SPENT_OTHERS = 2,	/* threads of its own program: synchronisation */
	ROTA_SPENT_DEVICES = 3, /* devices or the network */
	ROTA_SPENT_TIME = 4,
	ROTA_SPENT_HALTED = 5, /* an interrupt: it is a vCPU, and its guest idles */
	ROTA_SPENT_UNKNOWN = 6,
	ROTA_NR_SPENT = 7,
};

/* A tenant, written by the loader. Queue and vCPU numbers are indices into the queues map and the table's vcpus. */
struct rota_tenant {
	__u32 class; /* enum rota_class */
	__u32 kind;  /* enum rota_kind */
	__u32 weight;
	__u32 nr_vcpus;
	__u32 first_queue;		   /* a VM's vCPU k has queue first_queue + 1 + k: see also vcpu_entry */
	__u32 first_vcpu[ROTA_NR_BUFFERS]; /* in each table buffer; ROTA_NONE: it has no slots there */
	__u32 migrates;			   /* bit k: in buffer k a vCPU of it has slots on several CPUs */
	__u64 latency_ns;		   /* promised bound */
	__u64 promised_from;		   /* CLOCK_MONOTONIC: when the promise came into force */
	/* So many vCPUs may still be claimed by the entries that they had before the tenant grew: handover.bpf.h */
	__u32 nr_former;
	__u32 former_entry;  /* of vCPU 0 */
	__u32 oversubscribe; /* 1: threads that spin give way to their siblings (spin.bpf.h) */
	__u32 nr_queues;     /* it has so many, from first_queue on: for the loader */
	__u32 monitor;	     /* of a VM: the tenant that has its monitor's threads; ROTA_NONE: itself */
	__u32 reserved;
};

/* One CPU's part of the table in one buffer, decoded by the loader before the table is published. */
struct rota_cpu_view {
	__u32 slices; /* byte offset in the buffer of the CPU's first slice, slot, local */
	__u32 slots;
	__u32 locals;
	__u32 first_slot; /* subtracted from slice.slot */
	__u32 nr_slots;
	__u32 nr_slices;
	__u32 nr_locals;
	__u32 length_ns;
	__u32 slice_ns;
	__u32 vcpus; /* byte offset of the vCPU records, and their number */
	__u32 nr_vcpus;
	__u32 flags;	 /* of the table's CPU */
	__u32 homes;	 /* byte offset of the vCPUs' lists of CPUs */
	__u32 switch_ns; /* what a change of tasks takes, where vCPUs are served in windows */
	__u32 reserved[2];
};

/* A vCPU thread of a VM, by thread id. */
struct rota_vcpu_thread {
	__u32 tenant;
	__u32 index;
};

/* What a queue's entry begins with; its account follows. */
struct rota_queue_head {
	__u32 lock;
	__u32 nr_runnable;
	__u32 nr_running;
	__u32 vm;
	__u64 wanted_since;   /* counted as wanted up to then; meaningful while nr_runnable is above zero */
	__u64 blackout_since; /* nobody runs and somebody would since then; 0: no blackout */
	__u32 waiting;	      /* at most so many are in its dispatch queue, or were sent on from there */
	__u32 claimed_by;     /* by the CPU that serves this vCPU; 0: nobody does */
};

/* What a shared tenant's entry begins with. */
struct rota_fair_clock {
	__u64 clock; /* its service by its weight */
};

/* What a domain's entry begins with: the system's virtual time, and what it was a while ago. */
struct rota_fair_times {
	__u64 v;
	__u64 v_since;
	__u64 v_before; /* a credit's length before v_since at least: nobody lags further than that */
};

/* Counters of a queue, all in ns or events since the tenant came. */
struct rota_queue_account {
	__u64 used_ns;
	__u64 used_in_slots_ns;
	__u64 wanted_ns;
	__u64 blackout_max_ns;
	__u64 missed;
	__u64 missed_by_cause[ROTA_NR_CAUSES];
	__u64 lost_ns[ROTA_NR_CAUSES];
	__u64 dispatches;
	__u64 migrations;
	__u64 spins;	/* how often a thread was seen to wait busily, and gave way to its siblings */
	__u64 spins_ns; /* that it was seen doing so */
};

/* Of a queue: thread time of one kind. */
struct rota_spent_time {
	__u64 ns;    /* until `since` */
	__u64 since; /* as a thread began or ceased to spend its time so */
	__u32 threads;
	__u32 reserved;
};

/* Of a queue: how long its threads waited while a tenant ran. */
struct rota_waited_for {
	__u64 ns;
	__u32 tenant;
	__u32 reserved;
};

/* Where the time of a queue's threads went. */
struct rota_profile {
	__u32 lock;
	__u32 reserved;
	__u64 born; /* when the queue was taken into use: a thread that a former queue counted is not of this one */
	struct rota_spent_time spent[ROTA_NR_SPENT];
	struct rota_waited_for waited_for[ROTA_WAITED_FOR];
	__u64 waited_for_rest_ns;   /* for tenants that are in the table no more */
	__u64 waited_for_nobody_ns; /* no tenant ran: the CPU idled, or another class had it */
	__u64 waited_unseen_ns;	    /* longer ago than what a CPU remembers */
	__u64 preempted;	    /* times that a thread stopped running and would have gone on */
	__u64 yields;		    /* times that a thread said that others may run */
};

/* What a thread spends its time on, and where its time went. A task's storage begins with it. */
struct rota_spending {
	__u32 on; /* enum rota_spent, and 1; 0: it is not counted */
	__u32 queue;
	__u32 tenant;
	__u32 reserved;
	__u64 born; /* as that queue's */
	__u64 since;
	__u64 ns[ROTA_NR_SPENT]; /* until `since`, in this queue */
};

/* Counters of a CPU. */
struct rota_cpu_account {
	__u64 generation;
	__u64 mixed;
	__u64 idle_ns;
	__u64 background_ns;
	__u64 second_level_ns;
	__u64 lost_ns[ROTA_NR_CAUSES];
};

/* Tables in force: the buffer with the latest from_ns that has come. */
struct rota_table_ref {
	__u64 from_ns; /* CLOCK_MONOTONIC; ROTA_NEVER: not published */
	__u64 generation;
};

/* Load-time settings. */
struct rota_settings {
	__u32 nr_cpus; /* the highest CPU number + 1 */
	__u32 nr_queues;
	__u32 nr_tenants;
	__u32 table_bytes; /* of one buffer */
	__u32 nr_domains;
	__u32 reserved;
	__u64 build; /* which scheduler this is: for the loader */
	__u64 housekeeping[ROTA_TABLE_CPUS_MAX / 64];
	__u16 domain[ROTA_TABLE_CPUS_MAX];  /* of each CPU: which line of shared tenants it takes from first */
	__u16 sibling[ROTA_TABLE_CPUS_MAX]; /* of each CPU: another one of its core; itself if there is none */
};

/* What loader and scheduler both touch while it runs. */
struct rota_live {
	struct rota_table_ref tables[ROTA_NR_BUFFERS];
	__u32 membership_epoch;		  /* raised by the loader when cgroups, tenants or vCPU threads change */
	__u32 background_ring[ROTA_RING]; /* CPUs, in proportion to their idle time */
	__u32 reserved;
	__u64 stalled_publishers; /* tables published after the time at which they were to come into force */
	__u64 alive_ns;		  /* written by the daemon now and then, CLOCK_MONOTONIC */
	__u64 grace_ns;		  /* for so long the scheduler goes on without it; 0: it ends with the daemon */
	__u64 sample_until_ns;	  /* until then all shared tenants but one are held off (sample.bpf.h) */
	__u32 sample_tenant;	  /* that one */
	__u32 padding;
};

/* The code with which the scheduler ends when the grace time is over. */
#define ROTA_EXIT_ABANDONED 1

/* Argument of the program publish_table. */
struct rota_publish {
	__u32 buffer; /* the one not in force */
	__u32 reserved;
	__u64 generation;  /* above the one in force */
	__u64 boundary_ns; /* both tables are at the start of a round at its multiples */
	__u64 from_ns;	   /* out: when the table comes into force */
	__u64 stored_ns;   /* out: when it was published; later than from_ns if the publisher was held up */
};

/* Argument of the program rehome: a dispatch queue whose tasks may belong elsewhere now. */
struct rota_rehome {
	__u64 dsq;
	__u64 moved; /* out: how many did */
};

/* Argument of the program open_cpus: the buffer of the table in force. */
struct rota_open {
	__u32 buffer;
	__u32 reserved;
};

/* Argument of the program hold_off: whom to sample, and for how long. */
struct rota_sample {
	__u32 tenant;
	__u32 reserved;
	__u64 length_ns;
	__u64 until_ns; /* out: when it ends by itself */
};

/* Argument of the program reweigh: a shared tenant, and the weight that it had; 0: it was none. */
struct rota_reweigh {
	__u32 tenant;
	__u32 weight_before;
};

/* How the kernel let the scheduler go. */
struct rota_exit {
	__s32 kind; /* 0 while it runs */
	__s32 padding;
	__s64 code;
	char reason[ROTA_EXIT_REASON_LEN];
	char msg[ROTA_EXIT_MSG_LEN];
};

_Static_assert(sizeof(struct rota_tenant) == 72, "tenant size");
_Static_assert(sizeof(struct rota_cpu_view) == ROTA_CACHE_LINE, "a CPU's view is one cache line");
_Static_assert(sizeof(struct rota_publish) == 40, "publish size");

#endif /* ROTA_SHARED_H */
