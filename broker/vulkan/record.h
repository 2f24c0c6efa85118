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

enum { VK_COMMANDS_STEPS = 128 }; /* for which a command buffer of the least size surely does */

/* What the driver takes for a recorded command buffer of up to VK_COMMANDS_STEPS dispatches. */
struct vk_commands_cost {
	uint64_t device_bytes, host_bytes; /* multiples of the page; 0 where nobody tells */
};

/* Setup thread: records some and asks VK_EXT_memory_budget. Return: 0 or negative errno. */
int vk_commands_measure(struct vk_device *device, struct vk_commands_cost *ret);

/* Setup thread: as in struct executor_ops. */
int vk_plan_prepare(struct vk_device *device, struct plan *plan);
void vk_plan_release(struct vk_device *device, struct plan *plan);
int vk_plan_load(struct vk_device *device, struct plan *plan, const struct exec_load *load);
void vk_plan_unload(struct vk_device *device, struct plan *plan);

/* Submitting thread: NULL is not. */
bool vk_plan_is_loaded(const struct vk_plan *plan);

/* Submitting thread: a free slot, which stays free until it is loaded, or NULL. */
struct vk_slot *vk_plan_find_slot(struct vk_plan *plan);

/*
 * Submitting thread: prepares a slot for a task and takes it.
 * Return: 0; -EXDEV if a tensor cannot be reached from the device, the slot stays free.
 */
int vk_slot_load(struct vk_plan *plan, struct vk_slot *slot, struct exec_task *task);
VkCommandBuffer vk_slot_commands(const struct vk_slot *slot);

/* Waiting thread: copies what was staged back; gives the slot back. */
void vk_slot_store(struct vk_slot *slot, struct exec_task *task);
void vk_slot_put(struct vk_slot *slot);
