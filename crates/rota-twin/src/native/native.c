/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler, compiled for this machine, and what the model has to know of it: its maps, variables, programs and
 * operations.
 */
#include "main.bpf.c"

#include "found.h"

const struct kernel_cpustat kernel_cpustat;

static void native_maps(void *to, native_map_found found)
{
	MAP(tables, sizeof(u32), 0); /* a value's size is one of the settings */
	TYPED_MAP(views);
	TYPED_MAP(cpus);
	TYPED_MAP(samplers);
	TYPED_MAP(misses);
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
	PROGRAM(hold_off);
}

static const struct sched_ext_ops *native_operations(void)
{
	return &rota;
}

/* Where all of this is: the one name that is seen outside. */
struct native_code native_code(void)
{
	return (struct native_code){native_maps, native_variables, native_programs, native_operations};
}
