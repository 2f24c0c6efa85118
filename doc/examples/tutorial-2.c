/* SPDX-License-Identifier: MIT */
/* Step 2: a plan and one task. cc tutorial-2.c $(pkg-config --cflags --libs ringbroker) */
#include <errno.h>
#include <ringbroker.h>
#include <stdio.h>
#include <string.h>

#define N_IN  64
#define N_OUT 4

/* Store the weights in a sealed arena: output i is the sum of all inputs, times i + 1. */
static int load_weights(struct rbk *rbk, struct rbk_arena **ret, struct rbk_error *error)
{
	struct rbk_arena *arena;
	float *weights;
	int r;

	r = rbk_arena_new_flags(rbk, N_IN * N_OUT * sizeof(float), RBK_ARENA_MEMFD, &arena, error);
	if (r)
		return r;
	weights = rbk_arena_data(arena);
	for (int i = 0; i < N_IN * N_OUT; i++)
		weights[i] = (float)(i % N_OUT + 1);
	r = rbk_arena_seal(arena, error);
	if (r) {
		rbk_arena_free(arena);
		return r;
	}
	*ret = arena;
	return 0;
}

/* Describe out = Relu(in * weights), for as many rows as each task has. */
static struct rbk_builder *describe(const struct rbk_arena *weights)
{
	const uint32_t in_dims[] = {RBK_DIM_COUNT, N_IN}, weight_dims[] = {N_IN, N_OUT};
	struct rbk_builder *b = rbk_builder_new("score");
	unsigned int in = rbk_builder_input(b, "in", RBK_DTYPE_F32, 2, in_dims);
	unsigned int w = rbk_builder_constant(b, "w", RBK_DTYPE_F32, 2, weight_dims, weights, 0);
	unsigned int product =
		rbk_builder_scratch(b, "product", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
	unsigned int out = rbk_builder_output(b, "out", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);

	rbk_builder_binary(b, "MatMul", in, w, product);
	rbk_builder_unary(b, "Relu", product, out);
	return b;
}

int main(void)
{
	struct rbk_error error;
	struct rbk_arena *weights, *arena;
	const struct rbk_cqe *cqe;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	struct rbk *rbk;
	int r;

	if (rbk_connect(NULL, &rbk, &error) || load_weights(rbk, &weights, &error) ||
	    rbk_plan_new(rbk, describe(weights), 8, &plan, &error) ||
	    rbk_arena_new(rbk, 4096, &arena, &error) || rbk_ring_new(rbk, 8, &ring, &error))
		return fprintf(stderr, "%s\n", error.text), 1;

	float *in = rbk_arena_alloc(arena, 2 * N_IN * sizeof(float));
	float *out = rbk_arena_alloc(arena, 2 * N_OUT * sizeof(float));
	const uint64_t refs[] = {rbk_ref(arena, in), rbk_ref(arena, out)};
	for (int i = 0; i < 2 * N_IN; i++)
		in[i] = i < N_IN ? 1.0f : -1.0f; /* two rows */

	rbk_prep_run(rbk_get_sqe(ring), rbk_plan_id(plan), 2, refs, 2);
	rbk_submit(ring);
	do
		r = rbk_wait_cqe(ring, &cqe);
	while (r == -EINTR); /* a signal was handled */
	if (r)
		return fprintf(stderr, "the broker is gone\n"), 1;
	if (cqe->res)
		return fprintf(stderr, "the task failed: %s\n", strerror(-cqe->res)), 1;
	for (int row = 0; row < 2; row++, out += N_OUT)
		printf("row %d: %g %g %g %g\n", row, out[0], out[1], out[2], out[3]);
	return out[-1] == 0.0f && out[-N_OUT - 1] == (float)(N_IN * N_OUT) ? 0 : 1;
}
