/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Guests' scheduler, compiled for this machine, and what the model has to know of it. One thread may have several
 * guests: what differs between them is in the maps and variables that are listed here (instance.rs). That these are all
 * of its variables, build.rs checks.
 */
#include "guest.bpf.c"

#include "found.h"

static void native_maps(void *to, native_map_found found)
{
	MAP(tables, sizeof(u32), 0); /* a value's size is one of the settings */
	TYPED_MAP(views);
	TYPED_MAP(vcpus);
	TYPED_MAP(spinners);
	TYPED_MAP(tasks);
}

static void native_variables(void *to, native_address_found found)
{
	VARIABLE(settings);
	VARIABLE(live);
	VARIABLE(exit_info);
	VARIABLE(vtime_now);
	VARIABLE(crowded_until);
	VARIABLE(spin_sites);
	VARIABLE(native_moment);
}

/* Its loader runs none. */
static void native_programs(void *to, native_address_found found)
{
}

static const struct sched_ext_ops *native_operations(void)
{
	return &rota_guest;
}

/* Where all of this is: the one name that is seen outside. */
struct native_code native_code(void)
{
	return (struct native_code){native_maps, native_variables, native_programs, native_operations};
}
