/* SPDX-License-Identifier: MIT */
/*
 * Cutting: see cut.h.
 *
 * While an action's time is not known, it gets a part of its own, so that its time can be measured.
 * Later, actions share a part until their times add up to the part's. Secondary command buffers
 * stay whole; a primary one is cut between two of them.
 */
#include "libclient/layer/cut.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/layer/descriptors.h"
#include "libclient/layer/dispatch.h"
#include "libclient/layer/pipelines.h"
#include "libclient/layer/process.h"
#include "libclient/layer/recording.h"
#include "libclient/layer/say.h"
#include "libclient/layer/timeslice.h"
#include "libclient/layer/variants.h"

/* Slices of one dispatch, at most. */
enum { MAX_SLICES = 1024 };

/* Return true if commands of the recording are noted and may be cut. */
static bool is_cut(const struct recording *recording)
{
	return recording && !recording->is_whole;
}

static const struct cut_next *next_of(const struct recorded *recorded)
{
	return &recorded->device->cutter->next;
}

static VkCommandBuffer current_of(const struct recorded *recorded)
{
	return recorded->recording ? recorded->recording->current : recorded->handle;
}

/* ---- Parts ---- */

/*
 * Begin another part if the current one with @ns more would take too long. @ns is 0 if it is not
 * known.
 */
static void make_room(struct recording *recording, uint64_t ns)
{
	const uint64_t max_ns = recording->device->cutter->max_part_ns;

	if (recording->part_ns > 0 && (ns == 0 || recording->part_ns + ns > max_ns))
		recording_split(recording);
	/* An action whose time is not known fills its part. */
	recording->part_ns += ns > 0 ? ns : max_ns;
}

/*
 * Note an action that takes @ns, in another part if it would make the current one too long. 0: its
 * time is not known.
 */
static void add_timed(struct recording *recording, const struct action *action, uint64_t ns)
{
	make_room(recording, ns);
	recording_note(recording, action);
	recording_restore(recording);
}

static void add_action(struct recording *recording, const struct action *action)
{
	add_timed(recording, action, duration_ns(&recording->device->cutter->durations, action));
}

/* A command that is left out. */
static VKAPI_ATTR void VKAPI_CALL do_nothing(VkCommandBuffer commands)
{
}

/*
 * Note begin or end of a region. Return: false: the end is to be left out, since the region has
 * ended with its part.
 */
static bool note_region(struct recording *recording, enum cut_effect effect)
{
	const bool is_label = effect == CUT_BEGIN_LABEL || effect == CUT_END_LABEL;
	uint32_t *n = is_label ? &recording->n_labels : &recording->n_markers;

	if (effect == CUT_BEGIN_LABEL || effect == CUT_BEGIN_MARKER) {
		++*n;
		return true;
	}
	return *n > 0 && (*n)-- > 0;
}

/* Note a command that may be followed by another part. */
static void note(struct recording *recording, unsigned int command)
{
	const struct action action = {
		.exact = duration_hash(1, command), .n_groups = 1, .fraction = 1};

	switch (cut_commands[command].effect) {
	case CUT_ACTION:
		add_action(recording, &action);
		break;
	case CUT_BEGIN_RENDERING:
	case CUT_BEGIN_PASS:
		add_action(recording, &action);
		recording->n_brackets++;
		break;
	case CUT_BEGIN:
		recording->n_brackets++;
		break;
	case CUT_END:
		if (recording->n_brackets > 0)
			recording->n_brackets--;
		break;
	case CUT_STATE:
		recording_stay_whole(recording);
		break;
	default:
		break;
	}
}

struct cut_target cut_forward(VkCommandBuffer handle, unsigned int command)
{
	const struct recorded *recorded = recording_find(handle);
	struct recording *recording = recorded->recording;
	struct cut_target target = {.function = recorded->device->cutter->commands[command]};
	const enum cut_effect effect = cut_commands[command].effect;

	if (is_cut(recording))
		note(recording, command);
	if (recording && effect == CUT_BEGIN_RENDERING)
		recording->is_together = true;
	/*
	 * Loaders give programs that have not enabled debug utils functions of their own for these,
	 * which do nothing, but the driver has none.
	 */
	if (!target.function || (recording && recording->is_cut && effect >= CUT_BEGIN_LABEL &&
				 !note_region(recording, effect)))
		target.function = (PFN_vkVoidFunction)do_nothing;
	target.commands = current_of(recorded);
	return target;
}

/* ---- What is bound ---- */

static const struct pipeline *find_pipeline(const struct recorded *recorded, VkPipeline handle)
{
	struct recording *recording = recorded->recording;
	struct pipeline *recent =
		&recording->recent[duration_hash(0, (uint64_t)handle) % RECORDING_PIPELINES];

	if (recording->recent_generation != recorded->generation)
		memset(recording->recent, 0, sizeof(recording->recent));
	recording->recent_generation = recorded->generation;
	if (recent->handle != (uint64_t)handle)
		pipelines_find(recorded->device->cutter, handle, recent);
	return recent;
}

static VKAPI_ATTR void VKAPI_CALL bind_pipeline(VkCommandBuffer handle, VkPipelineBindPoint point,
						VkPipeline pipeline)
{
	const struct recorded *recorded = recording_find(handle);
	struct recording *recording = recorded->recording;

	if (is_cut(recording) && point != VK_PIPELINE_BIND_POINT_COMPUTE)
		recording_stay_whole(recording);
	next_of(recorded)->bind_pipeline(current_of(recorded), point, pipeline);
	if (!is_cut(recording))
		return;
	if (recording->pipeline.handle != (uint64_t)pipeline) {
		recording->pipeline = *find_pipeline(recorded, pipeline);
		/*
		 * lavapipe (Mesa 22.3) forgets what the layout of a dispatch has no room for, if
		 * it was pushed just before: as at the begin of a part.
		 */
		recording->n_pushes_there = 0;
	}
	recording->has_pipeline = true;
}

/* Return true if the call @old has no effect any more after @bind. */
static bool is_replaced(const struct recording *recording, const struct bind *old,
			const struct bind *bind)
{
	if (old->first < bind->first || old->first + old->n > bind->first + bind->n)
		return false;
	return old->n_writes == 0 || bind->n_writes == 0 ||
	       descriptors_include(recording, bind, old);
}

/* Add a call to those that are made again in later parts. Return: false: there are too many. */
static bool keep_bind(struct recording *recording, const struct bind *bind)
{
	uint32_t n = 0, n_there = recording->n_binds_there;

	for (uint32_t i = 0; i < recording->n_binds; i++) {
		if (is_replaced(recording, &recording->binds[i], bind)) {
			n_there -= i < recording->n_binds_there;
			continue;
		}
		if (n != i)
			recording->binds[n] = recording->binds[i];
		n++;
	}
	recording->n_binds = n;
	recording->n_binds_there = n_there;
	if (n == RECORDING_BINDS)
		return false;
	recording->binds[recording->n_binds++] = *bind;
	return true;
}

static VKAPI_ATTR void VKAPI_CALL bind_sets(VkCommandBuffer handle, VkPipelineBindPoint point,
					    VkPipelineLayout layout, uint32_t first, uint32_t n,
					    const VkDescriptorSet *sets, uint32_t n_offsets,
					    const uint32_t *offsets)
{
	const struct recorded *recorded = recording_find(handle);
	struct recording *recording = recorded->recording;
	struct bind bind = {.layout = layout, .first = first, .n = n, .n_offsets = n_offsets};
	bool is_kept = is_cut(recording) && point == VK_PIPELINE_BIND_POINT_COMPUTE &&
		       n <= RECORDING_SETS && n_offsets <= RECORDING_OFFSETS;

	if (is_kept) {
		memcpy(bind.sets, sets, n * sizeof(*sets));
		if (n_offsets > 0)
			memcpy(bind.offsets, offsets, n_offsets * sizeof(*offsets));
		is_kept = keep_bind(recording, &bind);
	}
	if (is_kept)
		return;
	if (is_cut(recording))
		recording_stay_whole(recording);
	next_of(recorded)->bind_sets(current_of(recorded), point, layout, first, n, sets, n_offsets,
				     offsets);
}

static VKAPI_ATTR void VKAPI_CALL push_set(VkCommandBuffer handle, VkPipelineBindPoint point,
					   VkPipelineLayout layout, uint32_t set, uint32_t n,
					   const VkWriteDescriptorSet *writes)
{
	const struct recorded *recorded = recording_find(handle);
	struct recording *recording = recorded->recording;
	struct bind bind = {.layout = layout, .first = set, .n = 1};

	if (is_cut(recording) && point == VK_PIPELINE_BIND_POINT_COMPUTE &&
	    descriptors_copy(recording, n, writes, &bind) && keep_bind(recording, &bind))
		return;
	if (is_cut(recording))
		recording_stay_whole(recording);
	next_of(recorded)->push_set(current_of(recorded), point, layout, set, n, writes);
}

static VKAPI_ATTR void VKAPI_CALL push_template(VkCommandBuffer handle,
						VkDescriptorUpdateTemplate template,
						VkPipelineLayout layout, uint32_t set,
						const void *data)
{
	const struct recorded *recorded = recording_find(handle);
	struct recording *recording = recorded->recording;
	struct bind bind = {.layout = layout, .first = set, .n = 1};

	if (is_cut(recording) && descriptors_copy_template(recording, template, data, &bind) &&
	    keep_bind(recording, &bind))
		return;
	if (is_cut(recording))
		recording_stay_whole(recording);
	next_of(recorded)->push_template(current_of(recorded), template, layout, set, data);
}

/* Drop calls of vkCmdPushConstants() whose values the new one sets all. */
static void drop_pushes(struct recording *recording, VkShaderStageFlags stages, uint32_t offset,
			uint32_t end)
{
	uint32_t n = 0, n_there = recording->n_pushes_there;

	for (uint32_t i = 0; i < recording->n_pushes; i++) {
		const struct push *old = &recording->pushes[i];

		if (old->offset >= offset && old->offset + old->n_bytes <= end &&
		    (old->stages & ~stages) == 0) {
			n_there -= i < recording->n_pushes_there;
			continue;
		}
		if (n != i)
			recording->pushes[n] = *old;
		n++;
	}
	recording->n_pushes = n;
	recording->n_pushes_there = n_there;
}

static uint64_t hash_bytes(uint64_t hash, const void *data, uint32_t n_bytes)
{
	/* Their number is a multiple of 4. */
	for (uint32_t i = 0; i + sizeof(uint32_t) <= n_bytes; i += sizeof(uint32_t)) {
		uint32_t word;

		memcpy(&word, (const char *)data + i, sizeof(word));
		hash = duration_hash(hash, word);
	}
	return hash;
}

/* Return the line of the present pipeline and push constants: see duration_exact(). */
static uint64_t line_of(const struct recording *recording)
{
	return duration_hash(recording->pipeline.key, recording->push_hash);
}

static VKAPI_ATTR void VKAPI_CALL push_constants(VkCommandBuffer handle, VkPipelineLayout layout,
						 VkShaderStageFlags stages, uint32_t offset,
						 uint32_t n_bytes, const void *data)
{
	const struct recorded *recorded = recording_find(handle);
	struct recording *recording = recorded->recording;
	struct push *push;

	if (is_cut(recording)) {
		drop_pushes(recording, stages, offset, offset + n_bytes);
		if (n_bytes > RECORDING_PUSH_BYTES || recording->n_pushes == RECORDING_PUSHES)
			recording_stay_whole(recording);
	}
	if (!is_cut(recording)) {
		next_of(recorded)->push_constants(current_of(recorded), layout, stages, offset,
						  n_bytes, data);
		return;
	}
	recording->push_hash = hash_bytes(offset, data, n_bytes);
	duration_fetch(&recorded->device->cutter->durations, line_of(recording));
	push = &recording->pushes[recording->n_pushes++];
	push->layout = layout;
	push->stages = stages;
	push->offset = offset;
	push->n_bytes = n_bytes;
	memcpy(push->data, data, n_bytes);
}

/* ---- Dispatches ---- */

/* A dispatch as the program wants it. */
struct grid {
	uint32_t base[3], n[3];
	bool has_base;
};

/* Return the longest axis of the dispatch without those of @whole_axes; 3: all have one group. */
static uint32_t longest_axis(const struct grid *grid, uint32_t whole_axes)
{
	uint32_t axis = 3;

	for (uint32_t i = 0; i < 3; i++)
		if (!(whole_axes & 1u << i) && grid->n[i] > 1 &&
		    (axis == 3 || grid->n[i] > grid->n[axis]))
			axis = i;
	return axis;
}

/* The division of a dispatch. */
struct division {
	uint32_t n_slices; /* at least 1 */
	uint32_t axis;
	const struct variant *variant; /* with which slices are recorded; NULL: none is needed */
};

/*
 * Divide along the longest axis along which the shader cannot detect that, or if that gives too few
 * slices, along another one, with a rewritten shader.
 */
static struct division divide(struct device *device, const struct recording *recording,
			      const struct grid *grid, uint64_t ns)
{
	const uint64_t max_ns = device->cutter->max_part_ns;
	const struct pipeline *pipeline = &recording->pipeline;
	struct division division = {.n_slices = 1, .axis = 3};
	uint64_t n = ns / max_ns + (ns % max_ns > max_ns / 2);
	uint32_t axis;

	if (n < 2 || recording->n_brackets > 0 || recording->n_parts >= RECORDING_MAX_PARTS)
		return division;
	n = n < MAX_SLICES ? n : MAX_SLICES;
	if (device->cutter->slice)
		division.axis = longest_axis(grid, pipeline->whole_axes);
	axis = longest_axis(grid, 0);
	if (pipeline->variant && axis < 3 &&
	    (division.axis == 3 ||
	     (grid->n[division.axis] < n && grid->n[division.axis] < grid->n[axis])) &&
	    variants_make(device, pipeline->variant)) {
		division.axis = axis;
		division.variant = pipeline->variant;
	}
	if (division.axis == 3) {
		timeslice_count(device, TIMESLICE_UNSLICED, 1);
		return division;
	}
	division.n_slices = n < grid->n[division.axis] ? (uint32_t)n : grid->n[division.axis];
	timeslice_count(device, TIMESLICE_SLICES, division.n_slices);
	return division;
}

static void record_grid(const struct recorded *recorded, const struct grid *grid)
{
	const struct cut_next *next = next_of(recorded);
	PFN_vkCmdDispatchBase with_base =
		next->dispatch_base ? next->dispatch_base : next->dispatch_base_khr;

	if (grid->has_base)
		with_base(current_of(recorded), grid->base[0], grid->base[1], grid->base[2],
			  grid->n[0], grid->n[1], grid->n[2]);
	else
		next->dispatch(current_of(recorded), grid->n[0], grid->n[1], grid->n[2]);
}

static void record_dispatch(VkCommandBuffer handle, const struct grid *grid)
{
	const struct recorded *recorded = recording_find(handle);
	struct recording *recording = recorded->recording;
	const uint64_t n_groups = (uint64_t)grid->n[0] * grid->n[1] * grid->n[2];
	struct action action = {.n_groups = n_groups == 0           ? 1
					    : n_groups > UINT32_MAX ? UINT32_MAX
								    : (uint32_t)n_groups,
				.fraction = 1};
	struct cutter *cutter = recorded->device->cutter;
	struct division division;
	uint32_t n, axis;
	uint64_t whole_ns;
	bool is_sure;

	if (!is_cut(recording)) {
		record_grid(recorded, grid);
		return;
	}
	action.pipeline = recording->pipeline.key;
	action.sized = duration_hash(duration_hash(action.pipeline, grid->n[0]),
				     (uint64_t)grid->n[1] << 32 | grid->n[2]);
	action.exact = duration_exact(line_of(recording), action.sized);
	whole_ns = duration_whole_ns(&cutter->durations, &action, &is_sure);
	division = divide(recorded->device, recording, grid, is_sure ? whole_ns : 0);
	n = division.n_slices;
	axis = n > 1 ? division.axis : 0;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t from = (uint32_t)((uint64_t)grid->n[axis] * i / n),
			       to = (uint32_t)((uint64_t)grid->n[axis] * (i + 1) / n);
		struct grid slice = *grid;

		if (n > 1) {
			slice.base[axis] += from;
			slice.n[axis] = to - from;
			slice.has_base = true;
			action.fraction = (float)(to - from) / (float)grid->n[axis];
		}
		add_timed(recording, &action,
			  (uint64_t)((double)whole_ns * (double)action.fraction));
		if (division.variant) {
			variants_bind(recorded->device, division.variant, recording->current,
				      grid->n);
			recording->has_pipeline = false;
			/* Where it has numbers, layouts with more push constants have others. */
			recording->n_pushes_there = 0;
		}
		record_grid(recorded, &slice);
	}
	/* From here on the program's calls may only be passed on. */
	if (division.variant)
		recording_restore(recording);
	if (n > 1 && recorded->device->physical->keeps_base)
		next_of(recorded)->dispatch(recording->current, 0, 0, 0);
}

static VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer handle, uint32_t x, uint32_t y,
					   uint32_t z)
{
	record_dispatch(handle, &(struct grid){.n = {x, y, z}});
}

static VKAPI_ATTR void VKAPI_CALL dispatch_base(VkCommandBuffer handle, uint32_t base_x,
						uint32_t base_y, uint32_t base_z, uint32_t x,
						uint32_t y, uint32_t z)
{
	record_dispatch(
		handle,
		&(struct grid){.base = {base_x, base_y, base_z}, .n = {x, y, z}, .has_base = true});
}

static VKAPI_ATTR void VKAPI_CALL dispatch_indirect(VkCommandBuffer handle, VkBuffer buffer,
						    VkDeviceSize offset)
{
	const struct recorded *recorded = recording_find(handle);
	struct recording *recording = recorded->recording;

	if (is_cut(recording)) {
		const struct action action = {
			.exact = duration_hash(recording->pipeline.key, recording->push_hash) + 1,
			.n_groups = 1,
			.fraction = 1,
		};

		add_action(recording, &action);
	}
	next_of(recorded)->dispatch_indirect(current_of(recorded), buffer, offset);
}

static VKAPI_ATTR void VKAPI_CALL execute(VkCommandBuffer handle, uint32_t n,
					  const VkCommandBuffer *secondaries)
{
	const struct recorded *recorded = recording_find(handle);
	struct recording *recording = recorded->recording;

	if (!is_cut(recording) || recording->n_brackets > 0) {
		next_of(recorded)->execute(current_of(recorded), n, secondaries);
	} else {
		for (uint32_t i = 0; i < n; i++) {
			const struct action action = {
				.exact = duration_hash(2, (uintptr_t)secondaries[i]),
				.n_groups = 1,
				.fraction = 1,
			};

			make_room(recording,
				  duration_ns(&recorded->device->cutter->durations, &action));
			recording_note(recording, &action);
			next_of(recorded)->execute(recording->current, 1, &secondaries[i]);
		}
	}
	/* One of them may begin rendering that the next one resumes. */
	if (recording && recorded->device->cutter->has_dynamic_rendering)
		recording->is_together = true;
	/* Bindings are undefined from here on. */
	if (is_cut(recording))
		recording_unbind(recording);
}

/* ---- Other functions ---- */

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice handle,
					       const VkCommandBufferAllocateInfo *info,
					       VkCommandBuffer *ret)
{
	return recording_allocate(dispatch_device(handle), info, ret);
}

static VKAPI_ATTR void VKAPI_CALL free_buffers(VkDevice handle, VkCommandPool pool, uint32_t n,
					       const VkCommandBuffer *buffers)
{
	recording_free(dispatch_device(handle), pool, n, buffers);
}

static VKAPI_ATTR void VKAPI_CALL destroy_pool(VkDevice handle, VkCommandPool pool,
					       const VkAllocationCallbacks *allocator)
{
	recording_destroy_pool(dispatch_device(handle), pool, allocator);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_module(VkDevice handle,
						    const VkShaderModuleCreateInfo *info,
						    const VkAllocationCallbacks *allocator,
						    VkShaderModule *ret)
{
	return pipelines_create_module(dispatch_device(handle), info, allocator, ret);
}

static VKAPI_ATTR void VKAPI_CALL destroy_module(VkDevice handle, VkShaderModule module,
						 const VkAllocationCallbacks *allocator)
{
	pipelines_destroy_module(dispatch_device(handle), module, allocator);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice handle, VkPipelineCache cache,
						       uint32_t n,
						       const VkComputePipelineCreateInfo *infos,
						       const VkAllocationCallbacks *allocator,
						       VkPipeline *ret)
{
	return pipelines_create(dispatch_device(handle), cache, n, infos, allocator, ret);
}

static VKAPI_ATTR void VKAPI_CALL destroy_pipeline(VkDevice handle, VkPipeline pipeline,
						   const VkAllocationCallbacks *allocator)
{
	pipelines_destroy(dispatch_device(handle), pipeline, allocator);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_layout(VkDevice handle,
						    const VkPipelineLayoutCreateInfo *info,
						    const VkAllocationCallbacks *allocator,
						    VkPipelineLayout *ret)
{
	return variants_create_layout(dispatch_device(handle), info, allocator, ret);
}

static VKAPI_ATTR void VKAPI_CALL destroy_layout(VkDevice handle, VkPipelineLayout layout,
						 const VkAllocationCallbacks *allocator)
{
	variants_destroy_layout(dispatch_device(handle), layout, allocator);
}

static VKAPI_ATTR VkResult VKAPI_CALL
create_template(VkDevice handle, const VkDescriptorUpdateTemplateCreateInfo *info,
		const VkAllocationCallbacks *allocator, VkDescriptorUpdateTemplate *ret)
{
	return descriptors_create_template(dispatch_device(handle), info, allocator, ret);
}

static VKAPI_ATTR void VKAPI_CALL destroy_template(VkDevice handle,
						   VkDescriptorUpdateTemplate template,
						   const VkAllocationCallbacks *allocator)
{
	descriptors_destroy_template(dispatch_device(handle), template, allocator);
}

/* clang-format off */
static const struct own {
	const char *name;
	PFN_vkVoidFunction function;
} own[] = {
#define OWN(name, function) {"vk" name, (PFN_vkVoidFunction)(function)},
	OWN("AllocateCommandBuffers", allocate)
	OWN("FreeCommandBuffers", free_buffers)
	OWN("DestroyCommandPool", destroy_pool)
	OWN("BeginCommandBuffer", recording_begin)
	OWN("EndCommandBuffer", recording_end)
	OWN("ResetCommandBuffer", recording_reset)
	OWN("CreateShaderModule", create_module)
	OWN("DestroyShaderModule", destroy_module)
	OWN("CreateComputePipelines", create_pipelines)
	OWN("DestroyPipeline", destroy_pipeline)
	OWN("CreatePipelineLayout", create_layout)
	OWN("DestroyPipelineLayout", destroy_layout)
	OWN("CreateDescriptorUpdateTemplate", create_template)
	OWN("CreateDescriptorUpdateTemplateKHR", create_template)
	OWN("DestroyDescriptorUpdateTemplate", destroy_template)
	OWN("DestroyDescriptorUpdateTemplateKHR", destroy_template)
	OWN("CmdBindPipeline", bind_pipeline)
	OWN("CmdBindDescriptorSets", bind_sets)
	OWN("CmdPushConstants", push_constants)
	OWN("CmdPushDescriptorSetKHR", push_set)
	OWN("CmdPushDescriptorSetWithTemplateKHR", push_template)
	OWN("CmdDispatch", dispatch)
	OWN("CmdDispatchBase", dispatch_base)
	OWN("CmdDispatchBaseKHR", dispatch_base)
	OWN("CmdDispatchIndirect", dispatch_indirect)
	OWN("CmdExecuteCommands", execute)
#undef OWN
};
/* clang-format on */

static int by_name(const void *name, const void *command)
{
	return strcmp(name, ((const struct cut_command *)command)->name);
}

PFN_vkVoidFunction cut_function(const char *name)
{
	const struct cut_command *command;

	for (unsigned int i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (strcmp(own[i].name, name) == 0)
			return own[i].function;
	command = bsearch(name, cut_commands, n_cut_commands, sizeof(*cut_commands), by_name);
	return command ? command->function : NULL;
}

/* ---- Devices ---- */

static int by_text(const void *name, const void *other)
{
	return strcmp(name, *(const char *const *)other);
}

static bool has_dynamic_rendering(const VkDeviceCreateInfo *info)
{
	const VkBaseInStructure *each = info->pNext;
	bool has = false;

	for (; each; each = each->pNext)
		if (each->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES)
			has |= ((const VkPhysicalDeviceVulkan13Features *)each)->dynamicRendering;
		else if (each->sType ==
			 VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DYNAMIC_RENDERING_FEATURES)
			has |= ((const VkPhysicalDeviceDynamicRenderingFeatures *)each)
				       ->dynamicRendering;
	return has;
}

static bool has_extension(const VkDeviceCreateInfo *info, const char *name)
{
	for (uint32_t i = 0; i < info->enabledExtensionCount; i++)
		if (strcmp(info->ppEnabledExtensionNames[i], name) == 0)
			return true;
	return false;
}

/* Return the reason why the device's command buffers stay whole; or NULL. */
static const char *obstacle(const struct device *device, const VkDeviceCreateInfo *info)
{
	const VkBaseInStructure *each = info->pNext;

	for (uint32_t i = 0; i < info->enabledExtensionCount; i++)
		if (!bsearch(info->ppEnabledExtensionNames[i], cut_extensions, n_cut_extensions,
			     sizeof(*cut_extensions), by_text))
			return info->ppEnabledExtensionNames[i];
	if (VK_API_VERSION_MINOR(dispatch_version(device)) >
	    VK_API_VERSION_MINOR(VK_HEADER_VERSION_COMPLETE))
		return "a newer version of Vulkan";
	for (; each; each = each->pNext)
		if (each->sType == VK_STRUCTURE_TYPE_DEVICE_GROUP_DEVICE_CREATE_INFO)
			return "a group of devices";
	return NULL;
}

void cut_resolve(struct device *device)
{
	struct cutter *cutter = device->cutter;
	struct cut_next *next = &cutter->next;

#define NEXT(name) (PFN_##name) device->get_proc_addr(device->handle, #name)
	next->allocate = NEXT(vkAllocateCommandBuffers);
	next->free = NEXT(vkFreeCommandBuffers);
	next->destroy_pool = NEXT(vkDestroyCommandPool);
	next->begin = NEXT(vkBeginCommandBuffer);
	next->end = NEXT(vkEndCommandBuffer);
	next->reset = NEXT(vkResetCommandBuffer);
	next->create_module = NEXT(vkCreateShaderModule);
	next->destroy_module = NEXT(vkDestroyShaderModule);
	next->create_pipelines = NEXT(vkCreateComputePipelines);
	next->destroy_pipeline = NEXT(vkDestroyPipeline);
	next->create_layout = NEXT(vkCreatePipelineLayout);
	next->destroy_layout = NEXT(vkDestroyPipelineLayout);
	next->bind_pipeline = NEXT(vkCmdBindPipeline);
	next->bind_sets = NEXT(vkCmdBindDescriptorSets);
	next->push_constants = NEXT(vkCmdPushConstants);
	next->dispatch = NEXT(vkCmdDispatch);
	next->dispatch_base = NEXT(vkCmdDispatchBase);
	next->dispatch_base_khr = NEXT(vkCmdDispatchBaseKHR);
	next->dispatch_indirect = NEXT(vkCmdDispatchIndirect);
	next->execute = NEXT(vkCmdExecuteCommands);
	next->push_set = NEXT(vkCmdPushDescriptorSetKHR);
	next->push_template = NEXT(vkCmdPushDescriptorSetWithTemplateKHR);
	next->create_template = NEXT(vkCreateDescriptorUpdateTemplate);
	next->create_template_khr = NEXT(vkCreateDescriptorUpdateTemplateKHR);
	next->destroy_template = NEXT(vkDestroyDescriptorUpdateTemplate);
	next->destroy_template_khr = NEXT(vkDestroyDescriptorUpdateTemplateKHR);
	next->end_label = NEXT(vkCmdEndDebugUtilsLabelEXT);
	next->end_marker = NEXT(vkCmdDebugMarkerEndEXT);
#undef NEXT
	for (unsigned int i = 0; i < n_cut_commands; i++)
		cutter->commands[i] = device->get_proc_addr(device->handle, cut_commands[i].name);
	if (VK_API_VERSION_MINOR(dispatch_version(device)) >= 1)
		cutter->slice = next->dispatch_base;
	cutter->has_variants &= cutter->slice != NULL;
}

/* Return the loader's function for handles that the program did not allocate; NULL: none. */
static PFN_vkSetDeviceLoaderData loader_data(const VkDeviceCreateInfo *info)
{
	const VkLayerDeviceCreateInfo *each = info->pNext;

	while (each && !(each->sType == VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO &&
			 each->function == VK_LOADER_DATA_CALLBACK))
		each = each->pNext;
	return each ? each->u.pfnSetDeviceLoaderData : NULL;
}

int cut_init(struct device *device, const VkDeviceCreateInfo *info)
{
	struct cutter *cutter;
	const char *why;

	if (!layer_process->environment.is_sharing && !timeslice_is_shared(device))
		return 0;
	cutter = calloc(1, sizeof(*cutter));
	if (!cutter)
		return -ENOMEM;
	cutter->commands = calloc(n_cut_commands, sizeof(*cutter->commands));
	if (!cutter->commands) {
		free(cutter);
		return -ENOMEM;
	}
	cutter->set_loader_data = loader_data(info);
	cutter->max_part_ns = timeslice_is_shared(device) ? device->gpus[0]->timeslice.max_part_ns
							  : layer_process->environment.max_part_ns;
	cutter->has_dynamic_rendering = has_dynamic_rendering(info);
	why = timeslice_is_shared(device) ? obstacle(device, info) : NULL;
	if (why)
		say_error("command buffers are not divided, since the program uses %s, which the "
			  "layer cannot divide",
			  why);
	cutter->is_passive = why || !timeslice_is_shared(device) || !cutter->set_loader_data;
	/* These describe layouts elsewhere, too, which must be the same. */
	cutter->has_variants = !cutter->is_passive &&
			       !has_extension(info, "VK_EXT_shader_object") &&
			       !has_extension(info, "VK_EXT_device_generated_commands");
	recording_init(cutter);
	pipelines_init(cutter);
	variants_init(cutter);
	descriptors_init(cutter);
	device->cutter = cutter;
	return 0;
}

static unsigned long long take(uint64_t *count)
{
	return __atomic_exchange_n(count, 0, __ATOMIC_RELAXED);
}

/* Log what all devices have divided since the last such report. */
static void report(bool is_always)
{
	uint64_t *counts = layer_process->counts;
	const unsigned long long n_parts = take(&counts[TIMESLICE_PARTS]),
				 n_slices = take(&counts[TIMESLICE_SLICES]),
				 n_unsliced = take(&counts[TIMESLICE_UNSLICED]),
				 n_whole = take(&counts[TIMESLICE_WHOLE]);

	if (is_always || n_parts + n_unsliced + n_whole > 0)
		say("command buffers were divided %llu times, dispatches into %llu slices; %llu "
		    "long dispatches stayed whole, and %llu command buffers from a command on that "
		    "the layer cannot repeat",
		    n_parts, n_slices, n_unsliced, n_whole);
}

/* Many programs end without destroying their devices. */
__attribute__((__destructor__)) static void report_at_exit(void)
{
	if (layer_process)
		report(false);
}

void cut_deinit(struct cutter *cutter)
{
	if (!cutter)
		return;
	if (!cutter->is_passive)
		report(true);
	/* Vulkan frees what the program has not, with the device. */
	recording_forget(cutter);
	pipelines_deinit(cutter);
	variants_deinit(cutter);
	descriptors_deinit(cutter);
	free(cutter->commands);
	free(cutter);
}
