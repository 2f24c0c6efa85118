/* SPDX-License-Identifier: MIT */
/*
 * A Vulkan program of time-lease: see lease-program.h.
 *
 * It does what programs that compute do: for each dispatch it binds a pipeline and a descriptor
 * set, pushes constants, and lets the next dispatch wait for this one; it records each command
 * buffer for one submission, and resets the pool before it records again. The shader is empty: its
 * workgroups take whatever time the device needs to begin and end them.
 */
#include "lease-program.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <volk.h>

#include "lease-layer.h"
#include "samples.h"
#include "util/clock.h"

enum {
	DEPTH = 3,     /* submissions under way, for a rate */
	BUFFERS = 64,  /* command buffers of the first pool, for LEASE_PARTS */
	MAX_X = 32768, /* workgroups along one axis; devices have at least 65535 */
	MAX_GROUPS = 1 << 28,
	PROBE_DISPATCHES = 100,
	PROBES = 3,
	PUSH_BYTES = 16,
};

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

/* A pool, and what was recorded from it. */
struct slot {
	VkCommandPool pool;
	VkCommandBuffer *buffers;
	VkFence fence;
};

/*
 * A thread that waits for the ends of submissions, in their order, as the layer's does; for a
 * program that is without the layer.
 */
struct ends {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool must_end; /* this and the next two under the lock */
	uint32_t n_begun, n_ended;
	VkFence fences[BUFFERS];
};

struct program {
	struct lease_program settings;
	int fd;
	bool is_cpu;
	VkInstance instance;
	VkPhysicalDevice physical;
	VkDevice device;
	VkQueue queue;
	VkDescriptorSetLayout set_layout;
	VkPipelineLayout layout;
	VkShaderModule module;
	VkPipeline pipelines[2];
	VkDescriptorPool descriptors;
	VkDescriptorSet set;
	struct slot slots[DEPTH];
	VkCommandBuffer buffers[DEPTH + BUFFERS - 1]; /* of all slots */
	struct ends ends;                             /* if has_ends() */
};

/* ---- Answers ---- */

/* Write all of @bytes; without a reader the process ends. */
static void put(const struct program *program, const void *data, size_t bytes)
{
	ssize_t n;

	for (; bytes > 0; bytes -= (size_t)n, data = (const char *)data + n) {
		n = send(program->fd, data, bytes, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n <= 0)
			_exit(1);
	}
}

/* End the process with a reason: @what, and the result of a call unless that is VK_SUCCESS. */
static _Noreturn void fail(const struct program *program, int error, const char *what,
			   VkResult result)
{
	struct lease_answer answer = {.error = error};
	const char *kind = program->settings.socket ? "with the layer" : "without the layer";

	if (result)
		snprintf(answer.said, sizeof(answer.said), "a program %s failed: %s: %d", kind,
			 what, result);
	else
		snprintf(answer.said, sizeof(answer.said), "%s", what);
	put(program, &answer, sizeof(answer));
	_exit(1);
}

static void expect(const struct program *program, VkResult result, const char *call)
{
	if (result != VK_SUCCESS)
		fail(program, -EPROTO, call, result);
}
/* All calls are of vkNAME(). */
#define EXPECT(name, ...) expect(program, vk##name(__VA_ARGS__), "vk" #name "()")

/* ---- The device ---- */

static void make_instance(struct program *program)
{
	static const char *const layers[] = {lease_layer_name};
	const VkApplicationInfo application = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.apiVersion = VK_API_VERSION_1_2,
	};
	const VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &application,
		.enabledLayerCount = program->settings.socket != NULL,
		.ppEnabledLayerNames = layers,
	};

	VkResult result;

	if (volkInitialize())
		fail(program, -ENODEV, "there is no Vulkan loader", VK_SUCCESS);
	result = vkCreateInstance(&info, NULL, &program->instance);
	if (result == VK_ERROR_LAYER_NOT_PRESENT)
		fail(program, -ENOENT, "the layer is not installed", VK_SUCCESS);
	if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
		fail(program, -ENODEV, "there is no Vulkan driver", VK_SUCCESS);
	expect(program, result, "vkCreateInstance()");
	volkLoadInstance(program->instance);
}

/* Choose the first GPU; without any, the first device. */
static void choose_device(struct program *program)
{
	VkPhysicalDevice physicals[16];
	uint32_t n = 16;

	if (vkEnumeratePhysicalDevices(program->instance, &n, physicals) < 0 || n == 0)
		fail(program, -ENODEV, "there is no Vulkan device", VK_SUCCESS);
	for (uint32_t i = 0; i < n; i++) {
		VkPhysicalDeviceProperties properties;
		bool is_cpu;

		vkGetPhysicalDeviceProperties(physicals[i], &properties);
		is_cpu = properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
		if (i > 0 && (is_cpu || !program->is_cpu))
			continue;
		program->physical = physicals[i];
		program->is_cpu = is_cpu;
	}
}

/* Return the first family that computes, without graphics if there is one. */
static uint32_t choose_family(const struct program *program)
{
	VkQueueFamilyProperties families[16];
	uint32_t n = 16, found = UINT32_MAX;

	vkGetPhysicalDeviceQueueFamilyProperties(program->physical, &n, families);
	for (uint32_t i = 0; i < n; i++) {
		if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT))
			continue;
		if (!(families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT))
			return i;
		if (found == UINT32_MAX)
			found = i;
	}
	if (found == UINT32_MAX)
		fail(program, -ENODEV, "the Vulkan device does not compute", VK_SUCCESS);
	return found;
}

static void make_device(struct program *program, uint32_t family)
{
	const float priority = 1;
	const VkDeviceQueueCreateInfo queue = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
		.queueFamilyIndex = family,
		.queueCount = 1,
		.pQueuePriorities = &priority,
	};
	const VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.queueCreateInfoCount = 1,
		.pQueueCreateInfos = &queue,
	};

	EXPECT(CreateDevice, program->physical, &info, NULL, &program->device);
	volkLoadDevice(program->device);
	vkGetDeviceQueue(program->device, family, 0, &program->queue);
}

static void make_pipelines(struct program *program)
{
	const VkShaderModuleCreateInfo code = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
		.codeSize = sizeof(empty_shader),
		.pCode = empty_shader,
	};
	const VkDescriptorSetLayoutBinding binding = {
		.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
		.descriptorCount = 1,
		.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
	};
	const VkDescriptorSetLayoutCreateInfo set = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
		.bindingCount = 1,
		.pBindings = &binding,
	};
	const VkPushConstantRange push = {
		.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
		.size = PUSH_BYTES,
	};
	const VkPipelineLayoutCreateInfo layout = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
		.setLayoutCount = 1,
		.pSetLayouts = &program->set_layout,
		.pushConstantRangeCount = 1,
		.pPushConstantRanges = &push,
	};
	VkComputePipelineCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
		.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT,
		.stage.pName = "main",
	};

	EXPECT(CreateDescriptorSetLayout, program->device, &set, NULL, &program->set_layout);
	EXPECT(CreatePipelineLayout, program->device, &layout, NULL, &program->layout);
	EXPECT(CreateShaderModule, program->device, &code, NULL, &program->module);
	info.stage.module = program->module;
	info.layout = program->layout;
	for (uint32_t i = 0; i < 2; i++)
		EXPECT(CreateComputePipelines, program->device, VK_NULL_HANDLE, 1, &info, NULL,
		       &program->pipelines[i]);
}

/* Make a set, which has no buffer, since the shader reads none. */
static void make_set(struct program *program)
{
	const VkDescriptorPoolSize size = {
		.type = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
		.descriptorCount = 1,
	};
	const VkDescriptorPoolCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
		.maxSets = 1,
		.poolSizeCount = 1,
		.pPoolSizes = &size,
	};
	VkDescriptorSetAllocateInfo allocate = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
		.descriptorSetCount = 1,
		.pSetLayouts = &program->set_layout,
	};

	EXPECT(CreateDescriptorPool, program->device, &info, NULL, &program->descriptors);
	allocate.descriptorPool = program->descriptors;
	EXPECT(AllocateDescriptorSets, program->device, &allocate, &program->set);
}

static void make_slot(struct program *program, struct slot *slot, uint32_t family, uint32_t n)
{
	const VkCommandPoolCreateInfo pool = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
		.flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
		.queueFamilyIndex = family,
	};
	const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
	VkCommandBufferAllocateInfo allocate = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		.commandBufferCount = n,
	};

	EXPECT(CreateCommandPool, program->device, &pool, NULL, &slot->pool);
	allocate.commandPool = slot->pool;
	EXPECT(AllocateCommandBuffers, program->device, &allocate, slot->buffers);
	EXPECT(CreateFence, program->device, &fence, NULL, &slot->fence);
}

/* ---- Submissions ---- */

/* Record @n dispatches, of which the first one is number @first. */
static void record(const struct program *program, VkCommandBuffer commands, uint32_t first,
		   uint32_t n, uint32_t n_groups)
{
	const VkCommandBufferBeginInfo begin = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
		.flags = program->settings.is_recorded_once
				 ? 0
				 : VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
	};
	const VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_SHADER_READ_BIT,
	};
	const uint32_t x = n_groups < MAX_X ? n_groups : MAX_X;

	EXPECT(BeginCommandBuffer, commands, &begin);
	for (uint32_t i = first; i < first + n; i++) {
		const uint32_t constants[PUSH_BYTES / sizeof(uint32_t)] = {i, n_groups};

		vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
				  program->pipelines[i % 2]);
		vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, program->layout,
					0, 1, &program->set, 0, NULL);
		vkCmdPushConstants(commands, program->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
				   PUSH_BYTES, constants);
		vkCmdDispatch(commands, x, n_groups / x, 1);
		vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
				     VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &barrier, 0, NULL,
				     0, NULL);
	}
	EXPECT(EndCommandBuffer, commands);
}

static void reset(const struct program *program, const struct slot *slot)
{
	EXPECT(ResetCommandPool, program->device, slot->pool, 0);
}

static void submit(const struct program *program, VkCommandBuffer commands, VkFence fence)
{
	const VkSubmitInfo info = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.commandBufferCount = 1,
		.pCommandBuffers = &commands,
	};

	EXPECT(QueueSubmit, program->queue, 1, &info, fence);
}

static void await(const struct program *program, const struct slot *slot)
{
	EXPECT(WaitForFences, program->device, 1, &slot->fence, VK_TRUE, UINT64_MAX);
	EXPECT(ResetFences, program->device, 1, &slot->fence);
}

/* Record all of the program's dispatches, unless that was done for ever, and submit them. */
static void submit_all(const struct program *program, const struct slot *slot)
{
	const struct lease_program *settings = &program->settings;

	if (!settings->is_recorded_once) {
		reset(program, slot);
		record(program, slot->buffers[0], 0, settings->n_dispatches, settings->n_groups);
	}
	submit(program, slot->buffers[0], slot->fence);
}

/* ---- Ends of submissions ---- */

static bool has_ends(const struct program *program)
{
	return program->settings.is_apart && program->settings.has_ends;
}

static void *await_ends(void *data)
{
	struct program *program = data;
	struct ends *ends = &program->ends;

	pthread_mutex_lock(&ends->lock);
	for (;;) {
		const VkFence *fence = &ends->fences[ends->n_ended % BUFFERS];

		while (ends->n_begun == ends->n_ended && !ends->must_end)
			pthread_cond_wait(&ends->changed, &ends->lock);
		if (ends->n_begun == ends->n_ended)
			break;
		pthread_mutex_unlock(&ends->lock);
		EXPECT(WaitForFences, program->device, 1, fence, VK_TRUE, UINT64_MAX);
		EXPECT(ResetFences, program->device, 1, fence);
		pthread_mutex_lock(&ends->lock);
		ends->n_ended++;
		pthread_cond_broadcast(&ends->changed);
	}
	pthread_mutex_unlock(&ends->lock);
	return NULL;
}

static void make_ends(struct program *program)
{
	const VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
	struct ends *ends = &program->ends;

	pthread_mutex_init(&ends->lock, NULL);
	pthread_cond_init(&ends->changed, NULL);
	for (uint32_t i = 0; i < BUFFERS; i++)
		EXPECT(CreateFence, program->device, &info, NULL, &ends->fences[i]);
	if (pthread_create(&ends->thread, NULL, await_ends, program))
		fail(program, -EAGAIN, "cannot start a thread", VK_SUCCESS);
}

/* Submit a command buffer whose end the thread waits for. */
static void submit_with_end(struct program *program, VkCommandBuffer commands)
{
	struct ends *ends = &program->ends;

	submit(program, commands, ends->fences[ends->n_begun % BUFFERS]);
	pthread_mutex_lock(&ends->lock);
	ends->n_begun++;
	pthread_cond_broadcast(&ends->changed);
	pthread_mutex_unlock(&ends->lock);
}

static void await_all_ends(struct ends *ends)
{
	pthread_mutex_lock(&ends->lock);
	while (ends->n_begun != ends->n_ended)
		pthread_cond_wait(&ends->changed, &ends->lock);
	pthread_mutex_unlock(&ends->lock);
}

static void destroy_ends(struct program *program)
{
	struct ends *ends = &program->ends;

	pthread_mutex_lock(&ends->lock);
	ends->must_end = true;
	pthread_cond_broadcast(&ends->changed);
	pthread_mutex_unlock(&ends->lock);
	pthread_join(ends->thread, NULL);
	for (uint32_t i = 0; i < BUFFERS; i++)
		vkDestroyFence(program->device, ends->fences[i], NULL);
}

/* ---- Actions ---- */

static void reserve(const struct program *program, struct samples *samples, size_t n)
{
	if (samples_reserve(samples, n))
		fail(program, -ENOMEM, "no memory for samples", VK_SUCCESS);
}

/* Submit once, for the driver's and the layer's knowledge, and then record without submitting. */
static void measure_records(const struct program *program, uint64_t ns, struct samples *samples)
{
	const struct lease_program *settings = &program->settings;
	const struct slot *slot = &program->slots[0];
	uint64_t end_ticks, start, end;

	reserve(program, samples, ns / 1000 + 2);
	submit_all(program, slot);
	await(program, slot);
	end_ticks = clock_ticks() + clock_ns_to_ticks(ns);
	do {
		reset(program, slot);
		start = clock_ticks();
		record(program, slot->buffers[0], 0, settings->n_dispatches, settings->n_groups);
		end = clock_ticks();
		samples_add(samples, (double)clock_elapsed_ns(start, end) / settings->n_dispatches);
	} while (end < end_ticks && samples_room(samples) > 0);
}

/* Record and submit each dispatch apart. */
static void submit_apart(struct program *program, const struct slot *slot, uint32_t n)
{
	const struct lease_program *settings = &program->settings;

	for (uint32_t i = 0; i < n; i++) {
		record(program, slot->buffers[i], i, 1, settings->n_groups);
		if (has_ends(program) && i + 1 < n)
			submit_with_end(program, slot->buffers[i]);
		else
			submit(program, slot->buffers[i], i + 1 < n ? VK_NULL_HANDLE : slot->fence);
	}
}

static void measure_parts(struct program *program, uint64_t ns, struct samples *samples)
{
	const struct lease_program *settings = &program->settings;
	const struct slot *slot = &program->slots[0];
	const uint32_t n = settings->n_dispatches;
	uint64_t end_ticks = clock_ticks() + clock_ns_to_ticks(ns), start, end;

	reserve(program, samples, ns / 1000 + 2);
	do {
		reset(program, slot);
		start = clock_ticks();
		if (settings->is_apart) {
			submit_apart(program, slot, n);
		} else {
			record(program, slot->buffers[0], 0, n, settings->n_groups);
			submit(program, slot->buffers[0], slot->fence);
		}
		end = clock_ticks();
		samples_add(samples, (double)clock_elapsed_ns(start, end) / n);
		await(program, slot);
		if (has_ends(program))
			await_all_ends(&program->ends);
	} while (end < end_ticks && samples_room(samples) > 0);
}

/* Return true if a command has come, or the socket has ended. */
static bool is_told(const struct program *program)
{
	struct pollfd told = {.fd = program->fd, .events = POLLIN};

	return poll(&told, 1, 0) > 0;
}

/* Keep submissions under way for @ns, or with 0 until another command comes. */
static void measure_rate(const struct program *program, uint64_t ns, struct samples *samples)
{
	uint64_t n_begun = 0, n_ended = 0, begin_ns = 0, now_ns = 0;
	bool is_over = false;

	reserve(program, samples, 1);
	for (uint32_t i = 0; i < DEPTH; i++)
		submit_all(program, &program->slots[n_begun++ % DEPTH]);
	while (n_ended < n_begun) {
		const struct slot *slot = &program->slots[n_ended++ % DEPTH];

		await(program, slot);
		/* The first ones do not find the device busy, the last ones leave it idle. */
		if (n_ended == DEPTH)
			begin_ns = clock_now_ns();
		if (n_ended > DEPTH && !is_over) {
			now_ns = clock_now_ns();
			is_over = ns > 0 ? now_ns - begin_ns >= ns : is_told(program);
			if (is_over)
				samples_add(samples, (double)(n_ended - DEPTH) *
							     program->settings.n_dispatches * 1e6 /
							     (double)(now_ns - begin_ns));
		}
		if (!is_over)
			submit_all(program, &program->slots[n_begun++ % DEPTH]);
	}
}

static void sleep_until(uint64_t ns)
{
	const struct timespec time = {.tv_sec = (time_t)(ns / 1000000000u),
				      .tv_nsec = (long)(ns % 1000000000u)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
		;
}

/*
 * Run a job in each period, at a random time, or else its phase to the other program's submissions
 * would decide how long it waits.
 */
static void measure_jobs(const struct program *program, uint64_t ns, struct samples *samples)
{
	const uint64_t period_ns = program->settings.period_ns, start_ns = clock_now_ns();
	static uint64_t number = 1;
	uint64_t begin_ns;

	reserve(program, samples, ns / period_ns + 1);
	for (uint64_t at_ns = 0; at_ns < ns; at_ns += period_ns) {
		number = number * 6364136223846793005u + 1442695040888963407u;
		sleep_until(start_ns + at_ns + (number >> 33) % period_ns);
		begin_ns = clock_now_ns();
		submit_all(program, &program->slots[0]);
		await(program, &program->slots[0]);
		samples_add(samples, (double)(clock_now_ns() - begin_ns) / 1e3);
	}
	sleep_until(start_ns + ns);
}

/* Return the time of a dispatch of so many workgroups between others. */
static double dispatch_ns(const struct program *program, uint32_t n_groups)
{
	const struct slot *slot = &program->slots[0];
	double best_ns = INFINITY;

	for (int i = 0; i < PROBES; i++) {
		uint64_t begin_ns;
		double ns;

		reset(program, slot);
		record(program, slot->buffers[0], 0, PROBE_DISPATCHES, n_groups);
		begin_ns = clock_now_ns();
		submit(program, slot->buffers[0], slot->fence);
		await(program, slot);
		ns = (double)(clock_now_ns() - begin_ns) / PROBE_DISPATCHES;
		best_ns = ns < best_ns ? ns : best_ns;
	}
	return best_ns;
}

/* Double the number until the time is reached, and take the part of it that is nearest. */
static void count_groups(const struct program *program, uint64_t ns, struct samples *samples)
{
	double took_ns = dispatch_ns(program, 1), n;
	uint32_t n_groups = 1;

	reserve(program, samples, 1);
	while (took_ns < (double)ns && n_groups < MAX_GROUPS)
		took_ns = dispatch_ns(program, n_groups *= 2);
	n = round(n_groups * (double)ns / took_ns);
	/* A number that record() can divide into rows. */
	if (n > MAX_X)
		n -= fmod(n, MAX_X);
	samples_add(samples, n > 1 ? n : 1);
}

/* ---- The process ---- */

static void set_environment(const struct lease_program *settings)
{
	static const char *const other[] = {"RINGBROKER_LEASE", "RINGBROKER_LEASE_MIN",
					    "RINGBROKER_LEASE_MAX", "RINGBROKER_LEASE_WAIT",
					    "RINGBROKER_LEASE_MAX_PART"};

	lease_layer_find();
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		unsetenv(other[i]);
	if (!settings->socket)
		return;
	setenv("RINGBROKER_SOCKET", settings->socket, 1);
	setenv("RINGBROKER_LEASE_VRAM", "64MiB", 1);
	setenv("RINGBROKER_LEASE_PRIORITY", settings->priority, 1);
	if (settings->max_part)
		setenv("RINGBROKER_LEASE_MAX_PART", settings->max_part, 1);
}

static void make(struct program *program)
{
	VkCommandBuffer *buffers = program->buffers;
	uint32_t family, n;

	make_instance(program);
	choose_device(program);
	family = choose_family(program);
	make_device(program, family);
	make_pipelines(program);
	make_set(program);
	if (has_ends(program))
		make_ends(program);
	for (uint32_t i = 0; i < DEPTH; i++) {
		n = i == 0 ? BUFFERS : 1;
		program->slots[i].buffers = buffers;
		make_slot(program, &program->slots[i], family, n);
		buffers += n;
		if (program->settings.is_recorded_once)
			record(program, program->slots[i].buffers[0], 0,
			       program->settings.n_dispatches, program->settings.n_groups);
	}
}

static void destroy(struct program *program)
{
	EXPECT(DeviceWaitIdle, program->device);
	if (has_ends(program))
		destroy_ends(program);
	for (uint32_t i = 0; i < DEPTH; i++) {
		vkDestroyFence(program->device, program->slots[i].fence, NULL);
		vkDestroyCommandPool(program->device, program->slots[i].pool, NULL);
	}
	vkDestroyDescriptorPool(program->device, program->descriptors, NULL);
	for (uint32_t i = 0; i < 2; i++)
		vkDestroyPipeline(program->device, program->pipelines[i], NULL);
	vkDestroyShaderModule(program->device, program->module, NULL);
	vkDestroyPipelineLayout(program->device, program->layout, NULL);
	vkDestroyDescriptorSetLayout(program->device, program->set_layout, NULL);
	vkDestroyDevice(program->device, NULL);
	vkDestroyInstance(program->instance, NULL);
}

static void obey(struct program *program, const struct lease_command *command,
		 struct samples *samples)
{
	switch ((enum lease_action)command->action) {
	case LEASE_RECORD:
		measure_records(program, command->ns, samples);
		break;
	case LEASE_PARTS:
		measure_parts(program, command->ns, samples);
		break;
	case LEASE_RATE:
		measure_rate(program, command->ns, samples);
		break;
	case LEASE_RATE_BEGIN:
		measure_rate(program, 0, samples);
		break;
	case LEASE_RATE_END:
		break;
	case LEASE_JOBS:
		measure_jobs(program, command->ns, samples);
		break;
	case LEASE_COUNT_GROUPS:
		count_groups(program, command->ns, samples);
		break;
	}
}

static void answer(const struct program *program, const struct samples *samples)
{
	const struct lease_answer answer = {.is_cpu = program->is_cpu, .n = (uint32_t)samples->n};

	put(program, &answer, sizeof(answer));
	if (samples->n > 0)
		put(program, samples->values, samples->n * sizeof(*samples->values));
}

_Noreturn void lease_program_run(const struct lease_program *settings, int fd)
{
	struct program program = {.settings = *settings, .fd = fd};
	struct samples samples = SAMPLES_INIT;
	struct lease_command command;

	prctl(PR_SET_NAME, "lease-agent");
	set_environment(settings);
	make(&program);
	answer(&program, &samples);
	while (recv(fd, &command, sizeof(command), MSG_WAITALL) == sizeof(command)) {
		/* The end of a rate sends what its begin has measured. */
		if (command.action != LEASE_RATE_END)
			samples_clear(&samples);
		obey(&program, &command, &samples);
		if (command.action != LEASE_RATE_BEGIN)
			answer(&program, &samples);
	}
	samples_deinit(&samples);
	destroy(&program);
	_exit(0);
}
