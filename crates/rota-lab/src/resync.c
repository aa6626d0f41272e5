// SPDX-License-Identifier: GPL-2.0-only
/*
 * A QEMU plugin that makes emulated CPUs forget code that a guest kernel has patched.
 *
 * Linux patches its own text under running CPUs: it replaces an instruction's first byte by int3, has every
 * CPU synchronise, writes the rest, synchronises, writes the new first byte, synchronises, and from then on
 * takes no responsibility for that int3 any more. With several CPUs emulated in parallel, QEMU (10.0 and
 * before) can lose the last step: a CPU that translates the block just while the byte is being written keeps
 * a translation with int3 in it, runs into it later, and the kernel panics. On a busy host that ended one
 * boot in six, and every guest that switched a scheduler's static branch a thousand times under load.
 *
 * Here each translated int3 of the kernel is remembered by where its byte lies in the guest's memory. When a
 * CPU synchronises (do_sync_core, whose address is the argument sync=) and one of these bytes is no int3 any
 * more, all translations are dropped before that CPU goes on, and so before the patching CPU learns that it
 * has synchronised. That takes a tenth of a second at worst, and happens five times in a usual boot.
 *
 * QEMU installs no header for plugins; what is used of its interface (version 4, QEMU 9.2 and later) is
 * declared here.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };

EXPORTED int qemu_plugin_version = 4;

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*callback)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, void (*callback)(unsigned int, void *),
					    enum qemu_plugin_cb_flags flags, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t length);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *insn);
void qemu_plugin_reset(qemu_plugin_id_t id, void (*callback)(qemu_plugin_id_t));

#define INT3 0xcc
/* The kernel patches at most a page of sites in one go, 256; the rest is room for breakpoints. */
#define MOST_REMEMBERED 1024

static qemu_plugin_id_t plugin;
static uint64_t sync_address;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const volatile uint8_t *remembered[MOST_REMEMBERED];
static size_t remembered_count;
static bool overflowed;

static void remember(const volatile uint8_t *byte)
{
	size_t i = 0;

	pthread_mutex_lock(&lock);
	while (i < remembered_count && remembered[i] != byte)
		i++;
	if (i == remembered_count) {
		if (byte && i < MOST_REMEMBERED)
			remembered[remembered_count++] = byte;
		else
			overflowed = true;
	}
	pthread_mutex_unlock(&lock);
}

/* Forgets the bytes that are no int3 any more, and says whether there were any. */
static bool forget_replaced(void)
{
	bool replaced;
	size_t i = 0;

	pthread_mutex_lock(&lock);
	replaced = overflowed;
	overflowed = false;
	while (i < remembered_count) {
		if (*remembered[i] == INT3) {
			i++;
		} else {
			remembered[i] = remembered[--remembered_count];
			replaced = true;
		}
	}
	pthread_mutex_unlock(&lock);
	return replaced;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block);

/* A reset drops all translations, with all CPUs stopped, and the plugin's callbacks with them. */
static void after_reset(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
}

static void on_sync(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	if (forget_replaced())
		qemu_plugin_reset(plugin, after_reset);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	size_t count = qemu_plugin_tb_n_insns(block);

	(void)id;
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
		uint64_t address = qemu_plugin_insn_vaddr(insn);
		uint8_t first = 0;

		if (!(address >> 63))
			return; /* a program's code */
		if (address == sync_address)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_sync, QEMU_PLUGIN_CB_NO_REGS, NULL);
		/* An int3 ends its block. */
		if (i == count - 1 && qemu_plugin_insn_data(insn, &first, 1) == 1 && first == INT3)
			remember(qemu_plugin_insn_haddr(insn));
	}
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "sync=", 5) != 0)
		return -1;
	plugin = id;
	sync_address = strtoull(argv[0] + 5, NULL, 16);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
