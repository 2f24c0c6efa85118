/* SPDX-License-Identifier: MIT */
/*
 * The plain reference: operators that slide a window
 *
 * Conv and pooling over depth, height and width, tap by tap, in double precision. Sums of products
 * use a wider type where the machine has one: tests compare them with float64 results.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "reference/windows.h"
#include "shm/dtype.h"

/* An operand with its shape at the count of this run: batch, channels, depth, height, width. */
struct volume {
	int64_t dims[2 + OP_MAX_SPATIAL];
	uint8_t dtype;
	const void *data;
};

static struct volume volume_of(const struct plan *plan, uint16_t tensor, uint32_t count,
			       const void *data)
{
	const struct shape *shape = &plan->tensors[tensor].shape;
	struct volume volume = {
		.dims = {1, 1, 1, 1, 1}, .dtype = plan->tensors[tensor].dtype, .data = data};

	for (unsigned int i = 0; i < shape->rank; i++)
		volume.dims[i < 2 ? i : i + 2 + OP_MAX_SPATIAL - shape->rank] =
			shape_dim(shape, i, count);
	return volume;
}

static int64_t elems(const struct volume *v)
{
	int64_t n = 1;

	for (unsigned int i = 0; i < 2 + OP_MAX_SPATIAL; i++)
		n *= v->dims[i];
	return n;
}

/* Return the elements of one channel. */
static int64_t plane(const struct volume *v)
{
	return v->dims[2] * v->dims[3] * v->dims[4];
}

static void coords_of(const struct volume *v, int64_t i, int64_t *ret)
{
	for (unsigned int d = 2 + OP_MAX_SPATIAL; d-- > 0; i /= v->dims[d])
		ret[d] = i % v->dims[d];
}

static int64_t offset(const struct volume *v, const int64_t *at)
{
	int64_t sum = 0;

	for (unsigned int i = 0; i < 2 + OP_MAX_SPATIAL; i++) {
		assert(at[i] >= 0 && at[i] < v->dims[i]);
		sum = sum * v->dims[i] + at[i];
	}
	return sum;
}

static double value(const struct volume *v, int64_t i)
{
	switch (v->dtype) {
	case RBK_DTYPE_I8:
		return ((const int8_t *)v->data)[i];
	case RBK_DTYPE_U8:
		return ((const uint8_t *)v->data)[i];
	case RBK_DTYPE_F64:
		return ((const double *)v->data)[i];
	default:
		return (double)((const float *)v->data)[i];
	}
}

/* Set element @i of the tensor that @v describes. */
static void set(const struct volume *v, void *out, int64_t i, double value)
{
	switch (v->dtype) {
	case RBK_DTYPE_I8:
		((int8_t *)out)[i] = (int8_t)value;
		return;
	case RBK_DTYPE_U8:
		((uint8_t *)out)[i] = (uint8_t)value;
		return;
	case RBK_DTYPE_F64:
		((double *)out)[i] = value;
		return;
	default:
		((float *)out)[i] = (float)value;
	}
}

/* Split tap number @tap of a window into its coordinates. */
static void taps_of(const union op_params *params, int64_t tap, int64_t *ret)
{
	for (unsigned int d = OP_MAX_SPATIAL; d-- > 0; tap /= params->window.kernel[d])
		ret[d] = tap % params->window.kernel[d];
}

static int64_t n_taps(const union op_params *params)
{
	int64_t n = 1;

	for (unsigned int d = 0; d < OP_MAX_SPATIAL; d++)
		n *= params->window.kernel[d];
	return n;
}

/*
 * Compute the input coordinates of a tap of output element @to. *ret_pads: true if the tap is at
 * most in the padding, not beyond it.
 * Return: true if the tap is inside the input.
 */
static bool window_at(const union op_params *params, const struct volume *x, const int64_t *to,
		      int64_t tap, int64_t *ret_from, bool *ret_pads)
{
	int64_t taps[OP_MAX_SPATIAL];
	bool inside = true;

	taps_of(params, tap, taps);
	*ret_pads = true;
	for (unsigned int d = 0; d < OP_MAX_SPATIAL; d++) {
		const int64_t at = to[2 + d] * params->window.stride[d] +
				   taps[d] * params->window.dilation[d] -
				   params->window.pad_begin[d];

		ret_from[2 + d] = at;
		inside &= at >= 0 && at < x->dims[2 + d];
		*ret_pads &= at < x->dims[2 + d] + params->window.pad_end[d];
	}
	return inside;
}

static void set_sum(const struct volume *y, void *out, int64_t i, long double sum,
		    const struct volume *bias, int64_t channel)
{
	set(y, out, i, (double)(sum + (bias->data ? (long double)value(bias, channel) : 0)));
}

/* Sum up the products of one tap over the channels of @w; the first ones are at @at and @weight. */
static long double sum_of_tap(const struct volume *x, int64_t at, const struct volume *w,
			      int64_t weight)
{
	const int64_t step = plane(x), weight_step = plane(w);
	long double sum = 0;

	for (int64_t c = 0; c < w->dims[1]; c++)
		sum += (long double)value(x, at + c * step) *
		       (long double)value(w, weight + c * weight_step);
	return sum;
}

static void run_conv(const union op_params *params, const struct volume *x, const struct volume *w,
		     const struct volume *bias, const struct volume *y, void *out)
{
	const int64_t per_group = y->dims[1] / params->window.group;

	for (int64_t i = 0; i < elems(y); i++) {
		int64_t to[5], from[5], weight[5];
		long double sum = 0;
		bool pads;

		coords_of(y, i, to);
		from[0] = to[0];
		from[1] = to[1] / per_group * w->dims[1];
		weight[0] = to[1];
		weight[1] = 0;
		for (int64_t tap = 0; tap < n_taps(params); tap++) {
			taps_of(params, tap, weight + 2);
			if (window_at(params, x, to, tap, from, &pads))
				sum += sum_of_tap(x, offset(x, from), w, offset(w, weight));
		}
		set_sum(y, out, i, sum, bias, to[1]);
	}
}

/* Add the products of @value_of_x with the channels of @w, of which the first is at @weight. */
static void add_tap(long double *sums, int64_t step, double value_of_x, const struct volume *w,
		    int64_t weight)
{
	const int64_t weight_step = plane(w);

	for (int64_t c = 0; c < w->dims[1]; c++)
		sums[c * step] +=
			(long double)value_of_x * (long double)value(w, weight + c * weight_step);
}

/* Scatter every input element to the output. */
static void run_conv_transpose(const union op_params *params, const struct volume *x,
			       const struct volume *w, const struct volume *bias,
			       const struct volume *y, void *out)
{
	const int64_t group = params->window.group, per_group = x->dims[1] / group;
	long double *sums = reference_alloc((size_t)elems(y) * sizeof(*sums));

	for (int64_t i = 0; i < elems(x); i++) {
		int64_t from[5], to[5], weight[5];

		coords_of(x, i, from);
		to[0] = from[0];
		to[1] = from[1] / per_group * w->dims[1];
		weight[0] = from[1];
		weight[1] = 0;
		for (int64_t tap = 0; tap < n_taps(params); tap++) {
			bool inside = true;

			taps_of(params, tap, weight + 2);
			for (unsigned int d = 0; d < OP_MAX_SPATIAL; d++) {
				to[2 + d] = from[2 + d] * params->window.stride[d] +
					    weight[2 + d] * params->window.dilation[d] -
					    params->window.pad_begin[d];
				inside &= to[2 + d] >= 0 && to[2 + d] < y->dims[2 + d];
			}
			if (inside)
				add_tap(sums + offset(y, to), plane(y), value(x, i), w,
					offset(w, weight));
		}
	}
	for (int64_t i = 0; i < elems(y); i++) {
		int64_t to[5];

		coords_of(y, i, to);
		set_sum(y, out, i, sums[i], bias, to[1]);
	}
	free(sums);
}

/* Return the index of the element at @at, in the requested order. */
static int64_t index_of(const union op_params *params, const struct volume *x, const int64_t *at)
{
	if (!params->window.is_column_major)
		return offset(x, at);
	return ((((at[0] * x->dims[1] + at[1]) * x->dims[4] + at[4]) * x->dims[3] + at[3]) *
		x->dims[2]) +
	       at[2];
}

static void run_max_pool(const union op_params *params, const struct volume *x,
			 const struct volume *y, void *out, int64_t *indices)
{
	for (int64_t i = 0; i < elems(y); i++) {
		double most = x->dtype == RBK_DTYPE_I8   ? -128
			      : x->dtype == RBK_DTYPE_U8 ? 0
							 : -INFINITY;
		int64_t to[5], from[5], best = -1;
		bool pads;

		coords_of(y, i, to);
		from[0] = to[0];
		from[1] = to[1];
		for (int64_t tap = 0; tap < n_taps(params); tap++) {
			if (!window_at(params, x, to, tap, from, &pads))
				continue;
			if (best < 0 || value(x, offset(x, from)) > most)
				best = index_of(params, x, from);
			most = fmax(most, value(x, offset(x, from)));
		}
		set(y, out, i, most);
		/* A window without elements has the index of its channel's first element. */
		if (indices)
			indices[i] = best >= 0 ? best
					       : (to[0] * x->dims[1] + to[1]) * x->dims[2] *
							 x->dims[3] * x->dims[4];
	}
}

static void run_sum_pool(enum op_kind kind, const union op_params *params, const struct volume *x,
			 const struct volume *y, void *out)
{
	for (int64_t i = 0; i < elems(y); i++) {
		int64_t to[5], from[5], n = 0;
		double sum = 0;
		bool pads;

		coords_of(y, i, to);
		from[0] = to[0];
		from[1] = to[1];
		for (int64_t tap = 0; tap < n_taps(params); tap++) {
			const bool inside = window_at(params, x, to, tap, from, &pads);
			const double v = inside ? value(x, offset(x, from)) : 0;

			n += params->window.includes_pad ? pads : inside;
			sum += kind == OP_LP_POOL ? pow(fabs(v), params->window.p) : v;
		}
		if (kind == OP_LP_POOL)
			set(y, out, i, pow(sum, 1.0 / params->window.p));
		else
			set(y, out, i, n ? sum / (double)n : 0);
	}
}

bool reference_windows(const struct plan *plan, const struct node *node, uint32_t count,
		       const void *const *in, void *const *out)
{
	const union op_params *params = &node->params;
	struct volume x, y, w, bias = {.data = NULL};

	switch (node->op->kind) {
	case OP_CONV:
		x = volume_of(plan, node->in[0], count, in[0]);
		w = volume_of(plan, node->in[1], count, in[1]);
		y = volume_of(plan, node->out[0], count, NULL);
		if (in[2])
			bias = volume_of(plan, node->in[2], count, in[2]);
		run_conv(params, &x, &w, &bias, &y, out[0]);
		return true;
	case OP_CONV_TRANSPOSE:
		x = volume_of(plan, node->in[0], count, in[0]);
		w = volume_of(plan, node->in[1], count, in[1]);
		y = volume_of(plan, node->out[0], count, NULL);
		if (in[2])
			bias = volume_of(plan, node->in[2], count, in[2]);
		run_conv_transpose(params, &x, &w, &bias, &y, out[0]);
		return true;
	case OP_MAX_POOL:
		x = volume_of(plan, node->in[0], count, in[0]);
		y = volume_of(plan, node->out[0], count, NULL);
		run_max_pool(params, &x, &y, out[0], out[1]);
		return true;
	case OP_AVERAGE_POOL:
	case OP_LP_POOL:
		x = volume_of(plan, node->in[0], count, in[0]);
		y = volume_of(plan, node->out[0], count, NULL);
		run_sum_pool(node->op->kind, params, &x, &y, out[0]);
		return true;
	default:
		return false;
	}
}
