#pragma once
/* SPDX-License-Identifier: MIT */
/* Plans on a device: definitions shared by record.c, which prepares and runs plans, and load.c */
#include <stdatomic.h>

#include "vulkan/command-memory.h"
#include "vulkan/lower.h"
#include "vulkan/memory.h"
#include "vulkan/record.h"

struct vk_section;

enum { VK_MAX_SLOTS = 32 };

enum slot_state {
	SLOT_FREE,
	SLOT_BUSY,
	SLOT_BETWEEN, /* held by a task between two of its parts */
};

struct vk_slot {
	struct vk_plan *plan;
	VkCommandBuffer *commands; /* one per section */
	/* submitting thread: task that holds the slot, unless it is free */
	const struct exec_task *task;
	struct vk_params *params; /* one per step: plan->lowered.n_steps */
	uint8_t *staging;
	VkDeviceAddress params_address, staging_address, scratch_address, bounce_address;
	uint64_t params_offset; /* in plan->host */
	uint32_t count;         /* count that the parameter blocks are filled for; 0: none */
	_Atomic uint8_t state;  /* enum slot_state */
};

struct vk_plan {
	struct vk_device *device;
	const struct plan *plan;
	struct lowering *lowering; /* NULL once lowering has ended */
	int lower_result;          /* result of lowering; EXECUTOR_E_MORE until it has ended */
	struct vk_lowered lowered;
	struct vk_section *sections;
	uint32_t n_sections;
	uint16_t n_parts;
	VkCommandBuffer *commands; /* VK_MAX_SLOTS times n_sections */
	uint64_t bound_bytes; /* sum of all bound tensors, each rounded up to VK_MEMORY_ALIGN */
	uint64_t bound_offset[RBK_MAX_REFS];
	bool stages;                                 /* slots have staging */
	bool bounces;                                /* slots have bounce copies */
	uint64_t slot_device_bytes, slot_host_bytes; /* our allocations for a slot */
	uint64_t commands_device_bytes; /* driver's command buffers of a slot, in device memory */
	uint64_t commands_host_bytes;   /* driver's command buffers of a slot, in host memory */
	uint64_t command_memory_bytes;  /* the part of it that comes from command-memory.h */
	uint32_t slot_mappings; /* mappings of a slot's command buffers; see exec_footprint */

	/* The state of a loaded plan. */
	uint32_t n_noted; /* slots whose command buffers are counted as used */
	struct vk_allocation near, host;
	VkCommandPool pool;
	struct vk_command_memory command_memory; /* valid while pool exists */
	bool is_begun;                           /* memory and pool are allocated */
	bool is_recording;                       /* the last command buffer is being recorded */
	bool is_started;    /* setup work was started, and its result not yet read */
	bool is_ordered;    /* unmapped memory is cleared, and the device ordered after uploads */
	uint32_t n_buffers; /* command buffers allocated, in the order of their slots */
	uint32_t next_step; /* next step to record */
	uint32_t barrier_step; /* first step after the last barrier */
	VkPipeline last;       /* pipeline that is bound */
	uint32_t n_addressed;  /* parameter blocks, of all slots, with addresses filled in */
	uint32_t cold_step;    /* step whose pipeline the setup work runs first; n_steps: none */
	int setup_result;      /* VK_SETUP_E_RUNS: the work is running */
	uint32_t n_slots;      /* 0: not loaded, or still loading */
	struct vk_slot slots[VK_MAX_SLOTS];

	uint64_t blocked_turn; /* submitting thread: turn in which no slot is free */
	/*
	 * Time per unit of work (see task_work()), in clock ticks; 0: unknown. Written by the
	 * waiting thread, read by the submitting thread.
	 */
	_Atomic float ticks_per_work;
};

/* Return the scratch bytes of one slot. */
static inline uint64_t vk_plan_scratch_bytes(const struct vk_plan *plan)
{
	return plan->lowered.work_bytes ? vk_work_offset(plan->plan) + plan->lowered.work_bytes
					: plan->plan->scratch_bytes;
}
