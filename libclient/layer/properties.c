/* SPDX-License-Identifier: MIT */
/*
 * Memory sizes that the layer reports to a program
 *
 * The reported size of a heap is the lease's maximum, because programs remember it. The reported
 * budget is the sum of the program's use and the rest of the granted bytes, so that it follows the
 * lease as it grows and shrinks (budget.h). The layer adds the extension that reports the budget
 * where the driver lacks it, and hides it from the driver.
 */
#include <stdlib.h>
#include <string.h>

#include "libclient/layer/budget.h"
#include "libclient/layer/dispatch.h"
#include "libclient/layer/layer.h"
#include "libclient/layer/objects.h"

#define SWEEP_EVERY_NS 100000000u

static uint64_t load(const uint64_t *from)
{
	return __atomic_load_n(from, __ATOMIC_RELAXED);
}

static uint64_t max_bytes(const struct gpu *gpu)
{
	const struct rbk_lease_page *page = __atomic_load_n(&gpu->account.page, __ATOMIC_ACQUIRE);

	return load(&page->max_bytes);
}

/* Return the device's lease; NULL: there is none, and the driver's values are reported. */
static struct gpu *leased(struct physical *physical)
{
	struct gpu *gpu = dispatch_gpu(physical, false);

	return gpu && gpu_state(gpu) == GPU_LEASED ? gpu : NULL;
}

static void shrink(const struct gpu *gpu, VkPhysicalDeviceMemoryProperties *memory)
{
	for (uint32_t i = 0; i < memory->memoryHeapCount; i++)
		if (memory->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
			memory->memoryHeaps[i].size =
				budget_heap_bytes(memory->memoryHeaps[i].size, max_bytes(gpu));
}

void properties_memory(struct physical *physical, VkPhysicalDeviceMemoryProperties *ret)
{
	struct gpu *gpu = leased(physical);

	physical->instance->memory_properties(physical->handle, ret);
	if (gpu)
		shrink(gpu, ret);
}

/* ---- VK_EXT_memory_budget ---- */

/*
 * Find the budget in the chain of @properties. Return: the link to it; a link to NULL if there is
 * none.
 */
static VkBaseOutStructure **find_budget(VkPhysicalDeviceMemoryProperties2 *properties)
{
	VkBaseOutStructure **link = (VkBaseOutStructure **)&properties->pNext;

	while (*link &&
	       (*link)->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT)
		link = &(*link)->pNext;
	return link;
}

/* Fill in figures that the driver does not report. */
static void complete(const struct physical *physical, const struct gpu *gpu,
		     VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget)
{
	for (uint32_t i = 0; i < physical->memory.memoryHeapCount; i++) {
		if (!physical->has_budget) {
			budget->heapBudget[i] = physical->memory.memoryHeaps[i].size;
			budget->heapUsage[i] = load(&gpu->live_bytes[i]);
		}
		if (physical->is_cpu && (physical->local_heaps & (1u << i)))
			budget->heapUsage[i] = 0;
	}
}

static void report(struct gpu *gpu, const VkPhysicalDeviceMemoryProperties *memory,
		   uint32_t local_heaps, VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget)
{
	uint64_t kept_bytes = load(&gpu->kept_bytes), left_bytes = account_left(&gpu->account);

	for (uint32_t left = local_heaps; left; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(left);
		struct budget_heap heap = {
			.size_bytes = memory->memoryHeaps[i].size,
			.driver_used_bytes = budget->heapUsage[i],
			.driver_budget_bytes = budget->heapBudget[i],
			.counted_bytes = load(&gpu->live_bytes[i]) - load(&gpu->twice_bytes[i]),
			.kept_bytes = kept_bytes,
			.left_bytes = left_bytes,
		};

		budget_of_heap(&heap, &budget->heapUsage[i], &budget->heapBudget[i]);
		kept_bytes = 0; /* counted in the first heap only */
	}
}

static void sweep_at_times(struct gpu *gpu)
{
	uint64_t now_ns, at_ns = load(&gpu->sweep_at_ns);

	if (load(&gpu->n_kept) == 0)
		return;
	now_ns = layer_now_ns();
	if (now_ns >= at_ns &&
	    __atomic_compare_exchange_n(&gpu->sweep_at_ns, &at_ns, now_ns + SWEEP_EVERY_NS, false,
					__ATOMIC_RELAXED, __ATOMIC_RELAXED))
		objects_sweep(gpu);
}

/*
 * Query the driver, for the budget too if the driver supports it. The budget is unlinked otherwise.
 */
static void ask_driver(const struct physical *physical, VkPhysicalDeviceMemoryProperties2 *ret,
		       VkBaseOutStructure **link)
{
	VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = (void *)*link;
	bool is_hidden = budget && !physical->has_budget;

	if (budget) {
		memset(budget->heapBudget, 0, sizeof(budget->heapBudget));
		memset(budget->heapUsage, 0, sizeof(budget->heapUsage));
	}
	if (is_hidden)
		*link = budget->pNext;
	physical->instance->memory_properties2(physical->handle, ret);
	if (is_hidden)
		*link = (VkBaseOutStructure *)budget;
}

void properties_memory2(struct physical *physical, VkPhysicalDeviceMemoryProperties2 *ret)
{
	struct gpu *gpu = leased(physical);
	VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget;
	VkBaseOutStructure **link;
	uint64_t driver_bytes = 0;

	if (!gpu) {
		physical->instance->memory_properties2(physical->handle, ret);
		return;
	}
	link = find_budget(ret);
	ask_driver(physical, ret, link);
	shrink(gpu, &ret->memoryProperties);
	budget = (void *)*link;
	if (!budget)
		return;
	sweep_at_times(gpu);
	if (physical->has_budget && !physical->is_cpu) {
		for (uint32_t left = physical->local_heaps; left; left &= left - 1)
			driver_bytes += budget->heapUsage[__builtin_ctz(left)];
		gpu_set_driver_bytes(gpu, driver_bytes);
	}
	if (account_is_shrinking(&gpu->account))
		account_trim(&gpu->account);
	complete(physical, gpu, budget);
	report(gpu, &ret->memoryProperties, physical->local_heaps, budget);
}

/* ---- Extensions ---- */

static void name_budget(VkExtensionProperties *ret)
{
	memset(ret, 0, sizeof(*ret));
	strcpy(ret->extensionName, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
	ret->specVersion = VK_EXT_MEMORY_BUDGET_SPEC_VERSION;
}

/* Return a list in both forms of the call: its length, or as many entries as fit. */
static VkResult hand_over(const VkExtensionProperties *list, uint32_t n_list, uint32_t *n,
			  VkExtensionProperties *ret)
{
	uint32_t n_room = *n;

	*n = n_list;
	if (!ret)
		return VK_SUCCESS;
	if (*n > n_room)
		*n = n_room;
	if (*n > 0)
		memcpy(ret, list, *n * sizeof(*list));
	return *n < n_list ? VK_INCOMPLETE : VK_SUCCESS;
}

/* The last length of a list that this thread was told, and the device */
static _Thread_local struct {
	const struct physical *physical;
	uint32_t n;
} told;

/* Return the driver's list with the budget's extension in both forms of the call. */
static VkResult hand_over_all(struct physical *physical, const VkExtensionProperties *budget,
			      uint32_t *n, VkExtensionProperties *ret)
{
	VkExtensionProperties *list;
	VkResult result;
	uint32_t n_list;

	result = dispatch_extensions(physical, &n_list, &list);
	if (result != VK_SUCCESS)
		return result;
	/*
	 * A lease may come between the two forms. Vulkan's loader does not expect a longer list: it
	 * would fail vkCreateDevice() with VK_INCOMPLETE.
	 */
	if (!ret || *n != n_list || told.physical != physical || told.n != n_list)
		list[n_list++] = *budget;
	result = hand_over(list, n_list, n, ret);
	free(list);
	return result;
}

VkResult properties_extensions(struct physical *physical, const char *layer, uint32_t *n,
			       VkExtensionProperties *ret)
{
	bool is_ours = layer && strcmp(layer, LAYER_NAME) == 0, is_added;
	VkExtensionProperties budget;
	VkResult result;

	is_added = !physical->has_budget && physical->can_budget && leased(physical);
	name_budget(&budget);
	if (is_ours)
		return hand_over(&budget, is_added, n, ret);
	if (layer || !is_added)
		result = physical->instance->enumerate_extensions(physical->handle, layer, n, ret);
	else
		result = hand_over_all(physical, &budget, n, ret);
	if (result == VK_SUCCESS && !layer && !ret) {
		told.physical = physical;
		told.n = *n;
	}
	return result;
}
