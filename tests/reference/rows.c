/* SPDX-License-Identifier: MIT */
/*
 * The plain reference: operators along rows
 *
 * Reductions, ArgMax, TopK, CumSum, Softmax, normalisations, RotaryEmbedding and Attention follow
 * their definitions, in double precision, with sums that are more precise than that. Integers are
 * exact.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/rows.h"
#include "shm/dtype.h"

/* An operand of the node, with its shape at the count of this run. */
struct view {
	bool present;
	unsigned int rank;
	uint64_t dims[RBK_MAX_RANK];
	uint8_t dtype;
	const void *data;
};

static struct view view_of(const struct plan *plan, uint16_t tensor, uint32_t count,
			   const void *data)
{
	const struct tensor *t = &plan->tensors[tensor];
	struct view view = {
		.present = true, .rank = t->shape.rank, .dtype = t->dtype, .data = data};

	for (unsigned int i = 0; i < view.rank; i++)
		view.dims[i] = shape_dim(&t->shape, i, count);
	return view;
}

/* Return the product of dimensions [from, to). */
static uint64_t range(const struct view *view, unsigned int from, unsigned int to)
{
	uint64_t n = 1;

	for (unsigned int i = from; i < to; i++)
		n *= view->dims[i];
	return n;
}

static uint64_t elems(const struct view *view)
{
	return range(view, 0, view->rank);
}

static double at(const struct view *view, uint64_t i)
{
	switch (view->dtype) {
	case RBK_DTYPE_F32:
		return (double)((const float *)view->data)[i];
	case RBK_DTYPE_F64:
		return ((const double *)view->data)[i];
	case RBK_DTYPE_I32:
		return ((const int32_t *)view->data)[i];
	case RBK_DTYPE_I64:
		return (double)((const int64_t *)view->data)[i];
	case RBK_DTYPE_I8:
		return ((const int8_t *)view->data)[i];
	default:
		return ((const uint8_t *)view->data)[i];
	}
}

static bool is_float(uint8_t dtype)
{
	return dtype == RBK_DTYPE_F32 || dtype == RBK_DTYPE_F64;
}

static void put(uint8_t dtype, void *out, uint64_t i, long double value)
{
	if (dtype == RBK_DTYPE_F64)
		((double *)out)[i] = (double)value;
	else
		((float *)out)[i] = (float)value;
}

static int64_t int_at(const struct view *view, uint64_t i)
{
	return view->dtype == RBK_DTYPE_I64 ? ((const int64_t *)view->data)[i]
					    : (int64_t)at(view, i);
}

static void put_int(uint8_t dtype, void *out, uint64_t i, int64_t value)
{
	switch (dtype) {
	case RBK_DTYPE_I64:
		((int64_t *)out)[i] = value;
		return;
	case RBK_DTYPE_I32:
		((int32_t *)out)[i] = (int32_t)value;
		return;
	default:
		((uint8_t *)out)[i] = (uint8_t)value;
	}
}

/* Return the larger or smaller number; NaN wins. */
static double better(double a, double b, bool larger)
{
	if (isnan(a) || isnan(b))
		return NAN;
	return larger ? fmax(a, b) : fmin(a, b);
}

static long double reduce_start(enum op_kind kind)
{
	if (kind == OP_REDUCE_MAX)
		return -INFINITY;
	return kind == OP_REDUCE_MIN ? INFINITY : kind == OP_REDUCE_PROD;
}

static long double reduce_term(enum op_kind kind, long double acc, long double x, long double most)
{
	switch (kind) {
	case OP_REDUCE_SUM_SQUARE:
	case OP_REDUCE_L2:
		return acc + x * x;
	case OP_REDUCE_L1:
		return acc + fabsl(x);
	case OP_REDUCE_LOG_SUM_EXP:
		return acc + expl(x - most);
	case OP_REDUCE_PROD:
		return acc * x;
	case OP_REDUCE_MAX:
	case OP_REDUCE_MIN:
		return better((double)acc, (double)x, kind == OP_REDUCE_MAX);
	default:
		return acc + x;
	}
}

static long double reduce_finish(enum op_kind kind, long double acc, long double most,
				 long double n)
{
	switch (kind) {
	case OP_REDUCE_MEAN:
		return acc / n;
	case OP_REDUCE_L2:
		return sqrtl(acc);
	case OP_REDUCE_LOG_SUM:
		return logl(acc);
	case OP_REDUCE_LOG_SUM_EXP:
		return isfinite(most) ? logl(acc) + most : most;
	default:
		return acc;
	}
}

/* Return the index of the result that element @i contributes to. */
static uint64_t reduced_to(const struct view *x, uint8_t axes, uint64_t i)
{
	uint64_t to = 0, coords[RBK_MAX_RANK];

	for (unsigned int d = x->rank; d-- > 0; i /= x->dims[d])
		coords[d] = i % x->dims[d];
	for (unsigned int d = 0; d < x->rank; d++)
		if (!(axes >> d & 1))
			to = to * x->dims[d] + coords[d];
	return to;
}

static void run_reduce_floats(const struct node *node, const struct view *x, const struct view *y,
			      void *out)
{
	const enum op_kind kind = node->op->kind;
	const uint8_t axes = node->params.reduce.axes;
	const uint64_t n = elems(y);
	long double *acc = reference_alloc(n * sizeof(*acc));
	double *most = reference_alloc(n * sizeof(*most));
	double terms = 1;

	for (unsigned int d = 0; d < x->rank; d++)
		terms *= axes >> d & 1 ? (double)x->dims[d] : 1;
	for (uint64_t i = 0; i < n; i++) {
		acc[i] = reduce_start(kind);
		most[i] = -INFINITY;
	}
	for (uint64_t i = 0; kind == OP_REDUCE_LOG_SUM_EXP && i < elems(x); i++) {
		const uint64_t to = reduced_to(x, axes, i);

		most[to] = better(most[to], at(x, i), true);
	}
	for (uint64_t i = 0; i < elems(x); i++) {
		const uint64_t to = reduced_to(x, axes, i);

		acc[to] = reduce_term(kind, acc[to], at(x, i), most[to]);
	}
	for (uint64_t i = 0; i < n; i++)
		put(x->dtype, out, i, reduce_finish(kind, acc[i], most[i], terms));
	free(acc);
	free(most);
}

static int64_t int_limit(uint8_t dtype, bool greatest)
{
	switch (dtype) {
	case RBK_DTYPE_I64:
		return greatest ? INT64_MAX : INT64_MIN;
	case RBK_DTYPE_I32:
		return greatest ? INT32_MAX : INT32_MIN;
	case RBK_DTYPE_I8:
		return greatest ? INT8_MAX : INT8_MIN;
	default:
		return greatest ? UINT8_MAX : 0;
	}
}

static void run_reduce_ints(const struct node *node, const struct view *x, const struct view *y,
			    void *out)
{
	const enum op_kind kind = node->op->kind;
	const uint64_t n = elems(y);
	int64_t *acc = reference_alloc(n * sizeof(*acc));

	for (uint64_t i = 0; i < n; i++)
		acc[i] = kind == OP_REDUCE_MAX || kind == OP_REDUCE_MIN
				 ? int_limit(x->dtype, kind == OP_REDUCE_MIN)
				 : kind == OP_REDUCE_PROD;
	for (uint64_t i = 0; i < elems(x); i++) {
		int64_t *to = &acc[reduced_to(x, node->params.reduce.axes, i)];
		const int64_t value = int_at(x, i);

		if (kind == OP_REDUCE_MAX)
			*to = value > *to ? value : *to;
		else if (kind == OP_REDUCE_MIN)
			*to = value < *to ? value : *to;
		else if (kind == OP_REDUCE_PROD)
			*to = (int64_t)((uint64_t)*to * (uint64_t)value);
		else
			*to = (int64_t)((uint64_t)*to + (uint64_t)value);
	}
	for (uint64_t i = 0; i < n; i++)
		put_int(x->dtype, out, i, acc[i]);
	free(acc);
}

/* A column along a dimension: elements base + i * step. */
struct column {
	uint64_t base, step, n;
};

static uint64_t n_columns(const struct view *x, unsigned int axis)
{
	return x->dims[axis] ? elems(x) / x->dims[axis] : 0;
}

static struct column column_of(const struct view *x, unsigned int axis, uint64_t i)
{
	const uint64_t inner = range(x, axis + 1, x->rank), n = x->dims[axis];

	return (struct column){i / inner * n * inner + i % inner, inner, n};
}

/* Return element @i exactly, whatever its type. */
static long double exact_at(const struct view *view, uint64_t i)
{
	return is_float(view->dtype) ? (long double)at(view, i) : (long double)int_at(view, i);
}

static void run_arg(const struct node *node, const struct view *x, int64_t *out)
{
	const long double sign = node->op->kind == OP_ARG_MAX ? 1 : -1;

	for (uint64_t i = 0; i < n_columns(x, node->params.arg.axis); i++) {
		const struct column c = column_of(x, node->params.arg.axis, i);
		uint64_t best = 0;

		for (uint64_t j = 1; j < c.n; j++) {
			const long double a = sign * exact_at(x, c.base + best * c.step);
			const long double b = sign * exact_at(x, c.base + j * c.step);

			if (b > a || (isnan(b) && !isnan(a)) ||
			    (node->params.arg.last && (a == b || (isnan(a) && isnan(b)))))
				best = j;
		}
		out[i] = (int64_t)best;
	}
}

/*
 * Return true if element @i comes before element @j. Numbers come before NaN; ties go to the lower
 * index.
 */
static bool top_k_before(const struct view *x, struct column c, bool largest, uint64_t i,
			 uint64_t j)
{
	const double a = at(x, c.base + i * c.step), b = at(x, c.base + j * c.step);
	int64_t whole_a, whole_b;

	if (is_float(x->dtype)) {
		if (isnan(a) || isnan(b))
			return isnan(a) == isnan(b) ? i < j : isnan(b);
		if (a != b)
			return largest ? a > b : a < b;
		return i < j;
	}
	whole_a = int_at(x, c.base + i * c.step);
	whole_b = int_at(x, c.base + j * c.step);
	if (whole_a != whole_b)
		return largest ? whole_a > whole_b : whole_a < whole_b;
	return i < j;
}

static void run_top_k(const struct node *node, const struct view *x, const struct view *y,
		      void *values, int64_t *indices)
{
	const unsigned int axis = node->params.top_k.axis;

	for (uint64_t i = 0; i < n_columns(x, axis); i++) {
		const struct column from = column_of(x, axis, i), to = column_of(y, axis, i);

		/* Element j's position is the number of elements that come before it. */
		for (uint64_t j = 0; j < from.n; j++) {
			uint64_t position = 0, at_y;

			for (uint64_t other = 0; other < from.n && position < to.n; other++)
				position +=
					top_k_before(x, from, node->params.top_k.largest, other, j);
			if (position >= to.n)
				continue;
			at_y = to.base + position * to.step;
			if (is_float(x->dtype))
				put(x->dtype, values, at_y, at(x, from.base + j * from.step));
			else
				put_int(x->dtype, values, at_y,
					int_at(x, from.base + j * from.step));
			indices[at_y] = (int64_t)j;
		}
	}
}

static void run_cum_sum(const struct node *node, const struct view *x, void *out)
{
	for (uint64_t i = 0; i < n_columns(x, node->params.cum_sum.axis); i++) {
		const struct column c = column_of(x, node->params.cum_sum.axis, i);
		uint64_t int_sum = 0;
		long double sum = 0;

		for (uint64_t j = 0; j < c.n; j++) {
			const uint64_t to =
				c.base + (node->params.cum_sum.reverse ? c.n - 1 - j : j) * c.step;

			if (node->params.cum_sum.exclusive && is_float(x->dtype))
				put(x->dtype, out, to, sum);
			else if (node->params.cum_sum.exclusive)
				put_int(x->dtype, out, to, (int64_t)int_sum);
			sum += at(x, to);
			int_sum += is_float(x->dtype) ? 0 : (uint64_t)int_at(x, to);
			if (!node->params.cum_sum.exclusive && is_float(x->dtype))
				put(x->dtype, out, to, sum);
			else if (!node->params.cum_sum.exclusive)
				put_int(x->dtype, out, to, (int64_t)int_sum);
		}
	}
}

/* Run Softmax or LogSoftmax. */
static void run_softmax(const struct node *node, const struct view *x, void *out)
{
	for (uint64_t i = 0; i < n_columns(x, node->params.softmax.axis); i++) {
		const struct column c = column_of(x, node->params.softmax.axis, i);
		double most = -INFINITY;
		long double sum = 0;

		for (uint64_t j = 0; j < c.n; j++)
			most = fmax(most, at(x, c.base + j * c.step));
		for (uint64_t j = 0; j < c.n; j++)
			sum += expl((long double)at(x, c.base + j * c.step) - most);
		for (uint64_t j = 0; j < c.n; j++) {
			const long double d = (long double)at(x, c.base + j * c.step) - most;

			put(x->dtype, out, c.base + j * c.step,
			    node->op->kind == OP_SOFTMAX ? expl(d) / sum : d - logl(sum));
		}
	}
}

static void run_lp_norm(const struct node *node, const struct view *x, void *out)
{
	for (uint64_t i = 0; i < n_columns(x, node->params.lp_norm.axis); i++) {
		const struct column c = column_of(x, node->params.lp_norm.axis, i);
		long double sum = 0;

		for (uint64_t j = 0; j < c.n; j++) {
			const long double value = at(x, c.base + j * c.step);

			sum += node->params.lp_norm.p == 1 ? fabsl(value) : value * value;
		}
		sum = node->params.lp_norm.p == 1 ? sum : sqrtl(sum);
		for (uint64_t j = 0; j < c.n; j++)
			put(x->dtype, out, c.base + j * c.step,
			    sum == 0 ? 0 : at(x, c.base + j * c.step) / sum);
	}
}

/* Return element @i of a tensor of one or @n elements; @fallback if it is absent. */
static double one_of(const struct view *view, uint64_t i, double fallback)
{
	if (!view->present)
		return fallback;
	return at(view, elems(view) == 1 ? 0 : i);
}

static void normalise(const struct view *x, uint64_t first, uint64_t len, bool rms, double epsilon,
		      long double *ret_mean, long double *ret_inv)
{
	long double mean = 0, var = 0;

	for (uint64_t i = 0; i < len && !rms; i++)
		mean += at(x, first + i) / (long double)len;
	for (uint64_t i = 0; i < len; i++)
		var += (at(x, first + i) - mean) * (at(x, first + i) - mean) / (long double)len;
	*ret_mean = mean;
	*ret_inv = 1 / sqrtl(var + epsilon);
}

static void run_layer_norm(const struct node *node, const struct view in[3], void *const *out)
{
	const struct view *x = &in[0];
	const uint64_t len = range(x, node->params.norm.axis, x->rank);
	const uint64_t rows = range(x, 0, node->params.norm.axis);
	long double mean, inv;

	for (uint64_t row = 0; row < rows; row++) {
		normalise(x, row * len, len, node->op->kind == OP_RMS_NORM,
			  (double)node->params.norm.epsilon, &mean, &inv);
		for (uint64_t i = 0; i < len; i++)
			put(x->dtype, out[0], row * len + i,
			    (at(x, row * len + i) - mean) * inv * one_of(&in[1], i, 1) +
				    one_of(&in[2], i, 0));
		if (node->n_out > 1 && out[1])
			((float *)out[1])[row] = (float)mean;
		if (node->n_out > 2 && out[2])
			((float *)out[2])[row] = (float)inv;
	}
}

static void run_group_norm(const struct node *node, const struct view in[3], void *out)
{
	const struct view *x = &in[0];
	const uint64_t spatial = range(x, 2, x->rank), groups = node->params.norm.groups;
	const uint64_t len = x->dims[1] / groups * spatial;
	long double mean, inv;

	for (uint64_t row = 0; row < x->dims[0] * groups; row++) {
		normalise(x, row * len, len, false, (double)node->params.norm.epsilon, &mean, &inv);
		for (uint64_t i = 0; i < len; i++) {
			const uint64_t c = (row * len + i) / spatial % x->dims[1];

			put(x->dtype, out, row * len + i,
			    (at(x, row * len + i) - mean) * inv * at(&in[1], c) + at(&in[2], c));
		}
	}
}

static void run_batch_norm(const struct node *node, const struct view in[5], void *out)
{
	const struct view *x = &in[0];
	const uint64_t spatial = range(x, 2, x->rank);

	for (uint64_t i = 0; i < elems(x); i++) {
		const uint64_t c = i / spatial % x->dims[1];

		put(x->dtype, out, i,
		    (at(x, i) - at(&in[3], c)) /
				    sqrtl(at(&in[4], c) + (long double)node->params.norm.epsilon) *
				    at(&in[1], c) +
			    at(&in[2], c));
	}
}

/* Layout of heads: in their own dimension, or side by side in the last dimension. */
struct heads {
	const struct view *view;
	uint64_t n, seq, size;
};

static struct heads heads_of(const struct view *view, uint64_t n)
{
	if (view->rank == 4)
		return (struct heads){view, view->dims[1], view->dims[2], view->dims[3]};
	return (struct heads){view, n, view->dims[1], view->dims[2] / n};
}

static uint64_t head_at(const struct heads *heads, uint64_t b, uint64_t h, uint64_t s, uint64_t d)
{
	if (heads->view->rank == 4)
		return ((b * heads->n + h) * heads->seq + s) * heads->size + d;
	return ((b * heads->seq + s) * heads->n + h) * heads->size + d;
}

static void run_rotary(const struct node *node, const struct view in[4], float *out)
{
	const struct heads x = heads_of(&in[0], node->params.rotary.heads);
	const uint64_t half = node->params.rotary.dim / 2;

	memcpy(out, in[0].data, elems(&in[0]) * sizeof(float));
	for (uint64_t i = 0; i < in[0].dims[0] * x.n * x.seq * half; i++) {
		const uint64_t pair = i % half, s = i / half % x.seq, h = i / half / x.seq % x.n;
		const uint64_t b = i / half / x.seq / x.n;
		const bool interleaved = node->params.rotary.interleaved;
		const uint64_t first = head_at(&x, b, h, s, interleaved ? 2 * pair : pair);
		const uint64_t second =
			head_at(&x, b, h, s, interleaved ? 2 * pair + 1 : pair + half);
		uint64_t angle = b * x.seq + s;
		double cosine, sine;

		if (in[3].present) {
			const int64_t position = int_at(&in[3], angle);

			angle = position < 0                         ? 0
				: position >= (int64_t)in[1].dims[0] ? in[1].dims[0] - 1
								     : (uint64_t)position;
		}
		cosine = at(&in[1], angle * half + pair);
		sine = at(&in[2], angle * half + pair);
		out[first] = (float)(at(&in[0], first) * cosine - at(&in[0], second) * sine);
		out[second] = (float)(at(&in[0], first) * sine + at(&in[0], second) * cosine);
	}
}

/*
 * Return element @d of key or value @j (input 1 or 2) of a head: past entries come first, then
 * present ones.
 */
static double cached(const struct view in[7], const struct heads *heads, unsigned int which,
		     uint64_t past, uint64_t b, uint64_t h, uint64_t j, uint64_t d)
{
	if (j < past)
		return at(&in[3 + which], ((b * heads->n + h) * past + j) * heads->size + d);
	return at(&in[which], head_at(heads, b, h, j - past, d));
}

/* Return true if the query attends to key @j; *ret is the mask's addend to the score. */
static bool key_counts(const struct node *node, const struct view in[7], const struct heads *q,
		       uint64_t past, uint64_t b, uint64_t h, uint64_t i, uint64_t j, double *ret)
{
	const struct view *mask = &in[3];
	int64_t offset = (int64_t)past;
	uint64_t index = 0;
	const uint64_t coords[4] = {b, h, i, j};

	*ret = 0;
	if (in[6].present) {
		const int64_t valid = int_at(&in[6], b);

		if ((int64_t)j >= valid)
			return false;
		if (past == 0)
			offset = valid - (int64_t)q->seq;
	}
	if (node->params.attention.causal && (int64_t)j > (int64_t)i + offset)
		return false;
	if (!mask->present)
		return true;
	if (j >= mask->dims[mask->rank - 1])
		return false;
	for (unsigned int d = 0; d < mask->rank; d++)
		index = index * mask->dims[d] +
			(mask->dims[d] == 1 ? 0 : coords[4 - mask->rank + d]);
	if (mask->dtype == RBK_DTYPE_BOOL)
		return at(mask, index) != 0;
	*ret = at(mask, index);
	return *ret != -INFINITY;
}

static void run_attention(const struct node *node, const struct view in[7], void *const *out)
{
	const struct heads q = heads_of(&in[0], node->params.attention.q_heads);
	const struct heads k = heads_of(&in[1], node->params.attention.kv_heads);
	const struct heads v = heads_of(&in[2], node->params.attention.kv_heads);
	const uint64_t past = in[4].present ? in[4].dims[2] : 0, total = past + k.seq;
	const double cap = (double)node->params.attention.softcap;
	const unsigned int mode = node->params.attention.qk_mode;
	/* Y has Q's layout, with the values' size. */
	const struct heads y = {&in[0], q.n, q.seq, v.size};
	double *scores = reference_alloc(total * sizeof(*scores));
	float *present[2] = {node->n_out > 1 ? out[1] : NULL, node->n_out > 2 ? out[2] : NULL};
	float *qk = node->n_out > 3 ? out[3] : NULL;

	for (uint64_t line = 0; line < in[0].dims[0] * q.n * q.seq; line++) {
		const uint64_t i = line % q.seq, h = line / q.seq % q.n, b = line / q.seq / q.n;
		const uint64_t kv = h / (q.n / k.n);
		double most = -INFINITY, sum = 0;

		for (uint64_t j = 0; j < total; j++) {
			double s = 0, add, capped;
			const bool in_it = key_counts(node, in, &q, past, b, h, i, j, &add);

			for (uint64_t d = 0; d < q.size; d++)
				s += at(&in[0], head_at(&q, b, h, i, d)) *
				     cached(in, &k, 1, past, b, kv, j, d);
			s *= (double)node->params.attention.scale;
			capped = cap > 0 ? tanh(s / cap) * cap : s;
			scores[j] = in_it ? capped + add : -INFINITY;
			most = fmax(most, scores[j]);
			if (qk)
				qk[line * total + j] = (float)(mode == 0   ? s
							       : mode == 1 ? capped
									   : scores[j]);
		}
		for (uint64_t j = 0; j < total; j++)
			sum += scores[j] == -INFINITY ? 0 : exp(scores[j] - most);
		for (uint64_t j = 0; j < total; j++) {
			scores[j] = scores[j] == -INFINITY ? 0 : exp(scores[j] - most) / sum;
			if (qk && mode == 3)
				qk[line * total + j] = (float)scores[j];
		}
		for (uint64_t d = 0; d < v.size; d++) {
			double value = 0;

			for (uint64_t j = 0; j < total; j++)
				if (scores[j] != 0)
					value += scores[j] * cached(in, &v, 2, past, b, kv, j, d);
			((float *)out[0])[head_at(&y, b, h, i, d)] = (float)value;
		}
	}
	for (unsigned int which = 1; which < 3; which++) {
		const struct heads *heads = which == 1 ? &k : &v;

		for (uint64_t i = 0;
		     present[which - 1] && i < in[0].dims[0] * heads->n * total * heads->size;
		     i++) {
			const uint64_t d = i % heads->size, line = i / heads->size;

			present[which - 1][i] =
				(float)cached(in, heads, which, past, line / total / heads->n,
					      line / total % heads->n, line % total, d);
		}
	}
	free(scores);
}

bool reference_rows(const struct plan *plan, const struct node *node, uint32_t count,
		    const void *const *in, void *const *out)
{
	struct view views[7] = {0}, y;

	for (unsigned int i = 0; i < node->n_in && i < 7; i++) {
		if (in[i])
			views[i] = view_of(plan, node->in[i], count, in[i]);
	}
	y = view_of(plan, node->out[0], count, NULL);
	switch (node->op->kind) {
	case OP_REDUCE_SUM:
	case OP_REDUCE_MEAN:
	case OP_REDUCE_SUM_SQUARE:
	case OP_REDUCE_L1:
	case OP_REDUCE_L2:
	case OP_REDUCE_LOG_SUM:
	case OP_REDUCE_LOG_SUM_EXP:
	case OP_REDUCE_PROD:
	case OP_REDUCE_MAX:
	case OP_REDUCE_MIN:
		if (is_float(views[0].dtype))
			run_reduce_floats(node, &views[0], &y, out[0]);
		else
			run_reduce_ints(node, &views[0], &y, out[0]);
		return true;
	case OP_ARG_MAX:
	case OP_ARG_MIN:
		run_arg(node, &views[0], out[0]);
		return true;
	case OP_TOP_K:
		run_top_k(node, &views[0], &y, out[0], out[1]);
		return true;
	case OP_CUM_SUM:
		run_cum_sum(node, &views[0], out[0]);
		return true;
	case OP_SOFTMAX:
	case OP_LOG_SOFTMAX:
		run_softmax(node, &views[0], out[0]);
		return true;
	case OP_LAYER_NORM:
	case OP_RMS_NORM:
		run_layer_norm(node, views, out);
		return true;
	case OP_INSTANCE_NORM:
	case OP_GROUP_NORM:
		run_group_norm(node, views, out[0]);
		return true;
	case OP_BATCH_NORM:
		run_batch_norm(node, views, out[0]);
		return true;
	case OP_LP_NORM:
		run_lp_norm(node, &views[0], out[0]);
		return true;
	case OP_ROTARY:
		run_rotary(node, views, out[0]);
		return true;
	case OP_ATTENTION:
		run_attention(node, views, out);
		return true;
	default:
		return false;
	}
}
