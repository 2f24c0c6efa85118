/* SPDX-License-Identifier: MIT */
/* Slabs: pieces do not overlap and are reused; thresholds as counts */
#include <string.h>

#include "fail-alloc.h"
#include "placer-bench.h"
#include "support/test.h"

enum { N = 5000, LARGEST = 6 };

static size_t bytes_of(unsigned int kind)
{
	return (size_t)64 << kind;
}

static uint32_t draw(uint32_t *random, uint32_t n)
{
	*random = *random * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(*random) * n >> 32);
}

/* Pieces are taken and given back. Each keeps what was written to it. */
TEST(test_slab__random)
{
	static unsigned char *pieces[N];
	static unsigned int kinds[N];
	struct place_slab slab = {0};
	uint32_t random = 7;

	memset(pieces, 0, sizeof(pieces));
	for (uint32_t i = 0; i < 4 * N; i++) {
		uint32_t k = draw(&random, N);

		if (pieces[k]) {
			for (size_t j = 0; j < bytes_of(kinds[k]); j++)
				assert_int_equal(pieces[k][j], (unsigned char)k);
			place_slab_give(&slab, kinds[k], pieces[k]);
			pieces[k] = NULL;
			continue;
		}
		kinds[k] = draw(&random, LARGEST + 1);
		pieces[k] = place_slab_take(&slab, kinds[k], bytes_of(kinds[k]));
		assert_non_null(pieces[k]);
		assert_int_equal((uintptr_t)pieces[k] % 64, 0);
		memset(pieces[k], (unsigned char)k, bytes_of(kinds[k]));
	}
	place_slab_deinit(&slab);
	assert_null(slab.chunks);
}

/* Pieces given back are reused before new ones are made. */
TEST(test_slab__reuses_cells)
{
	static void *pieces[N];
	struct place_slab slab = {0};

	for (int round = 0; round < 3; round++) {
		fail_alloc_at(round ? 1 : UINT32_MAX);
		for (int i = 0; i < N; i++)
			pieces[i] = place_slab_take(&slab, 0, 64);
		assert_false(fail_alloc_stop());
		for (int i = 0; i < N; i++) {
			assert_non_null(pieces[i]);
			place_slab_give(&slab, 0, pieces[i]);
		}
	}
	place_slab_deinit(&slab);
}

TEST(test_slab__without_memory)
{
	struct place_slab slab = {0};
	int n = 0;

	fail_alloc_at(1);
	assert_null(place_slab_take(&slab, 0, 64));
	assert_true(fail_alloc_stop());
	/* The first chunk is there. Allocating the second fails once, then succeeds. */
	fail_alloc_at(2);
	while (place_slab_take(&slab, 0, 64))
		n++;
	assert_true(fail_alloc_stop());
	assert_true(n >= 1000);
	assert_non_null(place_slab_take(&slab, 0, 64));
	place_slab_deinit(&slab);
}

/* Another thread makes the next chunk in time, so the slab's own thread allocates nothing. */
TEST(test_slab__prepared)
{
	struct place_slab slab = {0};

	assert_int_equal(place_slab_init(&slab), 0);
	/* No chunk is made before it is needed. */
	fail_alloc_at(1);
	place_slab_prepare(&slab);
	assert_false(fail_alloc_stop());
	for (size_t n = 0; n < 8 * (2 << 20) / 4096; n++) {
		fail_alloc_at(1);
		assert_non_null(place_slab_take(&slab, 6, 4096));
		assert_false(fail_alloc_stop());
		fail_alloc_at(1);
		place_slab_prepare(&slab);
		/* A chunk more than half free needs no spare. */
		assert_true(!fail_alloc_stop() || slab.left_bytes < 1 << 20);
		place_slab_prepare(&slab);
	}
	/* One spare is enough. */
	fail_alloc_at(1);
	place_slab_prepare(&slab);
	assert_false(fail_alloc_stop());
	place_slab_deinit(&slab);
}

/* Many plans: each has its own entries, and those of remaining plans are not changed. */
TEST(test_plans__many)
{
	static struct place_plan *place_plans[N];
	static struct plan plans[N];
	static struct node nodes[N];

	PLACER_BENCH(bench, 2, NULL);
	for (uint32_t i = 0; i < N; i++) {
		placer_bench_plan_init(&plans[i], &nodes[i], 2);
		plans[i].max_count = 1u << i % 20;
		assert_int_equal(place_plan_new(bench.placer, &plans[i], &place_plans[i]), 0);
		assert_int_equal((uintptr_t)place_plans[i] % 64, 0);
		assert_int_equal((uintptr_t)place_plans[i]->rest->entries % 64, 0);
		for (int j = 0; j < 4; j++)
			place_learn(bench.placer, place_plans[i], BENCH_GPU, plans[i].max_count,
				    PLACE_DONE, 1000 + i, 0, bench.now_ns++);
	}
	for (uint32_t i = 0; i < N; i += 3)
		place_plans[i] = place_plan_free(bench.placer, place_plans[i]);
	for (uint32_t i = 0; i < N; i++) {
		float ns;

		if (!place_plans[i]) {
			assert_int_equal(place_plan_new(bench.placer, &plans[i], &place_plans[i]),
					 0);
			continue;
		}
		ns = place_predict_ns(bench.placer, place_plans[i], BENCH_GPU, plans[i].max_count);
		assert_true(ns > 0.99f * (float)(1000 + i) && ns < 1.01f * (float)(1000 + i));
	}
	for (uint32_t i = 0; i < N; i++)
		place_plan_free(bench.placer, place_plans[i]);
}

/*
 * The count below which a plan is small agrees with the plan's bytes, as soon as it is configured.
 */
TEST(test_below__agrees_with_bytes)
{
	PLACER_BENCH(bench, 2, NULL);
	for (int i = 0; i < 20000; i++) {
		struct place_config config = PLACE_CONFIG_DEFAULT;
		uint32_t max_count = placer_bench_random(&bench, 3) ? 1u << 20 : 1;
		uint64_t edge = 1;

		config.threshold_bytes = placer_bench_random(&bench, 1u << (1 + i % 24));
		config.min_count = placer_bench_random(&bench, 128);
		bench.plan.touched_fixed = placer_bench_random(&bench, 1u << (1 + i % 23));
		bench.plan.touched_row =
			placer_bench_random(&bench, 8) ? placer_bench_random(&bench, 1u << 12) : 0;
		bench.place_plan->is_dynamic = max_count > 1;
		placer_configure(bench.placer, &config);
		place_plan_configure(bench.placer, bench.place_plan);
		if (bench.plan.touched_row)
			edge = config.threshold_bytes / bench.plan.touched_row;
		for (uint64_t j = 0; j < 8; j++) {
			uint64_t count = j < 4 ? edge + j : config.min_count + j - 6;
			bool is_below;

			count = count < 1 || count > max_count ? 1 : count;
			is_below = bench.plan.touched_fixed + bench.plan.touched_row * count <
					   config.threshold_bytes ||
				   (max_count > 1 && count < config.min_count);
			assert_int_equal(place_is_below(bench.place_plan, (uint32_t)count),
					 is_below);
		}
	}
}
