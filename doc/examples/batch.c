/* SPDX-License-Identifier: MIT */
/*
 * Batches: many rows in a task, more tensors than an entry has references, and completions that are
 * consumed several at a time.
 *
 *	cc batch.c -o batch $(pkg-config --cflags --libs ringbroker)
 */
#include <errno.h>
#include <ringbroker.h>
#include <stdio.h>
#include <string.h>

#define N_COLUMNS 16
#define MAX_ROWS  500 /* of a task */
#define N_ROWS    7900
#define N_TASKS   ((N_ROWS + MAX_ROWS - 1) / MAX_ROWS)
#define N_INPUTS  6
#define N_REFS    (N_INPUTS + 1) /* an entry has room for RBK_SQE_REFS, which is 5 */
#define MAX_CQES  8

struct table {
	uint64_t refs[N_REFS];
	char pad[RBK_REF_ALIGN - N_REFS * sizeof(uint64_t)]; /* the next table must be aligned */
};

/* The sum of all inputs, row by row. RBK_DIM_COUNT is the number of rows of each task. */
static struct rbk_builder *describe(void)
{
	const uint32_t dims[] = {RBK_DIM_COUNT, N_COLUMNS};
	struct rbk_builder *b = rbk_builder_new("batch");
	unsigned int inputs[N_INPUTS], sum, from, to;
	char name[32];

	for (unsigned int i = 0; i < N_INPUTS; i++) {
		snprintf(name, sizeof(name), "in-%u", i);
		inputs[i] = rbk_builder_input(b, name, RBK_DTYPE_F32, 2, dims);
	}
	sum = rbk_builder_output(b, "sum", RBK_DTYPE_F32, 2, dims);
	from = inputs[0];
	for (unsigned int i = 1; i < N_INPUTS; i++, from = to) {
		snprintf(name, sizeof(name), "sum-%u", i);
		to = i + 1 == N_INPUTS
			     ? sum
			     : rbk_builder_scratch(b, name, RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
		rbk_builder_binary(b, "Add", from, inputs[i], to);
	}
	return b;
}

/* Consume @n completions, as many at a time as have arrived. Return: the number that failed. */
static int gather(struct rbk_ring *ring, unsigned int n)
{
	const struct rbk_cqe *cqes[MAX_CQES];
	int n_failed = 0, n_cqes, r;

	for (; n > 0; n -= (unsigned int)n_cqes) {
		r = rbk_wait_cqe(ring, &cqes[0]);
		if (r == -EINTR) {
			n_cqes = 0;
			continue;
		}
		n_cqes = r ? r : rbk_peek_batch_cqe(ring, cqes, MAX_CQES);
		if (n_cqes < 0)
			return n_cqes;
		for (int i = 0; i < n_cqes; i++) {
			if (cqes[i]->res)
				fprintf(stderr, "task %llu: %s\n",
					(unsigned long long)cqes[i]->user_data,
					strerror(-cqes[i]->res));
			n_failed += cqes[i]->res != 0;
		}
		rbk_cq_advance(ring, (unsigned int)n_cqes);
	}
	return n_failed;
}

int main(void)
{
	const size_t n_elems = (size_t)N_ROWS * N_COLUMNS, tensor_bytes = sizeof(float) * n_elems;
	struct rbk_error error;
	struct rbk_builder *b = describe();
	float *tensors[N_REFS];
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	struct table *tables;
	struct rbk *rbk;
	size_t n_wrong = 0;

	if (rbk_connect(NULL, &rbk, &error) ||
	    rbk_arena_new(rbk, (tensor_bytes + RBK_REF_ALIGN) * N_REFS + sizeof(*tables) * N_TASKS,
			  &arena, &error) ||
	    rbk_plan_new(rbk, b, MAX_ROWS, &plan, &error) ||
	    rbk_ring_new(rbk, N_TASKS, &ring, &error))
		return fprintf(stderr, "%s\n", error.text), 1;
	tables = rbk_arena_alloc(arena, sizeof(*tables) * N_TASKS);
	for (unsigned int i = 0; i < N_REFS; i++)
		tensors[i] = rbk_arena_alloc(arena, tensor_bytes);
	for (size_t j = 0; j < n_elems; j++) {
		for (unsigned int i = 0; i < N_INPUTS; i++)
			tensors[i][j] = (float)(j % 1000 * (i + 1));
	}

	/* Each task has the rows after those of the task before, the last task what is left. */
	for (unsigned int task = 0; task < N_TASKS; task++) {
		unsigned int row = task * MAX_ROWS;
		unsigned int n_rows = N_ROWS - row < MAX_ROWS ? N_ROWS - row : MAX_ROWS;
		struct rbk_sqe *sqe = rbk_get_sqe(ring);

		for (unsigned int i = 0; i < N_REFS; i++)
			tables[task].refs[i] = rbk_ref(arena, tensors[i] + (size_t)row * N_COLUMNS);
		rbk_prep_run_table(sqe, rbk_plan_id(plan), n_rows,
				   rbk_ref(arena, tables[task].refs), N_REFS);
		rbk_sqe_set_data64(sqe, task);
	}
	if (rbk_submit(ring) < 0 || gather(ring, N_TASKS) != 0)
		return fprintf(stderr, "the tasks failed, or the broker is gone\n"), 1;
	for (size_t j = 0; j < n_elems; j++)
		n_wrong += tensors[N_INPUTS][j] != (float)(j % 1000 * 21);
	printf("%d rows in %d tasks, %zu elements wrong\n", N_ROWS, N_TASKS, n_wrong);
	return n_wrong ? 1 : 0;
}
