/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Cholesky and TriangularSolve
 *
 * ONNX has neither. Cholesky is LAPACK's xPOTRF of the lower triangle, as in numpy.linalg.cholesky:
 * A = Y Y^T, where Y is lower triangular with a positive diagonal. The elements of A above its
 * diagonal are not read, and those of Y are 0. Where a leading minor of A is not positive, Y is NaN
 * on and below the diagonal from that column on.
 *
 * TriangularSolve is BLAS's xTRSM with alpha 1: op(A) Y = B, or Y op(A) = B if left is 0, where
 * op(A) is A or, with transA, its transpose. Only the triangle that "upper" names is read, and with
 * unit_diagonal the diagonal is not read, but 1.
 */
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

static int check_square(struct op_call *call, const struct op_tensor *a)
{
	const unsigned int rank = a->shape.rank;

	if (rank < 2 || !dim_is(shape_get(&a->shape, rank - 2), a->shape.dims[rank - 1]))
		return op_call_refuse(call,
				      "input \"%s\" is %s, expected square matrices: two last "
				      "dimensions that are equal and fixed",
				      a->name, SHAPE_TEXT(&a->shape));
	return 0;
}

static int cholesky_infer(struct op_call *call)
{
	const struct op_tensor *a = call->in[0];
	int r = check_square(call, a);

	if (r)
		return r;
	call->out_shape[0] = a->shape;
	call->mixes_rows = a->shape.rank == 2;
	return 0;
}

static void cholesky_cost(const struct op_call *call, struct cost *ret)
{
	const struct shape *a = &call->in[0]->shape;

	cost_elems(ret, a, a->dims[a->rank - 1] / 3 + 1u);
	cost_tensors(call, ret);
}

/* Check that @a has a matrix for each of those of @b, or one for all of them. */
static int check_batches(struct op_call *call, const struct op_tensor *a, const struct op_tensor *b)
{
	bool is_good = a->shape.rank == 2 || a->shape.rank == b->shape.rank;

	for (unsigned int i = 0; is_good && i + 2 < a->shape.rank; i++)
		is_good = dim_equal(shape_get(&a->shape, i), shape_get(&b->shape, i));
	if (is_good)
		return 0;
	return op_call_refuse(call,
			      "inputs \"%s\" %s and \"%s\" %s have different leading dimensions, "
			      "expected equal ones, or a first input of two dimensions",
			      a->name, SHAPE_TEXT(&a->shape), b->name, SHAPE_TEXT(&b->shape));
}

static int triangular_solve_infer(struct op_call *call)
{
	const struct op_tensor *a = call->in[0], *b = call->in[1];
	const unsigned int rank = b->shape.rank;
	bool left, upper, trans, unit;
	struct dim solved;
	int r;

	r = op_call_bool(call, "left", true, &left);
	if (!r)
		r = op_call_bool(call, "upper", false, &upper);
	if (!r)
		r = op_call_bool(call, "transA", false, &trans);
	if (!r)
		r = op_call_bool(call, "unit_diagonal", false, &unit);
	if (!r)
		r = check_square(call, a);
	if (r)
		return r;
	if (rank < 2)
		return op_call_refuse(call, "input \"%s\" is %s, expected two dimensions or more",
				      b->name, SHAPE_TEXT(&b->shape));
	solved = shape_get(&b->shape, left ? rank - 2 : rank - 1);
	if (!dim_is(solved, a->shape.dims[a->shape.rank - 1]))
		return op_call_refuse(
			call, "input \"%s\" is %s with %s %s, expected %u as in \"%s\" %s", b->name,
			SHAPE_TEXT(&b->shape), DIM_TEXT(solved), left ? "rows" : "columns",
			(unsigned int)a->shape.dims[a->shape.rank - 1], a->name,
			SHAPE_TEXT(&a->shape));
	r = check_batches(call, a, b);
	if (r)
		return r;
	call->params.triangular.left = left;
	call->params.triangular.upper = upper;
	call->params.triangular.trans = trans;
	call->params.triangular.unit = unit;
	call->out_shape[0] = b->shape;
	call->mixes_rows = left && rank == 2;
	return 0;
}

static void triangular_solve_cost(const struct op_call *call, struct cost *ret)
{
	const struct shape *a = &call->in[0]->shape;

	cost_elems(ret, &call->out_shape[0], a->dims[a->rank - 1]);
	cost_tensors(call, ret);
}

const struct op op_cholesky = {
	.kind = OP_CHOLESKY,
	.family = OP_FAMILY_GEMM,
	.name = "Cholesky",
	.opset = 1,
	OP_ROW_OF_CPU_CLASS(1, 1, OP_ALL_FLOATS),
	.splits_rows = true,
	.is_like_first = true,
	.attrs = op_no_attrs,
	.infer = cholesky_infer,
	.cost = cholesky_cost,
};

static const struct op_attr triangular_solve_attrs[] = {
	{"left", RBK_ATTR_INT, false},
	{"transA", RBK_ATTR_INT, false},
	{"unit_diagonal", RBK_ATTR_INT, false},
	{"upper", RBK_ATTR_INT, false},
	{0},
};

const struct op op_triangular_solve = {
	.kind = OP_TRIANGULAR_SOLVE,
	.family = OP_FAMILY_GEMM,
	.name = "TriangularSolve",
	.opset = 1,
	OP_ROW_OF_CPU_CLASS(2, 2, OP_ALL_FLOATS),
	.splits_rows = true,
	.attrs = triangular_solve_attrs,
	.infer = triangular_solve_infer,
	.cost = triangular_solve_cost,
};
