/* SPDX-License-Identifier: GPL-2.0-only */
/* A parallel loop of OpenMP, again and again. Its threads meet at each loop's end, and then a byte is written. */
#include <unistd.h>

#define CELLS 65536

static unsigned int cells[CELLS];

int main(void)
{
	for (;;) {
#pragma omp parallel for schedule(static)
		for (int i = 0; i < CELLS; i++)
			cells[i] = cells[i] * 1664525 + 1013904223;
		if (write(STDOUT_FILENO, "", 1) != 1)
			return 1;
	}
}
