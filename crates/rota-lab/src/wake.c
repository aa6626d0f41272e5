// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs in a guest that is to be saved: stops the machine, and writes out the files that whoever restores it brings.
 *
 * The machine is stopped by its watchdog while the guest sleeps. QEMU does all of that in one thread. If the guest
 * stopped it, counted time could jump to the next timer before all has stopped. The files are an item of
 * QEMU's firmware configuration device (docs/specs/fw_cfg.rst in its sources), which copies into the guest's memory
 * while the instruction that asks for it is executed. So counted instructions are the same in each run.
 */
#include <endian.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* QEMU's device ib700. What is written is the time, counted down from 30 s, in steps of 2 s. */
#define WATCHDOG_PORT 0x443
#define TWO_SECONDS   14
/* A little longer, and so much again if the machine, in real time, is not stopped yet. */
#define SLEEP_MS 2010
#define AGAIN_MS 10

#define DMA_PORT   0x514
#define DMA_ERROR  1
#define DMA_READ   2
#define DMA_SELECT 8
#define DIRECTORY  0x19

/* The name that the host gives the item. */
#define FILES "opt/rota/files"

#define PAGE 4096

/* What the device is asked, and an entry of its directory; numbers are big-endian. */
struct request {
	uint32_t control;
	uint32_t length;
	uint64_t address;
};

struct item {
	uint32_t size;
	uint16_t select;
	uint16_t reserved;
	char name[56];
};

static volatile struct request *request;
static uint64_t request_address;
static void *data;
static uint64_t data_address;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* A page of memory that stays where it is, and its physical address. */
static void *page(uint64_t *address)
{
	uint64_t entry;
	char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
	int map = open("/proc/self/pagemap", O_RDONLY);

	if (page == MAP_FAILED || map < 0)
		fail("wake: no memory");
	page[0] = 1;
	if (pread(map, &entry, sizeof(entry), (uintptr_t)page / PAGE * sizeof(entry)) != sizeof(entry))
		fail("wake: /proc/self/pagemap");
	close(map);
	*address = (entry & ((1ull << 55) - 1)) * PAGE;
	return page;
}

/* Copies the next bytes of the item that is selected. To select one, it is in the upper half of control. */
static void copy(uint32_t control, uint32_t length)
{
	request->control = htobe32(control | DMA_READ);
	request->length = htobe32(length);
	request->address = htobe64(data_address);
	outl(htobe32(request_address >> 32), DMA_PORT);
	outl(htobe32((uint32_t)request_address), DMA_PORT + 4);
	if (request->control) {
		fprintf(stderr, "wake: the host's files cannot be read\n");
		exit(1);
	}
}

/* Selects FILES, and returns its size; 0 if there are none yet. */
static uint32_t open_files(void)
{
	struct item item;
	uint32_t count;

	copy(DIRECTORY << 16 | DMA_SELECT, sizeof(count));
	memcpy(&count, data, sizeof(count));
	for (count = be32toh(count); count > 0; count--) {
		copy(0, sizeof(item));
		memcpy(&item, data, sizeof(item));
		if (!strcmp(item.name, FILES)) {
			copy((uint32_t)be16toh(item.select) << 16 | DMA_SELECT, 0);
			return be32toh(item.size);
		}
	}
	return 0;
}

static void sleep_ms(long ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&time, NULL);
}

int main(void)
{
	uint32_t left;

	if (iopl(3))
		fail("wake: no right to ports");
	request = page(&request_address);
	data = page(&data_address);
	outb(TWO_SECONDS, WATCHDOG_PORT);
	sleep_ms(SLEEP_MS);
	while ((left = open_files()) == 0)
		sleep_ms(AGAIN_MS);

	while (left > 0) {
		uint32_t length = left < PAGE ? left : PAGE;

		copy(0, length);
		if (write(STDOUT_FILENO, data, length) != (ssize_t)length)
			fail("wake: standard output");
		left -= length;
	}
	return 0;
}
