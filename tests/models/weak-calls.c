/* SPDX-License-Identifier: MIT */
/*
 * Calls that gcc makes for each access to memory with -fsanitize=thread, in the place of
 * ThreadSanitizer's library: <sanitizer/tsan_interface_atomic.h> and compiler-rt's tsan_interface.h
 * declare them. The linker names one that is missing here.
 */
#include <stdint.h>

#include "models/weak-private.h"

/* The compiler declares the functions, and no header does. */
#define CALL(result, name, ...)   \
	result name(__VA_ARGS__); \
	result name(__VA_ARGS__)

CALL(void, __tsan_init, void)
{
}

CALL(void, __tsan_func_entry, void *from)
{
	(void)from;
}

CALL(void, __tsan_func_exit, void)
{
}

#define PLAIN(bytes)                                                  \
	CALL(void, __tsan_read##bytes, const void *address)           \
	{                                                             \
		weak_plain(address, bytes, false);                    \
	}                                                             \
	CALL(void, __tsan_write##bytes, void *address)                \
	{                                                             \
		weak_plain(address, bytes, true);                     \
	}                                                             \
	CALL(void, __tsan_unaligned_read##bytes, const void *address) \
	{                                                             \
		weak_plain(address, bytes, false);                    \
	}                                                             \
	CALL(void, __tsan_unaligned_write##bytes, void *address)      \
	{                                                             \
		weak_plain(address, bytes, true);                     \
	}

PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

CALL(void, __tsan_read_range, const void *address, unsigned long bytes)
{
	weak_plain(address, (unsigned int)bytes, false);
}

CALL(void, __tsan_write_range, void *address, unsigned long bytes)
{
	weak_plain(address, (unsigned int)bytes, true);
}

#define ATOMIC(bits, type)                                                                         \
	CALL(type, __tsan_atomic##bits##_load, const volatile void *address, int order)            \
	{                                                                                          \
		return (type)weak_load((const void *)address, (bits) / 8, order);                  \
	}                                                                                          \
	CALL(void, __tsan_atomic##bits##_store, volatile void *address, type value, int order)     \
	{                                                                                          \
		weak_store((void *)address, (bits) / 8, value, order);                             \
	}                                                                                          \
	CALL(type, __tsan_atomic##bits##_exchange, volatile void *address, type value, int order)  \
	{                                                                                          \
		return (type)weak_exchange_n((void *)address, (bits) / 8, value, order);           \
	}                                                                                          \
	CALL(type, __tsan_atomic##bits##_fetch_add, volatile void *address, type value, int order) \
	{                                                                                          \
		return (type)weak_fetch((void *)address, (bits) / 8, WEAK_FETCH_ADD, value,        \
					order);                                                    \
	}                                                                                          \
	CALL(type, __tsan_atomic##bits##_fetch_sub, volatile void *address, type value, int order) \
	{                                                                                          \
		return (type)weak_fetch((void *)address, (bits) / 8, WEAK_FETCH_ADD,               \
					-(uint64_t)value, order);                                  \
	}                                                                                          \
	CALL(type, __tsan_atomic##bits##_fetch_and, volatile void *address, type value, int order) \
	{                                                                                          \
		return (type)weak_fetch((void *)address, (bits) / 8, WEAK_FETCH_AND, value,        \
					order);                                                    \
	}                                                                                          \
	CALL(type, __tsan_atomic##bits##_fetch_or, volatile void *address, type value, int order)  \
	{                                                                                          \
		return (type)weak_fetch((void *)address, (bits) / 8, WEAK_FETCH_OR, value, order); \
	}                                                                                          \
	CALL(int, __tsan_atomic##bits##_compare_exchange_strong, volatile void *address,           \
	     void *expected, type value, int order, int failure_order)                             \
	{                                                                                          \
		return weak_compare_exchange((void *)address, (bits) / 8, expected, value, order,  \
					     failure_order);                                       \
	}                                                                                          \
	CALL(int, __tsan_atomic##bits##_compare_exchange_weak, volatile void *address,             \
	     void *expected, type value, int order, int failure_order)                             \
	{                                                                                          \
		return weak_compare_exchange((void *)address, (bits) / 8, expected, value, order,  \
					     failure_order);                                       \
	}

ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

CALL(void, __tsan_atomic_thread_fence, int order)
{
	weak_fence(order);
}

/* It concerns the compiler alone. */
CALL(void, __tsan_atomic_signal_fence, int order)
{
	(void)order;
}
