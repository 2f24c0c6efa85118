/* SPDX-License-Identifier: MIT */
/* lease: stub of a build without Vulkan */
#include "bench.h"

static int run_lease(struct bench_env *env)
{
	return bench_skip(env, NULL, "built without Vulkan");
}

const struct bench bench_lease = {
	.name = "lease",
	.summary = "what a Vulkan allocation costs under a lease (target: +150 ns, budget 2 us)",
	.baseline = "without-layer",
	.run = run_lease,
};
