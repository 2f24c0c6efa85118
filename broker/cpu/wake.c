/* SPDX-License-Identifier: MIT */
/* Waking workers, and waiting for helpers; worker.c puts workers to sleep. */
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/internal.h"
#include "util/thread.h"

/* Spins, some ten microseconds of them, before a waiting leader yields its processor. */
enum { TEAM_SPINS = 500 };

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

bool cpu_worker_rouse(struct cpu_worker *worker)
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
	const unsigned int n_active = atomic_load_explicit(&cpu->n_active, memory_order_relaxed);

	for (unsigned int i = 0; n > 0 && i < n_active; i++)
		if (cpu_queue_length(&cpu->workers[i].queue) > 0 &&
		    cpu_worker_rouse(&cpu->workers[i]))
			n--;
	for (unsigned int i = 0; n > 0 && i < n_active; i++)
		if (cpu_worker_rouse(&cpu->workers[i]))
			n--;
}

void cpu_pool_wake_helpers(const struct cpu_worker *leader, const struct cpu_team *team,
			   unsigned int n)
{
	struct cpu_executor *cpu = leader->cpu;
	const unsigned int n_active = atomic_load_explicit(&cpu->n_active, memory_order_relaxed);

	for (unsigned int i = 0; n > 0 && i < n_active; i++)
		if (cpu_worker_may_help(&cpu->workers[i], leader, team) &&
		    cpu_worker_rouse(&cpu->workers[i]))
			n--;
}

void cpu_team_wait(const struct cpu_executor *cpu, unsigned int n_spins)
{
	/* A helper may have lost its processor, perhaps to this very loop. */
	if (n_spins < TEAM_SPINS && !atomic_load_explicit(&cpu->is_contended, memory_order_relaxed))
		thread_relax();
	else
		sched_yield();
}
