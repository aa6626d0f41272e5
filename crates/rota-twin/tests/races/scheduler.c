/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler, with every access to memory seen by the explorer (clang's instrumentation for its thread sanitizer,
 * without that itself), and its scene: a tenant with one vCPU, and slots for it on two CPUs.
 */
#include "main.bpf.c"

#include "races.h"

const struct kernel_cpustat kernel_cpustat;

#define LENGTH_NS 10000000U

static struct {
	struct rota_table_vcpu vcpu;
	struct rota_table_slot slots[2];
	struct rota_table_slice slices[2];
	u32 locals[2];
	u32 homes[2];
} table;
static struct rota_cpu_view views_of[ROTA_NR_BUFFERS * CPUS];
static struct cpu_ctx cpus_of[CPUS];
static struct sampler samplers_of[CPUS];
static struct queue_ctx queues_of[3];
static struct rota_tenant tenants_of[2];
static struct fair_ctx fair_of[2];
static struct fair_domain domain;
static struct fair_place places_of[2];
static struct task_ctx tasks_of[TASKS];
static bool grows; /* what the loader writes is looked at by others meanwhile */
static bool lines; /* what is known of who waits in line */

/* What is found by a map's number. */
static void back(void *map, void *values, u32 entries, u32 value_size)
{
	*(struct native_map *)map = (struct native_map){values, entries, value_size};
	__builtin_memset(values, 0, (u64)entries * value_size);
}

static void lay_out(const struct scene *scene)
{
	u32 cpu;

	table.vcpu = (struct rota_table_vcpu){.tenant = 1, .nr_cpus = 2, .flags = scene->capped ? ROTA_VCPU_CAPPED : 0};
	for (cpu = 0; cpu < 2; cpu++) {
		struct rota_table_slot *slot = &table.slots[cpu];

		*slot = (struct rota_table_slot){scene->slots[cpu][0], scene->slots[cpu][1]};
		table.slices[cpu] = (struct rota_table_slice){cpu, slot->end_ns};
		table.locals[cpu] = 0;
		table.homes[cpu] = cpu;
	}
	for (cpu = 0; cpu < CPUS; cpu++)
		views_of[cpu] = (struct rota_cpu_view){
			.slices = (u8 *)&table.slices[cpu] - (u8 *)&table,
			.slots = (u8 *)&table.slots[cpu] - (u8 *)&table,
			.locals = (u8 *)&table.locals[cpu] - (u8 *)&table,
			.first_slot = cpu,
			.nr_slots = cpu < 2,
			.nr_slices = cpu < 2,
			.nr_locals = cpu < 2,
			.length_ns = LENGTH_NS,
			.slice_ns = LENGTH_NS,
			.nr_vcpus = 1,
			.homes = (u8 *)table.homes - (u8 *)&table,
		};
}

/* Constant once the scheduler is loaded, and in memory that may not be written. */
static void loaded_with(const struct rota_settings *given)
{
	void *at = (void *)&settings;

	make_writable(at, sizeof(settings));
	barrier_var(at);
	__builtin_memcpy(at, given, sizeof(*given));
}

void begin(const struct scene *scene)
{
	back(&views, views_of, ROTA_NR_BUFFERS * CPUS, sizeof(views_of[0]));
	back(&cpus, cpus_of, CPUS, sizeof(cpus_of[0]));
	back(&samplers, samplers_of, CPUS, sizeof(samplers_of[0]));
	back(&queues, queues_of, 3, sizeof(queues_of[0]));
	back(&tenants, tenants_of, 2, sizeof(tenants_of[0]));
	back(&fair, fair_of, 2, sizeof(fair_of[0]));
	back(&domains, &domain, 1, sizeof(domain));
	back(&places, places_of, 2, sizeof(places_of[0]));
	back(&tables, &table, 1, sizeof(table));
	__builtin_memset(tasks_of, 0, sizeof(tasks_of));
	nr_rehomed = 0; /* a thread that ran as the loader looked at it is counted until it stops */
	lay_out(scene);
	tenants_of[0] = (struct rota_tenant){
		.class = ROTA_CLASS_BACKGROUND, .nr_vcpus = 1, .first_vcpu = {ROTA_NONE, ROTA_NONE}};
	tenants_of[1] = (struct rota_tenant){
		.class = scene->shared	     ? ROTA_CLASS_SHARED
			 : scene->background ? ROTA_CLASS_BACKGROUND
					     : ROTA_CLASS_RESERVED,
		.weight = ROTA_WEIGHT_ONE,
		.nr_vcpus = 1,
		.first_queue = 1,
		.first_vcpu = {0, ROTA_NONE},
		.migrates = 1,
		.latency_ns = 20000000,
		.promised_from = 1,
	};
	live.tables[0].from_ns = live.tables[0].generation = 1;
	live.tables[1].from_ns = ROTA_NEVER;
	loaded_with(&(struct rota_settings){CPUS, 3, 2, sizeof(table), 1});
	grows = scene->grows;
	lines = scene->shared;
	rota_init();
}

const struct sched_ext_ops *operations(void)
{
	return &rota;
}

struct task_ctx *task_storage(u32 task)
{
	return &tasks_of[task];
}

u32 cpu_of_timer(const struct bpf_timer *timer)
{
	return ((const u8 *)timer - (const u8 *)cpus_of) / sizeof(cpus_of[0]);
}

void fire(u32 cpu)
{
	slot_timer(&cpus, &cpu, &cpus_of[cpu]);
}

/* What the loader does as the tenant grows, in its order: see scheduler.rs and scheduler/growth.rs. */
void grow(void)
{
	struct rota_rehome arg = {.dsq = DSQ_QUEUE(1)};

	tenants_of[1].former_entry = 1;
	tenants_of[1].nr_former = 1;
	tenants_of[1].first_queue = 2;
	live.membership_epoch++;
	rehome(&arg);
	kick_all(NULL);
}

/* Where the tenant's threads wait. */
unsigned long long dsq_of_tenant(const struct scene *scene)
{
	if (scene->shared)
		return DSQ_SHARED(0);
	return scene->background ? DSQ_BACKGROUND(0) : DSQ_QUEUE(tenants_of[1].first_queue);
}

/* What it does a while after each change. */
void look_again_at_waiting(void)
{
	struct rota_rehome arg = {.dsq = DSQ_QUEUE(1)};

	rehome(&arg);
	if (arg.moved)
		kick_all(NULL);
}

/* Whether other CPUs look at what is there: all that belongs to queues, and some of what belongs to CPUs. */
__attribute__((disable_sanitizer_instrumentation)) int is_shared(const void *address)
{
	u64 at = (const u8 *)address - (const u8 *)cpus_of;

	if ((const u8 *)address - (const u8 *)queues_of < sizeof(queues_of) && address >= (const void *)queues_of)
		return 1;
	if (grows && (address == &live.membership_epoch ||
		      (address >= (const void *)tenants_of && address < (const void *)(tenants_of + 2))))
		return 1;
	if (lines && address == &domain.waiting)
		return 1;
	if (address < (const void *)cpus_of || at >= sizeof(cpus_of))
		return 0;
	switch (at % sizeof(cpus_of[0])) {
	case __builtin_offsetof(struct cpu_ctx, turn.level):
	case __builtin_offsetof(struct cpu_ctx, offer.dozes):
	case __builtin_offsetof(struct cpu_ctx, lines.waiting):
	case __builtin_offsetof(struct cpu_ctx, turn.armed_ns):
	case __builtin_offsetof(struct cpu_ctx, slot.start):
	case __builtin_offsetof(struct cpu_ctx, slot.vcpu):
		return 1;
	}
	return 0;
}

/* For a failure's message. */
void show_vcpu(void)
{
	const struct queue_ctx *q;

	for (q = queues_of + 1; q < queues_of + 3; q++) {
		tell_number("claimed_by", q->claimed_by);
		tell_number("wanted_by", q->wanted_by);
		tell_number("runnable", q->nr_runnable);
		tell_number("running", q->nr_running);
	}
}
