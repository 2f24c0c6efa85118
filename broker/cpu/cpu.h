#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor
 *
 * Runs plans on its own worker threads, and tiny tasks in the caller. plan/executor.h describes the
 * interface, cpu/kernels.h the kernels.
 *
 * Results are bit-identical for every number of workers, every split, and with or without packed
 * constants. AVX2 and AVX-512 give the same bits, except for the payload of a NaN. Workers flush
 * denormals. The caller of run_inline must call cpu_flush_denormals() once before; otherwise
 * results on denormal data differ between inline and worker tasks.
 *
 * submit() itself sets the task's state to EXEC_QUEUED. host_bytes of a plan counts its scratch,
 * its compiled form, and every packed constant in full. Scratch is one block per worker, one for
 * the inline caller, one for an urgent task in between, and up to four for stopped tasks. Packed
 * constants that plans of the same owner share count for each of these plans. So the packed
 * constants that remain after a plan's release are always covered by the remaining plans.
 */
#include <stdbool.h>
#include <stdint.h>

#include "cpu/kernels.h"

struct executor;
struct waker;

enum { CPU_MAX_WORKERS = 256 };

enum cpu_layout_wish {
	CPU_LAYOUT_WORTH, /* where it takes less time */
	CPU_LAYOUT_NONE,  /* never; this and the next are for tests and comparisons */
	CPU_LAYOUT_EVERY, /* wherever possible */
};

/* All zero: the defaults. */
struct cpu_options {
	unsigned int n_workers; /* 0: one per processor that this process may use */
	enum cpu_simd simd;     /* the highest level to use; limited to the processor's */
	/*
	 * Do not pin workers. Without this flag workers are pinned while all of them are used, if
	 * there is a processor for each.
	 */
	bool no_pin;
	/* nodes whose pictures have their channels last (layout.c) */
	enum cpu_layout_wish layout;
	/*
	 * Time in nanoseconds for which a worker without work spins before it sleeps. 0: 20 us; or
	 * no spinning on at most two processors, where spinning takes time from the threads that
	 * submit work.
	 */
	uint32_t spin_ns;
	/*
	 * Maximum of tasks submitted and not yet reaped, a power of two; 0: 4096. Beyond:
	 * EXECUTOR_E_BUSY.
	 */
	uint32_t max_tasks;
};

/*
 * Start the workers. @waker is borrowed, and rung after a task can be reaped. The caller sets
 * executor->index.
 * Return: 0; -EINVAL for options out of range; -ENOMEM, -EAGAIN (threads).
 */
int cpu_executor_new(const struct cpu_options *options, struct waker *waker, struct executor **ret);

/*
 * Limit the executor to the first @n_workers workers (at least 1; at most all of them). The other
 * workers finish their current task, leave no queued task behind, and sleep. The limit takes effect
 * within one chunk of a task. With @is_contended, workers without work sleep at once instead of
 * spinning.
 *
 * While some workers are unused, the others may use all processors. A remaining worker must not
 * share its processor with other threads while another processor idles.
 *
 * Reactor. Makes no system call unless workers are resumed, or the first workers are limited.
 */
void cpu_executor_limit(struct executor *executor, unsigned int n_workers, bool is_contended);
