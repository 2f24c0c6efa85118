#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A rig for tests of the Vulkan executor
 *
 * The rig has a software device (with RBK_TEST_GPU=real in the environment, the machine's GPU), a
 * fake reactor, and tasks. Each tensor lies at the very end of its own arena, between guard bytes
 * before it and unmapped memory behind it. An access beyond a tensor either faults or shows.
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

/* Return the kind of device that the rig opens. */
enum vulkan_mode rig_mode(void);

/*
 * Return true if a device of this kind exists. If not, print why on standard output; the test then
 * exits with 77.
 */
bool rig_available(void);

/* Run the program's tests, if the device exists. Return: the exit status. */
int rig_main(void);

/* Open the device with these options; the mode is set here. Asserts success. */
void rig_init(struct rig *rig, const struct vulkan_options *options);
/* Close the device. Asserts that no memory is left on it. */
void rig_deinit(struct rig *rig);

/*
 * Make an arena of @bytes, rounded up to a page, that is imported over a new memfd. Without @rig it
 * is private memory, which later arenas of one size use again.
 */
void rig_arena_init(struct rig *rig, struct exec_arena *arena, uint64_t bytes);
void rig_arena_deinit(struct rig *rig, struct exec_arena *arena);

struct job {
	struct exec_task task;
	struct exec_ref refs[RBK_MAX_REFS];
	struct exec_arena arenas[RBK_MAX_REFS];
	struct reference_buffers want; /* inputs, as they were before the run */
};

/* Make a task. Without @rig it is for a CPU, and its tensors end exactly where the memory ends. */
void job_init(struct rig *rig, struct job *job, struct plan *plan, uint32_t count, uint64_t seed);
void job_deinit(struct rig *rig, struct job *job);
/* Refill the arenas from job->want, and make the task submittable. */
void job_reset(struct job *job);
/* Return: true if guards and inputs are unchanged; prints the first change. */
bool job_is_untouched(const struct job *job);
/*
 * Compare the outputs with the reference, and all other bytes with their values before the run.
 * Return: true if they match.
 */
bool job_check(struct job *job, double rtol, double atol);
/* Return the host address of a binding. */
void *job_binding(struct job *job, unsigned int binding);

/* Submit a task and flush; wait for one task to complete, at most 120 s. */
void rig_submit(struct rig *rig, struct exec_task *task);
struct exec_task *rig_reap(struct rig *rig);
void rig_run(struct rig *rig, struct job *job);

/*
 * Return the bytes that a task transfers: those of all bound tensors on a card, 0 on other devices.
 */
uint64_t rig_transferred_bytes(const struct rig *rig, const struct exec_task *task);

/* y = x * w: a constant of @rows x @cols at @offset of @arena; counts up to RIG_MAX_COUNT. */
struct plan *rig_product_plan(struct exec_arena *arena, uint64_t offset, uint32_t rows,
			      uint32_t cols);
/* z = (x + x) * x, through scratch memory; counts up to RIG_MAX_COUNT. */
struct plan *rig_scratch_plan(uint32_t cols);

/* Return a block of all constants of @plan, laid out. The caller frees it. */
struct exec_block *rig_block_new(struct rig *rig, const struct plan *plan);
/*
 * Load a block completely.
 * Return: as block_load().
 */
int rig_block_load(struct rig *rig, struct exec_block *block);
/*
 * Call plan_load() until it has finished.
 * Return: as plan_load().
 */
int rig_plan_load(struct rig *rig, struct plan *plan, const struct exec_load *load);
/*
 * Load a prepared plan with a block of its constants.
 * Return: 0, or the error of the step that failed.
 */
int rig_load(struct rig *rig, struct plan *plan, enum exec_tier tier, uint32_t n_slots);
/* Unload the plan and its block, also if nothing is loaded. */
void rig_unload(struct rig *rig, struct plan *plan);

/* Prepare @plan and load it with the maximum of slots. Asserts success. */
void rig_prepare(struct rig *rig, struct plan *plan);
/* Unload, release and free the plan. */
void rig_release(struct rig *rig, struct plan *plan);
