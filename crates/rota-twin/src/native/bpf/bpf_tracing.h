/* SPDX-License-Identifier: GPL-2.0-only */
/* What libbpf's header of this name gives to BPF programs, for the same programs compiled for this machine. */
#ifndef ROTA_NATIVE_BPF_TRACING_H
#define ROTA_NATIVE_BPF_TRACING_H

#define BPF_PROG(name, args...) name(args)

#endif /* ROTA_NATIVE_BPF_TRACING_H */
