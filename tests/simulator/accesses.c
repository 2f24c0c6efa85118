/* SPDX-License-Identifier: MIT */
/*
 * Steps at accesses to shared memory
 *
 * The files that read and write rings are compiled for ThreadSanitizer, so that they call
 * models/weak-calls.c at each access, and it calls here. Each atomic access is a step, and so is
 * each write to memory that processes share: threads are switched, and processes killed, between
 * any two of them. Unlike models/weak-memory.c, memory itself is that of one processor.
 */
#include <string.h>

#include "models/weak-private.h"
#include "simulator/machine.h"

/* The kernel places mappings there; heaps and stacks are elsewhere (heap.c, machine.c). */
static bool is_mapping(const void *address)
{
	return (uintptr_t)address >> 40 == 0x7f;
}

uint64_t weak_load(const void *address, unsigned int bytes, int order)
{
	uint64_t value = 0;

	sim_step();
	memcpy(&value, address, bytes);
	return value;
}

void weak_store(void *address, unsigned int bytes, uint64_t value, int order)
{
	sim_step();
	memcpy(address, &value, bytes);
	if (is_mapping(address))
		sim_stored();
	sim_step();
}

uint64_t weak_exchange_n(void *address, unsigned int bytes, uint64_t value, int order)
{
	uint64_t before = weak_load(address, bytes, order);

	memcpy(address, &value, bytes);
	sim_step();
	return before;
}

uint64_t weak_fetch(void *address, unsigned int bytes, enum weak_fetch how, uint64_t operand,
		    int order)
{
	const uint64_t before = weak_load(address, bytes, order);
	const uint64_t after = how == WEAK_FETCH_ADD ? before + operand : before & operand;

	memcpy(address, &after, bytes);
	sim_step();
	return before;
}

bool weak_compare_exchange(void *address, unsigned int bytes, void *expected, uint64_t value,
			   int order, int failure_order)
{
	const uint64_t before = weak_load(address, bytes, order);

	if (memcmp(&before, expected, bytes) != 0) {
		memcpy(expected, &before, bytes);
		return false;
	}
	memcpy(address, &value, bytes);
	sim_step();
	return true;
}

void weak_fence(int order)
{
	sim_step();
}

void weak_plain(const void *address, unsigned int bytes, bool is_write)
{
	if (!is_write || !is_mapping(address))
		return;
	sim_stored();
	sim_step();
}
