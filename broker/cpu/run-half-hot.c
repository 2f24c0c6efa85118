/* SPDX-License-Identifier: MIT */
/* Running steps: conversions between float16 and float32 */
#include "cpu/run.h"

static void span(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		 size_t end, size_t *ret_from, size_t *ret_to)
{
	const size_t n = cpu_extent_at(cpu_step_args(step), frame->count);

	*ret_from = begin * CPU_FLAT_UNIT;
	*ret_to = end > n / CPU_FLAT_UNIT ? n : end * CPU_FLAT_UNIT;
}

size_t cpu_units_elems(const struct cpu_step *step, uint32_t count)
{
	return div_up(cpu_extent_at(cpu_step_args(step), count), CPU_FLAT_UNIT);
}

void cpu_run_half_load(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		       size_t end, const struct cpu_context *context)
{
	const uint16_t *x = cpu_operand_at(&step->in[0], frame);
	float *y = cpu_operand_at(&step->out[0], frame);
	size_t from, to;

	span(step, frame, begin, end, &from, &to);
	step->kernels->half_load(to - from, x + from, y + from);
}

void cpu_run_half_store(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			size_t end, const struct cpu_context *context)
{
	const float *x = cpu_operand_at(&step->in[0], frame);
	uint16_t *y = cpu_operand_at(&step->out[0], frame);
	size_t from, to;

	span(step, frame, begin, end, &from, &to);
	step->kernels->half_store(to - from, x + from, y + from);
}
