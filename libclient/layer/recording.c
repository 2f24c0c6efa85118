/* SPDX-License-Identifier: MIT */
/*
 * Recordings: see recording.h.
 *
 * Each recorded command looks its recording up, so each thread remembers its last one, and each
 * recording its last pipelines. Whenever one of these is freed, a generation ends, since the driver
 * may give its handle away again.
 */
#include "libclient/layer/recording.h"

#include <stdlib.h>
#include <string.h>

#include "libclient/layer/cut.h"
#include "libclient/layer/descriptors.h"
#include "libclient/layer/dispatch.h"
#include "libclient/layer/process.h"
#include "libclient/layer/timeslice.h"

/* Records of the device's tables. */
struct of_handle {
	uint64_t handle;
	struct recording *recording;
};

struct pool {
	uint64_t handle;
	struct recording *first;
};

void recording_init(struct cutter *cutter)
{
	table_init(&cutter->recordings, sizeof(struct of_handle));
	table_init(&cutter->pools, sizeof(struct pool));
}

static uint32_t generation = 1; /* atomic */

const struct recorded *recording_find(VkCommandBuffer handle)
{
	/* Drivers have theirs there, too: there is room, and each command looks here. */
	static _Thread_local __attribute__((__tls_model__("initial-exec"))) struct recorded last;
	const uint32_t now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
	struct of_handle found;

	if (last.handle == handle && last.generation == now)
		return &last;
	last = (struct recorded){.handle = handle, .generation = now};
	last.device = dispatch_device(handle);
	if (table_find(&last.device->cutter->recordings, (uintptr_t)handle, &found))
		last.recording = found.recording;
	return &last;
}

void recording_end_generation(void)
{
	__atomic_fetch_add(&generation, 1, __ATOMIC_ACQ_REL);
}

/* ---- Pools ---- */

static void delete_recording(struct recording *recording)
{
	free(recording->parts);
	free(recording->actions);
	free(recording->pushed);
	free(recording);
}

/* Return: NULL without memory, and the command buffer is passed on as it is. */
static struct recording *new_recording(struct device *device, VkCommandPool pool,
				       VkCommandBuffer handle)
{
	struct recording *recording = calloc(1, sizeof(*recording));
	struct of_handle found = {.handle = (uintptr_t)handle, .recording = recording};

	if (!recording)
		return NULL;
	recording->handle = (uintptr_t)handle;
	recording->device = device;
	recording->pool = pool;
	recording->current = handle;
	recording->parts = calloc(1, sizeof(*recording->parts));
	if (!recording->parts || table_add(&device->cutter->recordings, &found)) {
		delete_recording(recording);
		return NULL;
	}
	recording->parts[0].handle = handle;
	recording->n_parts = recording->n_allocated = recording->n_room = 1;
	return recording;
}

/* Return false without memory. */
static bool add_to_pool(struct cutter *cutter, struct recording *recording)
{
	struct pool pool = {.handle = (uint64_t)recording->pool};

	/* Vulkan requires that one thread at a time uses a pool. */
	if (table_find(&cutter->pools, pool.handle, &pool)) {
		recording->next = pool.first;
		if (pool.first)
			pool.first->previous = recording;
		pool.first = recording;
		return table_replace(&cutter->pools, &pool);
	}
	pool.first = recording;
	return table_add(&cutter->pools, &pool) == 0;
}

VkResult recording_allocate(struct device *device, const VkCommandBufferAllocateInfo *info,
			    VkCommandBuffer *ret)
{
	struct cutter *cutter = device->cutter;
	VkResult result = cutter->next.allocate(device->handle, info, ret);
	struct of_handle found;

	if (result != VK_SUCCESS || info->level != VK_COMMAND_BUFFER_LEVEL_PRIMARY)
		return result;
	for (uint32_t i = 0; i < info->commandBufferCount; i++) {
		struct recording *recording = new_recording(device, info->commandPool, ret[i]);

		if (!recording || add_to_pool(cutter, recording))
			continue;
		table_remove(&cutter->recordings, recording->handle, &found);
		delete_recording(recording);
	}
	return result;
}

static void take_from_pool(struct cutter *cutter, const struct recording *recording)
{
	struct pool pool;

	if (recording->next)
		recording->next->previous = recording->previous;
	if (recording->previous) {
		recording->previous->next = recording->next;
	} else if (table_find(&cutter->pools, (uint64_t)recording->pool, &pool)) {
		pool.first = recording->next;
		table_replace(&cutter->pools, &pool);
	}
}

void recording_free(struct device *device, VkCommandPool pool, uint32_t n,
		    const VkCommandBuffer *handles)
{
	struct cutter *cutter = device->cutter;
	struct of_handle found;

	for (uint32_t i = 0; i < n; i++) {
		struct recording *recording;

		if (!handles[i] ||
		    !table_remove(&cutter->recordings, (uintptr_t)handles[i], &found))
			continue;
		recording = found.recording;
		take_from_pool(cutter, recording);
		for (uint32_t k = 1; k < recording->n_allocated; k++)
			cutter->next.free(device->handle, pool, 1, &recording->parts[k].handle);
		delete_recording(recording);
	}
	recording_end_generation();
	cutter->next.free(device->handle, pool, n, handles);
}

void recording_destroy_pool(struct device *device, VkCommandPool pool,
			    const VkAllocationCallbacks *allocator)
{
	struct cutter *cutter = device->cutter;
	struct of_handle found;
	struct pool known;

	if (pool && table_remove(&cutter->pools, (uint64_t)pool, &known))
		while (known.first) {
			struct recording *recording = known.first;

			known.first = recording->next;
			table_remove(&cutter->recordings, recording->handle, &found);
			delete_recording(recording);
		}
	recording_end_generation();
	cutter->next.destroy_pool(device->handle, pool, allocator);
}

static void forget(const void *record, void *unused)
{
	delete_recording(((const struct of_handle *)record)->recording);
}

void recording_forget(struct cutter *cutter)
{
	table_deinit(&cutter->recordings, forget, NULL);
	table_deinit(&cutter->pools, NULL, NULL);
}

/* ---- Recording ---- */

VKAPI_ATTR VkResult VKAPI_CALL recording_begin(VkCommandBuffer handle,
					       const VkCommandBufferBeginInfo *info)
{
	const struct recorded *recorded = recording_find(handle);
	struct device *device = recorded->device;
	struct recording *recording = recorded->recording;

	if (recording) {
		recording->current = handle;
		recording->is_cut =
			!device->cutter->is_passive && timeslice_divides(device) && !info->pNext;
		recording->is_whole = !recording->is_cut;
		recording->is_together = false;
		recording->n_brackets = recording->n_labels = recording->n_markers = 0;
		recording->begin = *info;
		recording->begin.pInheritanceInfo = NULL;
		recording->error = VK_SUCCESS;
		recording->n_parts = 1;
		recording->parts[0] =
			(struct part){.handle = handle, .is_endless = recording->is_whole};
		recording->n_actions = 0;
		recording->part_ns = 0;
		recording_unbind(recording);
	}
	return device->cutter->next.begin(handle, info);
}

VKAPI_ATTR VkResult VKAPI_CALL recording_end(VkCommandBuffer handle)
{
	const struct recorded *recorded = recording_find(handle);
	struct recording *recording = recorded->recording;
	VkResult result =
		recorded->device->cutter->next.end(recording ? recording->current : handle);

	return recording && recording->error != VK_SUCCESS ? recording->error : result;
}

VKAPI_ATTR VkResult VKAPI_CALL recording_reset(VkCommandBuffer handle,
					       VkCommandBufferResetFlags flags)
{
	const struct recorded *recorded = recording_find(handle);
	struct recording *recording = recorded->recording;
	const struct cut_next *next = &recorded->device->cutter->next;

	for (uint32_t i = 1; recording && i < recording->n_allocated; i++)
		next->reset(recording->parts[i].handle, flags);
	return next->reset(handle, flags);
}

/* Make room for another part. Return false without memory. */
static bool reserve_part(struct recording *recording)
{
	const uint32_t n_room = recording->n_room * 2;
	struct part *parts;

	if (recording->n_parts < recording->n_room)
		return true;
	parts = reallocarray(recording->parts, n_room, sizeof(*parts));
	if (!parts)
		return false;
	recording->parts = parts;
	recording->n_room = n_room;
	return true;
}

/* Return the next part's command buffer; VK_NULL_HANDLE without memory. */
static VkCommandBuffer take_part(struct recording *recording)
{
	struct device *device = recording->device;
	const VkCommandBufferAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.commandPool = recording->pool,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		.commandBufferCount = 1,
	};
	VkCommandBuffer handle;

	if (!reserve_part(recording))
		return VK_NULL_HANDLE;
	if (recording->n_parts < recording->n_allocated)
		return recording->parts[recording->n_parts].handle;
	if (device->cutter->next.allocate(device->handle, &info, &handle) != VK_SUCCESS)
		return VK_NULL_HANDLE;
	/* The loader does this for command buffers that programs allocate. */
	device->cutter->set_loader_data(device->handle, handle);
	recording->parts[recording->n_allocated++].handle = handle;
	return handle;
}

void recording_split(struct recording *recording)
{
	struct cutter *cutter = recording->device->cutter;
	VkCommandBuffer handle;
	VkResult result;

	if (recording->is_whole || recording->n_brackets > 0 ||
	    recording->n_parts == RECORDING_MAX_PARTS)
		return;
	handle = take_part(recording);
	if (!handle || cutter->next.begin(handle, &recording->begin) != VK_SUCCESS)
		return;
	/* Drivers count regions by command buffer; Mesa 22.3 writes anywhere if one has too few. */
	for (; recording->n_labels > 0; recording->n_labels--)
		cutter->next.end_label(recording->current);
	for (; recording->n_markers > 0; recording->n_markers--)
		cutter->next.end_marker(recording->current);
	result = cutter->next.end(recording->current);
	if (result != VK_SUCCESS)
		recording->error = result;
	recording->current = handle;
	recording->parts[recording->n_parts++] =
		(struct part){.handle = handle, .first_action = recording->n_actions};
	recording->part_ns = 0;
	recording->has_pipeline = recording->pipeline.handle == 0;
	recording->n_binds_there = recording->n_pushes_there = 0;
	timeslice_count(recording->device, TIMESLICE_PARTS, 1);
}

void recording_restore(struct recording *recording)
{
	const struct cut_next *next = &recording->device->cutter->next;
	VkCommandBuffer current = recording->current;

	if (!recording->has_pipeline)
		next->bind_pipeline(current, VK_PIPELINE_BIND_POINT_COMPUTE,
				    (VkPipeline)recording->pipeline.handle);
	recording->has_pipeline = true;
	for (uint32_t i = recording->n_binds_there; i < recording->n_binds; i++) {
		const struct bind *bind = &recording->binds[i];

		if (bind->n_writes > 0)
			descriptors_push(recording, bind);
		else
			next->bind_sets(current, VK_PIPELINE_BIND_POINT_COMPUTE, bind->layout,
					bind->first, bind->n, bind->sets, bind->n_offsets,
					bind->offsets);
	}
	recording->n_binds_there = recording->n_binds;
	for (uint32_t i = recording->n_pushes_there; i < recording->n_pushes; i++) {
		const struct push *push = &recording->pushes[i];

		next->push_constants(current, push->layout, push->stages, push->offset,
				     push->n_bytes, push->data);
	}
	recording->n_pushes_there = recording->n_pushes;
}

void recording_stay_whole(struct recording *recording)
{
	/* From here on the program's calls are only passed on. */
	recording_restore(recording);
	recording->is_whole = true;
	timeslice_count(recording->device, TIMESLICE_WHOLE, 1);
	recording->parts[recording->n_parts - 1].is_endless = true;
}

void recording_unbind(struct recording *recording)
{
	recording->pipeline = (struct pipeline){.handle = 0};
	recording->has_pipeline = true;
	recording->n_binds = recording->n_binds_there = 0;
	recording->n_pushed_bytes = 0;
	recording->n_pushes = recording->n_pushes_there = 0;
	recording->push_hash = 0;
}

void recording_note(struct recording *recording, const struct action *action)
{
	struct part *part = &recording->parts[recording->n_parts - 1];

	if (recording->n_actions == recording->n_actions_room) {
		const uint32_t n_room =
			recording->n_actions_room ? recording->n_actions_room * 2 : 16;
		struct action *actions = reallocarray(recording->actions, n_room, sizeof(*actions));

		if (!actions) {
			recording_stay_whole(recording);
			return;
		}
		recording->actions = actions;
		recording->n_actions_room = n_room;
	}
	recording->actions[recording->n_actions++] = *action;
	part->n_actions++;
}
