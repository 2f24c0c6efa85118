/* SPDX-License-Identifier: MIT */
/* Plans of one node; see plans.h. */
#include "integration/plans.h"

int plan_constants(struct rbk *rbk, size_t bytes, struct rbk_arena **ret)
{
	int r = rbk_arena_new(rbk, bytes, ret, NULL);

	return r ? r : rbk_arena_seal(*ret, NULL);
}

int plan_product(struct rbk *rbk, uint32_t max_count, uint32_t k, uint32_t n,
		 const struct rbk_arena *constants, struct rbk_plan **ret, struct rbk_error *error)
{
	const uint32_t in[] = {RBK_DIM_COUNT, k}, out[] = {RBK_DIM_COUNT, n}, dims[] = {k, n};
	struct rbk_builder *b = rbk_builder_new("product");
	unsigned int x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, in);
	unsigned int w =
		constants ? rbk_builder_constant(b, "w", RBK_DTYPE_F32, 2, dims, constants, 0)
			  : rbk_builder_input(b, "w", RBK_DTYPE_F32, 2, dims);
	int r;

	rbk_builder_binary(b, "MatMul", x, w, rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, out));
	r = rbk_plan_new(rbk, b, max_count, ret, error);
	rbk_builder_free(b);
	return r;
}

int plan_elements(struct rbk *rbk, const char *op, unsigned int n_inputs, uint32_t max_count,
		  uint32_t width, struct rbk_plan **ret, struct rbk_error *error)
{
	const uint32_t dims[] = {RBK_DIM_COUNT, width};
	struct rbk_builder *b = rbk_builder_new("elements");
	unsigned int in[] = {rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, dims), 0}, out;
	int r;

	if (n_inputs == 2)
		in[1] = rbk_builder_input(b, "y", RBK_DTYPE_F32, 2, dims);
	out = rbk_builder_output(b, "z", RBK_DTYPE_F32, 2, dims);
	rbk_builder_node(b, op, "", in, n_inputs, &out, 1);
	r = rbk_plan_new(rbk, b, max_count, ret, error);
	rbk_builder_free(b);
	return r;
}
