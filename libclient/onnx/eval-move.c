/* SPDX-License-Identifier: MIT */
/*
 * Computing steps of constants: operators that move elements
 *
 * Nearly all of them are one walk over the result's indices, with strides into the input. The
 * dependence on the count (rows) moves with the elements.
 */
#include <string.h>

#include "libclient/onnx/eval.h"
#include "shm/number.h"

/* Copy @n elements of @in from @first on, in the walk's order, to @out from element @to on. */
static void move(const struct constant *in, int64_t first, struct eval_walk *walk,
		 struct constant *out, uint64_t to, uint64_t n)
{
	unsigned int size = onnx_dtype_size(in->dtype);
	char *data = (char *)out->data;

	for (uint64_t i = 0; i < n; i++, eval_step_walk(walk)) {
		int64_t at = first + walk->at[0];

		memcpy(data + (to + i) * size, (const char *)in->data + (uint64_t)at * size, size);
		if (in->rows)
			((int64_t *)out->rows)[to + i] = in->rows[at];
	}
}

/*
 * Compute row-major strides. They are 0 for a tensor without elements, whose dimensions may have
 * products that overflow.
 */
static void strides_of(const struct constant *in, int64_t *strides)
{
	int64_t stride = in->n_elems > 0;

	for (uint32_t i = in->rank; i-- > 0;) {
		strides[i] = stride;
		stride *= in->n_elems > 0 ? in->dims[i] : 0;
	}
}

/* Compute a whole result by one walk. */
static int move_all(struct graph *graph, struct step *step, int64_t first, struct eval_walk *walk)
{
	const struct constant *in = step->in[0]->constant;
	struct constant out;
	int r;

	walk->n_in = 1;
	r = eval_result(graph, in->dtype, walk->rank, walk->dims, in->rows != NULL, &out);
	if (r)
		return r;
	move(in, first, walk, &out, 0, out.n_elems);
	return eval_publish(graph, step->out[0], &out);
}

/* Keep the bytes: weights of any size may get another shape. */
int eval_reshape(struct graph *graph, struct step *step, int arg)
{
	struct constant out = *step->in[0]->constant;
	unsigned int n;
	const int64_t *dims = eval_ints(step, "shape", &n);
	uint64_t n_elems = out.n_elems;

	out.rank = n;
	for (unsigned int i = 0; i < n; i++) {
		if (dims[i] < 0)
			return EVAL_E_UNKNOWN;
		out.dims[i] = dims[i];
	}
	if (!constant_measure(&out) || out.n_elems != n_elems)
		return EVAL_E_UNKNOWN;
	return eval_publish(graph, step->out[0], &out);
}

int eval_transpose(struct graph *graph, struct step *step, int arg)
{
	const struct constant *in = step->in[0]->constant;
	int64_t strides[RBK_MAX_RANK];
	struct eval_walk walk = {.rank = in->rank};
	unsigned int n;
	const int64_t *perm = eval_ints(step, "perm", &n);

	if (n != in->rank)
		return EVAL_E_UNKNOWN;
	strides_of(in, strides);
	for (unsigned int i = 0; i < n; i++) {
		walk.dims[i] = in->dims[perm[i]];
		walk.strides[0][i] = strides[perm[i]];
	}
	return move_all(graph, step, 0, &walk);
}

int64_t eval_slice_range(int64_t dim, int64_t start, int64_t end, int64_t step, int64_t *ret_n)
{
	int64_t span;

	start = start < 0 ? start + dim : start;
	end = end < 0 ? end + dim : end;
	if (step > 0) {
		start = clamp_i64(start, 0, dim);
		end = clamp_i64(end, 0, dim);
		span = end - start;
	} else {
		start = clamp_i64(start, 0, dim - 1);
		end = clamp_i64(end, -1, dim - 1);
		span = start - end;
		step = step == INT64_MIN ? INT64_MAX : -step;
	}
	*ret_n = span <= 0 || dim == 0 ? 0 : (span - 1) / step + 1;
	return start;
}

int eval_slice(struct graph *graph, struct step *step, int arg)
{
	const struct constant *in = step->in[0]->constant;
	struct eval_walk walk = {.rank = in->rank};
	int64_t first = 0, strides[RBK_MAX_RANK];
	unsigned int n;
	const int64_t *starts = eval_ints(step, "starts", &n), *ends = eval_ints(step, "ends", &n);
	const int64_t *axes = eval_ints(step, "axes", &n), *steps = eval_ints(step, "steps", &n);

	strides_of(in, strides);
	memcpy(walk.dims, in->dims, in->rank * sizeof(*in->dims));
	memcpy(walk.strides[0], strides, sizeof(strides));
	for (unsigned int i = 0; i < n; i++) {
		int64_t axis = axes[i], start;

		start = eval_slice_range(in->dims[axis], starts[i], ends[i], steps[i],
					 &walk.dims[axis]);
		first += start * strides[axis];
		/* One element needs no stride, and the product might overflow. */
		walk.strides[0][axis] = walk.dims[axis] > 1 ? strides[axis] * steps[i] : 0;
	}
	return move_all(graph, step, first, &walk);
}

int eval_split(struct graph *graph, struct step *step, int arg)
{
	const struct constant *in = step->in[0]->constant;
	int64_t axis = eval_int(step, "axis", 0), first = 0;
	unsigned int n;
	const int64_t *sizes = eval_ints(step, "split", &n);
	int r;

	for (unsigned int i = 0; i < n; i++) {
		struct eval_walk walk = {.rank = in->rank, .n_in = 1};
		struct constant out;

		strides_of(in, walk.strides[0]);
		memcpy(walk.dims, in->dims, in->rank * sizeof(*in->dims));
		walk.dims[axis] = sizes[i];
		r = eval_result(graph, in->dtype, in->rank, walk.dims, in->rows != NULL, &out);
		if (r)
			return r;
		move(in, first * walk.strides[0][axis], &walk, &out, 0, out.n_elems);
		first += sizes[i];
		r = eval_publish(graph, step->out[i], &out);
		if (r)
			return r;
	}
	return 0;
}

/* For every index before the axis, each input fills a contiguous run of the result. */
int eval_concat(struct graph *graph, struct step *step, int arg)
{
	const struct constant *first = step->in[0]->constant;
	int64_t axis = eval_int(step, "axis", 0), dims[RBK_ONNX_MAX_RANK];
	uint64_t n_outer = 1, run = 0, to = 0;
	bool has_rows = false;
	struct constant out;
	unsigned int size = onnx_dtype_size(first->dtype);
	int r;

	memcpy(dims, first->dims, sizeof(dims));
	dims[axis] = 0;
	for (unsigned int i = 0; i < step->n_in; i++) {
		const struct constant *in = step->in[i]->constant;

		if (in->rank != first->rank || in->dtype != first->dtype)
			return EVAL_E_UNKNOWN;
		for (uint32_t j = 0; j < in->rank; j++)
			if (j != axis && in->dims[j] != first->dims[j])
				return EVAL_E_UNKNOWN;
		dims[axis] += in->dims[axis];
		has_rows |= in->rows != NULL;
	}
	r = eval_result(graph, first->dtype, first->rank, dims, has_rows, &out);
	if (r)
		return r;
	for (int64_t i = 0; i < axis; i++)
		n_outer *= (uint64_t)dims[i];
	for (unsigned int i = 0; out.n_elems > 0 && i < step->n_in; i++, to += run) {
		const struct constant *in = step->in[i]->constant;

		run = in->n_elems / n_outer;
		for (uint64_t j = 0; j < n_outer; j++) {
			uint64_t at = j * (out.n_elems / n_outer) + to;

			memcpy((char *)out.data + at * size,
			       (const char *)in->data + j * run * size, run * size);
			if (in->rows)
				memcpy((int64_t *)out.rows + at, in->rows + j * run,
				       run * sizeof(*in->rows));
		}
	}
	return eval_publish(graph, step->out[0], &out);
}

int eval_gather(struct graph *graph, struct step *step, int arg)
{
	const struct constant *in = step->in[0]->constant, *at = step->in[1]->constant;
	int64_t axis = eval_int(step, "axis", 0), dims[2 * RBK_ONNX_MAX_RANK];
	unsigned int size = onnx_dtype_size(in->dtype);
	uint64_t n_outer = 1, run = 1, to = 0;
	struct constant out;
	uint32_t rank = 0;
	int r;

	if ((at->dtype != RBK_ONNX_I64 && at->dtype != RBK_ONNX_I32) || at->rows)
		return EVAL_E_UNKNOWN;
	for (uint32_t i = 0; i < axis; i++) {
		dims[rank++] = in->dims[i];
		n_outer *= (uint64_t)in->dims[i];
	}
	for (uint32_t i = 0; i < at->rank; i++)
		dims[rank++] = at->dims[i];
	for (uint32_t i = (uint32_t)axis + 1; i < in->rank; i++) {
		dims[rank++] = in->dims[i];
		run *= (uint64_t)in->dims[i];
	}
	r = eval_result(graph, in->dtype, rank, dims, in->rows != NULL, &out);
	if (r)
		return r;
	for (uint64_t i = 0; out.n_elems > 0 && i < n_outer; i++) {
		for (uint64_t j = 0; j < at->n_elems; j++, to += run) {
			int64_t index = eval_load_int(at->dtype, at->data, j);
			uint64_t from;

			index += index < 0 ? in->dims[axis] : 0;
			if (index < 0 || index >= in->dims[axis])
				return EVAL_E_UNKNOWN;
			from = (i * (uint64_t)in->dims[axis] + (uint64_t)index) * run;
			memcpy((char *)out.data + to * size, (const char *)in->data + from * size,
			       run * size);
			if (in->rows)
				memcpy((int64_t *)out.rows + to, in->rows + from,
				       run * sizeof(*in->rows));
		}
	}
	return eval_publish(graph, step->out[0], &out);
}

/* The shape is complete; a 1 in it keeps the input's dimension. */
int eval_expand(struct graph *graph, struct step *step, int arg)
{
	const struct constant *in = step->in[0]->constant;
	struct eval_walk walk = {0};
	int64_t strides[RBK_MAX_RANK];
	unsigned int n;
	const int64_t *dims = eval_ints(step, "shape", &n);

	if (n < in->rank || n > RBK_MAX_RANK)
		return EVAL_E_UNKNOWN;
	walk.rank = n;
	strides_of(in, strides);
	for (unsigned int i = 0; i < n; i++) {
		uint32_t skip = n - in->rank;
		int64_t dim = i < skip ? 1 : in->dims[i - skip];

		walk.dims[i] = dim == 1 ? dims[i] : dim;
		walk.strides[0][i] = dim == 1 ? 0 : strides[i - skip];
	}
	return move_all(graph, step, 0, &walk);
}

/* Walk as if every dimension were two, with stride 0 for the outer one. */
int eval_tile(struct graph *graph, struct step *step, int arg)
{
	const struct constant *in = step->in[0]->constant;
	struct eval_walk walk = {.rank = 2 * in->rank, .n_in = 1};
	int64_t strides[RBK_MAX_RANK], dims[RBK_MAX_RANK];
	unsigned int n;
	const int64_t *repeats = eval_ints(step, "repeats", &n);
	struct constant out;
	int r;

	if (walk.rank > RBK_MAX_RANK || n != in->rank)
		return EVAL_E_UNKNOWN;
	strides_of(in, strides);
	for (unsigned int i = 0; i < n; i++) {
		walk.dims[2 * i] = repeats[i];
		walk.dims[2 * i + 1] = in->dims[i];
		walk.strides[0][2 * i + 1] = strides[i];
		if (__builtin_mul_overflow(in->dims[i], repeats[i], &dims[i]))
			return EVAL_E_UNKNOWN;
	}
	r = eval_result(graph, in->dtype, n, dims, in->rows != NULL, &out);
	if (r)
		return r;
	move(in, 0, &walk, &out, 0, out.n_elems);
	return eval_publish(graph, step->out[0], &out);
}
