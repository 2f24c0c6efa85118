/* SPDX-License-Identifier: MIT */
/*
 * Running steps: Gather, GatherElements, GatherND, ScatterElements, ScatterND, OneHot and Trilu
 */
#include "cpu/run.h"

/* Who reads it does so after a later release, by whoever ends the step. */
static void note(const struct cpu_frame *frame, bool all_in_range)
{
	if (!all_in_range)
		atomic_store_explicit(frame->is_out_of_range, true, memory_order_relaxed);
}

static struct cpu_gather gather_args(const struct cpu_step *step, uint32_t count)
{
	struct cpu_gather args = step->gather.args;

	args.outer = cpu_extent_at(&step->gather.outer, count);
	args.rows = cpu_extent_at(&step->gather.rows, count);
	return args;
}

size_t cpu_units_gather(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_gather args = gather_args(step, count);

	return args.outer * args.rows;
}

void cpu_run_gather(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		    size_t end, const struct cpu_context *context)
{
	struct cpu_gather args = gather_args(step, frame->count);

	args.pause = context->pause;
	args.x = cpu_operand_at(&step->in[0], frame);
	args.indices.data = cpu_operand_at(&step->in[1], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	note(frame, step->kernels->gather(&args, begin, min_size(end, args.outer * args.rows)));
}

static struct cpu_elements elements_args(const struct cpu_step *step, uint32_t count)
{
	struct cpu_elements args = step->elements.args;

	args.len = cpu_extent_at(&step->elements.len, count);
	if (step->elements.count_outer)
		args.extent[0] *= count;
	return args;
}

size_t cpu_units_gather_elements(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_elements args = elements_args(step, count);

	return cpu_elements_units(&args, true);
}

void cpu_run_gather_elements(const struct cpu_step *step, const struct cpu_frame *frame,
			     size_t begin, size_t end, const struct cpu_context *context)
{
	struct cpu_elements args = elements_args(step, frame->count);

	args.pause = context->pause;
	args.from = cpu_operand_at(&step->in[0], frame);
	args.indices.data = cpu_operand_at(&step->in[1], frame);
	args.to = cpu_operand_at(&step->out[0], frame);
	note(frame,
	     step->elements.kernel(&args, begin, min_size(end, cpu_elements_units(&args, true))));
}

size_t cpu_units_scatter_elements(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_elements args = elements_args(step, count);

	return cpu_elements_units(&args, false);
}

void cpu_run_scatter_elements(const struct cpu_step *step, const struct cpu_frame *frame,
			      size_t begin, size_t end, const struct cpu_context *context)
{
	struct cpu_elements args = elements_args(step, frame->count);

	args.pause = context->pause;
	args.indices.data = cpu_operand_at(&step->in[1], frame);
	args.from = cpu_operand_at(&step->in[2], frame);
	args.to = cpu_operand_at(&step->out[0], frame);
	note(frame,
	     step->elements.kernel(&args, begin, min_size(end, cpu_elements_units(&args, false))));
}

size_t cpu_units_scatter_nd(const struct cpu_step *step, uint32_t count)
{
	return cpu_scatter_nd_units(&step->scatter_nd.args);
}

void cpu_run_scatter_nd(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			size_t end, const struct cpu_context *context)
{
	struct cpu_scatter_nd args = step->scatter_nd.args;

	args.rows = cpu_extent_at(&step->scatter_nd.rows, frame->count);
	args.pause = context->pause;
	args.indices.data = cpu_operand_at(&step->in[1], frame);
	args.updates = cpu_operand_at(&step->in[2], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	note(frame,
	     step->scatter_nd.kernel(&args, begin, min_size(end, cpu_scatter_nd_units(&args))));
}

size_t cpu_units_one_hot(const struct cpu_step *step, uint32_t count)
{
	return cpu_extent_at(&step->one_hot.outer, count);
}

void cpu_run_one_hot(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		     size_t end, const struct cpu_context *context)
{
	struct cpu_one_hot args = step->one_hot.args;

	args.outer = cpu_extent_at(&step->one_hot.outer, frame->count);
	args.pause = context->pause;
	args.indices.data = cpu_operand_at(&step->in[0], frame);
	args.values = cpu_operand_at(&step->in[1], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	step->kernels->one_hot(&args, begin, min_size(end, args.outer));
}

static struct cpu_trilu trilu_args(const struct cpu_step *step, uint32_t count)
{
	struct cpu_trilu args = step->trilu.args;

	args.batch = cpu_extent_at(&step->trilu.batch, count);
	args.rows = cpu_extent_at(&step->trilu.rows, count);
	return args;
}

size_t cpu_units_trilu(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_trilu args = trilu_args(step, count);

	return args.batch * args.rows;
}

void cpu_run_trilu(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		   size_t end, const struct cpu_context *context)
{
	struct cpu_trilu args = trilu_args(step, frame->count);

	args.pause = context->pause;
	args.x = cpu_operand_at(&step->in[0], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	step->kernels->trilu(&args, begin, min_size(end, args.batch * args.rows));
}
