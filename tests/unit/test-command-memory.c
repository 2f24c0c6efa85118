/* SPDX-License-Identifier: MIT */
/* Driver allocations for command buffers: see vulkan/command-memory.h. */
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"
#include "support/test.h"
#include "util/chunks.h"
#include "vulkan/command-memory.h"

enum { N = 512, ROUNDS = 20000, MOST_SHIFT = 17 };

static struct allocation {
	uint8_t *at;
	size_t bytes;
} allocations[N];

static unsigned int count_pieces(const struct vk_command_memory *memory)
{
	unsigned int n = 0;

	list_for_each (node, &memory->pieces)
		n++;
	return n;
}

static void check(const struct allocation *allocation, size_t bytes)
{
	const uint8_t value = (uint8_t)(allocation - allocations);

	for (size_t i = 0; i < bytes; i++)
		assert_int_equal(allocation->at[i], value);
}

/* No two allocations overlap, whichever are freed or grow in between. */
TEST(test_command_memory__allocations)
{
	const VkSystemAllocationScope scope = VK_SYSTEM_ALLOCATION_SCOPE_OBJECT;
	struct vk_command_memory memory;
	struct chunks chunks;
	uint64_t seed = 1;

	chunks_init(&chunks, CHUNKS_SMALL);
	vk_command_memory_init(&memory, &chunks, 100000);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		const VkAllocationCallbacks *driver = &memory.callbacks;
		struct allocation *one = &allocations[reference_random(&seed) % N];
		const size_t bytes =
			1 + reference_random(&seed) % (1u << reference_random(&seed) % MOST_SHIFT);
		const size_t align = (size_t)1 << reference_random(&seed) % 9;
		const size_t kept = one->bytes < bytes ? one->bytes : bytes;

		if (one->at && round % 2) {
			check(one, one->bytes);
			driver->pfnFree(driver->pUserData, one->at);
			*one = (struct allocation){0};
			continue;
		}
		one->at = one->at ? driver->pfnReallocation(driver->pUserData, one->at, bytes,
							    align, scope)
				  : driver->pfnAllocation(driver->pUserData, bytes, align, scope);
		assert_non_null(one->at);
		assert_int_equal((uintptr_t)one->at % align, 0);
		check(one, kept);
		memset(one->at, (int)(one - allocations), bytes);
		one->bytes = bytes;
	}
	for (unsigned int i = 0; i < N; i++) {
		if (allocations[i].at)
			check(&allocations[i], allocations[i].bytes);
		memory.callbacks.pfnFree(memory.callbacks.pUserData, allocations[i].at);
	}
	/* Only the piece with free space is kept for later allocations. */
	assert_int_equal(count_pieces(&memory), 1);
	vk_command_memory_deinit(&memory);
	chunks_deinit(&chunks);
}

/* Odd requests of a driver: too large ones are rejected, and an empty piece is reused. */
TEST(test_command_memory__odd)
{
	const VkSystemAllocationScope scope = VK_SYSTEM_ALLOCATION_SCOPE_COMMAND;
	struct vk_command_memory memory;
	const VkAllocationCallbacks *driver = &memory.callbacks;
	struct chunks chunks;
	void *at, *first = NULL;

	chunks_init(&chunks, CHUNKS_SMALL);
	vk_command_memory_init(&memory, &chunks, 0);
	assert_null(driver->pfnAllocation(driver->pUserData, SIZE_MAX, 16, scope));
	assert_null(driver->pfnAllocation(driver->pUserData, SIZE_MAX - 64, 16, scope));
	for (unsigned int i = 0; i < 1000; i++) {
		at = driver->pfnAllocation(driver->pUserData, 1000, 64, scope);
		assert_non_null(at);
		first = first ? first : at;
		assert_ptr_equal(at, first);
		assert_null(driver->pfnReallocation(driver->pUserData, at, SIZE_MAX, 64, scope));
		assert_null(driver->pfnReallocation(driver->pUserData, at, 0, 64, scope));
	}
	assert_int_equal(count_pieces(&memory), 1);
	vk_command_memory_deinit(&memory);
	chunks_deinit(&chunks);
}
