/* SPDX-License-Identifier: MIT */
/*
 * Running steps
 *
 * Each function turns a step, a frame and the task's count into the arguments of a kernel and calls
 * it for some of its units. A unit is the smallest piece that is worth handing to another worker;
 * for a matrix product, a tile whose height depends on the problem only.
 */
#include "cpu/step.h"

/* Elements of one unit of a flat elementwise step: a multiple of every vector's width. */
enum { FLAT_UNIT = 8192 };

/* Columns of one unit of a matrix product, a multiple of every gemm_nr; most rows of one. */
enum { GEMM_UNIT_N = 128, GEMM_UNIT_M = 240, GEMM_UNIT_M_MIN = 60, GEMM_ENOUGH_UNITS = 64 };

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t div_up(size_t a, size_t b)
{
	return (a + b - 1) / b;
}

struct gemm_grid {
	size_t batches, m_units, n_units, m_unit;
};

static struct gemm_grid gemm_grid(const struct cpu_step_gemm *step, uint32_t count)
{
	const size_t m = cpu_extent_at(&step->m, count);
	struct gemm_grid grid = {
		.batches = 1,
		.n_units = div_up(cpu_extent_at(&step->n, count), GEMM_UNIT_N),
		.m_unit = GEMM_UNIT_M,
	};

	for (unsigned int i = 0; i < step->n_batch; i++)
		grid.batches *= cpu_extent_at(&step->batch[i], count);
	while (grid.m_unit > GEMM_UNIT_M_MIN &&
	       grid.batches * grid.n_units * div_up(m, grid.m_unit) < GEMM_ENOUGH_UNITS)
		grid.m_unit /= 2;
	grid.m_units = div_up(m, grid.m_unit);
	return grid;
}

size_t cpu_units_gemm(const struct cpu_step *step, uint32_t count)
{
	const struct gemm_grid grid = gemm_grid(&step->gemm, count);

	return grid.batches * grid.m_units * grid.n_units;
}

/* Points @gemm at the matrices of one batch index. */
static void gemm_batch(const struct cpu_step *step, const struct cpu_frame *frame, size_t batch,
		       struct cpu_gemm *gemm)
{
	const struct cpu_step_gemm *s = &step->gemm;
	size_t a = 0, b = 0, rest = batch;

	for (unsigned int i = s->n_batch; i-- > 0;) {
		const size_t extent = cpu_extent_at(&s->batch[i], frame->count);

		a += rest % extent * s->a_batch[i];
		b += rest % extent * s->b_batch[i];
		rest /= extent;
	}
	gemm->a = (const float *)cpu_operand_at(&step->in[0], frame) + a * s->a_matrix;
	gemm->b = (const float *)cpu_operand_at(&step->in[1], frame) + b * s->b_matrix;
	gemm->b_packed = s->b_is_packed ? gemm->b : NULL;
	gemm->y = (float *)cpu_operand_at(&step->out[0], frame) + batch * gemm->m * gemm->n;
}

void cpu_run_gemm(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		  size_t end, const struct cpu_context *context)
{
	const struct cpu_step_gemm *s = &step->gemm;
	struct gemm_grid grid;
	size_t units;
	struct cpu_gemm gemm = {
		.m = cpu_extent_at(&s->m, frame->count),
		.n = cpu_extent_at(&s->n, frame->count),
		.k = s->k,
		.c = step->in[2].present ? cpu_operand_at(&step->in[2], frame) : NULL,
		.c_rs = s->c_rs,
		.c_cs = s->c_cs,
		.alpha = s->alpha,
		.beta = s->beta,
		.pause = context->pause,
	};

	gemm.a_rs = s->trans_a ? 1 : gemm.k;
	gemm.a_cs = s->trans_a ? gemm.m : 1;
	gemm.b_rs = s->trans_b ? 1 : gemm.n;
	gemm.b_cs = s->trans_b ? gemm.k : 1;
	gemm.y_rs = gemm.n;

	/* All of one matrix, which may be tiny: nothing to work out. */
	if (end == SIZE_MAX && begin == 0 && s->n_batch == 0) {
		gemm_batch(step, frame, 0, &gemm);
		step->kernels->gemm(&gemm,
				    &(struct cpu_gemm_tile){.m_end = gemm.m, .n_end = gemm.n},
				    context->workspace);
		return;
	}
	grid = gemm_grid(s, frame->count);
	units = grid.m_units * grid.n_units;
	end = min_size(end, units * grid.batches);

	while (begin < end) {
		const size_t unit = begin % units;
		const size_t m = unit / grid.n_units, n = unit % grid.n_units;
		const size_t left = min_size(end - begin, units - unit);
		size_t rows = 1, columns = min_size(left, grid.n_units - n);

		/* Whole rows of units are one tile. */
		if (n == 0 && left >= grid.n_units)
			rows = left / grid.n_units;
		gemm_batch(step, frame, begin / units, &gemm);
		step->kernels->gemm(&gemm,
				    &(struct cpu_gemm_tile){
					    .m_begin = m * grid.m_unit,
					    .m_end = min_size(gemm.m, (m + rows) * grid.m_unit),
					    .n_begin = n * GEMM_UNIT_N,
					    .n_end = min_size(gemm.n, (n + columns) * GEMM_UNIT_N),
				    },
				    context->workspace);
		begin += rows * columns;
	}
}

size_t cpu_units_flat(const struct cpu_step *step, uint32_t count)
{
	return div_up(cpu_extent_at(&step->binary.inner, count), FLAT_UNIT);
}

typedef void flat_fn(size_t n, const float *a, size_t a_step, const float *b, size_t b_step,
		     float *y);

static inline void run_flat(const struct cpu_step *step, const struct cpu_frame *frame,
			    size_t begin, size_t end, flat_fn *kernel)
{
	const struct cpu_step_binary *s = &step->binary;
	const float *a = cpu_operand_at(&step->in[0], frame);
	const float *b = cpu_operand_at(&step->in[1], frame);
	float *y = cpu_operand_at(&step->out[0], frame);
	const size_t n = cpu_extent_at(&s->inner, frame->count);
	const size_t from = begin * FLAT_UNIT;
	const size_t to = end > n / FLAT_UNIT ? n : end * FLAT_UNIT;

	/* All of it, which may be tiny: nothing to work out. */
	if (begin == 0 && end == SIZE_MAX)
		kernel(n, a, s->a_step, b, s->b_step, y);
	else
		kernel(to - from, a + from * s->a_step, s->a_step, b + from * s->b_step, s->b_step,
		       y + from);
}

void cpu_run_add_flat(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		      size_t end, const struct cpu_context *context)
{
	run_flat(step, frame, begin, end, step->kernels->add);
}

void cpu_run_mul_flat(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		      size_t end, const struct cpu_context *context)
{
	run_flat(step, frame, begin, end, step->kernels->mul);
}

size_t cpu_units_broadcast(const struct cpu_step *step, uint32_t count)
{
	size_t rows = 1;

	for (unsigned int i = 0; i < step->binary.n_outer; i++)
		rows *= cpu_extent_at(&step->binary.extent[i], count);
	return rows;
}

static void run_broadcast(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			  size_t end, const struct cpu_context *context,
			  void (*kernel)(const struct cpu_broadcast *args, size_t begin,
					 size_t end))
{
	const struct cpu_step_binary *s = &step->binary;
	struct cpu_broadcast args = {
		.pause = context->pause,
		.a = cpu_operand_at(&step->in[0], frame),
		.b = cpu_operand_at(&step->in[1], frame),
		.y = cpu_operand_at(&step->out[0], frame),
		.inner = cpu_extent_at(&s->inner, frame->count),
		.a_step = s->a_step,
		.b_step = s->b_step,
		.n_outer = s->n_outer,
	};

	for (unsigned int i = 0; i < s->n_outer; i++) {
		args.extent[i] = cpu_extent_at(&s->extent[i], frame->count);
		args.a_stride[i] = s->a_stride[i];
		args.b_stride[i] = s->b_stride[i];
	}
	kernel(&args, begin, min_size(end, cpu_units_broadcast(step, frame->count)));
}

void cpu_run_add(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		 size_t end, const struct cpu_context *context)
{
	run_broadcast(step, frame, begin, end, context, step->kernels->add_broadcast);
}

void cpu_run_mul(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		 size_t end, const struct cpu_context *context)
{
	run_broadcast(step, frame, begin, end, context, step->kernels->mul_broadcast);
}

size_t cpu_units_relu(const struct cpu_step *step, uint32_t count)
{
	return div_up(cpu_extent_at(&step->n, count), FLAT_UNIT);
}

void cpu_run_relu(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		  size_t end, const struct cpu_context *context)
{
	const float *x = cpu_operand_at(&step->in[0], frame);
	float *y = cpu_operand_at(&step->out[0], frame);
	const size_t n = cpu_extent_at(&step->n, frame->count);
	const size_t from = begin * FLAT_UNIT;
	const size_t to = end > n / FLAT_UNIT ? n : end * FLAT_UNIT;

	step->kernels->relu(to - from, x + from, y + from);
}

size_t cpu_units_top_k(const struct cpu_step *step, uint32_t count)
{
	return cpu_extent_at(&step->columns.outer, count) *
	       cpu_extent_at(&step->columns.inner, count);
}

void cpu_run_top_k(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		   size_t end, const struct cpu_context *context)
{
	const struct cpu_step_columns *s = &step->columns;
	const struct cpu_top_k args = {
		.pause = context->pause,
		.x = cpu_operand_at(&step->in[0], frame),
		.values = cpu_operand_at(&step->out[0], frame),
		.indices = cpu_operand_at(&step->out[1], frame),
		.outer = cpu_extent_at(&s->outer, frame->count),
		.len = cpu_extent_at(&s->len, frame->count),
		.inner = cpu_extent_at(&s->inner, frame->count),
		.k = s->k,
		.largest = s->largest,
	};

	step->kernels->top_k(&args, begin, min_size(end, args.outer * args.inner));
}

static struct cpu_softmax softmax_args(const struct cpu_step *step, uint32_t count)
{
	return (struct cpu_softmax){
		.outer = cpu_extent_at(&step->columns.outer, count),
		.len = cpu_extent_at(&step->columns.len, count),
		.inner = cpu_extent_at(&step->columns.inner, count),
	};
}

size_t cpu_units_softmax(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_softmax args = softmax_args(step, count);

	return cpu_softmax_units(&args);
}

void cpu_run_softmax(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		     size_t end, const struct cpu_context *context)
{
	struct cpu_softmax args = softmax_args(step, frame->count);

	args.pause = context->pause;
	args.x = cpu_operand_at(&step->in[0], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	step->kernels->softmax(&args, begin, min_size(end, cpu_softmax_units(&args)));
}

static struct cpu_reduce reduce_args(const struct cpu_step *step, uint32_t count)
{
	struct cpu_reduce args = step->reduce.args;

	if (step->reduce.count_kept)
		args.kept[0] *= count;
	if (step->reduce.count_reduced)
		args.reduced[0] *= count;
	return args;
}

size_t cpu_units_reduce(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_reduce args = reduce_args(step, count);

	return cpu_reduce_units(&args);
}

void cpu_run_reduce(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		    size_t end, const struct cpu_context *context)
{
	struct cpu_reduce args = reduce_args(step, frame->count);

	args.pause = context->pause;
	args.x = cpu_operand_at(&step->in[0], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	step->kernels->reduce(&args, begin, min_size(end, cpu_reduce_units(&args)));
}

static struct cpu_transpose transpose_args(const struct cpu_step *step, uint32_t count)
{
	struct cpu_transpose args = step->transpose.args;

	if (step->transpose.dynamic)
		args.extent[0] *= count;
	return args;
}

size_t cpu_units_transpose(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_transpose args = transpose_args(step, count);

	return cpu_transpose_units(&args);
}

void cpu_run_transpose(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		       size_t end, const struct cpu_context *context)
{
	struct cpu_transpose args = transpose_args(step, frame->count);

	args.pause = context->pause;
	args.x = cpu_operand_at(&step->in[0], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	step->kernels->transpose(&args, begin, min_size(end, cpu_transpose_units(&args)));
}

static struct cpu_window window_args(const struct cpu_step *step, uint32_t count)
{
	struct cpu_window args = step->window.args;

	args.batch = cpu_extent_at(&step->window.batch, count);
	return args;
}

size_t cpu_units_conv(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_window args = window_args(step, count);

	return cpu_conv_units(&args);
}

void cpu_run_conv(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		  size_t end, const struct cpu_context *context)
{
	struct cpu_window args = window_args(step, frame->count);
	const float *weights = cpu_operand_at(&step->in[1], frame);

	args.pause = context->pause;
	args.x = cpu_operand_at(&step->in[0], frame);
	args.weights = weights;
	args.weights_packed = step->window.weights_are_packed ? weights : NULL;
	args.bias = step->in[2].present ? cpu_operand_at(&step->in[2], frame) : NULL;
	args.y = cpu_operand_at(&step->out[0], frame);
	step->kernels->conv(&args, begin, min_size(end, cpu_conv_units(&args)), context->workspace);
}

size_t cpu_units_max_pool(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_window args = window_args(step, count);

	return args.batch * args.channels;
}

void cpu_run_max_pool(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		      size_t end, const struct cpu_context *context)
{
	struct cpu_window args = window_args(step, frame->count);

	args.pause = context->pause;
	args.x = cpu_operand_at(&step->in[0], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	step->kernels->max_pool(&args, begin, min_size(end, args.batch * args.channels));
}
