/* SPDX-License-Identifier: MIT */
/*
 * Running steps: MatMul, Gemm, Conv and pooling of float64
 */
#include "cpu/run-matmul.h"
#include "cpu/run-window.h"

void cpu_run_gemm_f64(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		      size_t end, const struct cpu_context *context)
{
	const struct cpu_step_gemm *s = cpu_step_args(step);
	const struct cpu_gemm_grid grid = cpu_gemm_grid(s, frame->count);
	const struct cpu_terms terms = cpu_round_terms(frame, s->k, CPU_GEMM_F64_KC);
	const double *a = cpu_operand_at(&step->in[0], frame);
	const double *b = cpu_operand_at(&step->in[1], frame);
	double *y = cpu_operand_at(&step->out[0], frame);
	struct cpu_gemm_f64 gemm = {
		.m = cpu_extent_at(&s->m, frame->count),
		.n = cpu_extent_at(&s->n, frame->count),
		.k = s->k,
		.c = step->in[2].present ? cpu_operand_at(&step->in[2], frame) : NULL,
		.c_rs = s->c_rs,
		.c_cs = s->c_cs,
		.alpha = (double)s->alpha,
		.beta = (double)s->beta,
		.accumulate = terms.begin > 0,
		.pause = context->pause,
	};

	gemm.a_rs = s->trans_a ? 1 : gemm.k;
	gemm.a_cs = s->trans_a ? gemm.m : 1;
	gemm.b_rs = s->trans_b ? 1 : gemm.n;
	gemm.b_cs = s->trans_b ? gemm.k : 1;
	gemm.k = terms.end - terms.begin;
	if (terms.end < s->k) {
		gemm.c = NULL;
		gemm.alpha = 1;
	}
	end = min_size(end, grid.m_units * grid.n_units * grid.batches);
	while (begin < end) {
		const struct cpu_gemm_part part =
			cpu_gemm_part(s, &grid, frame->count, &begin, end);

		gemm.a = a + part.a + terms.begin * gemm.a_cs;
		gemm.b = b + part.b + terms.begin * gemm.b_rs;
		gemm.y = y + part.y;
		step->kernels->gemm_f64(&gemm, &part.tile, context->workspace);
	}
}

static struct cpu_window_f64 window_args(const struct cpu_step *step, const struct cpu_frame *frame,
					 const struct cpu_context *context)
{
	const struct cpu_step_window *s = cpu_step_args(step);
	struct cpu_window_f64 args = {
		.window = s->args,
		.x = cpu_operand_at(&step->in[0], frame),
		.weights = cpu_operand_at(&step->in[1], frame),
		.bias = step->in[2].present ? cpu_operand_at(&step->in[2], frame) : NULL,
		.y = cpu_operand_at(&step->out[0], frame),
	};

	args.window.batch = cpu_extent_at(&s->batch, frame->count);
	args.window.pause = context->pause;
	return args;
}

void cpu_run_conv_f64(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		      size_t end, const struct cpu_context *context)
{
	const struct cpu_window_f64 args = window_args(step, frame, context);

	step->kernels->conv_f64(&args, begin, min_size(end, cpu_conv_units(&args.window)),
				context->workspace);
}

size_t cpu_units_conv_transpose_f64(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_window *s = cpu_step_args(step);

	return cpu_extent_at(&s->batch, count) * s->args.group *
	       cpu_conv_transpose_f64_parts(&s->args);
}

void cpu_run_conv_transpose_f64(const struct cpu_step *step, const struct cpu_frame *frame,
				size_t begin, size_t end, const struct cpu_context *context)
{
	const struct cpu_window_f64 args = window_args(step, frame, context);

	step->kernels->conv_transpose_f64(
		&args, begin, min_size(end, cpu_units_conv_transpose_f64(step, frame->count)),
		context->workspace);
}

void cpu_run_pool_f64(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		      size_t end, const struct cpu_context *context)
{
	const struct cpu_step_window *s = cpu_step_args(step);
	const struct cpu_window_f64 args = window_args(step, frame, context);

	s->pool_f64(&args, begin, min_size(end, args.window.batch * args.window.channels));
}
