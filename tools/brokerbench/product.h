#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A product of matrices through the broker, beside its kernel called directly
 *
 * The measuring thread calls all functions here.
 */
#include <stdbool.h>
#include <stdint.h>

#include "bench.h"
#include "direct.h"
#include "kernel-matmul.h"
#include "plans.h"
#include "target.h"

/* C = A * B of n x n floats; B is a constant, packed beforehand on both sides. */
struct product {
	struct plans_matmul matmul;
	struct kernel_matmul *kernel;
	struct direct direct; /* the baseline: computes with the kernel */
};

/*
 * Prepare a product. @n_threads threads compute the baseline, including the caller.
 * Return: 0; a negative errno, which has been reported.
 */
int product_init(struct product *product, struct bench_env *env, const struct target *target,
		 uint32_t n, unsigned int n_threads);
void product_deinit(struct product *product);

/* Return the task of a product, with @depth tasks in flight. */
struct target_task product_task(const struct target *target, const struct plans_matmul *matmul,
				unsigned int depth);

/* direct_fn of a struct kernel_matmul, and of a struct target_task */
int product_run_kernel(void *data);
int product_run_target(void *data);

/*
 * Run both sides once and compare their results; the baseline writes to the plan's memory, too.
 * Return: 0; a negative errno, which has been reported.
 */
int product_check(struct bench_env *env, const struct plans_matmul *matmul, direct_fn *run,
		  void *data, const struct direct *baseline);

/* A product through the broker: the measured side */
struct product_through {
	const struct bench_env *env;
	int cpu;    /* processor of the waiting thread; below 0: any */
	bool spins; /* polls for completions instead of waiting */
	struct target_task task;
};

/* A bench_round_fn with a struct product_through as data; samples are microseconds. */
int product_round(void *data, uint64_t budget_ns, struct samples *samples);
