/* SPDX-License-Identifier: MIT */
/* The bare loop in a build without Vulkan: reports no device. */
#include "vulkan/bench.h"

int vulkan_bare_new(const struct vulkan_options *options, enum vulkan_bare_shader shader,
		    uint32_t n, struct exec_arena *arena, uint64_t a_offset, uint64_t b_offset,
		    uint64_t c_offset, struct vulkan_bare **ret)
{
	return VULKAN_BARE_E_NO_DEVICE;
}

int vulkan_bare_run(struct vulkan_bare *bare)
{
	return 0;
}

struct vulkan_bare *vulkan_bare_free(struct vulkan_bare *bare)
{
	return NULL;
}
