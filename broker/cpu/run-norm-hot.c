/* SPDX-License-Identifier: MIT */
/* Running steps: normalisations. See run.h. */
#include "cpu/run-norm.h"

size_t cpu_units_norm(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_norm *s = cpu_step_args(step);

	return cpu_extent_at(&s->rows, count);
}

void cpu_run_norm(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		  size_t end, const struct cpu_context *context)
{
	const struct cpu_step_norm *s = cpu_step_args(step);
	struct cpu_norm args = s->args;

	args.pause = context->pause;
	args.rows = cpu_extent_at(&s->rows, frame->count);
	args.len = cpu_extent_at(&s->len, frame->count);
	if (args.run == 0)
		args.run = args.len;
	args.x = cpu_operand_at(&step->in[0], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	args.scale = cpu_operand_at(&step->in[1], frame);
	if (step->in[2].present)
		args.bias = cpu_operand_at(&step->in[2], frame);
	if (step->out[1].present)
		args.mean = cpu_operand_at(&step->out[1], frame);
	if (step->out[2].present)
		args.inv_std = cpu_operand_at(&step->out[2], frame);
	step->kernels->norm(&args, begin, min_size(end, args.rows));
}

size_t cpu_units_batch_norm(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_batch_norm *s = cpu_step_args(step);
	struct cpu_batch_norm args = s->args;

	args.batch = cpu_extent_at(&s->batch, count);
	return cpu_batch_norm_units(&args);
}

void cpu_run_batch_norm(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			size_t end, const struct cpu_context *context)
{
	const struct cpu_step_batch_norm *s = cpu_step_args(step);
	struct cpu_batch_norm args = s->args;

	args.pause = context->pause;
	args.batch = cpu_extent_at(&s->batch, frame->count);
	args.x = cpu_operand_at(&step->in[0], frame);
	args.scale = cpu_operand_at(&step->in[1], frame);
	args.bias = cpu_operand_at(&step->in[2], frame);
	args.mean = cpu_operand_at(&step->in[3], frame);
	args.var = cpu_operand_at(&step->in[4], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	step->kernels->batch_norm(&args, begin, min_size(end, cpu_batch_norm_units(&args)));
}
