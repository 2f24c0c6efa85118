#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plans on a device: recorded once, run by filling in numbers
 *
 * A prepared plan knows its steps and has its pipelines compiled; it outlives the logical device. A
 * loaded one has a few slots, so that several of its tasks can be on their way. A slot is a
 * recorded command buffer with its own parameter blocks, scratch and staging: a run writes
 * addresses and counts into the parameter blocks and submits the same commands again.
 */
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

#include "plan/plan.h"

struct exec_load;
struct exec_task;
struct vk_device;
struct vk_plan;
struct vk_slot;

enum {
	VK_COMMANDS_STEPS = 128,  /* for which a command buffer of the least size surely does */
	VK_COMMANDS_MAPPINGS = 2, /* of RADV, for a command buffer of that size */
};

/* Memory that the driver takes for recorded command buffers. */
struct vk_commands_cost {
	/*
	 * On the heaps, for a buffer of up to VK_COMMANDS_STEPS dispatches: multiples of the page;
	 * 0 where the driver does not tell.
	 */
	uint64_t device_bytes, host_bytes;
	/* See command-memory.h: for a buffer, and for each of its dispatches. */
	uint64_t buffer_bytes, dispatch_bytes;
};

/*
 * Setup thread: records some, asks VK_EXT_memory_budget, and counts what the driver allocates.
 * Return: 0 or negative errno.
 */
int vk_commands_measure(struct vk_device *device, struct vk_commands_cost *ret);

/* Setup thread: as in struct executor_ops. */
int vk_plan_compile(struct vk_device *device, struct plan *plan);
int vk_plan_prepare(struct vk_device *device, struct plan *plan);
int vk_plan_shrink(struct vk_device *device, struct plan *plan);
void vk_plan_release(struct vk_device *device, struct plan *plan);
int vk_plan_load(struct vk_device *device, struct plan *plan, const struct exec_load *load);
int vk_plan_unload_some(struct vk_device *device, struct plan *plan);
void vk_plan_unload(struct vk_device *device, struct plan *plan);

/* Submitting thread: NULL is not. */
bool vk_plan_is_loaded(const struct vk_plan *plan);

/*
 * Submitting thread: for a task's first part a free slot, which stays free until it is loaded; for
 * a later one the slot that it has. NULL: there is none; and then none for all who come later in
 * the same @turn, which begin at 1, so that they cannot overtake.
 */
struct vk_slot *vk_plan_find_slot(struct vk_plan *plan, const struct exec_task *task,
				  uint64_t turn);

/*
 * Submitting thread: prepares a slot for a part of a task and takes it.
 * Return: 0; -EXDEV if a tensor cannot be reached from the device, the slot stays free.
 */
int vk_slot_load(struct vk_plan *plan, struct vk_slot *slot, struct exec_task *task);
/* Submitting thread: of the part that it was loaded for. */
VkCommandBuffer vk_slot_commands(const struct vk_slot *slot);
/* Submitting thread: gives back the slot of a task between two parts, of which no more run. */
void vk_slot_drop(struct vk_slot *slot);

/*
 * Waiting thread: after the last part, or one that failed by task->res, copies back what was staged
 * and gives the slot back. Return: whether it did.
 */
bool vk_slot_finish(struct vk_slot *slot, struct exec_task *task);

/*
 * Submitting thread: how long a task may take on the device, as those before it did. 0: nobody
 * knows, or it has parts.
 */
uint64_t vk_plan_expected_ticks(const struct vk_plan *plan, const struct exec_task *task);
/*
 * Waiting thread: @n tasks of a plan without parts, which were submitted together, took @ticks and
 * have their end_ticks. Sets start_ticks: each gets its share by what it computes.
 */
void vk_plan_learn(struct vk_plan *plan, struct exec_task *const *tasks, unsigned int n,
		   uint64_t ticks);
