/* SPDX-License-Identifier: GPL-2.0-only */
/* What libbpf's header of this name gives to BPF programs, for the same programs compiled for this machine. */
#ifndef ROTA_NATIVE_BPF_CORE_READ_H
#define ROTA_NATIVE_BPF_CORE_READ_H

/* The kernel's structures are as kernel.bpf.h declares them: nothing is relocated. */
#define preserve_access_index annotate("as declared")

/* A read through two pointers; what lies behind a null pointer reads as zero. */
#define BPF_CORE_READ(from, first, second)                                                                             \
	({                                                                                                             \
		typeof((from)->first) native_pointer = (from)->first;                                                  \
		native_pointer ? native_pointer->second : (typeof(native_pointer->second))0;                           \
	})

#endif /* ROTA_NATIVE_BPF_CORE_READ_H */
