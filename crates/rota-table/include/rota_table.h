/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The timetable as bytes: the one definition of the format.
 *
 * The planner's result is written in this layout once, and from then on these bytes are what the certifier reads, what
 * lies on disk and what the dispatcher uses: nothing is parsed or rebuilt. The BPF scheduler includes this header, and
 * the Rust mirror (crates/rota-table/src/layout.rs) is checked against it, field by field, by a test.
 *
 *   header | cpus[nr_cpus] | vcpus[nr_vcpus] | slots[nr_slots] | slices[nr_slices] | locals[nr_locals] |
 *   homes[nr_homes]
 *
 * Sections start at the byte offsets that the header gives (multiples of 64), in this order, without overlap. All
 * integers are little-endian; every other reference is an index into a section, never an address. Reserved fields are
 * 0, and so is what lies between sections.
 * The CPUs' runs of slots, slices and locals follow each other in CPU order and together make up their sections, and so
 * do the vCPUs' runs of homes in vCPU order.
 *
 * The checksum is FNV-1a by words of 64 bits instead of bytes, the last one filled up with zeros, with the upper half
 * of each product folded into the lower: c = 0xcbf29ce484222325, and for each word w in turn
 * c = (c ^ w) * 0x100000001b3, c ^= c >> 32. It goes over all bytes with the fields checksum and generation taken as
 * zero.
 *
 * Look-up (after Tableau, thesis section 4.2.1): a CPU's slots repeat every length_ns from time zero of
 * CLOCK_MONOTONIC, so
 *
 *   offset = now % cpu.length_ns
 *   slice  = slices[cpu.first_slice + offset / cpu.slice_ns]
 *   slot   = slots[slice.slot + (offset >= slice.boundary_ns)]
 *
 * and the slot's vCPU owns the CPU if slot.start_ns <= offset < slot.end_ns; before start_ns the CPU is idle in the
 * table. No slice meets more than two slots. slice.slot may be one past the CPU's last slot (idle to the end), and so
 * may slice.slot + 1. One slice record and one slot record are read, each within one cache line.
 */
#ifndef ROTA_TABLE_H
#define ROTA_TABLE_H

#ifndef ROTA_NO_LINUX_TYPES
#include <linux/types.h>
#endif

#define ROTA_TABLE_MAGIC      0x315442544154304fULL /* arbitrary; its bytes read "O0TATBT1" */
#define ROTA_TABLE_VERSION    4
#define ROTA_TABLE_ALIGN      64
#define ROTA_TABLE_BYTES_MAX  (64U << 20)
#define ROTA_TABLE_CPUS_MAX   4096
#define ROTA_TABLE_VCPUS_MAX  (1U << 20)
#define ROTA_TABLE_SLICES_MAX 65536 /* of one CPU */
#define ROTA_VCPU_CPUS_MAX    64    /* on which one vCPU has slots */
#define ROTA_WINDOW_VCPUS_MAX 16    /* of a CPU that serves its vCPUs in windows */

/* The longest table, and the number whose divisors are the candidate periods (thesis section 5.1), in ns. */
#define ROTA_HYPERPERIOD_NS 102702600U

struct rota_table_header {
	__u64 magic;
	__u32 version;
	__u32 bytes;	  /* of the whole table, this header included */
	__u64 checksum;	  /* see above */
	__u64 generation; /* 0 until the table is installed */
	__u32 length_ns;  /* a multiple of every CPU's length_ns, a divisor of ROTA_HYPERPERIOD_NS */
	__u32 nr_cpus;	  /* the highest CPU number of the host + 1: cpus[n] is CPU n */
	__u32 nr_vcpus;
	__u32 nr_slots;
	__u32 nr_slices;
	__u32 nr_locals;
	__u32 nr_homes;
	__u32 cpus_offset; /* bytes from the start of the table, for this and the next five */
	__u32 vcpus_offset;
	__u32 slots_offset;
	__u32 slices_offset;
	__u32 locals_offset;
	__u32 homes_offset;
	__u32 reserved[11];
};

#define ROTA_CPU_EXCLUSIVE 1U /* of a core that one tenant has to itself: nobody else runs here who can run elsewhere */
/*
 * The order in which the CPU's vCPUs have their window_ns of each window is decided as they wake. All of it is had in
 * time if the one goes first whose window ends first: over the table's length, what they may claim comes to no more
 * than that. Each of them has slots here alone, and a latency_ns of 2 (T - C) at least: it can wait for so long. They
 * are at most ROTA_WINDOW_VCPUS_MAX, and more than one if there is no time without a slot.
 */
#define ROTA_CPU_WINDOWS 2U

/* One CPU: one cache line. A CPU without slots has nr_slots = nr_slices = 0 and the table's length and slice_ns = 1. */
struct rota_table_cpu {
	__u32 length_ns; /* its slots repeat after this; divides the table's length_ns */
	__u32 slice_ns;
	__u32 first_slot; /* its slots, ascending and disjoint: slots[first_slot .. first_slot + nr_slots) */
	__u32 nr_slots;
	__u32 first_slice; /* nr_slices = ceil(length_ns / slice_ns) */
	__u32 nr_slices;
	__u32 first_local; /* the vCPUs that own a slot here, ascending: the second level's candidates */
	__u32 nr_locals;
	__u32 flags;
	__u32 switch_ns; /* what a change of tasks takes; 0 without ROTA_CPU_WINDOWS */
	__u32 reserved[6];
};

#define ROTA_VCPU_CAPPED 1U /* never has more than its slots come to */

struct rota_table_vcpu {
	__u32 tenant; /* the tenant's number, the same in every generation */
	__u32 index;  /* which of the tenant's vCPUs: 0 .. vcpus - 1 */
	__u32 flags;
	__u32 share_ppb;  /* promised share of one CPU, in parts per billion: 1 .. 1000000000 */
	__u64 latency_ns; /* promised bound of the blackout */
	__u32 budget_ns;  /* C: at least this much in every period window [k*T, (k+1)*T), net of changes of task */
	__u32 period_ns;  /* T */
	__u32 home_cpu;	  /* the CPU of its first slot in the table, which is its first home */
	__u32 nr_cpus;	  /* how many CPUs it has slots on: 1 .. ROTA_VCPU_CPUS_MAX */
	__u32 first_home; /* these CPUs, in the order of its first slot on each, then of their numbers: its homes */
	__u32 window_ns;  /* what it may claim of each window, changes of task included; 0 without ROTA_CPU_WINDOWS */
	__u32 reserved[4];
};

struct rota_table_slot {
	__u32 start_ns; /* 0 <= start_ns < end_ns <= the CPU's length_ns */
	__u32 end_ns;
	__u32 vcpu; /* index into vcpus */
	__u32 reserved;
};

struct rota_table_slice {
	__u32 slot;	   /* index into slots: the CPU's first slot that ends after this slice begins */
	__u32 boundary_ns; /* end_ns of that slot; the CPU's length_ns if there is none */
};

_Static_assert(sizeof(struct rota_table_header) == 128, "header size");
_Static_assert(sizeof(struct rota_table_cpu) == 64, "cpu size");
_Static_assert(sizeof(struct rota_table_vcpu) == 64, "vcpu size");
_Static_assert(sizeof(struct rota_table_slot) == 16, "slot size");
_Static_assert(sizeof(struct rota_table_slice) == 8, "slice size");

#endif /* ROTA_TABLE_H */
