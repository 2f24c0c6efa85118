#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The broker that a bench measures
 *
 * A private broker, or the broker behind --socket, with one session and one ring of the measuring
 * thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include <ringbroker.h>

#include "bench.h"

struct broker_process;
struct cost;

enum target_kind {
	/* Both sides spin: the measuring thread and the reactor are pinned to two processors. */
	TARGET_PINNED,
	/* Workers compute; no thread is pinned. */
	TARGET_WORKERS,
	/*
	 * One worker, which the broker pins to the first processor. The kernel places the reactor,
	 * which runs short tasks itself, and the measuring thread.
	 */
	TARGET_ONE_WORKER,
	/* One worker, which sleeps: tiny tasks run on the reactor. Pinned like TARGET_PINNED. */
	TARGET_INLINE,
	/* Like TARGET_WORKERS, with a GPU: a real one, else a software one. */
	TARGET_GPU,
};

struct target {
	struct broker_process *process; /* NULL: not private */
	struct rbk *rbk;
	struct rbk_ring *ring;
	struct rbk_device gpu; /* the GPU of TARGET_GPU */
};

#define TARGET_INIT \
	{           \
		0   \
	}

/*
 * Start the broker, connect, and pin the calling thread as @kind requires.
 * Return: 0; BENCH_E_SKIP or a negative errno, which has been reported.
 */
int target_init(struct target *target, struct bench_env *env, enum target_kind kind);

/*
 * The same with a device whose tasks take @task_us, plus @row_ns for each row, and no processor, as
 * target->gpu, and with all workers. With a @seed plans are cut as target_init_cut() says.
 */
int target_init_timed(struct target *target, struct bench_env *env, uint32_t task_us,
		      uint32_t row_ns, unsigned int seed);

/*
 * The same with a device whose tasks take 20 us and compute @flops_per_ns floating-point operations
 * in a nanosecond, and with plans cut as brokerd sees fit. @memory_bytes: of the device; 0: any.
 * @link_mb_per_s: its link's megabytes in a second; 0: constants cross in no time.
 */
int target_init_rated(struct target *target, struct bench_env *env, uint32_t flops_per_ns,
		      uint64_t memory_bytes, uint32_t link_mb_per_s);

/*
 * Open a further session of the broker at @socket, with a ring of its own. End it with
 * target_deinit(), also after a failure.
 * Return: 0; a negative errno, which has been reported.
 */
int target_connect(struct target *target, struct bench_env *env, const char *socket);

/*
 * Start a broker with one worker that cuts every plan into segments by @seed, or with 0 none, as
 * target_init() does for TARGET_ONE_WORKER. Not with --socket.
 */
int target_init_cut(struct target *target, struct bench_env *env, unsigned int seed);

/* Return how many segments the broker cut a plan into, or a negative errno if it is not known. */
int target_n_segments(const struct target *target, const struct rbk_plan *wanted);

/* Disconnect and stop the broker. The session's objects must be freed before. */
void target_deinit(struct target *target);

/* Return the socket for further sessions. */
const char *target_socket(const struct target *target, const struct bench_env *env);

/* Data of rounds for bench_compare(), over one kind of entry */
struct target_task {
	struct rbk_ring *ring;
	uint32_t plan_id; /* unused if count and n_refs are 0, which makes a NOP */
	uint32_t count;
	uint64_t refs[RBK_SQE_REFS];
	unsigned int n_refs;
	unsigned int strategy;
	unsigned int flags;     /* RBK_SQE_* */
	uint32_t depth;         /* target_waits(): tasks in flight, each with its own output */
	uint64_t output_stride; /* bytes from one task's output to the next */
	uint32_t batch;         /* target_throughput(): entries per publication */
	struct cost *cost;      /* NULL, or counts measured tasks, except target_throughput()'s */
};

/* Measure nanoseconds per round trip, spinning. */
int target_round_trips(void *data, uint64_t budget_ns, struct samples *samples);

/* Measure nanoseconds per completion with depth tasks in flight, waiting as programs do. */
int target_waits(void *data, uint64_t budget_ns, struct samples *samples);

/* Measure millions of tasks per second, published in batches, with the ring kept full. */
int target_throughput(void *data, uint64_t budget_ns, struct samples *samples);

/*
 * Run the task once and wait for it.
 * Return: 0; a negative errno of the library or of the completion.
 */
int target_run_once(const struct target_task *task);
