/* SPDX-License-Identifier: MIT */
/*
 * A Vulkan program whose device memory is moved while it is idle, and that checks its contents
 *
 *     move-client ALLOCATIONS MIB [--blind] [--queues]
 *
 * It makes that many allocations of device memory of so many MiB, each with two buffers, and fills
 * them with numbers. It prints "ready", and reads lines:
 *
 *     check       reads all buffers by command buffers that were recorded at the begin, and prints
 *                 "same", or "wrong" with the first wrong place
 *     turn        has the device write each buffer's next numbers by copies between the buffers,
 *                 prints "turned"
 *     map         maps the first allocation of memory that the host sees, in device memory too,
 *                 and prints "mapped"; unmap
 *     free N      destroys allocation N and its buffers
 *     image       binds an image to memory of its own, prints "image"
 *     pause MS    holds a submission back by a semaphore of the host's for so long, while a thread
 *                 waits for the queue, and maps that memory before it signals; prints "paused"
 *     under MS    the same, but submits something else in between, and prints "under"
 *     fork        has a child of fork() submit nothing on the inherited device, prints "forked"
 *
 * With --queues the program has 12 queues. Each line is answered by a line, other commands than
 * those by "unknown". With --blind contents are not compared, for devices that compute nothing. It
 * ends with its standard input.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <volk.h>

enum { MAX_ALLOCATIONS = 64, BUFFERS = 2 };

static struct VolkDeviceTable vk;
static VkPhysicalDevice physical;
static VkDevice device;
static VkQueue queue;
static VkCommandPool pool;
static VkPhysicalDeviceMemoryProperties types;

/* Device memory with its buffers, and a host buffer for each of these. */
static struct piece {
	VkDeviceMemory memory;
	VkBuffer buffers[BUFFERS];
	VkCommandBuffer reading, turning;
	uint64_t seed; /* of the first buffer's numbers; the second one's is one more */
} pieces[MAX_ALLOCATIONS];
static unsigned int n_pieces;
static VkDeviceSize buffer_bytes;
static VkBuffer host_buffer;
static VkDeviceMemory host_memory, mapped_memory;
static uint64_t *host;
static bool is_blind, has_queues;

static void expect(VkResult result, const char *what)
{
	if (result == VK_SUCCESS)
		return;
	printf("failed: %s: %d\n", what, result);
	fflush(stdout);
	exit(1);
}
#define EXPECT(call) expect(call, #call)

static uint32_t type_with(VkMemoryPropertyFlags flags, VkMemoryPropertyFlags without, uint32_t of)
{
	for (uint32_t i = 0; i < types.memoryTypeCount; i++)
		if ((of >> i & 1) && (types.memoryTypes[i].propertyFlags & flags) == flags &&
		    !(types.memoryTypes[i].propertyFlags & without))
			return i;
	return UINT32_MAX;
}

static VkBuffer make_buffer(VkDeviceSize bytes, VkMemoryRequirements *ret_needs)
{
	const VkBufferCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
		.size = bytes,
		.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
			 VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
	};
	VkBuffer buffer;

	EXPECT(vk.vkCreateBuffer(device, &info, NULL, &buffer));
	vk.vkGetBufferMemoryRequirements(device, buffer, ret_needs);
	return buffer;
}

static VkDeviceMemory allocate(VkDeviceSize bytes, uint32_t type)
{
	const VkMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		.allocationSize = bytes,
		.memoryTypeIndex = type,
	};
	VkDeviceMemory memory;

	EXPECT(vk.vkAllocateMemory(device, &info, NULL, &memory));
	return memory;
}

static VkCommandBuffer begin(void)
{
	const VkCommandBufferAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.commandPool = pool,
		.commandBufferCount = 1,
	};
	const VkCommandBufferBeginInfo begin_info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
	};
	VkCommandBuffer commands;

	EXPECT(vk.vkAllocateCommandBuffers(device, &info, &commands));
	EXPECT(vk.vkBeginCommandBuffer(commands, &begin_info));
	return commands;
}

static void wait_for_copies(VkCommandBuffer commands)
{
	const VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT |
				 VK_ACCESS_HOST_READ_BIT,
	};

	vk.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
				VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
				&barrier, 0, NULL, 0, NULL);
}

static void run(VkCommandBuffer commands)
{
	const VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
	const VkSubmitInfo submit = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.commandBufferCount = 1,
		.pCommandBuffers = &commands,
	};
	VkFence fence;

	EXPECT(vk.vkCreateFence(device, &info, NULL, &fence));
	EXPECT(vk.vkQueueSubmit(queue, 1, &submit, fence));
	EXPECT(vk.vkWaitForFences(device, 1, &fence, VK_TRUE, UINT64_MAX));
	vk.vkDestroyFence(device, fence, NULL);
}

static uint64_t number(uint64_t seed, uint64_t at)
{
	return (seed << 40 | at) * 0x9e3779b97f4a7c15u;
}

static uint64_t seed_of(const struct piece *piece, unsigned int buffer)
{
	return piece->seed + buffer;
}

static void copy(VkCommandBuffer commands, VkBuffer from, VkDeviceSize from_at, VkBuffer to,
		 VkDeviceSize to_at)
{
	const VkBufferCopy region = {from_at, to_at, buffer_bytes};

	vk.vkCmdCopyBuffer(commands, from, to, 1, &region);
}

static void make_piece(struct piece *piece, VkDeviceSize bytes)
{
	VkMemoryRequirements needs;
	VkDeviceSize offset;
	uint32_t type;

	for (unsigned int i = 0; i < BUFFERS; i++)
		piece->buffers[i] = make_buffer(buffer_bytes, &needs);
	offset = (needs.size + needs.alignment - 1) / needs.alignment * needs.alignment;
	type = type_with(VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0, needs.memoryTypeBits);
	piece->memory = allocate(offset + needs.size > bytes ? offset + needs.size : bytes, type);
	for (unsigned int i = 0; i < BUFFERS; i++)
		EXPECT(vk.vkBindBufferMemory(device, piece->buffers[i], piece->memory, i * offset));
	piece->reading = begin();
	for (unsigned int i = 0; i < BUFFERS; i++)
		copy(piece->reading, piece->buffers[i], 0, host_buffer, i * buffer_bytes);
	wait_for_copies(piece->reading);
	EXPECT(vk.vkEndCommandBuffer(piece->reading));
	/* The second buffer becomes the first one's, and gets numbers from the host. */
	piece->turning = begin();
	copy(piece->turning, piece->buffers[1], 0, piece->buffers[0], 0);
	wait_for_copies(piece->turning);
	copy(piece->turning, host_buffer, 0, piece->buffers[1], 0);
	wait_for_copies(piece->turning);
	EXPECT(vk.vkEndCommandBuffer(piece->turning));
}

static void turn(struct piece *piece)
{
	for (uint64_t at = 0; at < buffer_bytes / 8; at++)
		host[at] = number(piece->seed + BUFFERS, at);
	run(piece->turning);
	piece->seed++;
}

static bool is_same(const struct piece *piece)
{
	run(piece->reading);
	for (unsigned int i = 0; i < BUFFERS && !is_blind; i++)
		for (uint64_t at = 0; at < buffer_bytes / 8; at++)
			if (host[i * buffer_bytes / 8 + at] != number(seed_of(piece, i), at)) {
				printf("wrong: allocation %d, buffer %u, number %llu\n",
				       (int)(piece - pieces), i, (unsigned long long)at);
				return false;
			}
	return true;
}

static void make_device(void)
{
	const float priorities[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
	const VkDeviceQueueCreateInfo queue_info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
		.queueCount = has_queues ? 12 : 1,
		.pQueuePriorities = priorities,
	};
	VkPhysicalDeviceVulkan12Features features12 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
		.timelineSemaphore = VK_TRUE,
	};
	/* The features lie behind another structure, which a layer must not change. */
	const VkPhysicalDeviceFeatures2 features = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
		.pNext = NULL,
	};
	VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.pNext = &features12,
		.queueCreateInfoCount = 1,
		.pQueueCreateInfos = &queue_info,
	};
	const VkApplicationInfo application = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.apiVersion = VK_API_VERSION_1_2,
	};
	const VkInstanceCreateInfo instance_info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &application,
	};
	VkCommandPoolCreateInfo pool_info = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
	VkInstance instance;
	uint32_t n = 1;

	features12.pNext = (void *)(uintptr_t)&features;
	EXPECT(volkInitialize());
	EXPECT(vkCreateInstance(&instance_info, NULL, &instance));
	volkLoadInstanceOnly(instance);
	if (vkEnumeratePhysicalDevices(instance, &n, &physical) < 0 || n == 0) {
		puts("failed: no device");
		exit(1);
	}
	EXPECT(vkCreateDevice(physical, &info, NULL, &device));
	volkLoadDeviceTable(&vk, device);
	vk.vkGetDeviceQueue(device, 0, 0, &queue);
	EXPECT(vk.vkCreateCommandPool(device, &pool_info, NULL, &pool));
	vkGetPhysicalDeviceMemoryProperties(physical, &types);
}

static void make_host_buffer(void)
{
	VkMemoryRequirements needs;

	host_buffer = make_buffer(BUFFERS * buffer_bytes, &needs);
	host_memory = allocate(needs.size, type_with(VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
							     VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
						     VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
						     needs.memoryTypeBits));
	EXPECT(vk.vkBindBufferMemory(device, host_buffer, host_memory, 0));
	EXPECT(vk.vkMapMemory(device, host_memory, 0, VK_WHOLE_SIZE, 0, (void **)&host));
}

/* ---- Commands ---- */

static void check(void)
{
	for (unsigned int i = 0; i < n_pieces; i++)
		if (pieces[i].memory && !is_same(&pieces[i]))
			return;
	puts("same");
}

static void map(void)
{
	const uint32_t type =
		type_with(VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
			  0, UINT32_MAX);
	uint32_t *at;

	if (type == UINT32_MAX) {
		puts("no such memory");
		return;
	}
	if (!mapped_memory)
		mapped_memory = allocate(1 << 20, type);
	EXPECT(vk.vkMapMemory(device, mapped_memory, 0, VK_WHOLE_SIZE, 0, (void **)&at));
	printf("mapped %u\n", at[0]);
	at[0] = 4711;
}

static void make_image(void)
{
	const VkImageCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
		.imageType = VK_IMAGE_TYPE_2D,
		.format = VK_FORMAT_R8G8B8A8_UNORM,
		.extent = {64, 64, 1},
		.mipLevels = 1,
		.arrayLayers = 1,
		.samples = VK_SAMPLE_COUNT_1_BIT,
		.usage = VK_IMAGE_USAGE_TRANSFER_DST_BIT,
	};
	VkMemoryRequirements needs;
	VkImage image;

	EXPECT(vk.vkCreateImage(device, &info, NULL, &image));
	vk.vkGetImageMemoryRequirements(device, image, &needs);
	EXPECT(vk.vkBindImageMemory(
		device, image,
		allocate(needs.size,
			 type_with(VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0, needs.memoryTypeBits)),
		0));
	puts("image");
}

static void *wait_for_queue(void *unused)
{
	(void)unused;
	EXPECT(vk.vkQueueWaitIdle(queue));
	return NULL;
}

/* Submit in between, or else map memory while another thread waits. */
static void pause_queue(unsigned int ms, bool submits)
{
	const VkSemaphoreTypeCreateInfo timeline = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
		.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
	};
	const VkSemaphoreCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
		.pNext = &timeline,
	};
	const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
	const uint64_t value = 1;
	const VkTimelineSemaphoreSubmitInfo values = {
		.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
		.waitSemaphoreValueCount = 1,
		.pWaitSemaphoreValues = &value,
	};
	const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
	VkSemaphore semaphore;
	pthread_t waiter;
	void *at = NULL;
	VkSubmitInfo submit = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.pNext = &values,
		.waitSemaphoreCount = 1,
		.pWaitSemaphores = &semaphore,
		.pWaitDstStageMask = &stage,
		.commandBufferCount = 1,
		.pCommandBuffers = &pieces[0].reading,
	};
	VkSemaphoreSignalInfo signal = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO,
		.value = 1,
	};

	EXPECT(vk.vkCreateSemaphore(device, &info, NULL, &semaphore));
	EXPECT(vk.vkQueueSubmit(queue, 1, &submit, VK_NULL_HANDLE));
	if (!submits)
		pthread_create(&waiter, NULL, wait_for_queue, NULL);
	nanosleep(&time, NULL);
	if (submits)
		EXPECT(vk.vkQueueSubmit(queue, 0, NULL, VK_NULL_HANDLE));
	else if (mapped_memory)
		EXPECT(vk.vkMapMemory(device, mapped_memory, 0, VK_WHOLE_SIZE, 0, &at));
	signal.semaphore = semaphore;
	EXPECT(vk.vkSignalSemaphore(device, &signal));
	if (submits)
		EXPECT(vk.vkQueueWaitIdle(queue));
	else
		pthread_join(waiter, NULL);
	if (at)
		vk.vkUnmapMemory(device, mapped_memory);
	vk.vkDestroySemaphore(device, semaphore, NULL);
	puts(submits ? "under" : "paused");
}

static void fork_child(void)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		(void)vk.vkQueueSubmit(queue, 0, NULL, VK_NULL_HANDLE);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0 || status)
		puts("the child failed");
	else
		puts("forked");
}

static void free_piece(struct piece *piece)
{
	/* First the memory, which is allowed, and hard for layers. */
	vk.vkFreeMemory(device, piece->memory, NULL);
	for (unsigned int i = 0; i < BUFFERS; i++)
		vk.vkDestroyBuffer(device, piece->buffers[i], NULL);
	piece->memory = VK_NULL_HANDLE;
	puts("freed");
}

static void obey(const char *line)
{
	unsigned int n = 0;

	if (strcmp(line, "check\n") == 0) {
		check();
	} else if (strcmp(line, "turn\n") == 0) {
		for (unsigned int i = 0; i < n_pieces; i++)
			if (pieces[i].memory)
				turn(&pieces[i]);
		puts("turned");
	} else if (strcmp(line, "map\n") == 0) {
		map();
	} else if (strcmp(line, "unmap\n") == 0) {
		vk.vkUnmapMemory(device, mapped_memory);
		puts("unmapped");
	} else if (strcmp(line, "image\n") == 0) {
		make_image();
	} else if (sscanf(line, "pause %u", &n) == 1) {
		pause_queue(n, false);
	} else if (sscanf(line, "under %u", &n) == 1) {
		pause_queue(n, true);
	} else if (strcmp(line, "fork\n") == 0) {
		fork_child();
	} else if (sscanf(line, "free %u", &n) == 1 && n < n_pieces && pieces[n].memory) {
		free_piece(&pieces[n]);
	} else {
		puts("unknown");
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char line[256];
	VkDeviceSize bytes;

	if (argc < 3) {
		fprintf(stderr, "usage: move-client ALLOCATIONS MIB [--blind]\n");
		return 2;
	}
	n_pieces = (unsigned int)strtoul(argv[1], NULL, 10);
	bytes = strtoull(argv[2], NULL, 10) << 20;
	n_pieces = n_pieces < MAX_ALLOCATIONS ? n_pieces : MAX_ALLOCATIONS;
	buffer_bytes = bytes / BUFFERS - (64 << 10);
	is_blind = argc > 3 && strcmp(argv[3], "--blind") == 0;
	has_queues = argc > 3 && strcmp(argv[3], "--queues") == 0;
	make_device();
	make_host_buffer();
	for (unsigned int i = 0; i < n_pieces; i++) {
		pieces[i].seed = i * UINT64_C(1000);
		make_piece(&pieces[i], bytes);
		for (unsigned int times = 0; times < BUFFERS; times++)
			turn(&pieces[i]);
	}
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	vk.vkDeviceWaitIdle(device);
	for (unsigned int i = 0; i < n_pieces; i++) {
		for (unsigned int at = 0; at < BUFFERS && pieces[i].memory; at++)
			vk.vkDestroyBuffer(device, pieces[i].buffers[at], NULL);
		vk.vkFreeMemory(device, pieces[i].memory, NULL);
	}
	vk.vkDestroyBuffer(device, host_buffer, NULL);
	vk.vkFreeMemory(device, host_memory, NULL);
	vk.vkDestroyCommandPool(device, pool, NULL);
	vk.vkDestroyDevice(device, NULL);
	return 0;
}
