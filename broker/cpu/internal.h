#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The executor and its workers. Private to broker/cpu; see pool-hot.c for how they work together.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/cpu.h"
#include "cpu/layout.h"
#include "cpu/pack.h"
#include "cpu/step.h"
#include "plan/executor.h"
#include "util/chunks.h"
#include "util/ends.h"
#include "util/spsc.h"

/* A queue with one producer, the reactor, and many consumers: its owner and thieves. */
struct cpu_queue {
	alignas(128) _Atomic uint64_t tail; /* written by the reactor */
	alignas(128) _Atomic uint64_t head; /* moved by compare-and-swap */
	alignas(128) _Atomic(struct exec_task *) *slots;
	uint64_t mask;
};

enum {
	CPU_TEAM_OPEN = 1u << 31,
	CPU_SHARE_MIN_NS = 60000, /* of a step that is worth cutting */
	/* Unfinished tasks of a plan with scratch, on that many workers or more. */
	CPU_MAX_SPARE_BLOCKS = 4,
};

/* A step that its leader shares. The fields are written while state is 0 only. */
struct cpu_team {
	alignas(128) _Atomic uint32_t state; /* CPU_TEAM_OPEN | number of helpers inside */
	const struct cpu_step *step;
	const struct cpu_frame *frame;
	const struct exec_task *task; /* whose step it is */
	size_t n_units, n_chunks;
	alignas(128) struct ends chunks;
	_Atomic uint64_t helper_ticks; /* what helpers have spent on it */
};

/*
 * Where a worker computes: the base, or what is urgent, on top of it if there is something there.
 */
enum { CPU_LAYER_BASE, CPU_LAYER_BETWEEN, CPU_LAYERS };
struct cpu_layer {
	struct cpu_context context; /* its pause is the one below */
	struct cpu_pause pause;
	struct cpu_worker *worker;
	jmp_buf leave;         /* from within a kernel, where the task is cancelled */
	bool may_leave;        /* that is set */
	struct cpu_team team;  /* the step that it leads */
	struct cpu_plan *plan; /* that it leads; NULL: it helps, or does nothing */
	uint64_t helper_ticks; /* on the task that it leads */
	bool has_worked;       /* on that task, since it was given it */
	bool is_kept;          /* that task was stopped, and counts in plan->n_stopped */
};

struct cpu_worker {
	struct cpu_queue queue; /* tasks towards it */
	struct spsc done;       /* tasks back to the reactor */
	struct cpu_layer layers[CPU_LAYERS];
	alignas(128) _Atomic uint32_t asleep; /* a futex: 1 while it sleeps or is about to */
	struct cpu_executor *cpu;
	struct exec_task *put_off; /* urgent, taken, but its plan has no scratch left here */
	uint64_t between_ticks;    /* spent in between, ever */
	unsigned int index;
	int processor; /* to be pinned to, or -1 */
	pthread_t thread;
	bool started;
};

struct cpu_executor {
	struct executor executor;
	const struct cpu_kernels *kernels;
	enum cpu_layout_wish layout_wish;
	unsigned int n_workers;
	struct cpu_worker *workers;
	struct cpu_context inline_context;
	struct chunks memory;
	struct cpu_pack_cache packs;
	uint64_t n_compiled; /* the setup thread's */
	uint64_t spin_ticks;
	cpu_set_t processors; /* that workers may use */
	char name[64];

	/* The reactor's. */
	uint32_t n_in_flight, max_tasks;
	unsigned int next_worker, next_reap;
	unsigned int n_in_use; /* of the workers, the first ones; as n_active */
	bool submitted;        /* since the last flush */
	bool is_unpinned;      /* all workers are, though there are processors for them */

	struct cpu_queue urgent; /* whoever looks takes them, before all others */
	/* Urgent tasks that have not begun; looked at by everybody who computes, all the time. */
	alignas(128) _Atomic uint32_t n_urgent;
	alignas(128) _Atomic uint32_t n_looking;  /* workers awake without a task */
	alignas(128) _Atomic uint32_t n_sleeping; /* workers asleep or about to be */
	alignas(128) _Atomic uint32_t n_teams;    /* open ones */
	/* Written by the reactor now and then, see cpu_executor_limit(). */
	alignas(128) _Atomic uint32_t n_active; /* workers from that index on only sleep */
	_Atomic bool is_contended;
	_Atomic bool stop;
};

static inline struct cpu_executor *cpu_executor_from(struct executor *executor)
{
	return (struct cpu_executor *)executor; /* its first member */
}

/* Is it not to be used now? */
static inline bool cpu_worker_is_limited(const struct cpu_worker *worker)
{
	return worker->index >= atomic_load_explicit(&worker->cpu->n_active, memory_order_relaxed);
}

/* worker.c: starts the thread. Return: 0, negative errno. */
int cpu_worker_start(struct cpu_worker *worker);
/* Wake @worker if it sleeps. Any thread. Return: true if it slept. */
bool cpu_worker_rouse(struct cpu_worker *worker);
/* Wake up to @n sleeping workers of those in use. Any thread. */
void cpu_pool_wake(struct cpu_executor *cpu, unsigned int n);

/* A leader that has waited @n_spins times for its helpers waits a little more. */
void cpu_team_wait(const struct cpu_executor *cpu, unsigned int n_spins);

/* pool-hot.c: a layer's that has no task, or none that may be asked anything. */
extern const _Atomic uint8_t cpu_calm_state;
/* pool-hot.c: a layer's at which nothing urgent is done. */
extern const _Atomic uint32_t cpu_none_waiting;
/* pool-hot.c: struct cpu_pause of a layer: does what is urgent, and what the task is asked. */
void cpu_worker_serve(struct cpu_pause *pause);
/* pool-hot.c: does one piece of work, whoever it was for. Return: whether there was any. */
bool cpu_worker_work(struct cpu_worker *worker);
/* Is there something that a worker should stay awake for? */
bool cpu_worker_sees_work(struct cpu_worker *worker);

/* pool-hot.c: struct executor_ops */
int cpu_pool_submit(struct executor *executor, struct exec_task *task);
void cpu_pool_flush(struct executor *executor);
unsigned int cpu_pool_reap(struct executor *executor, struct exec_task **ret, unsigned int max);
void cpu_pool_run_inline(struct executor *executor, struct exec_task *task);
void cpu_pool_abandon(struct executor *executor, struct exec_task *task);
