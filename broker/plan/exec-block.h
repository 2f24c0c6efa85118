#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Blocks of constants and footprints of plans in device memory
 *
 * A block is one allocation of a device. It holds copies of constants that were loaded together,
 * for the first plan that wanted them, and that are unloaded together, with the last plan that uses
 * them. The reactor lays the block out (exec_block_layout()), charges it, has the executor load and
 * unload it, and tells plans where in the block their constants are.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct exec_arena;
struct executor_info;
struct plan;

/* The memory of a copy. The bytes of a constant are always in its arena as well. */
enum exec_tier {
	EXEC_TIER_VRAM, /* the device's own memory; on an APU its one pool */
	EXEC_TIER_GTT,  /* host memory that the device reads over its bus */
	EXEC_TIER_COUNT,
};

/* One constant in a block. */
struct exec_constant {
	const struct exec_arena *arena;
	uint64_t offset; /* offset within the arena */
	uint64_t bytes;
	uint64_t block_offset; /* set by exec_block_layout() */
};

struct exec_block {
	enum exec_tier tier;
	uint64_t bytes; /* charged and allocated; set by exec_block_layout() */
	uint32_t n_constants;
	struct exec_constant *constants; /* the owner's */
	atomic_bool is_cancelled; /* reactor: stop loading; the executor checks it between parts */

	/* The executor's. */
	void *memory;               /* NULL: not loaded */
	uint64_t loaded_bytes;      /* progress of the load */
	uint64_t copied_bytes;      /* copied by a CPU while loading */
	uint64_t transferred_bytes; /* copied by the device's own engines while loading */
};

/* Memory that running a plan takes beside its constants, per slot: per task in flight. */
struct exec_footprint {
	/*
	 * Scratch and copies of bound tensors, each aligned, and the driver's memory, where known.
	 */
	uint64_t slot_device_bytes;
	uint64_t slot_host_bytes; /* parameter blocks, staging buffers and the driver's memory */
	uint32_t slot_mappings;   /* virtual memory areas that the driver makes for its commands */
	uint32_t max_slots;       /* upper bound of useful slots; at least 1 */
};

/*
 * Assign every constant its offset, in order, each aligned to info->memory_align_bytes, and set
 * block->bytes, rounded up to info->memory_page_bytes.
 * Return: 0; -EOVERFLOW if 64 bits cannot hold the size.
 */
int exec_block_layout(struct exec_block *block, const struct executor_info *info);

/*
 * Compute the bytes that a block of all constants of a plan takes; UINT64_MAX if 64 bits cannot
 * hold them. The function looks at each constant, so it is for the setup thread.
 */
uint64_t exec_constants_bytes(const struct plan *plan, const struct executor_info *info);

/*
 * Compute the bytes of @n_slots slots, rounded up to pages; UINT64_MAX if 64 bits cannot hold them.
 */
uint64_t exec_footprint_device_bytes(const struct exec_footprint *footprint,
				     const struct executor_info *info, uint32_t n_slots);
uint64_t exec_footprint_host_bytes(const struct exec_footprint *footprint,
				   const struct executor_info *info, uint32_t n_slots);
/* Compute the virtual memory areas of @n_slots, beside those of blocks of constants. */
uint64_t exec_footprint_mappings(const struct exec_footprint *footprint,
				 const struct executor_info *info, uint32_t n_slots);
