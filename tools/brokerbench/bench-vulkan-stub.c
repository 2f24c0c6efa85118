/* SPDX-License-Identifier: MIT */
/* In the place of bench-vulkan.c where there is no Vulkan executor. */
#include <stddef.h>

#include "bench.h"

static int run(struct bench_env *env)
{
	return bench_skip(env, NULL, "built without Vulkan");
}

const struct bench bench_matmul_vulkan = {
	.name = "matmul-vulkan",
	.summary = "products of n x n matrices on the GPU, through the broker",
	.baseline = "the same shader and memory path in a bare loop; a naive shader",
	.run = run,
};
