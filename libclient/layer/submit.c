/* SPDX-License-Identifier: MIT */
/*
 * Submissions: see submit.h.
 *
 * A submission without parts is passed on as it is, once it may begin. Otherwise each batch
 * (VkSubmitInfo) becomes one or more pieces, each submitted by itself: the first one waits for the
 * batch's semaphores, the last one signals its semaphores and the fence. A queue begins its
 * batches in order, a wait holds back all later commands of the queue, a signal comes after all
 * earlier ones, and barriers reach over command buffers and batches, so nothing else is needed.
 *
 * Source: the Vulkan specification, "Command Buffer Submission" and "Implicit Synchronization
 * Guarantees".
 */
#include "libclient/layer/submit.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/layer/cut.h"
#include "libclient/layer/dispatch.h"
#include "libclient/layer/mover.h"
#include "libclient/layer/recording.h"
#include "libclient/layer/timeslice.h"

/* A call of vkQueueSubmit() or 2. */
struct call {
	struct device *device;
	VkQueue queue;
	uint32_t n;
	const VkSubmitInfo *infos;   /* of vkQueueSubmit() */
	const VkSubmitInfo2 *infos2; /* of vkQueueSubmit2() */
	PFN_vkQueueSubmit2 below2;   /* NULL: it is a call of vkQueueSubmit() */
	VkFence fence;
};

/* Command buffers that are submitted together: some or all of a batch. */
struct piece {
	uint32_t batch;
	bool is_first, is_last; /* of the batch */
	VkFence fence;          /* the program's */
	uint32_t n;
	VkCommandBuffer *buffers;          /* room for all of the call's largest batch */
	VkCommandBufferSubmitInfo *infos2; /* the same; NULL for vkQueueSubmit() */
	uint64_t ns;                       /* predicted time */
	bool is_unknown;                   /* it contains what was not measured yet */
	bool is_endless;                   /* it contains what cannot be predicted */
	struct series series;
};

/* A place in a batch. */
struct place {
	uint32_t buffer, part;
};

static uint32_t n_buffers(const struct call *call, uint32_t batch)
{
	return call->below2 ? call->infos2[batch].commandBufferInfoCount
			    : call->infos[batch].commandBufferCount;
}

static VkCommandBuffer buffer_at(const struct call *call, uint32_t batch, uint32_t i)
{
	return call->below2 ? call->infos2[batch].pCommandBufferInfos[i].commandBuffer
			    : call->infos[batch].pCommandBuffers[i];
}

static const struct recording *recording_at(const struct call *call, uint32_t batch, uint32_t i)
{
	return recording_find(buffer_at(call, batch, i))->recording;
}

static uint32_t parts_at(const struct call *call, uint32_t batch, uint32_t i)
{
	const struct recording *recording = recording_at(call, batch, i);

	return recording ? recording->n_parts : 1;
}

/* ---- Whole submissions ---- */

/*
 * Have the layer's own fence signalled after a submission, and note the submission. @result is the
 * submission's. Return: @result.
 */
static VkResult follow(struct device *device, VkQueue queue, const struct submission *submission,
		       bool is_passed, VkResult result)
{
	VkResult of_fence = result;

	if (!submission->fence)
		return result;
	if (result == VK_SUCCESS && !is_passed)
		of_fence = device->submit(queue, 0, NULL, submission->fence);
	timeslice_submitted(device, submission, of_fence);
	return result;
}

static VkResult submit_whole(const struct call *call)
{
	struct submission submission = {.queue = call->queue};
	bool has_commands = false;
	VkFence fence = call->fence;
	VkResult result;

	for (uint32_t i = 0; i < call->n; i++)
		has_commands |= n_buffers(call, i) > 0;
	if (has_commands)
		timeslice_begin(call->device, &submission);
	fence = fence ? fence : submission.fence;
	result = call->below2 ? call->below2(call->queue, call->n, call->infos2, fence)
			      : call->device->submit(call->queue, call->n, call->infos, fence);
	return follow(call->device, call->queue, &submission, !call->fence, result);
}

/* ---- Pieces ---- */

/* Structures that may extend a batch that is divided; anything else is about the whole. */
struct extensions {
	const VkTimelineSemaphoreSubmitInfo *timeline;
	const VkProtectedSubmitInfo *protected;
	bool has_group; /* VkDeviceGroupSubmitInfo: says nothing for a single device */
	bool has_other;
};

static struct extensions extensions_of(const VkSubmitInfo *info)
{
	const VkBaseInStructure *each = info->pNext;
	struct extensions ret = {0};

	for (; each; each = each->pNext)
		if (each->sType == VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO)
			ret.timeline = (const VkTimelineSemaphoreSubmitInfo *)each;
		else if (each->sType == VK_STRUCTURE_TYPE_PROTECTED_SUBMIT_INFO)
			ret.protected = (const VkProtectedSubmitInfo *)each;
		else if (each->sType == VK_STRUCTURE_TYPE_DEVICE_GROUP_SUBMIT_INFO)
			ret.has_group = true;
		else
			ret.has_other = true;
	return ret;
}

static VkResult pass_piece(const struct call *call, const struct piece *piece, VkFence fence)
{
	VkSubmitInfo info = call->infos[piece->batch];
	const struct extensions extensions = extensions_of(&info);
	VkTimelineSemaphoreSubmitInfo timeline;
	VkProtectedSubmitInfo protected;

	info.commandBufferCount = piece->n;
	info.pCommandBuffers = piece->buffers;
	if (!piece->is_first)
		info.waitSemaphoreCount = 0;
	if (!piece->is_last)
		info.signalSemaphoreCount = 0;
	if (!extensions.has_other) {
		info.pNext = NULL;
		if (extensions.timeline) {
			timeline = *extensions.timeline;
			timeline.pNext = info.pNext;
			if (!piece->is_first)
				timeline.waitSemaphoreValueCount = 0;
			if (!piece->is_last)
				timeline.signalSemaphoreValueCount = 0;
			info.pNext = &timeline;
		}
		if (extensions.protected) {
			protected = *extensions.protected;
			protected.pNext = info.pNext;
			info.pNext = &protected;
		}
	}
	return call->device->submit(call->queue, 1, &info, fence);
}

static VkResult pass_piece2(const struct call *call, const struct piece *piece, VkFence fence)
{
	VkSubmitInfo2 info = call->infos2[piece->batch];

	info.commandBufferInfoCount = piece->n;
	info.pCommandBufferInfos = piece->infos2;
	if (!piece->is_first)
		info.waitSemaphoreInfoCount = 0;
	if (!piece->is_last)
		info.signalSemaphoreInfoCount = 0;
	return call->below2(call->queue, 1, &info, fence);
}

static uint32_t n_waits(const struct call *call, uint32_t batch)
{
	return call->below2 ? call->infos2[batch].waitSemaphoreInfoCount
			    : call->infos[batch].waitSemaphoreCount;
}

/*
 * Submit a piece once it may begin. *is_late is set if it has waited for the program's own earlier
 * work in vain.
 */
static VkResult submit_piece(const struct call *call, const struct piece *piece, bool *is_late)
{
	struct submission submission = {.queue = call->queue};
	const uint64_t max_ns = call->device->cutter->max_part_ns;
	VkFence fence;
	VkResult result;

	if (piece->n > 0) {
		if (!piece->is_endless)
			submission.part_ns = piece->is_unknown ? max_ns : piece->ns;
		submission.is_guess = piece->is_unknown;
		/* A piece that waits for a semaphore takes longer than its work. */
		if (!piece->is_endless && (!piece->is_first || n_waits(call, piece->batch) == 0))
			submission.series = &piece->series;
		timeslice_begin(call->device, &submission);
		*is_late |= submission.is_late;
	}
	fence = piece->fence ? piece->fence : submission.fence;
	result = call->below2 ? pass_piece2(call, piece, fence) : pass_piece(call, piece, fence);
	return follow(call->device, call->queue, &submission, !piece->fence, result);
}

/* Return the predicted time of a part; 0: unknown. */
static uint64_t part_ns(const struct durations *durations, const struct recording *recording,
			const struct part *part)
{
	uint64_t sum_ns = 0;

	if (part->is_endless)
		return 0;
	for (uint32_t i = 0; i < part->n_actions; i++) {
		uint64_t ns = duration_ns(durations, &recording->actions[part->first_action + i]);

		if (ns == 0)
			return 0;
		sum_ns += ns;
	}
	/* Commands that only bind and wait take no time. */
	return sum_ns > 0 ? sum_ns : 1;
}

static void add_series(const struct durations *durations, struct series *series,
		       const struct recording *recording, const struct part *part)
{
	for (uint32_t i = 0; i < part->n_actions && series->n < DURATION_MAX_ACTIONS; i++) {
		const struct action *action = &recording->actions[part->first_action + i];

		series->each_ns[series->n] = duration_ns(durations, action);
		series->actions[series->n++] = *action;
	}
}

static void add_buffer(const struct call *call, struct piece *piece, uint32_t buffer,
		       VkCommandBuffer handle)
{
	if (piece->infos2) {
		piece->infos2[piece->n] = call->infos2[piece->batch].pCommandBufferInfos[buffer];
		piece->infos2[piece->n].commandBuffer = handle;
	} else {
		piece->buffers[piece->n] = handle;
	}
	piece->n++;
}

/*
 * Add parts from @at on to the piece, until another one would make it too long, or to the end of
 * the batch with @is_whole. Moves @at.
 */
static void fill_piece(const struct call *call, struct piece *piece, struct place *at,
		       bool is_whole)
{
	const struct cutter *cutter = call->device->cutter;

	piece->n = 0;
	piece->ns = 0;
	piece->is_unknown = piece->is_endless = false;
	piece->series.n = 0;
	while (at->buffer < n_buffers(call, piece->batch)) {
		const struct recording *recording = recording_at(call, piece->batch, at->buffer);
		const struct part *part = recording ? &recording->parts[at->part] : NULL;
		uint64_t ns = part ? part_ns(&cutter->durations, recording, part) : 0;

		if (!is_whole && piece->n > 0 &&
		    (ns == 0 || piece->is_unknown || piece->ns + ns > cutter->max_part_ns))
			return;
		piece->is_unknown |= ns == 0;
		piece->is_endless |= !part || part->is_endless;
		piece->ns += ns;
		if (part)
			add_series(&cutter->durations, &piece->series, recording, part);
		add_buffer(call, piece, at->buffer,
			   part ? part->handle : buffer_at(call, piece->batch, at->buffer));
		if (++at->part >= (recording ? recording->n_parts : 1)) {
			at->part = 0;
			at->buffer++;
		}
	}
}

/* Return true if the batch may be submitted in several pieces. */
static bool can_divide(const struct call *call, uint32_t batch)
{
	if (call->below2 ? call->infos2[batch].pNext != NULL
			 : extensions_of(&call->infos[batch]).has_other)
		return false;
	for (uint32_t i = 0; i < n_buffers(call, batch); i++) {
		const struct recording *recording = recording_at(call, batch, i);

		if ((recording && recording->is_together) ||
		    (call->below2 && call->infos2[batch].pCommandBufferInfos[i].pNext))
			return false;
	}
	return true;
}

/*
 * Submit a batch in pieces. *is_begun is set as soon as something was submitted, *is_late once a
 * piece has waited in vain.
 */
static VkResult submit_batch(const struct call *call, struct piece *piece, bool *is_begun,
			     bool *is_late)
{
	struct place at = {0, 0};
	VkResult result;

	piece->is_first = true;
	do {
		/* Open in between, or late: the rest goes at once. */
		bool is_whole = *is_late || !timeslice_divides(call->device) ||
				!can_divide(call, piece->batch);

		fill_piece(call, piece, &at, is_whole);
		piece->series.expected_ns = piece->is_unknown ? 0 : piece->ns;
		piece->is_last = at.buffer == n_buffers(call, piece->batch);
		piece->fence = piece->is_last && piece->batch + 1 == call->n ? call->fence
									     : VK_NULL_HANDLE;
		result = submit_piece(call, piece, is_late);
		*is_begun |= result == VK_SUCCESS;
		piece->is_first = false;
	} while (result == VK_SUCCESS && !piece->is_last);
	return result;
}

/* Return the largest number of parts of a batch; 0 if the call has nothing that was cut. */
static uint32_t most_parts(const struct call *call)
{
	uint32_t most = 0;
	bool is_cut = false;

	for (uint32_t batch = 0; batch < call->n; batch++) {
		uint32_t n = 0;

		for (uint32_t i = 0; i < n_buffers(call, batch); i++) {
			const struct recording *recording = recording_at(call, batch, i);

			is_cut |= recording && recording->is_cut;
			n += parts_at(call, batch, i);
		}
		if (n > most)
			most = n;
	}
	return is_cut ? most : 0;
}

/*
 * Signal semaphores and the fence of the batches from that of @piece on, without their commands,
 * since the program may wait for them. The first batch has waited for its semaphores already.
 */
static void give_up(const struct call *call, struct piece *piece)
{
	piece->n = 0;
	piece->is_first = false;
	piece->is_last = true;
	for (; piece->batch < call->n; piece->batch++) {
		VkFence fence = piece->batch + 1 == call->n ? call->fence : VK_NULL_HANDLE;

		(void)(call->below2 ? pass_piece2(call, piece, fence)
				    : pass_piece(call, piece, fence));
		piece->is_first = true;
	}
}

static VkResult submit_pieces(const struct call *call, uint32_t most)
{
	struct piece piece = {.fence = VK_NULL_HANDLE};
	VkResult result = VK_SUCCESS;
	bool is_begun = false, is_late = false;

	if (call->below2)
		piece.infos2 = calloc(most, sizeof(*piece.infos2));
	else
		piece.buffers = calloc(most, sizeof(*piece.buffers));
	if (!piece.buffers && !piece.infos2)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	while (piece.batch < call->n && result == VK_SUCCESS) {
		result = submit_batch(call, &piece, &is_begun, &is_late);
		piece.batch += result == VK_SUCCESS;
	}
	if (result != VK_SUCCESS && is_begun) {
		/* Other errors would say that nothing has happened. */
		result = VK_ERROR_DEVICE_LOST;
		give_up(call, &piece);
	}
	free(piece.buffers);
	free(piece.infos2);
	return result;
}

static VkResult submit_call(const struct call *call)
{
	const uint32_t most = call->device->cutter ? most_parts(call) : 0;

	VkResult result;

	mover_enter_submit(call->device, call->queue);
	result = most > 0 ? submit_pieces(call, most) : submit_whole(call);
	mover_leave(call->device->mover);
	return result;
}

VkResult submit(struct device *device, VkQueue queue, uint32_t n, const VkSubmitInfo *infos,
		VkFence fence)
{
	return submit_call(&(struct call){
		.device = device, .queue = queue, .n = n, .infos = infos, .fence = fence});
}

VkResult submit2(struct device *device, PFN_vkQueueSubmit2 below, VkQueue queue, uint32_t n,
		 const VkSubmitInfo2 *infos, VkFence fence)
{
	return submit_call(&(struct call){.device = device,
					  .queue = queue,
					  .n = n,
					  .infos2 = infos,
					  .below2 = below,
					  .fence = fence});
}
