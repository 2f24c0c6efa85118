/* SPDX-License-Identifier: MIT */
/*
 * Compile every pipeline with the compilers of this machine's drivers, in particular AMD's for
 * Polaris. RADV runs that compiler without a card if RADV_FORCE_FAMILY is set (see meson.build).
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
