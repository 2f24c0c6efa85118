/* SPDX-License-Identifier: MIT */
/*
 * A Vulkan layer that makes a processor's device look like a discrete GPU
 *
 * The layer sits between other layers and the driver. It shows a discrete GPU of two heaps, device
 * memory and host memory, and three memory types; all resources may lie in any type.
 * VK_EXT_memory_budget reports as usage the allocated bytes plus the driver overhead. Each query
 * reads that overhead from the file that RBK_FAKE_CARD names: bytes, as text. Each import counts
 * anew, as with real drivers. The figures are those of one instance's devices at a time.
 * RBK_FAKE_CARD_FAIL=N makes each N-th allocation fail. With RBK_FAKE_CARD_CPU the device stays a
 * CPU device.
 *
 * With RBK_FAKE_CARD_SPARSE the device has sparse binding of whole buffers, which the driver lacks:
 * each is bound anew in the driver, once its queue is idle. A buffer that is bound to nothing keeps
 * the driver's binding. The queue family has 16 queues then, which are the driver's one. With
 * "queues" only these are added, to a driver that has sparse binding.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vulkan/vulkan_core.h>
#include <vulkan/vk_layer.h>

#define EXPORT     __attribute__((visibility("default")))
#define MIB        (1ull << 20)
#define CARD_BYTES (1024 * MIB)
#define HOST_BYTES (4096 * MIB)

enum { MAX_ENTRIES = 64, MAX_PIECES = 65536 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry {
	void *key;
	PFN_vkGetInstanceProcAddr instance; /* NULL in a device's entry */
	PFN_vkGetDeviceProcAddr device;
	VkInstance handle;
	VkDevice own; /* in a device's entry */
	/* Looked up when the instance is made: later, the loader returns the top of the chain. */
	PFN_vkEnumerateDeviceExtensionProperties extensions;
	PFN_vkGetPhysicalDeviceProperties properties;
	PFN_vkGetPhysicalDeviceProperties2 properties2;
	PFN_vkGetPhysicalDeviceFeatures features;
	PFN_vkGetPhysicalDeviceQueueFamilyProperties queues;
} entries[MAX_ENTRIES];
static struct piece {
	VkDeviceMemory memory;
	uint64_t bytes;
	uint32_t heap;
} pieces[MAX_PIECES];
static uint64_t used_bytes[2];
static unsigned int n_allocations;

static void *key_of(const void *handle)
{
	return *(void *const *)handle;
}

static struct entry *find(void *key)
{
	for (unsigned int i = 0; i < MAX_ENTRIES; i++)
		if (entries[i].key == key)
			return &entries[i];
	return NULL;
}

static void add(struct entry entry)
{
	struct entry *at;

	pthread_mutex_lock(&lock);
	/* The key of a destroyed object may be in use again. */
	at = find(entry.key);
	if (!at)
		at = find(NULL);
	*at = entry;
	pthread_mutex_unlock(&lock);
}

#define DEVICE(handle, name) ((PFN_##name)find(key_of(handle))->device(handle, #name))

/* ---- Properties ---- */

static void fake_memory(VkPhysicalDeviceMemoryProperties *ret)
{
	*ret = (VkPhysicalDeviceMemoryProperties){
		.memoryHeapCount = 2,
		.memoryHeaps = {{CARD_BYTES, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {HOST_BYTES, 0}},
		.memoryTypeCount = 3,
		.memoryTypes = {{VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0},
				{VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
					 VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
					 VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
				 1},
				{VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
					 VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
					 VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
				 0}},
	};
}

static uint64_t own_bytes(void)
{
	const char *path = getenv("RBK_FAKE_CARD");
	unsigned long long bytes = 0;
	FILE *file = path ? fopen(path, "re") : NULL;

	if (file && fscanf(file, "%llu", &bytes) != 1)
		bytes = 0;
	if (file)
		fclose(file);
	return bytes;
}

static VKAPI_ATTR void VKAPI_CALL memory_properties(VkPhysicalDevice handle,
						    VkPhysicalDeviceMemoryProperties *ret)
{
	fake_memory(ret);
}

static VKAPI_ATTR void VKAPI_CALL memory_properties2(VkPhysicalDevice handle,
						     VkPhysicalDeviceMemoryProperties2 *ret)
{
	fake_memory(&ret->memoryProperties);
	for (VkBaseOutStructure *each = ret->pNext; each; each = each->pNext) {
		VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = (void *)each;

		if (each->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT)
			continue;
		memset(budget->heapBudget, 0, sizeof(budget->heapBudget));
		memset(budget->heapUsage, 0, sizeof(budget->heapUsage));
		budget->heapBudget[0] = CARD_BYTES - 100 * MIB;
		budget->heapBudget[1] = HOST_BYTES;
		pthread_mutex_lock(&lock);
		budget->heapUsage[0] = used_bytes[0] + own_bytes();
		budget->heapUsage[1] = used_bytes[1];
		pthread_mutex_unlock(&lock);
	}
}

static VKAPI_ATTR void VKAPI_CALL properties(VkPhysicalDevice handle,
					     VkPhysicalDeviceProperties *ret)
{
	find(key_of(handle))->properties(handle, ret);
	if (!getenv("RBK_FAKE_CARD_CPU"))
		ret->deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
}

static VKAPI_ATTR void VKAPI_CALL properties2(VkPhysicalDevice handle,
					      VkPhysicalDeviceProperties2 *ret)
{
	find(key_of(handle))->properties2(handle, ret);
	if (!getenv("RBK_FAKE_CARD_CPU"))
		ret->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
}

static VKAPI_ATTR VkResult VKAPI_CALL extensions(VkPhysicalDevice handle, const char *layer,
						 uint32_t *n, VkExtensionProperties *ret)
{
	PFN_vkEnumerateDeviceExtensionProperties next = find(key_of(handle))->extensions;
	VkExtensionProperties list[512];
	uint32_t n_list = 511, n_room = *n;
	VkResult result;

	if (layer)
		return next(handle, layer, n, ret);
	result = next(handle, NULL, &n_list, list);
	if (result)
		return result;
	strcpy(list[n_list].extensionName, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
	list[n_list++].specVersion = 1;
	*n = ret && n_room < n_list ? n_room : n_list;
	if (ret)
		memcpy(ret, list, *n * sizeof(*ret));
	return ret && *n < n_list ? VK_INCOMPLETE : VK_SUCCESS;
}

/* ---- Memory ---- */

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice device, const VkMemoryAllocateInfo *info,
					       const VkAllocationCallbacks *allocator,
					       VkDeviceMemory *ret)
{
	VkMemoryAllocateInfo below = *info;
	const char *fail = getenv("RBK_FAKE_CARD_FAIL");
	unsigned int at = 0;
	VkResult result;

	if (fail &&
	    __atomic_add_fetch(&n_allocations, 1, __ATOMIC_RELAXED) % strtoul(fail, NULL, 10) == 0)
		return VK_ERROR_OUT_OF_DEVICE_MEMORY;
	below.memoryTypeIndex = 0;
	result = DEVICE(device, vkAllocateMemory)(device, &below, allocator, ret);
	if (result)
		return result;
	pthread_mutex_lock(&lock);
	while (pieces[at].memory)
		at++;
	pieces[at] = (struct piece){*ret, (info->allocationSize + 4095) / 4096 * 4096,
				    info->memoryTypeIndex == 1};
	used_bytes[pieces[at].heap] += pieces[at].bytes;
	pthread_mutex_unlock(&lock);
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL release(VkDevice device, VkDeviceMemory memory,
					  const VkAllocationCallbacks *allocator)
{
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < MAX_PIECES && memory; i++) {
		if (pieces[i].memory != memory)
			continue;
		used_bytes[pieces[i].heap] -= pieces[i].bytes;
		pieces[i].memory = VK_NULL_HANDLE;
		break;
	}
	pthread_mutex_unlock(&lock);
	DEVICE(device, vkFreeMemory)(device, memory, allocator);
}

/* The driver's requirements name its only memory type; report all of the layer's types. */
#define ALL_TYPES 7u

#define REQUIREMENTS(name, function, type)                                       \
	static VKAPI_ATTR void VKAPI_CALL function(VkDevice device, type object, \
						   VkMemoryRequirements *ret)    \
	{                                                                        \
		DEVICE(device, name)(device, object, ret);                       \
		ret->memoryTypeBits = ALL_TYPES;                                 \
	}
#define REQUIREMENTS2(name, function, type)                                           \
	static VKAPI_ATTR void VKAPI_CALL function(VkDevice device, const type *info, \
						   VkMemoryRequirements2 *ret)        \
	{                                                                             \
		DEVICE(device, name)(device, info, ret);                              \
		ret->memoryRequirements.memoryTypeBits = ALL_TYPES;                   \
	}
REQUIREMENTS(vkGetBufferMemoryRequirements, buffer_needs, VkBuffer)
REQUIREMENTS(vkGetImageMemoryRequirements, image_needs, VkImage)
REQUIREMENTS2(vkGetBufferMemoryRequirements2, buffer_needs2, VkBufferMemoryRequirementsInfo2)
REQUIREMENTS2(vkGetImageMemoryRequirements2, image_needs2, VkImageMemoryRequirementsInfo2)
REQUIREMENTS2(vkGetDeviceBufferMemoryRequirements, future_buffer_needs,
	      VkDeviceBufferMemoryRequirements)
REQUIREMENTS2(vkGetDeviceImageMemoryRequirements, future_image_needs,
	      VkDeviceImageMemoryRequirements)

/* ---- Sparse binding ---- */

static bool is_sparse(void)
{
	return getenv("RBK_FAKE_CARD_SPARSE") != NULL;
}

/* Return true if the driver lacks sparse binding. */
static bool must_bind(void)
{
	return is_sparse() && strcmp(getenv("RBK_FAKE_CARD_SPARSE"), "queues") != 0;
}

static VKAPI_ATTR void VKAPI_CALL features(VkPhysicalDevice handle, VkPhysicalDeviceFeatures *ret)
{
	find(key_of(handle))->features(handle, ret);
	ret->sparseBinding |= must_bind();
}

static VKAPI_ATTR void VKAPI_CALL queues(VkPhysicalDevice handle, uint32_t *n,
					 VkQueueFamilyProperties *ret)
{
	find(key_of(handle))->queues(handle, n, ret);
	for (uint32_t i = 0; ret && is_sparse() && i < *n; i++) {
		ret[i].queueFlags |= VK_QUEUE_SPARSE_BINDING_BIT;
		ret[i].queueCount = 16;
	}
}

/* Undo in a device's description what the driver lacks; the lists are the caller's copies. */
static void lower(VkDeviceCreateInfo *info)
{
	VkPhysicalDeviceFeatures *enabled = (VkPhysicalDeviceFeatures *)info->pEnabledFeatures;
	VkDeviceQueueCreateInfo *each = (VkDeviceQueueCreateInfo *)info->pQueueCreateInfos;
	VkBaseOutStructure *chain = (VkBaseOutStructure *)info->pNext;

	for (uint32_t i = 0; i < info->queueCreateInfoCount; i++)
		if (each[i].queueCount > 1)
			each[i].queueCount = 1;
	if (!must_bind())
		return;
	if (enabled && enabled->sparseBinding)
		enabled->sparseBinding = VK_FALSE;
	for (; chain; chain = chain->pNext)
		if (chain->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2 &&
		    ((VkPhysicalDeviceFeatures2 *)chain)->features.sparseBinding)
			((VkPhysicalDeviceFeatures2 *)chain)->features.sparseBinding = VK_FALSE;
}

static VKAPI_ATTR void VKAPI_CALL get_queue(VkDevice device, uint32_t family, uint32_t index,
					    VkQueue *ret)
{
	DEVICE(device, vkGetDeviceQueue)(device, family, is_sparse() ? 0 : index, ret);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_buffer(VkDevice device, const VkBufferCreateInfo *info,
						    const VkAllocationCallbacks *allocator,
						    VkBuffer *ret)
{
	VkBufferCreateInfo below = *info;

	if (must_bind())
		below.flags &= ~(VkFlags)VK_BUFFER_CREATE_SPARSE_BINDING_BIT;
	return DEVICE(device, vkCreateBuffer)(device, &below, allocator, ret);
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_sparse(VkQueue queue, uint32_t n,
						  const VkBindSparseInfo *infos, VkFence fence)
{
	VkDevice device = find(key_of(queue))->own;
	VkResult result;

	if (!must_bind())
		return DEVICE(device, vkQueueBindSparse)(queue, n, infos, fence);
	result = DEVICE(device, vkQueueWaitIdle)(queue);

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t at = 0; at < infos[i].bufferBindCount; at++) {
			const VkSparseBufferMemoryBindInfo *buffer = &infos[i].pBufferBinds[at];

			if (result == VK_SUCCESS && buffer->pBinds->memory)
				result = DEVICE(device, vkBindBufferMemory)(
					device, buffer->buffer, buffer->pBinds->memory,
					buffer->pBinds->memoryOffset);
		}
	return result ? result : DEVICE(device, vkQueueSubmit)(queue, 0, NULL, fence);
}

/* ---- Mandatory functions of a layer ---- */

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
						    const VkDeviceCreateInfo *info,
						    const VkAllocationCallbacks *allocator,
						    VkDevice *ret)
{
	VkLayerDeviceCreateInfo *chain = (VkLayerDeviceCreateInfo *)info->pNext;
	VkDeviceCreateInfo below = *info;
	const char *names[64];
	struct entry entry = {0};
	PFN_vkCreateDevice create;
	VkResult result;

	while (chain && !(chain->sType == VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO &&
			  chain->function == VK_LAYER_LINK_INFO))
		chain = (VkLayerDeviceCreateInfo *)chain->pNext;
	if (!chain)
		return VK_ERROR_INITIALIZATION_FAILED;
	entry.device = chain->u.pLayerInfo->pfnNextGetDeviceProcAddr;
	create = (PFN_vkCreateDevice)chain->u.pLayerInfo->pfnNextGetInstanceProcAddr(
		find(key_of(physical))->handle, "vkCreateDevice");
	chain->u.pLayerInfo = chain->u.pLayerInfo->pNext;
	below.ppEnabledExtensionNames = names;
	below.enabledExtensionCount = 0;
	for (uint32_t i = 0; i < info->enabledExtensionCount; i++)
		if (strcmp(info->ppEnabledExtensionNames[i], VK_EXT_MEMORY_BUDGET_EXTENSION_NAME))
			names[below.enabledExtensionCount++] = info->ppEnabledExtensionNames[i];
	if (is_sparse())
		lower(&below);
	result = create(physical, &below, allocator, ret);
	if (result)
		return result;
	entry.key = key_of(*ret);
	entry.own = *ret;
	add(entry);
	return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
						      const VkAllocationCallbacks *allocator,
						      VkInstance *ret)
{
	VkLayerInstanceCreateInfo *chain = (VkLayerInstanceCreateInfo *)info->pNext;
	struct entry entry = {0};
	VkResult result;

	while (chain && !(chain->sType == VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO &&
			  chain->function == VK_LAYER_LINK_INFO))
		chain = (VkLayerInstanceCreateInfo *)chain->pNext;
	if (!chain)
		return VK_ERROR_INITIALIZATION_FAILED;
	entry.instance = chain->u.pLayerInfo->pfnNextGetInstanceProcAddr;
	chain->u.pLayerInfo = chain->u.pLayerInfo->pNext;
	result = ((PFN_vkCreateInstance)entry.instance(NULL, "vkCreateInstance"))(info, allocator,
										  ret);
	if (result)
		return result;
	entry.key = key_of(*ret);
	entry.handle = *ret;
	entry.extensions = (PFN_vkEnumerateDeviceExtensionProperties)entry.instance(
		*ret, "vkEnumerateDeviceExtensionProperties");
	entry.properties = (PFN_vkGetPhysicalDeviceProperties)entry.instance(
		*ret, "vkGetPhysicalDeviceProperties");
	entry.properties2 = (PFN_vkGetPhysicalDeviceProperties2)entry.instance(
		*ret, "vkGetPhysicalDeviceProperties2");
	entry.features = (PFN_vkGetPhysicalDeviceFeatures)entry.instance(
		*ret, "vkGetPhysicalDeviceFeatures");
	entry.queues = (PFN_vkGetPhysicalDeviceQueueFamilyProperties)entry.instance(
		*ret, "vkGetPhysicalDeviceQueueFamilyProperties");
	add(entry);
	return VK_SUCCESS;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device(VkDevice handle, const char *name);
static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance(VkInstance handle, const char *name);

static PFN_vkVoidFunction own(const char *name)
{
	static const struct {
		const char *name;
		PFN_vkVoidFunction function;
	} functions[] = {
		{"vkGetInstanceProcAddr", (PFN_vkVoidFunction)get_instance},
		{"vkGetDeviceProcAddr", (PFN_vkVoidFunction)get_device},
		{"vkCreateInstance", (PFN_vkVoidFunction)create_instance},
		{"vkCreateDevice", (PFN_vkVoidFunction)create_device},
		{"vkAllocateMemory", (PFN_vkVoidFunction)allocate},
		{"vkFreeMemory", (PFN_vkVoidFunction)release},
		{"vkGetBufferMemoryRequirements", (PFN_vkVoidFunction)buffer_needs},
		{"vkGetImageMemoryRequirements", (PFN_vkVoidFunction)image_needs},
		{"vkGetBufferMemoryRequirements2", (PFN_vkVoidFunction)buffer_needs2},
		{"vkGetBufferMemoryRequirements2KHR", (PFN_vkVoidFunction)buffer_needs2},
		{"vkGetImageMemoryRequirements2", (PFN_vkVoidFunction)image_needs2},
		{"vkGetImageMemoryRequirements2KHR", (PFN_vkVoidFunction)image_needs2},
		{"vkGetDeviceBufferMemoryRequirements", (PFN_vkVoidFunction)future_buffer_needs},
		{"vkGetDeviceImageMemoryRequirements", (PFN_vkVoidFunction)future_image_needs},
		{"vkGetPhysicalDeviceProperties", (PFN_vkVoidFunction)properties},
		{"vkGetPhysicalDeviceProperties2", (PFN_vkVoidFunction)properties2},
		{"vkGetPhysicalDeviceProperties2KHR", (PFN_vkVoidFunction)properties2},
		{"vkGetPhysicalDeviceMemoryProperties", (PFN_vkVoidFunction)memory_properties},
		{"vkGetPhysicalDeviceMemoryProperties2", (PFN_vkVoidFunction)memory_properties2},
		{"vkGetPhysicalDeviceMemoryProperties2KHR", (PFN_vkVoidFunction)memory_properties2},
		{"vkEnumerateDeviceExtensionProperties", (PFN_vkVoidFunction)extensions},
		{"vkGetPhysicalDeviceFeatures", (PFN_vkVoidFunction)features},
		{"vkGetPhysicalDeviceQueueFamilyProperties", (PFN_vkVoidFunction)queues},
		{"vkGetDeviceQueue", (PFN_vkVoidFunction)get_queue},
		{"vkCreateBuffer", (PFN_vkVoidFunction)create_buffer},
		{"vkQueueBindSparse", (PFN_vkVoidFunction)bind_sparse},
	};

	for (unsigned int i = 0; i < sizeof(functions) / sizeof(*functions); i++)
		if (strcmp(functions[i].name, name) == 0)
			return functions[i].function;
	return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device(VkDevice handle, const char *name)
{
	PFN_vkVoidFunction function = own(name);

	return function ? function : find(key_of(handle))->device(handle, name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance(VkInstance handle, const char *name)
{
	PFN_vkVoidFunction function = own(name);
	struct entry *entry = handle ? find(key_of(handle)) : NULL;

	return function || !entry ? function : entry->instance(handle, name);
}

EXPORT VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *negotiation);

VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *negotiation)
{
	negotiation->loaderLayerInterfaceVersion = 2;
	negotiation->pfnGetInstanceProcAddr = get_instance;
	negotiation->pfnGetDeviceProcAddr = get_device;
	negotiation->pfnGetPhysicalDeviceProcAddr = NULL;
	return VK_SUCCESS;
}
