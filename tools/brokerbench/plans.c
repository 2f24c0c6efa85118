/* SPDX-License-Identifier: MIT */
/* The two plans that the benches run */
#include "plans.h"

#include <errno.h>

#include "shm/number.h"

#define N_ADD_TENSORS 3

void plans_fill(float *values, size_t n, uint32_t seed)
{
	uint32_t state = seed * 2654435761u + 1;

	for (size_t i = 0; i < n; i++) {
		/*
		 * Numerical Recipes' linear congruential generator; conversion to float keeps its
		 * high bits.
		 */
		state = state * 1664525u + 1013904223u;
		values[i] = (float)(int32_t)state * (1.0f / 2147483648.0f);
	}
}

static uint64_t add_stride(const struct plans_add *add)
{
	return round_up(add->n_floats * sizeof(float), RBK_REF_ALIGN);
}

void plans_add_refs(const struct plans_add *add, unsigned int set, uint64_t *ret_refs)
{
	uint64_t stride = add_stride(add);

	if (add->is_constant) {
		ret_refs[0] = rbk_arena_ref(add->arena, set * stride);
		return;
	}
	for (unsigned int i = 0; i < N_ADD_TENSORS; i++)
		ret_refs[i] = rbk_arena_ref(add->arena, (set * N_ADD_TENSORS + i) * stride);
}

void plans_add_deinit(struct plans_add *add)
{
	rbk_plan_free(add->plan);
	rbk_arena_free(add->arena);
	rbk_arena_free(add->constants);
	*add = (struct plans_add)PLANS_ADD_INIT;
}

static void describe_add(const struct plans_add *add, struct rbk_builder *builder)
{
	unsigned int left, right, out;
	uint32_t dims[1] = {add->n_floats};

	if (add->is_constant) {
		left = rbk_builder_constant(builder, "left", RBK_DTYPE_F32, 1, dims, add->constants,
					    0);
		right = rbk_builder_constant(builder, "right", RBK_DTYPE_F32, 1, dims,
					     add->constants, add_stride(add));
	} else {
		left = rbk_builder_input(builder, "left", RBK_DTYPE_F32, 1, dims);
		right = rbk_builder_input(builder, "right", RBK_DTYPE_F32, 1, dims);
	}
	out = rbk_builder_output(builder, "out", RBK_DTYPE_F32, 1, dims);
	rbk_builder_binary(builder, "Add", left, right, out);
}

int plans_add_init(struct plans_add *add, struct bench_env *env, struct rbk *rbk, uint32_t n_floats,
		   bool is_constant, unsigned int n_sets)
{
	struct rbk_builder *builder = NULL;
	struct rbk_error error = {""};
	uint64_t stride;
	int r;

	*add = (struct plans_add){.n_floats = n_floats, .is_constant = is_constant};
	stride = add_stride(add);

	r = rbk_arena_new(rbk, n_sets * N_ADD_TENSORS * stride, &add->arena, &error);
	if (r)
		goto out;
	plans_fill(rbk_arena_data(add->arena), n_sets * N_ADD_TENSORS * stride / sizeof(float), 1);
	if (is_constant) {
		r = rbk_arena_new(rbk, 2 * stride, &add->constants, &error);
		if (r)
			goto out;
		plans_fill(rbk_arena_data(add->constants), 2 * stride / sizeof(float), 2);
		r = rbk_arena_seal(add->constants, &error);
		if (r)
			goto out;
	}
	builder = rbk_builder_new("bench-add");
	if (!builder) {
		r = -ENOMEM;
		goto out;
	}
	describe_add(add, builder);
	r = rbk_plan_new(rbk, builder, 1, &add->plan, &error);
out:
	rbk_builder_free(builder);
	if (r) {
		bench_refused(env, r, *error.text ? error.text : "cannot prepare an Add");
		plans_add_deinit(add);
	}
	return r;
}

void plans_matmul_deinit(struct plans_matmul *matmul)
{
	rbk_plan_free(matmul->plan);
	rbk_arena_free(matmul->arena);
	rbk_arena_free(matmul->constants);
	*matmul = (struct plans_matmul)PLANS_MATMUL_INIT;
}

static void describe_matmul(const struct plans_matmul *matmul, struct rbk_builder *builder)
{
	uint32_t a_dims[2] = {matmul->m, matmul->k};
	uint32_t b_dims[2] = {matmul->k, matmul->n};
	uint32_t c_dims[2] = {matmul->m, matmul->n};
	unsigned int a, b, c;

	a = rbk_builder_input(builder, "a", RBK_DTYPE_F32, 2, a_dims);
	if (matmul->constants)
		b = rbk_builder_constant(builder, "b", RBK_DTYPE_F32, 2, b_dims, matmul->constants,
					 0);
	else
		b = rbk_builder_input(builder, "b", RBK_DTYPE_F32, 2, b_dims);
	c = rbk_builder_output(builder, "c", RBK_DTYPE_F32, 2, c_dims);
	rbk_builder_binary(builder, "MatMul", a, b, c);
}

int plans_matmul_init(struct plans_matmul *matmul, struct bench_env *env, struct rbk *rbk,
		      uint32_t m, uint32_t k, uint32_t n, bool is_constant)
{
	uint64_t a_bytes = round_up((uint64_t)m * k * sizeof(float), RBK_REF_ALIGN);
	uint64_t b_bytes = round_up((uint64_t)k * n * sizeof(float), RBK_REF_ALIGN);
	uint64_t c_bytes = round_up((uint64_t)m * n * sizeof(float), RBK_REF_ALIGN);
	struct rbk_builder *builder = NULL;
	struct rbk_error error = {""};
	float *a, *b;
	int r;

	*matmul = (struct plans_matmul){.m = m, .k = k, .n = n};
	r = rbk_arena_new(rbk,
			  a_bytes + PLANS_MATMUL_OUTPUTS * c_bytes + (is_constant ? 0 : b_bytes),
			  &matmul->arena, &error);
	if (r)
		goto out;
	if (is_constant) {
		r = rbk_arena_new(rbk, b_bytes, &matmul->constants, &error);
		if (r)
			goto out;
	}
	a = rbk_arena_alloc(matmul->arena, a_bytes);
	b = rbk_arena_alloc(is_constant ? matmul->constants : matmul->arena, b_bytes);
	matmul->c = rbk_arena_alloc(matmul->arena, PLANS_MATMUL_OUTPUTS * c_bytes);
	matmul->output_stride = c_bytes;
	plans_fill(a, (size_t)m * k, 1);
	plans_fill(b, (size_t)k * n, 2);
	matmul->a = a;
	matmul->b = b;
	if (is_constant) {
		/* The arena stays mapped at the same address, read-only. */
		r = rbk_arena_seal(matmul->constants, &error);
		if (r)
			goto out;
	}
	matmul->refs[matmul->n_refs++] = rbk_ref(matmul->arena, a);
	if (!is_constant)
		matmul->refs[matmul->n_refs++] = rbk_ref(matmul->arena, b);
	matmul->refs[matmul->n_refs++] = rbk_ref(matmul->arena, matmul->c);

	builder = rbk_builder_new("bench-matmul");
	if (!builder) {
		r = -ENOMEM;
		goto out;
	}
	describe_matmul(matmul, builder);
	r = rbk_plan_new(rbk, builder, 1, &matmul->plan, &error);
out:
	rbk_builder_free(builder);
	if (r) {
		bench_refused(env, r, *error.text ? error.text : "cannot prepare a MatMul");
		plans_matmul_deinit(matmul);
	}
	return r;
}
