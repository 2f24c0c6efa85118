/* SPDX-License-Identifier: MIT */
/* Built instead of the room where the meson feature 'vulkan' is disabled: no device, and why. */
#include "vulkan/vulkan.h"

#include <errno.h>
#include <stdlib.h>

#include "util/error.h"

struct vulkan {
	int unused;
};

int vulkan_open(const struct vulkan_options *options, struct waker *waker, struct vulkan **ret)
{
	struct vulkan *vulkan = calloc(1, sizeof(*vulkan));

	if (!vulkan)
		return error_origin(-ENOMEM);
	*ret = vulkan;
	return 0;
}

unsigned int vulkan_n_executors(const struct vulkan *vulkan)
{
	return 0;
}

struct executor *vulkan_executor(struct vulkan *vulkan, unsigned int i)
{
	return NULL;
}

unsigned int vulkan_n_sentences(const struct vulkan *vulkan)
{
	return 1;
}

const char *vulkan_sentence(const struct vulkan *vulkan, unsigned int i)
{
	return "built without Vulkan: every task runs on the CPU.";
}

struct vulkan *vulkan_free(struct vulkan *vulkan)
{
	free(vulkan);
	return NULL;
}
