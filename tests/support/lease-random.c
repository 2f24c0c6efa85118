/* SPDX-License-Identifier: MIT */
/*
 * lease-random SEED MIB
 *
 * A Vulkan program that allocates and frees at random, up to about MIB in all. It exports memory to
 * other processes and imports theirs, makes the driver allocate memory, and queries the budget now
 * and then. Two threads do so until the program is killed, or ends in one of several ways. The
 * program knows nothing of leases; a test runs it under the layer hundreds of times.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <signal.h>
#include <unistd.h>

#include <volk.h>

#include "support/lease-random.h"

enum { N_SLOTS = 24, N_THREADS = 2, PAGE = 4096 };

static struct lease_random_counts *counts;
static VkInstance instance;
static VkPhysicalDevice physical;
static VkDevice device;
static uint64_t most_bytes;

struct worker {
	pthread_t thread;
	uint64_t seed;
	VkDeviceMemory slots[N_SLOTS];
	VkDescriptorPool pool;
};

static uint64_t random_of(struct worker *worker)
{
	worker->seed ^= worker->seed << 13;
	worker->seed ^= worker->seed >> 7;
	worker->seed ^= worker->seed << 17;
	return worker->seed * 0x2545f4914f6cdd1du;
}

static void wrong(int what)
{
	counts->wrong = what;
	counts->n_wrong++;
}

/* ---- The device ---- */

static void make_instance(void)
{
	const VkApplicationInfo application = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.pApplicationName = "lease-random",
		.apiVersion = VK_API_VERSION_1_2,
	};
	const VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &application,
	};
	uint32_t n = 1;

	if (volkInitialize() || vkCreateInstance(&info, NULL, &instance))
		exit(77);
	volkLoadInstance(instance);
	if (vkEnumeratePhysicalDevices(instance, &n, &physical) < 0 || n == 0)
		exit(77);
}

/*
 * Set with the device. A program without a lease sees the driver's extensions, which may lack
 * VK_EXT_memory_budget, and the lease often comes with the device. Queries of a physical device
 * need an extension that it supports, not one that a device has enabled.
 */
static bool can_ask;

static bool has_budget(void)
{
	VkExtensionProperties *list;
	uint32_t n = 0;
	bool has = false;

	vkEnumerateDeviceExtensionProperties(physical, NULL, &n, NULL);
	list = calloc(n + 1, sizeof(*list));
	if (list && vkEnumerateDeviceExtensionProperties(physical, NULL, &n, list) == VK_SUCCESS)
		for (uint32_t i = 0; i < n; i++)
			has |= strcmp(list[i].extensionName, "VK_EXT_memory_budget") == 0;
	free(list);
	return has;
}

static VkResult try_device(void)
{
	static const char *const names[] = {"VK_KHR_external_memory_fd", "VK_EXT_memory_budget"};
	const float priority = 1;
	const VkDeviceQueueCreateInfo queue = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
		.queueCount = 1,
		.pQueuePriorities = &priority,
	};
	VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.queueCreateInfoCount = 1,
		.pQueueCreateInfos = &queue,
		.enabledExtensionCount = 1,
		.ppEnabledExtensionNames = names,
	};

	info.enabledExtensionCount += has_budget();
	return vkCreateDevice(physical, &info, NULL, &device);
}

/* Try repeatedly: a program without a lease gets no device, but a lease may come later. */
static void make_device(void)
{
	enum { TRIES = 40, PAUSE_US = 100000 };

	for (unsigned int i = 0; i < TRIES; i++) {
		VkResult result = try_device();

		if (result == VK_SUCCESS) {
			counts->n_devices++;
			can_ask = has_budget();
			volkLoadDevice(device);
			return;
		}
		counts->n_refused_devices++;
		if (result != VK_ERROR_INITIALIZATION_FAILED)
			wrong(result);
		usleep(PAUSE_US);
	}
	exit(1);
}

/* ---- Memory ---- */

static VkResult allocate(uint64_t bytes, const void *next, VkDeviceMemory *ret)
{
	const VkMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		.pNext = next,
		.allocationSize = bytes,
	};
	VkResult result = vkAllocateMemory(device, &info, NULL, ret);

	if (result == VK_SUCCESS)
		counts->n_allocated++;
	else if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY)
		counts->n_refused++;
	else
		wrong(result);
	return result;
}

static uint64_t some_bytes(struct worker *worker)
{
	uint64_t random = random_of(worker);
	uint64_t all = most_bytes / N_SLOTS;

	/* Mix small, large and unaligned sizes. */
	return 1 + (random >> 8) % (all >> random % 6);
}

static void swap(struct worker *worker, VkDeviceMemory *slot)
{
	if (*slot) {
		vkFreeMemory(device, *slot, NULL);
		counts->n_freed++;
		*slot = VK_NULL_HANDLE;
	} else if (allocate(some_bytes(worker), NULL, slot)) {
		*slot = VK_NULL_HANDLE;
	}
}

/* Send the number of bytes, and the descriptor, if any. */
static void hand_over(int fd, uint64_t bytes)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec io = {&bytes, sizeof(bytes)};
	struct msghdr message = {
		.msg_iov = &io,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	sendmsg(LEASE_RANDOM_SEND_FD, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	close(fd);
}

static int take_over(uint64_t *ret_bytes)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec io = {ret_bytes, sizeof(*ret_bytes)};
	struct msghdr message = {
		.msg_iov = &io,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *head;
	int fd;

	if (recvmsg(LEASE_RANDOM_RECEIVE_FD, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) !=
	    sizeof(*ret_bytes))
		return -1;
	head = CMSG_FIRSTHDR(&message);
	if (!head || head->cmsg_type != SCM_RIGHTS)
		return -1;
	memcpy(&fd, CMSG_DATA(head), sizeof(fd));
	return fd;
}

static void export_one(struct worker *worker, VkDeviceMemory *slot)
{
	const VkExportMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
		.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
	};
	VkMemoryGetFdInfoKHR get = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
		.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
	};
	uint64_t bytes = (some_bytes(worker) + PAGE - 1) / PAGE * PAGE;
	int fd;

	if (*slot)
		vkFreeMemory(device, *slot, NULL);
	*slot = VK_NULL_HANDLE;
	if (allocate(bytes, &info, slot)) {
		*slot = VK_NULL_HANDLE;
		return;
	}
	get.memory = *slot;
	if (vkGetMemoryFdKHR(device, &get, &fd))
		return;
	counts->n_exported++;
	hand_over(fd, bytes);
}

static void import_one(VkDeviceMemory *slot)
{
	VkImportMemoryFdInfoKHR info = {
		.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
		.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
	};
	uint64_t bytes;

	if (*slot)
		return;
	info.fd = take_over(&bytes);
	if (info.fd < 0)
		return;
	if (allocate(bytes, &info, slot) == VK_SUCCESS) {
		counts->n_imported++;
		return;
	}
	/* A refused import leaves the descriptor with this program. */
	*slot = VK_NULL_HANDLE;
	counts->n_refused_imports++;
	close(info.fd);
}

/* Replace the descriptor pool, for which the driver itself allocates memory. */
static void swap_pool(struct worker *worker)
{
	const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 4096};
	const VkDescriptorPoolCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
		.maxSets = 64,
		.poolSizeCount = 1,
		.pPoolSizes = &size,
	};

	vkDestroyDescriptorPool(device, worker->pool, NULL);
	worker->pool = VK_NULL_HANDLE;
	if (random_of(worker) % 2 == 0)
		return;
	if (vkCreateDescriptorPool(device, &info, NULL, &worker->pool))
		worker->pool = VK_NULL_HANDLE;
	else
		counts->n_pools++;
}

static void ask(void)
{
	VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
	};
	VkPhysicalDeviceMemoryProperties2 memory = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
		.pNext = &budget,
	};

	if (!can_ask)
		return;
	vkGetPhysicalDeviceMemoryProperties2(physical, &memory);
	counts->n_asked++;
	for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; i++)
		if (budget.heapBudget[i] == 0 ||
		    budget.heapBudget[i] > memory.memoryProperties.memoryHeaps[i].size)
			wrong(__LINE__);
}

/* ---- The program ---- */

static void *work(void *argument)
{
	struct worker *worker = argument;
	uint64_t n_left = 2000 + random_of(worker) % 100000;

	while (n_left-- > 0) {
		uint64_t random = random_of(worker);
		VkDeviceMemory *slot = &worker->slots[(random >> 8) % N_SLOTS];

		switch (random % 64) {
		case 0:
			export_one(worker, slot);
			break;
		case 1:
		case 2:
			import_one(slot);
			break;
		case 3:
			swap_pool(worker);
			break;
		case 4:
			ask();
			break;
		case 5:
		case 6:
		case 7:
		case 8:
			usleep((useconds_t)(random >> 20) % 40000);
			break;
		default:
			swap(worker, slot);
			break;
		}
	}
	return NULL;
}

static void free_all(struct worker *worker)
{
	for (unsigned int i = 0; i < N_SLOTS; i++)
		vkFreeMemory(device, worker->slots[i], NULL);
	vkDestroyDescriptorPool(device, worker->pool, NULL);
}

int main(int argc, char **argv)
{
	struct worker workers[N_THREADS] = {{0}};
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) | 1 : 1;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	most_bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : 16) << 20;
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED,
		      LEASE_RANDOM_COUNTS_FD, 0);
	if (counts == MAP_FAILED)
		return 2;
	make_instance();
	make_device();
	for (unsigned int i = 0; i < N_THREADS; i++) {
		workers[i].seed = seed + i * 0x9e3779b97f4a7c15u;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			return 2;
	}
	for (unsigned int i = 0; i < N_THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	counts->n_ended++;
	/* Half of the programs exit without cleaning up, as llama.cpp does. */
	if (seed % 4 < 2)
		_exit(0);
	for (unsigned int i = 0; i < N_THREADS; i++)
		free_all(&workers[i]);
	vkDestroyDevice(device, NULL);
	vkDestroyInstance(instance, NULL);
	return 0;
}
