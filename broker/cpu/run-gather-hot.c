/* SPDX-License-Identifier: MIT */
/*
 * Running steps: Gather, GatherElements, GatherND, ScatterElements, ScatterND, OneHot and Trilu
 */
#include "cpu/run-gather.h"

/* Who reads it does so after a later release, by whoever ends the step. */
static void note(const struct cpu_frame *frame, bool all_in_range)
{
	if (!all_in_range)
		atomic_store_explicit(frame->is_out_of_range, true, memory_order_relaxed);
}

static struct cpu_gather gather_args(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_gather *s = cpu_step_args(step);
	struct cpu_gather args = s->args;

	args.outer = cpu_extent_at(&s->outer, count);
	args.rows = cpu_extent_at(&s->rows, count);
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
	const struct cpu_step_elements *s = cpu_step_args(step);
	struct cpu_elements args = s->args;

	args.len = cpu_extent_at(&s->len, count);
	if (s->count_outer)
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
	const struct cpu_step_elements *s = cpu_step_args(step);
	struct cpu_elements args = elements_args(step, frame->count);

	args.pause = context->pause;
	args.from = cpu_operand_at(&step->in[0], frame);
	args.indices.data = cpu_operand_at(&step->in[1], frame);
	args.to = cpu_operand_at(&step->out[0], frame);
	note(frame, s->kernel(&args, begin, min_size(end, cpu_elements_units(&args, true))));
}

size_t cpu_units_scatter_elements(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_elements args = elements_args(step, count);

	return cpu_elements_units(&args, false);
}

void cpu_run_scatter_elements(const struct cpu_step *step, const struct cpu_frame *frame,
			      size_t begin, size_t end, const struct cpu_context *context)
{
	const struct cpu_step_elements *s = cpu_step_args(step);
	struct cpu_elements args = elements_args(step, frame->count);

	args.pause = context->pause;
	args.indices.data = cpu_operand_at(&step->in[1], frame);
	args.from = cpu_operand_at(&step->in[2], frame);
	args.to = cpu_operand_at(&step->out[0], frame);
	note(frame, s->kernel(&args, begin, min_size(end, cpu_elements_units(&args, false))));
}

size_t cpu_units_scatter_nd(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_scatter_nd *s = cpu_step_args(step);

	return cpu_scatter_nd_units(&s->args);
}

void cpu_run_scatter_nd(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			size_t end, const struct cpu_context *context)
{
	const struct cpu_step_scatter_nd *s = cpu_step_args(step);
	struct cpu_scatter_nd args = s->args;

	args.rows = cpu_extent_at(&s->rows, frame->count);
	args.pause = context->pause;
	args.indices.data = cpu_operand_at(&step->in[1], frame);
	args.updates = cpu_operand_at(&step->in[2], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	note(frame, s->kernel(&args, begin, min_size(end, cpu_scatter_nd_units(&args))));
}

size_t cpu_units_one_hot(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_one_hot *s = cpu_step_args(step);

	return cpu_extent_at(&s->outer, count);
}

void cpu_run_one_hot(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		     size_t end, const struct cpu_context *context)
{
	const struct cpu_step_one_hot *s = cpu_step_args(step);
	struct cpu_one_hot args = s->args;

	args.outer = cpu_extent_at(&s->outer, frame->count);
	args.pause = context->pause;
	args.indices.data = cpu_operand_at(&step->in[0], frame);
	args.values = cpu_operand_at(&step->in[1], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	step->kernels->one_hot(&args, begin, min_size(end, args.outer));
}

static struct cpu_trilu trilu_args(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_trilu *s = cpu_step_args(step);
	struct cpu_trilu args = s->args;

	args.batch = cpu_extent_at(&s->batch, count);
	args.rows = cpu_extent_at(&s->rows, count);
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
