#pragma once
/* SPDX-License-Identifier: MIT */
/* Calling CPU kernels directly: guarded memory, every split of the units, every SIMD level. */
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernels.h"
#include "reference/reference.h"

/* A number of [from, to]; the same sequence in every run. */
size_t pick(size_t from, size_t to);

/*
 * Memory that ends where a page begins that may not be touched: reading one element too many is a
 * fault. Freed with guarded_free().
 */
struct guarded {
	float *data;
	void *map;
	size_t map_bytes;
};

struct guarded guarded_new(size_t n);
void guarded_free(struct guarded *g);

struct call;
/* Has a kernel compute units [begin, end) of @call into @y. */
typedef void call_run_fn(const struct call *call, size_t begin, size_t end, float *y);

/* A kernel and what it is called with. */
struct call {
	const struct cpu_kernels *kernels;
	call_run_fn *run;
	const void *args;
	size_t units;
	size_t n_out; /* in floats */
	void *workspace;
};

/*
 * Run the kernels of that name. Where a normalisation's arguments ask for statistics, run_norm()
 * has them written behind its rows, so that they are compared with these; the rows are float32
 * then.
 */
call_run_fn run_reduce, run_arg, run_scan, run_softmax, run_lp_norm, run_norm, run_batch_norm;

/* The whole, and three random ways to cut it, in random order of the pieces: the same bits. */
void check_splits(const struct call *call);

void for_each_level(void (*check)(const struct cpu_kernels *kernels, void *workspace));

/*
 * Runs @call, whose kernels are not set, at every level: against @want (floats with these
 * tolerances, or, where @rtol is negative, bits), every split, and the levels that fuse against
 * each other.
 */
void check_levels(const char *what, struct call call, const void *want, double rtol, double atol);
