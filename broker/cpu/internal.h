#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The executor and its workers. Private to broker/cpu; see pool-hot.c for how they work together.
 */
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/cpu.h"
#include "cpu/pack.h"
#include "cpu/step.h"
#include "plan/executor.h"
#include "util/spsc.h"

/* A queue with one producer, the reactor, and many consumers: its owner and thieves. */
struct cpu_queue {
	alignas(128) _Atomic uint64_t tail; /* written by the reactor */
	alignas(128) _Atomic uint64_t head; /* moved by compare-and-swap */
	alignas(128) _Atomic(struct exec_task *) *slots;
	uint64_t mask;
};

enum { CPU_TEAM_OPEN = 1u << 31 };

/* A step that its leader shares. The fields are written while state is 0 only. */
struct cpu_team {
	alignas(128) _Atomic uint32_t state; /* CPU_TEAM_OPEN | number of helpers inside */
	const struct cpu_step *step;
	const struct cpu_frame *frame;
	size_t n_units, n_chunks;
	alignas(128) _Atomic size_t next_chunk;
};

struct cpu_worker {
	struct cpu_queue queue;               /* tasks towards it */
	struct spsc done;                     /* tasks back to the reactor */
	struct cpu_team team;                 /* the step that it leads */
	alignas(128) _Atomic uint32_t asleep; /* a futex: 1 while it sleeps or is about to */
	struct cpu_executor *cpu;
	unsigned int index;
	int processor; /* to be pinned to, or -1 */
	pthread_t thread;
	bool started;
	void *workspace;
};

struct cpu_executor {
	struct executor executor;
	const struct cpu_kernels *kernels;
	unsigned int n_workers;
	struct cpu_worker *workers;
	void *inline_workspace;
	struct cpu_pack_cache packs;
	uint64_t spin_ticks;
	char name[64];

	/* The reactor's. */
	uint32_t n_in_flight, max_tasks;
	unsigned int next_worker, next_reap;
	bool submitted; /* since the last flush */

	alignas(128) _Atomic uint32_t n_looking;  /* workers awake without a task */
	alignas(128) _Atomic uint32_t n_sleeping; /* workers asleep or about to be */
	alignas(128) _Atomic uint32_t n_teams;    /* open ones */
	_Atomic bool stop;
};

static inline struct cpu_executor *cpu_executor_from(struct executor *executor)
{
	return (struct cpu_executor *)executor; /* its first member */
}

/* worker.c: starts the thread. Return: 0, negative errno. */
int cpu_worker_start(struct cpu_worker *worker);
/* Wakes up to @n sleeping workers. Any thread. */
void cpu_pool_wake(struct cpu_executor *cpu, unsigned int n);

/* Waits until the helpers of a closed team have left it. Its leader only. */
void cpu_team_wait(struct cpu_team *team);

/* pool-hot.c: does one piece of work, whoever it was for. Return: whether there was any. */
bool cpu_worker_work(struct cpu_worker *worker);
/* Is there something that a worker should stay awake for? */
bool cpu_worker_sees_work(struct cpu_worker *worker);

/* pool-hot.c: struct executor_ops */
int cpu_pool_submit(struct executor *executor, struct exec_task *task);
void cpu_pool_flush(struct executor *executor);
unsigned int cpu_pool_reap(struct executor *executor, struct exec_task **ret, unsigned int max);
void cpu_pool_run_inline(struct executor *executor, struct exec_task *task);
