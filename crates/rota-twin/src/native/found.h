/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How the model finds the parts of a scheduler's C: addresses are handed out one by one, since they differ from thread
 * to thread (see compile.rs). An array that is initialised here would not know.
 */
#ifndef ROTA_NATIVE_FOUND_H
#define ROTA_NATIVE_FOUND_H

_Static_assert(sizeof(struct task_struct) == 56, "the model has the address of a task's value behind it (native.rs)");

typedef void (*native_map_found)(void *to, const char *name, struct native_map *map, u32 type, u32 key_size,
				 u32 value_size);
typedef void (*native_address_found)(void *to, const char *name, void *address, u64 size);

#define MAP(name, key_size, value_size)                                                                                \
	found(to, #name, (struct native_map *)&name, NATIVE_MAP_TYPE(&name), key_size, value_size)
#define TYPED_MAP(name) MAP(name, sizeof(*name.key), sizeof(*name.value))
#define VARIABLE(name)	found(to, #name, (void *)&name, sizeof(name))
#define PROGRAM(name)	found(to, #name, (void *)name, 0)

struct native_code {
	void (*maps)(void *to, native_map_found found);
	void (*variables)(void *to, native_address_found found);
	void (*programs)(void *to, native_address_found found);
	const struct sched_ext_ops *(*operations)(void);
};

#endif /* ROTA_NATIVE_FOUND_H */
