#pragma once
/* SPDX-License-Identifier: MIT */
/* Plans on a device, as record.c, which prepares and runs them, and load.c share them. */
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
	SLOT_BETWEEN, /* two parts of its task */
};

struct vk_slot {
	struct vk_plan *plan;
	VkCommandBuffer *commands;    /* one per section */
	const struct exec_task *task; /* submitting thread: whose it is, unless it is free */
	struct vk_params *params;     /* plan->lowered.n_steps */
	uint8_t *staging;
	VkDeviceAddress params_address, staging_address, scratch_address, bounce_address;
	uint64_t params_offset; /* in plan->host */
	uint32_t count;         /* that the parameter blocks are filled for; 0: none */
	_Atomic uint8_t state;  /* enum slot_state */
};

struct vk_plan {
	struct vk_device *device;
	const struct plan *plan;
	struct lowering *lowering; /* until it is lowered, */
	int lower_result;          /* EXECUTOR_E_MORE up to then */
	struct vk_lowered lowered;
	struct vk_section *sections;
	uint32_t n_sections;
	uint16_t n_parts;
	VkCommandBuffer *commands; /* VK_MAX_SLOTS times n_sections */
	uint64_t bound_bytes;      /* all bound tensors, each rounded up */
	uint64_t bound_offset[RBK_MAX_REFS];
	bool stages;                                 /* slots have staging */
	bool bounces;                                /* slots have bounce copies */
	uint64_t slot_device_bytes, slot_host_bytes; /* allocated by us */
	uint64_t commands_device_bytes;              /* of a slot, allocated by the driver */
	uint64_t commands_host_bytes;                /* likewise */
	uint64_t command_memory_bytes;               /* of these, by command-memory.h */
	uint32_t slot_mappings;                      /* of commands; see exec_footprint */

	/* While it is loaded. */
	uint32_t n_noted; /* slots whose command buffers are counted */
	struct vk_allocation near, host;
	VkCommandPool pool;
	struct vk_command_memory command_memory; /* while there is a pool */
	bool is_begun;                           /* memory and pool are there */
	bool is_recording;                       /* the last command buffer */
	bool is_started;       /* setup work, whose result was not looked at yet */
	bool is_ordered;       /* after uploads, and memory that is not mapped is cleared */
	uint32_t n_buffers;    /* command buffers that there are, in the order of their slots */
	uint32_t next_step;    /* to be recorded, */
	uint32_t barrier_step; /* the first one after the last barrier, */
	VkPipeline last;       /* and the pipeline that is bound */
	uint32_t n_addressed;  /* parameter blocks, of all slots, that have their addresses */
	uint32_t cold_step;    /* of the setup work, whose pipeline runs first; or n_steps */
	int setup_result;      /* VK_SETUP_E_RUNS: it runs */
	uint32_t n_slots;      /* 0: it is not, or not yet */
	struct vk_slot slots[VK_MAX_SLOTS];

	uint64_t blocked_turn; /* submitting thread: in which it has no slots */
	/*
	 * Written by the waiting thread, read by the submitting one: how long a unit of work (see
	 * task_work()) takes, by the clock; 0: not known.
	 */
	_Atomic float ticks_per_work;
};

/* Bytes of scratch of one slot. */
static inline uint64_t vk_plan_scratch_bytes(const struct vk_plan *plan)
{
	return plan->lowered.work_bytes ? vk_work_offset(plan->plan) + plan->lowered.work_bytes
					: plan->plan->scratch_bytes;
}
