/* SPDX-License-Identifier: MIT */
/* time-lease: stub of a build without Vulkan */
#include "bench.h"

static int run_time_lease(struct bench_env *env)
{
	return bench_skip(env, NULL, "built without Vulkan");
}

const struct bench bench_time_lease = {
	.name = "time-lease",
	.summary = "what sharing a device's time costs and gives (target: +60 ns a dispatch)",
	.baseline = "without-layer",
	.run = run_time_lease,
};
