/* SPDX-License-Identifier: MIT */
/*
 * lease: the cost of a Vulkan allocation under a lease
 *
 * Two instances of the software device in this process; one of them has the layer and a private
 * broker behind it. Both sides make the same calls: allocating and freeing a piece through the
 * pointers of vkGetDeviceProcAddr(), and querying the budget, for which the side without the layer
 * gets the driver's answer. Targets: 150 ns more than without the layer for 64 KiB, a budget within
 * 2 us, with 4,000 live allocations as with none. A third measurement is a program without
 * knowledge of leases, whose speed the layer must not change.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <volk.h>

#include "bench.h"
#include "broker-process/broker-process.h"
#include "lease-frames.h"
#include "lease-layer.h"
#include "util/clock.h"

enum { MANY = 4000, PIECE_BYTES = 64 << 10, SMALL_BYTES = 4096, BATCH = 16 };
/* targets */
enum { ALLOCATE_MORE_NS = 150, BUDGET_NS = 2000 };

struct side {
	bool has_layer;
	VkInstance instance;
	VkPhysicalDevice physical;
	VkDevice device;
	PFN_vkGetPhysicalDeviceMemoryProperties2 memory_properties;
	PFN_vkAllocateMemory allocate;
	PFN_vkFreeMemory free;
	VkDeviceMemory many[MANY];
	unsigned int n_many;
};

static VkResult allocate(struct side *side, uint64_t bytes, VkDeviceMemory *ret)
{
	const VkMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		.allocationSize = bytes,
	};

	return side->allocate(side->device, &info, NULL, ret);
}

/* ---- Rounds ---- */

static int piece_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	uint64_t end_ticks = clock_ticks() + clock_ns_to_ticks(budget_ns), start, end;
	struct side *side = data;
	VkDeviceMemory memory;
	int r;

	r = samples_reserve(samples, budget_ns / 500 + 2);
	do {
		start = clock_ticks();
		for (unsigned int i = 0; i < BATCH && !r; i++) {
			r = allocate(side, PIECE_BYTES, &memory) ? -ENOMEM : 0;
			if (!r)
				side->free(side->device, memory, NULL);
		}
		end = clock_ticks();
		if (!r)
			samples_add(samples, (double)clock_elapsed_ns(start, end) / BATCH);
	} while (!r && end < end_ticks && samples_room(samples) > 0);
	return r;
}

static int budget_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	uint64_t end_ticks = clock_ticks() + clock_ns_to_ticks(budget_ns), start, end;
	struct side *side = data;
	int r;

	r = samples_reserve(samples, budget_ns / 500 + 2);
	if (r)
		return r;
	do {
		start = clock_ticks();
		for (unsigned int i = 0; i < BATCH; i++) {
			VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
				.sType =
					VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
			};
			VkPhysicalDeviceMemoryProperties2 properties = {
				.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
				.pNext = &budget,
			};

			side->memory_properties(side->physical, &properties);
			if (side->has_layer && budget.heapBudget[0] == 0)
				return -EPROTO;
		}
		end = clock_ticks();
		samples_add(samples, (double)clock_elapsed_ns(start, end) / BATCH);
	} while (end < end_ticks && samples_room(samples) > 0);
	return 0;
}

/* ---- Sides ---- */

static void side_deinit(struct side *side)
{
	for (unsigned int i = 0; i < side->n_many; i++)
		side->free(side->device, side->many[i], NULL);
	if (side->device)
		vkDestroyDevice(side->device, NULL);
	if (side->instance)
		vkDestroyInstance(side->instance, NULL);
}

/*
 * Find the software device.
 * Return: 0 or -ENODEV.
 */
static int find_software(struct side *side)
{
	VkPhysicalDevice physicals[16];
	uint32_t n = 16;

	if (vkEnumeratePhysicalDevices(side->instance, &n, physicals) < 0)
		return -ENODEV;
	for (uint32_t i = 0; i < n; i++) {
		VkPhysicalDeviceProperties properties;

		vkGetPhysicalDeviceProperties(physicals[i], &properties);
		if (properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU) {
			side->physical = physicals[i];
			return 0;
		}
	}
	return -ENODEV;
}

static int make_device(struct side *side)
{
	const float priority = 1;
	const VkDeviceQueueCreateInfo queue = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
		.queueCount = 1,
		.pQueuePriorities = &priority,
	};
	const VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.queueCreateInfoCount = 1,
		.pQueueCreateInfos = &queue,
	};

	if (vkCreateDevice(side->physical, &info, NULL, &side->device))
		return -ENODEV;
	side->allocate =
		(PFN_vkAllocateMemory)vkGetDeviceProcAddr(side->device, "vkAllocateMemory");
	side->free = (PFN_vkFreeMemory)vkGetDeviceProcAddr(side->device, "vkFreeMemory");
	return 0;
}

/* Return: 0; -ENOENT if the loader does not find the layer; -ENODEV. */
static int side_init(struct side *side, bool has_layer)
{
	static const char *const layers[] = {lease_layer_name};
	const VkApplicationInfo application = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.apiVersion = VK_API_VERSION_1_2,
	};
	const VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &application,
		.enabledLayerCount = has_layer,
		.ppEnabledLayerNames = layers,
	};
	VkResult result = vkCreateInstance(&info, NULL, &side->instance);
	int r;

	if (result)
		return result == VK_ERROR_LAYER_NOT_PRESENT ? -ENOENT : -ENODEV;
	side->has_layer = has_layer;
	volkLoadInstance(side->instance);
	side->memory_properties = (PFN_vkGetPhysicalDeviceMemoryProperties2)vkGetInstanceProcAddr(
		side->instance, "vkGetPhysicalDeviceMemoryProperties2");
	r = find_software(side);
	return r ? r : make_device(side);
}

static int fill(struct side *side)
{
	for (; side->n_many < MANY; side->n_many++)
		if (allocate(side, SMALL_BYTES, &side->many[side->n_many]))
			return -ENOMEM;
	return 0;
}

/* ---- The bench ---- */

static int run_rows(struct bench_env *env, struct side *ours, struct side *baseline)
{
	struct bench_row row = {.unit = "ns", .baseline = "without-layer"};
	struct bench_side sides[2] = {{piece_round, ours}, {piece_round, baseline}};
	int r;

	row.params = "allocate=64KiB";
	row.more = ALLOCATE_MORE_NS;
	r = bench_compare(env, &row, sides[0], sides[1]);
	if (r)
		return r;
	row.params = "budget live=0";
	row.more = 0;
	row.limit = BUDGET_NS;
	sides[0].round = sides[1].round = budget_round;
	r = bench_compare(env, &row, sides[0], sides[1]);
	if (!r)
		r = fill(ours);
	if (!r)
		r = fill(baseline);
	if (r)
		return r;
	row.params = "budget live=4000";
	r = bench_compare(env, &row, sides[0], sides[1]);
	if (r)
		return r;
	row.params = "allocate=64KiB live=4000";
	row.limit = 0;
	row.more = ALLOCATE_MORE_NS;
	sides[0].round = sides[1].round = piece_round;
	return bench_compare(env, &row, sides[0], sides[1]);
}

static int run_sides(struct bench_env *env)
{
	struct side *sides = calloc(2, sizeof(*sides));
	int r;

	if (!sides)
		return bench_fail(env, -ENOMEM, "no memory");
	r = side_init(&sides[1], false);
	if (!r)
		r = side_init(&sides[0], true);
	if (r == -ENOENT)
		r = bench_skip(env, NULL, "the layer is not installed");
	else if (r)
		r = bench_skip(env, NULL, "there is no software Vulkan device");
	else
		r = run_rows(env, &sides[0], &sides[1]);
	side_deinit(&sides[0]);
	side_deinit(&sides[1]);
	free(sides);
	return r ? r : lease_frames(env, lease_layer_name);
}

static int run_lease(struct bench_env *env)
{
	static const char *const arguments[] = {"--gpu=software", "--device-memory=512MiB",
						"--cache=none", "--calibration=none", NULL};
	struct broker_process *broker = NULL;
	int r;

	if (volkInitialize())
		return bench_skip(env, NULL, "there is no Vulkan loader");
	r = broker_process_new(arguments, -1, &broker);
	if (r)
		return bench_fail(env, r, "cannot start a broker");
	lease_layer_find();
	setenv("RINGBROKER_SOCKET", broker_process_socket(broker), 1);
	setenv("RINGBROKER_LEASE_VRAM", "256MiB", 1);
	bench_pin(env, env->client_cpu);
	r = run_sides(env);
	bench_pin(env, -1);
	unsetenv("RINGBROKER_SOCKET");
	broker_process_free(broker);
	return r;
}

const struct bench bench_lease = {
	.name = "lease",
	.summary = "what a Vulkan allocation costs under a lease (target: +150 ns, budget 2 us)",
	.baseline = "without-layer",
	.run = run_lease,
};
