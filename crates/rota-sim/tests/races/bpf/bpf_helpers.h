/* SPDX-License-Identifier: GPL-2.0-only */
/* As the simulator's, but that locks are locks: CPUs run at once here. */
#include "../../../src/native/bpf/bpf_helpers.h"

#undef bpf_spin_lock
#undef bpf_spin_unlock
void bpf_spin_lock(void *lock);
void bpf_spin_unlock(void *lock);
