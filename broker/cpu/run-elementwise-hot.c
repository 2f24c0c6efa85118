/* SPDX-License-Identifier: MIT */
/*
 * Running steps: elementwise operators
 *
 * One loop serves every operator and every broadcast. Along a row, each operand either advances or
 * repeats one element; an odometer enumerates the rows over the outer dimensions.
 */
#include "cpu/run-elementwise.h"

/* float16s converted at a time: their float32s stay in the first-level cache */
enum { HALVES = 512 };

/* Run a float32 kernel on float16: widen the operands, then narrow the result. */
static void run_halves(const struct cpu_step *step, const struct cpu_map *args, size_t n)
{
	const struct cpu_step_map *s = cpu_step_args(step);

	cpu_map_fn *const widen = step->kernels->cast[CPU_F16][CPU_F32];
	cpu_map_fn *const narrow = step->kernels->cast[CPU_F32][CPU_F16];
	float in[CPU_MAP_MAX_IN][HALVES], out[HALVES];
	struct cpu_map some = *args;

	for (unsigned int j = 0; j < s->n_in; j++) {
		some.in[j] = in[j];
		if (!s->step[j])
			widen(&(struct cpu_map){.in = {args->in[j]}, .out = in[j]}, 1);
	}
	for (size_t i = 0; i < n; i += HALVES) {
		const size_t left = min_size(n - i, HALVES);
		char *to = (char *)args->out + i * s->out_bytes;

		for (unsigned int j = 0; j < s->n_in; j++) {
			if (s->step[j])
				widen(&(struct cpu_map){.in = {(const uint16_t *)args->in[j] + i},
							.out = in[j]},
				      left);
		}
		some.out = s->halves_out ? (void *)out : to;
		s->kernel(&some, left);
		if (s->halves_out)
			narrow(&(struct cpu_map){.in = {out}, .out = to}, left);
	}
}

static void run_row(const struct cpu_step *step, const struct cpu_map *args, size_t n)
{
	const struct cpu_step_map *s = cpu_step_args(step);

	if (s->halves)
		run_halves(step, args, n);
	else
		s->kernel(args, n);
}

/* Return the row's arguments from element @from on. */
static struct cpu_map row_from(const struct cpu_step_map *s, const struct cpu_map *row, size_t from)
{
	struct cpu_map args = *row;

	for (unsigned int i = 0; i < s->n_in; i++) {
		if (s->step[i])
			args.in[i] = (const char *)row->in[i] + from * s->in_bytes[i];
	}
	args.out = (char *)row->out + from * s->out_bytes;
	return args;
}

/*
 * Fill in place: a copy of what was just stored in parts would wait until the stores are in the
 * cache, for about as long as a small row takes.
 */
static void map_args(const struct cpu_step *step, const struct cpu_frame *frame,
		     struct cpu_map *ret)
{
	const struct cpu_step_map *s = cpu_step_args(step);

	for (unsigned int i = 0; i < CPU_MAP_MAX_IN; i++) {
		ret->in[i] = i < s->n_in ? cpu_operand_at(&step->in[i], frame) : NULL;
		ret->step[i] = s->step[i];
	}
	ret->out = cpu_operand_at(&step->out[0], frame);
	ret->i[0] = s->i[0];
	ret->i[1] = s->i[1];
}

size_t cpu_units_map_flat(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_map *s = cpu_step_args(step);

	return div_up(cpu_extent_at(&s->inner, count), CPU_FLAT_UNIT);
}

void cpu_run_map_flat(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		      size_t end, const struct cpu_context *context)
{
	const struct cpu_step_map *s = cpu_step_args(step);
	const size_t n = cpu_extent_at(&s->inner, frame->count);
	const size_t from = begin * CPU_FLAT_UNIT;
	const size_t to = end > n / CPU_FLAT_UNIT ? n : end * CPU_FLAT_UNIT;
	struct cpu_map args, part;

	map_args(step, frame, &args);
	if (from > 0)
		part = row_from(s, &args, from);
	run_row(step, from > 0 ? &part : &args, to - from);
}

size_t cpu_units_map(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_map *s = cpu_step_args(step);
	size_t rows = 1;

	for (unsigned int i = 0; i < s->n_outer; i++)
		rows *= cpu_extent_at(&s->extent[i], count);
	return rows;
}

void cpu_run_map(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		 size_t end, const struct cpu_context *context)
{
	const struct cpu_step_map *s = cpu_step_args(step);
	const size_t inner = cpu_extent_at(&s->inner, frame->count);
	struct cpu_map row, part;
	size_t extent[CPU_MAX_DIMS], at[CPU_MAX_DIMS], rest = begin;

	map_args(step, frame, &row);
	end = min_size(end, cpu_units_map(step, frame->count));
	row.out = (char *)row.out + begin * inner * s->out_bytes;
	for (unsigned int d = s->n_outer; d-- > 0;) {
		extent[d] = cpu_extent_at(&s->extent[d], frame->count);
		at[d] = rest % extent[d];
		rest /= extent[d];
		for (unsigned int i = 0; i < s->n_in; i++)
			row.in[i] = (const char *)row.in[i] + at[d] * s->stride[i][d];
	}
	for (size_t unit = begin; unit < end; unit++) {
		for (size_t i = 0; i < inner; i += s->pause) {
			const size_t n = min_size(inner - i, s->pause);

			if (i > 0) {
				cpu_pause(context->pause);
				part = row_from(s, &row, i);
			}
			run_row(step, i > 0 ? &part : &row, n);
		}
		row.out = (char *)row.out + inner * s->out_bytes;
		for (unsigned int d = s->n_outer; d-- > 0;) {
			const bool wraps = ++at[d] == extent[d];

			for (unsigned int i = 0; i < s->n_in; i++)
				row.in[i] = (const char *)row.in[i] +
					    s->stride[i][d] * (wraps ? 1 - extent[d] : 1);
			if (!wraps)
				break;
			at[d] = 0;
		}
	}
}
