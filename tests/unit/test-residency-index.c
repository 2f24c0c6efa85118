/* SPDX-License-Identifier: MIT */
/* Finding constants that are on a device, however similar clients make them */
#include <stdlib.h>
#include <time.h>

#include "memory/residency-private.h"
#include "support/test.h"
#include "util/clock.h"

enum { MANY = 40000 };

static size_t most_bytes; /* largest single allocation, in bytes */

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);

void *__wrap_calloc(size_t n, size_t bytes)
{
	if (n * bytes > most_bytes)
		most_bytes = n * bytes;
	return __real_calloc(n, bytes);
}

static struct exec_arena arena = {.dev = 1, .ino = 2};

/*
 * Make a block of @n constants at @offset, spaced by @step. Constant i has @bytes + i * @more
 * bytes.
 */
static struct resident_block *block_new(uint32_t n, uint64_t offset, uint64_t step, uint64_t bytes,
					uint64_t more, uint64_t owner)
{
	struct resident_block *block = calloc(1, sizeof(*block));

	block->owner = owner;
	block->exec.n_constants = n;
	block->constants = calloc(n, sizeof(*block->constants));
	for (uint32_t i = 0; i < n; i++)
		block->constants[i] = (struct resident_constant){
			.block = block,
			.dev = arena.dev,
			.ino = arena.ino,
			.offset = offset + i * step,
			.bytes = bytes + i * more,
		};
	return block;
}

static struct resident_block *block_free(struct resident_block *block)
{
	free(block->constants);
	free(block);
	return NULL;
}

static const struct resident_constant *find(const struct resident_index *index, uint64_t owner,
					    uint64_t offset, uint64_t bytes)
{
	const struct plan_constant wanted = {.arena = &arena, .offset = offset, .bytes = bytes};

	return resident_index_find(index, owner, EXEC_TIER_VRAM, &wanted);
}

/* While the table grows and shrinks, each constant in it is found. */
TEST(test_index__grows)
{
	struct resident_block *blocks[64];
	struct resident_index index;

	assert_int_equal(resident_index_init(&index), 0);
	for (uint64_t i = 0; i < 64; i++) {
		blocks[i] = block_new(500, i * 500 * 64, 64, 64, 0, i % 3);
		resident_index_add(&index, blocks[i]);
		for (uint64_t k = 0; k <= i; k++)
			for (uint32_t c = 0; c < 500; c += 83) {
				assert_ptr_equal(find(&index, k % 3, (k * 500 + c) * 64, 64),
						 &blocks[k]->constants[c]);
				assert_null(find(&index, k % 3 + 1, (k * 500 + c) * 64, 64));
				assert_null(find(&index, k % 3, (k * 500 + c) * 64, 63));
			}
	}
	assert_int_equal(index.n_constants, 64 * 500);
	for (uint64_t i = 0; i < 64; i++) {
		resident_index_remove(&index, blocks[i]);
		for (uint64_t k = 0; k < 64; k++)
			assert_ptr_equal(find(&index, k % 3, k * 500 * 64, 64),
					 k > i ? &blocks[k]->constants[0] : NULL);
	}
	assert_int_equal(index.n_constants, 0);
	for (uint64_t i = 0; i < 64; i++)
		block_free(blocks[i]);
	resident_index_deinit(&index);
}

/* Constants in the same bucket are distinguished by their whole key. */
TEST(test_index__whole_key)
{
	struct exec_arena other_device = {.dev = 2, .ino = 2}, other_file = {.dev = 1, .ino = 3};
	struct plan_constant wanted = {.arena = &arena, .offset = 64, .bytes = 64};
	struct resident_block *block = block_new(1, 64, 64, 64, 0, 1);
	struct resident_index index;

	assert_int_equal(resident_index_init(&index), 0);
	index.n_buckets = 1;
	resident_index_add(&index, block);
	assert_int_equal(index.n_buckets, 1);
	assert_ptr_equal(resident_index_find(&index, 1, EXEC_TIER_VRAM, &wanted),
			 &block->constants[0]);
	assert_null(resident_index_find(&index, 2, EXEC_TIER_VRAM, &wanted));
	assert_null(resident_index_find(&index, 1, EXEC_TIER_GTT, &wanted));
	assert_null(find(&index, 1, 128, 64));
	assert_null(find(&index, 1, 64, 128));
	wanted.arena = &other_device;
	assert_null(resident_index_find(&index, 1, EXEC_TIER_VRAM, &wanted));
	wanted.arena = &other_file;
	assert_null(resident_index_find(&index, 1, EXEC_TIER_VRAM, &wanted));
	resident_index_remove(&index, block);
	block_free(block);
	resident_index_deinit(&index);
}

/*
 * Measure adding a block to the index, finding all its constants, and removing it.
 * Return: ns.
 */
static uint64_t use_ns(uint32_t n, uint64_t step, uint64_t more)
{
	struct resident_block *block = block_new(n, 0, step, 64, more, 1);
	struct resident_index index;
	uint64_t begin_ns;

	assert_int_equal(resident_index_init(&index), 0);
	begin_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
	resident_index_add(&index, block);
	for (uint32_t i = 0; i < n; i++)
		assert_non_null(find(&index, 1, i * step, 64 + i * more));
	resident_index_remove(&index, block);
	begin_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
	block_free(block);
	resident_index_deinit(&index);
	return begin_ns;
}

/* Constants at the same offset, or with the same key, take no longer than others. */
TEST(test_index__alike)
{
	const struct {
		uint64_t step, more;
	} kinds[] = {{64, 0}, {0, 4}, {0, 0}};

	for (unsigned int kind = 0; kind < 3; kind++) {
		uint64_t few_ns = 0, many_ns = UINT64_MAX;

		/*
		 * Ten times as many constants: quadratic work would take a hundred times as long.
		 */
		for (unsigned int i = 0; i < 10 && many_ns >= 40 * few_ns; i++) {
			few_ns = use_ns(MANY / 10, kinds[kind].step, kinds[kind].more);
			many_ns = use_ns(MANY, kinds[kind].step, kinds[kind].more);
		}
		print_message("%.2f ms, %.2f ms\n", (double)few_ns / 1e6, (double)many_ns / 1e6);
		assert_true(many_ns < 40 * few_ns);
	}
}

/* The reactor allocates small pieces for the index, however many constants there are. */
TEST(test_index__small_pieces)
{
	enum { N = 300000, MOST_BYTES = 64 << 10 };
	struct resident_block *block = block_new(N, 0, 64, 64, 0, 1);
	struct resident_index index;

	assert_int_equal(resident_index_init(&index), 0);
	most_bytes = 0;
	resident_index_add(&index, block);
	assert_in_range(most_bytes, 1, MOST_BYTES);
	for (uint32_t i = 0; i < N; i++)
		assert_ptr_equal(find(&index, 1, i * 64ull, 64), &block->constants[i]);
	/* The number of buckets grows with the constants. */
	assert_true(index.n_buckets >= N);
	resident_index_remove(&index, block);
	assert_null(find(&index, 1, 0, 64));
	block_free(block);
	resident_index_deinit(&index);
}
