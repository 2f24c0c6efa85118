/* SPDX-License-Identifier: MIT */
/*
 * Worker threads: sleeping, limits, pinning
 *
 * A worker without work spins for a while, as long as work keeps coming soon, and then sleeps on a
 * futex of its own; cpu_worker_rouse() wakes it. Before it sleeps, it sets asleep = 1, fences, and
 * polls the queues once more. A producer of work publishes the work, fences, and reads the flag. So
 * either the worker sees the work or the producer sees the flag.
 *
 * Limited workers, those from n_active on, sleep even if there is work. Such a worker may have been
 * woken for work, or counted on because it was still polling. So once its sleep is visible, it
 * polls once more and wakes a worker in use if there is work.
 *
 * Workers block all signals except those that a thread raises itself, above all SIGBUS, which the
 * daemon handles when a client has punched a hole into an arena.
 */
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/internal.h"
#include "util/crash.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/thread.h"

/* Work that came within so many times the longest spin may come within it the next time. */
enum { SOON = 4 };

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

/*
 * Pin the worker, or let it use all processors. Failure is ignored: the processor may have been
 * taken away meanwhile.
 */
static void worker_pin(const struct cpu_worker *worker, bool is_unpinned)
{
	cpu_set_t set;

	if (worker->processor < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(worker->processor, &set);
	pthread_setaffinity_np(worker->thread, sizeof(set),
			       is_unpinned ? &worker->cpu->processors : &set);
}

/*
 * Unpin all workers while only some of them are used: the scheduler knows best which processors
 * have time.
 */
static void set_unpinned(struct cpu_executor *cpu, bool is_unpinned)
{
	if (is_unpinned == cpu->is_unpinned)
		return;
	cpu->is_unpinned = is_unpinned;
	for (unsigned int i = 0; i < cpu->n_workers; i++)
		worker_pin(&cpu->workers[i], is_unpinned);
}

void cpu_executor_limit(struct executor *executor, unsigned int n_workers, bool is_contended)
{
	struct cpu_executor *cpu = cpu_executor_from(executor);
	const unsigned int before = cpu->n_in_use;

	if (n_workers < 1)
		n_workers = 1;
	if (n_workers > cpu->n_workers)
		n_workers = cpu->n_workers;
	atomic_store_explicit(&cpu->is_contended, is_contended, memory_order_relaxed);
	if (n_workers == before)
		return;
	cpu->n_in_use = n_workers;
	set_unpinned(cpu, n_workers < cpu->n_workers);
	if (cpu->next_worker >= n_workers)
		cpu->next_worker = 0;
	atomic_store_explicit(&cpu->n_active, n_workers, memory_order_relaxed);
	/* Pairs with the fence in worker_sleep(). */
	atomic_thread_fence(memory_order_seq_cst);
	/* Without work, the workers are left asleep; the next producer of work wakes them. */
	if (n_workers > before && cpu_worker_sees_work(&cpu->workers[0]))
		for (unsigned int i = before; i < n_workers; i++)
			cpu_worker_rouse(&cpu->workers[i]);
}

/*
 * Poll for work a last time, once the worker is visibly asleep. A limited worker does not do the
 * work itself, but wakes another worker for it. Return: true if the worker may sleep.
 */
static bool worker_may_sleep(struct cpu_worker *worker)
{
	struct cpu_executor *cpu = worker->cpu;

	if (!cpu_worker_is_limited(worker))
		return !cpu_worker_sees_work(worker);
	if (atomic_load_explicit(&cpu->stop, memory_order_relaxed))
		return false;
	if (cpu_worker_sees_work(worker)) {
		/* Pairs with the fence in worker_sleep() of workers that are about to sleep. */
		atomic_thread_fence(memory_order_seq_cst);
		cpu_pool_wake(cpu, 1);
	}
	return true;
}

static void worker_sleep(struct cpu_worker *worker)
{
	struct cpu_executor *cpu = worker->cpu;

	atomic_fetch_sub_explicit(&cpu->n_looking, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&cpu->n_sleeping, 1, memory_order_relaxed);
	atomic_store_explicit(&worker->asleep, 1, memory_order_relaxed);
	/* Pairs with the fences in cpu_pool_flush(), team_lead(), cpu_executor_limit(), cpu_free().
	 */
	atomic_thread_fence(memory_order_seq_cst);
	if (worker_may_sleep(worker)) {
		/* Pairs with the exchange in cpu_worker_rouse(). */
		while (atomic_load_explicit(&worker->asleep, memory_order_acquire) == 1)
			futex_wait(&worker->asleep, 1);
	}
	atomic_store_explicit(&worker->asleep, 0, memory_order_relaxed);
	atomic_fetch_sub_explicit(&cpu->n_sleeping, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&cpu->n_looking, 1, memory_order_relaxed);
}

uint64_t cpu_worker_next_spin(const struct cpu_executor *cpu, uint64_t spin_ticks,
			      uint64_t idle_ticks)
{
	return idle_ticks < SOON * cpu->spin_ticks ? cpu->spin_ticks : spin_ticks / 2;
}

static void *worker_main(void *data)
{
	struct cpu_worker *worker = data;
	struct cpu_executor *cpu = worker->cpu;
	uint64_t idle_since = clock_ticks(), spin_ticks = cpu->spin_ticks;

	crash_thread.is_own = true;
	cpu_flush_denormals();

	atomic_fetch_add_explicit(&cpu->n_looking, 1, memory_order_relaxed);
	while (!atomic_load_explicit(&cpu->stop, memory_order_relaxed)) {
		/* No other worker can run the task that this worker has postponed (put_off). */
		const bool is_limited = cpu_worker_is_limited(worker) && !worker->put_off;

		if (!is_limited && cpu_worker_work(worker)) {
			idle_since = clock_ticks();
			continue;
		}
		if (!is_limited &&
		    !atomic_load_explicit(&cpu->is_contended, memory_order_relaxed) &&
		    clock_ticks() - idle_since < spin_ticks) {
			thread_relax();
			continue;
		}
		worker_sleep(worker);
		spin_ticks = cpu_worker_next_spin(cpu, spin_ticks, clock_ticks() - idle_since);
		idle_since = clock_ticks();
	}
	atomic_fetch_sub_explicit(&cpu->n_looking, 1, memory_order_relaxed);
	return NULL;
}

int cpu_worker_start(struct cpu_worker *worker)
{
	char name[THREAD_NAME_BYTES];
	int r;

	snprintf(name, sizeof(name), "rb-cpu-%u", worker->index);
	r = thread_start(&worker->thread, name, worker_main, worker);
	if (r)
		return error_fold(r);
	worker->started = true;
	worker_pin(worker, false);
	return 0;
}
