/* SPDX-License-Identifier: MIT */
/*
 * Running steps: moving elements
 */
#include "cpu/run-move.h"

static struct cpu_move move_args(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_move *s = cpu_step_args(step);
	struct cpu_move args = s->args;

	if (s->dynamic)
		args.extent[s->dynamic_dim] *= count;
	return args;
}

size_t cpu_units_move(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_move args = move_args(step, count);

	return cpu_move_units(&args);
}

void cpu_run_move(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		  size_t end, const struct cpu_context *context)
{
	const struct cpu_step_move *s = cpu_step_args(step);
	struct cpu_move args = move_args(step, frame->count);

	args.pause = context->pause;
	args.from = s->is_value
			    ? (const uint8_t *)&s->value
			    : (const uint8_t *)cpu_operand_at(&step->in[0], frame) + s->from_first;
	args.to = (uint8_t *)cpu_operand_at(&step->out[0], frame) + s->to_first;
	step->kernels->move(&args, begin, min_size(end, cpu_move_units(&args)));
}
