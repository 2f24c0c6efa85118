/* SPDX-License-Identifier: MIT */
/*
 * Cancelling and deadlines: a task that takes too long is stopped, a task behind it never begins,
 * and a completion tells whether its deadline was missed.
 *
 *	cc cancel.c -o cancel $(pkg-config --cflags --libs ringbroker)
 */
#include <errno.h>
#include <ringbroker.h>
#include <stdio.h>
#include <string.h>

#define N            1024 /* rows and columns of a matrix */
#define N_PRODUCTS   64
#define MATRIX_BYTES (sizeof(float) * N * N)
#define PATIENCE_NS  5000000ull

enum { LONG = 1, BEHIND, LATE, CANCEL_LONG, CANCEL_BEHIND };

/* Products one after the other: for N rows about a second of a processor. */
static struct rbk_builder *describe(void)
{
	struct rbk_builder *b = rbk_builder_new("cancel");
	const uint32_t dims[] = {RBK_DIM_COUNT, N}, square[] = {N, N};
	unsigned int from = rbk_builder_input(b, "in", RBK_DTYPE_F32, 2, dims);
	unsigned int right = rbk_builder_input(b, "right", RBK_DTYPE_F32, 2, square);
	unsigned int out = rbk_builder_output(b, "out", RBK_DTYPE_F32, 2, dims), to, i;
	char name[32];

	for (i = 0; i < N_PRODUCTS; i++, from = to) {
		snprintf(name, sizeof(name), "product-%u", i);
		to = i + 1 == N_PRODUCTS ? out
					 : rbk_builder_scratch(b, name, RBK_DTYPE_F32, 2, dims);
		rbk_builder_binary(b, "MatMul", from, right, to);
	}
	return b;
}

/* Wait for @n completions and store their results by user_data. Return: 0, or a negative errno. */
static int gather(struct rbk_ring *ring, unsigned int n, struct rbk_cqe *results)
{
	const struct rbk_cqe *cqe;
	int r;

	while (n-- > 0) {
		do
			r = rbk_wait_cqe(ring, &cqe);
		while (r == -EINTR);
		if (r)
			return r;
		results[rbk_cqe_get_data64(cqe)] = *cqe;
		rbk_cqe_seen(ring, cqe);
	}
	return 0;
}

static void prepare(struct rbk_ring *ring, uint32_t plan_id, uint32_t n_rows, const uint64_t *refs,
		    uint64_t data, unsigned int flags)
{
	struct rbk_sqe *sqe = rbk_get_sqe(ring);

	rbk_prep_run(sqe, plan_id, n_rows, refs, 3);
	rbk_sqe_set_data64(sqe, data);
	rbk_sqe_set_flags(sqe, flags);
	rbk_sqe_set_deadline_us(sqe, data == LATE ? 1 : 0);
}

static void prepare_cancel(struct rbk_ring *ring, uint64_t target, uint64_t data)
{
	struct rbk_sqe *sqe = rbk_get_sqe(ring);

	rbk_prep_cancel(sqe, target);
	rbk_sqe_set_data64(sqe, data);
}

int main(void)
{
	struct rbk_error error;
	struct rbk_builder *b = describe();
	struct rbk_cqe results[CANCEL_BEHIND + 1];
	const struct rbk_cqe *cqe;
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	struct rbk *rbk;
	int r;

	if (rbk_connect(NULL, &rbk, &error) ||
	    rbk_arena_new(rbk, 3 * MATRIX_BYTES, &arena, &error) ||
	    rbk_plan_new(rbk, b, N, &plan, &error) || rbk_ring_new(rbk, 8, &ring, &error))
		return fprintf(stderr, "%s\n", error.text), 1;
	const uint64_t refs[] = {rbk_arena_ref(arena, 0), rbk_arena_ref(arena, MATRIX_BYTES),
				 rbk_arena_ref(arena, 2 * MATRIX_BYTES)};
	uint32_t id = rbk_plan_id(plan);

	/* A deadline orders tasks and marks late completions. It does not stop a task. */
	prepare(ring, id, 1, refs, LATE, 0);
	if (rbk_submit(ring) < 0 || gather(ring, 1, results))
		return fprintf(stderr, "the broker is gone\n"), 1;
	printf("late task: %s, deadline %s\n", strerror(-results[LATE].res),
	       results[LATE].flags & RBK_CQE_DEADLINE_MISSED ? "missed" : "met");

	/* The client decides how long it waits. The second task starts after the first succeeded.
	 */
	prepare(ring, id, N, refs, LONG, RBK_SQE_LINK);
	prepare(ring, id, N, refs, BEHIND, 0);
	if (rbk_submit(ring) < 0)
		return fprintf(stderr, "the broker is gone\n"), 1;
	do
		r = rbk_wait_cqe_timeout(ring, &cqe, PATIENCE_NS);
	while (r == -EINTR);
	printf("after 5 ms: %s\n", r == -ETIME ? "not completed" : strerror(-r));
	prepare_cancel(ring, BEHIND, CANCEL_BEHIND);
	prepare_cancel(ring, LONG, CANCEL_LONG);

	/* Each entry completes, also a cancelled one: its tensors are in use until then. */
	if (rbk_submit(ring) < 0 || gather(ring, 4, results))
		return fprintf(stderr, "the broker is gone\n"), 1;
	printf("cancel the task behind: %s; the task: %s\n", strerror(-results[CANCEL_BEHIND].res),
	       strerror(-results[BEHIND].res));
	printf("cancel the long task: %s; the task: %s\n", strerror(-results[CANCEL_LONG].res),
	       strerror(-results[LONG].res));
	/* A task that a GPU's driver has runs to its end: its CANCEL completes with -EALREADY. */
	r = results[CANCEL_LONG].res == 0 ? -ECANCELED : 0;
	return results[LONG].res == r && results[BEHIND].res == -ECANCELED ? 0 : 1;
}
