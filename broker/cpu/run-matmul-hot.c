/* SPDX-License-Identifier: MIT */
/*
 * Running steps: MatMul and Gemm
 */
#include "cpu/run-matmul.h"

/*
 * Columns of one unit of a matrix product, multiples of every gemm_nr, and rows, multiples of every
 * gemm_mr. A packed b costs nothing to reread, while every unit packs its rows of a: so with a
 * packed b units are wide and low. Without, every unit packs its columns of b, so units are high.
 * Where there are few units, they are smaller still, so that a small product can be shared with
 * more threads: low if b is packed, else narrow, and low only if that is not enough. Those that one
 * thread computes together are merged.
 */
enum {
	GEMM_UNIT_N = 128,
	GEMM_UNIT_N_MAX = 512,
	GEMM_UNIT_N_FEW = 64,
	GEMM_UNIT_M = 60,
	GEMM_UNIT_M_MAX = 240,
	GEMM_ENOUGH_UNITS = 64,
	GEMM_FEW_UNITS = 16,
	GEMM_UNIT_M_FEW = 24
};

static size_t n_units(const struct cpu_gemm_grid *grid, size_t m, size_t n)
{
	return grid->batches * div_up(m, grid->m_unit) * div_up(n, grid->n_unit);
}

struct cpu_gemm_grid cpu_gemm_grid(const struct cpu_step_gemm *step, uint32_t count)
{
	const size_t m = cpu_extent_at(&step->m, count), n = cpu_extent_at(&step->n, count);
	struct cpu_gemm_grid grid = {
		.batches = 1,
		.m_unit = step->b_is_packed ? GEMM_UNIT_M : GEMM_UNIT_M_MAX,
		.n_unit = step->b_is_packed ? GEMM_UNIT_N_MAX : GEMM_UNIT_N,
	};

	for (unsigned int i = 0; i < step->n_batch; i++)
		grid.batches *= cpu_extent_at(&step->batch[i], count);
	while (n_units(&grid, m, n) < GEMM_ENOUGH_UNITS &&
	       (grid.m_unit > GEMM_UNIT_M || grid.n_unit > GEMM_UNIT_N)) {
		grid.m_unit = grid.m_unit > GEMM_UNIT_M ? grid.m_unit / 2 : grid.m_unit;
		grid.n_unit = grid.n_unit > GEMM_UNIT_N ? grid.n_unit / 2 : grid.n_unit;
	}
	if (!step->b_is_packed && n_units(&grid, m, n) < GEMM_FEW_UNITS)
		grid.n_unit = GEMM_UNIT_N_FEW;
	if (n_units(&grid, m, n) < GEMM_FEW_UNITS)
		grid.m_unit = GEMM_UNIT_M_FEW;
	grid.m_units = div_up(m, grid.m_unit);
	grid.n_units = div_up(n, grid.n_unit);
	return grid;
}

size_t cpu_units_gemm(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_gemm *s = cpu_step_args(step);
	const struct cpu_gemm_grid grid = cpu_gemm_grid(s, count);

	return grid.batches * grid.m_units * grid.n_units;
}

static uint32_t rounds(const struct cpu_step_gemm *step, uint32_t count, size_t block,
		       double factor)
{
	const struct cpu_gemm_grid grid = cpu_gemm_grid(step, count);

	return cpu_rounds(step->k, block, min_size(cpu_extent_at(&step->m, count), grid.m_unit),
			  min_size(cpu_extent_at(&step->n, count), grid.n_unit), factor);
}

uint32_t cpu_rounds_gemm(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_gemm *s = cpu_step_args(step);

	return rounds(s, count, CPU_GEMM_KC, 1);
}

uint32_t cpu_rounds_gemm_f64(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_gemm *s = cpu_step_args(step);

	/* A register holds half as many elements. */
	return rounds(s, count, CPU_GEMM_F64_KC, 2);
}

struct cpu_gemm_part cpu_gemm_part(const struct cpu_step_gemm *step,
				   const struct cpu_gemm_grid *grid, uint32_t count, size_t *begin,
				   size_t end)
{
	const size_t m = cpu_extent_at(&step->m, count), n = cpu_extent_at(&step->n, count);
	const size_t units = grid->m_units * grid->n_units, unit = *begin % units;
	const size_t n_unit = unit / grid->m_units, m_unit = unit % grid->m_units;
	const size_t left = min_size(end - *begin, units - unit), batch = *begin / units;
	size_t columns = 1, rows = min_size(left, grid->m_units - m_unit);
	size_t a = 0, b = 0, rest = batch;

	for (unsigned int i = step->n_batch; i-- > 0;) {
		const size_t extent = cpu_extent_at(&step->batch[i], count);

		a += rest % extent * step->a_batch[i];
		b += rest % extent * step->b_batch[i];
		rest /= extent;
	}
	/* Merge units of a column, and whole columns, into one tile. */
	if (m_unit == 0 && left >= grid->m_units)
		columns = left / grid->m_units;
	*begin += rows * columns;
	return (struct cpu_gemm_part){
		.a = a * step->a_matrix,
		.b = b * step->b_matrix,
		.y = batch * m * n,
		.tile =
			{
				.m_begin = m_unit * grid->m_unit,
				.m_end = min_size(m, (m_unit + rows) * grid->m_unit),
				.n_begin = n_unit * grid->n_unit,
				.n_end = min_size(n, (n_unit + columns) * grid->n_unit),
			},
	};
}

/* Compute the terms from @k_begin on of a part; the caller has set the rest of @gemm. */
static void gemm_part(const struct cpu_step *step, const struct cpu_frame *frame, size_t k_begin,
		      const struct cpu_gemm_part *part, struct cpu_gemm *gemm, void *workspace)
{
	const struct cpu_step_gemm *s = cpu_step_args(step);
	const size_t b_row = s->b_is_packed ? step->kernels->pack_b_size(1, gemm->n) : gemm->b_rs;

	gemm->a =
		(const float *)cpu_operand_at(&step->in[0], frame) + part->a + k_begin * gemm->a_cs;
	gemm->b = (const float *)cpu_operand_at(&step->in[1], frame) + part->b + k_begin * b_row;
	gemm->b_packed = s->b_is_packed ? gemm->b : NULL;
	gemm->y = (float *)cpu_operand_at(&step->out[0], frame) + part->y;
	step->kernels->gemm(gemm, &part->tile, workspace);
}

void cpu_run_gemm(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		  size_t end, const struct cpu_context *context)
{
	const struct cpu_step_gemm *s = cpu_step_args(step);
	const struct cpu_terms terms = cpu_round_terms(frame, s->k, CPU_GEMM_KC);
	struct cpu_gemm_grid grid;
	struct cpu_gemm gemm = {
		.m = cpu_extent_at(&s->m, frame->count),
		.n = cpu_extent_at(&s->n, frame->count),
		.k = s->k,
		.c = step->in[2].present ? cpu_operand_at(&step->in[2], frame) : NULL,
		.c_rs = s->c_rs,
		.c_cs = s->c_cs,
		.alpha = s->alpha,
		.beta = s->beta,
		.activation = step->activation.kernel ? &step->activation : NULL,
		.accumulate = terms.begin > 0,
		.pause = context->pause,
	};

	gemm.a_rs = s->trans_a ? 1 : gemm.k;
	gemm.a_cs = s->trans_a ? gemm.m : 1;
	gemm.b_rs = s->trans_b ? 1 : gemm.n;
	gemm.b_cs = s->trans_b ? gemm.k : 1;
	gemm.y_rs = gemm.n;
	gemm.k = terms.end - terms.begin;
	if (terms.end < s->k) {
		gemm.c = NULL;
		gemm.alpha = 1;
		gemm.activation = NULL;
	}

	/* All of a single matrix, which may be tiny: skip the grid. */
	if (end == SIZE_MAX && begin == 0 && s->n_batch == 0) {
		gemm_part(step, frame, terms.begin,
			  &(struct cpu_gemm_part){.tile = {.m_end = gemm.m, .n_end = gemm.n}},
			  &gemm, context->workspace);
		return;
	}
	grid = cpu_gemm_grid(s, frame->count);
	end = min_size(end, grid.m_units * grid.n_units * grid.batches);
	while (begin < end) {
		const struct cpu_gemm_part part =
			cpu_gemm_part(s, &grid, frame->count, &begin, end);

		gemm_part(step, frame, terms.begin, &part, &gemm, context->workspace);
	}
}
