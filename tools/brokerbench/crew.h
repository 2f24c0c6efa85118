#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A crew: threads that compute parts of a work together, including the caller
 *
 * Benches use a crew to call kernels without a broker.
 */
#include <stddef.h>

struct crew;

/* Compute units [begin, end). The workspace is CPU_WORKSPACE_BYTES of the calling thread. */
typedef void crew_fn(void *data, size_t begin, size_t end, void *workspace);

/*
 * Make a crew of @n_threads, including the caller of crew_run(). The first processor that the
 * calling thread may use now is left to the caller of crew_run(), which pins itself to it: sharing
 * a processor with a helper, the caller would compute for both.
 * Return: 0; a negative errno.
 */
int crew_new(unsigned int n_threads, struct crew **ret);

/* Return: NULL. */
struct crew *crew_free(struct crew *crew);

/* Compute units [0, @n_units), in several parts of similar size per thread. */
void crew_run(struct crew *crew, crew_fn *fn, void *data, size_t n_units);

/* Allocate memory aligned as kernels need it. Return: to be freed with free(); NULL. */
void *crew_memory(size_t bytes);
