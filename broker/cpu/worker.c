/* SPDX-License-Identifier: MIT */
/*
 * The threads of the workers
 *
 * A worker without work looks around for a while and then sleeps on a futex of its own. It says so
 * first (asleep = 1, then a fence, then a last look); whoever brings work publishes it, fences, and
 * reads the flag: one of the two sees the other.
 *
 * Signals are blocked in workers, except those that a thread causes itself: SIGBUS above all, which
 * the daemon answers when a client has punched a hole into an arena.
 */
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/internal.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/thread.h"

/* Pauses, some ten microseconds of them, before a leader offers its processor to others. */
enum { TEAM_SPINS = 500 };

static void pause_briefly(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool worker_rouse(struct cpu_worker *worker)
{
	if (atomic_load_explicit(&worker->asleep, memory_order_relaxed) == 0)
		return false;
	if (atomic_exchange_explicit(&worker->asleep, 0, memory_order_acq_rel) == 0)
		return false;
	futex_wake(&worker->asleep);
	return true;
}

void cpu_pool_wake(struct cpu_executor *cpu, unsigned int n)
{
	for (unsigned int i = 0; n > 0 && i < cpu->n_workers; i++)
		if (worker_rouse(&cpu->workers[i]))
			n--;
}

void cpu_team_wait(struct cpu_team *team)
{
	/* Pairs with the release in team_help(): what the helpers computed is visible. */
	for (unsigned int spins = 0; atomic_load_explicit(&team->state, memory_order_acquire) != 0;
	     spins++) {
		/* A helper may have lost its processor, perhaps to this very loop. */
		if (spins < TEAM_SPINS)
			pause_briefly();
		else
			sched_yield();
	}
}

static void worker_sleep(struct cpu_worker *worker)
{
	struct cpu_executor *cpu = worker->cpu;

	atomic_fetch_sub_explicit(&cpu->n_looking, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&cpu->n_sleeping, 1, memory_order_relaxed);
	atomic_store_explicit(&worker->asleep, 1, memory_order_relaxed);
	/* Pairs with the fences in cpu_pool_flush(), team_lead() and cpu_free(). */
	atomic_thread_fence(memory_order_seq_cst);
	if (!cpu_worker_sees_work(worker)) {
		/* Pairs with the exchange in worker_rouse(). */
		while (atomic_load_explicit(&worker->asleep, memory_order_acquire) == 1)
			futex_wait(&worker->asleep, 1);
	}
	atomic_store_explicit(&worker->asleep, 0, memory_order_relaxed);
	atomic_fetch_sub_explicit(&cpu->n_sleeping, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&cpu->n_looking, 1, memory_order_relaxed);
}

static void *worker_main(void *data)
{
	struct cpu_worker *worker = data;
	struct cpu_executor *cpu = worker->cpu;
	uint64_t idle_since = clock_ticks();

	cpu_flush_denormals();

	atomic_fetch_add_explicit(&cpu->n_looking, 1, memory_order_relaxed);
	while (!atomic_load_explicit(&cpu->stop, memory_order_relaxed)) {
		if (cpu_worker_work(worker)) {
			idle_since = clock_ticks();
			continue;
		}
		if (clock_ticks() - idle_since < cpu->spin_ticks) {
			pause_briefly();
			continue;
		}
		worker_sleep(worker);
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

	if (worker->processor >= 0) {
		cpu_set_t set;

		/* Only a preference: a processor may have been taken away meanwhile. */
		CPU_ZERO(&set);
		CPU_SET(worker->processor, &set);
		pthread_setaffinity_np(worker->thread, sizeof(set), &set);
	}
	return 0;
}
