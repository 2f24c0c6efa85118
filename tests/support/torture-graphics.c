/* SPDX-License-Identifier: MIT */
/*
 * Render passes of torture-client
 *
 * A pass clears the target, clears a square of it, and may draw a triangle through a scissor. The
 * pipeline, viewport and scissor of the triangle are set some time before, with dispatches between.
 * Push constants are the same memory for graphics and compute, so each invalidates the other's.
 *
 * A family without graphics gets the same words by vkCmdUpdateBuffer.
 */
#include "support/torture.h"
#include "support/torture-shaders.h"

enum { SIDE = TORTURE_TARGET_SIDE };

static VkRect2D draw_rect(struct torture_random *random)
{
	uint32_t x = torture_below(random, SIDE), y = torture_below(random, SIDE);
	VkRect2D rect = {.offset = {(int32_t)x, (int32_t)y}};

	rect.extent.width = 1 + torture_below(random, SIDE - x);
	rect.extent.height = 1 + torture_below(random, SIDE - y);
	return rect;
}

static bool is_within(const VkRect2D *rect, uint32_t x, uint32_t y)
{
	return x - (uint32_t)rect->offset.x < rect->extent.width &&
	       y - (uint32_t)rect->offset.y < rect->extent.height;
}

/* ---- The pipeline ---- */

static VkShaderModule make_module(enum torture_shader shader)
{
	const VkShaderModuleCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
		.codeSize = torture_shaders[shader].bytes,
		.pCode = torture_shaders[shader].words,
	};
	VkShaderModule module;

	EXPECT(vkCreateShaderModule(torture.handle, &info, NULL, &module));
	return module;
}

static void make_layout(void)
{
	const VkPushConstantRange range = {VK_SHADER_STAGE_FRAGMENT_BIT, 0, 8};
	const VkPipelineLayoutCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
		.pushConstantRangeCount = 1,
		.pPushConstantRanges = &range,
	};

	EXPECT(vkCreatePipelineLayout(torture.handle, &info, NULL, &torture.graphics_layout));
}

static void make_pipeline(const VkPipelineShaderStageCreateInfo stages[2])
{
	static const VkDynamicState dynamic[] = {VK_DYNAMIC_STATE_VIEWPORT,
						 VK_DYNAMIC_STATE_SCISSOR};
	const VkPipelineVertexInputStateCreateInfo no_input = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO,
	};
	const VkPipelineInputAssemblyStateCreateInfo assembly = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO,
		.topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
	};
	const VkPipelineViewportStateCreateInfo viewport = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO,
		.viewportCount = 1,
		.scissorCount = 1,
	};
	const VkPipelineRasterizationStateCreateInfo rasterization = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_RASTERIZATION_STATE_CREATE_INFO,
		.lineWidth = 1,
	};
	const VkPipelineMultisampleStateCreateInfo samples = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO,
		.rasterizationSamples = VK_SAMPLE_COUNT_1_BIT,
	};
	const VkPipelineColorBlendAttachmentState attachment = {
		.colorWriteMask = VK_COLOR_COMPONENT_R_BIT,
	};
	const VkPipelineColorBlendStateCreateInfo blend = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO,
		.attachmentCount = 1,
		.pAttachments = &attachment,
	};
	const VkPipelineDynamicStateCreateInfo dynamic_info = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_DYNAMIC_STATE_CREATE_INFO,
		.dynamicStateCount = 2,
		.pDynamicStates = dynamic,
	};
	const VkGraphicsPipelineCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO,
		.stageCount = 2,
		.pStages = stages,
		.pVertexInputState = &no_input,
		.pInputAssemblyState = &assembly,
		.pViewportState = &viewport,
		.pRasterizationState = &rasterization,
		.pMultisampleState = &samples,
		.pColorBlendState = &blend,
		.pDynamicState = &dynamic_info,
		.layout = torture.graphics_layout,
		.renderPass = torture.pass,
	};

	EXPECT(vkCreateGraphicsPipelines(torture.handle, VK_NULL_HANDLE, 1, &info, NULL,
					 &torture.graphics));
}

void torture_graphics_init(void)
{
	VkPipelineShaderStageCreateInfo stages[2];

	if (!torture.has_graphics)
		return;
	for (unsigned int i = 0; i < 2; i++)
		stages[i] = (VkPipelineShaderStageCreateInfo){
			.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
			.stage = i == 0 ? VK_SHADER_STAGE_VERTEX_BIT : VK_SHADER_STAGE_FRAGMENT_BIT,
			.module = make_module(i == 0 ? TORTURE_SHADER_TRIANGLE_VERTEX
						     : TORTURE_SHADER_TRIANGLE_FRAGMENT),
			.pName = "main",
		};
	make_layout();
	make_pipeline(stages);
	for (unsigned int i = 0; i < 2; i++)
		vkDestroyShaderModule(torture.handle, stages[i].module, NULL);
}

void torture_graphics_deinit(void)
{
	vkDestroyPipeline(torture.handle, torture.graphics, NULL);
	vkDestroyPipelineLayout(torture.handle, torture.graphics_layout, NULL);
}

/* ---- Squares of kits ---- */

static void clear_square(VkCommandBuffer commands, const struct torture_square *square)
{
	const VkClearAttachment value = {
		VK_IMAGE_ASPECT_COLOR_BIT, 0, {.color.uint32 = {square->value}}};
	const VkClearRect rect = {square->rect, 0, 1};

	vkCmdClearAttachments(commands, 1, &value, 1, &rect);
}

static void record_square(struct torture_kit *kit)
{
	const VkCommandBufferInheritanceInfo pass = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO,
		.renderPass = torture.pass,
		.framebuffer = torture.frame,
	};
	const VkCommandBufferBeginInfo begin = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
		.flags = VK_COMMAND_BUFFER_USAGE_RENDER_PASS_CONTINUE_BIT |
			 VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT,
		.pInheritanceInfo = &pass,
	};
	const VkCommandPoolCreateInfo pool = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
		.queueFamilyIndex = torture.family,
	};
	VkCommandBufferAllocateInfo allocate = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.level = VK_COMMAND_BUFFER_LEVEL_SECONDARY,
		.commandBufferCount = 1,
	};

	EXPECT(vkCreateCommandPool(torture.handle, &pool, NULL, &kit->square_pool));
	allocate.commandPool = kit->square_pool;
	EXPECT(vkAllocateCommandBuffers(torture.handle, &allocate, &kit->square_commands));
	EXPECT(vkBeginCommandBuffer(kit->square_commands, &begin));
	clear_square(kit->square_commands, &kit->square);
	EXPECT(vkEndCommandBuffer(kit->square_commands));
}

static struct torture_square draw_square(struct torture_random *random)
{
	struct torture_square square = {.value = (uint32_t)torture_draw(random)};

	square.rect = draw_rect(random);
	return square;
}

/* Record a secondary command buffer that clears a square in any of the kit's passes. */
void torture_graphics_make_square(struct torture_kit *kit, struct torture_random *random)
{
	kit->square = draw_square(random);
	if (torture.has_graphics)
		record_square(kit);
}

/* ---- Passes ---- */

/* Set the state of a later triangle. */
void torture_graphics_prepare(struct torture_recorder *recorder)
{
	static const VkViewport viewport = {0, 0, SIDE, SIDE, 0, 1};

	if (recorder->about.is_secondary)
		return;
	recorder->has_triangle = true;
	recorder->scissor = draw_rect(recorder->random);
	if (!torture.has_graphics)
		return;
	vkCmdSetViewport(recorder->commands, 0, 1, &viewport);
	vkCmdBindPipeline(recorder->commands, VK_PIPELINE_BIND_POINT_GRAPHICS, torture.graphics);
	vkCmdSetScissor(recorder->commands, 0, 1, &recorder->scissor);
}

/* Bind sets for graphics, which compute must not notice. */
void torture_graphics_bind_others(struct torture_recorder *recorder)
{
	const struct torture_kit *kit = recorder->about.kit;
	uint32_t number = torture_below(recorder->random, TORTURE_PAIRS);
	const VkDescriptorSet sets[2] = {kit->pair_sets[number],
					 torture.sum_sets[number % TORTURE_SUMS]};
	unsigned int layout = 3 * torture_below(recorder->random, 2);

	if (!torture.has_graphics)
		return;
	torture_count(TORTURE_OTHER_POINT);
	vkCmdBindDescriptorSets(recorder->commands, VK_PIPELINE_BIND_POINT_GRAPHICS,
				torture.layouts[layout].handle, 0, 2, sets, 0, NULL);
}

/* Draw the constants of the triangle; they stay if compute has pushed none since. */
static void push_triangle(struct torture_recorder *recorder)
{
	if (recorder->push_words == TORTURE_PUSHED_GRAPHICS && !torture_chance(recorder->random, 2))
		return;
	recorder->push_words = TORTURE_PUSHED_GRAPHICS;
	recorder->pushed = 0;
	recorder->triangle[0] = (uint32_t)torture_draw(recorder->random);
	recorder->triangle[1] = (uint32_t)torture_draw(recorder->random);
	if (torture.has_graphics)
		vkCmdPushConstants(recorder->commands, torture.graphics_layout,
				   VK_SHADER_STAGE_FRAGMENT_BIT, 0, 8, recorder->triangle);
}

static uint32_t pixel(const struct torture_recorder *recorder, const struct torture_square *outside,
		      const struct torture_square *inside, uint32_t x, uint32_t y)
{
	if (recorder->has_triangle && is_within(&recorder->scissor, x, y))
		return (x + 31 * y) * recorder->triangle[0] + recorder->triangle[1];
	return is_within(&inside->rect, x, y) ? inside->value : outside->value;
}

static void write_pixels(struct torture_recorder *recorder, const struct torture_square *outside,
			 const struct torture_square *inside)
{
	uint32_t words[SIDE * SIDE];
	VkBuffer buffer;
	VkDeviceSize offset;
	uint64_t writes = torture_draw_region(recorder, &buffer, &offset);

	for (uint32_t i = 0; i < SIDE * SIDE; i++)
		words[i] = pixel(recorder, outside, inside, i % SIDE, i / SIDE);
	torture_sync_use(recorder, 0, writes);
	vkCmdUpdateBuffer(recorder->commands, buffer, offset, sizeof(words), words);
}

static void begin_pass(struct torture_recorder *recorder, uint32_t value,
		       VkSubpassContents contents)
{
	const VkClearValue clear = {.color.uint32 = {value}};
	const VkRenderPassBeginInfo info = {
		.sType = VK_STRUCTURE_TYPE_RENDER_PASS_BEGIN_INFO,
		.renderPass = torture.pass,
		.framebuffer = torture.frame,
		.renderArea.extent = {SIDE, SIDE},
		.clearValueCount = 1,
		.pClearValues = &clear,
	};

	torture_count(TORTURE_RENDER);
	vkCmdBeginRenderPass(recorder->commands, &info, contents);
}

/* Have the kit's secondary command buffer clear the square. */
static void render_secondary(struct torture_recorder *recorder,
			     const struct torture_square *outside)
{
	const struct torture_kit *kit = recorder->about.kit;

	torture_end_sections(recorder);
	torture_forget_state(recorder);
	if (!torture.has_graphics) {
		write_pixels(recorder, outside, &kit->square);
		return;
	}
	torture_count(TORTURE_RENDER_SECONDARY);
	begin_pass(recorder, outside->value, VK_SUBPASS_CONTENTS_SECONDARY_COMMAND_BUFFERS);
	vkCmdExecuteCommands(recorder->commands, 1, &kit->square_commands);
	recorder->has_base = true;
	vkCmdEndRenderPass(recorder->commands);
	torture_copy_picture(recorder, torture.target, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, SIDE,
			     0);
}

static void render_inline(struct torture_recorder *recorder, const struct torture_square *outside)
{
	const struct torture_square inside = draw_square(recorder->random);

	if (recorder->has_triangle)
		push_triangle(recorder);
	if (!torture.has_graphics) {
		write_pixels(recorder, outside, &inside);
		return;
	}
	begin_pass(recorder, outside->value, VK_SUBPASS_CONTENTS_INLINE);
	clear_square(recorder->commands, &inside);
	if (recorder->has_triangle) {
		torture_count(TORTURE_DRAW);
		vkCmdDraw(recorder->commands, 3, 1, 0, 0);
	}
	vkCmdEndRenderPass(recorder->commands);
	torture_copy_picture(recorder, torture.target, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, SIDE,
			     0);
}

void torture_graphics_render(struct torture_recorder *recorder)
{
	struct torture_square outside;

	/* Only primary command buffers begin passes, and a condition applies to clears, too. */
	if (recorder->about.is_secondary || recorder->has_condition)
		return;
	outside = draw_square(recorder->random);
	torture_sync_use(recorder, 0, 1ull << TORTURE_BIT_TARGET);
	if (torture_chance(recorder->random, 4))
		render_secondary(recorder, &outside);
	else
		render_inline(recorder, &outside);
}
