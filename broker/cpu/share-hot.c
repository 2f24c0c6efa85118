/* SPDX-License-Identifier: MIT */
/*
 * Cutting steps, and sharing them with workers
 *
 * All of it follows from the time that the step takes one thread. The compiler's estimate knows the
 * step's operations, not the processor, and may be wrong by a factor of five. So each plan has a
 * pace: the time that its tasks took, by their estimates. It is a mean of the last tasks, in which
 * a single one that lost its processor counts for little.
 *
 * Workers that are awake come at once, and each of them needs a piece that is long enough to be
 * fetched. A worker that sleeps comes after some 40 us, and waking it costs several: that is worth
 * it only for long steps, or where short ones follow each other, so that it stays awake. What a
 * leader has computed in steps that it could have shared is added up for this, until there is a
 * pause after which workers sleep.
 *
 * While every worker has a task of its own, no helper comes. Then pieces are as long as for a
 * thread alone: many kernels pack operands anew for each piece.
 */
#include <math.h>

#include "cpu/internal.h"
#include "util/clock.h"

/* Shortest step that is shared with workers that are awake, and the least time per thread */
static const double share_min_ns = 12000, helper_min_ns = 8000;
/* Time for which one sleeping worker is woken; the first needs twice as much. */
static const double wake_each_ns = 50000;
/*
 * Time of a chunk that helpers may take: short enough for all threads to end at about the same
 * time. Chunks are longer where there would be more than CHUNKS_PER_THREAD, but not longer than
 * chunk_max_ns as long as units can be cut.
 */
static const double chunk_ns = 4000, chunk_max_ns = 20000;
enum { CHUNKS_PER_THREAD = 8 };
/* Longest piece that one thread alone computes in one call, by whether its kernel polls within */
static const double whole_max_ns = 100000, whole_blind_max_ns = 60000;
/* Where the kernel does not poll, the reactor looks after each chunk of so long. */
static const double here_chunk_ns = 5000;

/* Bounds of a pace, and of a measured one by the mean so far */
static const float pace_min = 1.0f / 32, pace_max = 32, outlier = 2;
/* Part of a task in the mean */
static const float pace_part = 1.0f / 8;

static float bounded(float value, float least, float most)
{
	return value < least ? least : value > most ? most : value;
}

void cpu_plan_learn(struct cpu_plan *plan, uint32_t count, uint64_t busy_ticks)
{
	const double estimate_ns = plan->cost_fixed_ns + plan->cost_row_ns * count;
	const float pace = atomic_load_explicit(&plan->pace, memory_order_relaxed);
	float measured;

	if (estimate_ns <= 0)
		return;
	measured = (float)((double)clock_ticks_to_ns(busy_ticks) / estimate_ns);
	measured = bounded(measured, pace_min, pace_max);
	if (pace > 0)
		measured = pace + pace_part * (bounded(measured, 0, outlier * pace) - pace);
	/* Two workers that store at the same time lose one of the two: it is a mean of many. */
	atomic_store_explicit(&plan->pace, measured, memory_order_relaxed);
}

/* Return the threads that the worker's steps may have at most, with itself. */
static unsigned int most_threads(const struct cpu_worker *worker)
{
	const struct cpu_executor *cpu = worker->cpu;

	return cpu_worker_is_reactor(worker)
		       ? 1 + cpu->n_helpers
		       : atomic_load_explicit(&cpu->n_active, memory_order_relaxed);
}

/* Return true if a worker has nothing to do. Those beyond a limit count, too. */
static bool has_idle_worker(const struct cpu_executor *cpu)
{
	return atomic_load_explicit(&cpu->n_looking, memory_order_relaxed) > 0 ||
	       atomic_load_explicit(&cpu->n_sleeping, memory_order_relaxed) > 0;
}

/* Return true if no other thread is expected to help with the worker's steps. */
static bool is_alone(const struct cpu_worker *worker)
{
	return most_threads(worker) == 1 ||
	       (!cpu_worker_is_reactor(worker) && !has_idle_worker(worker->cpu));
}

static double alone_max_ns(const struct cpu_step *step)
{
	return step->looks ? whole_max_ns : whole_blind_max_ns;
}

bool cpu_step_is_whole(const struct cpu_worker *worker, const struct cpu_step *step, double ns)
{
	if (cpu_worker_is_reactor(worker) && !step->looks)
		return ns <= here_chunk_ns;
	return ns <= (is_alone(worker) ? alone_max_ns(step) : share_min_ns);
}

size_t cpu_step_chunks(const struct cpu_worker *worker, const struct cpu_step *step, double ns,
		       size_t n_units)
{
	const double most = CHUNKS_PER_THREAD * (double)most_threads(worker);
	double n_chunks = ns / chunk_ns;

	if (cpu_worker_is_reactor(worker) && !step->looks)
		n_chunks = ns / here_chunk_ns;
	else if (is_alone(worker))
		n_chunks = ceil(ns / alone_max_ns(step));
	else if (n_chunks > most)
		n_chunks = ns / chunk_max_ns > most ? ns / chunk_max_ns : most;
	if (n_chunks > (double)ENDS_MAX)
		n_chunks = (double)ENDS_MAX;
	return n_chunks < (double)n_units ? (size_t)n_chunks : n_units;
}

unsigned int cpu_step_helpers(const struct cpu_worker *worker, double ns, size_t n_chunks)
{
	const unsigned int most = most_threads(worker) - 1;
	const double n = ns / helper_min_ns - 1;

	if (ns < share_min_ns || n_chunks <= 1)
		return 0;
	if (n >= (double)most || n >= (double)(n_chunks - 1))
		return most < n_chunks - 1 ? most : (unsigned int)(n_chunks - 1);
	return n > 1 ? (unsigned int)n : 1;
}

unsigned int cpu_step_wakes(struct cpu_worker *worker, double ns, unsigned int n_helpers)
{
	const struct cpu_executor *cpu = worker->cpu;
	const uint64_t now_ticks = clock_ticks();
	unsigned int n_awake;
	double n;

	if (now_ticks - worker->shared_ticks >= cpu->spin_ticks)
		worker->shared_ns = 0;
	worker->shared_ns += ns;
	n = worker->shared_ns / wake_each_ns;
	if (n < 2 || atomic_load_explicit(&cpu->n_sleeping, memory_order_relaxed) == 0)
		return 0;
	if (n < (double)n_helpers)
		n_helpers = (unsigned int)n;
	n_awake = atomic_load_explicit(&cpu->n_looking, memory_order_relaxed);
	return n_helpers > n_awake ? n_helpers - n_awake : 0;
}
