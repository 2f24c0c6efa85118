/* SPDX-License-Identifier: MIT */
/* Rules: operators that only move elements, join or split them */
#include <stdio.h>

#include "libclient/onnx/canon.h"
#include "libclient/onnx/eval.h"
#include "shm/number.h"

void canon_transpose(struct graph *graph)
{
	struct tensor *x = canon_narrow_in(graph, 0);
	unsigned int n, rank = x->shape.rank;
	const int64_t *given = canon_ints(graph, "perm", &n);
	int64_t *perm = graph_take(graph, RBK_MAX_RANK * sizeof(*perm));
	bool moves = false;
	struct attr attr;
	uint32_t seen = 0;

	if (!perm)
		return;
	for (unsigned int i = 0; i < rank; i++) {
		perm[i] = given && i < n ? given[i] : (int64_t)rank - 1 - i;
		if (given && (n != rank || perm[i] < 0 || perm[i] >= rank || seen >> perm[i] & 1)) {
			graph_refuse(graph,
				     "attribute \"perm\" is not a permutation of %u dimensions",
				     rank);
			return;
		}
		seen |= 1u << perm[i];
		moves |= perm[i] != i;
	}
	if (moves && x->nibbles) {
		canon_out(graph, 0, nibbles_transpose(graph, x));
		return;
	}
	attr = ATTR_INTS("perm", perm, rank);
	canon_out(graph, 0,
		  moves ? canon_unary(graph, "Transpose", x, &attr, 1) : canon_nothing(graph, x));
}

/* ---- Slice ---- */

struct slice {
	unsigned int n;
	const int64_t *starts, *ends, *axes, *steps;
	const int64_t *end_rows; /* count factors of ends that depend on the count, or NULL */
};

static bool read_list(struct graph *graph, unsigned int i, const char *name, unsigned int n,
		      const int64_t **ret, const int64_t **ret_rows)
{
	struct tensor *in = canon_in(graph, i);
	const int64_t *rows = NULL;
	unsigned int n_in;

	*ret = NULL;
	if (!in)
		return true;
	*ret = canon_known_sizes(graph, in, name, &n_in, &rows);
	if (*ret && (n_in != n || (rows && !ret_rows))) {
		graph_refuse(graph,
			     rows ? "its %s depends on the count"
				  : "its %s has another length than its starts",
			     name);
		return false;
	}
	if (ret_rows)
		*ret_rows = rows;
	return *ret != NULL;
}

static bool read_slice(struct graph *graph, struct slice *slice)
{
	unsigned int n_ends, n_axes;

	if (graph->node->opset >= 10 && (!canon_in(graph, 1) || !canon_in(graph, 2))) {
		graph_refuse(graph, "its starts or its ends are missing");
		return false;
	}
	if (graph->node->opset >= 10) {
		slice->starts = canon_known_ints(graph, canon_in(graph, 1), "starts", &slice->n);
		return slice->starts &&
		       read_list(graph, 2, "ends", slice->n, &slice->ends, &slice->end_rows) &&
		       slice->ends && read_list(graph, 3, "axes", slice->n, &slice->axes, NULL) &&
		       read_list(graph, 4, "steps", slice->n, &slice->steps, NULL);
	}
	slice->starts = canon_ints(graph, "starts", &slice->n);
	slice->ends = canon_ints(graph, "ends", &n_ends);
	slice->axes = canon_ints(graph, "axes", &n_axes);
	if (slice->starts && slice->ends && n_ends == slice->n &&
	    (!slice->axes || n_axes == slice->n))
		return true;
	graph_refuse(graph, "its starts, ends and axes have different lengths");
	return false;
}

/* Return true if range @i covers all of dimension @axis, whatever the count. */
static bool is_whole(const struct shape *shape, unsigned int axis, const struct slice *slice,
		     unsigned int i)
{
	int64_t step = slice->steps ? slice->steps[i] : 1, end = slice->ends[i];
	int64_t rows = slice->end_rows ? slice->end_rows[i] : 0;

	if (step != 1 || slice->starts[i] != 0)
		return false;
	if (axis == 0 && shape->dynamic)
		return end >= INT32_MAX || (end >= 0 && rows >= 1);
	return rows == 0 && end >= shape->dims[axis];
}

/* Return the shape after slicing the @n dimensions in @lists. */
static struct shape sliced_shape(const struct shape *shape, unsigned int n, const int64_t *lists)
{
	struct shape left = *shape;
	int64_t n_left;

	for (unsigned int i = 0; i < n; i++) {
		const int64_t axis = lists[2 * RBK_MAX_RANK + i];

		eval_slice_range(shape->dims[axis], lists[i], lists[RBK_MAX_RANK + i],
				 lists[3 * RBK_MAX_RANK + i], &n_left);
		left.dims[axis] = (uint32_t)n_left;
	}
	return left;
}

void canon_slice(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0);
	int64_t *lists = graph_take(graph, 4 * RBK_MAX_RANK * sizeof(*lists));
	unsigned int n = 0, rank = x->shape.rank;
	struct slice slice = {0};
	struct shape left;
	uint32_t seen = 0;

	if (!lists || !read_slice(graph, &slice))
		return;
	for (unsigned int i = 0; i < slice.n; i++) {
		unsigned int axis;

		if (!canon_axis(graph, slice.axes ? slice.axes[i] : (int64_t)i, rank, &axis))
			return;
		if (seen >> axis & 1) {
			graph_refuse(graph, "axis %u is given twice", axis);
			return;
		}
		seen |= 1u << axis;
		if (is_whole(&x->shape, axis, &slice, i))
			continue;
		if (slice.end_rows && slice.end_rows[i]) {
			graph_refuse(graph, "its end depends on the count");
			return;
		}
		lists[n] = slice.starts[i];
		lists[RBK_MAX_RANK + n] = slice.ends[i];
		lists[2 * RBK_MAX_RANK + n] = axis;
		lists[3 * RBK_MAX_RANK + n] = slice.steps ? slice.steps[i] : 1;
		if (lists[3 * RBK_MAX_RANK + n] == 0) {
			graph_refuse(graph, "one of its steps is 0");
			return;
		}
		n++;
	}
	left = sliced_shape(&x->shape, n, lists);
	if (shape_is_empty(&left)) {
		canon_out(graph, 0, graph_nothing(graph, x->dtype, &left));
		return;
	}
	{
		const struct attr attrs[] = {
			ATTR_INTS("starts", lists, n),
			ATTR_INTS("ends", lists + RBK_MAX_RANK, n),
			ATTR_INTS("axes", lists + 2 * RBK_MAX_RANK, n),
			ATTR_INTS("steps", lists + 3 * RBK_MAX_RANK, n),
		};

		canon_out(graph, 0,
			  n ? canon_unary(graph, "Slice", x, attrs, 4) : canon_nothing(graph, x));
	}
}

/* ---- Split and Concat ---- */

/* Compute the sizes of equal parts; since opset 18 the last part may be smaller. */
static bool split_evenly(struct graph *graph, uint32_t dim, unsigned int n, int64_t *ret)
{
	uint32_t size = div_up(dim, n);

	if (dim % n && graph->node->opset < 18) {
		graph_refuse(graph, "a dimension of %u cannot be split into %u equal parts", dim,
			     n);
		return false;
	}
	for (unsigned int i = 0; i < n; i++) {
		ret[i] = size < dim ? size : dim;
		dim -= (uint32_t)ret[i];
	}
	return true;
}

/* Emit a Split. The catalogue's Split has no empty parts: they become constants. */
static void emit_split(struct graph *graph, struct tensor *x, unsigned int axis, int64_t *sizes,
		       unsigned int n)
{
	struct tensor *out[OP_MAX_OUTPUTS];
	unsigned int which[OP_MAX_OUTPUTS], n_parts = 0;
	struct attr attrs[2];

	for (unsigned int i = 0; i < n; i++) {
		struct shape part = x->shape;

		part.dims[axis] = (uint32_t)sizes[i];
		if (shape_is_empty(&part)) {
			canon_out(graph, i, graph_nothing(graph, x->dtype, &part));
			continue;
		}
		sizes[n_parts] = sizes[i];
		which[n_parts++] = i;
	}
	if (n_parts == 1)
		canon_out(graph, which[0], canon_nothing(graph, x));
	if (n_parts <= 1)
		return;
	attrs[0] = ATTR_INT("axis", axis);
	attrs[1] = ATTR_INTS("split", sizes, n_parts);
	graph_emit(graph, "Split", &x, 1, out, n_parts, attrs, 2);
	for (unsigned int i = 0; i < n_parts; i++)
		canon_out(graph, which[i], out[i]);
}

void canon_split(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0);
	unsigned int axis, n_given, n = graph->node->n_out;
	int64_t *sizes = graph_take(graph, OP_MAX_OUTPUTS * sizeof(*sizes)), sum = 0;
	const int64_t *given;

	if (!sizes || !canon_axis(graph, canon_int(graph, "axis", 0), x->shape.rank, &axis) ||
	    !canon_attr_or_input(graph, "split", &given, &n_given))
		return;
	if (canon_int(graph, "num_outputs", n) != n || (given && n_given != n) || n == 0 ||
	    n > OP_MAX_OUTPUTS) {
		graph_refuse(graph,
			     "it has %u output%s, but splits its input into another number of "
			     "parts",
			     n, onnx_plural(n));
		return;
	}
	if (n == 1 &&
	    (!given || (axis == 0 && x->shape.dynamic) || given[0] == x->shape.dims[axis])) {
		canon_out(graph, 0, canon_nothing(graph, x));
		return;
	}
	if (axis == 0 && x->shape.dynamic) {
		graph_refuse(graph, "it would split the rows of the batch");
		return;
	}
	if (!given && !split_evenly(graph, x->shape.dims[axis], n, sizes))
		return;
	for (unsigned int i = 0; i < n; i++) {
		if (given)
			sizes[i] = given[i];
		if (sizes[i] < 0 || sizes[i] > OP_MAX_DIM) {
			graph_refuse(graph, "part %u would have %lld elements", i,
				     (long long)sizes[i]);
			return;
		}
		sum += sizes[i];
	}
	if (sum != x->shape.dims[axis]) {
		graph_refuse(graph,
			     "the parts have %lld element%s together, but dimension %u has %u",
			     (long long)sum, onnx_plural((uint64_t)sum), axis, x->shape.dims[axis]);
		return;
	}
	emit_split(graph, x, axis, sizes, n);
}

static bool is_empty_along(const struct tensor *tensor, unsigned int axis)
{
	return !(axis == 0 && tensor->shape.dynamic) && tensor->shape.dims[axis] == 0;
}

/*
 * Check an input that the step does not contain, and whose shape the catalogue's rule does not see.
 * Return: false after a refusal.
 */
static bool fits_beside(struct graph *graph, const struct tensor *a, const struct tensor *b,
			unsigned int axis)
{
	bool fits = a->dtype == b->dtype;

	for (unsigned int i = 0; i < a->shape.rank; i++)
		fits &= i == axis || dim_equal(shape_get(&a->shape, i), shape_get(&b->shape, i));
	if (!fits)
		graph_refuse(graph, "input \"%s\" is %s %s, but input \"%s\" is %s %s", a->name,
			     rbk_onnx_dtype_name(a->dtype), SHAPE_TEXT(&a->shape), b->name,
			     rbk_onnx_dtype_name(b->dtype), SHAPE_TEXT(&b->shape));
	return fits;
}

/* Concat: more inputs than a step can have are joined by several steps. */
void canon_concat(struct graph *graph)
{
	struct tensor *in[OP_MAX_INPUTS], *first = canon_in(graph, 0);
	unsigned int axis, n = 0;
	struct attr attr;

	if (!first || !canon_axis(graph, canon_int(graph, "axis", 1), first->shape.rank, &axis))
		return;
	attr = ATTR_INT("axis", axis);
	for (uint32_t i = 0; i < graph->node->n_in && !graph->fatal; i++) {
		struct tensor *tensor = canon_in(graph, i);

		if (!tensor || tensor->shape.rank != first->shape.rank) {
			graph_refuse(graph,
				     "input %u does not have %u dimensions as the first input has",
				     i, first->shape.rank);
			return;
		}
		/* An example is a cache that is still empty. */
		if (is_empty_along(tensor, axis) && (n > 0 || i + 1 < graph->node->n_in)) {
			if (fits_beside(graph, tensor, first, axis))
				continue;
			return;
		}
		if (n == OP_MAX_INPUTS) {
			in[0] = graph_emit_1(graph, "Concat", in, n, &attr, 1);
			n = 1;
		}
		in[n++] = tensor;
	}
	if (graph->fatal || (in[0]->known && !fits_beside(graph, first, in[0], axis)))
		return;
	canon_out(graph, 0,
		  n > 1 ? graph_emit_1(graph, "Concat", in, n, &attr, 1)
			: canon_nothing(graph, in[0]));
}

/* ---- Pad, Expand, Tile ---- */

/* Set the attribute of Pad's filling: a float, or an integer of 64 bits; for float64 its bits. */
static bool pad_value(struct graph *graph, struct tensor *value, struct attr *ret)
{
	double number;
	int64_t bits;

	if (!canon_known_number(graph, value, "constant_value", &number))
		return false;
	memcpy(&bits, &number, sizeof(bits));
	if (value->dtype == RBK_ONNX_F64)
		*ret = ATTR_INT("int_value", bits);
	else if (eval_is_float(value->dtype))
		*ret = ATTR_FLOAT("value", (float)number);
	else
		*ret = ATTR_INT("int_value", eval_load_int(value->dtype, value->constant->data, 0));
	return true;
}

void canon_pad(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0), *value = canon_in(graph, 2);
	unsigned int n, n_axes, rank = x->shape.rank, axis;
	int64_t *pads = graph_zero(graph, 2 * RBK_MAX_RANK, sizeof(*pads));
	const char *mode = canon_string(graph, "mode", "constant");
	const int64_t *given, *axes = NULL;
	struct attr filling = ATTR_FLOAT("value", canon_float(graph, "value", 0));
	bool pads_any = false;
	uint32_t seen = 0;

	if (!pads || !canon_attr_or_input(graph, "pads", &given, &n))
		return;
	if (canon_in(graph, 3)) {
		axes = canon_known_ints(graph, canon_in(graph, 3), "axes", &n_axes);
		if (!axes)
			return;
	} else {
		n_axes = rank;
	}
	if (!given || n != 2 * n_axes || n_axes > rank) {
		graph_refuse(graph, "it pads %u ends, expected two of each of %u dimensions", n,
			     n_axes);
		return;
	}
	if (value && !pad_value(graph, value, &filling))
		return;
	for (unsigned int i = 0; i < n_axes; i++) {
		if (!canon_axis(graph, axes ? axes[i] : (int64_t)i, rank, &axis))
			return;
		if (seen >> axis & 1) {
			graph_refuse(graph, "axis %u is given twice", axis);
			return;
		}
		seen |= 1u << axis;
		pads[axis] = given[i];
		pads[rank + axis] = given[n_axes + i];
		pads_any |= given[i] || given[n_axes + i];
	}
	{
		const struct attr attrs[] = {
			ATTR_STRING("mode", mode),
			ATTR_INTS("pads", pads, 2 * rank),
			filling,
		};

		canon_out(graph, 0,
			  pads_any ? canon_unary(graph, "Pad", x, attrs, 3)
				   : canon_nothing(graph, x));
	}
}

/* Compute the shape of Expand of @x to @target. */
static bool expanded_shape(struct graph *graph, const struct tensor *x, const int64_t *target,
			   const int64_t *rows, unsigned int n, struct shape *ret)
{
	unsigned int rank = n > x->shape.rank ? n : x->shape.rank;
	struct shape shape = {.rank = (uint8_t)rank};

	if (rank > RBK_MAX_RANK) {
		graph_refuse(graph, "its output would have %u dimensions, which is too many", rank);
		return false;
	}
	for (unsigned int i = 0; i < rank; i++) {
		unsigned int skip_x = rank - x->shape.rank, skip_n = rank - n;
		bool is_count = i == skip_x && x->shape.dynamic;
		int64_t dim = i < skip_x ? 1 : x->shape.dims[i - skip_x];
		int64_t wanted = i < skip_n ? 1 : target[i - skip_n];
		int64_t per_count = rows && i >= skip_n ? rows[i - skip_n] : 0;
		bool is_same =
			is_count ? per_count == 1 && wanted == 0 : per_count == 0 && wanted == dim;
		bool is_one = per_count == 0 && wanted == 1;

		if (!is_same && !is_one &&
		    (is_count || dim != 1 || per_count || wanted < 0 || wanted > OP_MAX_DIM)) {
			graph_refuse(graph, "%s does not expand to its shape at dimension %u",
				     SHAPE_TEXT(&x->shape), i);
			return false;
		}
		if (is_count && i > 0) {
			graph_refuse(graph, "the count would not be the leading dimension");
			return false;
		}
		shape.dims[i] = (uint32_t)(is_same || is_one ? dim : wanted);
		if (is_count)
			shape = shape_with_count(shape, &x->shape);
	}
	*ret = shape;
	return true;
}

void canon_expand(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0);
	int64_t *dims = graph_take(graph, RBK_MAX_RANK * sizeof(*dims));
	const int64_t *target, *rows;
	struct shape shape;
	struct attr attr;
	unsigned int n;

	target = canon_known_sizes(graph, canon_in(graph, 1), "shape", &n, &rows);
	if (!target || !dims || !expanded_shape(graph, x, target, rows, n, &shape))
		return;
	if (shape_equal(&shape, &x->shape)) {
		canon_out(graph, 0, canon_nothing(graph, x));
		return;
	}
	/* Where 1 is requested the dimension is kept, and so is the count. */
	for (unsigned int i = 0; i < shape.rank; i++)
		dims[i] = i == 0 && shape.dynamic ? 1 : shape.dims[i];
	if (shape_is_empty(&shape)) {
		canon_out(graph, 0, graph_nothing(graph, x->dtype, &shape));
		return;
	}
	attr = ATTR_INTS("shape", dims, shape.rank);
	canon_out(graph, 0, canon_unary(graph, "Expand", x, &attr, 1));
}

/* Return a tensor without elements: @x, of which a dimension is 0, or repeated 0 times. */
static struct tensor *tiled_to_nothing(struct graph *graph, struct tensor *x,
				       const int64_t *repeats)
{
	struct shape shape = x->shape;

	for (unsigned int i = 0; i < shape.rank; i++) {
		if (repeats[i] > 0 && shape.dims[i] > OP_MAX_DIM / repeats[i]) {
			graph_refuse(graph, "it repeats dimension %u %lld times", i,
				     (long long)repeats[i]);
			return graph_unknown(graph);
		}
		shape.dims[i] *= (uint32_t)repeats[i];
	}
	return graph_nothing(graph, x->dtype, &shape);
}

void canon_tile(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0);
	int64_t *repeats = graph_take(graph, RBK_MAX_RANK * sizeof(*repeats));
	struct shape shape = x->shape;
	bool repeats_any = false;
	const int64_t *given;
	struct attr attr;
	unsigned int n;

	if (graph->node->opset < 6 || canon_in(graph, 2)) {
		graph_refuse(graph, "its inputs are those of opset 1, which is not supported");
		return;
	}
	given = canon_known_ints(graph, canon_in(graph, 1), "repeats", &n);
	if (!given || !repeats)
		return;
	if (n != x->shape.rank) {
		graph_refuse(graph, "it gives repeats for %u dimensions, but its input has %u", n,
			     x->shape.rank);
		return;
	}
	for (unsigned int i = 0; i < n; i++) {
		if (given[i] < 0 || given[i] > OP_MAX_DIM) {
			graph_refuse(graph, "it repeats dimension %u %lld times", i,
				     (long long)given[i]);
			return;
		}
		repeats[i] = given[i];
		repeats_any |= given[i] != 1;
		shape.dims[i] = given[i] == 0 ? 0 : shape.dims[i];
	}
	if (shape_is_empty(&shape)) {
		canon_out(graph, 0, tiled_to_nothing(graph, x, repeats));
		return;
	}
	attr = ATTR_INTS("repeats", repeats, n);
	canon_out(graph, 0,
		  repeats_any ? canon_unary(graph, "Tile", x, &attr, 1) : canon_nothing(graph, x));
}

/* ---- Gather and Scatter ---- */

void canon_gather(struct graph *graph)
{
	const char *op = graph->node->proto->op_type;
	struct tensor *in[] = {canon_in(graph, 0), canon_in(graph, 1)};
	struct attr attr;
	unsigned int axis;

	if (!strcmp(op, "GatherND")) {
		attr = ATTR_INT("batch_dims", canon_int(graph, "batch_dims", 0));
	} else {
		if (!canon_axis(graph, canon_int(graph, "axis", 0), in[0]->shape.rank, &axis))
			return;
		attr = ATTR_INT("axis", axis);
	}
	canon_out(graph, 0, graph_emit_1(graph, op, in, 2, &attr, 1));
}

void canon_scatter(struct graph *graph)
{
	const char *op = graph->node->proto->op_type;
	struct tensor *in[] = {canon_in(graph, 0), canon_in(graph, 1), canon_in(graph, 2)};
	struct attr attrs[2];
	unsigned int axis, n = 0;

	attrs[n++] = ATTR_STRING("reduction", canon_string(graph, "reduction", "none"));
	if (strcmp(op, "ScatterND")) {
		if (!canon_axis(graph, canon_int(graph, "axis", 0), in[0]->shape.rank, &axis))
			return;
		attrs[n++] = ATTR_INT("axis", axis);
		op = "ScatterElements";
	}
	/* Nothing is scattered. */
	if (shape_is_empty(&in[1]->shape) && shape_is_empty(&in[2]->shape)) {
		canon_out(graph, 0, canon_nothing(graph, in[0]));
		return;
	}
	canon_out(graph, 0, graph_emit_1(graph, op, in, 3, attrs, n));
}

/* Return the numbers 0, 1, 2 ... along @axis of @rank dimensions. */
static struct tensor *count_along(struct graph *graph, unsigned int rank, unsigned int axis,
				  uint32_t n)
{
	int64_t *numbers = graph_take(graph, (uint64_t)n * sizeof(*numbers));
	struct constant *constant = graph_zero(graph, 1, sizeof(*constant));

	if (!numbers || !constant)
		return graph_unknown(graph);
	for (uint32_t i = 0; i < n; i++)
		numbers[i] = i;
	*constant = (struct constant){.dtype = RBK_ONNX_I64, .rank = rank, .data = numbers};
	for (unsigned int i = 0; i < rank; i++)
		constant->dims[i] = i == axis ? n : 1;
	constant_measure(constant);
	return graph_constant(graph, constant);
}

/*
 * Check that the update has the cache's shape except along the axis, and that there is a first
 * index for each sequence.
 */
static bool fits_cache(struct graph *graph, const struct tensor *cache, const struct tensor *update,
		       const struct tensor *first, unsigned int axis)
{
	bool fits = axis > 0 && update->shape.rank == cache->shape.rank;

	for (unsigned int i = 0; fits && i < cache->shape.rank; i++)
		fits = i == axis ? update->shape.dims[i] <= cache->shape.dims[i]
				 : dim_equal(shape_get(&update->shape, i),
					     shape_get(&cache->shape, i));
	if (!fits) {
		graph_refuse(graph,
			     "its update %s does not fit into its cache %s along axis %u: all "
			     "other dimensions must be the same",
			     SHAPE_TEXT(&update->shape), SHAPE_TEXT(&cache->shape), axis);
		return false;
	}
	if (first && (first->dtype != RBK_ONNX_I64 || first->shape.rank != 1 ||
		      !dim_equal(shape_get(&first->shape, 0), shape_get(&cache->shape, 0)))) {
		graph_refuse(graph, "its write_indices are %s %s, expected an int64 for each of %s",
			     rbk_onnx_dtype_name(first->dtype), SHAPE_TEXT(&first->shape),
			     SHAPE_TEXT(&cache->shape));
		return false;
	}
	return true;
}

/*
 * Return the first index of each sequence, from which @n elements are written into @room. Negative
 * indices would count from the end in ScatterElements. Known indices are checked; negative ones
 * that tasks bind become @room, which is no valid index.
 */
static struct tensor *places_from(struct graph *graph, struct tensor *first, int64_t n,
				  int64_t room)
{
	const struct constant *known = first->constant;
	struct tensor *in[3];

	for (uint64_t i = 0; known && i < known->n_elems; i++) {
		const int64_t at = ((const int64_t *)known->data)[i];

		if (at >= 0 && at <= room - n)
			continue;
		graph_refuse(graph,
			     "its write_indices contain %lld at position %llu, but %lld "
			     "consecutive elements fit into the %lld places only from 0 to %lld",
			     (long long)at, (unsigned long long)i, (long long)n, (long long)room,
			     (long long)(room - n));
		return graph_unknown(graph);
	}
	if (known)
		return first;
	in[0] = canon_binary(graph, "Less", first, graph_scalar(graph, RBK_ONNX_I64, 0));
	in[1] = graph_scalar(graph, RBK_ONNX_I64, (double)room);
	in[2] = first;
	return graph_emit_1(graph, "Where", in, 3, NULL, 0);
}

/* TensorScatter: write updates consecutively into a cache, with a first index for each sequence. */
void canon_tensor_scatter(struct graph *graph)
{
	struct tensor *cache = canon_in(graph, 0), *update = canon_in(graph, 1);
	struct tensor *first = canon_in(graph, 2), *at, *in[3];
	const char *mode = canon_string(graph, "mode", "linear");
	const bool is_circular = !strcmp(mode, "circular");
	const struct shape *shape = &update->shape;
	int64_t *dims = graph_take(graph, RBK_MAX_RANK * sizeof(*dims));
	struct attr attrs[2], sizes;
	struct shape column;
	unsigned int axis;

	if (!dims || !canon_axis(graph, canon_int(graph, "axis", -2), cache->shape.rank, &axis))
		return;
	if (!is_circular && strcmp(mode, "linear")) {
		graph_refuse(graph, "its mode is \"%s\", expected \"linear\" or \"circular\"",
			     mode);
		return;
	}
	if (!fits_cache(graph, cache, update, first, axis))
		return;
	if (shape->dims[axis] > graph->n_evaluable) {
		graph_refuse(graph, "its update %s is too large", SHAPE_TEXT(shape));
		return;
	}
	if (shape_is_empty(shape)) {
		canon_out(graph, 0, canon_nothing(graph, cache));
		return;
	}
	graph->n_evaluable -= shape->dims[axis];
	at = count_along(graph, shape->rank, axis, shape->dims[axis]);
	if (first && !is_circular)
		first = places_from(graph, first, shape->dims[axis], cache->shape.dims[axis]);
	if (first) {
		column = first->shape;
		while (column.rank < shape->rank)
			column.dims[column.rank++] = 1;
		at = canon_binary(graph, "Add", canon_reshape(graph, first, &column), at);
	}
	if (is_circular)
		at = canon_binary(graph, "Mod", at,
				  graph_scalar(graph, RBK_ONNX_I64, cache->shape.dims[axis]));
	for (unsigned int i = 0; i < shape->rank; i++)
		dims[i] = i == 0 && shape->dynamic ? 1 : shape->dims[i];
	sizes = ATTR_INTS("shape", dims, shape->rank);
	in[0] = cache;
	in[1] = canon_unary(graph, "Expand", at, &sizes, 1);
	in[2] = update;
	attrs[0] = ATTR_INT("axis", axis);
	attrs[1] = ATTR_STRING("reduction", "none");
	canon_out(graph, 0, graph_emit_1(graph, "ScatterElements", in, 3, attrs, 2));
}

/* ---- OneHot and Trilu ---- */

/* OneHot: indices may have any type; the depth must be known, because the shape depends on it. */
void canon_one_hot(struct graph *graph)
{
	struct tensor *in[] = {canon_in(graph, 0), canon_in(graph, 2)};
	struct attr attrs[2];
	unsigned int axis;
	int64_t depth;

	if (!canon_known_whole(graph, canon_in(graph, 1), "depth", &depth) ||
	    !canon_axis(graph, canon_int(graph, "axis", -1), in[0]->shape.rank + 1u, &axis))
		return;
	if (depth < 1 || depth > OP_MAX_DIM) {
		graph_refuse(graph, "depth is %lld, expected a number of elements",
			     (long long)depth);
		return;
	}
	if (in[0]->dtype != RBK_ONNX_I64 && in[0]->dtype != RBK_ONNX_I32)
		in[0] = canon_cast(graph, in[0], RBK_ONNX_I64);
	attrs[0] = ATTR_INT("axis", axis);
	attrs[1] = ATTR_INT("depth", depth);
	canon_out(graph, 0, graph_emit_1(graph, "OneHot", in, 2, attrs, 2));
}

void canon_trilu(struct graph *graph)
{
	struct attr attrs[2];
	const int64_t *k = NULL;
	unsigned int n;

	if (canon_in(graph, 1)) {
		k = canon_known_ints(graph, canon_in(graph, 1), "k", &n);
		if (!k)
			return;
		if (n != 1) {
			graph_refuse(graph, "k has %u elements, expected one", n);
			return;
		}
	}
	attrs[0] = ATTR_INT("k", k ? k[0] : 0);
	attrs[1] = ATTR_INT("upper", canon_int(graph, "upper", 1) != 0);
	canon_out(graph, 0, canon_unary(graph, "Trilu", canon_in(graph, 0), attrs, 2));
}
