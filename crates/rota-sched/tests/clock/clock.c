/* SPDX-License-Identifier: GPL-2.0-only */
/* The scheduler's arithmetic of virtual times, on this machine. Each line that fails is printed. */
#include <stdbool.h>
#include <stdio.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#include "clock.bpf.h"

static int failures;

#define CHECK(what)                                                                                                    \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			printf("line %d, at %llu: %s\n", __LINE__, at, #what);                                         \
			failures++;                                                                                    \
		}                                                                                                      \
	} while (0)

/* Around each of these everything has to hold: they lie where a time wraps, and where its sign changes. */
static const __u64 corners[] = {0, 1, 1000, 1ULL << 62, (1ULL << 63) - 1, 1ULL << 63, -1000ULL, -1ULL};

static void order(__u64 at)
{
	CHECK(!vtime_before(at, at));
	CHECK(vtime_before(at - 1, at) && !vtime_before(at, at - 1));
	CHECK(vtime_before(at, at + (1ULL << 62)) && vtime_before(at - (1ULL << 62), at));
	CHECK(max_vtime(at, at + 7) == at + 7 && max_vtime(at + 7, at) == at + 7);
	CHECK(min_vtime(at, at + 7) == at && min_vtime(at + 7, at) == at);
}

static void bounds(__u64 at)
{
	CHECK(vtime_within(at, at, 5, 9) == at);
	CHECK(vtime_within(at - 5, at, 5, 9) == at - 5 && vtime_within(at - 6, at, 5, 9) == at - 5);
	CHECK(vtime_within(at + 9, at, 5, 9) == at + 9 && vtime_within(at + 10, at, 5, 9) == at + 9);
	CHECK(vtime_within(at - (1ULL << 62), at, 5, 9) == at - 5);
	CHECK(vtime_within(at + (1ULL << 62), at, 5, 9) == at + 9);
}

static void weights(__u64 at)
{
	__u64 ns = at % 1000000007;

	CHECK(vtime_of(ns, ROTA_WEIGHT_ONE) == ns);
	CHECK(vtime_of(ns, 1) == ns * ROTA_WEIGHT_ONE);
	CHECK(vtime_of(ns, 10000) == ns / 100);
}

int main(void)
{
	unsigned int i;

	for (i = 0; i < sizeof(corners) / sizeof(corners[0]); i++) {
		order(corners[i]);
		bounds(corners[i]);
		weights(corners[i]);
	}
	return failures != 0;
}
