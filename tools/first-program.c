/* SPDX-License-Identifier: MIT */
/* Adds two vectors through brokerd: cc first-program.c $(pkg-config --cflags --libs ringbroker) */
#include <errno.h>
#include <ringbroker.h>
#include <stdio.h>

int main(void)
{
	struct rbk_error error = {"out of memory"};
	const uint32_t dims[] = {4};
	const struct rbk_cqe *cqe;
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	struct rbk *rbk;
	int r;

	struct rbk_builder *b = rbk_builder_new("first");
	unsigned int left = rbk_builder_input(b, "left", RBK_DTYPE_F32, 1, dims);
	unsigned int right = rbk_builder_input(b, "right", RBK_DTYPE_F32, 1, dims);
	unsigned int sum = rbk_builder_output(b, "sum", RBK_DTYPE_F32, 1, dims);
	rbk_builder_binary(b, "Add", left, right, sum);

	if (rbk_connect(NULL, &rbk, &error) || rbk_arena_new(rbk, 4096, &arena, &error) ||
	    rbk_plan_new(rbk, b, 1, &plan, &error) || rbk_ring_new(rbk, 8, &ring, &error))
		return fprintf(stderr, "%s\n", error.text), 1;

	float *x = rbk_arena_alloc(arena, 16), *y = rbk_arena_alloc(arena, 16);
	float *z = rbk_arena_alloc(arena, 16);
	for (int i = 0; i < 4; i++)
		x[i] = (float)i, y[i] = 10.0f * (float)i;
	const uint64_t refs[] = {rbk_ref(arena, x), rbk_ref(arena, y), rbk_ref(arena, z)};

	rbk_prep_run(rbk_get_sqe(ring), rbk_plan_id(plan), 1, refs, 3);
	rbk_submit(ring);
	do
		r = rbk_wait_cqe(ring, &cqe);
	while (r == -EINTR); /* a signal was handled */
	if (r)
		return fprintf(stderr, "the broker is gone\n"), 1;
	if (cqe->res) /* a negative errno; <ringbroker/abi.h> says what each means */
		return fprintf(stderr, "the task failed: %d\n", cqe->res), 1;
	printf("%g %g %g %g on device %u\n", z[0], z[1], z[2], z[3], cqe->device);
	return 0; /* exiting ends the session; long-lived programs free what they made */
}
