/* SPDX-License-Identifier: MIT */
/* Blocks of constants and footprints of plans: see exec-block.h. */
#include "plan/exec-block.h"

#include <errno.h>

#include "plan/executor.h"
#include "util/checked.h"
#include "util/error.h"

int exec_block_layout(struct exec_block *block, const struct executor_info *info)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < block->n_constants; i++) {
		struct exec_constant *constant = &block->constants[i];

		if (!checked_align(at, info->memory_align_bytes, &at))
			return error_origin(-EOVERFLOW);
		constant->block_offset = at;
		if (!checked_add(at, constant->bytes, &at))
			return error_origin(-EOVERFLOW);
	}
	if (!checked_align(at, info->memory_page_bytes, &block->bytes))
		return error_origin(-EOVERFLOW);
	return 0;
}

uint64_t exec_constants_bytes(const struct plan *plan, const struct executor_info *info)
{
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < plan->n_constants; i++)
		if (!checked_align(bytes, info->memory_align_bytes, &bytes) ||
		    !checked_add(bytes, plan->constants[i].bytes, &bytes))
			return UINT64_MAX;
	return checked_align(bytes, info->memory_page_bytes, &bytes) ? bytes : UINT64_MAX;
}

static uint64_t slots_bytes(uint64_t slot_bytes, const struct executor_info *info, uint32_t n_slots)
{
	uint64_t bytes;

	if (!checked_mul(slot_bytes, n_slots, &bytes) ||
	    !checked_align(bytes, info->memory_page_bytes, &bytes))
		return UINT64_MAX;
	return bytes;
}

uint64_t exec_footprint_device_bytes(const struct exec_footprint *footprint,
				     const struct executor_info *info, uint32_t n_slots)
{
	return slots_bytes(footprint->slot_device_bytes, info, n_slots);
}

uint64_t exec_footprint_host_bytes(const struct exec_footprint *footprint,
				   const struct executor_info *info, uint32_t n_slots)
{
	return slots_bytes(footprint->slot_host_bytes, info, n_slots);
}

/* One allocation each for device memory and host memory, and the commands of each slot. */
uint64_t exec_footprint_mappings(const struct exec_footprint *footprint,
				 const struct executor_info *info, uint32_t n_slots)
{
	return 2 * info->allocation_mappings + (uint64_t)n_slots * footprint->slot_mappings;
}
