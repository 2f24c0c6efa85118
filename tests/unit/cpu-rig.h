#pragma once
/* SPDX-License-Identifier: MIT */
/* A rig for tests of the CPU executor: a fake reactor, plans, and tasks over their own buffers. */
#include <stdint.h>

#include "cpu/cpu.h"
#include "plan/executor.h"
#include "reference/reference.h"
#include "util/waker.h"

struct cpu_rig {
	struct waker waker;
	struct executor *executor;
};

/* A task with its own buffers. The task is the first member. */
struct cpu_job {
	struct exec_task task;
	struct exec_ref refs[RBK_MAX_REFS];
	struct exec_arena arenas[RBK_MAX_REFS];
	struct reference_buffers buffers;
};

/* Start an executor. Asserts success, as all functions here do. */
void cpu_rig_init(struct cpu_rig *rig, const struct cpu_options *options);
void cpu_rig_deinit(struct cpu_rig *rig);

void cpu_rig_prepare(struct cpu_rig *rig, struct plan *plan);
/* Release the plan from the executor, and free it. */
void cpu_rig_release(struct cpu_rig *rig, struct plan *plan);

void cpu_job_init(struct cpu_job *job, struct plan *plan, uint32_t count, uint64_t seed);
void cpu_job_deinit(struct cpu_job *job);
/* Overwrite the buffers that the task is to write. */
void cpu_job_wipe(struct cpu_job *job);
/* Assert that the job's buffers equal @want, bit by bit. */
void cpu_job_expect(const struct cpu_job *job, const struct reference_buffers *want);

/* Submit the job and flush; wait for the next completed task. */
void cpu_rig_submit(struct cpu_rig *rig, struct cpu_job *job);
struct exec_task *cpu_rig_reap(struct cpu_rig *rig);
/* Submit the job and wait for it. Nothing else may be in flight. */
void cpu_rig_run(struct cpu_rig *rig, struct cpu_job *job);

/* Return the rows of a task that takes long: @n, or a quarter under a sanitizer. */
uint32_t cpu_rig_long(uint32_t n);

/* y = topk(x * w + b): a small version of the demo's plan. */
struct plan *cpu_rig_knn_plan(struct exec_arena *arena, uint32_t max_count, uint32_t n);
/* A plan of several steps that are long enough for workers to share. */
struct plan *cpu_rig_long_plan(struct exec_arena *arena);
/* y = x @op z, with up to 64 rows. */
struct plan *cpu_rig_binary_plan(const char *op);
