/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler, compiled for this machine, and what the model has to know of it: its maps, variables, programs and
 * operations. Addresses are handed out one by one: they differ from thread to thread (see compile.rs), which an array
 * initialised here would not know.
 */
#include "main.bpf.c"

const struct kernel_cpustat kernel_cpustat;

_Static_assert(sizeof(struct task_struct) == 56, "the model has the address of a task's value behind it (native.rs)");

typedef void (*native_map_found)(void *to, const char *name, struct native_map *map, u32 type, u32 key_size,
				 u32 value_size);
typedef void (*native_address_found)(void *to, const char *name, void *address, u64 size);

#define MAP(name, key_size, value_size)                                                                                \
	found(to, #name, (struct native_map *)&name, NATIVE_MAP_TYPE(&name), key_size, value_size)
#define TYPED_MAP(name) MAP(name, sizeof(*name.key), sizeof(*name.value))
#define VARIABLE(name)	found(to, #name, (void *)&name, sizeof(name))
#define PROGRAM(name)	found(to, #name, (void *)name, 0)

static void native_maps(void *to, native_map_found found)
{
	MAP(tables, sizeof(u32), 0); /* a value's size is one of the settings */
	TYPED_MAP(views);
	TYPED_MAP(cpus);
	TYPED_MAP(samplers);
	TYPED_MAP(graces);
	TYPED_MAP(queues);
	TYPED_MAP(profiles);
	TYPED_MAP(tenants);
	TYPED_MAP(fair);
	TYPED_MAP(domains);
	TYPED_MAP(places);
	TYPED_MAP(cgroups);
	TYPED_MAP(vcpu_threads);
	TYPED_MAP(tasks);
}

/* What the loader reads or writes, and the model. */
static void native_variables(void *to, native_address_found found)
{
	VARIABLE(settings);
	VARIABLE(live);
	VARIABLE(exit_info);
	VARIABLE(native_moment);
}

/* What the loader runs. */
static void native_programs(void *to, native_address_found found)
{
	PROGRAM(publish_table);
	PROGRAM(rehome);
	PROGRAM(open_cpus);
	PROGRAM(reweigh);
	PROGRAM(kick_all);
}

static const struct sched_ext_ops *native_operations(void)
{
	return &rota;
}

struct native_code {
	void (*maps)(void *to, native_map_found found);
	void (*variables)(void *to, native_address_found found);
	void (*programs)(void *to, native_address_found found);
	const struct sched_ext_ops *(*operations)(void);
};

/* Where all of this is: the one name that is seen outside. */
struct native_code native_code(void)
{
	return (struct native_code){native_maps, native_variables, native_programs, native_operations};
}
