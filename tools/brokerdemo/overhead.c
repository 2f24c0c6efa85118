/* SPDX-License-Identifier: MIT */
/* See overhead.h. */
#include "overhead.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helpers.h"

enum {
	N_TASKS = 2000,
	N_ELEMENTS = 256,
	ARENA_BYTES = 16384,
};

/* Make a plan that adds two vectors. */
static int make_plan(struct rbk *rbk, struct rbk_plan **ret, struct rbk_error *error)
{
	const uint32_t dims[] = {N_ELEMENTS};
	struct rbk_builder *b = rbk_builder_new("small task");
	unsigned int left, right, sum;
	int r;

	if (!b) {
		snprintf(error->text, sizeof(error->text), "out of memory");
		return -ENOMEM;
	}
	left = rbk_builder_input(b, "left", RBK_DTYPE_F32, 1, dims);
	right = rbk_builder_input(b, "right", RBK_DTYPE_F32, 1, dims);
	sum = rbk_builder_output(b, "sum", RBK_DTYPE_F32, 1, dims);
	rbk_builder_binary(b, "Add", left, right, sum);
	r = rbk_plan_new(rbk, b, 1, ret, error);
	rbk_builder_free(b);
	return r;
}

/* Run a task and wait for it. */
static int run_task(struct rbk_ring *ring, struct rbk_plan *plan, const uint64_t refs[3],
		    uint64_t *ret_ns)
{
	const uint64_t begin_ns = now_ns();
	struct rbk_sqe *sqe = rbk_get_sqe(ring);
	const struct rbk_cqe *cqe;
	int r;

	if (!sqe)
		return -ECONNRESET;
	rbk_prep_run(sqe, rbk_plan_id(plan), 1, refs, 3);
	rbk_sqe_set_strategy(sqe, RBK_STRATEGY_ONLY_CPU);
	r = rbk_submit(ring);
	if (r < 0)
		return r;
	do
		r = rbk_wait_cqe(ring, &cqe);
	while (r == -EINTR);
	if (r)
		return r;
	*ret_ns = now_ns() - begin_ns;
	*ret_ns -= cqe->exec_ns < *ret_ns ? cqe->exec_ns : *ret_ns;
	r = cqe->res;
	rbk_cqe_seen(ring, cqe);
	return r;
}

int overhead_measure(const char *socket_path, uint64_t ret_ns[static 2], struct rbk_error *error)
{
	const struct rbk_options options = {
		.size = sizeof(options), .socket_path = socket_path, .name = "demo"};
	static uint64_t times_ns[N_TASKS];
	struct rbk_arena *arena = NULL;
	struct rbk_plan *plan = NULL;
	struct rbk_ring *ring = NULL;
	uint64_t refs[3];
	struct rbk *rbk;
	float *vector;
	int r;

	r = rbk_connect(&options, &rbk, error);
	if (r)
		return r;
	r = rbk_arena_new(rbk, ARENA_BYTES, &arena, error);
	if (r == 0)
		r = make_plan(rbk, &plan, error);
	if (r == 0)
		r = rbk_ring_new(rbk, 8, &ring, error);
	for (unsigned int i = 0; i < 3 && r == 0; i++) {
		vector = rbk_arena_alloc(arena, N_ELEMENTS * sizeof(float));
		memset(vector, 0, N_ELEMENTS * sizeof(float));
		refs[i] = rbk_ref(arena, vector);
	}
	for (unsigned int i = 0; i < N_TASKS && r == 0; i++) {
		r = run_task(ring, plan, refs, &times_ns[i]);
		if (r)
			snprintf(error->text, sizeof(error->text), "a small task failed: %s",
				 strerror(-r));
	}
	rbk_ring_free(ring);
	rbk_plan_free(plan);
	rbk_arena_free(arena);
	rbk_disconnect(rbk);
	if (r)
		return r;
	qsort(times_ns, N_TASKS, sizeof(times_ns[0]), compare_ns);
	ret_ns[0] = times_ns[N_TASKS / 10];
	ret_ns[1] = times_ns[N_TASKS / 2];
	return 0;
}
