#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The broker that a bench measures
 *
 * A private one, or the one behind --socket, with one session and one ring of the measuring
 * thread's.
 */
#include <stdbool.h>
#include <stdint.h>

#include <ringbroker.h>

#include "bench.h"

struct broker_process;

enum target_kind {
	/* Both sides spin: the measuring thread and the reactor are pinned to two processors. */
	TARGET_PINNED,
	/* Workers compute: nobody is pinned. */
	TARGET_WORKERS,
	/*
	 * One worker, which the broker pins to the first processor; the reactor and the measuring
	 * thread are on the second one, and one of them sleeps while the other has something to do.
	 */
	TARGET_ONE_WORKER,
	/* One worker, which sleeps: tiny tasks run on the reactor. Pinned like TARGET_PINNED. */
	TARGET_INLINE,
	/* Like TARGET_WORKERS, with a GPU: a real one, or else a software one. */
	TARGET_GPU,
};

struct target {
	struct broker_process *process; /* NULL: not private */
	struct rbk *rbk;
	struct rbk_ring *ring;
	struct rbk_device gpu; /* TARGET_GPU */
};

#define TARGET_INIT \
	{           \
		0   \
	}

/*
 * Starts and connects, and pins the calling thread as @kind says.
 * Return: 0; BENCH_E_SKIP or negative errno, which has been reported.
 */
int target_init(struct target *target, struct bench_env *env, enum target_kind kind);

/* Disconnects and stops. What was made on the session has been freed before. */
void target_deinit(struct target *target);

/* The socket to make further sessions on. */
const char *target_socket(const struct target *target, const struct bench_env *env);

/* Rounds for bench_compare() over one kind of entry. */
struct target_task {
	struct rbk_ring *ring;
	uint32_t plan_id; /* with n_refs 0 and count 0: a NOP */
	uint32_t count;
	uint64_t refs[RBK_SQE_REFS];
	unsigned int n_refs;
	unsigned int strategy;
	uint32_t depth; /* target_waits(): tasks in flight; each has an output of its own, */
	uint64_t output_stride; /* so many bytes after the last reference */
	uint32_t batch;         /* target_throughput() */
};

/* Nanoseconds per round trip, spinning: */
int target_round_trips(void *data, uint64_t budget_ns, struct samples *samples);

/* Nanoseconds per completion with depth tasks in flight, waiting as programs do: */
int target_waits(void *data, uint64_t budget_ns, struct samples *samples);

/* Millions of tasks per second, published by batches, the ring kept full: */
int target_throughput(void *data, uint64_t budget_ns, struct samples *samples);

/* Runs the task once, waiting. Return: 0; negative errno of the library or of the completion. */
int target_run_once(const struct target_task *task);
