/* SPDX-License-Identifier: MIT */
/*
 * Mesa's real RADV over a simulated Polaris: devices, memory and its budget, a pipeline compiled by
 * AMD's compiler, submissions, sharing, and a device's reset and unplugging.
 */
#include "rig.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

/* #version 450, layout(local_size_x = 1) in; void main() {} */
static const uint32_t empty_shader[] = {
	0x07230203, 0x00010000, 0, 5, 0,
	/* OpCapability Shader; OpMemoryModel Logical GLSL450 */
	0x00020011, 1, 0x0003000e, 0, 1,
	/* OpEntryPoint GLCompute %1 "main"; OpExecutionMode %1 LocalSize 1 1 1 */
	0x0005000f, 5, 1, 0x6e69616d, 0, 0x00060010, 1, 17, 1, 1, 1,
	/* %2 = void; %3 = void(); %1 = function; %4: label, return, end */
	0x00020013, 2, 0x00030021, 3, 2, 0x00050036, 2, 1, 0, 3, 0x000200f8, 4, 0x000100fd,
	0x00010038};

struct vulkan {
	VkInstance instance;
	VkPhysicalDevice physical;
	VkDevice device;
	VkQueue queue;
	VkCommandPool pool;
	VkCommandBuffer commands; /* recorded: dispatches the empty shader */
	VkPipeline pipeline;
	VkPipelineLayout layout;
	VkShaderModule shader;
};

static void success(VkResult result)
{
	assert_int_equal(result, VK_SUCCESS);
}

static void open_instance(struct vulkan *vulkan)
{
	VkApplicationInfo application = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.apiVersion = VK_API_VERSION_1_3,
	};
	VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &application,
	};
	uint32_t n = 1;

	success(vkCreateInstance(&info, NULL, &vulkan->instance));
	/* If there are several devices, asking for one gives VK_INCOMPLETE. */
	assert_true(vkEnumeratePhysicalDevices(vulkan->instance, &n, &vulkan->physical) >= 0);
	assert_int_equal(n, 1);
}

static void open_device(struct vulkan *vulkan)
{
	static const char *const extensions[] = {
		"VK_EXT_memory_budget",
		"VK_KHR_external_memory_fd",
		"VK_EXT_external_memory_dma_buf",
		"VK_EXT_external_memory_host",
	};
	VkPhysicalDeviceVulkan12Features features = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
		.timelineSemaphore = VK_TRUE,
	};
	float priority = 1;
	VkDeviceQueueCreateInfo queue = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
		.queueFamilyIndex = 1,
		.queueCount = 1,
		.pQueuePriorities = &priority,
	};
	VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.pNext = &features,
		.queueCreateInfoCount = 1,
		.pQueueCreateInfos = &queue,
		.enabledExtensionCount = sizeof(extensions) / sizeof(extensions[0]),
		.ppEnabledExtensionNames = extensions,
	};

	success(vkCreateDevice(vulkan->physical, &info, NULL, &vulkan->device));
	vkGetDeviceQueue(vulkan->device, 1, 0, &vulkan->queue);
}

static void make_pipeline(struct vulkan *vulkan)
{
	VkShaderModuleCreateInfo shader = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
		.codeSize = sizeof(empty_shader),
		.pCode = empty_shader,
	};
	VkPipelineLayoutCreateInfo layout = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
	};
	VkComputePipelineCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.flags = VK_PIPELINE_CREATE_DISPATCH_BASE,
		.stage =
			{
				.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
				.stage = VK_SHADER_STAGE_COMPUTE_BIT,
				.pName = "main",
			},
	};

	success(vkCreateShaderModule(vulkan->device, &shader, NULL, &vulkan->shader));
	success(vkCreatePipelineLayout(vulkan->device, &layout, NULL, &vulkan->layout));
	info.stage.module = vulkan->shader;
	info.layout = vulkan->layout;
	success(vkCreateComputePipelines(vulkan->device, VK_NULL_HANDLE, 1, &info, NULL,
					 &vulkan->pipeline));
}

static void record(struct vulkan *vulkan)
{
	VkCommandPoolCreateInfo pool = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
		.queueFamilyIndex = 1,
	};
	VkCommandBufferAllocateInfo allocate = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		.commandBufferCount = 1,
	};
	VkCommandBufferBeginInfo begin = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
		.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT,
	};

	success(vkCreateCommandPool(vulkan->device, &pool, NULL, &vulkan->pool));
	allocate.commandPool = vulkan->pool;
	success(vkAllocateCommandBuffers(vulkan->device, &allocate, &vulkan->commands));
	success(vkBeginCommandBuffer(vulkan->commands, &begin));
	vkCmdBindPipeline(vulkan->commands, VK_PIPELINE_BIND_POINT_COMPUTE, vulkan->pipeline);
	vkCmdDispatch(vulkan->commands, 3, 1, 1);
	vkCmdDispatchBase(vulkan->commands, 1000, 0, 0, 1, 1, 1);
	success(vkEndCommandBuffer(vulkan->commands));
}

static void vulkan_open(struct vulkan *vulkan)
{
	memset(vulkan, 0, sizeof(*vulkan));
	open_instance(vulkan);
	open_device(vulkan);
	make_pipeline(vulkan);
	record(vulkan);
}

static void close_device(struct vulkan *vulkan)
{
	vkDestroyCommandPool(vulkan->device, vulkan->pool, NULL);
	vkDestroyPipeline(vulkan->device, vulkan->pipeline, NULL);
	vkDestroyPipelineLayout(vulkan->device, vulkan->layout, NULL);
	vkDestroyShaderModule(vulkan->device, vulkan->shader, NULL);
	vkDestroyDevice(vulkan->device, NULL);
}

static void vulkan_close(struct vulkan *vulkan)
{
	close_device(vulkan);
	vkDestroyInstance(vulkan->instance, NULL);
}

#define VULKAN(name) SCOPED(vulkan, name, vulkan_open, vulkan_close)

static VkFence make_fence(const struct vulkan *vulkan)
{
	VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
	VkFence fence;

	success(vkCreateFence(vulkan->device, &info, NULL, &fence));
	return fence;
}

static VkResult submit(const struct vulkan *vulkan, VkFence fence)
{
	VkSubmitInfo info = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.commandBufferCount = 1,
		.pCommandBuffers = &vulkan->commands,
	};

	return vkQueueSubmit(vulkan->queue, 1, &info, fence);
}

/* Return the first type of @mask with all wanted and no unwanted flags; fail without one. */
static uint32_t find_type(const struct vulkan *vulkan, VkMemoryPropertyFlags wanted,
			  VkMemoryPropertyFlags unwanted, uint32_t mask)
{
	VkPhysicalDeviceMemoryProperties memory;

	vkGetPhysicalDeviceMemoryProperties(vulkan->physical, &memory);
	for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
		VkMemoryPropertyFlags flags = memory.memoryTypes[i].propertyFlags;

		if (mask & 1u << i && (flags & wanted) == wanted && !(flags & unwanted))
			return i;
	}
	fail();
	return 0;
}

static uint32_t vram_type(const struct vulkan *vulkan)
{
	return find_type(vulkan, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
			 VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT, UINT32_MAX);
}

static VkResult allocate(const struct vulkan *vulkan, uint32_t type, VkDeviceSize bytes,
			 const void *next, VkDeviceMemory *ret)
{
	VkMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		.pNext = next,
		.allocationSize = bytes,
		.memoryTypeIndex = type,
	};

	return vkAllocateMemory(vulkan->device, &info, NULL, ret);
}

/* Read the budget of VRAM that the CPU cannot reach, from VK_EXT_memory_budget. */
static void budget(const struct vulkan *vulkan, uint64_t *ret_budget, uint64_t *ret_usage)
{
	VkPhysicalDeviceMemoryBudgetPropertiesEXT about = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
	};
	VkPhysicalDeviceMemoryProperties2 memory = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
		.pNext = &about,
	};
	uint32_t heap;

	vkGetPhysicalDeviceMemoryProperties2(vulkan->physical, &memory);
	heap = memory.memoryProperties.memoryTypes[vram_type(vulkan)].heapIndex;
	*ret_budget = about.heapBudget[heap];
	*ret_usage = about.heapUsage[heap];
}

TEST(test_device__is_the_card)
{
	VkPhysicalDeviceProperties properties;

	VULKAN(vulkan);
	vkGetPhysicalDeviceProperties(vulkan.physical, &properties);
	assert_string_equal(properties.deviceName, "AMD Radeon RX 580 Series (RADV POLARIS10)");
	assert_int_equal(properties.deviceType, VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU);
}

TEST(test_budget__follows)
{
	uint64_t free_before, used_before, free_after, used_after;
	VkDeviceMemory memory;

	VULKAN(vulkan);
	budget(&vulkan, &free_before, &used_before);
	success(allocate(&vulkan, vram_type(&vulkan), GIB, NULL, &memory));
	budget(&vulkan, &free_after, &used_after);
	assert_int_equal(used_after - used_before, GIB);
	rig_control("set other-vram=5GiB");
	budget(&vulkan, &free_after, &used_after);
	assert_int_equal(used_after - used_before, GIB);
	/* The rest of the system has 5 of 8 GiB. Mesa keeps a margin. */
	assert_true(free_after < 3 * GIB);
	assert_true(free_after > 2 * GIB);
	assert_true(free_before > 7 * GIB);
	rig_control("set other-vram=0");
	vkFreeMemory(vulkan.device, memory, NULL);
	budget(&vulkan, &free_after, &used_after);
	assert_int_equal(used_after, used_before);
}

TEST(test_memory__spills_or_fails)
{
	VkDeviceMemory memory;
	struct rig rig;

	VULKAN(vulkan);
	rig_open(&rig, 0);
	rig_control("set other-vram=7GiB");
	success(allocate(&vulkan, vram_type(&vulkan), 2 * GIB, NULL, &memory));
	assert_true(rig_memory(&rig).gtt.heap_usage >= 2 * GIB);
	vkFreeMemory(vulkan.device, memory, NULL);
	rig_control("set spill=no");
	assert_int_equal(allocate(&vulkan, vram_type(&vulkan), 2 * GIB, NULL, &memory),
			 VK_ERROR_OUT_OF_DEVICE_MEMORY);
	rig_control("set spill=yes other-vram=0");
	rig_control("fail card0 GEM_CREATE ENOMEM 1");
	assert_int_equal(allocate(&vulkan, vram_type(&vulkan), MIB, NULL, &memory),
			 VK_ERROR_OUT_OF_DEVICE_MEMORY);
	success(allocate(&vulkan, vram_type(&vulkan), MIB, NULL, &memory));
	vkFreeMemory(vulkan.device, memory, NULL);
	rig_close(&rig);
}

TEST(test_submit__completes)
{
	VkSemaphoreTypeCreateInfo type = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
		.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
	};
	VkSemaphoreCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
		.pNext = &type,
	};
	uint64_t wanted = 7, reached;
	VkTimelineSemaphoreSubmitInfo values = {
		.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
		.signalSemaphoreValueCount = 1,
		.pSignalSemaphoreValues = &wanted,
	};
	VkSubmitInfo with_timeline = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.pNext = &values,
		.signalSemaphoreCount = 1,
	};
	VkSemaphoreWaitInfo wait = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
		.semaphoreCount = 1,
		.pValues = &wanted,
	};
	VkSemaphore timeline;
	VkFence fence;

	VULKAN(vulkan);
	fence = make_fence(&vulkan);
	assert_int_equal(vkGetFenceStatus(vulkan.device, fence), VK_NOT_READY);
	assert_int_equal(vkWaitForFences(vulkan.device, 1, &fence, VK_TRUE, 1000000), VK_TIMEOUT);
	success(submit(&vulkan, fence));
	success(vkWaitForFences(vulkan.device, 1, &fence, VK_TRUE, UINT64_MAX));
	success(vkResetFences(vulkan.device, 1, &fence));
	assert_int_equal(vkGetFenceStatus(vulkan.device, fence), VK_NOT_READY);

	success(vkCreateSemaphore(vulkan.device, &info, NULL, &timeline));
	wait.pSemaphores = &timeline;
	assert_int_equal(vkWaitSemaphores(vulkan.device, &wait, 1000000), VK_TIMEOUT);
	with_timeline.pSignalSemaphores = &timeline;
	with_timeline.commandBufferCount = 1;
	with_timeline.pCommandBuffers = &vulkan.commands;
	success(vkQueueSubmit(vulkan.queue, 1, &with_timeline, fence));
	success(vkWaitSemaphores(vulkan.device, &wait, UINT64_MAX));
	success(vkGetSemaphoreCounterValue(vulkan.device, timeline, &reached));
	assert_int_equal(reached, 7);
	success(vkQueueWaitIdle(vulkan.queue));
	success(vkDeviceWaitIdle(vulkan.device));
	vkDestroySemaphore(vulkan.device, timeline, NULL);
	vkDestroyFence(vulkan.device, fence, NULL);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The recorded commands dispatch four workgroups, the last one with a base of 1,000. */
TEST(test_submit__takes_its_time)
{
	enum { COMMANDS_NS = 400000000 };
	VkSemaphoreTypeCreateInfo type = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
		.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
	};
	VkSemaphoreCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
		.pNext = &type,
	};
	uint64_t value, reached, begin_ns;
	VkTimelineSemaphoreSubmitInfo values = {
		.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
		.signalSemaphoreValueCount = 1,
		.pSignalSemaphoreValues = &value,
	};
	VkSemaphore timeline;
	VkSubmitInfo with_timeline = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.pNext = &values,
		.signalSemaphoreCount = 1,
		.pSignalSemaphores = &timeline,
		.commandBufferCount = 1,
	};
	VkSemaphoreWaitInfo wait = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
		.semaphoreCount = 1,
		.pSemaphores = &timeline,
		.pValues = &value,
	};
	VkFence fence;

	VULKAN(vulkan);
	rig_control("set execution=timed job-ns=0 group-ns=%d", COMMANDS_NS / 4);
	fence = make_fence(&vulkan);
	begin_ns = now_ns();
	success(submit(&vulkan, fence));
	success(vkWaitForFences(vulkan.device, 1, &fence, VK_TRUE, 100 * (uint64_t)COMMANDS_NS));
	assert_true(now_ns() - begin_ns >= COMMANDS_NS);

	success(vkCreateSemaphore(vulkan.device, &info, NULL, &timeline));
	with_timeline.pCommandBuffers = &vulkan.commands;
	begin_ns = now_ns();
	for (value = 3; value <= 7; value += 4)
		success(vkQueueSubmit(vulkan.queue, 1, &with_timeline, VK_NULL_HANDLE));
	value = 3;
	success(vkWaitSemaphores(vulkan.device, &wait, UINT64_MAX));
	assert_true(now_ns() - begin_ns >= COMMANDS_NS);
	/* 7 by now, if this test was interrupted */
	success(vkGetSemaphoreCounterValue(vulkan.device, timeline, &reached));
	assert_true(reached == 3 || now_ns() - begin_ns >= 2 * COMMANDS_NS);
	success(vkQueueWaitIdle(vulkan.queue));
	assert_true(now_ns() - begin_ns >= 2 * COMMANDS_NS);
	success(vkGetSemaphoreCounterValue(vulkan.device, timeline, &reached));
	assert_int_equal(reached, 7);
	vkDestroySemaphore(vulkan.device, timeline, NULL);
	vkDestroyFence(vulkan.device, fence, NULL);
	rig_control("set execution=instant job-ns=1000000 group-ns=0");
}

TEST(test_reset__loses_the_device)
{
	struct vulkan vulkan;
	VkFence fence;

	vulkan_open(&vulkan);
	fence = make_fence(&vulkan);
	success(submit(&vulkan, fence));
	rig_control("reset card0");
	success(vkWaitForFences(vulkan.device, 1, &fence, VK_TRUE, UINT64_MAX));
	success(vkResetFences(vulkan.device, 1, &fence));
	assert_int_equal(submit(&vulkan, fence), VK_ERROR_DEVICE_LOST);
	vkDestroyFence(vulkan.device, fence, NULL);
	vulkan_close(&vulkan);

	/* A new device works. */
	vulkan_open(&vulkan);
	fence = make_fence(&vulkan);
	success(submit(&vulkan, fence));
	success(vkWaitForFences(vulkan.device, 1, &fence, VK_TRUE, UINT64_MAX));
	vkDestroyFence(vulkan.device, fence, NULL);
	vulkan_close(&vulkan);
}

TEST(test_unplug__loses_the_device)
{
	struct vulkan vulkan, none = {0};
	VkApplicationInfo application = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.apiVersion = VK_API_VERSION_1_3,
	};
	VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &application,
	};
	uint32_t n = 0;

	vulkan_open(&vulkan);
	/* Mesa 22.3.6 crashes if it must still allocate the first submission's objects. */
	success(submit(&vulkan, VK_NULL_HANDLE));
	success(vkQueueWaitIdle(vulkan.queue));
	rig_control("unplug card0");
	assert_true(submit(&vulkan, VK_NULL_HANDLE) < 0);
	if (vkCreateInstance(&info, NULL, &none.instance) == VK_SUCCESS) {
		vkEnumeratePhysicalDevices(none.instance, &n, NULL);
		vkDestroyInstance(none.instance, NULL);
	}
	assert_int_equal(n, 0);
	rig_control("plug card0");
	vulkan_close(&vulkan);
	vulkan_open(&vulkan);
	vulkan_close(&vulkan);
}

static int make_udmabuf(uint64_t bytes, uint8_t **ret_bytes)
{
	struct udmabuf_create create = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = bytes};
	int device, memfd, fd;

	memfd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	assert_true(memfd >= 0 && device >= 0);
	assert_int_equal(ftruncate(memfd, (off_t)bytes), 0);
	assert_int_equal(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	*ret_bytes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	create.memfd = (uint32_t)memfd;
	fd = ioctl(device, UDMABUF_CREATE, &create);
	assert_true(fd >= 0);
	close(memfd);
	close(device);
	return fd;
}

TEST(test_udmabuf__imported)
{
	PFN_vkGetMemoryFdPropertiesKHR get_properties;
	VkImportMemoryFdInfoKHR import = {
		.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
		.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT,
	};
	VkMemoryFdPropertiesKHR properties = {.sType = VK_STRUCTURE_TYPE_MEMORY_FD_PROPERTIES_KHR};
	VkDeviceMemory memory;
	uint8_t *bytes;

	VULKAN(vulkan);
	import.fd = make_udmabuf(MIB, &bytes);
	get_properties = (void *)vkGetDeviceProcAddr(vulkan.device, "vkGetMemoryFdPropertiesKHR");
	success(get_properties(vulkan.device, import.handleType, import.fd, &properties));
	assert_int_not_equal(properties.memoryTypeBits, 0);
	success(allocate(&vulkan, find_type(&vulkan, 0, 0, properties.memoryTypeBits), MIB, &import,
			 &memory));
	vkFreeMemory(vulkan.device, memory, NULL);
	munmap(bytes, MIB);
}

TEST(test_export__shares_bytes)
{
	PFN_vkGetMemoryFdKHR get_fd;
	VkExportMemoryAllocateInfo export = {
		.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
		.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT,
	};
	VkMemoryGetFdInfoKHR get = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
		.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT,
	};
	VkDeviceMemory memory;
	uint8_t *mapped, *shared;
	int fd;

	VULKAN(vulkan);
	get_fd = (void *)vkGetDeviceProcAddr(vulkan.device, "vkGetMemoryFdKHR");
	success(allocate(
		&vulkan,
		find_type(&vulkan,
			  VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
			  0, UINT32_MAX),
		MIB, &export, &memory));
	get.memory = memory;
	success(get_fd(vulkan.device, &get, &fd));
	success(vkMapMemory(vulkan.device, memory, 0, MIB, 0, (void **)&mapped));
	shared = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	mapped[12345] = 99;
	assert_int_equal(shared[12345], 99);
	vkFreeMemory(vulkan.device, memory, NULL);
	assert_int_equal(shared[12345], 99);
	munmap(shared, MIB);
	close(fd);
}

static VkResult import_host(const struct vulkan *vulkan, void *at)
{
	VkImportMemoryHostPointerInfoEXT import = {
		.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
		.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
		.pHostPointer = at,
	};
	VkDeviceMemory memory;
	VkResult result;

	result = allocate(
		vulkan,
		find_type(vulkan,
			  VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
			  0, UINT32_MAX),
		MIB, &import, &memory);
	if (result == VK_SUCCESS)
		vkFreeMemory(vulkan->device, memory, NULL);
	return result;
}

/* As with amdgpu, a client's shared memory cannot be imported by address. */
TEST(test_host_import__anonymous_only)
{
	struct vulkan vulkan;
	void *anonymous, *shared;
	int memfd = memfd_create("test", MFD_CLOEXEC);

	assert_int_equal(ftruncate(memfd, MIB), 0);
	anonymous = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	vulkan_open(&vulkan);
	success(import_host(&vulkan, anonymous));
	assert_true(import_host(&vulkan, shared) < 0);
	vulkan_close(&vulkan);
	munmap(anonymous, MIB);
	munmap(shared, MIB);
	close(memfd);
}

/*
 * Check that each card is one device whose name contains the given text, and that it can be opened
 * and run work.
 */
static int check_chips(char **names, unsigned n_names)
{
	VkPhysicalDevice devices[8];
	struct vulkan vulkan = {0};
	uint32_t n = 8;

	open_instance(&vulkan);
	if (vkEnumeratePhysicalDevices(vulkan.instance, &n, devices) || n != n_names)
		return 1;
	for (unsigned i = 0; i < n; i++) {
		VkPhysicalDeviceProperties properties;
		unsigned k;

		vkGetPhysicalDeviceProperties(devices[i], &properties);
		for (k = 0; k < n_names && !strstr(properties.deviceName, names[k]); k++)
			;
		printf("%s%s\n", properties.deviceName, k < n_names ? "" : ": which is that?");
		if (k == n_names)
			return 1;
		vulkan.physical = devices[i];
		open_device(&vulkan);
		make_pipeline(&vulkan);
		record(&vulkan);
		if (submit(&vulkan, VK_NULL_HANDLE) || vkQueueWaitIdle(vulkan.queue))
			return 1;
		close_device(&vulkan);
	}
	vkDestroyInstance(vulkan.instance, NULL);
	return 0;
}

int main(int argc, char **argv)
{
	const char *drivers = getenv("VK_DRIVER_FILES");

	if (argc < 2)
		return 2;
	if (!drivers || !strstr(drivers, "radeon_icd")) {
		puts("skipped: RADV is not installed");
		return 77;
	}
	rig_control_path = argv[1];
	if (argc > 2)
		return check_chips(argv + 2, (unsigned)argc - 2);
	return test_run(NULL, NULL);
}
