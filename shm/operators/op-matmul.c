/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: MatMul and Gemm
 *
 * MatMul is numpy's: a rank 1 operand is a row (left) or a column (right) whose added dimension is
 * dropped from the result; dimensions before the last two are batches and broadcast. Gemm computes
 * alpha * A' * B' + beta * C over matrices; C broadcasts to the result.
 *
 * The task's count may be the rows of the left operand or the leading batch dimension. It cannot be
 * the summed dimension: weights are packed for a fixed depth, and the rows of a task would no
 * longer be independent.
 */
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

static int refuse_count_summed(struct op_call *call, const struct op_tensor *tensor)
{
	return op_call_refuse(call,
			      "input \"%s\" %s would be summed over its dimension count, expected "
			      "that dimension to be fixed",
			      tensor->name, SHAPE_TEXT(&tensor->shape));
}

static int refuse_inner(struct op_call *call, struct dim a_k, struct dim b_k)
{
	return op_call_refuse(call,
			      "inputs \"%s\" %s and \"%s\" %s have inner dimensions %s and %s, "
			      "expected equal ones",
			      call->in[0]->name, SHAPE_TEXT(&call->in[0]->shape), call->in[1]->name,
			      SHAPE_TEXT(&call->in[1]->shape), DIM_TEXT(a_k), DIM_TEXT(b_k));
}

static void append(struct shape *shape, struct dim dim)
{
	shape->dynamic |= dim.is_count;
	shape->dims[shape->rank++] = dim.n;
}

int op_matmul_infer(struct op_call *call)
{
	const struct op_tensor *a = call->in[0], *b = call->in[1];
	unsigned int a_rank = a->shape.rank, b_rank = b->shape.rank;
	struct shape *out = &call->out_shape[0];
	struct dim a_k, b_k;
	int r;

	for (unsigned int i = 0; i < 2; i++) {
		if (call->in[i]->shape.rank == 0)
			return op_call_refuse(call,
					      "input \"%s\" is a scalar, expected at least one "
					      "dimension",
					      call->in[i]->name);
	}
	a_k = shape_get(&a->shape, a_rank - 1);
	b_k = shape_get(&b->shape, b_rank > 1 ? b_rank - 2 : 0);
	if (a_k.is_count)
		return refuse_count_summed(call, a);
	if (b_k.is_count)
		return refuse_count_summed(call, b);
	if (!dim_equal(a_k, b_k))
		return refuse_inner(call, a_k, b_k);

	r = op_call_broadcast(call, 2, out);
	if (r)
		return r;
	if (a_rank > 1) {
		struct dim rows = shape_get(&a->shape, a_rank - 2);

		if (rows.is_count && out->rank > 0)
			return op_call_refuse(call,
					      "input \"%s\" %s times \"%s\" %s would make count "
					      "dimension %u of the output, expected it to stay the "
					      "leading one",
					      a->name, SHAPE_TEXT(&a->shape), b->name,
					      SHAPE_TEXT(&b->shape), (unsigned int)out->rank);
		append(out, rows);
	}
	if (b_rank > 1)
		append(out, shape_get(&b->shape, b_rank - 1));
	return 0;
}

void op_matmul_cost(const struct op_call *call, struct cost *ret)
{
	const struct shape *a = &call->in[0]->shape;

	cost_elems(ret, &call->out_shape[0], 2ull * a->dims[a->rank - 1]);
	cost_tensors(call, ret);
}

static int gemm_infer(struct op_call *call)
{
	const struct op_tensor *a = call->in[0], *b = call->in[1], *c = call->in[2];
	struct shape *out = &call->out_shape[0];
	struct dim a_k, b_k, rows, columns;
	bool trans_a, trans_b;
	int r;

	r = op_call_float(call, "alpha", 1, &call->params.gemm.alpha);
	if (!r)
		r = op_call_float(call, "beta", 1, &call->params.gemm.beta);
	if (!r)
		r = op_call_bool(call, "transA", false, &trans_a);
	if (!r)
		r = op_call_bool(call, "transB", false, &trans_b);
	if (r)
		return r;
	call->params.gemm.trans_a = trans_a;
	call->params.gemm.trans_b = trans_b;

	for (unsigned int i = 0; i < 2; i++) {
		if (call->in[i]->shape.rank != 2)
			return op_call_refuse(call, "input \"%s\" is %s, expected two dimensions",
					      call->in[i]->name, SHAPE_TEXT(&call->in[i]->shape));
	}
	a_k = shape_get(&a->shape, trans_a ? 0 : 1);
	rows = shape_get(&a->shape, trans_a ? 1 : 0);
	b_k = shape_get(&b->shape, trans_b ? 1 : 0);
	columns = shape_get(&b->shape, trans_b ? 0 : 1);
	if (a_k.is_count)
		return refuse_count_summed(call, a);
	if (b_k.is_count)
		return refuse_count_summed(call, b);
	if (columns.is_count)
		return op_call_refuse(call,
				      "input \"%s\" %s would make count dimension 1 of the output, "
				      "expected it to stay the leading one",
				      b->name, SHAPE_TEXT(&b->shape));
	if (!dim_equal(a_k, b_k))
		return refuse_inner(call, a_k, b_k);
	*out = (struct shape){.rank = 0};
	append(out, rows);
	append(out, columns);

	if (!c)
		return 0;
	for (unsigned int i = 0; i < 2 || i < c->shape.rank; i++) {
		struct dim dim = {.n = 1};

		if (c->shape.rank <= 2 && i + c->shape.rank >= 2)
			dim = shape_get(&c->shape, i + c->shape.rank - 2);
		if (c->shape.rank > 2 || (!dim_is(dim, 1) && !dim_equal(dim, shape_get(out, i))))
			return op_call_refuse(
				call,
				"input \"%s\" is %s, expected a shape that broadcasts "
				"to the product's %s",
				c->name, SHAPE_TEXT(&c->shape), SHAPE_TEXT(out));
	}
	return 0;
}

static void gemm_cost(const struct op_call *call, struct cost *ret)
{
	const struct shape *a = &call->in[0]->shape;

	cost_elems(ret, &call->out_shape[0], 2ull * a->dims[call->params.gemm.trans_a ? 0 : 1]);
	if (call->in[2])
		cost_elems(ret, &call->out_shape[0], 2);
	cost_tensors(call, ret);
}

const struct op op_matmul = {
	.kind = OP_MATMUL,
	.family = OP_FAMILY_MATMUL,
	.name = "MatMul",
	.opset = 13,
	OP_ROW_OF_ONE_CLASS(2, 2, OP_ALL_FLOATS),
	.splits_rows = true,
	.takes_activation = true,
	.attrs = op_no_attrs,
	.infer = op_matmul_infer,
	.cost = op_matmul_cost,
};

static const struct op_attr gemm_attrs[] = {
	{"alpha", RBK_ATTR_FLOAT, false},
	{"beta", RBK_ATTR_FLOAT, false},
	{"transA", RBK_ATTR_INT, false},
	{"transB", RBK_ATTR_INT, false},
	{0},
};

const struct op op_gemm = {
	.kind = OP_GEMM,
	.family = OP_FAMILY_GEMM,
	.name = "Gemm",
	.opset = 13,
	OP_ROW_OF_ONE_CLASS(2, 3, OP_ALL_FLOATS),
	.splits_rows = true,
	.takes_activation = true,
	.attrs = gemm_attrs,
	.infer = gemm_infer,
	.cost = gemm_cost,
};
