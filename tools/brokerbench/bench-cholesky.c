/* SPDX-License-Identifier: MIT */
/*
 * cholesky: a matrix of 16 x 16 tiles, factored by tasks that wait for each other in the ring
 *
 * All tasks are written at once, each with the tasks that wrote its inputs. The baseline is StarPU
 * with as many workers, its scheduler dmdas and the same kernels. A sample is one factorisation,
 * from the first entry to the last completion. Both sides' results must have the same bits, and
 * their product must be the matrix.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "plans.h"
#include "starpu-cholesky.h"
#include "starpu-tasks.h"
#include "target.h"
#include "tiles.h"
#include "util/checked.h"
#include "util/clock.h"

_Static_assert((int)TILE_BUFFERS <= RBK_REF_ALIGN / 8, "a table holds a task's references");

enum {
	N = 16, /* tiles along a side */
	ROUND_SAMPLES = 256,
	PUBLISHED = 16, /* entries at a time */
	CHECKED_ROWS = 64,
	TABLE_WORDS = RBK_REF_ALIGN / sizeof(uint64_t), /* a reference to a table is aligned */
};

struct matrix {
	struct bench_env *env;
	struct rbk_ring *ring;
	struct starpu_cholesky *starpu;
	struct rbk_arena *arena;
	struct rbk_plan *plans[TILE_KINDS];
	struct tile_task *tasks;
	float *tiles;            /* buffers, as tiles_buffer() numbers them */
	uint64_t *tables;        /* references of each task, TABLE_WORDS apart */
	float *given, *expected; /* tiles, as tiles_number() numbers them */
	uint32_t n_tasks, side;
};

#define MATRIX_INIT \
	{           \
		0   \
	}

static size_t tile_floats(const struct matrix *matrix)
{
	return (size_t)matrix->side * matrix->side;
}

/* ---- Plans ---- */

static int plan_new(struct matrix *matrix, struct rbk *rbk, enum tile_kind kind,
		    struct rbk_error *error)
{
	const uint32_t dims[] = {matrix->side, matrix->side};
	struct rbk_builder *b = rbk_builder_new("cholesky");
	unsigned int in[3], out, node;
	int r;

	if (!b)
		return -ENOMEM;
	in[0] = rbk_builder_input(b, "a", RBK_DTYPE_F32, 2, dims);
	switch (kind) {
	case TILE_FACTOR:
		out = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, dims);
		rbk_builder_node(b, "Cholesky", "", in, 1, &out, 1);
		break;
	case TILE_SOLVE:
		in[1] = rbk_builder_input(b, "b", RBK_DTYPE_F32, 2, dims);
		out = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, dims);
		node = rbk_builder_node(b, "TriangularSolve", "", in, 2, &out, 1);
		rbk_builder_attr_int(b, node, "left", 0);
		rbk_builder_attr_int(b, node, "transA", 1);
		break;
	default:
		in[1] = in[0];
		if (kind == TILE_UPDATE)
			in[1] = rbk_builder_input(b, "b", RBK_DTYPE_F32, 2, dims);
		in[2] = rbk_builder_input(b, "c", RBK_DTYPE_F32, 2, dims);
		out = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, dims);
		node = rbk_builder_node(b, "Gemm", "", in, 3, &out, 1);
		rbk_builder_attr_int(b, node, "transB", 1);
		rbk_builder_attr_float(b, node, "alpha", -1);
	}
	r = rbk_plan_new(rbk, b, 1, &matrix->plans[kind], error);
	rbk_builder_free(b);
	return r;
}

/* ---- Matrices ---- */

/* Fill the lower triangle of a symmetric matrix that is positive definite. */
static void fill(struct matrix *matrix)
{
	const size_t floats = tile_floats(matrix);
	float *to = matrix->given;

	plans_fill(to, tiles_n_stored(N) * floats, 1);
	for (uint32_t i = 0; i < N; i++)
		for (uint32_t k = 0; k < matrix->side; k++)
			to[tiles_number(i, i) * floats + k * (matrix->side + 1)] =
				(float)(N * matrix->side);
}

/* Give every tile its first version. */
static void restore(struct matrix *matrix)
{
	const size_t floats = tile_floats(matrix);

	for (uint32_t i = 0; i < N; i++)
		for (uint32_t j = 0; j <= i; j++)
			memcpy(matrix->tiles + tiles_buffer(i, j, 0) * floats,
			       matrix->given + tiles_number(i, j) * floats,
			       floats * sizeof(*matrix->tiles));
}

/* Copy the factor's tiles into @to. */
static void collect(const struct matrix *matrix, float *to)
{
	const size_t floats = tile_floats(matrix);

	for (uint32_t i = 0; i < N; i++)
		for (uint32_t j = 0; j <= i; j++)
			memcpy(to + tiles_number(i, j) * floats,
			       matrix->tiles + tiles_buffer(i, j, j + 1) * floats,
			       floats * sizeof(*to));
}

static float element(const struct matrix *matrix, const float *tiles, uint32_t i, uint32_t j)
{
	const uint32_t side = matrix->side;
	const size_t tile = tiles_number(i / side, j / side);

	return tiles[tile * tile_floats(matrix) + i % side * side + j % side];
}

/* Return the largest difference of some elements of the factor's product to the matrix. */
static double residual(const struct matrix *matrix, const float *factor)
{
	const uint32_t n = N * matrix->side;
	double most = 0;

	for (uint32_t c = 0; c < CHECKED_ROWS; c++) {
		const uint32_t i = n - 1 - c * 7, j = c % 2 ? i / 2 : i - c % 5;
		double sum = 0;

		for (uint32_t k = 0; k <= j; k++)
			sum += (double)element(matrix, factor, i, k) *
			       (double)element(matrix, factor, j, k);
		most = fmax(most, fabs(sum - (double)element(matrix, matrix->given, i, j)));
	}
	return most;
}

/* ---- Our side ---- */

static void prepare_entry(struct matrix *matrix, const struct tile_task *task, unsigned int number,
			  struct rbk_sqe *sqe)
{
	const uint64_t *refs = matrix->tables + (size_t)number * TABLE_WORDS;
	const uint32_t plan_id = rbk_plan_id(matrix->plans[task->kind]);

	if (task->kind == TILE_UPDATE)
		rbk_prep_run_table(sqe, plan_id, 1, rbk_ref(matrix->arena, refs), TILE_BUFFERS);
	else
		rbk_prep_run(sqe, plan_id, 1, refs, task->kind == TILE_FACTOR ? 2 : 3);
}

/* Let an entry wait for those that wrote its inputs in this factorisation. */
static int set_after(const struct matrix *matrix, const struct tile_task *task,
		     const uint32_t *writers, struct rbk_sqe *sqe)
{
	const uint32_t i = task->i, j = task->j, k = task->k;
	uint32_t after[3];
	unsigned int n = 0;

	if (task->kind == TILE_SOLVE)
		after[n++] = writers[tiles_number(k, k)];
	if (task->kind == TILE_UPDATE || task->kind == TILE_UPDATE_SELF)
		after[n++] = writers[tiles_number(i, k)];
	if (task->kind == TILE_UPDATE)
		after[n++] = writers[tiles_number(j, k)];
	if (k > 0)
		after[n++] = writers[tiles_number(i, j)];
	return n > 0 ? rbk_sqe_set_after(matrix->ring, sqe, after, n) : 0;
}

/* Run all tasks. Return: 0; a negative errno of the library or of a completion. */
static int factor(struct matrix *matrix)
{
	uint32_t writers[N * (N + 1) / 2];
	const struct rbk_cqe *cqe;
	int r;

	for (uint32_t number = 0; number < matrix->n_tasks; number++) {
		const struct tile_task *task = &matrix->tasks[number];
		struct rbk_sqe *sqe = rbk_get_sqe(matrix->ring);

		if (!sqe)
			return -ENOBUFS;
		prepare_entry(matrix, task, number, sqe);
		r = set_after(matrix, task, writers, sqe);
		if (r)
			return r;
		writers[tiles_number(task->i, task->j)] = rbk_sqe_index(matrix->ring, sqe);
		if (number % PUBLISHED == PUBLISHED - 1 || number + 1 == matrix->n_tasks) {
			r = rbk_submit(matrix->ring);
			if (r < 0)
				return r;
		}
	}
	r = rbk_submit_and_wait(matrix->ring, matrix->n_tasks);
	for (uint32_t n = 0; !r && n < matrix->n_tasks; n++) {
		r = rbk_peek_cqe(matrix->ring, &cqe);
		if (r)
			return r;
		r = cqe->res;
		rbk_cqe_seen(matrix->ring, cqe);
	}
	return r;
}

/* ---- Rounds ---- */

static int run_rounds(struct matrix *matrix, int (*run)(struct matrix *matrix), uint64_t budget_ns,
		      struct samples *samples)
{
	uint64_t spent_ns = 0, run_ns, start;
	int r = samples_reserve(samples, ROUND_SAMPLES);

	/* The first is not counted. */
	for (unsigned int i = 0; !r && i <= ROUND_SAMPLES && (i < 2 || spent_ns < budget_ns); i++) {
		restore(matrix);
		start = clock_ticks();
		r = run(matrix);
		if (r || i == 0)
			continue;
		run_ns = clock_elapsed_ns(start, clock_ticks());
		spent_ns += run_ns;
		samples_add(samples, (double)run_ns / 1e6);
	}
	return r;
}

static int ours_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	return run_rounds(data, factor, budget_ns, samples);
}

static int run_starpu(struct matrix *matrix)
{
	return starpu_cholesky_run(matrix->starpu);
}

static int starpu_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	struct matrix *matrix = data;
	int r;

	starpu_cholesky_resume(matrix->starpu);
	r = run_rounds(matrix, run_starpu, budget_ns, samples);
	starpu_cholesky_pause(matrix->starpu);
	return r;
}

/* ---- The bench ---- */

static void matrix_deinit(struct matrix *matrix)
{
	starpu_cholesky_free(matrix->starpu);
	for (int kind = 0; kind < TILE_KINDS; kind++)
		rbk_plan_free(matrix->plans[kind]);
	rbk_arena_free(matrix->arena);
	free(matrix->tasks);
	free(matrix->given);
	free(matrix->expected);
	*matrix = (struct matrix)MATRIX_INIT;
}

static void describe_tasks(struct matrix *matrix)
{
	const size_t bytes = tile_floats(matrix) * sizeof(float);
	const uint64_t first = rbk_ref(matrix->arena, matrix->tiles);
	uint32_t buffers[TILE_BUFFERS];

	tiles_tasks(N, matrix->tasks);
	for (uint32_t number = 0; number < matrix->n_tasks; number++) {
		const unsigned int n = tiles_buffers(&matrix->tasks[number], buffers);

		for (unsigned int i = 0; i < n; i++)
			matrix->tables[(size_t)number * TABLE_WORDS + i] =
				first + buffers[i] * bytes;
	}
}

static int matrix_init(struct matrix *matrix, struct bench_env *env, const struct target *target,
		       uint32_t side)
{
	const size_t tile_bytes = (size_t)side * side * sizeof(float);
	const size_t n_stored = tiles_n_stored(N);
	struct rbk_error error = {""};
	size_t table_bytes;
	int r;

	*matrix = (struct matrix){
		.env = env, .ring = target->ring, .n_tasks = tiles_n_tasks(N), .side = side};
	table_bytes = matrix->n_tasks * TABLE_WORDS * sizeof(*matrix->tables);
	matrix->tasks = calloc(matrix->n_tasks, sizeof(*matrix->tasks));
	matrix->given = malloc(n_stored * tile_bytes);
	matrix->expected = malloc(n_stored * tile_bytes);
	r = matrix->tasks && matrix->given && matrix->expected ? 0 : -ENOMEM;
	if (!r)
		r = rbk_arena_new(target->rbk, 2 * n_stored * tile_bytes + table_bytes + 4096,
				  &matrix->arena, &error);
	for (int kind = 0; !r && kind < TILE_KINDS; kind++)
		r = plan_new(matrix, target->rbk, (enum tile_kind)kind, &error);
	if (r)
		return *error.text ? bench_refused(env, r, error.text)
				   : bench_fail(env, r, "cannot prepare tiles");
	matrix->tiles = rbk_arena_alloc(matrix->arena, 2 * n_stored * tile_bytes);
	matrix->tables = rbk_arena_alloc(matrix->arena, table_bytes);
	describe_tasks(matrix);
	fill(matrix);
	return 0;
}

/* Compare both sides' results, and their product with the matrix. */
static int check(struct matrix *matrix)
{
	const size_t n = tiles_n_stored(N) * tile_floats(matrix);
	float *got = malloc(n * sizeof(*got));
	double difference;
	int r;

	if (!got)
		return bench_fail(matrix->env, -ENOMEM, "no memory for a factor");
	restore(matrix);
	starpu_cholesky_resume(matrix->starpu);
	r = run_starpu(matrix);
	starpu_cholesky_pause(matrix->starpu);
	collect(matrix, matrix->expected);
	restore(matrix);
	if (!r)
		r = factor(matrix);
	collect(matrix, got);
	difference = residual(matrix, got);
	if (r)
		bench_fail(matrix->env, r, "a factorisation failed");
	else if (memcmp(got, matrix->expected, n * sizeof(*got)) != 0)
		r = bench_fail(matrix->env, -EBADMSG, "the sides have different factors");
	else if (!(difference < 1e-5 * N * matrix->side))
		r = bench_fail(matrix->env, -EBADMSG,
			       "the factor's product differs from the matrix by %g", difference);
	free(got);
	return r;
}

static int compare(struct bench_env *env, const struct target *target, uint32_t side, double most)
{
	_cleanup_(matrix_deinit) struct matrix matrix = MATRIX_INIT;
	const unsigned int n_workers = (unsigned int)env->n_cpus;
	struct bench_row row = {.unit = "ms", .baseline = "starpu-1.3 dmdas", .target = most};
	const char *reason;
	char params[48];
	int r;

	snprintf(params, sizeof(params), "tiles=%ux%u side=%u workers=%u", N, N, side, n_workers);
	if (!bench_is_wanted(env, params))
		return 0;
	row.params = params;
	r = matrix_init(&matrix, env, target, side);
	if (r)
		return r;
	r = starpu_cholesky_new(n_workers, N, side, matrix.tiles, &matrix.starpu, &reason);
	if (r == STARPU_TASKS_E_ABSENT)
		return bench_skip(env, params, "%s", reason);
	if (r)
		return bench_fail(env, r, "StarPU does not start");
	/* StarPU has bound the thread that started it. */
	bench_pin(env, -1);
	r = check(&matrix);
	if (r)
		return r;
	r = bench_compare(env, &row, (struct bench_side){ours_round, &matrix},
			  (struct bench_side){starpu_round, &matrix});
	if (r)
		bench_fail(env, r, "measuring failed (%s)", params);
	return r;
}

static int run(struct bench_env *env)
{
	struct target target;
	int r = target_init(&target, env, TARGET_WORKERS);

	if (r)
		return r;
	r = compare(env, &target, 64, 0.9);
	if (!r || r == BENCH_E_SKIP)
		r = compare(env, &target, 256, 1.0);
	target_deinit(&target);
	return r;
}

const struct bench bench_cholesky = {
	.name = "cholesky",
	.summary = "a matrix of 16 x 16 tiles, factored by entries that wait for others",
	.baseline = "StarPU's dmdas with as many workers and the same kernels",
	.run = run,
};
