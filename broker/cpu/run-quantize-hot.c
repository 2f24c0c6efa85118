/* SPDX-License-Identifier: MIT */
/*
 * Running steps: quantization, and products and convolutions of quantized tensors
 */
#include "cpu/run-quantize.h"

#include <math.h>

/* Return the tensor's address; NULL if it is absent. */
static const void *optional(const struct cpu_operand *operand, const struct cpu_frame *frame)
{
	return operand->present ? cpu_operand_at(operand, frame) : NULL;
}

/* ---- QuantizeLinear, DequantizeLinear ----------------------------------------------------- */

static struct cpu_quantize quantize_args(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_quantize *s = cpu_step_args(step);
	struct cpu_quantize args = s->args;

	args.outer = cpu_extent_at(&s->outer, count);
	args.axis = cpu_extent_at(&s->axis, count);
	args.inner = cpu_extent_at(&s->inner, count);
	return args;
}

size_t cpu_units_quantize(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_quantize args = quantize_args(step, count);

	return cpu_quantize_units(&args);
}

static struct cpu_quantize quantize_at(const struct cpu_step *step, const struct cpu_frame *frame,
				       const struct cpu_context *context)
{
	struct cpu_quantize args = quantize_args(step, frame->count);

	args.x = cpu_operand_at(&step->in[0], frame);
	args.scale = cpu_operand_at(&step->in[1], frame);
	args.zero = optional(&step->in[2], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	args.pause = context->pause;
	return args;
}

void cpu_run_quantize(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		      size_t end, const struct cpu_context *context)
{
	const struct cpu_step_quantize *s = cpu_step_args(step);
	const struct cpu_quantize args = quantize_at(step, frame, context);

	s->kernels->quantize(&args, begin, min_size(end, cpu_quantize_units(&args)));
}

void cpu_run_dequantize(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			size_t end, const struct cpu_context *context)
{
	const struct cpu_step_quantize *s = cpu_step_args(step);
	const struct cpu_quantize args = quantize_at(step, frame, context);

	s->kernels->dequantize(&args, begin, min_size(end, cpu_quantize_units(&args)));
}

/* ---- DynamicQuantizeLinear: partial ranges, scale and zero point, quantization -------------- */

size_t cpu_units_one(const struct cpu_step *step, uint32_t count)
{
	return 1;
}

size_t cpu_units_ranges(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_ranges *s = cpu_step_args(step);
	const size_t pieces = div_up(cpu_extent_at(&s->n, count), CPU_FLAT_UNIT);

	return pieces > OP_RANGES ? OP_RANGES : pieces;
}

void cpu_run_ranges(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		    size_t end, const struct cpu_context *context)
{
	const struct cpu_step_ranges *s = cpu_step_args(step);
	const size_t n = cpu_extent_at(&s->n, frame->count);
	const size_t units = cpu_units_ranges(step, frame->count);
	const float *x = cpu_operand_at(&step->in[0], frame);
	float *ranges = cpu_operand_at(&step->out[3], frame);

	for (size_t unit = begin; unit < min_size(end, units); unit++) {
		const size_t from = n / units * unit, to = unit + 1 < units ? from + n / units : n;

		cpu_pause(context->pause);
		s->kernels->range(to - from, x + from, ranges + 2 * unit);
	}
}

void cpu_run_range_end(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		       size_t end, const struct cpu_context *context)
{
	const size_t units = cpu_units_ranges(step, frame->count);
	const float *ranges = cpu_operand_at(&step->out[3], frame);
	float *scale = cpu_operand_at(&step->out[1], frame);
	uint8_t *zero = cpu_operand_at(&step->out[2], frame);
	float least = 0, most = 0, width;

	if (begin >= end)
		return;
	for (size_t i = 0; i < units; i++) {
		least = ranges[2 * i] < least ? ranges[2 * i] : least;
		most = ranges[2 * i + 1] > most ? ranges[2 * i + 1] : most;
	}
	/* If all values are 0, any scale would do. */
	width = (most - least) / 255.0f;
	*scale = width > 0 ? width : 1;
	/*
	 * The zero point is within 0 to 255 except for infinite ranges, which yield no usable scale
	 * anyway.
	 */
	least = nearbyintf(-least / *scale);
	*zero = (uint8_t)(least >= 255 ? 255 : least > 0 ? least : 0);
}

void cpu_run_quantize_dynamic(const struct cpu_step *step, const struct cpu_frame *frame,
			      size_t begin, size_t end, const struct cpu_context *context)
{
	const struct cpu_step_quantize *s = cpu_step_args(step);
	struct cpu_quantize args = quantize_args(step, frame->count);

	args.x = cpu_operand_at(&step->in[0], frame);
	args.scale = cpu_operand_at(&step->out[1], frame);
	args.zero = cpu_operand_at(&step->out[2], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	args.pause = context->pause;
	s->kernels->quantize(&args, begin, min_size(end, cpu_quantize_units(&args)));
}

/* ---- products and convolutions ------------------------------------------------------------ */

static struct cpu_requantize requantize_at(const struct cpu_step *step,
					   const struct cpu_integer *of,
					   const struct cpu_frame *frame)
{
	if (!of->requantizes)
		return (struct cpu_requantize){.y_signed = false};
	return (struct cpu_requantize){
		.a = {cpu_operand_at(&step->in[CPU_INTEGER_A_SCALE], frame), of->a_scale_each},
		.b = {cpu_operand_at(&step->in[CPU_INTEGER_B_SCALE], frame), of->b_scale_each},
		.y = cpu_operand_at(&step->in[CPU_INTEGER_Y_SCALE], frame),
		.y_zero = optional(&step->in[CPU_INTEGER_Y_ZERO], frame),
		.y_signed = of->y_signed,
	};
}

void cpu_run_integer(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		     size_t end, const struct cpu_context *context)
{
	const struct cpu_step_integer *all = cpu_step_args(step);
	const struct cpu_step_gemm *s = &all->gemm;
	const struct cpu_integer *of = &all->of;
	const struct cpu_requantize requantize = requantize_at(step, of, frame);
	const struct cpu_gemm_grid grid = cpu_gemm_grid(s, frame->count);
	const size_t y_bytes = of->requantizes ? 1 : 4;
	const uint8_t *a_base = cpu_operand_at(&step->in[CPU_INTEGER_A], frame);
	const uint8_t *b_base = cpu_operand_at(&step->in[CPU_INTEGER_B], frame);
	uint8_t *y_base = cpu_operand_at(&step->out[0], frame);
	struct cpu_int8_gemm gemm = {
		.m = cpu_extent_at(&s->m, frame->count),
		.n = cpu_extent_at(&s->n, frame->count),
		.k = s->k,
		.a_rs = s->k,
		.a_signed = of->a_signed,
		.b_signed = of->b_signed,
		.a_zero = {optional(&step->in[CPU_INTEGER_A_ZERO], frame), of->a_zero_each},
		.b_zero = {optional(&step->in[CPU_INTEGER_B_ZERO], frame), of->b_zero_each},
		.requantize = of->requantizes ? &requantize : NULL,
		.pause = context->pause,
	};

	gemm.b_rs = gemm.y_rs = gemm.n;
	end = min_size(end, grid.m_units * grid.n_units * grid.batches);
	while (begin < end) {
		const struct cpu_gemm_part part =
			cpu_gemm_part(s, &grid, frame->count, &begin, end);

		gemm.a = a_base + part.a;
		gemm.b = b_base + part.b;
		gemm.b_packed = s->b_is_packed ? gemm.b : NULL;
		gemm.y = y_base + part.y * y_bytes;
		of->kernels->gemm(&gemm, &part.tile, context->workspace);
	}
}

static struct cpu_int8_conv conv_at(const struct cpu_step *step, const struct cpu_frame *frame)
{
	const struct cpu_step_integer_conv *s = cpu_step_args(step);
	const struct cpu_integer *of = &s->of;
	struct cpu_int8_conv conv = {
		.window = s->args,
		.x_signed = of->a_signed,
		.weights_signed = of->b_signed,
		.x_zero = {optional(&step->in[CPU_INTEGER_A_ZERO], frame), false},
		.weights_zero = {optional(&step->in[CPU_INTEGER_B_ZERO], frame), of->b_zero_each},
		.bias = optional(&step->in[CPU_INTEGER_BIAS], frame),
	};

	conv.window.batch = cpu_extent_at(&s->batch, frame->count);
	conv.window.weights = cpu_operand_at(&step->in[CPU_INTEGER_B], frame);
	conv.window.weights_packed = conv.window.weights;
	return conv;
}

/* Packing of non-constant weights, from in[CPU_INTEGER_B] into out[1]. */
size_t cpu_units_integer_pack(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_integer_conv *s = cpu_step_args(step);
	const struct cpu_int8_conv conv = {.window = s->args};

	return s->of.kernels->pack_conv(&conv, 0, 0, NULL);
}

void cpu_run_integer_pack(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			  size_t end, const struct cpu_context *context)
{
	const struct cpu_step_integer_conv *s = cpu_step_args(step);
	struct cpu_int8_conv conv = conv_at(step, frame);

	conv.window.pause = context->pause;
	s->of.kernels->pack_conv(&conv, begin, end, cpu_operand_at(&step->out[1], frame));
}

size_t cpu_units_integer_conv(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_integer_conv *s = cpu_step_args(step);
	struct cpu_window args = s->args;

	args.batch = cpu_extent_at(&s->batch, count);
	return cpu_int8_conv_units(&args);
}

void cpu_run_integer_conv(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			  size_t end, const struct cpu_context *context)
{
	const struct cpu_step_integer_conv *s = cpu_step_args(step);
	const struct cpu_integer *of = &s->of;
	struct cpu_requantize requantize = requantize_at(step, of, frame);
	struct cpu_int8_conv conv = conv_at(step, frame);
	const struct cpu_scales x_scale = requantize.a;

	/* The kernel's operand a is the weights. */
	requantize.a = requantize.b;
	requantize.b = x_scale;
	conv.requantize = of->requantizes ? &requantize : NULL;
	conv.window.x = cpu_operand_at(&step->in[CPU_INTEGER_A], frame);
	conv.window.y = cpu_operand_at(&step->out[0], frame);
	conv.window.pause = context->pause;
	of->kernels->conv(&conv, begin, min_size(end, cpu_int8_conv_units(&conv.window)),
			  context->workspace);
}

/* ---- MatMulNBits --------------------------------------------------------------------------- */

/* Packing of non-constant weights into out[1], one panel of columns per unit. */
size_t cpu_units_nbits_pack(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_nbits *s = cpu_step_args(step);

	return div_up(s->weights.n, step->kernels->gemm_nr);
}

void cpu_run_nbits_pack(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			size_t end, const struct cpu_context *context)
{
	const struct cpu_step_nbits *s = cpu_step_args(step);
	const size_t width = step->kernels->gemm_nr, n = s->weights.n;
	struct cpu_nbits_weights weights = s->weights;
	const void *zeros = optional(&step->in[3], frame);
	uint8_t *to = cpu_operand_at(&step->out[1], frame);

	end = min_size(end, div_up(n, width));
	if (begin >= end)
		return;
	weights.b = cpu_operand_at(&step->in[1], frame);
	weights.scales = cpu_operand_at(&step->in[2], frame);
	if (s->zeros_are_floats)
		weights.zeros_float = zeros;
	else
		weights.zeros = zeros;
	weights.pause = context->pause;
	weights = cpu_nbits_columns(&weights, begin * width,
				    min_size(n, end * width) - begin * width);
	to += begin * step->kernels->pack_nbits_size(weights.k, width, weights.block);
	step->kernels->pack_nbits(&weights, to);
}

void cpu_run_nbits(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		   size_t end, const struct cpu_context *context)
{
	const struct cpu_step_nbits *all = cpu_step_args(step);
	const struct cpu_step_gemm *s = &all->gemm;
	const struct cpu_gemm_grid grid = cpu_gemm_grid(s, frame->count);
	const struct cpu_terms terms = cpu_round_terms(frame, s->k, CPU_GEMM_KC);
	struct cpu_nbits args = {
		.m = cpu_extent_at(&s->m, frame->count),
		.n = s->n.fixed,
		.k = s->k,
		.k_begin = terms.begin,
		.k_end = terms.end,
		.block = all->weights.block,
		.a = cpu_operand_at(&step->in[0], frame),
		.a_rs = s->k,
		.packed = cpu_operand_at(&step->in[1], frame),
		.bias = optional(&step->in[5], frame),
		.y = cpu_operand_at(&step->out[0], frame),
		.y_rs = s->n.fixed,
		.pause = context->pause,
	};

	end = min_size(end, grid.m_units * grid.n_units);
	while (begin < end) {
		const struct cpu_gemm_part part =
			cpu_gemm_part(s, &grid, frame->count, &begin, end);

		step->kernels->nbits(&args, &part.tile, context->workspace);
	}
}
