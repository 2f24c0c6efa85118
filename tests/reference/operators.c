/* SPDX-License-Identifier: MIT */
/*
 * The plain reference: operators
 *
 * Every operator visits its output element by element, by coordinates. Inputs are read at
 * coordinates as well; at() alone computes addresses. Sums are in double precision.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/elementwise.h"
#include "reference/gather.h"
#include "reference/quantized.h"
#include "reference/reference.h"
#include "reference/rows.h"
#include "reference/windows.h"
#include "shm/dtype.h"

/* A tensor of the node, with its shape at the count of this run. */
struct array {
	unsigned int rank;
	uint32_t dims[RBK_MAX_RANK];
	bool is_double;
	const void *data;
};

struct coords {
	uint32_t at[RBK_MAX_RANK];
};

static struct array array_of(const struct plan *plan, uint16_t tensor, uint32_t count,
			     const void *data)
{
	const struct shape *shape = &plan->tensors[tensor].shape;
	struct array array = {.rank = shape->rank,
			      .is_double = plan->tensors[tensor].dtype == RBK_DTYPE_F64,
			      .data = data};

	for (unsigned int i = 0; i < shape->rank; i++)
		array.dims[i] = shape_dim(shape, i, count);
	return array;
}

static uint64_t n_elems(const struct array *array)
{
	uint64_t n = 1;

	for (unsigned int i = 0; i < array->rank; i++)
		n *= array->dims[i];
	return n;
}

static uint64_t offset(const struct array *array, const struct coords *coords)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < array->rank; i++) {
		assert(coords->at[i] < array->dims[i]);
		sum = sum * array->dims[i] + coords->at[i];
	}
	return sum;
}

static double nth(const struct array *array, uint64_t i)
{
	return array->is_double ? ((const double *)array->data)[i]
				: (double)((const float *)array->data)[i];
}

static double at(const struct array *array, const struct coords *coords)
{
	return nth(array, offset(array, coords));
}

/* Set element @i of the tensor that @array describes. */
static void set(const struct array *array, void *out, uint64_t i, double value)
{
	if (array->is_double)
		((double *)out)[i] = value;
	else
		((float *)out)[i] = (float)value;
}

/* Return the coordinates of element @i in C order. */
static struct coords coords_of(const struct array *array, uint64_t i)
{
	struct coords coords = {{0}};

	for (unsigned int d = array->rank; d-- > 0; i /= array->dims[d])
		coords.at[d] = (uint32_t)(i % array->dims[d]);
	return coords;
}

/*
 * Set all but the last @skip coordinates of @array, given the first @out_rank coordinates of an
 * output that these dimensions were broadcast to.
 */
static void broadcast(struct coords *coords, const struct array *array, unsigned int skip,
		      const struct coords *out, unsigned int out_rank)
{
	unsigned int rank = array->rank > skip ? array->rank - skip : 0;

	for (unsigned int i = 0; i < rank; i++)
		coords->at[i] = array->dims[i] == 1 ? 0 : out->at[out_rank - rank + i];
}

static void run_matmul(const struct array *a, const struct array *b, const struct array *y,
		       void *out)
{
	uint32_t n_inner = a->dims[a->rank - 1];
	unsigned int batch_rank = y->rank - (a->rank > 1) - (b->rank > 1);

	for (uint64_t i = 0; i < n_elems(y); i++) {
		struct coords to = coords_of(y, i), from_a = {{0}}, from_b = {{0}};
		double sum = 0;

		broadcast(&from_a, a, 2, &to, batch_rank);
		broadcast(&from_b, b, 2, &to, batch_rank);
		if (a->rank > 1)
			from_a.at[a->rank - 2] = to.at[batch_rank];
		if (b->rank > 1)
			from_b.at[b->rank - 1] = to.at[y->rank - 1];
		for (uint32_t k = 0; k < n_inner; k++) {
			from_a.at[a->rank - 1] = k;
			from_b.at[b->rank > 1 ? b->rank - 2 : 0] = k;
			sum += at(a, &from_a) * at(b, &from_b);
		}
		set(y, out, i, sum);
	}
}

static void run_gemm(const union op_params *params, const struct array *a, const struct array *b,
		     const struct array *c, const struct array *y, void *out)
{
	bool trans_a = params->gemm.trans_a, trans_b = params->gemm.trans_b;
	uint32_t n_inner = a->dims[trans_a ? 0 : 1];

	for (uint64_t i = 0; i < n_elems(y); i++) {
		struct coords to = coords_of(y, i), from = {{0}};
		double sum = 0;

		for (uint32_t k = 0; k < n_inner; k++) {
			struct coords row = {{to.at[0], k}}, row_t = {{k, to.at[0]}};
			struct coords column = {{k, to.at[1]}}, column_t = {{to.at[1], k}};

			sum += at(a, trans_a ? &row_t : &row) *
			       at(b, trans_b ? &column_t : &column);
		}
		sum *= (double)params->gemm.alpha;
		/* Without beta the addend is not read. */
		if (c && params->gemm.beta != 0) {
			broadcast(&from, c, 0, &to, y->rank);
			sum += (double)params->gemm.beta * at(c, &from);
		}
		set(y, out, i, sum);
	}
}

static void run_cholesky(const struct array *a, void *out)
{
	const uint64_t n = a->dims[a->rank - 1], square = n * n;
	double *y = malloc(square * sizeof(*y));

	assert(y);
	for (uint64_t first = 0; first < n_elems(a); first += square) {
		memset(y, 0, square * sizeof(*y));
		for (uint64_t j = 0; j < n; j++)
			for (uint64_t i = j; i < n; i++) {
				double sum = nth(a, first + i * n + j);

				for (uint64_t k = 0; k < j; k++)
					sum -= y[i * n + k] * y[j * n + k];
				y[i * n + j] = i > j     ? sum / y[j * n + j]
					       : sum > 0 ? sqrt(sum)
							 : (double)NAN;
			}
		for (uint64_t i = 0; i < square; i++)
			set(a, out, first + i, y[i]);
	}
	free(y);
}

/* Element [i][j] of op(A), or of its transpose where the system is solved from the right. */
static double of_triangle(const union op_params *params, const struct array *a, uint64_t first,
			  uint64_t i, uint64_t j)
{
	const uint64_t n = a->dims[a->rank - 1];
	const bool swap = params->triangular.trans != !params->triangular.left;
	const uint64_t row = swap ? j : i, column = swap ? i : j;

	if (row == column && params->triangular.unit)
		return 1;
	if (params->triangular.upper ? row > column : row < column)
		return 0;
	return nth(a, first + row * n + column);
}

static void run_triangular_solve(const union op_params *params, const struct array *a,
				 const struct array *b, void *out)
{
	const uint64_t n = a->dims[a->rank - 1];
	const bool left = params->triangular.left;
	const bool is_lower =
		params->triangular.upper == (params->triangular.trans != !params->triangular.left);
	const uint64_t sides = b->dims[left ? b->rank - 1 : b->rank - 2], size = n * sides;
	double *x = malloc(n * sizeof(*x));

	assert(x);
	for (uint64_t side = 0; side < n_elems(b) / n; side++) {
		const uint64_t batch = side / sides;
		const uint64_t matrix = a->rank > 2 ? batch * n * n : 0;
		const uint64_t at = batch * size + side % sides * (left ? 1 : n);

		for (uint64_t t = 0; t < n; t++) {
			const uint64_t i = is_lower ? t : n - 1 - t;

			x[i] = nth(b, at + i * (left ? sides : 1));
			for (uint64_t s = 0; s < t; s++) {
				const uint64_t j = is_lower ? s : n - 1 - s;

				x[i] -= of_triangle(params, a, matrix, i, j) * x[j];
			}
			x[i] /= of_triangle(params, a, matrix, i, i);
			set(b, out, at + i * (left ? sides : 1), x[i]);
		}
	}
	free(x);
}

void reference_node(const struct plan *plan, const struct node *node, uint32_t count,
		    const void *const *in, void *const *out)
{
	struct array inputs[OP_MAX_INPUTS] = {{0}}, y;

	if (reference_quantized(plan, node, count, in, out) ||
	    reference_gather(plan, node, count, in, out))
		return;
	for (unsigned int i = 0; i < node->n_in; i++) {
		if (in[i])
			inputs[i] = array_of(plan, node->in[i], count, in[i]);
	}
	y = array_of(plan, node->out[0], count, NULL);
	switch (node->op->kind) {
	case OP_MATMUL:
		run_matmul(&inputs[0], &inputs[1], &y, out[0]);
		return;
	case OP_GEMM:
		run_gemm(&node->params, &inputs[0], &inputs[1], in[2] ? &inputs[2] : NULL, &y,
			 out[0]);
		return;
	case OP_CHOLESKY:
		run_cholesky(&inputs[0], out[0]);
		return;
	case OP_TRIANGULAR_SOLVE:
		run_triangular_solve(&node->params, &inputs[0], &inputs[1], out[0]);
		return;
	case OP_RESHAPE:
		memcpy(out[0], in[0], n_elems(&y) * dtype_bytes(plan->tensors[node->in[0]].dtype));
		return;
	default:
		if (reference_rows(plan, node, count, in, out) ||
		    reference_windows(plan, node, count, in, out))
			return;
		assert(node->op->kind >= OP_ADD && node->op->kind <= OP_BITWISE_NOT);
		reference_elementwise(plan, node, count, in, out[0]);
		return;
	}
}
