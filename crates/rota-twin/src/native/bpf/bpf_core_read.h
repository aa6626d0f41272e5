/* SPDX-License-Identifier: GPL-2.0-only */
/* What libbpf's header of this name gives to BPF programs, for the same programs compiled for this machine. */
#ifndef ROTA_NATIVE_BPF_CORE_READ_H
#define ROTA_NATIVE_BPF_CORE_READ_H

/* The kernel's structures are as kernel.bpf.h declares them: nothing is relocated. */
#define preserve_access_index annotate("as declared")

#define bpf_core_field_offset(type, field)    __builtin_offsetof(type, field)
#define bpf_probe_read_kernel(to, size, from) (__builtin_memcpy(to, from, size), 0)

/* A read through one pointer, or two; what lies behind a null pointer reads as zero. */
#define NATIVE_READ(_1, _2, name, ...) name
#define BPF_CORE_READ(from, ...)       NATIVE_READ(__VA_ARGS__, NATIVE_READ2, NATIVE_READ1)(from, __VA_ARGS__)
#define NATIVE_READ1(from, first)      ((from)->first)
#define NATIVE_READ2(from, first, second)                                                                              \
	({                                                                                                             \
		typeof((from)->first) native_pointer = (from)->first;                                                  \
		native_pointer ? native_pointer->second : (typeof(native_pointer->second))0;                           \
	})

#endif /* ROTA_NATIVE_BPF_CORE_READ_H */
