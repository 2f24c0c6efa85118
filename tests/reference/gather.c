/* SPDX-License-Identifier: MIT */
/*
 * The plain reference: operators that take indices, Trilu, and GridSample
 *
 * As in operators.c, the code works element by element, by coordinates. Updates are applied one
 * after another, in the order of their indices. All indices must be valid: each test defines the
 * effect of invalid indices itself.
 */
#include "reference/gather.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "shm/dtype.h"

struct view {
	const uint8_t *data;
	uint8_t dtype;
	uint64_t bytes; /* bytes of an element */
	unsigned int rank;
	uint32_t dims[RBK_MAX_RANK];
	uint64_t n;
};

struct coords {
	uint32_t at[2 * RBK_MAX_RANK];
};

static struct view view_of(const struct plan *plan, uint16_t tensor, uint32_t count,
			   const void *data)
{
	const struct tensor *t = &plan->tensors[tensor];
	struct view v = {
		.data = data,
		.dtype = t->dtype,
		.bytes = dtype_bytes(t->dtype),
		.rank = t->shape.rank,
		.n = shape_elems(&t->shape, count),
	};

	for (unsigned int i = 0; i < v.rank; i++)
		v.dims[i] = shape_dim(&t->shape, i, count);
	return v;
}

static struct coords coords_of(const struct view *v, uint64_t index)
{
	struct coords c = {{0}};

	for (unsigned int i = v->rank; i-- > 0;) {
		c.at[i] = (uint32_t)(index % v->dims[i]);
		index /= v->dims[i];
	}
	return c;
}

static uint64_t index_of(const struct view *v, const uint32_t *at)
{
	uint64_t index = 0;

	for (unsigned int i = 0; i < v->rank; i++) {
		assert(at[i] < v->dims[i]);
		index = index * v->dims[i] + at[i];
	}
	return index;
}

/* Return the index at @at of @v, into a dimension of @limit elements. */
static int64_t load(const struct view *v, const uint32_t *at, uint32_t limit)
{
	const uint64_t i = index_of(v, at);
	const int64_t index = v->dtype == RBK_DTYPE_I64 ? ((const int64_t *)v->data)[i]
							: ((const int32_t *)v->data)[i];

	return index < 0 ? index + limit : index;
}

static void gather(const union op_params *params, const struct view *x, const struct view *at,
		   const struct view *y, uint8_t *out)
{
	const unsigned int axis = params->gather.axis;

	for (uint64_t i = 0; i < y->n; i++) {
		struct coords to = coords_of(y, i), from = to;

		from.at[axis] = (uint32_t)load(at, to.at + axis, x->dims[axis]);
		memcpy(from.at + axis + 1, to.at + axis + at->rank,
		       (x->rank - axis - 1) * sizeof(to.at[0]));
		memcpy(out + i * y->bytes, x->data + index_of(x, from.at) * y->bytes, y->bytes);
	}
}

/*
 * Return the coordinates in @x for element @to: the first @batch coordinates of @to, the indices of
 * a row of @at, and the rest of @to.
 */
static struct coords point(const struct view *x, const struct view *at, unsigned int batch,
			   const struct coords *to)
{
	const unsigned int n = at->dims[at->rank - 1];
	struct coords index = *to, from = *to;

	for (unsigned int k = 0; k < n; k++) {
		index.at[at->rank - 1] = k;
		from.at[batch + k] = (uint32_t)load(at, index.at, x->dims[batch + k]);
	}
	memcpy(from.at + batch + n, to->at + at->rank - 1,
	       (x->rank - batch - n) * sizeof(to->at[0]));
	return from;
}

static void gather_nd(const union op_params *params, const struct view *x, const struct view *at,
		      const struct view *y, uint8_t *out)
{
	for (uint64_t i = 0; i < y->n; i++) {
		const struct coords to = coords_of(y, i);
		const struct coords from = point(x, at, params->gather.batch_dims, &to);

		memcpy(out + i * y->bytes, x->data + index_of(x, from.at) * y->bytes, y->bytes);
	}
}

static void gather_elements(const union op_params *params, const struct view *x,
			    const struct view *at, uint8_t *out)
{
	const unsigned int axis = params->gather.axis;

	for (uint64_t i = 0; i < at->n; i++) {
		struct coords from = coords_of(at, i);

		from.at[axis] = (uint32_t)load(at, from.at, x->dims[axis]);
		memcpy(out + i * x->bytes, x->data + index_of(x, from.at) * x->bytes, x->bytes);
	}
}

static int64_t integer(uint8_t dtype, const void *data)
{
	switch (dtype) {
	case RBK_DTYPE_I8:
		return *(const int8_t *)data;
	case RBK_DTYPE_U8:
		return *(const uint8_t *)data;
	case RBK_DTYPE_I32:
		return *(const int32_t *)data;
	default:
		return *(const int64_t *)data;
	}
}

static void update(const struct view *u, unsigned int reduction, const void *from, void *to)
{
	if (reduction == OP_SCATTER_NONE) {
		memcpy(to, from, u->bytes);
	} else if (u->dtype == RBK_DTYPE_F32) {
		const float a = *(const float *)to, b = *(const float *)from;
		float *y = to;

		*y = reduction == OP_SCATTER_ADD   ? a + b
		     : reduction == OP_SCATTER_MUL ? a * b
		     : isnan(a) || isnan(b)        ? NAN
		     : reduction == OP_SCATTER_MAX ? fmaxf(a, b)
						   : fminf(a, b);
	} else if (u->dtype == RBK_DTYPE_F64) {
		const double a = *(const double *)to, b = *(const double *)from;
		double *y = to;

		*y = reduction == OP_SCATTER_ADD   ? a + b
		     : reduction == OP_SCATTER_MUL ? a * b
		     : isnan(a) || isnan(b)        ? NAN
		     : reduction == OP_SCATTER_MAX ? fmax(a, b)
						   : fmin(a, b);
	} else {
		const int64_t a = integer(u->dtype, to), b = integer(u->dtype, from);
		const int64_t y = reduction == OP_SCATTER_ADD ? (int64_t)((uint64_t)a + (uint64_t)b)
				  : reduction == OP_SCATTER_MUL
					  ? (int64_t)((uint64_t)a * (uint64_t)b)
				  : (reduction == OP_SCATTER_MAX) == (a > b) ? a
									     : b;

		/* Elements are little-endian. */
		memcpy(to, &y, u->bytes);
	}
}

static void scatter(const struct node *node, const struct view *x, const struct view *at,
		    const struct view *u, uint8_t *out)
{
	const unsigned int axis = node->params.gather.axis;

	memcpy(out, x->data, x->n * x->bytes);
	for (uint64_t i = 0; i < u->n; i++) {
		struct coords from = coords_of(u, i), to = from;

		if (node->op->kind == OP_SCATTER_ND)
			to = point(x, at, 0, &from);
		else
			to.at[axis] = (uint32_t)load(at, from.at, x->dims[axis]);
		update(u, node->params.gather.reduction, u->data + i * u->bytes,
		       out + index_of(x, to.at) * u->bytes);
	}
}

static void one_hot(const union op_params *params, const struct view *at, const struct view *values,
		    const struct view *y, uint8_t *out)
{
	const unsigned int axis = params->one_hot.axis;

	for (uint64_t i = 0; i < y->n; i++) {
		const struct coords to = coords_of(y, i);
		struct coords from = to;

		memcpy(from.at + axis, to.at + axis + 1, (at->rank - axis) * sizeof(to.at[0]));
		memcpy(out + i * y->bytes,
		       values->data +
			       (load(at, from.at, y->dims[axis]) == to.at[axis] ? y->bytes : 0),
		       y->bytes);
	}
}

static void trilu(const union op_params *params, const struct view *x, uint8_t *out)
{
	for (uint64_t i = 0; i < x->n; i++) {
		const struct coords to = coords_of(x, i);
		const int64_t right = (int64_t)to.at[x->rank - 1] - to.at[x->rank - 2];
		const bool keeps =
			params->trilu.upper ? right >= params->trilu.k : right <= params->trilu.k;

		memset(out + i * x->bytes, 0, x->bytes);
		if (keeps)
			memcpy(out + i * x->bytes, x->data + i * x->bytes, x->bytes);
	}
}

/* A result of GridSample: its image, and its place in the image. */
struct sampled {
	const union op_params *params;
	const struct view *x;
	struct coords pixel; /* image, in the first two coordinates; then pixel */
	double place[RBK_MAX_RANK];
};

static double number(const struct view *v, uint64_t i)
{
	return v->dtype == RBK_DTYPE_F64 ? ((const double *)v->data)[i]
					 : (double)((const float *)v->data)[i];
}

/* Reflect @x into [@low, @high] at both limits. */
static double reflected(double x, double low, double high)
{
	if (low == high)
		return low;
	while (x < low || x > high)
		x = x < low ? 2 * low - x : 2 * high - x;
	return x;
}

/* Map grid coordinate @n to a position along a dimension of @dim pixels. */
static double placed(const struct sampled *s, const struct view *grid, double n, uint32_t dim)
{
	const bool align = s->params->grid_sample.align_corners;
	const double low = align ? 0 : -0.5, high = align ? dim - 1 : dim - 0.5;
	const float f = (float)n;
	double x = align ? (n + 1) / 2 * (dim - 1) : ((n + 1) * dim - 1) / 2;

	/* Each sum is rounded to the grid's type. */
	if (grid->dtype == RBK_DTYPE_F32) {
		const volatile float sum = f + 1, product = sum * (float)dim;
		const volatile float scaled = sum / 2 * (float)(dim - 1), less = product - 1;

		x = align ? (double)scaled : (double)less / 2;
	}
	if (s->params->grid_sample.mode == OP_SAMPLE_NEAREST)
		x = s->x->rank == 4 ? rint(x) : round(x);
	if (x >= low && x <= high)
		return x;
	if (s->params->grid_sample.padding == OP_SAMPLE_BORDER)
		return x < low ? 0 : dim - 1;
	return s->params->grid_sample.padding == OP_SAMPLE_REFLECTION ? reflected(x, low, high) : x;
}

static double cubic(double distance)
{
	const double a = -0.75, d = fabs(distance);

	return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1
		      : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

/* Return the weighted sum over the surrounding pixels, along dimension @d and all later ones. */
static double sum_of(struct sampled *s, unsigned int d)
{
	const bool align = s->params->grid_sample.align_corners;
	const double place = d < s->x->rank ? s->place[d - 2] : 0;
	const double low = align ? 0 : -0.5;
	double sum = 0;

	if (d == s->x->rank)
		return number(s->x, index_of(s->x, s->pixel.at));
	for (double at = floor(place) - 1; at <= floor(place) + 2; at++) {
		const double dim = s->x->dims[d], distance = fabs(at - place);
		double weight = distance < 1 ? 1 - distance : 0, pixel = at;

		if (s->params->grid_sample.mode == OP_SAMPLE_CUBIC)
			weight = cubic(distance);
		if (weight == 0)
			continue;
		if (s->params->grid_sample.padding == OP_SAMPLE_BORDER)
			pixel = fmin(fmax(at, 0), dim - 1);
		else if (s->params->grid_sample.padding == OP_SAMPLE_REFLECTION)
			pixel = reflected(at, low, align ? dim - 1 : dim - 0.5);
		if (pixel < 0 || pixel >= dim)
			continue;
		s->pixel.at[d] = (uint32_t)pixel;
		sum += weight * sum_of(s, d + 1);
	}
	return sum;
}

static void grid_sample(const union op_params *params, const struct view *x,
			const struct view *grid, const struct view *y, uint8_t *out)
{
	const unsigned int spatial = x->rank - 2;

	for (uint64_t i = 0; i < y->n; i++) {
		const struct coords to = coords_of(y, i);
		struct sampled s = {.params = params, .x = x, .pixel = to};
		struct coords from = {{to.at[0]}};
		double sum;

		memcpy(from.at + 1, to.at + 2, spatial * sizeof(to.at[0]));
		for (unsigned int d = 0; d < spatial; d++) {
			from.at[spatial + 1] = spatial - 1 - d;
			s.place[d] = placed(&s, grid, number(grid, index_of(grid, from.at)),
					    x->dims[2 + d]);
		}
		sum = sum_of(&s, 2);
		if (y->dtype == RBK_DTYPE_F64)
			((double *)out)[i] = sum;
		else
			((float *)out)[i] = (float)sum;
	}
}

bool reference_gather(const struct plan *plan, const struct node *node, uint32_t count,
		      const void *const *in, void *const *out)
{
	const struct view y = view_of(plan, node->out[0], count, NULL);
	struct view inputs[3] = {{0}};

	for (unsigned int i = 0; i < node->n_in && i < 3; i++)
		if (in[i])
			inputs[i] = view_of(plan, node->in[i], count, in[i]);
	switch (node->op->kind) {
	case OP_GATHER:
		gather(&node->params, &inputs[0], &inputs[1], &y, out[0]);
		return true;
	case OP_GATHER_ND:
		gather_nd(&node->params, &inputs[0], &inputs[1], &y, out[0]);
		return true;
	case OP_GATHER_ELEMENTS:
		gather_elements(&node->params, &inputs[0], &inputs[1], out[0]);
		return true;
	case OP_SCATTER_ELEMENTS:
	case OP_SCATTER_ND:
		scatter(node, &inputs[0], &inputs[1], &inputs[2], out[0]);
		return true;
	case OP_ONE_HOT:
		one_hot(&node->params, &inputs[0], &inputs[1], &y, out[0]);
		return true;
	case OP_TRILU:
		trilu(&node->params, &inputs[0], out[0]);
		return true;
	case OP_GRID_SAMPLE:
		grid_sample(&node->params, &inputs[0], &inputs[1], &y, out[0]);
		return true;
	default:
		return false;
	}
}
