/* SPDX-License-Identifier: MIT */
/* Running steps: Attention and RotaryEmbedding. See run.h. */
#include <string.h>

#include "cpu/run-attention.h"

size_t cpu_units_rotary(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_rotary *s = cpu_step_args(step);

	return cpu_extent_at(&s->batch, count) * s->args.seq;
}

void cpu_run_rotary(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		    size_t end, const struct cpu_context *context)
{
	const struct cpu_step_rotary *s = cpu_step_args(step);
	struct cpu_rotary args = s->args;

	args.pause = context->pause;
	args.batch = cpu_extent_at(&s->batch, frame->count);
	args.x = cpu_operand_at(&step->in[0], frame);
	args.cos = cpu_operand_at(&step->in[1], frame);
	args.sin = cpu_operand_at(&step->in[2], frame);
	if (step->in[3].present)
		args.positions = cpu_operand_at(&step->in[3], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	step->kernels->rotary(&args, begin, min_size(end, cpu_rotary_units(&args)));
}

size_t cpu_units_attention(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_attention *s = cpu_step_args(step);
	struct cpu_attention args = s->args;

	args.batch = cpu_extent_at(&s->batch, count);
	return cpu_attention_units(&args);
}

void cpu_run_attention(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		       size_t end, const struct cpu_context *context)
{
	const struct cpu_step_attention *s = cpu_step_args(step);
	struct cpu_attention args = s->args;

	args.pause = context->pause;
	args.batch = cpu_extent_at(&s->batch, frame->count);
	args.q = cpu_operand_at(&step->in[0], frame);
	args.k = cpu_operand_at(&step->in[1], frame);
	args.v = cpu_operand_at(&step->in[2], frame);
	if (step->in[3].present)
		args.mask = cpu_operand_at(&step->in[3], frame);
	if (step->in[4].present) {
		args.past_k = cpu_operand_at(&step->in[4], frame);
		args.past_v = cpu_operand_at(&step->in[5], frame);
	}
	if (step->in[6].present)
		args.valid = cpu_operand_at(&step->in[6], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	if (step->out[3].present)
		args.qk = cpu_operand_at(&step->out[3], frame);
	step->kernels->attention(&args, begin, min_size(end, cpu_attention_units(&args)),
				 context->workspace);
}

size_t cpu_units_present(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_present *s = cpu_step_args(step);

	return cpu_extent_at(&s->batch, count) * s->heads;
}

void cpu_run_present(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		     size_t end, const struct cpu_context *context)
{
	const struct cpu_step_present *s = cpu_step_args(step);
	const size_t past_elems = s->past * s->size, elems = s->seq * s->size;
	const float *present = cpu_operand_at(&step->in[1], frame);
	float *to = cpu_operand_at(&step->out[0], frame);

	end = min_size(end, cpu_units_present(step, frame->count));
	for (size_t unit = begin; unit < end; unit++) {
		const float *from = present + unit / s->heads * s->heads * elems +
				    unit % s->heads * s->head_stride;
		float *y = to + unit * (past_elems + elems);

		cpu_pause(context->pause);
		if (step->in[0].present)
			memcpy(y,
			       (const float *)cpu_operand_at(&step->in[0], frame) +
				       unit * past_elems,
			       past_elems * sizeof(float));
		for (size_t i = 0; i < s->seq; i++)
			memcpy(y + past_elems + i * s->size, from + i * s->row_stride,
			       s->size * sizeof(float));
	}
}
