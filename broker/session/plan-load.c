/* SPDX-License-Identifier: MIT */
/* Plans in device memory: see plan-load.h. */
#include "session/plan-load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/error.h"
#include "util/log.h"

static struct exec_block *block_new(const struct executor *executor, const struct plan *plan)
{
	struct exec_block *block;

	/* One allocation: the constants stand behind the block. */
	block = calloc(1, sizeof(*block) + plan->n_constants * sizeof(*block->constants));
	if (!block)
		return NULL;
	block->constants = (struct exec_constant *)(block + 1);
	block->n_constants = plan->n_constants;
	for (uint32_t i = 0; i < plan->n_constants; i++)
		block->constants[i] = (struct exec_constant){
			.arena = plan->constants[i].arena,
			.offset = plan->constants[i].offset,
			.bytes = plan->constants[i].bytes,
		};
	if (exec_block_layout(block, &executor->info)) {
		free(block);
		return NULL;
	}
	return block;
}

/* Return: 0; EXECUTOR_E_NO_MEMORY; negative errno. */
static int load_slots(struct executor *executor, struct plan *plan, struct exec_block *block,
		      uint32_t n_slots)
{
	_cleanup_(freep) const struct exec_block **blocks = NULL;
	_cleanup_(freep) uint64_t *offsets = NULL;
	struct exec_load load = {.tier = EXEC_TIER_VRAM, .n_slots = n_slots};

	blocks = calloc(plan->n_constants + 1u, sizeof(*blocks));
	offsets = calloc(plan->n_constants + 1u, sizeof(*offsets));
	if (!blocks || !offsets)
		return error_origin(-ENOMEM);
	for (uint32_t i = 0; i < plan->n_constants; i++) {
		blocks[i] = block;
		offsets[i] = block->constants[i].block_offset;
	}
	load.blocks = blocks;
	load.offsets = offsets;
	return executor->ops->plan_load(executor, plan, &load);
}

static int load_all(struct executor *executor, struct plan *plan, struct exec_block *block)
{
	const struct exec_footprint *footprint = &plan->footprint[executor->index];
	const struct executor_info *info = &executor->info;
	uint64_t used = executor->ops->memory_used(executor, EXEC_TIER_VRAM), bytes;
	uint32_t n_slots;
	int r;

	for (n_slots = footprint->max_slots; n_slots > 0; n_slots--) {
		bytes = exec_footprint_device_bytes(footprint, info, n_slots);
		if (bytes <= info->memory_bytes && block->bytes <= info->memory_bytes - bytes &&
		    used <= info->memory_bytes - bytes - block->bytes)
			break;
	}
	if (n_slots == 0)
		return EXECUTOR_E_NO_MEMORY;
	do {
		r = block->bytes ? executor->ops->block_load(executor, block) : 0;
	} while (r == EXECUTOR_E_MORE);
	if (!r)
		r = load_slots(executor, plan, block, n_slots);
	if (r) {
		executor->ops->block_unload(executor, block);
		return r;
	}
	plan->device_bytes[executor->index] = block->bytes + bytes;
	plan->host_bytes[executor->index] += exec_footprint_host_bytes(footprint, info, n_slots);
	return 0;
}

struct exec_block *plan_load(struct executor *executor, struct plan *plan)
{
	struct exec_block *block = block_new(executor, plan);
	int r;

	r = block ? load_all(executor, plan, block) : -ENOMEM;
	if (r == 0) {
		plan->device_state[executor->index] = PLAN_DEVICE_READY;
		return block;
	}
	free(block);
	plan->device_state[executor->index] = r == EXECUTOR_E_NO_MEMORY || r == -ENOMEM
						      ? PLAN_DEVICE_NO_MEMORY
						      : PLAN_DEVICE_FAILED;
	if (r < 0)
		log_warning("device %u (%s) cannot load a plan: %s", executor->index,
			    executor->info.name, strerror(-r));
	return NULL;
}

struct exec_block *plan_unload(struct executor *executor, struct plan *plan,
			       struct exec_block *block)
{
	if (!block)
		return NULL;
	executor->ops->plan_unload(executor, plan);
	executor->ops->block_unload(executor, block);
	plan->device_bytes[executor->index] = 0;
	free(block);
	return NULL;
}
