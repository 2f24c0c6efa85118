#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A crew: threads that compute parts of something together, the caller among them
 *
 * What a bench calls kernels with where there is no broker.
 */
#include <stddef.h>

struct crew;

/* Computes units [begin, end); CPU_WORKSPACE_BYTES are the calling thread's own. */
typedef void crew_fn(void *data, size_t begin, size_t end, void *workspace);

/*
 * @n_threads compute, the caller of crew_run() among them. Of the processors that the calling
 * thread may use now the first is left to the caller of crew_run(), who pins itself there: beside a
 * helper on the same one it would compute for both. Return: 0; negative errno.
 */
int crew_new(unsigned int n_threads, struct crew **ret);

/* Return: NULL. */
struct crew *crew_free(struct crew *crew);

/* Has units [0, @n_units) computed, in several parts of about the same size per thread. */
void crew_run(struct crew *crew, crew_fn *fn, void *data, size_t n_units);
