/* SPDX-License-Identifier: MIT */
/*
 * The device of torture-client, and the objects that all of its cases use
 *
 * Optional features are noted in struct torture_device. The pipelines are made by one call, and
 * their shader modules destroyed at once. All memory can be mapped: the host writes it before a
 * case, and reads it afterwards.
 */
#include <stdlib.h>
#include <string.h>

#include "support/torture.h"
#include "support/torture-shaders.h"

struct torture_device torture;

#define SETS2(a, b)                              \
	2,                                       \
	{                                        \
		TORTURE_SET_##a, TORTURE_SET_##b \
	}
#define SETS3(a, b, c)                                            \
	3,                                                        \
	{                                                         \
		TORTURE_SET_##a, TORTURE_SET_##b, TORTURE_SET_##c \
	}

/* Some are compatible for their first set or two, some for none: push constants count, too. */
static const struct torture_layout layouts[TORTURE_N_LAYOUTS] = {
	{SETS2(PAIR, SUMS), 8, VK_NULL_HANDLE},
	{SETS3(PAIR, DYNAMIC, SUMS), 8, VK_NULL_HANDLE},
	{SETS3(DYNAMIC, DYNAMIC, SUMS), 8, VK_NULL_HANDLE},
	{SETS2(PAIR, SUMS), 16, VK_NULL_HANDLE},
	{SETS3(PAIR, PUSHED, SUMS), 8, VK_NULL_HANDLE},
	{SETS2(IMAGE, SUMS), 8, VK_NULL_HANDLE},
	{SETS2(PAIR, SUMS), 0, VK_NULL_HANDLE},
};

struct model {
	enum torture_shader shader;
	unsigned int layout;
	enum torture_use use;
	bool has_base;
	uint32_t size[2]; /* of a workgroup, if it is specialized */
};

static const struct model models[] = {
	{TORTURE_SHADER_PLAIN_1, 0, TORTURE_STEPS, true, {0, 0}},
	{TORTURE_SHADER_PLAIN_2, 2, TORTURE_STEPS, true, {0, 0}},
	{TORTURE_SHADER_NUMBER_X_1, 0, TORTURE_STEPS, true, {0, 0}},
	{TORTURE_SHADER_NUMBER_Y_2, 1, TORTURE_STEPS, true, {0, 0}},
	{TORTURE_SHADER_NUMBER_Z_1, 3, TORTURE_STEPS, false, {0, 0}},
	{TORTURE_SHADER_NUMBER_ALL_2, 4, TORTURE_STEPS, true, {0, 0}},
	{TORTURE_SHADER_NUMBER_ALONE_1, 6, TORTURE_STEPS, true, {0, 0}},
	{TORTURE_SHADER_GLOBAL_1, 0, TORTURE_STEPS, false, {0, 0}},
	{TORTURE_SHADER_GLOBAL_2, 1, TORTURE_STEPS, true, {0, 0}},
	{TORTURE_SHADER_CUBE_1, 0, TORTURE_STEPS, false, {0, 0}},
	{TORTURE_SHADER_CUBE_2, 2, TORTURE_STEPS, true, {0, 0}},
	{TORTURE_SHADER_SHARED_1, 0, TORTURE_STEPS, true, {0, 0}},
	{TORTURE_SHADER_SHARED_2, 4, TORTURE_STEPS, false, {0, 0}},
	{TORTURE_SHADER_ATOMIC_1, 3, TORTURE_STEPS, true, {0, 0}},
	{TORTURE_SHADER_SPECIALIZED_1, 0, TORTURE_STEPS, true, {24, 1}},
	{TORTURE_SHADER_SPECIALIZED_2, 1, TORTURE_STEPS, false, {5, 3}},
	{TORTURE_SHADER_ARGUMENTS_1, 0, TORTURE_WRITES_ARGUMENTS, true, {0, 0}},
	{TORTURE_SHADER_IMAGE_1, 5, TORTURE_STEPS_IMAGE, true, {0, 0}},
};
enum { N_MODELS = sizeof(models) / sizeof(models[0]) };

/* ---- The device ---- */

static bool has_name(const VkExtensionProperties *list, uint32_t n, const char *name)
{
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(list[i].extensionName, name) == 0)
			return true;
	return false;
}

static void make_instance(bool core)
{
	static const char *const names[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME};
	const VkApplicationInfo application = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.pApplicationName = "torture-client",
		.apiVersion = VK_API_VERSION_1_3,
	};
	VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &application,
		.ppEnabledExtensionNames = names,
	};
	VkExtensionProperties list[128];
	uint32_t n = 128;

	EXPECT(volkInitialize());
	if (!core && vkEnumerateInstanceExtensionProperties(NULL, &n, list) >= 0)
		torture.has_labels = has_name(list, n, names[0]);
	info.enabledExtensionCount = torture.has_labels;
	EXPECT(vkCreateInstance(&info, NULL, &torture.instance));
	volkLoadInstance(torture.instance);
}

/* Choose a family that computes, and rather one that draws, too. */
static void choose_family(bool core)
{
	VkQueueFamilyProperties list[16];
	uint32_t n = 16;
	bool has_any = false;

	vkGetPhysicalDeviceQueueFamilyProperties(torture.physical, &n, list);
	for (uint32_t i = 0; i < n; i++) {
		bool has_graphics = !core && list[i].queueFlags & VK_QUEUE_GRAPHICS_BIT;

		if (!(list[i].queueFlags & VK_QUEUE_COMPUTE_BIT))
			continue;
		if (has_any && (torture.has_graphics || !has_graphics))
			continue;
		has_any = true;
		torture.family = i;
		torture.has_graphics = has_graphics;
		torture.has_timestamps = list[i].timestampValidBits > 0;
		torture.n_queues = list[i].queueCount < TORTURE_MOST_QUEUES ? list[i].queueCount
									    : TORTURE_MOST_QUEUES;
	}
	if (torture.n_queues > 1 && getenv("RBK_TORTURE_QUEUES"))
		torture.n_queues = 1;
	EXPECT(has_any ? VK_SUCCESS : VK_ERROR_FEATURE_NOT_PRESENT);
}

static unsigned int choose_extensions(bool core, const char *names[2])
{
	VkExtensionProperties *list;
	unsigned int n_names = 0;
	uint32_t n = 0;

	vkEnumerateDeviceExtensionProperties(torture.physical, NULL, &n, NULL);
	list = calloc(n + 1, sizeof(*list));
	if (!list)
		exit(1);
	vkEnumerateDeviceExtensionProperties(torture.physical, NULL, &n, list);
	torture.has_push_sets = !core && has_name(list, n, VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
	torture.has_conditional =
		!core && has_name(list, n, VK_EXT_CONDITIONAL_RENDERING_EXTENSION_NAME);
	free(list);
	if (torture.has_push_sets)
		names[n_names++] = VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME;
	if (torture.has_conditional)
		names[n_names++] = VK_EXT_CONDITIONAL_RENDERING_EXTENSION_NAME;
	return n_names;
}

/*
 * Take labels that the program has not enabled. Loaders return functions that do nothing then, and
 * libplacebo calls what it gets.
 */
static void take_labels(void)
{
#define TAKE(name) (name = (PFN_##name)vkGetDeviceProcAddr(torture.handle, #name))
	torture.has_labels = TAKE(vkCmdBeginDebugUtilsLabelEXT) &&
			     TAKE(vkCmdInsertDebugUtilsLabelEXT) &&
			     TAKE(vkCmdEndDebugUtilsLabelEXT);
#undef TAKE
}

static void create_device(bool core)
{
	static const float priorities[TORTURE_MOST_QUEUES] = {1, 1};
	const VkDeviceQueueCreateInfo queue = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
		.queueFamilyIndex = torture.family,
		.queueCount = torture.n_queues,
		.pQueuePriorities = priorities,
	};
	VkPhysicalDeviceConditionalRenderingFeaturesEXT conditional = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_CONDITIONAL_RENDERING_FEATURES_EXT,
	};
	VkPhysicalDeviceMaintenance4Features maintenance4 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES,
	};
	VkPhysicalDeviceSynchronization2Features sync2 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SYNCHRONIZATION_2_FEATURES,
		.pNext = &maintenance4,
	};
	VkPhysicalDeviceVulkan12Features vulkan12 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
		.pNext = &sync2,
	};
	VkPhysicalDeviceFeatures2 has = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
		.pNext = &vulkan12,
	};
	const char *names[2];
	VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.pNext = &has,
		.queueCreateInfoCount = 1,
		.pQueueCreateInfos = &queue,
		.ppEnabledExtensionNames = names,
	};

	info.enabledExtensionCount = choose_extensions(core, names);
	if (torture.has_conditional)
		maintenance4.pNext = &conditional;
	vkGetPhysicalDeviceFeatures2(torture.physical, &has);
	torture.has_conditional = conditional.conditionalRendering;
	maintenance4.maintenance4 &= !core;
	torture.may_drop_layouts = maintenance4.maintenance4;
	torture.has_submit2 = !core && sync2.synchronization2;
	torture.has_statistics = has.features.pipelineStatisticsQuery;
	has.features =
		(VkPhysicalDeviceFeatures){.pipelineStatisticsQuery = torture.has_statistics};
	vulkan12 = (VkPhysicalDeviceVulkan12Features){
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
		.pNext = &sync2,
		.timelineSemaphore = VK_TRUE,
	};
	conditional.inheritedConditionalRendering = VK_FALSE;
	EXPECT(vkCreateDevice(torture.physical, &info, NULL, &torture.handle));
	volkLoadDevice(torture.handle);
	if (core)
		take_labels();
}

static void make_device(bool core)
{
	VkPhysicalDeviceDriverProperties driver = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES,
	};
	VkPhysicalDeviceProperties2 about = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
		.pNext = &driver,
	};
	uint32_t n = 1;

	if (vkEnumeratePhysicalDevices(torture.instance, &n, &torture.physical) < 0 || n == 0)
		EXPECT(VK_ERROR_INITIALIZATION_FAILED);
	vkGetPhysicalDeviceProperties2(torture.physical, &about);
	/* A bug of Mesa 22.3's software driver. */
	torture.keeps_base = driver.driverID == VK_DRIVER_ID_MESA_LLVMPIPE;
	if (about.properties.apiVersion < VK_API_VERSION_1_3)
		EXPECT(VK_ERROR_INCOMPATIBLE_DRIVER);
	choose_family(core);
	create_device(core);
	for (unsigned int i = 0; i < torture.n_queues; i++)
		vkGetDeviceQueue(torture.handle, torture.family, i, &torture.queues[i]);
}

/* ---- Memory ---- */

static VkDeviceMemory allocate(const VkMemoryRequirements *needs, VkMemoryPropertyFlags flags)
{
	VkPhysicalDeviceMemoryProperties has;
	VkMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		.allocationSize = needs->size,
	};
	VkDeviceMemory memory;

	vkGetPhysicalDeviceMemoryProperties(torture.physical, &has);
	while (info.memoryTypeIndex < has.memoryTypeCount &&
	       (!(needs->memoryTypeBits & 1u << info.memoryTypeIndex) ||
		(has.memoryTypes[info.memoryTypeIndex].propertyFlags & flags) != flags))
		info.memoryTypeIndex++;
	EXPECT(vkAllocateMemory(torture.handle, &info, NULL, &memory));
	return memory;
}

static void make_buffer(struct torture_buffer *buffer, uint32_t bytes, VkBufferUsageFlags usage)
{
	const VkBufferCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
		.size = bytes,
		.usage = usage | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
			 VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
	};
	VkMemoryRequirements needs;
	void *words;

	EXPECT(vkCreateBuffer(torture.handle, &info, NULL, &buffer->handle));
	vkGetBufferMemoryRequirements(torture.handle, buffer->handle, &needs);
	buffer->memory = allocate(&needs, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
						  VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
	EXPECT(vkBindBufferMemory(torture.handle, buffer->handle, buffer->memory, 0));
	EXPECT(vkMapMemory(torture.handle, buffer->memory, 0, VK_WHOLE_SIZE, 0, &words));
	buffer->words = words;
	buffer->n_words = bytes / 4;
}

static void make_buffers(void)
{
	for (unsigned int i = 0; i < TORTURE_BUFFERS; i++)
		make_buffer(&torture.buffers[i], TORTURE_BUFFER_BYTES, 0);
	make_buffer(&torture.sums, TORTURE_SUMS * TORTURE_SUM_BYTES, 0);
	make_buffer(&torture.arguments, TORTURE_ARGUMENTS * TORTURE_ARGUMENT_BYTES,
		    VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT);
	make_buffer(&torture.results, TORTURE_RESULTS * 8, 0);
	make_buffer(&torture.picture, 4 * TORTURE_IMAGE_SIDE * TORTURE_IMAGE_SIDE, 0);
	make_buffer(&torture.predicates, TORTURE_PREDICATES * 4,
		    torture.has_conditional ? VK_BUFFER_USAGE_CONDITIONAL_RENDERING_BIT_EXT : 0);
}

static void free_buffer(struct torture_buffer *buffer)
{
	vkDestroyBuffer(torture.handle, buffer->handle, NULL);
	vkFreeMemory(torture.handle, buffer->memory, NULL);
}

static void make_image(uint32_t side, VkImageUsageFlags usage, VkImage *ret_image,
		       VkDeviceMemory *ret_memory, VkImageView *ret_view)
{
	const VkImageCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
		.imageType = VK_IMAGE_TYPE_2D,
		.format = VK_FORMAT_R32_UINT,
		.extent = {side, side, 1},
		.mipLevels = 1,
		.arrayLayers = 1,
		.samples = VK_SAMPLE_COUNT_1_BIT,
		.usage = usage | VK_IMAGE_USAGE_TRANSFER_SRC_BIT,
	};
	VkImageViewCreateInfo view = {
		.sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
		.viewType = VK_IMAGE_VIEW_TYPE_2D,
		.format = VK_FORMAT_R32_UINT,
		.subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1},
	};
	VkMemoryRequirements needs;

	EXPECT(vkCreateImage(torture.handle, &info, NULL, ret_image));
	vkGetImageMemoryRequirements(torture.handle, *ret_image, &needs);
	*ret_memory = allocate(&needs, 0);
	EXPECT(vkBindImageMemory(torture.handle, *ret_image, *ret_memory, 0));
	view.image = *ret_image;
	EXPECT(vkCreateImageView(torture.handle, &view, NULL, ret_view));
}

/* The pass clears the target; copies before and after it need no other barrier. */
static void make_pass(void)
{
	const VkAttachmentDescription target = {
		.format = VK_FORMAT_R32_UINT,
		.samples = VK_SAMPLE_COUNT_1_BIT,
		.loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR,
		.storeOp = VK_ATTACHMENT_STORE_OP_STORE,
		.stencilLoadOp = VK_ATTACHMENT_LOAD_OP_DONT_CARE,
		.stencilStoreOp = VK_ATTACHMENT_STORE_OP_DONT_CARE,
		.finalLayout = VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL,
	};
	const VkAttachmentReference reference = {0, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL};
	const VkSubpassDescription subpass = {
		.pipelineBindPoint = VK_PIPELINE_BIND_POINT_GRAPHICS,
		.colorAttachmentCount = 1,
		.pColorAttachments = &reference,
	};
	const VkSubpassDependency dependencies[] = {
		{VK_SUBPASS_EXTERNAL, 0, VK_PIPELINE_STAGE_TRANSFER_BIT,
		 VK_PIPELINE_STAGE_COLOR_ATTACHMENT_OUTPUT_BIT, 0,
		 VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT, 0},
		{0, VK_SUBPASS_EXTERNAL, VK_PIPELINE_STAGE_COLOR_ATTACHMENT_OUTPUT_BIT,
		 VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT,
		 VK_ACCESS_TRANSFER_READ_BIT, 0},
	};
	const VkRenderPassCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_RENDER_PASS_CREATE_INFO,
		.attachmentCount = 1,
		.pAttachments = &target,
		.subpassCount = 1,
		.pSubpasses = &subpass,
		.dependencyCount = 2,
		.pDependencies = dependencies,
	};
	VkFramebufferCreateInfo frame = {
		.sType = VK_STRUCTURE_TYPE_FRAMEBUFFER_CREATE_INFO,
		.attachmentCount = 1,
		.pAttachments = &torture.target_view,
		.width = TORTURE_TARGET_SIDE,
		.height = TORTURE_TARGET_SIDE,
		.layers = 1,
	};

	EXPECT(vkCreateRenderPass(torture.handle, &info, NULL, &torture.pass));
	frame.renderPass = torture.pass;
	EXPECT(vkCreateFramebuffer(torture.handle, &frame, NULL, &torture.frame));
}

static void make_images(void)
{
	make_image(TORTURE_IMAGE_SIDE, VK_IMAGE_USAGE_STORAGE_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT,
		   &torture.image, &torture.image_memory, &torture.image_view);
	if (!torture.has_graphics)
		return;
	make_image(TORTURE_TARGET_SIDE, VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT, &torture.target,
		   &torture.target_memory, &torture.target_view);
	make_pass();
}

/* ---- Layouts and sets ---- */

static void make_set_layouts(void)
{
	for (unsigned int i = 0; i < TORTURE_N_SET_KINDS; i++) {
		VkDescriptorType type = i == TORTURE_SET_DYNAMIC
						? VK_DESCRIPTOR_TYPE_STORAGE_BUFFER_DYNAMIC
						: VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
		VkDescriptorSetLayoutBinding bindings[] = {
			{0, type, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
			{1, type, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
		};
		VkDescriptorSetLayoutCreateInfo info = {
			.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
			.bindingCount = i == TORTURE_SET_SUMS || i == TORTURE_SET_IMAGE ? 1 : 2,
			.pBindings = bindings,
		};

		if (i == TORTURE_SET_IMAGE)
			bindings[0].descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_IMAGE;
		if (i == TORTURE_SET_PUSHED && torture.has_push_sets)
			info.flags = VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR;
		EXPECT(vkCreateDescriptorSetLayout(torture.handle, &info, NULL,
						   &torture.set_layouts[i]));
	}
}

static VkPipelineLayout make_layout(const struct torture_layout *layout)
{
	VkDescriptorSetLayout sets[TORTURE_MOST_SETS];
	const VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 4 * layout->push_words};
	const VkPipelineLayoutCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
		.setLayoutCount = layout->n_sets,
		.pSetLayouts = sets,
		.pushConstantRangeCount = layout->push_words > 0,
		.pPushConstantRanges = &range,
	};
	VkPipelineLayout ret;

	for (unsigned int i = 0; i < layout->n_sets; i++)
		sets[i] = torture.set_layouts[layout->kinds[i]];
	EXPECT(vkCreatePipelineLayout(torture.handle, &info, NULL, &ret));
	return ret;
}

static void make_layouts(void)
{
	for (unsigned int i = 0; i < TORTURE_N_LAYOUTS; i++) {
		torture.layouts[i] = layouts[i];
		torture.layouts[i].handle = make_layout(&layouts[i]);
	}
}

/* A push with the template takes the buffers of both bindings. */
static void make_push_template(void)
{
	const VkDescriptorUpdateTemplateEntry entry = {
		.descriptorCount = 1,
		.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
		.stride = sizeof(VkDescriptorBufferInfo),
	};
	VkDescriptorUpdateTemplateEntry entries[2] = {entry, entry};
	const VkDescriptorUpdateTemplateCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_UPDATE_TEMPLATE_CREATE_INFO,
		.descriptorUpdateEntryCount = 2,
		.pDescriptorUpdateEntries = entries,
		.templateType = VK_DESCRIPTOR_UPDATE_TEMPLATE_TYPE_PUSH_DESCRIPTORS_KHR,
		.pipelineBindPoint = VK_PIPELINE_BIND_POINT_COMPUTE,
		.pipelineLayout = torture.layouts[4].handle,
		.set = 1,
	};

	entries[1].dstBinding = 1;
	entries[1].offset = sizeof(VkDescriptorBufferInfo);
	if (torture.has_push_sets)
		EXPECT(vkCreateDescriptorUpdateTemplate(torture.handle, &info, NULL,
							&torture.push_template));
}

uint64_t torture_window_bits(const struct torture_window *window)
{
	return ((1ull << window->n) - 1) << (window->buffer * TORTURE_REGIONS + window->first);
}

void torture_write_pair(VkDescriptorSet set, VkDescriptorType type,
			const struct torture_window windows[2])
{
	VkDescriptorBufferInfo buffers[2];
	VkWriteDescriptorSet writes[2];

	for (unsigned int i = 0; i < 2; i++) {
		buffers[i] = (VkDescriptorBufferInfo){
			torture.buffers[windows[i].buffer].handle,
			windows[i].first * TORTURE_REGION_BYTES,
			windows[i].n * TORTURE_REGION_BYTES,
		};
		writes[i] = (VkWriteDescriptorSet){
			.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
			.dstSet = set,
			.dstBinding = i,
			.descriptorCount = 1,
			.descriptorType = type,
			.pBufferInfo = &buffers[i],
		};
	}
	vkUpdateDescriptorSets(torture.handle, 2, writes, 0, NULL);
}

static void write_sum_set(VkDescriptorSet set, VkBuffer buffer, VkDeviceSize offset)
{
	const VkDescriptorBufferInfo info = {buffer, offset, TORTURE_SUM_BYTES};
	const VkWriteDescriptorSet write = {
		.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
		.dstSet = set,
		.descriptorCount = 1,
		.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
		.pBufferInfo = &info,
	};

	vkUpdateDescriptorSets(torture.handle, 1, &write, 0, NULL);
}

static void write_image_set(void)
{
	const VkDescriptorImageInfo info = {VK_NULL_HANDLE, torture.image_view,
					    VK_IMAGE_LAYOUT_GENERAL};
	const VkWriteDescriptorSet write = {
		.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
		.dstSet = torture.image_set,
		.descriptorCount = 1,
		.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_IMAGE,
		.pImageInfo = &info,
	};

	vkUpdateDescriptorSets(torture.handle, 1, &write, 0, NULL);
}

static void make_sets(void)
{
	const VkDescriptorPoolSize sizes[] = {
		{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, TORTURE_SUMS + 1},
		{VK_DESCRIPTOR_TYPE_STORAGE_IMAGE, 1},
	};
	const VkDescriptorPoolCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
		.maxSets = TORTURE_SUMS + 2,
		.poolSizeCount = 2,
		.pPoolSizes = sizes,
	};
	VkDescriptorSetLayout set_layouts[TORTURE_SUMS + 2];
	VkDescriptorSet sets[TORTURE_SUMS + 2];
	VkDescriptorSetAllocateInfo allocate_info = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
		.descriptorSetCount = TORTURE_SUMS + 2,
		.pSetLayouts = set_layouts,
	};

	EXPECT(vkCreateDescriptorPool(torture.handle, &info, NULL, &torture.pool));
	allocate_info.descriptorPool = torture.pool;
	for (unsigned int i = 0; i < TORTURE_SUMS + 2; i++)
		set_layouts[i] = torture.set_layouts[TORTURE_SET_SUMS];
	set_layouts[TORTURE_SUMS + 1] = torture.set_layouts[TORTURE_SET_IMAGE];
	EXPECT(vkAllocateDescriptorSets(torture.handle, &allocate_info, sets));
	for (unsigned int i = 0; i < TORTURE_SUMS; i++) {
		torture.sum_sets[i] = sets[i];
		write_sum_set(sets[i], torture.sums.handle, i * TORTURE_SUM_BYTES);
	}
	torture.argument_set = sets[TORTURE_SUMS];
	write_sum_set(torture.argument_set, torture.arguments.handle, 0);
	torture.image_set = sets[TORTURE_SUMS + 1];
	write_image_set();
}

/* ---- Pipelines ---- */

/*
 * Make pipelines by one call; the shader modules are gone afterwards, and so are their layouts if
 * the program has layouts of its own for them, each like that of the model.
 */
static void make_pipelines(unsigned int n, const struct model *from, bool has_own_layouts,
			   struct torture_pipeline *ret)
{
	static const VkSpecializationMapEntry entries[] = {{0, 0, 4}, {1, 4, 4}};
	VkSpecializationInfo sizes[N_MODELS];
	VkComputePipelineCreateInfo infos[N_MODELS];
	VkPipeline handles[N_MODELS];

	for (unsigned int i = 0; i < n; i++) {
		const VkShaderModuleCreateInfo code = {
			.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
			.codeSize = torture_shaders[from[i].shader].bytes,
			.pCode = torture_shaders[from[i].shader].words,
		};

		sizes[i] = (VkSpecializationInfo){2, entries, 8, from[i].size};
		infos[i] = (VkComputePipelineCreateInfo){
			.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
			.flags = from[i].has_base ? VK_PIPELINE_CREATE_DISPATCH_BASE_BIT : 0,
			.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
			.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT,
			.stage.pName = "main",
			.stage.pSpecializationInfo = from[i].size[0] ? &sizes[i] : NULL,
			.layout = has_own_layouts ? make_layout(&torture.layouts[from[i].layout])
						  : torture.layouts[from[i].layout].handle,
		};
		EXPECT(vkCreateShaderModule(torture.handle, &code, NULL, &infos[i].stage.module));
	}
	EXPECT(vkCreateComputePipelines(torture.handle, VK_NULL_HANDLE, n, infos, NULL, handles));
	for (unsigned int i = 0; i < n; i++) {
		vkDestroyShaderModule(torture.handle, infos[i].stage.module, NULL);
		if (has_own_layouts)
			vkDestroyPipelineLayout(torture.handle, infos[i].layout, NULL);
		ret[i] = (struct torture_pipeline){handles[i], from[i].layout, from[i].use,
						   from[i].has_base};
	}
}

void torture_make_pipelines(struct torture_random *random, struct torture_pipeline ret[2])
{
	struct model own[2] = {
		{TORTURE_SHADER_SPECIALIZED_1, 0, TORTURE_STEPS, false, {0, 0}},
		{TORTURE_SHADER_NUMBER_X_1, 0, TORTURE_STEPS, false, {0, 0}},
	};

	own[0].has_base = torture_chance(random, 2);
	own[0].size[0] = 1 + torture_below(random, 40);
	own[0].size[1] = 1 + torture_below(random, 2);
	make_pipelines(2, own, torture.may_drop_layouts && torture_chance(random, 2), ret);
}

void torture_device_init(bool core)
{
	make_instance(core);
	make_device(core);
	make_buffers();
	make_images();
	make_set_layouts();
	make_layouts();
	make_push_template();
	torture_graphics_init();
	make_sets();
	torture.n_pipelines = N_MODELS;
	make_pipelines(N_MODELS, models, false, torture.pipelines);
}

void torture_device_deinit(void)
{
	for (unsigned int i = 0; i < torture.n_pipelines; i++)
		vkDestroyPipeline(torture.handle, torture.pipelines[i].handle, NULL);
	torture_graphics_deinit();
	vkDestroyDescriptorUpdateTemplate(torture.handle, torture.push_template, NULL);
	vkDestroyDescriptorPool(torture.handle, torture.pool, NULL);
	for (unsigned int i = 0; i < TORTURE_N_LAYOUTS; i++)
		vkDestroyPipelineLayout(torture.handle, torture.layouts[i].handle, NULL);
	for (unsigned int i = 0; i < TORTURE_N_SET_KINDS; i++)
		vkDestroyDescriptorSetLayout(torture.handle, torture.set_layouts[i], NULL);
	vkDestroyFramebuffer(torture.handle, torture.frame, NULL);
	vkDestroyRenderPass(torture.handle, torture.pass, NULL);
	vkDestroyImageView(torture.handle, torture.target_view, NULL);
	vkDestroyImageView(torture.handle, torture.image_view, NULL);
	vkDestroyImage(torture.handle, torture.target, NULL);
	vkDestroyImage(torture.handle, torture.image, NULL);
	vkFreeMemory(torture.handle, torture.target_memory, NULL);
	vkFreeMemory(torture.handle, torture.image_memory, NULL);
	for (unsigned int i = 0; i < TORTURE_BUFFERS; i++)
		free_buffer(&torture.buffers[i]);
	free_buffer(&torture.sums);
	free_buffer(&torture.arguments);
	free_buffer(&torture.results);
	free_buffer(&torture.predicates);
	free_buffer(&torture.picture);
	vkDestroyDevice(torture.handle, NULL);
	vkDestroyInstance(torture.instance, NULL);
}
