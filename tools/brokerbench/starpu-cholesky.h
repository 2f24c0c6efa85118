#pragma once
/* SPDX-License-Identifier: MIT */
/* Tile Cholesky by StarPU with our kernels */
#include <stdint.h>

struct starpu_cholesky;

/*
 * Start StarPU with @n_workers workers and the scheduler dmdas for matrices of @n x @n tiles of
 * @side x @side floats. @tiles: their 2 * tiles_n_stored() buffers, borrowed.
 * Return: 0; STARPU_TASKS_E_ABSENT with a reason that lives as long as the program; a negative
 * errno.
 */
int starpu_cholesky_new(unsigned int n_workers, uint32_t n, uint32_t side, float *tiles,
			struct starpu_cholesky **ret, const char **ret_reason);
/* Return: NULL. */
struct starpu_cholesky *starpu_cholesky_free(struct starpu_cholesky *cholesky);

/* Let the workers run, so that they spin, or pause them. */
void starpu_cholesky_resume(struct starpu_cholesky *cholesky);
void starpu_cholesky_pause(struct starpu_cholesky *cholesky);

/*
 * Factor the matrix, while the workers run.
 * Return: 0; a negative errno.
 */
int starpu_cholesky_run(struct starpu_cholesky *cholesky);
