/* SPDX-License-Identifier: MIT */
/* Cooperative matrices of a card that claims either extension, or none: card-driver.c */
#include <stdlib.h>

#include "support/test.h"
#include "util/clock.h"
#include "util/waker.h"
#include "vulkan/vulkan.h"

static void expect_matrices(const char *extension, const char *expected)
{
	const struct vulkan_options options = {.mode = VULKAN_AUTO};
	struct vulkan *vulkan;
	struct waker waker;

	assert_int_equal(extension ? setenv("RBK_CARD_MATRICES", extension, 1)
				   : unsetenv("RBK_CARD_MATRICES"),
			 0);
	assert_int_equal(waker_init(&waker), 0);
	assert_int_equal(vulkan_open(&options, &waker, &vulkan), 0);
	assert_int_equal(vulkan_n_executors(vulkan), 1);
	assert_string_equal(vulkan_executor(vulkan, 0)->info.matrices, expected);
	vulkan_free(vulkan);
	waker_deinit(&waker);
}

/* Float16 accumulated in float32 by a subgroup; each size is listed once. */
TEST(test_matrices__khr)
{
	expect_matrices("KHR", "16x16x16,16x8x16");
}

TEST(test_matrices__nv)
{
	expect_matrices("NV", "16x16x16,16x8x16");
}

TEST(test_matrices__none)
{
	expect_matrices(NULL, "");
}

TEST_MAIN(NULL, NULL, clock_init())
