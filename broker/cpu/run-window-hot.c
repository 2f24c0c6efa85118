/* SPDX-License-Identifier: MIT */
/*
 * Running steps: Conv and pooling
 */
#include "cpu/run-window.h"

static struct cpu_window window_args(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_window *s = cpu_step_args(step);
	struct cpu_window args = s->args;

	args.batch = cpu_extent_at(&s->batch, count);
	return args;
}

static size_t conv_units(const struct cpu_step *step, const struct cpu_window *args)
{
	const struct cpu_step_window *s = cpu_step_args(step);

	return s->is_last ? cpu_conv_last_units(args) : cpu_conv_units(args);
}

size_t cpu_units_conv(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_window args = window_args(step, count);

	return conv_units(step, &args);
}

uint32_t cpu_rounds_conv(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_window *s = cpu_step_args(step);
	const struct cpu_window args = window_args(step, count);
	const size_t m = args.out_channels / args.group;
	struct cpu_conv_cut cut;

	if (!cpu_conv_is_product(&args, s->is_last))
		return 1;
	cut = cpu_conv_cut(&args);
	return cpu_rounds(cpu_conv_terms(&args), CPU_GEMM_KC, min_size(m, cut.part_rows),
			  CPU_CONV_PANEL, 1);
}

/* Return the window's arguments, including a convolution's operands. */
static struct cpu_window conv_args(const struct cpu_step *step, const struct cpu_frame *frame,
				   const struct cpu_context *context)
{
	const struct cpu_step_window *s = cpu_step_args(step);
	struct cpu_window args = window_args(step, frame->count);
	const float *weights = cpu_operand_at(&step->in[1], frame);

	args.activation = step->activation.kernel ? &step->activation : NULL;
	args.pause = context->pause;
	args.x = cpu_operand_at(&step->in[0], frame);
	args.weights = weights;
	args.weights_packed = s->weights_are_packed ? weights : NULL;
	args.bias = step->in[2].present ? cpu_operand_at(&step->in[2], frame) : NULL;
	args.y = cpu_operand_at(&step->out[0], frame);
	return args;
}

void cpu_run_conv(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		  size_t end, const struct cpu_context *context)
{
	const struct cpu_step_window *s = cpu_step_args(step);
	struct cpu_window args = conv_args(step, frame, context);
	const struct cpu_terms terms = cpu_round_terms(frame, cpu_conv_terms(&args), CPU_GEMM_KC);

	args.k_begin = terms.begin;
	args.k_end = terms.end;
	(s->is_last ? step->kernels->conv_last : step->kernels->conv)(
		&args, begin, min_size(end, conv_units(step, &args)), context->workspace);
}

size_t cpu_units_conv_transpose(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_window args = window_args(step, count);

	return cpu_conv_transpose_units(&args);
}

void cpu_run_conv_transpose(const struct cpu_step *step, const struct cpu_frame *frame,
			    size_t begin, size_t end, const struct cpu_context *context)
{
	const struct cpu_window args = conv_args(step, frame, context);

	step->kernels->conv_transpose(&args, begin, min_size(end, cpu_conv_transpose_units(&args)),
				      context->workspace);
}

static size_t pool_units(const struct cpu_step *step, const struct cpu_window *args)
{
	const struct cpu_step_window *s = cpu_step_args(step);

	return s->is_last ? cpu_rows_last(args) : args->batch * args->channels;
}

size_t cpu_units_pool(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_window args = window_args(step, count);

	return pool_units(step, &args);
}

void cpu_run_pool(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		  size_t end, const struct cpu_context *context)
{
	const struct cpu_step_window *s = cpu_step_args(step);
	struct cpu_window args = window_args(step, frame->count);

	args.pause = context->pause;
	args.x = cpu_operand_at(&step->in[0], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	s->pool(&args, begin, min_size(end, pool_units(step, &args)));
}

void cpu_run_pool_any(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		      size_t end, const struct cpu_context *context)
{
	const struct cpu_step_window *s = cpu_step_args(step);
	struct cpu_pool args = {
		.window = window_args(step, frame->count),
		.type = s->type,
		.x = cpu_operand_at(&step->in[0], frame),
		.y = cpu_operand_at(&step->out[0], frame),
		.indices = step->out[1].present ? cpu_operand_at(&step->out[1], frame) : NULL,
		.is_column_major = s->is_column_major,
	};

	args.window.pause = context->pause;
	step->kernels->max_pool_any(&args, begin,
				    min_size(end, args.window.batch * args.window.channels));
}
