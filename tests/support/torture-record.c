/* SPDX-License-Identifier: MIT */
/*
 * Contents of torture-client's command buffers
 *
 * Most commands are dispatches; others are drawn between them. Sections (conditions, queries,
 * labels) begin and end at drawn places, and all end before secondary command buffers and at the
 * end.
 */
#include "support/torture.h"

static const VkImageSubresourceLayers color = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1};

/* ---- Kits ---- */

static void draw_pair(struct torture_random *random, struct torture_window windows[2])
{
	do {
		windows[0] = torture_draw_window(random);
		windows[1] = torture_draw_window(random);
	} while (torture_window_bits(&windows[0]) & torture_window_bits(&windows[1]));
}

static void allocate_sets(struct torture_kit *kit, enum torture_set_kind kind, unsigned int n,
			  VkDescriptorSet *ret)
{
	VkDescriptorSetLayout layouts[TORTURE_PAIRS + TORTURE_DYNAMICS];
	const VkDescriptorSetAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
		.descriptorPool = kit->pool,
		.descriptorSetCount = n,
		.pSetLayouts = layouts,
	};

	for (unsigned int i = 0; i < n; i++)
		layouts[i] = torture.set_layouts[kind];
	EXPECT(vkAllocateDescriptorSets(torture.handle, &info, ret));
}

static void make_sets(struct torture_kit *kit, struct torture_random *random)
{
	/* Sets replace push descriptors where the device has none. */
	unsigned int n_pushed = torture.has_push_sets ? 0 : TORTURE_MOST_PUSHED;
	const VkDescriptorPoolSize sizes[] = {
		{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 2 * (TORTURE_PAIRS + n_pushed)},
		{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER_DYNAMIC, 2 * TORTURE_DYNAMICS},
	};
	const VkDescriptorPoolCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
		.maxSets = TORTURE_PAIRS + TORTURE_DYNAMICS + n_pushed,
		.poolSizeCount = 2,
		.pPoolSizes = sizes,
	};

	EXPECT(vkCreateDescriptorPool(torture.handle, &info, NULL, &kit->pool));
	allocate_sets(kit, TORTURE_SET_PAIR, TORTURE_PAIRS, kit->pair_sets);
	allocate_sets(kit, TORTURE_SET_DYNAMIC, TORTURE_DYNAMICS, kit->dynamic_sets);
	for (unsigned int i = 0; i < TORTURE_PAIRS; i++) {
		draw_pair(random, kit->pairs[i]);
		torture_write_pair(kit->pair_sets[i], VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
				   kit->pairs[i]);
	}
	for (unsigned int i = 0; i < TORTURE_DYNAMICS; i++) {
		/* Leave room for offsets. */
		do {
			draw_pair(random, kit->dynamics[i]);
		} while (kit->dynamics[i][0].first > 4 || kit->dynamics[i][1].first > 4);
		torture_write_pair(kit->dynamic_sets[i], VK_DESCRIPTOR_TYPE_STORAGE_BUFFER_DYNAMIC,
				   kit->dynamics[i]);
	}
}

void torture_kit_init(struct torture_kit *kit, struct torture_random *random, unsigned int number,
		      unsigned int n_kits)
{
	const VkEventCreateInfo event = {.sType = VK_STRUCTURE_TYPE_EVENT_CREATE_INFO};
	VkQueryPoolCreateInfo queries = {
		.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
		.queryType = VK_QUERY_TYPE_TIMESTAMP,
		.queryCount = TORTURE_QUERIES,
	};

	*kit = (struct torture_kit){.n_results = TORTURE_RESULTS / n_kits};
	kit->first_result = number * kit->n_results;
	if (kit->n_results > TORTURE_QUERIES)
		kit->n_results = TORTURE_QUERIES;
	make_sets(kit, random);
	torture_graphics_make_square(kit, random);
	for (unsigned int i = 0; i < TORTURE_EVENTS; i++)
		EXPECT(vkCreateEvent(torture.handle, &event, NULL, &kit->events[i]));
	EXPECT(vkCreateQueryPool(torture.handle, &queries, NULL, &kit->times));
	queries.queryType = VK_QUERY_TYPE_PIPELINE_STATISTICS;
	queries.pipelineStatistics = VK_QUERY_PIPELINE_STATISTIC_COMPUTE_SHADER_INVOCATIONS_BIT;
	if (torture.has_statistics)
		EXPECT(vkCreateQueryPool(torture.handle, &queries, NULL, &kit->statistics));
	if (!torture_chance(random, 20))
		return;
	torture_count(TORTURE_OWN_PIPELINE);
	torture_make_pipelines(random, kit->own);
	kit->n_own = TORTURE_N_OWN;
}

void torture_kit_deinit(struct torture_kit *kit)
{
	for (unsigned int i = 0; i < kit->n_own; i++)
		vkDestroyPipeline(torture.handle, kit->own[i].handle, NULL);
	for (unsigned int i = 0; i < TORTURE_EVENTS; i++)
		vkDestroyEvent(torture.handle, kit->events[i], NULL);
	vkDestroyQueryPool(torture.handle, kit->times, NULL);
	vkDestroyQueryPool(torture.handle, kit->statistics, NULL);
	vkDestroyDescriptorPool(torture.handle, kit->pool, NULL);
	vkDestroyCommandPool(torture.handle, kit->square_pool, NULL);
}

/* ---- Transfers ---- */

uint64_t torture_draw_region(struct torture_recorder *recorder, VkBuffer *ret_buffer,
			     VkDeviceSize *ret_offset)
{
	struct torture_window window = {torture_below(recorder->random, TORTURE_BUFFERS), 0, 1};

	window.first = torture_below(recorder->random, TORTURE_REGIONS);
	*ret_buffer = torture.buffers[window.buffer].handle;
	*ret_offset = window.first * TORTURE_REGION_BYTES;
	return torture_window_bits(&window);
}

/* Copy some ranges of one region to another. */
static void copy(struct torture_recorder *recorder)
{
	enum { MOST_RANGES = 3, RANGE_WORDS = TORTURE_REGION_WORDS / MOST_RANGES };
	VkBufferCopy ranges[MOST_RANGES];
	VkBuffer from, to;
	VkDeviceSize from_bytes, to_bytes;
	uint64_t reads = torture_draw_region(recorder, &from, &from_bytes);
	uint64_t writes = torture_draw_region(recorder, &to, &to_bytes);
	uint32_t n = 1 + torture_below(recorder->random, MOST_RANGES);

	if (reads == writes)
		return;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t words = 1 + torture_below(recorder->random, RANGE_WORDS);
		uint32_t shift = torture_below(recorder->random, RANGE_WORDS - words + 1);

		ranges[i] = (VkBufferCopy){
			.srcOffset = from_bytes + 4 * (i * RANGE_WORDS + shift),
			.dstOffset = to_bytes + 4 * ((n - 1 - i) * RANGE_WORDS + shift),
			.size = 4 * words,
		};
	}
	torture_count(TORTURE_COPY);
	torture_sync_use(recorder, reads, writes);
	vkCmdCopyBuffer(recorder->commands, from, to, n, ranges);
}

static void fill(struct torture_recorder *recorder)
{
	VkBuffer buffer;
	VkDeviceSize offset;
	uint64_t writes = torture_draw_region(recorder, &buffer, &offset);
	uint32_t words = 1 + torture_below(recorder->random, TORTURE_REGION_WORDS / 4);
	uint32_t first = torture_below(recorder->random, TORTURE_REGION_WORDS - words + 1);
	uint32_t value = (uint32_t)torture_draw(recorder->random);

	torture_count(TORTURE_FILL);
	torture_sync_use(recorder, 0, writes);
	vkCmdFillBuffer(recorder->commands, buffer, offset + 4 * first, 4 * words, value);
}

static void update(struct torture_recorder *recorder)
{
	uint32_t values[64];
	VkBuffer buffer;
	VkDeviceSize offset;
	uint64_t writes = torture_draw_region(recorder, &buffer, &offset);
	uint32_t words = 1 + torture_below(recorder->random, 64);

	for (uint32_t i = 0; i < words; i++)
		values[i] = (uint32_t)torture_draw(recorder->random);
	offset += 4 * torture_below(recorder->random, TORTURE_REGION_WORDS - words + 1);
	torture_count(TORTURE_UPDATE);
	torture_sync_use(recorder, 0, writes);
	vkCmdUpdateBuffer(recorder->commands, buffer, offset, 4 * words, values);
}

static void update_arguments(struct torture_recorder *recorder)
{
	uint32_t slot = torture_below(recorder->random, TORTURE_ARGUMENTS), counts[3];

	for (unsigned int i = 0; i < 3; i++)
		counts[i] = 1 + torture_below(recorder->random, TORTURE_MOST_INDIRECT);
	torture_sync_use(recorder, 0, 1ull << TORTURE_BIT_ARGUMENTS);
	vkCmdUpdateBuffer(recorder->commands, torture.arguments.handle,
			  slot * TORTURE_ARGUMENT_BYTES, sizeof(counts), counts);
}

void torture_copy_picture(struct torture_recorder *recorder, VkImage image, VkImageLayout layout,
			  uint32_t side, uint64_t reads)
{
	VkBufferImageCopy region = {
		.imageSubresource = color,
		.imageExtent = {side, side, 1},
	};
	VkBuffer buffer;
	uint64_t writes = torture_draw_region(recorder, &buffer, &region.bufferOffset);

	torture_sync_use(recorder, reads, writes);
	vkCmdCopyImageToBuffer(recorder->commands, image, layout, buffer, 1, &region);
}

static void clear_image(struct torture_recorder *recorder)
{
	const VkImageSubresourceRange whole = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
	VkClearColorValue value = {.uint32 = {(uint32_t)torture_draw(recorder->random)}};

	torture_count(TORTURE_CLEAR_IMAGE);
	torture_sync_use(recorder, 0, 1ull << TORTURE_BIT_IMAGE);
	vkCmdClearColorImage(recorder->commands, torture.image, VK_IMAGE_LAYOUT_GENERAL, &value, 1,
			     &whole);
}

/* ---- Sections ---- */

/* The validation of 1.3.239 aborts if a command buffer with queries is pending twice. */
static bool may_query(const struct torture_recorder *recorder)
{
	const struct torture_recording *about = &recorder->about;

	return !torture.is_validated || !(about->may_repeat || about->is_secondary);
}

static void write_time(struct torture_recorder *recorder)
{
	struct torture_kit *kit = recorder->about.kit;
	bool is_late = torture_chance(recorder->random, 2);
	bool is_2 = torture_chance(recorder->random, 3);
	uint32_t query = kit->n_times;

	if (query == TORTURE_QUERIES || !torture.has_timestamps || !may_query(recorder))
		return;
	kit->n_times++;
	torture_count(TORTURE_TIMESTAMP);
	vkCmdResetQueryPool(recorder->commands, kit->times, query, 1);
	if (is_2 && torture.has_submit2)
		vkCmdWriteTimestamp2(recorder->commands, VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT,
				     kit->times, query);
	else
		vkCmdWriteTimestamp(recorder->commands,
				    is_late ? VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT
					    : VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT,
				    kit->times, query);
}

static void begin_query(struct torture_recorder *recorder)
{
	struct torture_kit *kit = recorder->about.kit;

	/* Mesa 22.3's software driver crashes at a query that begins before any pipeline is bound.
	 */
	if (kit->n_statistics == kit->n_results || !recorder->pipeline || !may_query(recorder))
		return;
	recorder->query = kit->n_statistics++;
	recorder->has_query = true;
	if (!torture.has_statistics)
		return;
	torture_count(TORTURE_STATISTICS);
	vkCmdResetQueryPool(recorder->commands, kit->statistics, recorder->query, 1);
	vkCmdBeginQuery(recorder->commands, kit->statistics, recorder->query, 0);
}

static void end_query(struct torture_recorder *recorder)
{
	struct torture_kit *kit = recorder->about.kit;
	VkDeviceSize offset = 8 * (kit->first_result + recorder->query);

	if (!recorder->has_query)
		return;
	recorder->has_query = false;
	if (torture.has_statistics)
		vkCmdEndQuery(recorder->commands, kit->statistics, recorder->query);
	torture_sync_use(recorder, 0, 1ull << TORTURE_BIT_RESULTS);
	if (torture.has_statistics)
		vkCmdCopyQueryPoolResults(recorder->commands, kit->statistics, recorder->query, 1,
					  torture.results.handle, offset, 8,
					  VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
}

static void begin_condition(struct torture_recorder *recorder)
{
	uint32_t slot = torture_below(recorder->random, TORTURE_PREDICATES);
	bool is_inverted = torture_chance(recorder->random, 2);
	const VkConditionalRenderingBeginInfoEXT info = {
		.sType = VK_STRUCTURE_TYPE_CONDITIONAL_RENDERING_BEGIN_INFO_EXT,
		.buffer = torture.predicates.handle,
		.offset = 4 * slot,
		.flags = is_inverted ? VK_CONDITIONAL_RENDERING_INVERTED_BIT_EXT : 0,
	};

	torture_count(TORTURE_CONDITIONAL);
	recorder->has_condition = true;
	if (torture.has_conditional)
		vkCmdBeginConditionalRenderingEXT(recorder->commands, &info);
	else
		recorder->skips = (torture.predicates.words[slot] != 0) == is_inverted;
}

static void end_condition(struct torture_recorder *recorder)
{
	if (recorder->has_condition && torture.has_conditional)
		vkCmdEndConditionalRenderingEXT(recorder->commands);
	recorder->has_condition = recorder->skips = false;
}

static void begin_label(struct torture_recorder *recorder)
{
	const VkDebugUtilsLabelEXT label = {
		.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT,
		.pLabelName = "torture",
	};

	if (!torture.has_labels)
		return;
	torture_count(TORTURE_LABEL);
	recorder->n_labels++;
	vkCmdBeginDebugUtilsLabelEXT(recorder->commands, &label);
	vkCmdInsertDebugUtilsLabelEXT(recorder->commands, &label);
}

static void end_label(struct torture_recorder *recorder)
{
	if (recorder->n_labels == 0)
		return;
	recorder->n_labels--;
	vkCmdEndDebugUtilsLabelEXT(recorder->commands);
}

/* End what secondary command buffers do not inherit. */
void torture_end_sections(struct torture_recorder *recorder)
{
	end_query(recorder);
	end_condition(recorder);
}

static void execute(struct torture_recorder *recorder)
{
	const struct torture_recording *about = &recorder->about;
	VkCommandBuffer list[4];
	unsigned int n = 0, n_tries = 2 + torture_below(recorder->random, 3);

	for (unsigned int i = 0; i < n_tries && about->n_secondaries > 0; i++) {
		unsigned int number = torture_below(recorder->random, about->n_secondaries);

		if (recorder->used_secondaries & 1u << number && !about->may_repeat)
			continue;
		recorder->used_secondaries |= 1u << number;
		list[n++] = about->secondaries[number];
	}
	if (n == 0)
		return;
	torture_count(n > 1 ? TORTURE_SECONDARIES : TORTURE_SECONDARY);
	torture_end_sections(recorder);
	torture_sync_barrier(recorder);
	vkCmdExecuteCommands(recorder->commands, n, list);
	recorder->has_base = true;
	torture_forget_state(recorder);
	recorder->reads = recorder->writes = ~0ull;
}

/* ---- The command buffer ---- */

static void record_section(struct torture_recorder *recorder)
{
	switch (torture_below(recorder->random, 6)) {
	case 0:
	case 1:
		if (recorder->has_query)
			end_query(recorder);
		else
			begin_query(recorder);
		break;
	case 2:
	case 3:
		if (recorder->has_condition)
			end_condition(recorder);
		else
			begin_condition(recorder);
		break;
	case 4:
		begin_label(recorder);
		break;
	default:
		end_label(recorder);
		break;
	}
}

static void record_transfer(struct torture_recorder *recorder)
{
	switch (torture_below(recorder->random, 12)) {
	case 0:
	case 1:
		copy(recorder);
		break;
	case 2:
		fill(recorder);
		break;
	case 3:
		update(recorder);
		break;
	case 4:
		update_arguments(recorder);
		break;
	case 5:
		clear_image(recorder);
		break;
	case 6:
	case 7:
		torture_count(TORTURE_IMAGE);
		torture_copy_picture(recorder, torture.image, VK_IMAGE_LAYOUT_GENERAL,
				     TORTURE_IMAGE_SIDE, 1ull << TORTURE_BIT_IMAGE);
		break;
	default:
		torture_graphics_render(recorder);
		break;
	}
}

static void record_operation(struct torture_recorder *recorder)
{
	unsigned int choice = torture_below(recorder->random, 34);

	if (choice < 18)
		torture_dispatch(recorder);
	else if (choice < 24)
		record_transfer(recorder);
	else if (choice < 26)
		record_section(recorder);
	else if (choice < 28)
		execute(recorder);
	else if (choice == 28)
		write_time(recorder);
	else if (choice == 29)
		torture_sync_signal(recorder);
	else if (choice == 30)
		torture_push_some(recorder);
	else if (choice == 31)
		torture_sync_barrier(recorder);
	else if (choice == 32)
		torture_graphics_prepare(recorder);
	else
		torture_graphics_bind_others(recorder);
}

void torture_record(const struct torture_recording *recording)
{
	struct torture_recorder recorder = {
		.about = *recording,
		.random = recording->random,
		.commands = recording->commands,
		.has_base = recording->is_secondary,
	};

	if (recording->is_secondary)
		torture_count(TORTURE_SECONDARY);
	torture_sync_open(&recorder);
	for (unsigned int i = 0; i < recording->n_operations; i++)
		record_operation(&recorder);
	/* Rarely leave secondary command buffers without use. */
	if (recorder.used_secondaries == 0 && !torture_chance(recorder.random, 8)) {
		execute(&recorder);
		torture_dispatch(&recorder);
	}
	torture_end_sections(&recorder);
	while (recorder.n_labels > 0)
		end_label(&recorder);
	torture_sync_close(&recorder);
}
