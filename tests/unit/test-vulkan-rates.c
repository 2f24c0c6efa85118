/* SPDX-License-Identifier: MIT */
/* Choice of the way to load constants by measured rates */
#include "support/test.h"
#include "vulkan/rates.h"

/* The fastest way is chosen; the device's own engine unless it is clearly slower. */
TEST(test_rates__choose)
{
	static const struct {
		uint64_t direct, staged, arena;
		enum vk_way imported, other;
	} cases[] = {
		{0, 0, 0, VK_WAY_STAGED, VK_WAY_STAGED},  {0, 5, 0, VK_WAY_STAGED, VK_WAY_STAGED},
		{0, 5, 12, VK_WAY_ARENA, VK_WAY_STAGED},  {8, 5, 0, VK_WAY_DIRECT, VK_WAY_DIRECT},
		{2, 5, 0, VK_WAY_STAGED, VK_WAY_STAGED},  {12, 5, 10, VK_WAY_ARENA, VK_WAY_DIRECT},
		{12, 5, 8, VK_WAY_DIRECT, VK_WAY_DIRECT}, {0, 12, 5, VK_WAY_STAGED, VK_WAY_STAGED},
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct vulkan_rates rates = {
			.direct = {cases[i].direct << 30, 0},
			.staged = {cases[i].staged << 30, 0},
			.arena = {cases[i].arena << 30, 0},
		};

		assert_int_equal(vk_rates_choose(&rates, true), cases[i].imported);
		assert_int_equal(vk_rates_choose(&rates, false), cases[i].other);
	}
}
