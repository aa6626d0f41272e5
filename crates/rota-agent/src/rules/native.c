/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The rules of the guest's scheduler, compiled for this machine: guests come on standard input, one after the other,
 * and what is decided in each goes to standard output. crates/rota-agent/src/rules.rs has the other end.
 */
#include "place.bpf.h"

#include <stdio.h>
#include <stdlib.h>

#define CPUS_MAX 8
#undef table_bytes

struct guest {
	u64 now;
	u32 nr_cpus;
	u32 bytes; /* of the table; 0: none is in force */
	s32 wakes; /* the home of a thread that wakes */
	u32 unused;
};

struct seen {
	u64 taken;
	u64 distrusted;
	u32 busy;
	u32 queued;
	s32 home;
	s32 recalls;
};

struct decided {
	u64 until;
	u32 is_there;
	s32 goes_on_on;
};

static struct seen seen[CPUS_MAX];
static struct vcpu of_cpus[CPUS_MAX];
static struct rota_cpu_view of_views[ROTA_NR_BUFFERS * CPUS_MAX];
static struct cpumask idle, all = {{-1UL}};

const struct cpumask *scx_bpf_get_idle_cpumask(void)
{
	return &idle;
}

void scx_bpf_put_idle_cpumask(const struct cpumask *mask)
{
	(void)mask;
}

bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask)
{
	return mask->bits[0] >> cpu & 1;
}

s32 scx_bpf_dsq_nr_queued(u64 dsq_id)
{
	return seen[dsq_id].queued;
}

struct task_struct *bpf_get_current_task_btf(void)
{
	return NULL;
}

/* Reads all of it, or ends: 0 at the end of the input, 1 in the midst of a guest. */
static void take(void *to, size_t size, int status)
{
	if (size && fread(to, size, 1, stdin) != 1)
		exit(status);
}

static void is_map(void *map, void *values, u32 entries, u32 value_size)
{
	*(struct native_map *)map = (struct native_map){values, entries, value_size};
}

static void take_guest(struct guest *guest)
{
	static u8 *table;
	u32 i;

	take(guest, sizeof(*guest), 0);
	take(seen, guest->nr_cpus * sizeof(*seen), 1);
	table = realloc(table, guest->bytes + 1);
	take(table, guest->bytes, 1);
	take(of_views, guest->bytes ? guest->nr_cpus * sizeof(*of_views) : 0, 1);
	is_map(&tables, table, 1, guest->bytes);
	is_map(&views, of_views, guest->nr_cpus, 0);
	is_map(&vcpus, of_cpus, guest->nr_cpus, 0);
	settings.nr_cpus = guest->nr_cpus;
	settings.table_bytes = guest->bytes;
	settings.online[0] = (1ULL << guest->nr_cpus) - 1;
	live.tables[0].from_ns = guest->bytes ? 0 : ROTA_NEVER;
	live.tables[1].from_ns = ROTA_NEVER;
	native_moment.now = guest->now;
	idle.bits[0] = 0;
	for (i = 0; i < guest->nr_cpus; i++) {
		of_cpus[i] = (struct vcpu){
			.taken = seen[i].taken,
			.distrusted = seen[i].distrusted,
			.busy = seen[i].busy,
			.home = seen[i].home,
			.recalls = seen[i].recalls,
		};
		idle.bits[0] |= (u64)!seen[i].busy << i;
	}
}

int main(void)
{
	struct task_struct task = {.nr_cpus_allowed = CPUS_MAX, .cpus_ptr = &all};
	struct guest guest;
	u32 i;

	for (;;) {
		struct task_ctx wakes = {};
		s32 woken;

		take_guest(&guest);
		wakes.home = guest.wakes;
		woken = wakes_on(&task, &wakes, guest.wakes);
		fwrite(&woken, sizeof(woken), 1, stdout);
		for (i = 0; i < guest.nr_cpus; i++) {
			struct task_ctx runs = {.home = seen[i].home};
			struct decided decided = {runs_until(i), is_there(i), -1};

			if (seen[i].busy)
				decided.goes_on_on = goes_on_on(&task, &runs, i, &of_cpus[i]);
			fwrite(&decided, sizeof(decided), 1, stdout);
		}
	}
}
