#pragma once
/* SPDX-License-Identifier: MIT */
/* A computation in the measuring thread: one side of a row */
#include <stdint.h>

#include "bench.h"
#include "samples.h"

struct cost;

/*
 * Compute once.
 * Return: 0; a negative errno.
 */
typedef int(direct_fn)(void *data);

struct direct {
	const struct bench_env *env;
	int cpu; /* processor to pin to; below 0: any */
	direct_fn *run;
	void *data;
	struct cost *cost; /* counts the measured calls; NULL: not counted */
};

/* A bench_round_fn with a struct direct as data; samples are microseconds per call. */
int direct_round(void *data, uint64_t budget_ns, struct samples *samples);
