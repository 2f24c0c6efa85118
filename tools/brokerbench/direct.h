#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Something computed in the measuring thread: one side of a row
 */
#include <stdint.h>

#include "bench.h"
#include "samples.h"

/* Computes once. Return: 0; negative errno. */
typedef int(direct_fn)(void *data);

struct direct {
	const struct bench_env *env;
	int cpu; /* where to; below 0: anywhere */
	direct_fn *run;
	void *data;
};

/* A bench_round_fn of a struct direct: microseconds per call. */
int direct_round(void *data, uint64_t budget_ns, struct samples *samples);
