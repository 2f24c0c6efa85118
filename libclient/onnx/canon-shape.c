/* SPDX-License-Identifier: MIT */
/*
 * Rules: the Reshape family, and operators lowered to Reshape and Transpose
 *
 * All of them become Reshape, which moves no elements. A shape that a model computes may depend on
 * the count. A constant shape may mean the count where it has a 1: a target whose other dimensions
 * have exactly the elements of one row can only mean "the same rows".
 */
#include <stdio.h>

#include "libclient/onnx/canon.h"

/* Count the elements of @shape; of one row of a task if the leading dimension is the count. */
static bool count_elems(const struct shape *shape, uint64_t *ret)
{
	uint64_t n = 1;

	for (unsigned int i = shape->dynamic; i < shape->rank; i++)
		if (__builtin_mul_overflow(n, (uint64_t)shape->dims[i], &n))
			return false;
	*ret = n;
	return true;
}

struct target {
	unsigned int n;
	/* -1: the remaining elements; 0: the input's dimension, unless allowzero */
	const int64_t *dims;
	const int64_t *rows; /* count factors of dims, or NULL */
	bool allowzero;
};

/*
 * Replace each 0 by the input's dimension. Return: the index of the dimension that is -1, or -1; -2
 * after a refusal.
 */
static int resolve_zeros(struct graph *graph, const struct shape *from, const struct target *target,
			 int64_t *dims, int64_t *rows)
{
	int open = -1;

	for (unsigned int i = 0; i < target->n; i++) {
		rows[i] = target->rows ? target->rows[i] : 0;
		dims[i] = target->dims[i];
		if (dims[i] == 0 && rows[i] == 0 && !target->allowzero) {
			if (i >= from->rank) {
				graph_refuse(graph,
					     "dimension %u would be that of the input, which has "
					     "%u",
					     i, from->rank);
				return -2;
			}
			if (i == 0 && from->dynamic)
				rows[i] = 1;
			else
				dims[i] = from->dims[i];
		} else if (dims[i] == -1 && rows[i] == 0 && open < 0) {
			open = (int)i;
		} else if (dims[i] < 0 || dims[i] > OP_MAX_DIM || (rows[i] && dims[i])) {
			graph_refuse(graph, "dimension %u of its shape is %lld", i,
				     (long long)dims[i]);
			return -2;
		}
	}
	return open;
}

/*
 * Resolve the shape for an input whose leading dimension is the count. The leading dimension gets
 * the elements that remain per count after the other dimensions.
 */
static bool resolve_dynamic(struct graph *graph, const struct shape *from, unsigned int n,
			    int64_t *dims, const int64_t *rows, int open, struct shape *ret)
{
	uint64_t elems, rest = 1;
	bool is_literal = open != 0 && rows[0] == 0;

	if (n == 0 || !count_elems(from, &elems)) {
		graph_refuse(graph, "%s cannot be reshaped", SHAPE_TEXT(from));
		return false;
	}
	for (unsigned int i = 1; i < n; i++) {
		if (rows[i]) {
			graph_refuse(graph,
				     "dimension %u of its shape depends on the count, expected "
				     "only the leading one to",
				     i);
			return false;
		}
		if ((int)i != open)
			rest *= (uint64_t)dims[i] & OP_MAX_DIM;
		if (rest > ONNX_MAX_WEIGHT_BYTES)
			rest = ONNX_MAX_WEIGHT_BYTES;
	}
	/* A target [1, -1] is ambiguous: it may mean the count, or one row of all elements. */
	if (is_literal && open > 0 && !graph->makes_batch) {
		graph_refuse(graph,
			     "its shape fixes the leading dimension to %lld, so another dimension "
			     "would depend on the count",
			     (long long)dims[0]);
		return false;
	}
	if (open > 0) {
		uint64_t lead = rows[0] ? (uint64_t)rows[0] : (uint64_t)dims[0];

		if (lead == 0 || rest == 0 || elems % (lead * rest)) {
			graph_refuse(graph, "%s cannot be reshaped to its shape", SHAPE_TEXT(from));
			return false;
		}
		dims[open] = (int64_t)(elems / (lead * rest));
		rest *= (uint64_t)dims[open];
	}
	if (rest == 0 || elems % rest || (is_literal && (uint64_t)dims[0] * rest != elems) ||
	    (rows[0] && (uint64_t)rows[0] * rest != elems)) {
		graph_refuse(graph, "%s cannot be reshaped to its shape", SHAPE_TEXT(from));
		return false;
	}
	*ret = (struct shape){.rank = (uint8_t)n, .dynamic = true, .dims = {graph->max_count}};
	for (unsigned int i = 1; i < n; i++)
		ret->dims[i] = (uint32_t)dims[i];
	if (elems / rest != 1) {
		graph_refuse(graph, "it would make %llu rows from each row",
			     (unsigned long long)(elems / rest));
		return false;
	}
	return true;
}

static bool resolve_fixed(struct graph *graph, const struct shape *from, unsigned int n,
			  int64_t *dims, const int64_t *rows, int open, struct shape *ret)
{
	uint64_t elems, product = 1;

	*ret = (struct shape){.rank = (uint8_t)n};
	if (!count_elems(from, &elems)) {
		graph_refuse(graph, "%s is too large", SHAPE_TEXT(from));
		return false;
	}
	for (unsigned int i = 0; i < n; i++) {
		if (rows[i]) {
			graph_refuse(graph,
				     "its shape depends on the count, but its input does not");
			return false;
		}
		if ((int)i != open)
			product *= (uint64_t)dims[i];
		if (product > ONNX_MAX_WEIGHT_BYTES)
			product = ONNX_MAX_WEIGHT_BYTES;
	}
	if (open >= 0 && product > 0 && elems % product == 0) {
		dims[open] = (int64_t)(elems / product);
		product *= (uint64_t)dims[open];
	} else if (open >= 0) {
		product = elems + 1;
	}
	if (product != elems) {
		graph_refuse(graph, "%s cannot be reshaped to its shape", SHAPE_TEXT(from));
		return false;
	}
	for (unsigned int i = 0; i < n; i++)
		ret->dims[i] = (uint32_t)dims[i];
	return true;
}

static bool resolve_shape(struct graph *graph, const struct shape *from,
			  const struct target *target, struct shape *ret)
{
	int64_t dims[RBK_MAX_RANK], rows[RBK_MAX_RANK];
	int open;

	if (target->n > RBK_MAX_RANK) {
		graph_refuse(graph, "its shape has %u dimensions, expected at most %u", target->n,
			     RBK_MAX_RANK);
		return false;
	}
	open = resolve_zeros(graph, from, target, dims, rows);
	if (open < -1)
		return false;
	return from->dynamic ? resolve_dynamic(graph, from, target->n, dims, rows, open, ret)
			     : resolve_fixed(graph, from, target->n, dims, rows, open, ret);
}

void canon_reshape_node(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0), *shape = canon_in(graph, 1);
	struct target target = {.allowzero = canon_int(graph, "allowzero", 0) != 0};
	struct shape to;

	target.dims = shape ? canon_known_sizes(graph, shape, "shape", &target.n, &target.rows)
			    : canon_ints(graph, "shape", &target.n);
	if (!shape && !target.dims)
		graph_refuse(graph, "its shape is missing");
	if (target.dims && !graph->is_refused && resolve_shape(graph, &x->shape, &target, &to))
		canon_out(graph, 0, canon_reshape(graph, x, &to));
}

void canon_flatten(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0);
	const struct shape *from = &x->shape;
	int64_t axis = canon_int(graph, "axis", 1), dims[2] = {1, 1}, rows[2] = {0, 0};
	const struct target target = {.n = 2, .dims = dims, .rows = rows, .allowzero = true};
	struct shape to;

	if (axis < -(int64_t)from->rank || axis > from->rank) {
		graph_refuse(graph, "axis %lld is not one of %u dimensions", (long long)axis,
			     from->rank);
		return;
	}
	if (axis < 0)
		axis += from->rank;
	for (unsigned int i = 0; i < from->rank; i++) {
		unsigned int side = i >= axis;

		if (i == 0 && from->dynamic) {
			rows[side] = 1;
			continue;
		}
		if (__builtin_mul_overflow(dims[side], (int64_t)from->dims[i], &dims[side]) ||
		    dims[side] > OP_MAX_DIM) {
			graph_refuse(graph, "%s is too large", SHAPE_TEXT(from));
			return;
		}
	}
	/* The count times the dimensions on its side. */
	for (unsigned int i = 0; i < 2; i++) {
		if (!rows[i])
			continue;
		rows[i] *= dims[i];
		dims[i] = 0;
	}
	if (resolve_shape(graph, from, &target, &to))
		canon_out(graph, 0, canon_reshape(graph, x, &to));
}

void canon_squeeze(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0);
	const struct shape *from = &x->shape;
	unsigned int n, axes[RBK_MAX_RANK];
	struct shape to = {0};
	const int64_t *given;
	uint32_t drop = 0;

	if (!canon_attr_or_input(graph, "axes", &given, &n) ||
	    (given && !canon_axes(graph, given, n, from->rank, axes)))
		return;
	for (unsigned int i = 0; given && i < n; i++)
		drop |= 1u << axes[i];
	for (unsigned int i = 0; i < from->rank; i++) {
		bool is_count = i == 0 && from->dynamic;
		bool is_one = !is_count && from->dims[i] == 1;

		if (!given && is_one)
			continue;
		if (drop >> i & 1) {
			if (is_one)
				continue;
			graph_refuse(graph, "dimension %u of %s is not 1", i, SHAPE_TEXT(from));
			return;
		}
		to.dims[to.rank++] = from->dims[i];
		if (is_count)
			to = shape_with_count(to, from);
	}
	/*
	 * The count may be one of the dimensions of 1 in the original model; this cannot be
	 * determined.
	 */
	if (!given && from->dynamic && !graph->makes_batch && graph->count_name == NULL)
		graph_refuse(graph, "it would remove every dimension of 1, and the count can be 1");
	canon_out(graph, 0, canon_reshape(graph, x, &to));
}

void canon_unsqueeze(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0);
	const struct shape *from = &x->shape;
	unsigned int n, rank, axes[RBK_MAX_RANK], next = 0;
	struct shape to = {0};
	const int64_t *given;
	uint32_t add = 0;

	if (!canon_attr_or_input(graph, "axes", &given, &n))
		return;
	rank = from->rank + n;
	if (!given || rank > RBK_MAX_RANK) {
		graph_refuse(graph,
			     "its axes are missing, or its output would have more than %u "
			     "dimensions",
			     RBK_MAX_RANK);
		return;
	}
	if (!canon_axes(graph, given, n, rank, axes))
		return;
	for (unsigned int i = 0; i < n; i++)
		add |= 1u << axes[i];
	if ((add & 1) && from->dynamic) {
		graph_refuse(graph, "the count would not be the leading dimension");
		return;
	}
	for (unsigned int i = 0; i < rank; i++) {
		bool is_new = add >> i & 1;

		to.dims[i] = is_new ? 1 : from->dims[next++];
		to.rank++;
		if (i == 0 && from->dynamic)
			to = shape_with_count(to, from);
	}
	canon_out(graph, 0, canon_reshape(graph, x, &to));
}

/* ---- DepthToSpace, SpaceToDepth ---- */

static struct tensor *reorder(struct graph *graph, struct tensor *tensor, const uint32_t *dims,
			      const int64_t *perm)
{
	struct shape shape = {.rank = 6};
	struct attr attr = ATTR_INTS("perm", perm, 6);

	memcpy(shape.dims, dims, 6 * sizeof(*dims));
	if (tensor->shape.dynamic)
		shape = shape_with_count(shape, &tensor->shape);
	tensor = canon_reshape(graph, tensor, &shape);
	return canon_unary(graph, "Transpose", tensor, &attr, 1);
}

void canon_depth_space(struct graph *graph)
{
	static const int64_t dcr[] = {0, 3, 4, 1, 5, 2}, crd[] = {0, 1, 4, 2, 5, 3};
	static const int64_t to_depth[] = {0, 3, 5, 1, 2, 4};
	bool gathers = !strcmp(graph->node->proto->op_type, "SpaceToDepth");
	struct tensor *x = canon_in(graph, 0), *y;
	int64_t block = canon_int(graph, "blocksize", 0);
	const char *mode = gathers ? "" : canon_string(graph, "mode", "DCR");
	const uint32_t *d = x->shape.dims;
	bool is_crd = !strcmp(mode, "CRD");
	struct shape shape = x->shape;
	uint32_t b = (uint32_t)block;

	if (x->shape.rank != 4 || block < 1 || block > 32768 ||
	    (gathers ? d[2] % b || d[3] % b : d[1] % (b * b) != 0) ||
	    (!gathers && !is_crd && strcmp(mode, "DCR"))) {
		graph_refuse(graph, "%s cannot be divided into blocks of %lld by %lld",
			     SHAPE_TEXT(&x->shape), (long long)block, (long long)block);
		return;
	}
	if (gathers) {
		y = reorder(graph, x, (uint32_t[]){d[0], d[1], d[2] / b, b, d[3] / b, b}, to_depth);
		shape.dims[1] = d[1] * b * b;
		shape.dims[2] = d[2] / b;
		shape.dims[3] = d[3] / b;
	} else {
		uint32_t depth = d[1] / (b * b);

		if (is_crd)
			y = reorder(graph, x, (uint32_t[]){d[0], depth, b, b, d[2], d[3]}, crd);
		else
			y = reorder(graph, x, (uint32_t[]){d[0], b, b, depth, d[2], d[3]}, dcr);
		shape.dims[1] = depth;
		shape.dims[2] = d[2] * b;
		shape.dims[3] = d[3] * b;
	}
	canon_out(graph, 0, canon_reshape(graph, y, &shape));
}
