#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Tile Cholesky: the tasks that factor a matrix of tiles
 *
 * The lower triangle of tiles is stored, each tile in two buffers in turn: a task that reads
 * version v of its tile writes version v + 1, so that every task has other inputs than outputs.
 * Tile (i, j) has version j + 1 when it is factored. The tasks are in an order in which each
 * follows those that it depends on, the right-looking one.
 */
#include <stddef.h>
#include <stdint.h>

enum tile_kind {
	TILE_FACTOR,      /* (k, k), by Cholesky */
	TILE_SOLVE,       /* (i, k), by TriangularSolve with (k, k) from the right, transposed */
	TILE_UPDATE_SELF, /* (i, i), minus (i, k) times itself transposed */
	TILE_UPDATE,      /* (i, j), minus (i, k) times (j, k) transposed */
	TILE_KINDS,
};

struct tile_task {
	enum tile_kind kind;
	uint32_t i, j, k; /* the task's tile is (i, j), in step k */
};

static inline uint32_t tiles_n_tasks(uint32_t n)
{
	return n + n * (n - 1) / 2 + (n - 1) * n * (n + 1) / 6;
}

/* Write tiles_n_tasks() tasks for @n x @n tiles into @to. */
static inline void tiles_tasks(uint32_t n, struct tile_task *to)
{
	for (uint32_t k = 0; k < n; k++) {
		*to++ = (struct tile_task){TILE_FACTOR, k, k, k};
		for (uint32_t i = k + 1; i < n; i++)
			*to++ = (struct tile_task){TILE_SOLVE, i, k, k};
		for (uint32_t i = k + 1; i < n; i++)
			for (uint32_t j = k + 1; j <= i; j++)
				*to++ = (struct tile_task){i == j ? TILE_UPDATE_SELF : TILE_UPDATE,
							   i, j, k};
	}
}

static inline uint32_t tiles_n_stored(uint32_t n)
{
	return n * (n + 1) / 2;
}

static inline uint32_t tiles_number(uint32_t i, uint32_t j)
{
	return i * (i + 1) / 2 + j;
}

/* Return the number of the buffer with a version of a tile, of 2 * tiles_n_stored(). */
static inline uint32_t tiles_buffer(uint32_t i, uint32_t j, uint32_t version)
{
	return 2 * tiles_number(i, j) + version % 2;
}

/*
 * Compute a task's buffers, in the order of its operator's inputs, and then of its output.
 * Return: their number.
 */
enum { TILE_BUFFERS = 4 };
static inline unsigned int tiles_buffers(const struct tile_task *task, uint32_t ret[TILE_BUFFERS])
{
	const uint32_t i = task->i, j = task->j, k = task->k;
	unsigned int n = 0;

	if (task->kind == TILE_SOLVE)
		ret[n++] = tiles_buffer(k, k, k + 1);
	if (task->kind == TILE_UPDATE || task->kind == TILE_UPDATE_SELF)
		ret[n++] = tiles_buffer(i, k, k + 1);
	if (task->kind == TILE_UPDATE)
		ret[n++] = tiles_buffer(j, k, k + 1);
	ret[n++] = tiles_buffer(i, j, k);
	ret[n++] = tiles_buffer(i, j, k + 1);
	return n;
}
