/* SPDX-License-Identifier: MIT */
/*
 * Barriers and events of torture-client's command buffers
 *
 * A recorder knows the accesses since the last barrier, as a bit for each region of memory. An
 * access that conflicts with one of them gets a barrier of a drawn kind before it. Each command
 * buffer begins with a barrier, or waits for an event of the command buffer before it, so that the
 * command buffers of a queue take effect one after the other.
 *
 * An event splits a barrier: the accesses before its signal become old, and the wait, or any
 * barrier, covers them. Each event has one place in one command buffer, which resets it, too, since
 * that command buffer may be submitted again.
 */
#include "support/torture.h"

enum { MOST_BUFFERS = TORTURE_BUFFERS + 3 };

/* The memory that a barrier is about. */
struct barrier {
	VkPipelineStageFlags stages;
	VkMemoryBarrier memory;
	VkBuffer buffers[MOST_BUFFERS];
	unsigned int n_buffers;
	bool has_memory, has_image;
};

static struct barrier memory_barrier(bool is_broad)
{
	const VkAccessFlags writes = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
	struct barrier barrier = {
		.stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT |
			  VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT,
		.memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.memory.srcAccessMask = writes,
		.memory.dstAccessMask = writes | VK_ACCESS_SHADER_READ_BIT |
					VK_ACCESS_TRANSFER_READ_BIT |
					VK_ACCESS_INDIRECT_COMMAND_READ_BIT,
		.has_memory = true,
	};

	if (is_broad) {
		barrier.stages = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
		barrier.memory.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT;
		barrier.memory.dstAccessMask =
			VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT;
	}
	return barrier;
}

static struct barrier buffer_barrier(uint64_t bits, bool is_broad)
{
	struct barrier barrier = memory_barrier(is_broad);

	barrier.has_memory = false;
	for (unsigned int i = 0; i < TORTURE_BUFFERS; i++)
		if (bits >> (i * TORTURE_REGIONS) & 0xff)
			barrier.buffers[barrier.n_buffers++] = torture.buffers[i].handle;
	if (bits >> TORTURE_BIT_SUMS & 0xff)
		barrier.buffers[barrier.n_buffers++] = torture.sums.handle;
	if (bits >> TORTURE_BIT_ARGUMENTS & 1)
		barrier.buffers[barrier.n_buffers++] = torture.arguments.handle;
	if (bits >> TORTURE_BIT_RESULTS & 1)
		barrier.buffers[barrier.n_buffers++] = torture.results.handle;
	barrier.has_image = bits >> TORTURE_BIT_IMAGE & 1;
	return barrier;
}

static const VkImageSubresourceRange whole = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};

static void emit_1(VkCommandBuffer commands, const struct barrier *barrier)
{
	VkBufferMemoryBarrier buffers[MOST_BUFFERS];
	const VkImageMemoryBarrier image = {
		.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
		.srcAccessMask = barrier->memory.srcAccessMask,
		.dstAccessMask = barrier->memory.dstAccessMask,
		.oldLayout = VK_IMAGE_LAYOUT_GENERAL,
		.newLayout = VK_IMAGE_LAYOUT_GENERAL,
		.srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
		.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
		.image = torture.image,
		.subresourceRange = whole,
	};

	for (unsigned int i = 0; i < barrier->n_buffers; i++)
		buffers[i] = (VkBufferMemoryBarrier){
			.sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER,
			.srcAccessMask = barrier->memory.srcAccessMask,
			.dstAccessMask = barrier->memory.dstAccessMask,
			.srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
			.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
			.buffer = barrier->buffers[i],
			.size = VK_WHOLE_SIZE,
		};
	vkCmdPipelineBarrier(commands, barrier->stages, barrier->stages, 0, barrier->has_memory,
			     &barrier->memory, barrier->n_buffers, buffers, barrier->has_image,
			     &image);
}

/* The same flags mean the same to both versions of the commands. */
static VkMemoryBarrier2 memory_2(const struct barrier *barrier)
{
	return (VkMemoryBarrier2){
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
		.srcStageMask = barrier->stages,
		.srcAccessMask = barrier->memory.srcAccessMask,
		.dstStageMask = barrier->stages,
		.dstAccessMask = barrier->memory.dstAccessMask,
	};
}

static void emit_2(VkCommandBuffer commands, const struct barrier *barrier)
{
	const VkMemoryBarrier2 memory = memory_2(barrier);
	VkBufferMemoryBarrier2 buffers[MOST_BUFFERS];
	const VkImageMemoryBarrier2 image = {
		.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER_2,
		.srcStageMask = memory.srcStageMask,
		.srcAccessMask = memory.srcAccessMask,
		.dstStageMask = memory.dstStageMask,
		.dstAccessMask = memory.dstAccessMask,
		.oldLayout = VK_IMAGE_LAYOUT_GENERAL,
		.newLayout = VK_IMAGE_LAYOUT_GENERAL,
		.srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
		.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
		.image = torture.image,
		.subresourceRange = whole,
	};
	const VkDependencyInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
		.memoryBarrierCount = barrier->has_memory,
		.pMemoryBarriers = &memory,
		.bufferMemoryBarrierCount = barrier->n_buffers,
		.pBufferMemoryBarriers = buffers,
		.imageMemoryBarrierCount = barrier->has_image,
		.pImageMemoryBarriers = &image,
	};

	for (unsigned int i = 0; i < barrier->n_buffers; i++)
		buffers[i] = (VkBufferMemoryBarrier2){
			.sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER_2,
			.srcStageMask = memory.srcStageMask,
			.srcAccessMask = memory.srcAccessMask,
			.dstStageMask = memory.dstStageMask,
			.dstAccessMask = memory.dstAccessMask,
			.srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
			.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
			.buffer = barrier->buffers[i],
			.size = VK_WHOLE_SIZE,
		};
	vkCmdPipelineBarrier2(commands, &info);
}

static void emit(struct torture_recorder *recorder, const struct barrier *barrier)
{
	bool is_2 = torture_chance(recorder->random, 3) && torture.has_submit2;

	torture_count(barrier->has_memory ? TORTURE_MEMORY_BARRIER : TORTURE_BUFFER_BARRIER);
	if (is_2)
		torture_count(TORTURE_BARRIER2);
	if (is_2)
		emit_2(recorder->commands, barrier);
	else
		emit_1(recorder->commands, barrier);
}

/* ---- Events ---- */

static void set_event(struct torture_recorder *recorder, VkEvent event)
{
	const struct barrier barrier = memory_barrier(recorder->event_is_broad);
	const VkMemoryBarrier2 memory = memory_2(&barrier);
	const VkDependencyInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
		.memoryBarrierCount = 1,
		.pMemoryBarriers = &memory,
	};

	if (recorder->event_is_2)
		vkCmdSetEvent2(recorder->commands, event, &info);
	else
		vkCmdSetEvent(recorder->commands, event, barrier.stages);
}

static void wait_event(struct torture_recorder *recorder, VkEvent event)
{
	const struct barrier barrier = memory_barrier(recorder->event_is_broad);
	const VkMemoryBarrier2 memory = memory_2(&barrier);
	const VkDependencyInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
		.memoryBarrierCount = 1,
		.pMemoryBarriers = &memory,
	};

	if (recorder->event_is_2)
		vkCmdWaitEvents2(recorder->commands, 1, &event, &info);
	else
		vkCmdWaitEvents(recorder->commands, 1, &event, barrier.stages, barrier.stages, 1,
				&barrier.memory, 0, NULL, 0, NULL);
}

static void reset_event(struct torture_recorder *recorder, VkEvent event)
{
	const struct barrier barrier = memory_barrier(true);

	/* The reset must not overtake the wait, nor the signal the reset. */
	emit(recorder, &barrier);
	vkCmdResetEvent(recorder->commands, event, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);
	emit(recorder, &barrier);
	recorder->reads = recorder->writes = 0;
	recorder->old_reads = recorder->old_writes = 0;
}

static void await(struct torture_recorder *recorder)
{
	wait_event(recorder, recorder->event);
	recorder->event = VK_NULL_HANDLE;
	recorder->old_reads = recorder->old_writes = 0;
}

/* Signal an event that a later barrier's place waits for. */
void torture_sync_signal(struct torture_recorder *recorder)
{
	struct torture_kit *kit = recorder->about.kit;

	if (recorder->event || kit->n_events == TORTURE_EVENTS)
		return;
	/* The validation of 1.3.239 misses events that a secondary command buffer signals. */
	if (torture.is_validated && recorder->about.is_secondary)
		return;
	recorder->event = kit->events[kit->n_events++];
	recorder->event_is_2 = torture_chance(recorder->random, 3) && torture.has_submit2;
	recorder->event_is_broad = torture_chance(recorder->random, 2);
	torture_count(recorder->event_is_2 ? TORTURE_EVENT2 : TORTURE_EVENT);
	reset_event(recorder, recorder->event);
	/* Have something before the signal. */
	torture_dispatch(recorder);
	set_event(recorder, recorder->event);
	recorder->old_reads |= recorder->reads;
	recorder->old_writes |= recorder->writes;
	recorder->reads = recorder->writes = 0;
}

/* ---- Accesses ---- */

static bool conflicts(uint64_t reads, uint64_t writes, uint64_t old_reads, uint64_t old_writes)
{
	return (writes & (old_reads | old_writes)) || (reads & old_writes);
}

void torture_sync_barrier(struct torture_recorder *recorder)
{
	uint64_t bits =
		recorder->reads | recorder->writes | recorder->old_reads | recorder->old_writes;
	bool is_broad = torture_chance(recorder->random, 2);
	struct barrier barrier = torture_chance(recorder->random, 2)
					 ? memory_barrier(is_broad)
					 : buffer_barrier(bits, is_broad);

	emit(recorder, &barrier);
	recorder->reads = recorder->writes = 0;
	recorder->old_reads = recorder->old_writes = 0;
	recorder->n_dispatches = 0;
}

/* Have a barrier before accesses that conflict with others. */
void torture_sync_use(struct torture_recorder *recorder, uint64_t reads, uint64_t writes)
{
	if (recorder->event &&
	    conflicts(reads, writes, recorder->old_reads, recorder->old_writes)) {
		await(recorder);
		recorder->n_dispatches = 0;
	}
	if (conflicts(reads, writes, recorder->reads | recorder->old_reads,
		      recorder->writes | recorder->old_writes))
		torture_sync_barrier(recorder);
	recorder->reads |= reads;
	recorder->writes |= writes;
}

void torture_sync_open(struct torture_recorder *recorder)
{
	const struct torture_recording *about = &recorder->about;
	struct barrier barrier = memory_barrier(true);

	recorder->event_is_broad = true;
	recorder->event_is_2 = false;
	if (about->opening == TORTURE_OPEN_EVENT) {
		wait_event(recorder, about->awaited);
		reset_event(recorder, about->awaited);
	} else if (about->opening == TORTURE_OPEN_HOST_EVENT) {
		vkCmdWaitEvents(recorder->commands, 1, &about->awaited, VK_PIPELINE_STAGE_HOST_BIT,
				barrier.stages, 0, NULL, 0, NULL, 0, NULL);
		emit(recorder, &barrier);
	} else {
		emit(recorder, &barrier);
	}
}

void torture_sync_close(struct torture_recorder *recorder)
{
	if (recorder->event)
		await(recorder);
	recorder->event_is_broad = true;
	recorder->event_is_2 = false;
	if (recorder->about.set_at_end)
		set_event(recorder, recorder->about.set_at_end);
}
