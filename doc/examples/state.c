/* SPDX-License-Identifier: MIT */
/*
 * A state: a tensor that each task reads and then updates in place, such as the cache of a text
 * generator. A chain of linked entries keeps the order of the updates.
 *
 *	cc state.c -o state $(pkg-config --cflags --libs ringbroker)
 */
#include <errno.h>
#include <ringbroker.h>
#include <stdio.h>
#include <string.h>

#define N_STEPS 4
#define N_ELEMS 16 /* a row of RBK_REF_ALIGN bytes */

int main(void)
{
	struct rbk_error error;
	const uint32_t dims[] = {N_ELEMS};
	const struct rbk_cqe *cqe;
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	unsigned int step;
	struct rbk *rbk;
	int r;
	/* total = total + in. Each task binds the input and the state, in this order. */
	struct rbk_builder *b = rbk_builder_new("state");
	unsigned int in = rbk_builder_input(b, "in", RBK_DTYPE_F32, 1, dims);
	unsigned int total = rbk_builder_state(b, "total", RBK_DTYPE_F32, 1, dims);

	rbk_builder_binary(b, "Add", total, in, total);
	if (rbk_connect(NULL, &rbk, &error) || rbk_arena_new(rbk, 4096, &arena, &error) ||
	    rbk_plan_new(rbk, b, 1, &plan, &error) || rbk_ring_new(rbk, N_STEPS, &ring, &error))
		return fprintf(stderr, "%s\n", error.text), 1;

	float *state = rbk_arena_alloc(arena, N_ELEMS * sizeof(float));
	float *inputs = rbk_arena_alloc(arena, N_STEPS * N_ELEMS * sizeof(float));

	/* A new arena is zeroed, so the state begins with 0. */
	for (step = 0; step < N_STEPS; step++) {
		const uint64_t refs[] = {rbk_ref(arena, inputs + (size_t)step * N_ELEMS),
					 rbk_ref(arena, state)};
		struct rbk_sqe *sqe = rbk_get_sqe(ring);

		for (unsigned int i = 0; i < N_ELEMS; i++)
			inputs[step * N_ELEMS + i] = (float)(step + 1);
		rbk_prep_run(sqe, rbk_plan_id(plan), 1, refs, 2);
		rbk_sqe_set_data64(sqe, step);
		if (step + 1 < N_STEPS) /* the last entry of a chain has no link */
			rbk_sqe_set_flags(sqe, RBK_SQE_LINK);
	}
	if (rbk_submit(ring) < 0)
		return fprintf(stderr, "the broker is gone\n"), 1;

	/* If a step fails, the steps after it complete with -ECANCELED and do not update the state.
	 */
	for (step = 0; step < N_STEPS;) {
		r = rbk_wait_cqe(ring, &cqe);
		if (r == -EINTR)
			continue;
		if (r)
			return fprintf(stderr, "the broker is gone: %s\n", strerror(-r)), 1;
		if (cqe->res)
			return fprintf(stderr, "step %llu: %s\n",
				       (unsigned long long)rbk_cqe_get_data64(cqe),
				       strerror(-cqe->res)),
			       1;
		rbk_cqe_seen(ring, cqe);
		step++;
	}
	printf("after %d steps the state is %g\n", N_STEPS, (double)state[0]);
	return state[N_ELEMS - 1] == 10.0f ? 0 : 1;
}
