/* SPDX-License-Identifier: MIT */
/*
 * Work: single operators of given shapes, run through brokerd and checked
 *
 * Weights are constants in a sealed arena, which each device prepares once. A second arena holds
 * the inputs, which all tasks share, and an output for each result. An output is filled with NaN
 * before its task is submitted, so that an earlier result cannot pass the check.
 */
#include "work.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helpers.h"
#include "work-reference.h"

static int fail(struct rbk_error *error, int r, const char *text)
{
	snprintf(error->text, sizeof(error->text), "%s", text);
	return r;
}

/* Fill with integers from -4 to 4. */
static void fill(float *data, size_t n, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ull | 1;

	for (size_t i = 0; i < n; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		data[i] = (float)((int)(state >> 40) % 9 - 4);
	}
}

static bool right_is_bound(const struct work_shape *shape)
{
	return shape->op == WORK_ADD;
}

static int make_constants(struct work *work, struct rbk *rbk, struct rbk_error *error)
{
	const uint64_t n = work_right_elems(&work->shape);
	int r;

	r = rbk_arena_new_flags(rbk, n * sizeof(float), RBK_ARENA_MEMFD, &work->constants, error);
	if (r)
		return r;
	work->right = rbk_arena_data(work->constants);
	fill(work->right, n, 2);
	return rbk_arena_seal(work->constants, error);
}

static int make_data(struct work *work, struct rbk *rbk, struct rbk_error *error)
{
	const struct work_shape *shape = &work->shape;
	const size_t left_elems = shape->rows * work_left_elems(shape);
	const size_t right_elems =
		right_is_bound(shape) ? shape->rows * work_right_elems(shape) : 0;
	const size_t output_bytes = aligned(work_output_elems(work, shape->rows) * sizeof(float));
	int r;

	/* one arena for all tensors, each aligned */
	r = rbk_arena_new(rbk,
			  aligned(left_elems * sizeof(float)) +
				  aligned(right_elems * sizeof(float)) +
				  work->n_outputs * output_bytes,
			  &work->data, error);
	if (r)
		return r;
	work->left = rbk_arena_alloc(work->data, left_elems * sizeof(float));
	if (right_elems)
		work->right = rbk_arena_alloc(work->data, right_elems * sizeof(float));
	work->outputs = rbk_arena_alloc(work->data, work->n_outputs * output_bytes);
	work->output_stride = output_bytes / sizeof(float);
	if (!work->left || !work->outputs || (right_elems && !work->right))
		return fail(error, -ENOMEM, "the tensors do not fit their arena");
	fill(work->left, left_elems, 1);
	if (right_elems)
		fill(work->right, right_elems, 2);
	return 0;
}

/* Add the operator's node and its tensors. */
static void describe_node(struct work *work)
{
	const struct work_shape *s = &work->shape;
	const uint32_t image[] = {RBK_DIM_COUNT, s->channels, s->side, s->side};
	const uint32_t kernels[] = {s->filters, s->channels, 3, 3};
	const uint32_t line[] = {RBK_DIM_COUNT, s->op == WORK_MATMUL ? s->inner : s->columns};
	const uint32_t matrix[] = {s->inner, s->columns};
	const uint32_t matrices[] = {RBK_DIM_COUNT, s->inner, s->columns};
	struct rbk_builder *b = work->builder;
	unsigned int in[2] = {RBK_TENSOR_NONE, RBK_TENSOR_NONE}, out, node;

	if (s->op == WORK_CONV || s->op == WORK_MAX_POOL)
		in[0] = rbk_builder_input(b, "images", RBK_DTYPE_F32, 4, image);
	else if (s->op == WORK_TRANSPOSE)
		in[0] = rbk_builder_input(b, "matrices", RBK_DTYPE_F32, 3, matrices);
	else
		in[0] = rbk_builder_input(b, "left", RBK_DTYPE_F32, 2, line);
	if (s->op == WORK_ADD)
		in[1] = rbk_builder_input(b, "right", RBK_DTYPE_F32, 2, line);
	else if (s->op == WORK_MATMUL)
		in[1] = rbk_builder_constant(b, "weights", RBK_DTYPE_F32, 2, matrix,
					     work->constants, 0);
	else if (s->op == WORK_CONV)
		in[1] = rbk_builder_constant(b, "kernels", RBK_DTYPE_F32, 4, kernels,
					     work->constants, 0);
	out = rbk_builder_output(b, "result", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);

	switch (s->op) {
	case WORK_MATMUL:
		rbk_builder_binary(b, "MatMul", in[0], in[1], out);
		break;
	case WORK_CONV:
		node = rbk_builder_binary(b, "Conv", in[0], in[1], out);
		rbk_builder_attr_ints(b, node, "pads", (const int64_t[]){1, 1, 1, 1}, 4);
		break;
	case WORK_MAX_POOL:
		node = rbk_builder_unary(b, "MaxPool", in[0], out);
		rbk_builder_attr_ints(b, node, "kernel_shape", (const int64_t[]){2, 2}, 2);
		rbk_builder_attr_ints(b, node, "strides", (const int64_t[]){2, 2}, 2);
		break;
	case WORK_ADD:
		rbk_builder_binary(b, "Add", in[0], in[1], out);
		break;
	case WORK_RELU:
		rbk_builder_unary(b, "Relu", in[0], out);
		break;
	case WORK_SOFTMAX:
		rbk_builder_unary(b, "Softmax", in[0], out);
		break;
	case WORK_REDUCE_SUM:
		node = rbk_builder_unary(b, "ReduceSum", in[0], out);
		rbk_builder_attr_ints(b, node, "axes", (const int64_t[]){1}, 1);
		rbk_builder_attr_int(b, node, "keepdims", 0);
		break;
	case WORK_TRANSPOSE:
		node = rbk_builder_unary(b, "Transpose", in[0], out);
		rbk_builder_attr_ints(b, node, "perm", (const int64_t[]){0, 2, 1}, 3);
		break;
	}
}

static int make(struct work *work, struct rbk *rbk, struct rbk_error *error)
{
	int r = 0;

	if (work_right_elems(&work->shape) && !right_is_bound(&work->shape))
		r = make_constants(work, rbk, error);
	if (r == 0)
		r = make_data(work, rbk, error);
	if (r)
		return r;
	work->builder = rbk_builder_new(work->shape.name);
	if (!work->builder)
		return fail(error, -ENOMEM, "out of memory");
	describe_node(work);
	r = rbk_plan_new(rbk, work->builder, work->shape.rows, &work->plan, error);
	if (r)
		return r;
	rbk_plan_info(work->plan, &work->info);
	if (work_is_large(&work->shape))
		return 0;
	work->expected = calloc(work_output_elems(work, work->shape.rows), sizeof(float));
	if (!work->expected)
		return fail(error, -ENOMEM, "out of memory");
	work_compute(&work->shape, work->left, work->right, work->expected);
	return 0;
}

int work_init(struct work *work, struct rbk *rbk, const struct work_shape *shape,
	      uint32_t n_outputs, struct rbk_error *error)
{
	int r;

	*work = (struct work){.shape = *shape, .n_outputs = n_outputs};
	r = make(work, rbk, error);
	if (r)
		work_deinit(work);
	return r;
}

void work_deinit(struct work *work)
{
	rbk_plan_free(work->plan);
	rbk_builder_free(work->builder);
	rbk_arena_free(work->data);
	rbk_arena_free(work->constants);
	free(work->expected);
	*work = (struct work){0};
}

uint64_t work_bytes(const struct work *work, uint32_t rows)
{
	return work->info.bytes_fixed + rows * work->info.bytes_row;
}

uint64_t work_flops(const struct work *work, uint32_t rows)
{
	return work->info.flops_fixed + rows * work->info.flops_row;
}

void work_describe(const struct work *work, uint32_t rows, char *text, size_t bytes)
{
	const struct work_shape *s = &work->shape;

	switch (s->op) {
	case WORK_MATMUL:
		snprintf(text, bytes, "float32 [%u, %u] x [%u, %u] -> [%u, %u]", rows, s->inner,
			 s->inner, s->columns, rows, s->columns);
		return;
	case WORK_CONV:
		snprintf(text, bytes,
			 "float32 [%u, %u, %u, %u], %u kernels of 3x3 -> [%u, %u, %u, %u]", rows,
			 s->channels, s->side, s->side, s->filters, rows, s->filters, s->side,
			 s->side);
		return;
	case WORK_ADD:
		snprintf(text, bytes, "float32 [%u, %u] + [%u, %u]", rows, s->columns, rows,
			 s->columns);
		return;
	default:
		snprintf(text, bytes, "float32, %u rows of %llu", rows,
			 (unsigned long long)work_left_elems(s));
	}
}

float *work_output(const struct work *work, uint32_t output)
{
	return work->outputs + output * work->output_stride;
}

size_t work_output_elems(const struct work *work, uint32_t rows)
{
	return (size_t)rows * work_row_elems(&work->shape);
}

void work_prepare(const struct work *work, uint32_t rows, uint32_t output, struct rbk_sqe *sqe)
{
	float *to = work_output(work, output);
	uint64_t refs[3];
	unsigned int n = 0;

	for (size_t i = 0; i < work_output_elems(work, rows); i++)
		to[i] = NAN;
	refs[n++] = rbk_ref(work->data, work->left);
	if (right_is_bound(&work->shape))
		refs[n++] = rbk_ref(work->data, work->right);
	refs[n++] = rbk_ref(work->data, to);
	rbk_prep_run(sqe, rbk_plan_id(work->plan), rows, refs, n);
}

static bool is_close(const struct work *work, float got, float want)
{
	if (work->shape.op != WORK_SOFTMAX)
		return got == want;
	return fabsf(got - want) <= 1e-7f + 1e-5f * want;
}

bool work_is_right(const struct work *work, uint32_t rows, uint32_t output)
{
	const float *got = work_output(work, output);

	if (!work->expected)
		return work_project(&work->shape, rows, work->left, work->right, got) == 1;
	for (size_t i = 0; i < work_output_elems(work, rows); i++)
		if (!is_close(work, got[i], work->expected[i]))
			return false;
	return true;
}
