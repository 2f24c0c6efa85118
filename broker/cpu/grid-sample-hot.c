/* SPDX-License-Identifier: MIT */
/*
 * GridSample
 *
 * Each result is a weighted sum of pixels around a point of its picture. The grid gives the point
 * in units of half the picture, with 0 at its centre. Pixels and weights are computed for some
 * points at a time and then used for some channels. Pixels outside the picture are mapped as the
 * padding mode says, or count as zeros.
 *
 * The position in pixels is computed in the grid's type, without fusing a product and a sum: the
 * nearest pixel is the same at every level and on every device. All other values are computed in
 * float64. A coordinate that is a NaN lies far below the picture.
 */
#include "cpu/compile.h"
#include "cpu/level.h"

enum {
	SAMPLE_POINTS = 64,   /* points computed at a time */
	SAMPLE_CHANNELS = 32, /* channels of one unit */
	SAMPLE_MAX_TAPS = 16, /* maximum of pixels per result */
};

/* Pictures are [batch][channels][size[2]][size[1]][size[0]]; size[2] is 1 for two dimensions. */
struct sample {
	const void *x, *grid;
	void *y;
	size_t channels, points;
	unsigned int rank;
	size_t size[3];
	enum op_sample mode;
	enum op_sample_padding padding;
	bool align_corners;
	bool is_double, grid_is_double;
	struct cpu_pause *pause;
};

struct step_sample {
	struct sample args;
	struct cpu_extent batch;
};

/* A point's pixels, as offsets from the picture's first pixel (-1: none), and their weights */
struct sample_point {
	ptrdiff_t at[SAMPLE_MAX_TAPS];
	double weight[SAMPLE_MAX_TAPS];
};

/* Return the pixels per dimension of a result. */
VEC_INLINE unsigned int taps_of(const enum op_sample mode)
{
	return mode == OP_SAMPLE_NEAREST ? 1 : mode == OP_SAMPLE_LINEAR ? 2 : 4;
}

/* Return the nearest integer. A tie goes to the even one or, with @away, away from 0. */
VEC_INLINE double rounded(double x, const bool away)
{
	const double size = __builtin_fabs(x);
	double whole = size;

	if (size < 0x1p52) {
		whole = size + 0x1p52 - 0x1p52;
		whole += away && size - whole == 0.5;
	}
	return __builtin_copysign(whole, x);
}

VEC_INLINE double rounded_down(double x)
{
	const double whole = rounded(x, false);

	return whole > x ? whole - 1 : whole;
}

/* Return the position of grid coordinate @i, in pixels, along a dimension of @size. */
VEC_INLINE double place(const struct sample *args, size_t i, size_t size)
{
	if (args->grid_is_double) {
		const double n = ((const double *)args->grid)[i] + 1;

		return args->align_corners ? n * 0.5 * (double)(size - 1)
					   : (n * (double)size - 1) * 0.5;
	} else {
		const float n = ((const float *)args->grid)[i] + 1;

		return (double)(args->align_corners ? n * 0.5f * (float)(size - 1)
						    : (n * (float)size - 1) * 0.5f);
	}
}

/* Return @x, which is outside [@low, @high], reflected at both ends. */
VEC_INLINE double mirrored(double x, double low, double high)
{
	const double range = high - low, beside = x < low ? low - x : x - high;
	const double n = rounded_down(beside / range), rest = beside - n * range;
	const bool is_odd = n != 2 * rounded_down(n * 0.5);

	if (!(range > 0))
		return low;
	return is_odd == (x < low) ? high - rest : low + rest;
}

/* Return the pixel index that @i of @size maps to; -1: none, counts as 0. */
VEC_INLINE ptrdiff_t pixel_of(const struct sample *args, ptrdiff_t i, ptrdiff_t size)
{
	const ptrdiff_t period = args->align_corners ? 2 * size - 2 : 2 * size;

	if (i >= 0 && i < size)
		return i;
	if (args->padding == OP_SAMPLE_ZEROS)
		return -1;
	if (args->padding == OP_SAMPLE_BORDER || period == 0)
		return i < 0 ? 0 : size - 1;
	i = i < 0 ? period - 1 - (-i - 1) % period : i % period;
	if (i >= size)
		i = args->align_corners ? period - i : period - 1 - i;
	return i;
}

/* Find the pixels along a dimension of @size for position @x, and their weights. */
VEC_INLINE void find_taps(const struct sample *args, const enum op_sample mode,
			  const unsigned int rank, double x, size_t size, ptrdiff_t *at,
			  double *weight)
{
	const double last = (double)(size - 1), low = args->align_corners ? 0 : -0.5;
	const double high = args->align_corners ? last : last + 0.5;
	ptrdiff_t first;
	double t;

	/*
	 * Ties go away from 0 in three dimensions, as in ONNX's reference, which follows PyTorch
	 * there.
	 */
	if (mode == OP_SAMPLE_NEAREST)
		x = rounded(x, rank == 3);
	if (x < low || x > high) {
		if (args->padding == OP_SAMPLE_BORDER)
			x = x < low ? 0 : last;
		else if (args->padding == OP_SAMPLE_REFLECTION)
			x = mirrored(x, low, high);
	}
	/* Clamp: all taps of farther positions are outside the picture anyway. */
	x = x > -4 ? x : -4;
	x = x < last + 4 ? x : last + 4;
	first = (ptrdiff_t)x;
	first -= (double)first > x;
	t = x - (double)first;
	if (mode == OP_SAMPLE_NEAREST) {
		weight[0] = 1;
	} else if (mode == OP_SAMPLE_LINEAR) {
		weight[0] = 1 - t;
		weight[1] = t;
	} else {
		const double a = -0.75, u = t + 1, v = 1 - t, w = 2 - t;

		first--;
		weight[0] = ((a * u - 5 * a) * u + 8 * a) * u - 4 * a;
		weight[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
		weight[2] = ((a + 2) * v - (a + 3)) * v * v + 1;
		weight[3] = ((a * w - 5 * a) * w + 8 * a) * w - 4 * a;
	}
	for (unsigned int k = 0; k < taps_of(mode); k++)
		at[k] = pixel_of(args, first + (ptrdiff_t)k, (ptrdiff_t)size);
}

/* Find the pixels and weights of points [@first, @first + @n) of all pictures. */
VEC_INLINE void find_points(const struct sample *args, const enum op_sample mode,
			    const unsigned int rank, size_t first, size_t n,
			    struct sample_point *points)
{
	const unsigned int taps = taps_of(mode), planes = rank == 3 ? taps : 1;

	for (size_t i = 0; i < n; i++) {
		ptrdiff_t at[3][4] = {{0}};
		double weight[3][4] = {[2] = {1}};
		unsigned int tap = 0;

		for (unsigned int d = 0; d < rank; d++)
			find_taps(args, mode, rank,
				  place(args, (first + i) * rank + d, args->size[d]), args->size[d],
				  at[d], weight[d]);
		for (unsigned int z = 0; z < planes; z++) {
			for (unsigned int k = 0; k < taps * taps; k++, tap++) {
				const ptrdiff_t y = at[1][k / taps], x = at[0][k % taps];
				const ptrdiff_t row = at[2][z] * (ptrdiff_t)args->size[1] + y;
				const bool is_there = (at[2][z] | y | x) >= 0;

				points[i].at[tap] =
					is_there ? row * (ptrdiff_t)args->size[0] + x : -1;
				points[i].weight[tap] =
					weight[2][z] * weight[1][k / taps] * weight[0][k % taps];
			}
		}
	}
}

/* Compute @n points of the single-channel picture @x. */
VEC_INLINE void sample_picture(const void *x, const struct sample_point *points, size_t n,
			       const unsigned int taps, const bool is_double, void *y)
{
	for (size_t i = 0; i < n; i++) {
		double sum = 0;

		for (unsigned int tap = 0; tap < taps; tap++) {
			const ptrdiff_t at = points[i].at[tap];
			const size_t from = at < 0 ? 0 : (size_t)at;
			const double pixel = is_double ? ((const double *)x)[from]
						       : (double)((const float *)x)[from];

			sum += at < 0 ? 0 : points[i].weight[tap] * pixel;
		}
		if (is_double)
			((double *)y)[i] = sum;
		else
			((float *)y)[i] = (float)sum;
	}
}

/* Compute units: some channels of a picture at some points each. */
VEC_INLINE void sample(const struct sample *args, const enum op_sample mode,
		       const unsigned int rank, size_t begin, size_t end,
		       struct sample_point *points)
{
	const unsigned int taps = taps_of(mode) * taps_of(mode) * (rank == 3 ? taps_of(mode) : 1);
	const size_t parts = div_up(args->points, SAMPLE_POINTS);
	const size_t groups = div_up(args->channels, SAMPLE_CHANNELS);
	const size_t pixels = args->size[0] * args->size[1] * args->size[2];

	for (size_t unit = begin; unit < end; unit++) {
		const size_t first = unit % parts * SAMPLE_POINTS, batch = unit / parts / groups;
		const size_t channel = unit / parts % groups * SAMPLE_CHANNELS;
		const size_t last = min_size(channel + SAMPLE_CHANNELS, args->channels);
		const size_t n = min_size(SAMPLE_POINTS, args->points - first);

		cpu_pause(args->pause);
		find_points(args, mode, rank, batch * args->points + first, n, points);
		for (size_t i = channel; i < last; i++) {
			const size_t picture = batch * args->channels + i;
			const size_t from = picture * pixels, to = picture * args->points + first;

			if (args->is_double)
				sample_picture((const double *)args->x + from, points, n, taps,
					       true, (double *)args->y + to);
			else
				sample_picture((const float *)args->x + from, points, n, taps,
					       false, (float *)args->y + to);
		}
	}
}

static size_t units_grid_sample(const struct cpu_step *step, uint32_t count)
{
	const struct step_sample *s = cpu_step_args(step);

	return cpu_extent_at(&s->batch, count) * div_up(s->args.channels, SAMPLE_CHANNELS) *
	       div_up(s->args.points, SAMPLE_POINTS);
}

static void run_grid_sample(const struct cpu_step *step, const struct cpu_frame *frame,
			    size_t begin, size_t end, const struct cpu_context *context)
{
	const struct step_sample *s = cpu_step_args(step);
	struct sample args = s->args;

	end = min_size(end, units_grid_sample(step, frame->count));
	args.pause = context->pause;
	args.x = cpu_operand_at(&step->in[0], frame);
	args.grid = cpu_operand_at(&step->in[1], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	if (args.mode == OP_SAMPLE_CUBIC)
		sample(&args, OP_SAMPLE_CUBIC, 2, begin, end, context->workspace);
	else if (args.mode == OP_SAMPLE_NEAREST && args.rank == 2)
		sample(&args, OP_SAMPLE_NEAREST, 2, begin, end, context->workspace);
	else if (args.mode == OP_SAMPLE_NEAREST)
		sample(&args, OP_SAMPLE_NEAREST, 3, begin, end, context->workspace);
	else if (args.rank == 2)
		sample(&args, OP_SAMPLE_LINEAR, 2, begin, end, context->workspace);
	else
		sample(&args, OP_SAMPLE_LINEAR, 3, begin, end, context->workspace);
}

const struct cpu_routine CPU_FN(grid_sample) = {run_grid_sample, units_grid_sample};

#ifdef CPU_DESCRIBES
/* Pixels are read one by one, a few per nanosecond. */
#define SAMPLE_SPEED_UP 0.1

CPU_STEP_HOLDS(struct step_sample);
_Static_assert(SAMPLE_POINTS * sizeof(struct sample_point) <= CPU_WORKSPACE_BYTES,
	       "points are kept in the workspace");
CPU_ROUTINES(grid_sample);

static int compile_grid_sample(struct compiler *c)
{
	const struct shape *x = &node_in(c, 0)->shape, *y = &node_out(c, 0)->shape;
	struct step_sample *step = compile_args(c);
	struct sample *args = &step->args;

	compile_level(c, grid_sample_routines);
	c->speed_up = SAMPLE_SPEED_UP;
	step->batch = extent_range(y, 0, 1);
	args->channels = x->dims[1];
	args->points = shape_stride(y, 1);
	args->rank = x->rank - 2u;
	for (unsigned int i = 0; i < 3; i++)
		args->size[i] = i < args->rank ? x->dims[x->rank - 1 - i] : 1;
	args->mode = c->node->params.grid_sample.mode;
	args->padding = c->node->params.grid_sample.padding;
	args->align_corners = c->node->params.grid_sample.align_corners;
	args->is_double = node_float_type(node_in(c, 0)) == CPU_F64;
	args->grid_is_double = node_float_type(node_in(c, 1)) == CPU_F64;
	return 0;
}

const struct cpu_op cpu_op_grid_sample = {.compile = compile_grid_sample};
#endif
