/* SPDX-License-Identifier: MIT */
/*
 * A crew
 *
 * A generation counter hands work to the helpers. They take parts of it from its end, while the
 * caller takes parts from its beginning, until none is left. A preempted thread therefore delays
 * the crew by at most one part. A helper spins briefly between two works and then sleeps on a
 * futex, because the other side's rounds need its processor. Each helper has a processor of its
 * own, like the broker's workers; otherwise the caller might be woken on a helper's processor.
 */
#include "crew.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/kernels.h"
#include "shm/number.h"
#include "util/clock.h"
#include "util/ends.h"
#include "util/thread.h"

#define MAX_THREADS 64u

/* Parts of a work per thread, if the work is large enough. */
#define PARTS_PER_THREAD 4u

#define HELPER_SPIN_NS   50000u

struct crew {
	crew_fn *fn;
	void *data;
	size_t n_units, n_parts;
	unsigned int n_threads;
	unsigned int n_helpers; /* helpers started */
	pthread_t helpers[MAX_THREADS];
	void *workspaces[MAX_THREADS];
	_Atomic uint32_t next_helper;

	/* number of the current work, or GENERATION_END */
	_Alignas(128) _Atomic uint32_t generation;
	_Atomic uint32_t n_asleep;
	_Alignas(128) struct ends parts;
	_Alignas(128) _Atomic uint32_t n_running; /* helpers that have not finished */
};

#define GENERATION_END UINT32_MAX

static void compute(struct crew *crew, bool is_helper, void *workspace)
{
	size_t part;

	while (ends_take(&crew->parts, crew->n_parts, is_helper, &part))
		crew->fn(crew->data, crew->n_units * part / crew->n_parts,
			 crew->n_units * (part + 1) / crew->n_parts, workspace);
}

/* Wait for a generation other than @seen. Pairs with the release in set_generation(). */
static uint32_t wait_generation(struct crew *crew, uint32_t seen)
{
	uint64_t start = clock_ticks(), spin = clock_ns_to_ticks(HELPER_SPIN_NS);
	uint32_t generation;

	for (;;) {
		generation = atomic_load_explicit(&crew->generation, memory_order_acquire);
		if (generation != seen)
			return generation;
		if (clock_ticks() - start <= spin) {
			thread_relax();
			continue;
		}
		/* Either set_generation() sees n_asleep, or this thread sees the new generation. */
		atomic_fetch_add(&crew->n_asleep, 1);
		if (atomic_load(&crew->generation) == seen)
			syscall(SYS_futex, &crew->generation, FUTEX_WAIT_PRIVATE, seen, NULL, NULL,
				0);
		atomic_fetch_sub(&crew->n_asleep, 1);
	}
}

static void *helper_main(void *data)
{
	struct crew *crew = data;
	uint32_t index = atomic_fetch_add(&crew->next_helper, 1);
	uint32_t generation = 0;

	for (;;) {
		generation = wait_generation(crew, generation);
		if (generation == GENERATION_END)
			return NULL;
		compute(crew, true, crew->workspaces[index + 1]);
		/* Pairs with the acquire in crew_run(): the result is visible to the caller. */
		atomic_fetch_sub_explicit(&crew->n_running, 1, memory_order_release);
	}
}

static void set_generation(struct crew *crew, uint32_t generation)
{
	atomic_store(&crew->generation, generation);
	if (atomic_load(&crew->n_asleep) > 0)
		syscall(SYS_futex, &crew->generation, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void crew_run(struct crew *crew, crew_fn *fn, void *data, size_t n_units)
{
	const size_t most = (size_t)crew->n_threads * PARTS_PER_THREAD;
	uint32_t generation;

	if (crew->n_helpers == 0) {
		fn(data, 0, n_units, crew->workspaces[0]);
		return;
	}
	crew->fn = fn;
	crew->data = data;
	crew->n_units = n_units;
	crew->n_parts = n_units < most ? n_units : most;
	ends_reset(&crew->parts, 0, 0);
	atomic_store_explicit(&crew->n_running, crew->n_helpers, memory_order_relaxed);
	generation = atomic_load_explicit(&crew->generation, memory_order_relaxed) + 1;
	set_generation(crew, generation == GENERATION_END ? 1 : generation);
	compute(crew, false, crew->workspaces[0]);
	while (atomic_load_explicit(&crew->n_running, memory_order_acquire) > 0)
		thread_relax();
}

/* Pin helper @index to one of the usable processors except the first, in turn. */
static void pin(pthread_t thread, unsigned int index)
{
	cpu_set_t processors, one;
	unsigned int skip;

	if (sched_getaffinity(0, sizeof(processors), &processors) < 0 || CPU_COUNT(&processors) < 2)
		return;
	skip = 1 + index % ((unsigned int)CPU_COUNT(&processors) - 1);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &processors) && skip-- == 0)
			CPU_SET(i, &one);
	pthread_setaffinity_np(thread, sizeof(one), &one);
}

struct crew *crew_free(struct crew *crew)
{
	if (!crew)
		return NULL;
	if (crew->n_helpers > 0)
		set_generation(crew, GENERATION_END);
	for (unsigned int i = 0; i < crew->n_helpers; i++)
		pthread_join(crew->helpers[i], NULL);
	for (unsigned int i = 0; i < crew->n_threads; i++)
		free(crew->workspaces[i]);
	free(crew);
	return NULL;
}

void *crew_memory(size_t bytes)
{
	return aligned_alloc(CPU_WORKSPACE_ALIGN, round_up(bytes, CPU_WORKSPACE_ALIGN));
}

int crew_new(unsigned int n_threads, struct crew **ret)
{
	struct crew *crew;
	int r;

	if (n_threads < 1 || n_threads > MAX_THREADS)
		return -EINVAL;
	crew = aligned_alloc(128, round_up(sizeof(*crew), 128));
	if (!crew)
		return -ENOMEM;
	memset(crew, 0, sizeof(*crew));
	crew->n_threads = n_threads;
	for (unsigned int i = 0; i < n_threads; i++) {
		crew->workspaces[i] = crew_memory(CPU_WORKSPACE_BYTES);
		if (!crew->workspaces[i]) {
			crew_free(crew);
			return -ENOMEM;
		}
		memset(crew->workspaces[i], 0, CPU_WORKSPACE_BYTES);
	}
	for (; crew->n_helpers + 1 < n_threads; crew->n_helpers++) {
		r = -pthread_create(&crew->helpers[crew->n_helpers], NULL, helper_main, crew);
		if (r) {
			crew_free(crew);
			return r;
		}
		pin(crew->helpers[crew->n_helpers], crew->n_helpers);
	}
	*ret = crew;
	return 0;
}
