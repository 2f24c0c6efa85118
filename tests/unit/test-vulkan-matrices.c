/* SPDX-License-Identifier: MIT */
/* Cooperative matrices, of a card that claims them in either way, and in none: card-driver.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

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

/* Float16 that is summed up in float32 by a subgroup; each size once. */
static void test_matrices__khr(void **state)
{
	expect_matrices("KHR", "16x16x16,16x8x16");
}

static void test_matrices__nv(void **state)
{
	expect_matrices("NV", "16x16x16,16x8x16");
}

static void test_matrices__none(void **state)
{
	expect_matrices(NULL, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matrices__khr),
		cmocka_unit_test(test_matrices__nv),
		cmocka_unit_test(test_matrices__none),
	};

	clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
