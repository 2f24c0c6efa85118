/* SPDX-License-Identifier: MIT */
/* The Vulkan executor in a build without Vulkan: finds no device and says so. */
#include "vulkan/vulkan.h"

#include <errno.h>
#include <stdlib.h>

#include "util/error.h"

struct vulkan {
	const char *path_refusal;
};

int vulkan_open(const struct vulkan_options *options, struct waker *waker, struct vulkan **ret)
{
	struct vulkan *vulkan = calloc(1, sizeof(*vulkan));

	if (!vulkan)
		return error_origin(-ENOMEM);
	if (options->path != VULKAN_PATH_AUTO && options->path != VULKAN_PATH_STAGED)
		vulkan->path_refusal = "this build does not include Vulkan";
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

const char *vulkan_path_refusal(const struct vulkan *vulkan)
{
	return vulkan->path_refusal;
}

const char *vulkan_path_why_not(struct executor *executor, enum vulkan_path path)
{
	return "this build does not include Vulkan";
}

const char *vulkan_sentence(const struct vulkan *vulkan, unsigned int i)
{
	return i == 0 ? "built without Vulkan: everything runs on the CPU." : NULL;
}

struct vulkan *vulkan_free(struct vulkan *vulkan)
{
	free(vulkan);
	return NULL;
}

void vulkan_usage(struct executor *executor, struct vulkan_usage *ret)
{
	*ret = (struct vulkan_usage){0};
}

void vulkan_rates(struct executor *executor, struct vulkan_rates *ret)
{
	*ret = (struct vulkan_rates){0};
}

bool vulkan_find_bytes(struct executor *executor, const void *bytes, size_t n)
{
	return false;
}

int vulkan_block_read(struct executor *executor, struct exec_block *block, uint8_t *to)
{
	return error_origin(-ENODEV);
}
