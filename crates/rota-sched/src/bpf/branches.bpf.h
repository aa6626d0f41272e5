/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the processor records of a thread: its last branches, and how often it has missed its caches.
 *
 * A loop that waits goes round: its last branches are the same few in turn. What it looks at stays in the cache. So it
 * is seen even if it counts as it waits. A processor that can record branches does so only where the operator asks for
 * it. Elsewhere no thread is in a loop.
 *
 * After Huang et al., HPDC 2021, section 3.2. Their loops have one branch, as calls are not recorded. These have a few,
 * calls among them. Their loops miss no cache. These may miss it a few times, as the look itself drives something out.
 */
#ifndef ROTA_BRANCHES_BPF_H
#define ROTA_BRANCHES_BPF_H

#include "state.bpf.h"

/* A loop has at most so many branches. */
#define LOOP_BRANCHES 4
/* A thread that waits may miss each cache so often between two looks. In 100 us programs do 6,667 and 337 times. */
#define LOOP_MISSES 16

/* Of each CPU: the events that count misses in programs, as long as a daemon has them counted. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} misses SEC(".maps");

/* Whether misses are counted, and there were few since the last look. */
static __always_inline bool misses_few(struct sampler *s, u32 cpu)
{
	bool few = true;
	u32 i;

	for (i = 0; i < ROTA_NR_MISSES; i++) {
		s64 count = bpf_perf_event_read(&misses, cpu * ROTA_NR_MISSES + i);

		if (count < 0)
			return false;
		few &= count - s->misses[i] <= LOOP_MISSES;
		s->misses[i] = count;
	}
	return few;
}

/* Whether each of the branches is the same as the one that was so many before. */
static __always_inline bool goes_round(const struct branch *branches, u32 nr)
{
	u64 differs = !branches[0].from; /* none was recorded */
	u32 i;

	for (i = nr; i < ROTA_BRANCHES; i++) {
		differs |= branches[i].from ^ branches[i - nr].from;
		differs |= branches[i].to ^ branches[i - nr].to;
	}
	return !differs;
}

/* The loop in which the thread on this CPU is, by its branches: an even number. 0: in none, as far as is known. */
static __always_inline u64 loop_of(struct sampler *s, u32 cpu)
{
	u64 loop = 0;
	u32 nr;

	if (!misses_few(s, cpu) || bpf_get_branch_snapshot(s->branches, sizeof(s->branches), 0) != sizeof(s->branches))
		return 0;
	for (nr = 1; nr <= LOOP_BRANCHES; nr++) {
		loop += mix_register(s->branches[nr - 1].from, s->branches[nr - 1].to);
		if (goes_round(s->branches, nr))
			return (loop & ~1ULL) ?: 2;
	}
	return 0;
}

#endif /* ROTA_BRANCHES_BPF_H */
