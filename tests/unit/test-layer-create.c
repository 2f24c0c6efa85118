/* SPDX-License-Identifier: MIT */
/*
 * Failures of the layer's own allocations
 *
 * The test is the loader above the layer and the driver below it. The loader frees an instance of
 * the driver by itself if the layer refuses it, so the layer must neither destroy one nor refuse
 * one that the driver has made.
 */
#include <string.h>

#include <vulkan/vulkan_core.h>
#include <vulkan/vk_layer.h>

#include "fail-alloc.h"
#include "libclient/layer/dispatch.h"
#include "support/test.h"

/* Handles of Vulkan begin with the loader's dispatch table. */
struct handle {
	const void *table;
};

static int instance_table, device_table;
static struct handle instance_handle = {&instance_table};
static struct handle physical_handle = {&instance_table};
static struct handle device_handle = {&device_table};
static struct gpu gpu = {.is_ours = 1, .state = GPU_LEASED};
static VkResult driver_result;
static unsigned int n_instances, n_devices, n_memories; /* made, and not destroyed yet */
static unsigned int n_calls; /* of the driver, to make an instance or a device */
static PFN_vkGetInstanceProcAddr layer_function;

struct gpu *__wrap_dispatch_gpu(struct physical *asked, bool insists);

struct gpu *__wrap_dispatch_gpu(struct physical *asked, bool insists)
{
	(void)asked;
	(void)insists;
	return &gpu;
}

/* ---- The driver ---- */

static VKAPI_ATTR VkResult VKAPI_CALL driver_create_instance(const VkInstanceCreateInfo *info,
							     const VkAllocationCallbacks *allocator,
							     VkInstance *ret)
{
	(void)info;
	(void)allocator;
	n_calls++;
	if (driver_result)
		return driver_result;
	n_instances++;
	*ret = (VkInstance)&instance_handle;
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL driver_destroy_instance(VkInstance instance,
							  const VkAllocationCallbacks *allocator)
{
	(void)allocator;
	assert_ptr_equal(instance, &instance_handle);
	n_instances--;
}

static VKAPI_ATTR VkResult VKAPI_CALL driver_extensions(VkPhysicalDevice physical,
							const char *layer, uint32_t *n,
							VkExtensionProperties *ret)
{
	(void)physical;
	(void)layer;
	(void)ret;
	*n = 0;
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL driver_properties(VkPhysicalDevice physical,
						    VkPhysicalDeviceProperties *ret)
{
	(void)physical;
	memset(ret, 0, sizeof(*ret));
	ret->deviceType = VK_PHYSICAL_DEVICE_TYPE_CPU;
}

static VKAPI_ATTR void VKAPI_CALL driver_memory(VkPhysicalDevice physical,
						VkPhysicalDeviceMemoryProperties *ret)
{
	(void)physical;
	memset(ret, 0, sizeof(*ret));
	ret->memoryTypeCount = ret->memoryHeapCount = 1;
}

static VKAPI_ATTR VkResult VKAPI_CALL driver_create_device(VkPhysicalDevice physical,
							   const VkDeviceCreateInfo *info,
							   const VkAllocationCallbacks *allocator,
							   VkDevice *ret)
{
	(void)physical;
	(void)info;
	(void)allocator;
	n_calls++;
	if (driver_result)
		return driver_result;
	n_devices++;
	*ret = (VkDevice)&device_handle;
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL driver_destroy_device(VkDevice device,
							const VkAllocationCallbacks *allocator)
{
	(void)allocator;
	assert_ptr_equal(device, &device_handle);
	n_devices--;
}

static VKAPI_ATTR VkResult VKAPI_CALL driver_allocate(VkDevice device,
						      const VkMemoryAllocateInfo *info,
						      const VkAllocationCallbacks *allocator,
						      VkDeviceMemory *ret)
{
	(void)device;
	(void)info;
	(void)allocator;
	*ret = (VkDeviceMemory)(uintptr_t)(++n_memories * 4096);
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL driver_free(VkDevice device, VkDeviceMemory memory,
					      const VkAllocationCallbacks *allocator)
{
	(void)device;
	(void)memory;
	(void)allocator;
	n_memories--;
}

static PFN_vkVoidFunction driver_function(const char *name)
{
	static const struct {
		const char *name;
		PFN_vkVoidFunction function;
	} functions[] = {
		{"vkCreateInstance", (PFN_vkVoidFunction)driver_create_instance},
		{"vkDestroyInstance", (PFN_vkVoidFunction)driver_destroy_instance},
		{"vkEnumerateDeviceExtensionProperties", (PFN_vkVoidFunction)driver_extensions},
		{"vkGetPhysicalDeviceProperties", (PFN_vkVoidFunction)driver_properties},
		{"vkGetPhysicalDeviceMemoryProperties", (PFN_vkVoidFunction)driver_memory},
		{"vkCreateDevice", (PFN_vkVoidFunction)driver_create_device},
		{"vkDestroyDevice", (PFN_vkVoidFunction)driver_destroy_device},
		{"vkAllocateMemory", (PFN_vkVoidFunction)driver_allocate},
		{"vkFreeMemory", (PFN_vkVoidFunction)driver_free},
	};

	for (unsigned int i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (strcmp(functions[i].name, name) == 0)
			return functions[i].function;
	return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL driver_instance_function(VkInstance instance,
									 const char *name)
{
	(void)instance;
	return driver_function(name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL driver_device_function(VkDevice device,
								       const char *name)
{
	(void)device;
	return driver_function(name);
}

/* ---- The loader ---- */

static PFN_vkVoidFunction layer_call(const char *name)
{
	return layer_function(n_instances ? (VkInstance)&instance_handle : VK_NULL_HANDLE, name);
}

static VkResult make_instance(void)
{
	VkLayerInstanceLink below = {.pfnNextGetInstanceProcAddr = driver_instance_function};
	VkLayerInstanceCreateInfo link = {
		.sType = VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO,
		.function = VK_LAYER_LINK_INFO,
		.u.pLayerInfo = &below,
	};
	VkInstanceCreateInfo info = {.pNext = &link};
	VkInstance instance;

	return ((PFN_vkCreateInstance)layer_call("vkCreateInstance"))(&info, NULL, &instance);
}

static void destroy_instance(void)
{
	((PFN_vkDestroyInstance)layer_call("vkDestroyInstance"))((VkInstance)&instance_handle,
								 NULL);
	assert_int_equal(n_instances, 0);
}

static VkResult make_device(void)
{
	VkLayerDeviceLink below = {
		.pfnNextGetInstanceProcAddr = driver_instance_function,
		.pfnNextGetDeviceProcAddr = driver_device_function,
	};
	VkLayerDeviceCreateInfo link = {
		.sType = VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO,
		.function = VK_LAYER_LINK_INFO,
		.u.pLayerInfo = &below,
	};
	VkDeviceCreateInfo info = {.pNext = &link};
	VkDevice device;

	return ((PFN_vkCreateDevice)layer_call("vkCreateDevice"))(
		(VkPhysicalDevice)&physical_handle, &info, NULL, &device);
}

static void destroy_device(void)
{
	/* A device of a parent process has nothing to report to a broker. */
	gpu.is_ours = 0;
	((PFN_vkDestroyDevice)layer_call("vkDestroyDevice"))((VkDevice)&device_handle, NULL);
	gpu.is_ours = 1;
	assert_int_equal(n_devices, 0);
}

/*
 * Have each allocation of @make fail once. The driver is called only by a call that succeeds.
 * Return: the number of allocations.
 */
static unsigned int fail_each(VkResult (*make)(void))
{
	unsigned int n = 0;
	VkResult result;

	n_calls = 0;
	for (;;) {
		fail_alloc_at(n + 1);
		result = make();
		if (!fail_alloc_stop())
			break;
		n++;
		assert_int_equal(result, VK_ERROR_OUT_OF_HOST_MEMORY);
		assert_int_equal(n_calls, 0);
	}
	assert_int_equal(result, VK_SUCCESS);
	assert_int_equal(n_calls, 1);
	return n;
}

static int begin(void **state)
{
	VkNegotiateLayerInterface negotiation = {
		.sType = LAYER_NEGOTIATE_INTERFACE_STRUCT,
		.loaderLayerInterfaceVersion = 2,
	};

	(void)state;
	assert_int_equal(vkNegotiateLoaderLayerInterfaceVersion(&negotiation), VK_SUCCESS);
	layer_function = negotiation.pfnGetInstanceProcAddr;
	driver_result = VK_SUCCESS;
	return 0;
}

TEST(test_create_instance__no_memory, begin)
{
	/* The instance, and its entry, which is used again. */
	assert_int_equal(fail_each(make_instance), 2);
	destroy_instance();
	assert_int_equal(fail_each(make_instance), 1);
	destroy_instance();
	driver_result = VK_ERROR_INCOMPATIBLE_DRIVER;
	assert_int_equal(make_instance(), VK_ERROR_INCOMPATIBLE_DRIVER);
	driver_result = VK_SUCCESS;
	assert_int_equal(fail_each(make_instance), 1);
	destroy_instance();
}

TEST(test_create_device__no_memory, begin)
{
	assert_int_equal(make_instance(), VK_SUCCESS);
	/* The device, the record of the card, its extensions, and the entry of the device. */
	assert_int_equal(fail_each(make_device), 4);
	destroy_device();
	/* All is kept but the device, and the extensions for the driver. */
	assert_int_equal(fail_each(make_device), 2);
	destroy_device();
	driver_result = VK_ERROR_DEVICE_LOST;
	assert_int_equal(make_device(), VK_ERROR_DEVICE_LOST);
	driver_result = VK_SUCCESS;
	assert_int_equal(fail_each(make_device), 2);
	destroy_device();
	destroy_instance();
}

/* The program gets no handle of memory that the layer has freed again. */
TEST(test_allocate__no_memory, begin)
{
	const VkMemoryAllocateInfo info = {.allocationSize = 4096};
	VkDeviceMemory memory = VK_NULL_HANDLE;
	struct device *device;

	assert_int_equal(make_instance(), VK_SUCCESS);
	assert_int_equal(make_device(), VK_SUCCESS);
	device = dispatch_device(&device_handle);
	assert_non_null(device);
	fail_alloc_at(1);
	assert_int_equal(memory_allocate(device, &info, NULL, &memory),
			 VK_ERROR_OUT_OF_HOST_MEMORY);
	assert_true(fail_alloc_stop());
	assert_true(memory == VK_NULL_HANDLE);
	assert_int_equal(n_memories, 0);
	assert_int_equal(gpu.live_bytes[0], 0);
	assert_int_equal(memory_allocate(device, &info, NULL, &memory), VK_SUCCESS);
	assert_int_equal(n_memories, 1);
	memory_free(device, memory, NULL);
	assert_int_equal(n_memories, 0);
	destroy_device();
	destroy_instance();
}

TEST_MAIN(NULL, NULL, (void)0)
