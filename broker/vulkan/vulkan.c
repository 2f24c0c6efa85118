/* SPDX-License-Identifier: MIT */
/*
 * The Vulkan executor: see vulkan.h. This file finds devices, reports what it found, and holds the
 * table of functions through which the dispatcher reaches each device.
 */
#include "vulkan/vulkan.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "util/checked.h"
#include "util/error.h"
#include "vulkan/arena-import.h"
#include "vulkan/block.h"
#include "vulkan/compile.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"
#include "vulkan/instance.h"
#include "vulkan/physical.h"
#include "vulkan/rates.h"
#include "vulkan/record.h"
#include "vulkan/setup.h"
#include "vulkan/tiles.h"

enum {
	MAX_SENTENCES = 2 * VK_MAX_DEVICES + 2,
};

struct vulkan {
	struct vk_instance instance;
	char *sentences[MAX_SENTENCES];
	unsigned int n_sentences;
	enum vulkan_path path;
	char path_refusal[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE + 160];
};

static struct vk_device *device_of(struct executor *executor)
{
	return container_of(executor, struct vk_device, executor);
}

static void say(struct vulkan *vulkan, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Add a sentence; drop it if out of memory, because it is only for people. */
static void say(struct vulkan *vulkan, const char *format, ...)
{
	va_list args;

	if (vulkan->n_sentences == MAX_SENTENCES)
		return;
	va_start(args, format);
	if (vasprintf(&vulkan->sentences[vulkan->n_sentences], format, args) >= 0)
		vulkan->n_sentences++;
	va_end(args);
}

/* The executor's functions */

static void op_arena_wrap(struct executor *executor, struct exec_arena *arena)
{
	vk_arena_wrap(device_of(executor), arena);
}

static void op_arena_import(struct executor *executor, struct exec_arena *arena)
{
	vk_arena_import(device_of(executor), arena);
}

static void op_arena_release(struct executor *executor, struct exec_arena *arena)
{
	vk_arena_release(device_of(executor), arena);
}

static int op_arena_export(struct executor *executor, uint64_t bytes, struct exec_arena *ret,
			   int *ret_fd)
{
	return vk_arena_export(device_of(executor), bytes, ret, ret_fd);
}

static int op_plan_compile(struct executor *executor, struct plan *plan)
{
	return vk_plan_compile(device_of(executor), plan);
}

static int op_plan_prepare(struct executor *executor, struct plan *plan)
{
	return vk_plan_prepare(device_of(executor), plan);
}

static int op_plan_shrink(struct executor *executor, struct plan *plan)
{
	return vk_plan_shrink(device_of(executor), plan);
}

static void op_plan_release(struct executor *executor, struct plan *plan)
{
	vk_plan_release(device_of(executor), plan);
}

/* Ask the device whether it is lost: drivers report "out of memory" also when the card is gone. */
static int explain_load(struct executor *executor, int r)
{
	if (r == EXECUTOR_E_NO_MEMORY && vk_device_check(device_of(executor)))
		return error_origin(-EIO);
	return r;
}

static int op_block_load(struct executor *executor, struct exec_block *block)
{
	return explain_load(executor, vk_block_load(device_of(executor), block));
}

static int op_block_shrink(struct executor *executor, struct exec_block *block)
{
	return vk_block_shrink(device_of(executor), block);
}

static void op_block_unload(struct executor *executor, struct exec_block *block)
{
	vk_block_unload(device_of(executor), block);
}

static int op_plan_load(struct executor *executor, struct plan *plan, const struct exec_load *load)
{
	return explain_load(executor, vk_plan_load(device_of(executor), plan, load));
}

static int op_plan_unload_some(struct executor *executor, struct plan *plan)
{
	return vk_plan_unload_some(device_of(executor), plan);
}

static void op_plan_unload(struct executor *executor, struct plan *plan)
{
	vk_plan_unload(device_of(executor), plan);
}

static int op_reopen(struct executor *executor)
{
	return vk_device_reopen(device_of(executor));
}

static void op_memory_sample(struct executor *executor, struct exec_memory *ret)
{
	vk_memory_sample(device_of(executor), ret);
}

static void op_lose(struct executor *executor, const char *why)
{
	vk_device_lose(device_of(executor), why);
}

static bool op_is_lost(struct executor *executor)
{
	return vk_device_is_lost(device_of(executor));
}

static uint64_t op_memory_used(struct executor *executor, enum exec_tier tier)
{
	return vk_memory_used(device_of(executor), (enum vk_memory_kind)tier);
}

static int op_submit(struct executor *executor, struct exec_task *task)
{
	return vk_queue_submit(device_of(executor), task);
}

static void op_flush(struct executor *executor)
{
	vk_queue_flush(device_of(executor));
}

static unsigned int op_reap(struct executor *executor, struct exec_task **ret, unsigned int max)
{
	return vk_queue_reap(device_of(executor), ret, max);
}

static bool op_tile(struct executor *executor, enum exec_tile_op op, unsigned int i,
		    struct exec_tile *ret)
{
	return vk_tile(device_of(executor), op, i, ret);
}

static struct executor *op_free(struct executor *executor)
{
	struct vk_device *device = device_of(executor);

	device->instance->devices[device->slot] = NULL;
	vk_device_free(device);
	return NULL;
}

static const struct executor_ops vulkan_ops = {
	.arena_wrap = op_arena_wrap,
	.arena_import = op_arena_import,
	.arena_release = op_arena_release,
	.arena_export = op_arena_export,
	.plan_compile = op_plan_compile,
	.plan_prepare = op_plan_prepare,
	.plan_shrink = op_plan_shrink,
	.plan_release = op_plan_release,
	.block_load = op_block_load,
	.block_shrink = op_block_shrink,
	.block_unload = op_block_unload,
	.plan_load = op_plan_load,
	.plan_unload_some = op_plan_unload_some,
	.plan_unload = op_plan_unload,
	.reopen = op_reopen,
	.lose = op_lose,
	.is_lost = op_is_lost,
	.memory_sample = op_memory_sample,
	.memory_used = op_memory_used,
	.submit = op_submit,
	.flush = op_flush,
	.reap = op_reap,
	.tile = op_tile,
	.free = op_free,
};

/* Opening */

/*
 * Report the paths that are better than the best working path, why they do not work, and what that
 * costs.
 */
static void say_paths(struct vulkan *vulkan, const struct vk_device *device)
{
	const struct vk_paths *paths = &device->paths;
	char text[400] = "";
	size_t n = 0;

	if (vulkan->path != VULKAN_PATH_AUTO) {
		/* This is the first device that is opened. */
		if (vulkan->instance.n_devices == 0)
			vulkan->path_refusal[0] = '\0';
		if (paths->why[vulkan->path])
			snprintf(vulkan->path_refusal, sizeof(vulkan->path_refusal),
				 "%s: no %s: %s", device->name, vk_path_name(vulkan->path),
				 paths->why[vulkan->path]);
		return;
	}
	for (int path = VULKAN_PATH_AUTO + 1; path < (int)paths->best; path++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%sno %s (%s)", n ? ", " : "",
				      vk_path_name(path), paths->why[path]);
	if (n > 0)
		say(vulkan, "%s: %s, so %s.", device->name, text,
		    paths->best == VULKAN_PATH_STAGED ? "every tensor is copied once in each "
							"direction"
		    : paths->best == VULKAN_PATH_EXPORTED
			    ? "clients get arenas from the device's driver"
			    : "large arenas are mapped in parts");
}

/* Return: 0, also if the device turned out to be unusable; negative errno. */
static int open_device(struct vulkan *vulkan, VkPhysicalDevice physical,
		       const struct vulkan_options *options, struct waker *waker)
{
	_cleanup_(vk_device_freep) struct vk_device *device = NULL;
	VkPhysicalDeviceProperties properties;
	struct exec_tiles tiles;
	const char *missing;
	uint64_t memory_bytes;
	int r;

	vkGetPhysicalDeviceProperties(physical, &properties);
	missing = vk_device_missing(physical);
	if (missing) {
		say(vulkan, "%s lacks %s: not used.", properties.deviceName, missing);
		return 0;
	}
	if (options->fault &&
	    options->fault(options->fault_context, VULKAN_FAULT_OPEN) == VULKAN_FAULT_LOST)
		r = error_origin(-EIO);
	else
		r = vk_device_new(physical, options, false, &device);
	if (r == 0) {
		device->instance = &vulkan->instance;
		device->slot = vulkan->instance.n_devices;
		r = vk_queue_start(device);
	}
	if (r == 0)
		r = vk_paths_probe(device);
	if (r == 0)
		r = vk_rates_measure(device);
	if (r == 0)
		r = vk_commands_measure(device, &device->commands_cost);
	if (r == -ENOMEM || r == -EAGAIN)
		return error_fold(r);
	if (r) {
		say(vulkan, "%s cannot be opened: not used.", properties.deviceName);
		return 0;
	}

	memory_bytes = device->memory_bytes;
	if (options->memory_cap_bytes && options->memory_cap_bytes < memory_bytes)
		memory_bytes = options->memory_cap_bytes;
	device->executor = (struct executor){
		.ops = &vulkan_ops,
		.info =
			{
				.kind = device->is_software ? EXECUTOR_SOFTWARE_GPU : EXECUTOR_GPU,
				.name = device->name,
				.driver = device->driver,
				.paths = device->paths.list,
				.matrices = device->matrices,
				.types = OP_ANY_TYPE & ~(device->has_half ? 0 : OP_TWO_BYTES) &
					 ~(device->has_bytes ? 0 : OP_BYTES | OP_BOOL) &
					 ~(device->has_doubles ? 0 : OP_FLOAT64),
				.arena_segment_bytes = device->paths.best == VULKAN_PATH_UDMABUF
							       ? device->paths.segment_bytes
							       : 0,
				.exports_arenas = device->paths.best == VULKAN_PATH_EXPORTED,
				.export_name = device->paths.export_name,
				.memory_bytes = memory_bytes,
				.memory_page_bytes = device->memory.page_bytes,
				.memory_align_bytes = VK_MEMORY_ALIGN,
				.allocation_mappings = !device->is_software,
				.gtt_bytes = device->gtt_bytes,
				.is_integrated = device->is_integrated,
				.identity = device->identity,
			},
		.waker = waker,
	};
	vk_tiles_guess(device, &tiles);
	executor_set_tiles(&device->executor, &tiles);
	say_paths(vulkan, device);
	vulkan->instance.devices[vulkan->instance.n_devices++] = steal_ptr(device);
	return 0;
}

static int open_instance(struct vulkan *vulkan)
{
	int r;

	if (volkInitialize() != VK_SUCCESS) {
		say(vulkan, "libvulkan is not installed: everything runs on the CPU.");
		return 0;
	}
	r = vk_instance_new(&vulkan->instance);
	if (r == -ENOMEM)
		return error_fold(r);
	if (r) {
		say(vulkan, "no usable Vulkan driver: everything runs on the CPU.");
		return 0;
	}
	/* Functions of volk dispatch on the handle that they are called with, for any instance. */
	volkLoadInstanceOnly(vulkan->instance.handle);
	return 0;
}

/*
 * Open the real devices, or the software devices.
 * Return: 0, with the number of devices of the other kind; negative errno.
 */
static int open_kind(struct vulkan *vulkan, bool is_software, const struct vulkan_options *options,
		     struct waker *waker, unsigned int *ret_n_ignored)
{
	VkPhysicalDevice physical[VK_MAX_DEVICES];
	const uint32_t n = vk_instance_list(&vulkan->instance, physical);
	int r;

	*ret_n_ignored = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (vk_physical_is_software(physical[i]) != is_software) {
			(*ret_n_ignored)++;
			continue;
		}
		r = open_device(vulkan, physical[i], options, waker);
		if (r)
			return error_fold(r);
	}
	return 0;
}

int vulkan_open(const struct vulkan_options *options, struct waker *waker, struct vulkan **ret)
{
	_cleanup_(vulkan_freep) struct vulkan *vulkan = NULL;
	const bool is_twice = options->mode == VULKAN_SOFTWARE_TWICE;
	bool want_software = is_twice || options->mode == VULKAN_SOFTWARE;
	unsigned int n_ignored = 0;
	int r;

	vulkan = calloc(1, sizeof(*vulkan));
	if (!vulkan)
		return error_origin(-ENOMEM);
	vulkan->path = options->path;
	if (options->path != VULKAN_PATH_AUTO && options->path != VULKAN_PATH_STAGED)
		snprintf(vulkan->path_refusal, sizeof(vulkan->path_refusal),
			 "no device can use the path %s", vk_path_name(options->path));
	if (options->mode == VULKAN_NONE) {
		say(vulkan, "Vulkan is switched off: everything runs on the CPU.");
		*ret = steal_ptr(vulkan);
		return 0;
	}
	r = open_instance(vulkan);
	if (r)
		return error_fold(r);
	if (!vulkan->instance.handle) {
		*ret = steal_ptr(vulkan);
		return 0;
	}

	r = open_kind(vulkan, want_software, options, waker, &n_ignored);
	if (r == 0 && is_twice)
		r = open_kind(vulkan, want_software, options, waker, &n_ignored);
	if (r == 0 && options->mode == VULKAN_ANY && vulkan->instance.n_devices == 0) {
		want_software = true;
		r = open_kind(vulkan, want_software, options, waker, &n_ignored);
	}
	if (r)
		return error_fold(r);
	if (vulkan->instance.n_devices == 0 && n_ignored > 0 && !want_software)
		say(vulkan, "the only Vulkan device is a software device, which is used only with "
			    "--gpu=software: everything runs on the CPU.");
	else if (vulkan->instance.n_devices == 0 && vulkan->n_sentences == 0)
		say(vulkan, "no Vulkan device%s: everything runs on the CPU.",
		    want_software ? " in software" : "");
	*ret = steal_ptr(vulkan);
	return 0;
}

int vk_open_alone(const struct vulkan_options *options, struct vulkan **ret_vulkan,
		  struct vk_device **ret)
{
	_cleanup_(vulkan_freep) struct vulkan *vulkan = NULL;
	VkPhysicalDevice physical[VK_MAX_DEVICES];
	struct vk_device *device = NULL;
	uint32_t n;
	int r;

	vulkan = calloc(1, sizeof(*vulkan));
	if (!vulkan)
		return error_origin(-ENOMEM);
	r = options->mode == VULKAN_NONE ? 0 : open_instance(vulkan);
	if (r)
		return error_fold(r);
	n = vulkan->instance.handle ? vk_instance_list(&vulkan->instance, physical) : 0;
	for (uint32_t i = 0; i < n && !device; i++) {
		if (vk_physical_is_software(physical[i]) != (options->mode == VULKAN_SOFTWARE) ||
		    vk_device_missing(physical[i]))
			continue;
		r = vk_device_new(physical[i], options, false, &device);
		if (r)
			return error_fold(r);
	}
	*ret_vulkan = steal_ptr(vulkan);
	*ret = device;
	return 0;
}

unsigned int vulkan_n_executors(const struct vulkan *vulkan)
{
	return vulkan->instance.n_devices;
}

struct executor *vulkan_executor(struct vulkan *vulkan, unsigned int i)
{
	return i < vulkan->instance.n_devices && vulkan->instance.devices[i]
		       ? &vulkan->instance.devices[i]->executor
		       : NULL;
}

unsigned int vulkan_n_sentences(const struct vulkan *vulkan)
{
	return vulkan->n_sentences;
}

const char *vulkan_path_refusal(const struct vulkan *vulkan)
{
	return vulkan->path_refusal[0] ? vulkan->path_refusal : NULL;
}

const char *vulkan_path_why_not(struct executor *executor, enum vulkan_path path)
{
	return device_of(executor)->paths.why[path];
}

const char *vulkan_sentence(const struct vulkan *vulkan, unsigned int i)
{
	return i < vulkan->n_sentences ? vulkan->sentences[i] : NULL;
}

struct vulkan *vulkan_free(struct vulkan *vulkan)
{
	if (!vulkan)
		return NULL;
	for (unsigned int i = 0; i < vulkan->instance.n_devices; i++)
		vk_device_free(vulkan->instance.devices[i]);
	if (vulkan->instance.handle)
		vkDestroyInstance(vulkan->instance.handle, NULL);
	for (unsigned int i = 0; i < vulkan->n_sentences; i++)
		free(vulkan->sentences[i]);
	free(vulkan);
	return NULL;
}

void vulkan_usage(struct executor *executor, struct vulkan_usage *ret)
{
	struct vk_device *device = device_of(executor);

	*ret = (struct vulkan_usage){
		.device_bytes = vk_memory_used(device, VK_MEMORY_VRAM) +
				vk_memory_used(device, VK_MEMORY_GTT),
		.host_bytes = vk_memory_used(device, VK_MEMORY_HOST),
		.n_blocks = device->n_blocks,
		.n_imports = device->n_imports,
		.lost = vk_device_is_lost(device),
	};
}

void vulkan_rates(struct executor *executor, struct vulkan_rates *ret)
{
	*ret = device_of(executor)->rates;
}

bool vulkan_find_bytes(struct executor *executor, const void *bytes, size_t n)
{
	return vk_memory_find(device_of(executor), bytes, n);
}

int vulkan_block_read(struct executor *executor, struct exec_block *block, uint8_t *to)
{
	return vk_block_read(device_of(executor), block, to);
}
