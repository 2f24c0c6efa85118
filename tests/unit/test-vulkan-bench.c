/* SPDX-License-Identifier: MIT */
/* The benchmark's bare loop computes the same as the executor, with either shader */
#include <stdio.h>
#include <stdlib.h>

#include "support/test.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"
#include "vulkan/bench.h"

enum { N = 96, BYTES = N * N * 4 };

static void run_bare(enum vulkan_bare_shader shader, uint32_t force)
{
	const struct vulkan_options options = {.mode = rig_mode(), .force = force};
	struct vulkan_bare *bare;
	struct exec_arena arena;
	float *a, *b, *c;

	rig_arena_init(NULL, &arena, 3 * BYTES);
	a = (float *)arena.base;
	b = (float *)(arena.base + BYTES);
	c = (float *)(arena.base + 2 * BYTES);
	reference_fill(a, 2 * N * N, 5);
	assert_int_equal(vulkan_bare_new(&options, shader, N, &arena, 0, BYTES, 2 * BYTES, &bare),
			 0);
	for (int again = 0; again < 2; again++) {
		assert_int_equal(vulkan_bare_run(bare), 0);
		for (int i = 0; i < N * N; i += 97) {
			double sum = 0;

			for (int k = 0; k < N; k++)
				sum += (double)a[i / N * N + k] * (double)b[k * N + i % N];
			assert_true(sum - (double)c[i] < 1e-5 && (double)c[i] - sum < 1e-5);
			c[i] = 77;
		}
	}
	assert_null(vulkan_bare_free(bare));
	rig_arena_deinit(NULL, &arena);
}

TEST(test_bare__same)
{
	run_bare(VULKAN_BARE_SAME, 0);
	run_bare(VULKAN_BARE_SAME, VULKAN_FORCE_SHARED);
}

TEST(test_bare__naive)
{
	run_bare(VULKAN_BARE_NAIVE, 0);
}

TEST(test_bare__registers)
{
	run_bare(VULKAN_BARE_REGISTERS, 0);
	run_bare(VULKAN_BARE_REGISTERS, VULKAN_FORCE_STAGED);
}

TEST(test_bare__staged)
{
	run_bare(VULKAN_BARE_SAME, VULKAN_FORCE_STAGED);
}

TEST(test_bare__no_device)
{
	const struct vulkan_options options = {.mode = VULKAN_NONE};
	struct exec_arena arena = {0};
	struct vulkan_bare *bare;

	assert_int_equal(vulkan_bare_new(&options, VULKAN_BARE_SAME, 8, &arena, 0, 0, 0, &bare),
			 VULKAN_BARE_E_NO_DEVICE);
}

/* Not a test: "test-vulkan-bench figures" prints milliseconds per product for all shaders. */
static void print_figures(void)
{
	static const char *const names[] = {"same", "naive", "registers"};

	for (uint32_t n = 64; n <= 1024; n *= 2)
		for (int shader = 0; shader < 3; shader++) {
			const struct vulkan_options options = {.mode = rig_mode()};
			uint64_t bytes = 4ull * n * n, best_ns = UINT64_MAX, begin_ns, ns;
			struct vulkan_bare *bare;
			struct exec_arena arena;

			rig_arena_init(NULL, &arena, 3 * bytes);
			reference_fill((float *)arena.base, 2ull * n * n, 5);
			assert_int_equal(vulkan_bare_new(&options, shader, n, &arena, 0, bytes,
							 2 * bytes, &bare),
					 0);
			for (int again = 0; again < (n > 512 ? 2 : 6); again++) {
				begin_ns = clock_now_ns();
				vulkan_bare_run(bare);
				ns = clock_now_ns() - begin_ns;
				best_ns = ns < best_ns ? ns : best_ns;
			}
			printf("n = %u, %s: %.3f ms, %.1f GFLOP/s\n", n, names[shader],
			       best_ns * 1e-6, 2.0 * n * n * n / best_ns);
			vulkan_bare_free(bare);
			rig_arena_deinit(NULL, &arena);
		}
}

int main(int argc, char **argv)
{
	clock_init();
	if (!rig_available())
		return 77;
	if (argc > 1) {
		print_figures();
		return 0;
	}
	return test_run(NULL, NULL);
}
