/* SPDX-License-Identifier: MIT */
/*
 * The plain reference: operators on quantized tensors
 *
 * As in operators.c, the code works element by element. Sums are integers of 64 bits that wrap
 * around to 32 bits at the end. Requantization to bytes is in float32, as ONNX's definitions are
 * commonly computed, because ties depend on the precision.
 */
#include "reference/quantized.h"

#include <math.h>
#include <stdlib.h>

/* A tensor of any type, with its shape at this count. */
struct view {
	const void *data; /* NULL: absent */
	uint8_t dtype;
	unsigned int rank;
	uint32_t dims[RBK_MAX_RANK];
	uint64_t n;
};

static struct view view(const struct plan *plan, const struct node *node, unsigned int i,
			uint32_t count, const void *const *in)
{
	struct view v = {.n = 1};

	if (i >= node->n_in || !in[i])
		return v;
	v.data = in[i];
	v.dtype = plan->tensors[node->in[i]].dtype;
	v.rank = plan->tensors[node->in[i]].shape.rank;
	for (unsigned int d = 0; d < v.rank; d++) {
		v.dims[d] = shape_dim(&plan->tensors[node->in[i]].shape, d, count);
		v.n *= v.dims[d];
	}
	return v;
}

/* Return element @i; 0 if the tensor is absent, its only element if it has one. */
static int64_t integer(const struct view *v, uint64_t i)
{
	if (!v->data)
		return 0;
	if (v->n == 1)
		i = 0;
	switch (v->dtype) {
	case RBK_DTYPE_I8:
		return ((const int8_t *)v->data)[i];
	case RBK_DTYPE_U8:
		return ((const uint8_t *)v->data)[i];
	case RBK_DTYPE_I32:
		return ((const int32_t *)v->data)[i];
	}
	abort();
}

static float real(const struct view *v, uint64_t i)
{
	return ((const float *)v->data)[v->n == 1 ? 0 : i];
}

static void store_byte(void *out, uint64_t i, uint8_t dtype, float value, int64_t zero)
{
	const double least = dtype == RBK_DTYPE_I8 ? -128 : 0;
	double rounded = (double)rintf(value) + (double)zero;

	if (!(rounded > least))
		rounded = least;
	if (rounded > least + 255)
		rounded = least + 255;
	((uint8_t *)out)[i] = (uint8_t)(int64_t)rounded;
}

/* Return the index of the scale of element @i of @x. */
static uint64_t scale_of(const union op_params *params, const struct view *x, uint64_t i)
{
	const unsigned int axis = params->quantize.axis;
	uint64_t inner = 1, blocks;

	if (params->quantize.block == 0)
		return 0;
	for (unsigned int d = axis + 1; d < x->rank; d++)
		inner *= x->dims[d];
	if (!params->quantize.is_blocked)
		return i / inner % x->dims[axis];
	blocks = (x->dims[axis] + params->quantize.block - 1) / params->quantize.block;
	return (i / inner / x->dims[axis] * blocks +
		i / inner % x->dims[axis] / params->quantize.block) *
		       inner +
	       i % inner;
}

static void run_dynamic(const struct view *x, void *const *out)
{
	float least = 0, most = 0, scale;
	uint8_t zero;

	for (uint64_t i = 0; i < x->n; i++) {
		const float value = ((const float *)x->data)[i];

		least = value < least ? value : least;
		most = value > most ? value : most;
	}
	scale = (most - least) / 255.0f;
	scale = scale > 0 ? scale : 1;
	store_byte(&zero, 0, RBK_DTYPE_U8, -least / scale, 0);
	*(float *)out[1] = scale;
	*(uint8_t *)out[2] = zero;
	for (uint64_t i = 0; i < x->n; i++)
		store_byte(out[0], i, RBK_DTYPE_U8, ((const float *)x->data)[i] / scale, zero);
}

/* Scales and zero points that convert a sum to bytes; absent where the output is the sum. */
struct requantize {
	struct view a_scale, b_scale, y_scale, y_zero;
	uint8_t dtype;
};

static void store_sum(const struct requantize *q, void *out, uint64_t i, uint64_t sum, uint64_t row,
		      uint64_t column)
{
	const int32_t wrapped = (int32_t)(uint32_t)sum;

	if (q->dtype == RBK_DTYPE_I32)
		((int32_t *)out)[i] = wrapped;
	else
		store_byte(out, i, q->dtype,
			   (float)wrapped * (real(&q->a_scale, row) * real(&q->b_scale, column) /
					     real(&q->y_scale, 0)),
			   integer(&q->y_zero, 0));
}

static void run_matmul(const struct view *a, const struct view *b, const struct view *a_zero,
		       const struct view *b_zero, const struct requantize *q, void *out)
{
	const uint32_t k = a->dims[a->rank - 1];
	const uint32_t m = a->rank > 1 ? a->dims[a->rank - 2] : 1;
	const uint32_t n = b->rank > 1 ? b->dims[b->rank - 1] : 1;
	const unsigned int a_front = a->rank > 2 ? a->rank - 2 : 0;
	const unsigned int b_front = b->rank > 2 ? b->rank - 2 : 0;
	const unsigned int front = a_front > b_front ? a_front : b_front;
	uint64_t batches = 1;

	for (unsigned int d = 0; d < front; d++) {
		const uint32_t a_dim = d + a_front >= front ? a->dims[d + a_front - front] : 1;
		const uint32_t b_dim = d + b_front >= front ? b->dims[d + b_front - front] : 1;

		batches *= a_dim > b_dim ? a_dim : b_dim;
	}
	for (uint64_t batch = 0; batch < batches; batch++) {
		uint64_t a_at = 0, b_at = 0, a_stride = 1, b_stride = 1, rest = batch;

		for (unsigned int d = front; d-- > 0;) {
			const uint32_t a_dim =
				d + a_front >= front ? a->dims[d + a_front - front] : 1;
			const uint32_t b_dim =
				d + b_front >= front ? b->dims[d + b_front - front] : 1;
			const uint32_t dim = a_dim > b_dim ? a_dim : b_dim;

			a_at += rest % dim % a_dim * a_stride;
			b_at += rest % dim % b_dim * b_stride;
			a_stride *= a_dim;
			b_stride *= b_dim;
			rest /= dim;
		}
		for (uint32_t i = 0; i < m; i++)
			for (uint32_t j = 0; j < n; j++) {
				uint64_t sum = 0;

				for (uint32_t p = 0; p < k; p++)
					sum += (uint64_t)((integer(a, (a_at * m + i) * k + p) -
							   integer(a_zero, i)) *
							  (integer(b, (b_at * k + p) * n + j) -
							   integer(b_zero, j)));
				store_sum(q, out, (batch * m + i) * n + j, sum, i, j);
			}
	}
}

/* Return the height of an image; an image of one dimension has height 1. */
static uint32_t height(const struct view *v)
{
	return v->rank == 4 ? v->dims[2] : 1;
}

static void run_conv(const union op_params *params, const struct view *x, const struct view *w,
		     const struct view *x_zero, const struct view *w_zero, const struct view *bias,
		     const struct requantize *q, const struct view *y, void *out)
{
	const uint32_t channels = w->dims[1], per_group = w->dims[0] / params->window.group;
	const uint32_t x_width = x->dims[x->rank - 1], y_width = y->dims[y->rank - 1];
	const uint32_t kh = params->window.kernel[1], kw = params->window.kernel[2];

	for (uint64_t i = 0; i < y->n; i++) {
		const uint32_t ox = (uint32_t)(i % y_width);
		const uint32_t oy = (uint32_t)(i / y_width % height(y));
		const uint32_t o = (uint32_t)(i / y_width / height(y) % y->dims[1]);
		const uint64_t batch = i / y_width / height(y) / y->dims[1];
		uint64_t sum = bias->data ? (uint64_t)integer(bias, o) : 0;

		for (uint32_t c = 0; c < channels; c++)
			for (uint32_t t = 0; t < kh * kw; t++) {
				const int64_t iy = (int64_t)oy * params->window.stride[1] +
						   (int64_t)(t / kw) * params->window.dilation[1] -
						   params->window.pad_begin[1];
				const int64_t ix = (int64_t)ox * params->window.stride[2] +
						   (int64_t)(t % kw) * params->window.dilation[2] -
						   params->window.pad_begin[2];
				const uint64_t channel =
					batch * x->dims[1] + o / per_group * channels + c;

				if (iy < 0 || iy >= height(x) || ix < 0 || ix >= x_width)
					continue;
				sum += (uint64_t)((integer(x, (channel * height(x) + (uint64_t)iy) *
									      x_width +
								      (uint64_t)ix) -
						   integer(x_zero, 0)) *
						  (integer(w,
							   ((uint64_t)o * channels + c) * kh * kw +
								   t) -
						   integer(w_zero, o)));
			}
		/* The scale of b is that of the weights. */
		store_sum(q, out, i, sum, 0, o);
	}
}

static void run_nbits(const union op_params *params, const struct view *a, const struct view *b,
		      const struct view *scales, const struct view *zeros, const struct view *bias,
		      float *out)
{
	const uint32_t k = a->dims[a->rank - 1], n = params->nbits.n, block = params->nbits.block;
	const uint64_t blocks = ((uint64_t)k + block - 1) / block;
	const uint8_t *bytes = b->data;

	for (uint64_t i = 0; i < a->n / k; i++)
		for (uint64_t j = 0; j < n; j++) {
			double sum = bias->data ? (double)((const float *)bias->data)[j] : 0;

			for (uint64_t p = 0; p < k; p++) {
				const uint64_t at = j * blocks + p / block;
				const uint8_t byte = bytes[(at * block + p % block) / 2];
				double zero = 8;

				if (zeros->data && zeros->dtype == RBK_DTYPE_U8)
					zero = ((const uint8_t *)
							zeros->data)[j * ((blocks + 1) / 2) +
								     p / block / 2] >>
						       (p / block % 2 ? 4 : 0) &
					       15;
				else if (zeros->data)
					zero = (double)((const float *)zeros->data)[at];
				sum += (double)((const float *)a->data)[i * k + p] *
				       ((double)(byte >> (p % 2 ? 4 : 0) & 15) - zero) *
				       (double)((const float *)scales->data)[at];
			}
			out[i * n + j] = (float)sum;
		}
}

bool reference_quantized(const struct plan *plan, const struct node *node, uint32_t count,
			 const void *const *in, void *const *out)
{
	struct view v[9], y = {.n = 1, .rank = plan->tensors[node->out[0]].shape.rank};
	struct requantize q = {.dtype = plan->tensors[node->out[0]].dtype};

	for (unsigned int i = 0; i < 9; i++)
		v[i] = view(plan, node, i, count, in);
	for (unsigned int d = 0; d < y.rank; d++) {
		y.dims[d] = shape_dim(&plan->tensors[node->out[0]].shape, d, count);
		y.n *= y.dims[d];
	}
	switch (node->op->kind) {
	case OP_QUANTIZE_LINEAR:
		for (uint64_t i = 0; i < y.n; i++) {
			const uint64_t s = scale_of(&node->params, &v[0], i);

			store_byte(out[0], i, q.dtype, real(&v[0], i) / real(&v[1], s),
				   integer(&v[2], s));
		}
		return true;
	case OP_DEQUANTIZE_LINEAR:
		for (uint64_t i = 0; i < y.n; i++) {
			const uint64_t s = scale_of(&node->params, &v[0], i);

			((float *)out[0])[i] =
				(float)(int32_t)(uint32_t)(integer(&v[0], i) - integer(&v[2], s)) *
				real(&v[1], s);
		}
		return true;
	case OP_DYNAMIC_QUANTIZE_LINEAR:
		run_dynamic(&v[0], out);
		return true;
	case OP_MATMUL_INTEGER:
		run_matmul(&v[0], &v[1], &v[2], &v[3], &q, out[0]);
		return true;
	case OP_QLINEAR_MATMUL:
		q = (struct requantize){v[1], v[4], v[6], v[7], q.dtype};
		run_matmul(&v[0], &v[3], &v[2], &v[5], &q, out[0]);
		return true;
	case OP_CONV_INTEGER:
		run_conv(&node->params, &v[0], &v[1], &v[2], &v[3], &v[8], &q, &y, out[0]);
		return true;
	case OP_QLINEAR_CONV:
		q = (struct requantize){v[1], v[4], v[6], v[7], q.dtype};
		run_conv(&node->params, &v[0], &v[3], &v[2], &v[5], &v[8], &q, &y, out[0]);
		return true;
	case OP_MATMUL_NBITS:
		run_nbits(&node->params, &v[0], &v[1], &v[2], &v[3], &v[5], out[0]);
		return true;
	default:
		return false;
	}
}
