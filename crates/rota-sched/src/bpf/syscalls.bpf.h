/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a thread waits for that blocks in a system call, told from the call's number. A call that is not listed may wait
 * for anything.
 */
#ifndef ROTA_SYSCALLS_BPF_H
#define ROTA_SYSCALLS_BPF_H

#include "kernel.bpf.h"
#include "shared.h"

/* Calls with one number on all architectures. */
static __always_inline u32 new_call_waits_for(s32 call)
{
	switch (call) {
	case 449: /* futex_waitv */
	case 455: /* futex_wait */
		return ROTA_SPENT_OTHERS;
	case 426: /* io_uring_enter */
	case 441: /* epoll_pwait2 */
		return ROTA_SPENT_DEVICES;
	}
	return ROTA_SPENT_UNKNOWN;
}

static __always_inline u32 x86_call_waits_for(s32 call)
{
	switch (call) {
	case 202: /* futex */
	case 61:  /* wait4 */
	case 247: /* waitid */
	case 65:  /* semop */
	case 220: /* semtimedop */
	case 70:  /* msgrcv */
	case 73:  /* flock */
		return ROTA_SPENT_OTHERS;
	case 35:  /* nanosleep */
	case 230: /* clock_nanosleep */
		return ROTA_SPENT_TIME;
	case 16: /* ioctl: of a vCPU thread, KVM_RUN */
		return ROTA_SPENT_HALTED;
	case 0 ... 2:	  /* read, write, open */
	case 7:		  /* poll */
	case 17 ... 20:	  /* pread64, pwrite64, readv, writev */
	case 23:	  /* select */
	case 26:	  /* msync */
	case 40:	  /* sendfile */
	case 42 ... 47:	  /* connect, accept, sendto, recvfrom, sendmsg, recvmsg */
	case 74 ... 75:	  /* fsync, fdatasync */
	case 162:	  /* sync */
	case 208:	  /* io_getevents */
	case 217:	  /* getdents64 */
	case 232:	  /* epoll_wait */
	case 257:	  /* openat */
	case 262:	  /* newfstatat */
	case 270 ... 271: /* pselect6, ppoll */
	case 275:	  /* splice */
	case 277:	  /* sync_file_range */
	case 281:	  /* epoll_pwait */
	case 288:	  /* accept4 */
	case 295 ... 296: /* preadv, pwritev */
	case 299:	  /* recvmmsg */
	case 306 ... 307: /* syncfs, sendmmsg */
	case 327 ... 328: /* preadv2, pwritev2 */
	case 333:	  /* io_pgetevents */
		return ROTA_SPENT_DEVICES;
	}
	return new_call_waits_for(call);
}

static __always_inline u32 generic_call_waits_for(s32 call)
{
	switch (call) {
	case 98:	  /* futex */
	case 95:	  /* waitid */
	case 260:	  /* wait4 */
	case 192 ... 193: /* semtimedop, semop */
	case 188:	  /* msgrcv */
	case 32:	  /* flock */
		return ROTA_SPENT_OTHERS;
	case 101: /* nanosleep */
	case 115: /* clock_nanosleep */
		return ROTA_SPENT_TIME;
	case 29: /* ioctl */
		return ROTA_SPENT_HALTED;
	case 4:		  /* io_getevents */
	case 22:	  /* epoll_pwait */
	case 56:	  /* openat */
	case 61:	  /* getdents64 */
	case 63 ... 73:	  /* read to ppoll: all that read and write files, pselect6 */
	case 76:	  /* splice */
	case 79:	  /* newfstatat */
	case 81 ... 84:	  /* sync, fsync, fdatasync, sync_file_range */
	case 202 ... 203: /* accept, connect */
	case 206 ... 207: /* sendto, recvfrom */
	case 211 ... 212: /* sendmsg, recvmsg */
	case 227:	  /* msync */
	case 242 ... 243: /* accept4, recvmmsg */
	case 267:	  /* syncfs */
	case 269:	  /* sendmmsg */
	case 286 ... 287: /* preadv2, pwritev2 */
	case 292:	  /* io_pgetevents */
		return ROTA_SPENT_DEVICES;
	}
	return new_call_waits_for(call);
}

/* enum rota_spent. Verified on its own, with the two tables one after the other. */
__noinline u32 call_waits_for(s32 call)
{
	return has_generic_syscalls() ? generic_call_waits_for(call) : x86_call_waits_for(call);
}

#endif /* ROTA_SYSCALLS_BPF_H */
