#pragma once
/* SPDX-License-Identifier: MIT */
/* The executor and its workers. Private to broker/cpu; pool-hot.c describes their cooperation. */
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

/* A queue with one producer, the reactor, and many consumers: its owner and thieves */
struct cpu_queue {
	alignas(128) _Atomic uint64_t tail; /* written by the reactor */
	alignas(128) _Atomic uint64_t head; /* advanced by compare-and-swap */
	alignas(128) _Atomic(struct exec_task *) *slots;
	uint64_t mask;
};

/* Return the number of tasks in the queue, which may change meanwhile. */
static inline uint32_t cpu_queue_length(const struct cpu_queue *queue)
{
	const uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
	const uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);

	return tail > head ? (uint32_t)(tail - head) : 0;
}

enum {
	CPU_TEAM_OPEN = 1u << 31,
	CPU_TEAM_AWAITED = 1u << 30, /* the leader sleeps until the last helper leaves */
	CPU_TEAM_HELPERS = CPU_TEAM_AWAITED - 1,
	/* Shortest node that several threads compute, for predictions; share-hot.c decides. */
	CPU_SHARE_MIN_NS = 60000,
	/* Maximum of spare scratch blocks per plan, for stopped tasks that keep one. */
	CPU_MAX_SPARE_BLOCKS = 4,
};

/* A step that its leader shares. The plain fields are written only while state is 0. */
struct cpu_team {
	alignas(128) _Atomic uint32_t state; /* CPU_TEAM_* | number of helpers inside; futex */
	const struct cpu_step *step;
	const struct cpu_frame *frame;
	const struct exec_task *task; /* the step's task */
	/* exec_task.busy_processor, for workers that have not joined */
	_Atomic uint32_t busy_processor;
	_Atomic uint32_t max_helpers; /* at a time */
	_Atomic int32_t n_wakes; /* sleeping workers that those who come wake; negative: none */
	size_t n_units, n_chunks;
	alignas(128) struct ends chunks;
	_Atomic uint64_t helper_ticks; /* time that helpers have spent on it */
};

/* A level of a worker's stack: the base, or urgent tasks, which may run on top of it. */
enum { CPU_LAYER_BASE, CPU_LAYER_BETWEEN, CPU_LAYERS };
struct cpu_layer {
	struct cpu_context context; /* context.pause points at pause below */
	struct cpu_pause pause;
	struct cpu_worker *worker;
	jmp_buf leave;         /* longjmp() target, out of a kernel, when the task is cancelled */
	bool may_leave;        /* leave is set */
	struct cpu_team team;  /* the step that this layer leads */
	struct cpu_plan *plan; /* plan of the led task; NULL: it helps, or is idle */
	double pace;           /* cpu_plan_pace() when the led task began or was resumed */
	uint64_t helper_ticks; /* helpers' time on the led task */
	uint64_t waited_ticks; /* the leader's time of waking helpers and waiting for them */
	bool has_worked;       /* has computed a part of the led task since it got it */
	bool is_kept;          /* the led task was stopped, and counts in plan->n_stopped */
};

/*
 * A thread that computes tasks: a worker's, or the reactor's own while it runs a task itself. The
 * reactor's has no thread to start, no queue and no urgent tasks in between.
 */
struct cpu_worker {
	struct cpu_queue queue; /* tasks for this worker */
	struct spsc done;       /* tasks returned to the reactor */
	struct cpu_layer layers[CPU_LAYERS];
	alignas(128) _Atomic uint32_t asleep; /* futex: 1 while it sleeps or is about to */
	struct cpu_executor *cpu;
	struct exec_task *put_off; /* urgent task that was taken, but found no free scratch */
	uint64_t between_ticks;    /* total time spent on urgent tasks, and looks, in between */
	/* cpu_step_wakes(): steps led without a pause between them, and the end of the last one */
	double shared_ns;
	uint64_t shared_ticks;
	unsigned int index;
	int processor; /* the processor to pin to; -1: none */
	pthread_t thread;
	bool started;
};

struct cpu_executor {
	struct executor executor;
	const struct cpu_kernels *kernels;
	enum cpu_layout_wish layout_wish;
	unsigned int n_workers;
	struct cpu_worker *workers; /* n_workers, then the reactor's own */
	struct cpu_context inline_context;
	struct chunks memory;
	struct cpu_pack_cache packs;
	uint64_t n_compiled; /* compilations so far; setup thread only */
	uint64_t spin_ticks;
	cpu_set_t processors; /* processors that workers may use */
	char name[64];

	/* Reactor only */
	uint32_t n_in_flight, max_tasks;
	unsigned int next_worker, next_reap;
	unsigned int n_in_use; /* the first n_in_use workers are in use; mirrors n_active */
	bool submitted;        /* tasks were submitted since the last flush */
	bool is_unpinned;      /* workers use all processors although each has its own */
	/* The arguments of executor_ops.run_here, for the task that the reactor runs itself */
	unsigned int n_helpers;
	exec_look_fn *look;
	void *look_context;
	uint64_t looked_ticks; /* the last look, or the begin of the task */
	uint64_t look_ticks;   /* least time between two looks */

	struct cpu_queue urgent; /* shared; workers take from it before other queues */
	/* Urgent tasks that have not begun. Every computing worker polls it. */
	alignas(128) _Atomic uint32_t n_urgent;
	alignas(128) _Atomic uint32_t n_looking;  /* workers awake without a task */
	alignas(128) _Atomic uint32_t n_sleeping; /* workers asleep or about to be */
	alignas(128) _Atomic uint32_t n_teams;    /* open teams */
	/* Written by the reactor on changes, see cpu_executor_limit(). */
	alignas(128) _Atomic uint32_t n_active; /* workers from this index on only sleep */
	/* the worker that does not help the reactor, see cpu_worker_may_help() */
	_Atomic uint32_t kept_off;
	_Atomic bool is_contended;
	_Atomic bool stop;
};

static inline struct cpu_executor *cpu_executor_from(struct executor *executor)
{
	return (struct cpu_executor *)executor; /* its first member */
}

/* The thread of the reactor, while it runs a task itself */
static inline struct cpu_worker *cpu_reactor_worker(const struct cpu_executor *cpu)
{
	return &cpu->workers[cpu->n_workers];
}

/* Check whether the thread is the reactor's. */
static inline bool cpu_worker_is_reactor(const struct cpu_worker *worker)
{
	return worker->index == worker->cpu->n_workers;
}

/* Return true if the worker is pinned to @busy_processor, see struct exec_task. */
static inline bool cpu_worker_is_at(const struct cpu_worker *worker, uint32_t busy_processor)
{
	return busy_processor != 0 && (uint32_t)(worker->processor + 1) == busy_processor;
}

/*
 * Return true if @worker may help @leader with the team's step. One worker does not help the
 * reactor, so that no more threads compute than there are workers.
 */
static inline bool cpu_worker_may_help(const struct cpu_worker *worker,
				       const struct cpu_worker *leader, const struct cpu_team *team)
{
	const struct cpu_executor *cpu = worker->cpu;

	if (cpu_worker_is_reactor(leader) &&
	    worker->index == atomic_load_explicit(&cpu->kept_off, memory_order_relaxed))
		return false;
	return !cpu_worker_is_at(worker,
				 atomic_load_explicit(&team->busy_processor, memory_order_relaxed));
}

/* Return true if the worker is beyond the limit of cpu_executor_limit(). */
static inline bool cpu_worker_is_limited(const struct cpu_worker *worker)
{
	return worker->index >= atomic_load_explicit(&worker->cpu->n_active, memory_order_relaxed);
}

/* worker.c: start the thread. Return: 0, negative errno. */
int cpu_worker_start(struct cpu_worker *worker);
/*
 * worker.c: Return how long a worker spins the next time that has spun for @spin_ticks in vain, and
 * waited for @idle_ticks in all. Where work comes now and then, spinning for it would cost more
 * processor time than the work.
 */
uint64_t cpu_worker_next_spin(const struct cpu_executor *cpu, uint64_t spin_ticks,
			      uint64_t idle_ticks);
/* Wake @worker if it sleeps. Any thread. Return: true if it slept. */
bool cpu_worker_rouse(struct cpu_worker *worker);
/* Wake up to @n sleeping workers of those in use, first those with tasks queued. Any thread. */
void cpu_pool_wake(struct cpu_executor *cpu, unsigned int n);
/* Wake up to @n sleeping workers of those in use that may help @leader with the team's step. */
void cpu_pool_wake_helpers(const struct cpu_worker *leader, const struct cpu_team *team,
			   unsigned int n);

/*
 * share-hot.c, for the thread that computes a step or leads its team
 *
 * @ns: the time that the step, or a round of it, takes one thread: its estimate by the plan's pace
 */

/* Learn from a task of @count rows that took all threads together @busy_ticks. */
void cpu_plan_learn(struct cpu_plan *plan, uint32_t count, uint64_t busy_ticks);
/* Check whether a step is computed in one call, although it could be cut. */
bool cpu_step_is_whole(const struct cpu_worker *worker, const struct cpu_step *step, double ns);
/* Return the number of chunks of a round of @n_units. */
size_t cpu_step_chunks(const struct cpu_worker *worker, const struct cpu_step *step, double ns,
		       size_t n_units);
/* Return the number of helpers that a round of @n_chunks is worth; 0: it is not shared. */
unsigned int cpu_step_helpers(const struct cpu_worker *worker, double ns, size_t n_chunks);
/*
 * Return how many sleeping workers are woken for a step that is shared with @n_helpers. The caller
 * has opened the team and executed a fence.
 */
unsigned int cpu_step_wakes(struct cpu_worker *worker, double ns, unsigned int n_helpers);

/* Wake the leader, as the last helper that has left. */
void cpu_team_wake(struct cpu_team *team);

/*
 * Return true if the team is open or has helpers. If not, the leader may read what they wrote:
 * pairs with cpu_team_leave().
 */
static inline bool cpu_team_has_helpers(const struct cpu_team *team)
{
	return (atomic_load_explicit(&team->state, memory_order_acquire) &
		~(uint32_t)CPU_TEAM_AWAITED) != 0;
}

/* Leave a team, as a helper. */
static inline void cpu_team_leave(struct cpu_team *team)
{
	const uint32_t state = atomic_fetch_sub_explicit(&team->state, 1, memory_order_release);

	if (__builtin_expect((state & ~(uint32_t)CPU_TEAM_OPEN) == (CPU_TEAM_AWAITED | 1), 0))
		cpu_team_wake(team);
}

/* Let the leader of @team, which has waited @n_spins times, wait a little more for its helpers. */
void cpu_team_wait(const struct cpu_worker *leader, struct cpu_team *team, unsigned int n_spins);

/* pool-hot.c: the pause.state of a layer without a task that can be asked to stop */
extern const _Atomic uint8_t cpu_calm_state;
/* pool-hot.c: the pause.n_waiting of the layer that runs urgent tasks itself */
extern const _Atomic uint32_t cpu_none_waiting;
/* pool-hot.c: the pause.n_waiting of the reactor, which looks at its rings at each poll */
extern const _Atomic uint32_t cpu_one_waiting;
/*
 * pool-hot.c: cpu_pause.serve of a layer: run urgent tasks, and leave the kernel if its task was
 * cancelled.
 */
void cpu_worker_serve(struct cpu_pause *pause);
/* The same for the reactor's own layer: look, and leave the kernel if its task was cancelled. */
void cpu_reactor_serve(struct cpu_pause *pause);
/* pool-hot.c: do one piece of work, own or stolen. Return: true if there was any. */
bool cpu_worker_work(struct cpu_worker *worker);
/* Return true if there is work, or a stop request, for which a worker should stay awake. */
bool cpu_worker_sees_work(struct cpu_worker *worker);

/* pool-hot.c: struct executor_ops */
int cpu_pool_submit(struct executor *executor, struct exec_task *task);
void cpu_pool_flush(struct executor *executor);
unsigned int cpu_pool_reap(struct executor *executor, struct exec_task **ret, unsigned int max);
void cpu_pool_run_inline(struct executor *executor, struct exec_task *task);
void cpu_pool_run_here(struct executor *executor, struct exec_task *task, unsigned int n_helpers,
		       exec_look_fn *look, void *context);
void cpu_pool_abandon(struct executor *executor, struct exec_task *task);
