#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor
 *
 * Runs plans on worker threads of its own and, where tiny, in the caller. See plan/executor.h for
 * the interface and cpu/kernels.h for the kernels.
 *
 * Results are the same bits for every number of workers, every split, and whether constants were
 * packed; and the same on AVX2 and AVX-512, except for which NaN a NaN is. Workers flush denormals;
 * whoever calls run_inline calls cpu_flush_denormals() once before, else results on denormal data
 * differ between the two.
 *
 * submit() itself sets the task's state to EXEC_QUEUED. host_bytes of a plan counts its scratch
 * (one block per worker, one for the inline caller and one for running in between itself), its
 * compiled form, and every packed constant in full, also those that it shares with other plans of
 * the same owner: so what stays after a plan is released is always covered by the plans that stay.
 */
#include <stdbool.h>
#include <stdint.h>

#include "cpu/kernels.h"

struct executor;
struct waker;

enum { CPU_MAX_WORKERS = 256 };

enum cpu_layout_wish {
	CPU_LAYOUT_WORTH, /* where it takes less time */
	CPU_LAYOUT_NONE,  /* this and the next for tests, and for comparing */
	CPU_LAYOUT_EVERY, /* wherever it is possible */
};

/* All zero: the defaults. */
struct cpu_options {
	unsigned int n_workers; /* 0: one per processor that this process may use */
	enum cpu_simd simd;     /* the highest level to use; lower where the processor has less */
	/*
	 * Else workers are pinned if there is a processor for each, while all of them are used.
	 */
	bool no_pin;
	/* Which nodes are computed with their pictures' channels last: see layout.c. */
	enum cpu_layout_wish layout;
	/*
	 * How long a worker without work looks for some before it sleeps, in nanoseconds.
	 * 0: 20 us, or nothing where there are no more than two processors, since there spinning
	 * takes time from whoever would bring the work.
	 */
	uint32_t spin_ns;
	/* Tasks submitted and not yet reaped, a power of two; 0: 4096. More are EXECUTOR_E_BUSY. */
	uint32_t max_tasks;
};

/*
 * Starts the workers. @waker is borrowed and rung after a task can be reaped. The caller sets
 * executor->index. Return: 0; -EINVAL for options out of range; -ENOMEM, -EAGAIN (threads).
 */
int cpu_executor_new(const struct cpu_options *options, struct waker *waker, struct executor **ret);

/*
 * Uses no more than @n_workers of the workers, 1 at least, and all if there are fewer; the others
 * sleep once they are done with what they are at, and leave nothing queued behind. Takes effect
 * within one chunk of a task. @is_contended: workers without work sleep at once instead of looking
 * for some.
 *
 * Pinned workers may use all processors for as long as not all of them are used: the one that stays
 * must not take turns with others on its processor while the next has nothing to do.
 *
 * Reactor; no system call unless workers are to come back, or the first are not to be used.
 */
void cpu_executor_limit(struct executor *executor, unsigned int n_workers, bool is_contended);
