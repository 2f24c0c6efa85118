#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A rig for tests of the Vulkan executor
 *
 * A software device (with RBK_TEST_GPU=real in the environment the machine's GPU), a fake reactor,
 * and tasks whose tensors each lie at the very end of an arena of their own, with unmapped memory
 * behind and a guarded stretch in front: reading or writing beyond a tensor either faults or shows.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/executor.h"
#include "reference/reference.h"
#include "util/waker.h"
#include "vulkan/vulkan.h"

enum { RIG_MAX_LOADED = 16, RIG_MAX_COUNT = 8 };

struct rig {
	struct waker waker;
	struct vulkan *vulkan;
	struct executor *executor;
	struct rig_loaded {
		struct plan *plan; /* NULL: free */
		struct exec_block *block;
	} loaded[RIG_MAX_LOADED];
};

/* The kind of device that the rig opens. */
enum vulkan_mode rig_mode(void);

/* Is there such a device? Says so on standard output if not: the test then exits with 77. */
bool rig_available(void);

/* Opens that device with these options; mode is set here. Asserts success. */
void rig_init(struct rig *rig, const struct vulkan_options *options);
/* Asserts that nothing is left on the device. */
void rig_deinit(struct rig *rig);

/* An arena over a new memfd of @bytes, rounded up to a page. Imported if @rig is not NULL. */
void rig_arena_init(struct rig *rig, struct exec_arena *arena, uint64_t bytes);
void rig_arena_deinit(struct rig *rig, struct exec_arena *arena);

struct job {
	struct exec_task task;
	struct exec_ref refs[RBK_MAX_REFS];
	struct exec_arena arenas[RBK_MAX_REFS];
	struct reference_buffers want; /* inputs, and after job_check() the right results */
};

/* Without @rig the task is for a CPU, and its tensors end where memory does, to the byte. */
void job_init(struct rig *rig, struct job *job, struct plan *plan, uint32_t count, uint64_t seed);
void job_deinit(struct rig *rig, struct job *job);
/* Fills the arenas anew from job->want and makes the task submittable. */
void job_reset(struct job *job);
/* Return: true if guards and inputs are what they were; prints what is not. */
bool job_is_untouched(const struct job *job);
/* Compares outputs with the reference, and all else with what it was. */
bool job_check(struct job *job, double rtol, double atol);
/* The host address of a binding. */
void *job_binding(struct job *job, unsigned int binding);

/* Submits and flushes; waits for one task to come back, at most some seconds. */
void rig_submit(struct rig *rig, struct exec_task *task);
struct exec_task *rig_reap(struct rig *rig);
void rig_run(struct rig *rig, struct job *job);

/* What a device that does not bounce transfers is nothing, what a card does, all bound tensors. */
uint64_t rig_transferred_bytes(const struct rig *rig, const struct exec_task *task);

/* y = x * w: a constant of @rows x @cols at @offset of @arena; counts up to RIG_MAX_COUNT. */
struct plan *rig_product_plan(struct exec_arena *arena, uint64_t offset, uint32_t rows,
			      uint32_t cols);
/* z = (x + x) * x, through scratch; likewise. */
struct plan *rig_scratch_plan(uint32_t cols);

/* A block of all constants of @plan, laid out; freed by the caller. */
struct exec_block *rig_block_new(struct rig *rig, const struct plan *plan);
/* Loads a block to the end. Return: as block_load(). */
int rig_block_load(struct rig *rig, struct exec_block *block);
/* Calls plan_load() until it is over. Return: as that. */
int rig_plan_load(struct rig *rig, struct plan *plan, const struct exec_load *load);
/* Loads a prepared plan with a block of its constants. Return: 0, or why one of them failed. */
int rig_load(struct rig *rig, struct plan *plan, enum exec_tier tier, uint32_t n_slots);
/* Unloads both, also if nothing is loaded. */
void rig_unload(struct rig *rig, struct plan *plan);

/* Prepares @plan and loads it with all slots it can use, which must succeed. */
void rig_prepare(struct rig *rig, struct plan *plan);
/* Unloads, releases and frees it. */
void rig_release(struct rig *rig, struct plan *plan);
