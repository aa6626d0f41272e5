/* SPDX-License-Identifier: GPL-2.0-only */
/* What clang's thread sanitizer calls at each access to memory: another CPU may come in between. */
#include "explore.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

int is_shared(const void *address);

static void seen(const void *address)
{
	if (is_shared(address))
		yield_to_others();
}

#define PLAIN(size)                                                                                                    \
	void __tsan_read##size(void *address)                                                                          \
	{                                                                                                              \
		seen(address);                                                                                         \
	}                                                                                                              \
	void __tsan_write##size(void *address)                                                                         \
	{                                                                                                              \
		seen(address);                                                                                         \
	}                                                                                                              \
	void __tsan_unaligned_read##size(void *address)                                                                \
	{                                                                                                              \
		seen(address);                                                                                         \
	}                                                                                                              \
	void __tsan_unaligned_write##size(void *address)                                                               \
	{                                                                                                              \
		seen(address);                                                                                         \
	}                                                                                                              \
	void __tsan_volatile_read##size(void *address)                                                                 \
	{                                                                                                              \
		seen(address);                                                                                         \
	}                                                                                                              \
	void __tsan_volatile_write##size(void *address)                                                                \
	{                                                                                                              \
		seen(address);                                                                                         \
	}                                                                                                              \
	void __tsan_read_write##size(void *address)                                                                    \
	{                                                                                                              \
		seen(address);                                                                                         \
	}

PLAIN(1);
PLAIN(2);
PLAIN(4);
PLAIN(8);
PLAIN(16);

#define ATOMIC(bits)                                                                                                   \
	u##bits __tsan_atomic##bits##_compare_exchange_val(u##bits *to, u##bits from, u##bits value, int a, int b)     \
	{                                                                                                              \
		seen(to);                                                                                              \
		return __sync_val_compare_and_swap(to, from, value);                                                   \
	}                                                                                                              \
	u##bits __tsan_atomic##bits##_exchange(u##bits *to, u##bits value, int order)                                  \
	{                                                                                                              \
		seen(to);                                                                                              \
		return __sync_lock_test_and_set(to, value);                                                            \
	}                                                                                                              \
	u##bits __tsan_atomic##bits##_fetch_add(u##bits *to, u##bits value, int order)                                 \
	{                                                                                                              \
		seen(to);                                                                                              \
		return __sync_fetch_and_add(to, value);                                                                \
	}                                                                                                              \
	u##bits __tsan_atomic##bits##_fetch_sub(u##bits *to, u##bits value, int order)                                 \
	{                                                                                                              \
		seen(to);                                                                                              \
		return __sync_fetch_and_sub(to, value);                                                                \
	}                                                                                                              \
	u##bits __tsan_atomic##bits##_fetch_or(u##bits *to, u##bits value, int order)                                  \
	{                                                                                                              \
		seen(to);                                                                                              \
		return __sync_fetch_and_or(to, value);                                                                 \
	}                                                                                                              \
	u##bits __tsan_atomic##bits##_fetch_and(u##bits *to, u##bits value, int order)                                 \
	{                                                                                                              \
		seen(to);                                                                                              \
		return __sync_fetch_and_and(to, value);                                                                \
	}

ATOMIC(32);
ATOMIC(64);

void __tsan_init(void)
{
}
void *__tsan_memset(void *to, int value, unsigned long size)
{
	return __builtin_memset(to, value, size);
}
void *__tsan_memcpy(void *to, const void *from, unsigned long size)
{
	return __builtin_memcpy(to, from, size);
}
