/* SPDX-License-Identifier: MIT */
/*
 * plain-vulkan: a program that uses Vulkan and does not know ringbroker
 *
 * tools/demo runs it by "brokerctl exec" beside clients of the broker. It links the system's Vulkan
 * loader and no part of ringbroker. It copies Fashion-MNIST images into the device's memory, sums
 * the pixels of each image there, and compares the sums with the processor's. Like most programs it
 * exits when a Vulkan call fails, and names the call.
 */
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <vulkan/vulkan_core.h>

#include "images.h"

static const uint32_t pixel_sums_code[] =
#include "pixel-sums.spv.h"
	;

enum { EXIT_USAGE = 2, STAGING_BYTES = 1 << 20, GROUP_IMAGES = 64, ROUND_MS = 20 };

static const char usage_text[] =
	"Usage: plain-vulkan [OPTION...] IMAGES\n"
	"Adds up the pixels of IMAGES Fashion-MNIST images (at most 60000) in a device's memory.\n"
	"\n"
	"  --device NAME  use the first device whose name begins so (default: the first)\n"
	"  --hold         keep the memory, and compute again and again, until standard input ends\n"
	"  --help\n"
	"\n"
	"Exit status: 0 all sums are right, 1 a sum is wrong or a step failed, 2 wrong options.\n";

struct buffer {
	VkBuffer handle;
	VkDeviceMemory memory;
	uint64_t bytes; /* bytes of the memory */
};

struct program {
	VkInstance instance;
	VkPhysicalDevice physical;
	VkPhysicalDeviceProperties properties;
	VkDevice device;
	uint32_t family;
	VkQueue queue;
	VkCommandBuffer commands;
	VkPipelineLayout layout;
	VkPipeline pipeline;
	VkDescriptorSet set;
	struct buffer pixels, sums, staging;
	void *staged; /* mapping of staging */
	struct images images;
};

/* ---- Calls that fail ---- */

static const char *result_name(VkResult result)
{
	static char number[32];

	switch (result) {
	case VK_ERROR_OUT_OF_DEVICE_MEMORY:
		return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
	case VK_ERROR_OUT_OF_HOST_MEMORY:
		return "VK_ERROR_OUT_OF_HOST_MEMORY";
	case VK_ERROR_INITIALIZATION_FAILED:
		return "VK_ERROR_INITIALIZATION_FAILED";
	case VK_ERROR_DEVICE_LOST:
		return "VK_ERROR_DEVICE_LOST";
	default:
		snprintf(number, sizeof(number), "VkResult %d", result);
		return number;
	}
}

static void must(VkResult result, const char *what)
{
	if (result == VK_SUCCESS)
		return;
	fprintf(stderr, "plain-vulkan: %s: %s\n", what, result_name(result));
	exit(EXIT_FAILURE);
}

static void fail(const char *text)
{
	fprintf(stderr, "plain-vulkan: %s\n", text);
	exit(EXIT_FAILURE);
}

/* ---- The device ---- */

static void open_instance(struct program *program)
{
	const VkApplicationInfo application = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.pApplicationName = "plain-vulkan",
		.apiVersion = VK_API_VERSION_1_1,
	};
	const VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &application,
	};

	must(vkCreateInstance(&info, NULL, &program->instance), "vkCreateInstance");
}

static void choose_device(struct program *program, const char *name)
{
	VkPhysicalDevice devices[16];
	uint32_t n = sizeof(devices) / sizeof(*devices);
	VkResult result = vkEnumeratePhysicalDevices(program->instance, &n, devices);

	must(result == VK_INCOMPLETE ? VK_SUCCESS : result, "vkEnumeratePhysicalDevices");
	for (uint32_t i = 0; i < n; i++) {
		vkGetPhysicalDeviceProperties(devices[i], &program->properties);
		if (strncmp(program->properties.deviceName, name, strlen(name)) != 0)
			continue;
		program->physical = devices[i];
		return;
	}
	fail("there is no such device");
}

static void choose_family(struct program *program)
{
	VkQueueFamilyProperties families[32];
	uint32_t n = sizeof(families) / sizeof(*families);

	vkGetPhysicalDeviceQueueFamilyProperties(program->physical, &n, families);
	for (program->family = 0; program->family < n; program->family++)
		if (families[program->family].queueFlags & VK_QUEUE_COMPUTE_BIT)
			return;
	fail("the device has no queue for computing");
}

static void open_device(struct program *program)
{
	const float priority = 1;
	const VkDeviceQueueCreateInfo queue = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
		.queueFamilyIndex = program->family,
		.queueCount = 1,
		.pQueuePriorities = &priority,
	};
	const VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.queueCreateInfoCount = 1,
		.pQueueCreateInfos = &queue,
	};
	VkCommandPoolCreateInfo pool_info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
		.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
		.queueFamilyIndex = program->family,
	};
	VkCommandBufferAllocateInfo commands = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		.commandBufferCount = 1,
	};

	must(vkCreateDevice(program->physical, &info, NULL, &program->device), "vkCreateDevice");
	vkGetDeviceQueue(program->device, program->family, 0, &program->queue);
	must(vkCreateCommandPool(program->device, &pool_info, NULL, &commands.commandPool),
	     "vkCreateCommandPool");
	must(vkAllocateCommandBuffers(program->device, &commands, &program->commands),
	     "vkAllocateCommandBuffers");
}

/* ---- Memory ---- */

static uint32_t find_type(const struct program *program, uint32_t allowed, uint32_t wanted)
{
	VkPhysicalDeviceMemoryProperties memory;

	vkGetPhysicalDeviceMemoryProperties(program->physical, &memory);
	for (uint32_t i = 0; i < memory.memoryTypeCount; i++)
		if ((allowed & (1u << i)) &&
		    (memory.memoryTypes[i].propertyFlags & wanted) == wanted)
			return i;
	fail("the device has no such memory");
	return 0;
}

static void make_buffer(struct program *program, struct buffer *buffer, uint64_t bytes,
			uint32_t memory)
{
	const VkBufferCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
		.size = bytes,
		.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
			 VK_BUFFER_USAGE_TRANSFER_DST_BIT,
	};
	VkMemoryAllocateInfo allocation = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
	VkMemoryRequirements needs;
	char what[80];

	must(vkCreateBuffer(program->device, &info, NULL, &buffer->handle), "vkCreateBuffer");
	vkGetBufferMemoryRequirements(program->device, buffer->handle, &needs);
	allocation.allocationSize = buffer->bytes = needs.size;
	allocation.memoryTypeIndex = find_type(program, needs.memoryTypeBits, memory);
	snprintf(what, sizeof(what), "vkAllocateMemory of %.1f MiB",
		 (double)needs.size / (1 << 20));
	must(vkAllocateMemory(program->device, &allocation, NULL, &buffer->memory), what);
	must(vkBindBufferMemory(program->device, buffer->handle, buffer->memory, 0),
	     "vkBindBufferMemory");
}

static void make_buffers(struct program *program)
{
	const uint32_t mappable =
		VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;

	make_buffer(program, &program->staging, STAGING_BYTES, mappable);
	must(vkMapMemory(program->device, program->staging.memory, 0, VK_WHOLE_SIZE, 0,
			 &program->staged),
	     "vkMapMemory");
	make_buffer(program, &program->pixels, program->images.n * IMAGE_PIXELS,
		    VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
	make_buffer(program, &program->sums, program->images.n * sizeof(uint32_t),
		    VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
}

/* ---- The shader ---- */

static VkDescriptorSetLayout make_layout(struct program *program)
{
	VkDescriptorSetLayoutBinding bindings[2];
	const VkDescriptorSetLayoutCreateInfo set_info = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
		.bindingCount = 2,
		.pBindings = bindings,
	};
	VkDescriptorSetLayout set;
	const VkPushConstantRange constants = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 8};
	const VkPipelineLayoutCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
		.setLayoutCount = 1,
		.pSetLayouts = &set,
		.pushConstantRangeCount = 1,
		.pPushConstantRanges = &constants,
	};

	for (uint32_t i = 0; i < 2; i++)
		bindings[i] = (VkDescriptorSetLayoutBinding){
			.binding = i,
			.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
			.descriptorCount = 1,
			.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
		};
	must(vkCreateDescriptorSetLayout(program->device, &set_info, NULL, &set),
	     "vkCreateDescriptorSetLayout");
	must(vkCreatePipelineLayout(program->device, &info, NULL, &program->layout),
	     "vkCreatePipelineLayout");
	return set;
}

static void make_pipeline(struct program *program)
{
	const VkShaderModuleCreateInfo code = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
		.codeSize = sizeof(pixel_sums_code),
		.pCode = pixel_sums_code,
	};
	VkComputePipelineCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
			  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
			  .pName = "main"},
		.layout = program->layout,
	};

	must(vkCreateShaderModule(program->device, &code, NULL, &info.stage.module),
	     "vkCreateShaderModule");
	must(vkCreateComputePipelines(program->device, VK_NULL_HANDLE, 1, &info, NULL,
				      &program->pipeline),
	     "vkCreateComputePipelines");
}

static void bind_buffers(struct program *program, VkDescriptorSetLayout layout)
{
	const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 2};
	const VkDescriptorPoolCreateInfo pool = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
		.maxSets = 1,
		.poolSizeCount = 1,
		.pPoolSizes = &size,
	};
	VkDescriptorSetAllocateInfo allocation = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
		.descriptorSetCount = 1,
		.pSetLayouts = &layout,
	};
	const VkDescriptorBufferInfo buffers[2] = {
		{program->pixels.handle, 0, VK_WHOLE_SIZE},
		{program->sums.handle, 0, VK_WHOLE_SIZE},
	};
	VkWriteDescriptorSet write = {
		.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
		.descriptorCount = 2,
		.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
		.pBufferInfo = buffers,
	};

	must(vkCreateDescriptorPool(program->device, &pool, NULL, &allocation.descriptorPool),
	     "vkCreateDescriptorPool");
	must(vkAllocateDescriptorSets(program->device, &allocation, &program->set),
	     "vkAllocateDescriptorSets");
	write.dstSet = program->set;
	vkUpdateDescriptorSets(program->device, 1, &write, 0, NULL);
}

/* ---- Work ---- */

static void begin(struct program *program)
{
	const VkCommandBufferBeginInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
		.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
	};

	must(vkBeginCommandBuffer(program->commands, &info), "vkBeginCommandBuffer");
}

/*
 * Submit the recorded commands and wait until they are complete and their writes are visible to the
 * host.
 */
static void finish(struct program *program)
{
	const VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_HOST_READ_BIT,
	};
	const VkSubmitInfo submit = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.commandBufferCount = 1,
		.pCommandBuffers = &program->commands,
	};

	vkCmdPipelineBarrier(program->commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
			     VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
			     &barrier, 0, NULL, 0, NULL);
	must(vkEndCommandBuffer(program->commands), "vkEndCommandBuffer");
	must(vkQueueSubmit(program->queue, 1, &submit, VK_NULL_HANDLE), "vkQueueSubmit");
	must(vkQueueWaitIdle(program->queue), "vkQueueWaitIdle");
}

static void upload(struct program *program)
{
	uint64_t bytes = program->images.n * IMAGE_PIXELS;

	for (uint64_t at = 0; at < bytes; at += STAGING_BYTES) {
		uint64_t rest = bytes - at;
		const VkBufferCopy part = {0, at, rest < STAGING_BYTES ? rest : STAGING_BYTES};

		memcpy(program->staged, program->images.pixels + at, part.size);
		begin(program);
		vkCmdCopyBuffer(program->commands, program->staging.handle, program->pixels.handle,
				1, &part);
		finish(program);
	}
}

static void compute(struct program *program)
{
	uint32_t n = (uint32_t)program->images.n;
	const uint32_t parameters[] = {n, IMAGE_PIXELS / sizeof(uint32_t)};
	const VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT,
	};
	const VkBufferCopy whole = {0, 0, n * sizeof(uint32_t)};

	begin(program);
	vkCmdBindPipeline(program->commands, VK_PIPELINE_BIND_POINT_COMPUTE, program->pipeline);
	vkCmdBindDescriptorSets(program->commands, VK_PIPELINE_BIND_POINT_COMPUTE, program->layout,
				0, 1, &program->set, 0, NULL);
	vkCmdPushConstants(program->commands, program->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
			   sizeof(parameters), parameters);
	vkCmdDispatch(program->commands, (n + GROUP_IMAGES - 1) / GROUP_IMAGES, 1, 1);
	vkCmdPipelineBarrier(program->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
			     VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
	vkCmdCopyBuffer(program->commands, program->sums.handle, program->staging.handle, 1,
			&whole);
	finish(program);
}

static void check(const struct program *program)
{
	const uint32_t *sums = program->staged;

	for (size_t i = 0; i < program->images.n; i++) {
		uint32_t sum = 0;

		for (unsigned int j = 0; j < IMAGE_PIXELS; j++)
			sum += program->images.pixels[i * IMAGE_PIXELS + j];
		if (sum != sums[i])
			fail("a sum is wrong");
	}
}

/* Compute and check repeatedly until standard input ends. */
static void hold(struct program *program)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	uint32_t n_times = 1;
	char text[64];

	while (poll(&input, 1, ROUND_MS) == 0 || read(STDIN_FILENO, text, sizeof(text)) > 0) {
		memset(program->staged, 0, STAGING_BYTES);
		compute(program);
		check(program);
		n_times++;
	}
	printf("plain-vulkan: computed %u times in all, right each time\n", n_times);
}

static void run(struct program *program, const char *device, bool is_held)
{
	uint64_t bytes;

	open_instance(program);
	choose_device(program, device);
	choose_family(program);
	open_device(program);
	make_buffers(program);
	bytes = program->pixels.bytes + program->sums.bytes + program->staging.bytes;
	bind_buffers(program, make_layout(program));
	make_pipeline(program);
	upload(program);
	compute(program);
	check(program);
	printf("plain-vulkan: the sums of pixels of %zu images are right; %.1f MiB allocated\n",
	       program->images.n, (double)bytes / (1 << 20));
	fflush(stdout);
	if (is_held)
		hold(program);
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = {
		{"device", required_argument, NULL, 'd'},
		{"hold", no_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct program program = {.family = 0};
	const char *device = "";
	bool is_held = false;
	char path[4096];
	int option;
	long n;

	while ((option = getopt_long(argc, argv, "", long_options, NULL)) >= 0) {
		if (option == 'd')
			device = optarg;
		else if (option == 'o')
			is_held = true;
		else
			return fputs(usage_text, option == 'h' ? stdout : stderr),
			       option == 'h' ? EXIT_SUCCESS : EXIT_USAGE;
	}
	n = argc == optind + 1 ? strtol(argv[optind], NULL, 10) : 0;
	if (n < 1 || n > 60000)
		return fputs(usage_text, stderr), EXIT_USAGE;
	if (images_read(IMAGES_FOLDER, "train", (size_t)n, &program.images, path, sizeof(path)))
		fail("cannot read the images");
	run(&program, device, is_held);
	/* The process's exit frees the remaining objects. */
	vkDestroyDevice(program.device, NULL);
	vkDestroyInstance(program.instance, NULL);
	images_deinit(&program.images);
	return EXIT_SUCCESS;
}
