/* SPDX-License-Identifier: MIT */
/* Waking workers, and waiting for helpers; worker.c puts workers to sleep. */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cpu/internal.h"
#include "util/thread.h"

enum {
	/*
	 * Spins of a waiting leader before it sleeps: some ten microseconds of them. A helper may
	 * have lost its processor, perhaps to the leader. sched_yield() would give the processor to
	 * other programs for some milliseconds.
	 */
	TEAM_SPINS = 500,
	/* Longest sleeps: leaders also run urgent tasks, and the reactor looks at its rings */
	LEADER_WAIT_NS = 200000,
	REACTOR_WAIT_NS = 50000,
};

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

void cpu_team_wait(const struct cpu_worker *leader, struct cpu_team *team, unsigned int n_spins)
{
	const struct timespec most = {.tv_nsec = cpu_worker_is_reactor(leader) ? REACTOR_WAIT_NS
									       : LEADER_WAIT_NS};
	uint32_t state;

	if (n_spins < TEAM_SPINS) {
		thread_relax();
		return;
	}
	state = atomic_fetch_or_explicit(&team->state, CPU_TEAM_AWAITED, memory_order_relaxed) |
		CPU_TEAM_AWAITED;
	if (state & CPU_TEAM_HELPERS)
		syscall(SYS_futex, &team->state, FUTEX_WAIT_PRIVATE, state, &most, NULL, 0);
}

void cpu_team_wake(struct cpu_team *team)
{
	futex_wake(&team->state);
}
