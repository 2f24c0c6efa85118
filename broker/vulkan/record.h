#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plans on a device: recorded once, run by filling in numbers
 *
 * A prepared plan has its steps and its compiled pipelines; it outlives the logical device. A
 * loaded plan has a few slots, so that several of its tasks can be in flight. A slot is a recorded
 * command buffer with its own parameter blocks, scratch and staging: a run writes addresses and
 * counts into the parameter blocks and submits the same commands again.
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
	/* steps that surely fit into a command buffer of the minimal size */
	VK_COMMANDS_STEPS = 128,
	VK_COMMANDS_MAPPINGS = 2, /* mappings that RADV makes for a command buffer of that size */
};

/* Memory that the driver allocates for recorded command buffers. */
struct vk_commands_cost {
	/*
	 * Heap memory of a buffer of up to VK_COMMANDS_STEPS dispatches, in multiples of
	 * page_bytes; 0: the driver does not tell.
	 */
	uint64_t device_bytes, host_bytes;
	/* Host memory (see command-memory.h) of a buffer, and of each of its dispatches. */
	uint64_t buffer_bytes, dispatch_bytes;
};

/*
 * Measure the memory of command buffers: record some, query VK_EXT_memory_budget, and count what
 * the driver allocates. Setup thread.
 * Return: 0 or negative errno.
 */
int vk_commands_measure(struct vk_device *device, struct vk_commands_cost *ret);

/* Implement the functions of struct executor_ops for plans. Setup thread. */
int vk_plan_compile(struct vk_device *device, struct plan *plan);
int vk_plan_prepare(struct vk_device *device, struct plan *plan);
int vk_plan_shrink(struct vk_device *device, struct plan *plan);
void vk_plan_release(struct vk_device *device, struct plan *plan);
int vk_plan_load(struct vk_device *device, struct plan *plan, const struct exec_load *load);
int vk_plan_unload_some(struct vk_device *device, struct plan *plan);
void vk_plan_unload(struct vk_device *device, struct plan *plan);

/* Return true if the plan is loaded; NULL is not. Submitting thread. */
bool vk_plan_is_loaded(const struct vk_plan *plan);

/*
 * Find a slot. For a task's first part: a free slot, which stays free until vk_slot_load(). For a
 * later part: the slot that the task holds. @turn counts from 1. Submitting thread.
 * Return: NULL if there is none; then no other task of the plan gets a free slot in the same @turn,
 * so that none overtakes.
 */
struct vk_slot *vk_plan_find_slot(struct vk_plan *plan, const struct exec_task *task,
				  uint64_t turn);

/*
 * Prepare a slot for a part of a task and mark it busy. Submitting thread.
 * Return: 0; -EXDEV if a tensor cannot be reached from the device, and the slot stays free.
 */
int vk_slot_load(struct vk_plan *plan, struct vk_slot *slot, struct exec_task *task);
/* Return the command buffer of the part that the slot was loaded for. Submitting thread. */
VkCommandBuffer vk_slot_commands(const struct vk_slot *slot);
/* Free the slot of a task between two parts, of which no more run. Submitting thread. */
void vk_slot_drop(struct vk_slot *slot);

/*
 * Finish a part. After the last part, copy staged outputs back and free the slot; after a part that
 * failed (task->res), only free it. Waiting thread.
 * Return: true if the slot was freed.
 */
bool vk_slot_finish(struct vk_slot *slot, struct exec_task *task);

/*
 * Return the expected time of a task on the device, learned from earlier tasks; 0 if it is unknown
 * or the plan has parts. Submitting thread.
 */
uint64_t vk_plan_expected_ticks(const struct vk_plan *plan, const struct exec_task *task);
/*
 * Learn from @n tasks of a plan without parts that were submitted together, took @ticks and have
 * their end_ticks. Set start_ticks: each task gets a share of @ticks by its work. Waiting thread.
 */
void vk_plan_learn(struct vk_plan *plan, struct exec_task *const *tasks, unsigned int n,
		   uint64_t ticks);
