/* SPDX-License-Identifier: MIT */
/*
 * Every pipeline goes through the compilers of the drivers that are here: in particular AMD's for
 * Polaris, which RADV runs without a card if RADV_FORCE_FAMILY says so (see meson.build).
 */
#include <stdio.h>

#include "vulkan/vulkan.h"

int main(void)
{
	uint32_t n_compiled, n_refused;

	if (vulkan_compile_all(&n_compiled, &n_refused)) {
		fprintf(stderr, "a device cannot be opened\n");
		return 1;
	}
	if (n_compiled + n_refused == 0) {
		printf("skipped: no Vulkan device\n");
		return 77;
	}
	printf("%u pipelines compiled, %u refused\n", n_compiled, n_refused);
	return n_refused > 0;
}
