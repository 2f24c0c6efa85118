/* SPDX-License-Identifier: MIT */
/*
 * Running steps: TopK, Softmax, reductions, CumSum and LpNormalization
 */
#include "cpu/run-reduce.h"

#include <string.h>

#include "cpu/topk-key.h"

size_t cpu_units_top_k(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_columns *s = cpu_step_args(step);

	return cpu_extent_at(&s->outer, count) * cpu_extent_at(&s->inner, count);
}

void cpu_run_top_k(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		   size_t end, const struct cpu_context *context)
{
	const struct cpu_step_columns *s = cpu_step_args(step);
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

	end = min_size(end, args.outer * args.inner);
	if (s->type == CPU_F32) {
		step->kernels->top_k(&args, begin, end);
		return;
	}
	cpu_top_k_key(
		&(struct cpu_top_k_key){
			.pause = args.pause,
			.type = s->type,
			.x = args.x,
			.values = args.values,
			.indices = args.indices,
			.len = args.len,
			.inner = args.inner,
			.k = args.k,
			.largest = args.largest,
		},
		begin, end);
}

static struct cpu_softmax softmax_args(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_columns *s = cpu_step_args(step);

	return (struct cpu_softmax){
		.outer = cpu_extent_at(&s->outer, count),
		.len = cpu_extent_at(&s->len, count),
		.inner = cpu_extent_at(&s->inner, count),
		.log = s->log,
		.type = s->type,
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

size_t cpu_units_columns(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_columns *s = cpu_step_args(step);

	return cpu_column_units(cpu_extent_at(&s->outer, count), cpu_extent_at(&s->inner, count));
}

void cpu_run_arg(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		 size_t end, const struct cpu_context *context)
{
	const struct cpu_step_columns *s = cpu_step_args(step);
	const struct cpu_arg args = {
		.pause = context->pause,
		.x = cpu_operand_at(&step->in[0], frame),
		.y = cpu_operand_at(&step->out[0], frame),
		.outer = cpu_extent_at(&s->outer, frame->count),
		.len = cpu_extent_at(&s->len, frame->count),
		.inner = cpu_extent_at(&s->inner, frame->count),
		.smallest = !s->largest,
		.last = s->last,
		.type = s->type,
	};

	step->kernels->arg(&args, begin, min_size(end, cpu_column_units(args.outer, args.inner)));
}

void cpu_run_scan(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		  size_t end, const struct cpu_context *context)
{
	const struct cpu_step_columns *s = cpu_step_args(step);
	const struct cpu_scan args = {
		.pause = context->pause,
		.x = cpu_operand_at(&step->in[0], frame),
		.y = cpu_operand_at(&step->out[0], frame),
		.outer = cpu_extent_at(&s->outer, frame->count),
		.len = cpu_extent_at(&s->len, frame->count),
		.inner = cpu_extent_at(&s->inner, frame->count),
		.exclusive = s->exclusive,
		.reverse = s->reverse,
		.type = s->type,
	};

	step->kernels->scan(&args, begin, min_size(end, cpu_column_units(args.outer, args.inner)));
}

void cpu_run_lp_norm(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		     size_t end, const struct cpu_context *context)
{
	const struct cpu_step_columns *s = cpu_step_args(step);
	const struct cpu_lp_norm args = {
		.pause = context->pause,
		.x = cpu_operand_at(&step->in[0], frame),
		.y = cpu_operand_at(&step->out[0], frame),
		.outer = cpu_extent_at(&s->outer, frame->count),
		.len = cpu_extent_at(&s->len, frame->count),
		.inner = cpu_extent_at(&s->inner, frame->count),
		.l1 = s->l1,
		.type = s->type,
	};

	step->kernels->lp_norm(&args, begin,
			       min_size(end, cpu_column_units(args.outer, args.inner)));
}

static struct cpu_reduce reduce_args(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_reduce *s = cpu_step_args(step);
	struct cpu_reduce args = s->args;

	if (s->count_kept)
		args.kept[0] *= count;
	if (s->count_reduced)
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

void cpu_run_copy(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		  size_t end, const struct cpu_context *context)
{
	const uint8_t *x = cpu_operand_at(&step->in[0], frame);
	uint8_t *y = cpu_operand_at(&step->out[0], frame);
	const size_t n = cpu_extent_at(cpu_step_args(step), frame->count);
	const size_t from = begin * CPU_FLAT_UNIT;
	const size_t to = end > n / CPU_FLAT_UNIT ? n : end * CPU_FLAT_UNIT;

	memcpy(y + from, x + from, to - from);
}
