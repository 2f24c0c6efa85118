/* SPDX-License-Identifier: MIT */
/*
 * A Vulkan driver that is Mesa's software device and claims to be a discrete GPU
 *
 * For tests, with right results and without a GPU, of the code that runs for discrete GPUs alone.
 * Bound tensors are copied into its memory and back, shaders are those for GPUs, and --gpu=auto
 * accepts it. Its memory looks like that of NVIDIA's driver: one device heap that the processor
 * cannot map, one host heap, and VK_EXT_memory_budget, which reports the allocated bytes of both.
 * With RBK_CARD_MATRICES=KHR or NV in the environment it claims that extension for cooperative
 * matrices. With RBK_CARD_IMPORTS=breaks it imports only memory that can be written, and a failed
 * import leaves the VkDevice without memory, as with NVIDIA's driver 580.159; with
 * RBK_CARD_IMPORTS=nvidia it claims to be that driver as well.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <vulkan/vk_icd.h>
#include <vulkan/vulkan_core.h>

#define EXPORT __attribute__((visibility("default")))

enum {
	HEAP_CARD,
	HEAP_HOST,
	HEAPS,
	TYPE_CARD = 1, /* type 0 exists, and is for no resource */
	TYPE_HOST,
	TYPE_HOST_CACHED,
	TYPES,
	BITS_HOST = 1 << TYPE_HOST | 1 << TYPE_HOST_CACHED,
	MAX_ALLOCATIONS = 65536,
	/* Lavapipe's only memory type, for every resource. */
	TRUE_TYPE = 0,
	/* Driver overhead in bytes. */
	KEPT_BYTES = 64 << 20,
};

struct allocation {
	VkDeviceMemory memory; /* VK_NULL_HANDLE: free */
	uint64_t bytes;
	uint32_t heap;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation allocations[MAX_ALLOCATIONS];
static uint64_t used_bytes[HEAPS];
static VkDevice broken; /* has no memory after a failed import */

/* Functions of Lavapipe. */
static PFN_vkGetInstanceProcAddr next_instance, next_physical;
static struct {
	PFN_vkGetPhysicalDeviceProperties properties;
	PFN_vkGetPhysicalDeviceProperties2 properties2;
	PFN_vkGetPhysicalDeviceMemoryProperties memory;
	PFN_vkGetPhysicalDeviceMemoryProperties2 memory2;
	PFN_vkEnumerateDeviceExtensionProperties extensions;
	PFN_vkGetDeviceProcAddr device;
	PFN_vkAllocateMemory allocate;
	PFN_vkFreeMemory free;
	PFN_vkDestroyDevice destroy;
	PFN_vkGetBufferMemoryRequirements needs;
	PFN_vkGetMemoryHostPointerPropertiesEXT pointer;
} next;

/* --- Properties --- */

static bool is_nvidia(void)
{
	const char *imports = getenv("RBK_CARD_IMPORTS");

	return imports && strcmp(imports, "nvidia") == 0;
}

static void pretend(VkPhysicalDeviceProperties *properties)
{
	properties->deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
	strcpy(properties->deviceName, "a card in software");
}

static VKAPI_ATTR void VKAPI_CALL card_properties(VkPhysicalDevice physical,
						  VkPhysicalDeviceProperties *ret)
{
	next.properties(physical, ret);
	pretend(ret);
}

static VKAPI_ATTR void VKAPI_CALL card_properties2(VkPhysicalDevice physical,
						   VkPhysicalDeviceProperties2 *ret)
{
	next.properties2(physical, ret);
	pretend(&ret->properties);
	for (VkBaseOutStructure *more = ret->pNext; more && is_nvidia(); more = more->pNext)
		if (more->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES)
			((VkPhysicalDeviceVulkan12Properties *)more)->driverID =
				VK_DRIVER_ID_NVIDIA_PROPRIETARY;
}

static VKAPI_ATTR void VKAPI_CALL card_memory(VkPhysicalDevice physical,
					      VkPhysicalDeviceMemoryProperties *ret)
{
	const VkMemoryPropertyFlags mapped =
		VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
	VkDeviceSize bytes;

	next.memory(physical, ret);
	bytes = ret->memoryHeaps[0].size;
	*ret = (VkPhysicalDeviceMemoryProperties){
		.memoryTypeCount = TYPES,
		.memoryTypes =
			{
				[0] = {0, HEAP_HOST},
				[TYPE_CARD] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, HEAP_CARD},
				[TYPE_HOST] = {mapped, HEAP_HOST},
				[TYPE_HOST_CACHED] = {mapped | VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
						      HEAP_HOST},
			},
		.memoryHeapCount = HEAPS,
		.memoryHeaps =
			{
				[HEAP_CARD] = {bytes, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
				[HEAP_HOST] = {bytes, 0},
			},
	};
}

static VKAPI_ATTR void VKAPI_CALL card_memory2(VkPhysicalDevice physical,
					       VkPhysicalDeviceMemoryProperties2 *ret)
{
	VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = ret->pNext;

	card_memory(physical, &ret->memoryProperties);
	while (budget &&
	       budget->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT)
		budget = budget->pNext;
	if (!budget)
		return;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < HEAPS; i++) {
		budget->heapBudget[i] = ret->memoryProperties.memoryHeaps[i].size -
					(i == HEAP_CARD ? KEPT_BYTES : 0);
		budget->heapUsage[i] = used_bytes[i];
	}
	pthread_mutex_unlock(&lock);
}

static VKAPI_ATTR VkResult VKAPI_CALL card_extensions(VkPhysicalDevice physical, const char *layer,
						      uint32_t *n, VkExtensionProperties *ret)
{
	const char *matrices = getenv("RBK_CARD_MATRICES");
	const uint32_t room = *n, n_more = matrices ? 2 : 1;
	VkResult result;

	result = next.extensions(physical, layer, n, ret);
	if (result < 0 || layer)
		return result;
	if (!ret) {
		*n += n_more;
		return result;
	}
	if (result == VK_INCOMPLETE || room - *n < n_more)
		return VK_INCOMPLETE;
	if (matrices) {
		ret[*n] = (VkExtensionProperties){.specVersion = 1};
		snprintf(ret[(*n)++].extensionName, VK_MAX_EXTENSION_NAME_SIZE,
			 "VK_%s_cooperative_matrix", matrices);
	}
	ret[(*n)++] = (VkExtensionProperties){VK_EXT_MEMORY_BUDGET_EXTENSION_NAME,
					      VK_EXT_MEMORY_BUDGET_SPEC_VERSION};
	return VK_SUCCESS;
}

/* --- Cooperative matrices: queries alone --- */

/* Layout of VkCooperativeMatrixPropertiesKHR, which the headers of Debian 12 lack. */
struct matrix_khr {
	VkStructureType type;
	void *next;
	uint32_t m, n, k, a, b, c, result, saturates, scope;
};

enum {
	F16 = VK_COMPONENT_TYPE_FLOAT16_NV,
	F32 = VK_COMPONENT_TYPE_FLOAT32_NV,
	S8 = VK_COMPONENT_TYPE_SINT8_NV,
	S32 = VK_COMPONENT_TYPE_SINT32_NV,
	N_MATRICES = 6,
};

static const struct matrix_khr matrices[N_MATRICES] = {
	{.m = 16, .n = 16, .k = 16, .result = F16, .c = F16, .scope = VK_SCOPE_SUBGROUP_NV},
	{.m = 16, .n = 16, .k = 16, .c = F32, .result = F32, .scope = VK_SCOPE_SUBGROUP_NV},
	{.m = 32, .n = 32, .k = 16, .c = F32, .result = F32, .scope = VK_SCOPE_WORKGROUP_NV},
	{.m = 8, .n = 8, .k = 32, .a = S8, .b = S8, .c = S32, .result = S32, .scope = 3},
	{.m = 16, .n = 8, .k = 16, .c = F32, .result = F32, .scope = VK_SCOPE_SUBGROUP_NV},
	{.m = 16, .n = 16, .k = 16, .c = F32, .result = F32, .scope = VK_SCOPE_SUBGROUP_NV},
};

static VKAPI_ATTR VkResult VKAPI_CALL card_matrices_khr(VkPhysicalDevice physical, uint32_t *n,
							struct matrix_khr *ret)
{
	if (ret && *n >= N_MATRICES)
		memcpy(ret, matrices, sizeof(matrices));
	*n = N_MATRICES;
	return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL card_matrices_nv(VkPhysicalDevice physical, uint32_t *n,
						       VkCooperativeMatrixPropertiesNV *ret)
{
	for (unsigned int i = 0; ret && i < N_MATRICES && *n >= N_MATRICES; i++) {
		ret[i].MSize = matrices[i].m;
		ret[i].NSize = matrices[i].n;
		ret[i].KSize = matrices[i].k;
		ret[i].AType = (VkComponentTypeNV)matrices[i].a;
		ret[i].BType = (VkComponentTypeNV)matrices[i].b;
		ret[i].CType = (VkComponentTypeNV)matrices[i].c;
		ret[i].DType = (VkComponentTypeNV)matrices[i].result;
		ret[i].scope = (VkScopeNV)matrices[i].scope;
	}
	*n = N_MATRICES;
	return VK_SUCCESS;
}

/* Return the function of that name, or NULL if it does not concern matrices. */
static PFN_vkVoidFunction matrices_function(const char *name)
{
	if (strcmp(name, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR") == 0)
		return (PFN_vkVoidFunction)card_matrices_khr;
	if (strcmp(name, "vkGetPhysicalDeviceCooperativeMatrixPropertiesNV") == 0)
		return (PFN_vkVoidFunction)card_matrices_nv;
	return NULL;
}

/* --- Memory --- */

/* Return true if the allocation is an import of memory that cannot be written. */
static bool imports_read_only(const VkMemoryAllocateInfo *info)
{
	const VkBaseInStructure *import = info->pNext;
	void *at;

	while (import && import->sType != VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT)
		import = import->pNext;
	if (!import)
		return false;
	at = ((const VkImportMemoryHostPointerInfoEXT *)import)->pHostPointer;
	return madvise(at, info->allocationSize, MADV_POPULATE_WRITE) < 0;
}

static VKAPI_ATTR VkResult VKAPI_CALL card_allocate(VkDevice device,
						    const VkMemoryAllocateInfo *info,
						    const VkAllocationCallbacks *allocator,
						    VkDeviceMemory *ret)
{
	const uint32_t heap = info->memoryTypeIndex == TYPE_CARD ? HEAP_CARD : HEAP_HOST;
	VkMemoryAllocateInfo true_info = *info;
	VkResult result;

	if (getenv("RBK_CARD_IMPORTS")) {
		if (imports_read_only(info))
			broken = device;
		if (device == broken)
			return VK_ERROR_OUT_OF_DEVICE_MEMORY;
	}
	true_info.memoryTypeIndex = TRUE_TYPE;
	result = next.allocate(device, &true_info, allocator, ret);
	if (result != VK_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < MAX_ALLOCATIONS; i++)
		if (!allocations[i].memory) {
			allocations[i] = (struct allocation){*ret, info->allocationSize, heap};
			used_bytes[heap] += info->allocationSize;
			break;
		}
	pthread_mutex_unlock(&lock);
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL card_free(VkDevice device, VkDeviceMemory memory,
					    const VkAllocationCallbacks *allocator)
{
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; memory && i < MAX_ALLOCATIONS; i++)
		if (allocations[i].memory == memory) {
			used_bytes[allocations[i].heap] -= allocations[i].bytes;
			allocations[i].memory = VK_NULL_HANDLE;
			break;
		}
	pthread_mutex_unlock(&lock);
	next.free(device, memory, allocator);
}

static VKAPI_ATTR void VKAPI_CALL card_destroy(VkDevice device,
					       const VkAllocationCallbacks *allocator)
{
	if (device == broken)
		broken = VK_NULL_HANDLE;
	next.destroy(device, allocator);
}

static VKAPI_ATTR void VKAPI_CALL card_needs(VkDevice device, VkBuffer buffer,
					     VkMemoryRequirements *ret)
{
	next.needs(device, buffer, ret);
	ret->memoryTypeBits = 1 << TYPE_CARD | BITS_HOST;
}

static VKAPI_ATTR VkResult VKAPI_CALL card_pointer(VkDevice device,
						   VkExternalMemoryHandleTypeFlagBits kind,
						   const void *pointer,
						   VkMemoryHostPointerPropertiesEXT *ret)
{
	VkResult result = next.pointer(device, kind, pointer, ret);

	ret->memoryTypeBits = BITS_HOST;
	return result;
}

/* --- Functions by name --- */

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL card_device(VkDevice device, const char *name);

/* Return the replacement of @function, which is remembered, or @function if it has none. */
static PFN_vkVoidFunction instead(const char *name, PFN_vkVoidFunction function)
{
	const struct {
		const char *name;
		PFN_vkVoidFunction ours;
		void *next;
	} functions[] = {
		{"vkGetPhysicalDeviceProperties", (PFN_vkVoidFunction)card_properties,
		 &next.properties},
		{"vkGetPhysicalDeviceProperties2", (PFN_vkVoidFunction)card_properties2,
		 &next.properties2},
		{"vkGetPhysicalDeviceMemoryProperties", (PFN_vkVoidFunction)card_memory,
		 &next.memory},
		{"vkGetPhysicalDeviceMemoryProperties2", (PFN_vkVoidFunction)card_memory2,
		 &next.memory2},
		{"vkEnumerateDeviceExtensionProperties", (PFN_vkVoidFunction)card_extensions,
		 &next.extensions},
		{"vkGetDeviceProcAddr", (PFN_vkVoidFunction)card_device, &next.device},
		{"vkAllocateMemory", (PFN_vkVoidFunction)card_allocate, &next.allocate},
		{"vkFreeMemory", (PFN_vkVoidFunction)card_free, &next.free},
		{"vkDestroyDevice", (PFN_vkVoidFunction)card_destroy, &next.destroy},
		{"vkGetBufferMemoryRequirements", (PFN_vkVoidFunction)card_needs, &next.needs},
		{"vkGetMemoryHostPointerPropertiesEXT", (PFN_vkVoidFunction)card_pointer,
		 &next.pointer},
	};

	for (unsigned int i = 0; function && i < sizeof(functions) / sizeof(*functions); i++)
		if (strcmp(name, functions[i].name) == 0) {
			memcpy(functions[i].next, &function, sizeof(function));
			return functions[i].ours;
		}
	return function;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL card_device(VkDevice device, const char *name)
{
	return instead(name, next.device(device, name));
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance,
									  const char *name)
{
	const PFN_vkVoidFunction function = matrices_function(name);

	return function ? function : instead(name, next_instance(instance, name));
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetPhysicalDeviceProcAddr(VkInstance instance,
										const char *name)
{
	const PFN_vkVoidFunction function = matrices_function(name);

	if (function)
		return function;
	return instead(name, next_physical ? next_physical(instance, name) : NULL);
}

EXPORT VKAPI_ATTR VkResult VKAPI_CALL vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version)
{
	void *driver = dlopen("libvulkan_lvp.so", RTLD_NOW | RTLD_LOCAL);
	VkResult (*negotiate)(uint32_t * version);

	if (!driver)
		return VK_ERROR_INITIALIZATION_FAILED;
	negotiate =
		(VkResult(*)(uint32_t *))dlsym(driver, "vk_icdNegotiateLoaderICDInterfaceVersion");
	next_instance = (PFN_vkGetInstanceProcAddr)dlsym(driver, "vk_icdGetInstanceProcAddr");
	next_physical = (PFN_vkGetInstanceProcAddr)dlsym(driver, "vk_icdGetPhysicalDeviceProcAddr");
	return negotiate && next_instance ? negotiate(version) : VK_ERROR_INITIALIZATION_FAILED;
}
