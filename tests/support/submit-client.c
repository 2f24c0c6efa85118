/* SPDX-License-Identifier: MIT */
/*
 * A Vulkan program that keeps a device busy, and tells how long its submissions took
 *
 *     submit-client GROUPS[xDISPATCHES][a][w] DEPTH [PERIOD_US]
 *
 * Each submission dispatches GROUPS workgroups of an empty shader, or does so DISPATCHES times and
 * is recorded anew each time. With "a" the shader has an atomic operation, with "w" each recording
 * first sets state of drawing: the layer of leases divides neither. DEPTH of them are under way at
 * a time; with PERIOD_US one begins each so many microseconds, and DEPTH is 1. With a DEPTH of 0,
 * two queues wait for each other's semaphores and for the host, which signals after it has
 * submitted; with a negative one, that many submissions wait for the host.
 *
 * It prints "ready", and reads lines: "report" prints the submissions that ended since the last
 * report and the p50, p99 and longest times from submission to end, in microseconds. It ends with
 * its standard input.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <volk.h>

enum { MAX_DEPTH = 64, MAX_TIMES = 1 << 16 };

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

/* The same with shared uint n; main() { atomicAdd(n, 1); } */
static const uint32_t atomic_shader[] = {
	0x07230203, 0x00010000, 0, 11, 0,
	/* OpCapability Shader; OpMemoryModel Logical GLSL450 */
	0x00020011, 1, 0x0003000e, 0, 1,
	/* OpEntryPoint GLCompute %1 "main"; OpExecutionMode %1 LocalSize 1 1 1 */
	0x0005000f, 5, 1, 0x6e69616d, 0, 0x00060010, 1, 17, 1, 1, 1,
	/* %2 = void; %3 = void(); %5 = uint; %6 = pointer to shared uint; %7 = n; %8 = 1; %9 = 0 */
	0x00020013, 2, 0x00030021, 3, 2, 0x00040015, 5, 32, 0, 0x00040020, 6, 4, 5, 0x0004003b, 6,
	7, 4, 0x0004002b, 5, 8, 1, 0x0004002b, 5, 9, 0,
	/* %1 = function; %4: label, atomic addition, return, end */
	0x00050036, 2, 1, 0, 3, 0x000200f8, 4, 0x000700ea, 5, 10, 7, 8, 9, 8, 0x000100fd,
	0x00010038};

/* A queue with recorded commands. */
struct stream {
	uint32_t family; /* 0: it can draw, too */
	VkQueue queue;
	VkCommandPool pool;
	VkCommandBuffer commands[MAX_DEPTH];
	VkSemaphore timeline;
	uint64_t value;
};

static struct VolkDeviceTable vk;
static VkDevice device;
static VkInstance instance;
static VkShaderModule shader;
static VkPipelineLayout layout;
static VkPipeline pipeline;
static struct stream streams[2];
static uint32_t n_groups, n_dispatches, depth, n_late; /* n_dispatches 0: recorded once */
static bool is_atomic, sets_state;
static uint64_t period_us;
static atomic_bool must_end;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double times_us[MAX_TIMES];
static size_t n_times, n_ends;

static void expect(VkResult result, const char *what)
{
	if (result == VK_SUCCESS)
		return;
	printf("failed: %s: %d\n", what, result);
	fflush(stdout);
	exit(1);
}
#define EXPECT(call) expect(call, #call)

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static void sleep_until(uint64_t us)
{
	const struct timespec time = {.tv_sec = (time_t)(us / 1000000u),
				      .tv_nsec = (long)(us % 1000000u * 1000u)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static void make_pipeline(void)
{
	const VkShaderModuleCreateInfo code = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
		.codeSize = is_atomic ? sizeof(atomic_shader) : sizeof(empty_shader),
		.pCode = is_atomic ? atomic_shader : empty_shader,
	};
	const VkPipelineLayoutCreateInfo no_layout = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
	};
	VkComputePipelineCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
		.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT,
		.stage.pName = "main",
	};

	EXPECT(vk.vkCreateShaderModule(device, &code, NULL, &shader));
	EXPECT(vk.vkCreatePipelineLayout(device, &no_layout, NULL, &layout));
	info.stage.module = shader;
	info.layout = layout;
	EXPECT(vk.vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline));
}

static void record(const struct stream *stream, VkCommandBuffer commands,
		   VkCommandBufferUsageFlags flags)
{
	const VkCommandBufferBeginInfo begin = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
		.flags = flags,
	};

	EXPECT(vk.vkBeginCommandBuffer(commands, &begin));
	if (sets_state && stream->family == 0)
		vk.vkCmdSetLineWidth(commands, 1);
	vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
	for (uint32_t i = 0; i < n_dispatches || i == 0; i++)
		vk.vkCmdDispatch(commands, n_groups, 1, 1);
	EXPECT(vk.vkEndCommandBuffer(commands));
}

static void stream_init(struct stream *stream, uint32_t family)
{
	const VkCommandPoolCreateInfo pool = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
		.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
		.queueFamilyIndex = family,
	};
	const VkSemaphoreTypeCreateInfo type = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
		.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
	};
	const VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
						 .pNext = &type};
	VkCommandBufferAllocateInfo allocate = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		.commandBufferCount = MAX_DEPTH,
	};

	stream->family = family;
	vk.vkGetDeviceQueue(device, family, 0, &stream->queue);
	EXPECT(vk.vkCreateCommandPool(device, &pool, NULL, &stream->pool));
	allocate.commandPool = stream->pool;
	EXPECT(vk.vkAllocateCommandBuffers(device, &allocate, stream->commands));
	record(stream, stream->commands[0], VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT);
	EXPECT(vk.vkCreateSemaphore(device, &semaphore, NULL, &stream->timeline));
}

static void device_init(void)
{
	const VkApplicationInfo application = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.apiVersion = VK_API_VERSION_1_3,
	};
	const VkInstanceCreateInfo about_instance = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &application,
	};
	const float priority = 1;
	VkPhysicalDeviceVulkan12Features features = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
		.timelineSemaphore = VK_TRUE,
	};
	VkDeviceQueueCreateInfo queues[2];
	VkDeviceCreateInfo about = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.pNext = &features,
		.queueCreateInfoCount = 2,
		.pQueueCreateInfos = queues,
	};
	VkPhysicalDevice physical;
	uint32_t n = 1;

	for (uint32_t i = 0; i < 2; i++)
		queues[i] = (VkDeviceQueueCreateInfo){
			.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
			.queueFamilyIndex = i,
			.queueCount = 1,
			.pQueuePriorities = &priority,
		};
	EXPECT(volkInitialize());
	EXPECT(vkCreateInstance(&about_instance, NULL, &instance));
	volkLoadInstance(instance);
	vkEnumeratePhysicalDevices(instance, &n, &physical);
	EXPECT(n == 1 ? VK_SUCCESS : VK_ERROR_INITIALIZATION_FAILED);
	EXPECT(vkCreateDevice(physical, &about, NULL, &device));
	volkLoadDeviceTable(&vk, device);
	make_pipeline();
	for (uint32_t i = 0; i < 2; i++)
		stream_init(&streams[i], i);
}

static void note_end(uint64_t begin_us)
{
	pthread_mutex_lock(&lock);
	n_ends++;
	if (n_times < MAX_TIMES)
		times_us[n_times++] = (double)(now_us() - begin_us);
	pthread_mutex_unlock(&lock);
}

/* Submit the stream's commands once @after has the value @value; they increment the timeline. */
static void submit(struct stream *stream, const struct stream *after, uint64_t value, VkFence fence)
{
	const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
	const uint64_t signalled = ++stream->value;
	VkCommandBuffer *commands = &stream->commands[n_dispatches ? signalled % depth : 0];
	const VkTimelineSemaphoreSubmitInfo values = {
		.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
		.waitSemaphoreValueCount = after != NULL,
		.pWaitSemaphoreValues = &value,
		.signalSemaphoreValueCount = 1,
		.pSignalSemaphoreValues = &signalled,
	};
	const VkSubmitInfo info = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.pNext = &values,
		.waitSemaphoreCount = after != NULL,
		.pWaitSemaphores = after ? &after->timeline : NULL,
		.pWaitDstStageMask = &stage,
		.commandBufferCount = 1,
		.pCommandBuffers = commands,
		.signalSemaphoreCount = 1,
		.pSignalSemaphores = &stream->timeline,
	};

	if (n_dispatches > 0)
		record(stream, *commands, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
	EXPECT(vk.vkQueueSubmit(stream->queue, 1, &info, fence));
}

static void await_value(const struct stream *stream, uint64_t value)
{
	const VkSemaphoreWaitInfo wait = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
		.semaphoreCount = 1,
		.pSemaphores = &stream->timeline,
		.pValues = &value,
	};

	EXPECT(vk.vkWaitSemaphores(device, &wait, UINT64_MAX));
}

static void run_busy(void)
{
	struct stream *stream = &streams[sets_state ? 0 : 1];
	uint64_t begin_us[MAX_DEPTH], next_us = now_us();

	while (!atomic_load(&must_end)) {
		if (period_us > 0) {
			next_us += period_us;
			sleep_until(next_us);
		}
		if (period_us == 0 && stream->value >= depth) {
			await_value(stream, stream->value + 1 - depth);
			note_end(begin_us[(stream->value + 1) % depth]);
		}
		begin_us[(stream->value + 1) % depth] = now_us();
		submit(stream, NULL, 0, VK_NULL_HANDLE);
		if (period_us == 0)
			continue;
		await_value(stream, stream->value);
		note_end(begin_us[stream->value % depth]);
	}
}

/*
 * The first queue waits for the second one, which waits for the host; or the second one alone has
 * many submissions that do.
 */
static void run_waiting(void)
{
	const VkSemaphoreTypeCreateInfo type = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
		.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
	};
	const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
					    .pNext = &type};
	struct stream host = {.value = 0};

	EXPECT(vk.vkCreateSemaphore(device, &info, NULL, &host.timeline));
	while (!atomic_load(&must_end)) {
		const uint64_t begin_us = now_us();
		const VkSemaphoreSignalInfo signal = {
			.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO,
			.semaphore = host.timeline,
			.value = ++host.value,
		};

		if (n_late == 0)
			submit(&streams[0], &streams[1], streams[1].value + 1, VK_NULL_HANDLE);
		submit(&streams[1], &host, host.value, VK_NULL_HANDLE);
		for (uint32_t i = 1; i < n_late; i++)
			submit(&streams[1], &host, host.value, VK_NULL_HANDLE);
		EXPECT(vk.vkSignalSemaphore(device, &signal));
		for (uint32_t i = 0; i < 2; i++)
			await_value(&streams[i], streams[i].value);
		note_end(begin_us);
	}
	vk.vkDestroySemaphore(device, host.timeline, NULL);
}

static void *run(void *unused)
{
	if (depth == 0)
		run_waiting();
	else
		run_busy();
	return NULL;
}

static int by_time(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void report(void)
{
	pthread_mutex_lock(&lock);
	qsort(times_us, n_times, sizeof(*times_us), by_time);
	printf("%zu %.0f %.0f %.0f\n", n_ends, n_times ? times_us[n_times / 2] : 0,
	       n_times ? times_us[n_times * 99 / 100] : 0, n_times ? times_us[n_times - 1] : 0);
	fflush(stdout);
	n_times = n_ends = 0;
	pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
	pthread_t thread;
	char line[64];

	if (argc < 3 || argc > 4)
		return 2;
	n_groups = (uint32_t)atoi(argv[1]);
	n_dispatches = strchr(argv[1], 'x') ? (uint32_t)atoi(strchr(argv[1], 'x') + 1) : 0;
	is_atomic = strchr(argv[1], 'a');
	sets_state = strchr(argv[1], 'w');
	n_late = atoi(argv[2]) < 0 ? (uint32_t)-atoi(argv[2]) : 0;
	depth = n_late > 0 ? 0 : (uint32_t)atoi(argv[2]);
	period_us = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	if (depth > MAX_DEPTH || (depth == 0 && n_dispatches > 0))
		return 2;
	device_init();
	if (pthread_create(&thread, NULL, run, NULL))
		return 1;
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		report();
	atomic_store(&must_end, true);
	pthread_join(thread, NULL);
	EXPECT(vk.vkDeviceWaitIdle(device));
	for (uint32_t i = 0; i < 2; i++) {
		vk.vkDestroySemaphore(device, streams[i].timeline, NULL);
		vk.vkDestroyCommandPool(device, streams[i].pool, NULL);
	}
	vk.vkDestroyPipeline(device, pipeline, NULL);
	vk.vkDestroyPipelineLayout(device, layout, NULL);
	vk.vkDestroyShaderModule(device, shader, NULL);
	vk.vkDestroyDevice(device, NULL);
	vkDestroyInstance(instance, NULL);
	printf("ended\n");
	return 0;
}
