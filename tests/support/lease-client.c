/* SPDX-License-Identifier: MIT */
/*
 * A Vulkan program that allocates, exports, imports and frees on command
 *
 * Tests run it under the layer; it knows nothing of leases. It reads one command per line from
 * standard input and answers each with a line, so that tests can inspect the broker in between.
 * Sizes are bytes; "slot" numbers allocations in the order in which they were made. The program
 * prints each heap's size, budget and usage, and whether the heap is device-local.
 *
 * LEASE_CLIENT_DRIVER names a driver's library, which is then used without the loader.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <volk.h>

enum { MAX_SLOTS = 16384, MAX_DEVICES = 16, MAX_THREADS = 64, MAX_WORDS = 16, MAX_PHYSICAL = 8 };

struct made {
	VkInstance instance;
	VkPhysicalDevice physical;
	VkDevice device;
	struct VolkDeviceTable vk;
	bool has_fd, has_host;
};

static struct made devices[MAX_DEVICES];
static unsigned int n_devices;
static struct made *now; /* device that commands address */
static bool is_child;

/* Objects for which drivers allocate memory; either may be VK_NULL_HANDLE. */
static struct taken {
	struct made *made;
	VkCommandPool commands;
	VkDescriptorPool descriptors;
} taken;

static struct slot {
	VkDeviceMemory memory;
	struct made *made;
} slots[MAX_SLOTS];
static unsigned int n_slots;

static int parked[2]; /* both ends of a socket pair; 0: none */
static void *mapped;
static size_t mapped_bytes;

static unsigned long n_allocator_calls;

static void *count_alloc(void *data, size_t bytes, size_t align, VkSystemAllocationScope scope)
{
	void *memory = NULL;

	__atomic_fetch_add(&n_allocator_calls, 1, __ATOMIC_RELAXED);
	return posix_memalign(&memory, align < 8 ? 8 : align, bytes) ? NULL : memory;
}

static void *count_realloc(void *data, void *original, size_t bytes, size_t align,
			   VkSystemAllocationScope scope)
{
	return realloc(original, bytes);
}

static void count_free(void *data, void *memory)
{
	free(memory);
}

static const VkAllocationCallbacks counting = {
	.pfnAllocation = count_alloc,
	.pfnReallocation = count_realloc,
	.pfnFree = count_free,
};
static const VkAllocationCallbacks *allocator;

/* ---- Devices ---- */

static bool has_extension(VkPhysicalDevice physical, const char *name)
{
	VkExtensionProperties *list;
	uint32_t n = 0;
	bool has = false;

	vkEnumerateDeviceExtensionProperties(physical, NULL, &n, NULL);
	list = calloc(n + 1, sizeof(*list));
	vkEnumerateDeviceExtensionProperties(physical, NULL, &n, list);
	for (uint32_t i = 0; i < n; i++)
		has |= strcmp(list[i].extensionName, name) == 0;
	free(list);
	return has;
}

static VkResult make_instance(struct made *made, uint32_t version, uint32_t index)
{
	VkPhysicalDevice physical[MAX_PHYSICAL];
	VkApplicationInfo application = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.pApplicationName = "lease-client",
		.apiVersion = version,
	};
	VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &application,
	};
	uint32_t n = MAX_PHYSICAL;
	VkResult result = vkCreateInstance(&info, NULL, &made->instance);

	if (result)
		return result;
	volkLoadInstance(made->instance);
	result = vkEnumeratePhysicalDevices(made->instance, &n, physical);
	if (result < 0)
		return result;
	if (index >= n)
		return VK_ERROR_INITIALIZATION_FAILED;
	made->physical = physical[index];
	return VK_SUCCESS;
}

static VkResult make_device(struct made *made)
{
	static const char *const wanted[] = {"VK_EXT_memory_budget", "VK_KHR_external_memory_fd",
					     "VK_EXT_external_memory_host"};
	const char *names[3];
	float priority = 1;
	VkDeviceQueueCreateInfo queue = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
		.queueCount = 1,
		.pQueuePriorities = &priority,
	};
	VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.queueCreateInfoCount = 1,
		.pQueueCreateInfos = &queue,
		.ppEnabledExtensionNames = names,
	};
	VkResult result;

	for (unsigned int i = 0; i < 3; i++)
		if (has_extension(made->physical, wanted[i]))
			names[info.enabledExtensionCount++] = wanted[i];
	result = vkCreateDevice(made->physical, &info, NULL, &made->device);
	if (result)
		return result;
	volkLoadDeviceTable(&made->vk, made->device);
	made->has_fd = made->vk.vkGetMemoryFdKHR;
	return VK_SUCCESS;
}

/*
 * Make a device and print the answer.
 * Return: the device, or NULL.
 */
static struct made *add_device(const struct made *of, uint32_t version, uint32_t index)
{
	struct made *made = &devices[n_devices];
	VkResult result = VK_SUCCESS;

	memset(made, 0, sizeof(*made));
	if (of) {
		made->instance = of->instance;
		made->physical = of->physical;
	} else {
		result = make_instance(made, version, index);
	}
	if (!result)
		result = make_device(made);
	printf("device %u: result=%d\n", n_devices, result);
	if (result)
		return NULL;
	n_devices++;
	return made;
}

/* ---- Memory ---- */

static VkResult allocate(struct made *made, uint64_t bytes, uint32_t type, const void *next,
			 VkDeviceMemory *ret)
{
	VkMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		.pNext = next,
		.allocationSize = bytes,
		.memoryTypeIndex = type,
	};

	return made->vk.vkAllocateMemory(made->device, &info, allocator, ret);
}

static VkResult keep(uint64_t bytes, uint32_t type, const void *next)
{
	VkResult result;

	if (n_slots == MAX_SLOTS)
		return VK_ERROR_TOO_MANY_OBJECTS;
	result = allocate(now, bytes, type, next, &slots[n_slots].memory);
	if (!result)
		slots[n_slots++].made = now;
	return result;
}

static void release(unsigned int slot)
{
	if (slots[slot].memory)
		slots[slot].made->vk.vkFreeMemory(slots[slot].made->device, slots[slot].memory,
						  allocator);
	slots[slot].memory = VK_NULL_HANDLE;
}

static void release_all(void)
{
	for (; n_slots > 0; n_slots--)
		release(n_slots - 1);
}

static void tell_budget(void)
{
	VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
	};
	VkPhysicalDeviceMemoryProperties2 memory = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
		.pNext = &budget,
	};
	VkPhysicalDeviceMemoryProperties old;

	vkGetPhysicalDeviceMemoryProperties2(now->physical, &memory);
	vkGetPhysicalDeviceMemoryProperties(now->physical, &old);
	printf("budget:");
	for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; i++)
		printf(" %" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%d,%d",
		       memory.memoryProperties.memoryHeaps[i].size, budget.heapBudget[i],
		       budget.heapUsage[i], memory.memoryProperties.memoryHeaps[i].flags & 1,
		       memory.memoryProperties.memoryHeaps[i].size == old.memoryHeaps[i].size);
	printf("\n");
}

static VkExternalMemoryHandleTypeFlagBits fd_type(void)
{
	const char *text = getenv("LEASE_CLIENT_DMA_BUF");

	return text ? VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT
		    : VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
}

static VkResult export_slot(unsigned int slot, int *ret_fd)
{
	VkMemoryGetFdInfoKHR info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
		.memory = slots[slot].memory,
		.handleType = fd_type(),
	};
	struct made *made = slots[slot].made;

	return made->vk.vkGetMemoryFdKHR(made->device, &info, ret_fd);
}

static VkResult keep_exportable(uint64_t bytes)
{
	VkExportMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
		.handleTypes = fd_type(),
	};

	return keep(bytes, 0, &info);
}

static VkResult keep_import(uint64_t bytes, int fd)
{
	VkImportMemoryFdInfoKHR info = {
		.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
		.handleType = fd_type(),
		.fd = fd,
	};

	return keep(bytes, 0, &info);
}

/*
 * Export, free and import up to @n times. A layer that does not count imported memory would give
 * memory away.
 */
static void launder(uint64_t bytes, unsigned int n)
{
	VkResult result = VK_SUCCESS;
	unsigned int done = 0;
	int fd;

	while (done < n) {
		result = keep_exportable(bytes);
		if (!result)
			result = export_slot(n_slots - 1, &fd);
		if (result)
			break;
		release(--n_slots);
		result = keep_import(bytes, fd);
		if (result)
			break;
		done++;
	}
	printf("launder: n=%u result=%d\n", done, result);
}

/* Send a descriptor to this program itself, so that only a message in flight refers to the file. */
static void park(int fd)
{
	char control[CMSG_SPACE(sizeof(fd))] = {0};
	struct iovec part = {(char[]){0}, 1};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	if (parked[0] == 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, parked))
		abort();
	*header = (struct cmsghdr){CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	printf("park: %zd\n", sendmsg(parked[0], &message, 0));
	close(fd);
}

/* Drop the messages in flight. */
static void unpark(void)
{
	close(parked[0]);
	close(parked[1]);
	parked[0] = 0;
	printf("unpark: ok\n");
}

/* Map the file and close its descriptor. */
static void map(int fd, size_t bytes)
{
	if (mapped)
		munmap(mapped, mapped_bytes);
	mapped = fd < 0 ? NULL : mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	mapped_bytes = bytes;
	if (fd >= 0)
		close(fd);
	printf("map: %d\n", mapped != MAP_FAILED);
}

static void import_host(uint64_t bytes, unsigned int n)
{
	VkImportMemoryHostPointerInfoEXT info = {
		.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
		.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
	};
	VkResult result = VK_SUCCESS;
	unsigned int done = 0;

	for (; done < n && !result; done += !result) {
		info.pHostPointer = aligned_alloc(1 << 16, bytes);
		result = keep(bytes, 0, &info);
	}
	printf("host: n=%u result=%d\n", done, result);
}

/* ---- Allocations by drivers themselves ---- */

static VkResult take_commands(uint32_t n)
{
	const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
	const VkCommandBufferBeginInfo begin = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
	};
	VkCommandBufferAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.commandBufferCount = 1,
	};
	VkResult result = now->vk.vkCreateCommandPool(now->device, &pool, NULL, &taken.commands);

	info.commandPool = taken.commands;
	for (uint32_t i = 0; i < n && !result; i++) {
		VkCommandBuffer buffer;

		result = now->vk.vkAllocateCommandBuffers(now->device, &info, &buffer);
		if (!result)
			result = now->vk.vkBeginCommandBuffer(buffer, &begin);
		if (!result)
			result = now->vk.vkEndCommandBuffer(buffer);
	}
	return result;
}

static VkResult take_descriptors(uint32_t n)
{
	const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, n};
	const VkDescriptorPoolCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
		.maxSets = 1,
		.poolSizeCount = 1,
		.pPoolSizes = &size,
	};

	return now->vk.vkCreateDescriptorPool(now->device, &info, NULL, &taken.descriptors);
}

static void take(const char *what, uint32_t n)
{
	taken.made = now;
	printf("take: result=%d\n",
	       strcmp(what, "commands") == 0 ? take_commands(n) : take_descriptors(n));
}

static void give_back(void)
{
	const struct made *made = taken.made;

	if (!made)
		return;
	made->vk.vkDestroyCommandPool(made->device, taken.commands, NULL);
	made->vk.vkDestroyDescriptorPool(made->device, taken.descriptors, NULL);
	taken = (struct taken){.made = NULL};
}

/* ---- Threads ---- */

struct worker {
	pthread_t thread;
	uint64_t seed, bytes;
	unsigned int rounds, n_refused;
};

/* Allocate and free at random, some 16 allocations at a time, each of up to @bytes. */
static void *work(void *argument)
{
	struct worker *worker = argument;
	VkDeviceMemory held[16] = {0};

	for (unsigned int i = 0; i < worker->rounds; i++) {
		VkDeviceMemory *at;

		worker->seed = worker->seed * 6364136223846793005u + 1442695040888963407u;
		at = &held[worker->seed >> 60];
		if (*at) {
			now->vk.vkFreeMemory(now->device, *at, NULL);
			*at = VK_NULL_HANDLE;
		} else if (allocate(now, (worker->seed >> 20) % worker->bytes + 1, 0, NULL, at)) {
			*at = VK_NULL_HANDLE;
			worker->n_refused++;
		}
	}
	for (unsigned int i = 0; i < 16; i++)
		now->vk.vkFreeMemory(now->device, held[i], NULL);
	return NULL;
}

static void start_threads(struct worker *workers, unsigned int n, unsigned int rounds,
			  uint64_t bytes)
{
	for (unsigned int i = 0; i < n; i++) {
		workers[i] = (struct worker){.seed = i + 1, .bytes = bytes, .rounds = rounds};
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
}

static void join_threads(const struct worker *workers, unsigned int n)
{
	unsigned int n_refused = 0;

	for (unsigned int i = 0; i < n; i++) {
		pthread_join(workers[i].thread, NULL);
		n_refused += workers[i].n_refused;
	}
	printf("threads: refused=%u\n", n_refused);
}

static void run_threads(unsigned int n, unsigned int rounds, uint64_t bytes)
{
	struct worker workers[MAX_THREADS];

	start_threads(workers, n, rounds, bytes);
	join_threads(workers, n);
}

struct late {
	unsigned int slot, ms;
};

static void *free_late(void *argument)
{
	struct late *late = argument;

	usleep(late->ms * 1000);
	release(late->slot);
	return NULL;
}

/* Free a slot from another thread while this thread allocates. */
static void allocate_while_freeing(uint64_t bytes, unsigned int slot, unsigned int ms)
{
	struct late late = {slot, ms};
	pthread_t thread;
	VkResult result;

	pthread_create(&thread, NULL, free_late, &late);
	result = keep(bytes, 0, NULL);
	pthread_join(thread, NULL);
	printf("while-freeing: result=%d\n", result);
}

/* ---- The driver without the loader ---- */

/*
 * Load a driver as the loader does: a driver serves only callers that have negotiated an interface
 * version with it.
 * Return: its vkGetInstanceProcAddr(), or NULL if the library is no driver.
 */
static PFN_vkGetInstanceProcAddr load_driver(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	VkResult(VKAPI_PTR * negotiate)(uint32_t *) = NULL;
	PFN_vkGetInstanceProcAddr get = NULL;
	uint32_t version = 5;

	if (library) {
		*(void **)&negotiate = dlsym(library, "vk_icdNegotiateLoaderICDInterfaceVersion");
		*(void **)&get = dlsym(library, "vk_icdGetInstanceProcAddr");
	}
	return negotiate && get && !negotiate(&version) ? get : NULL;
}

/*
 * Print the device-local bytes that the driver itself reports for this process, on its first
 * device, past all layers. The driver is the one that this process uses already; its counts cover
 * all instances.
 */
static void tell_driver(const char *path)
{
	const VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo =
			&(VkApplicationInfo){.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
					     .apiVersion = VK_API_VERSION_1_2},
	};
	PFN_vkGetInstanceProcAddr get = load_driver(path);
	PFN_vkCreateInstance create =
		get ? (PFN_vkCreateInstance)get(NULL, "vkCreateInstance") : NULL;
	VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
	};
	VkPhysicalDeviceMemoryProperties2 memory = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
		.pNext = &budget,
	};
	VkInstance instance;
	VkPhysicalDevice physical;
	uint64_t bytes = 0;
	uint32_t n = 1;

	if (!create || create(&info, NULL, &instance)) {
		printf("driver: none\n");
		return;
	}
#define OF_INSTANCE(name) ((PFN_##name)get(instance, #name))
	if (OF_INSTANCE(vkEnumeratePhysicalDevices)(instance, &n, &physical) >= 0 && n > 0)
		OF_INSTANCE(vkGetPhysicalDeviceMemoryProperties2)(physical, &memory);
	for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; i++)
		if (memory.memoryProperties.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
			bytes += budget.heapUsage[i];
	OF_INSTANCE(vkDestroyInstance)(instance, NULL);
#undef OF_INSTANCE
	printf("driver: bytes=%" PRIu64 "\n", bytes);
}

/* ---- Commands ---- */

static void repeat(const char *name, uint64_t bytes, unsigned int n, uint32_t type, bool exportable)
{
	VkResult result = VK_SUCCESS;
	unsigned int done = 0;

	for (; done < n && !result; done += !result)
		result = exportable ? keep_exportable(bytes) : keep(bytes, type, NULL);
	printf("%s: n=%u result=%d\n", name, done, result);
}

static void destroy(struct made *made)
{
	made->vk.vkDestroyDevice(made->device, NULL);
	vkDestroyInstance(made->instance, NULL);
	made->device = VK_NULL_HANDLE;
}

/* Let a child run the remaining commands, and wait for it. */
static void in_child(void)
{
	pid_t pid;
	int status = 0;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		is_child = true;
		printf("child\n");
		return;
	}
	waitpid(pid, &status, 0);
	printf("parent: status=%d\n", status);
}

/* Do as in_child() while other threads work. */
static void in_child_of_threads(unsigned int n, unsigned int rounds, uint64_t bytes)
{
	struct worker workers[MAX_THREADS];

	start_threads(workers, n, rounds, bytes);
	in_child();
	if (!is_child)
		join_threads(workers, n);
}

static bool obey(unsigned int n, char **words)
{
	const char *name = words[0];
	uint64_t a = n > 1 ? strtoull(words[1], NULL, 10) : 0;
	uint64_t b = n > 2 ? strtoull(words[2], NULL, 10) : 0;
	uint64_t c = n > 3 ? strtoull(words[3], NULL, 10) : 0;
	int fd = -1;

	if (!strcmp(name, "pid")) {
		printf("pid: n=%d\n", getpid());
	} else if (!strcmp(name, "device")) {
		now = add_device(NULL,
				 a ? VK_MAKE_API_VERSION(0, 1, (uint32_t)a - 1, 0)
				   : VK_API_VERSION_1_2,
				 (uint32_t)b);
	} else if (!strcmp(name, "sibling")) {
		now = add_device(now, 0, 0);
	} else if (!strcmp(name, "quit")) {
		return false;
	} else if (!strcmp(name, "fork")) {
		in_child();
	} else if (!strcmp(name, "fork-threads")) {
		in_child_of_threads((unsigned int)a, (unsigned int)b, c);
	} else if (!now) {
		printf("no device\n");
	} else if (!strcmp(name, "use")) {
		now = &devices[a];
		printf("use: ok\n");
	} else if (!strcmp(name, "take") && n > 2) {
		take(words[1], (uint32_t)b);
	} else if (!strcmp(name, "give-back")) {
		give_back();
		printf("give-back: ok\n");
	} else if (!strcmp(name, "driver") && n > 1) {
		tell_driver(words[1]);
	} else if (!strcmp(name, "budget")) {
		tell_budget();
	} else if (!strcmp(name, "extension")) {
		printf("extension: %d\n", has_extension(now->physical, words[1]));
	} else if (!strcmp(name, "alloc")) {
		repeat("alloc", a, n > 2 ? (unsigned int)b : 1, (uint32_t)c, false);
	} else if (!strcmp(name, "exportable")) {
		repeat("exportable", a, n > 2 ? (unsigned int)b : 1, 0, true);
	} else if (!strcmp(name, "free")) {
		release((unsigned int)a % MAX_SLOTS);
		printf("free: ok\n");
	} else if (!strcmp(name, "free-null")) {
		now->vk.vkFreeMemory(now->device, VK_NULL_HANDLE, NULL);
		printf("free-null: ok\n");
	} else if (!strcmp(name, "free-all")) {
		release_all();
		printf("free-all: ok\n");
	} else if (!strcmp(name, "export")) {
		VkResult result = export_slot((unsigned int)a, &fd);

		printf("export: result=%d fd=%d\n", result, fd);
	} else if (!strcmp(name, "import")) {
		VkResult result = keep_import(a, (int)b);

		printf("import: result=%d\n", result);
	} else if (!strcmp(name, "dup")) {
		printf("dup: fd=%d\n", fcntl((int)a, F_DUPFD_CLOEXEC, 3));
	} else if (!strcmp(name, "close")) {
		printf("close: %d\n", close((int)a));
	} else if (!strcmp(name, "park")) {
		park((int)a);
	} else if (!strcmp(name, "unpark")) {
		unpark();
	} else if (!strcmp(name, "map")) {
		map((int)a, b);
	} else if (!strcmp(name, "unmap")) {
		map(-1, 0);
	} else if (!strcmp(name, "launder")) {
		launder(a, (unsigned int)b);
	} else if (!strcmp(name, "host")) {
		import_host(a, (unsigned int)b);
	} else if (!strcmp(name, "threads")) {
		run_threads((unsigned int)a, (unsigned int)b, c);
	} else if (!strcmp(name, "while-freeing")) {
		allocate_while_freeing(a, (unsigned int)b, (unsigned int)c);
	} else if (!strcmp(name, "allocator")) {
		allocator = a ? &counting : NULL;
		printf("allocator: calls=%lu\n", n_allocator_calls);
	} else if (!strcmp(name, "destroy")) {
		destroy(now);
		printf("destroy: ok\n");
	} else if (!strcmp(name, "abandon")) {
		n_slots = 0;
		printf("abandon: ok\n");
	} else {
		printf("unknown: %s\n", name);
	}
	return true;
}

int main(void)
{
	const char *driver = getenv("LEASE_CLIENT_DRIVER");
	PFN_vkGetInstanceProcAddr get = NULL;
	char line[256];
	bool more = true;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (driver && (get = load_driver(driver)))
		volkInitializeCustom(get);
	if (driver ? !get : volkInitialize() != VK_SUCCESS) {
		printf("no Vulkan\n");
		return 77;
	}
	while (more && fgets(line, sizeof(line), stdin)) {
		char *words[MAX_WORDS], *rest = line;
		unsigned int n = 0;

		while (n < MAX_WORDS && (words[n] = strtok_r(rest, " \n", &rest)))
			n++;
		if (n > 0)
			more = obey(n, words);
	}
	/* Skip the exit handlers of a driver whose threads exist only in the parent. */
	if (is_child)
		_exit(0);
	return 0;
}
