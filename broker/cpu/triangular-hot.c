/* SPDX-License-Identifier: MIT */
/*
 * Cholesky and TriangularSolve
 *
 * Panels lie in the workspace: two of CHUNK unknowns, and one of LANES for Cholesky. A matrix of
 * Cholesky is one unit.
 */
#include <math.h>

#include "cpu/compile.h"
#include "cpu/level.h"
#include "cpu/vec-double.h"
#include "cpu/vec-exp.h"
#include "cpu/vec.h"

enum { LANES = CPU_SOLVE_SIDES, CHUNK = 1024 };

/* Unknowns from which products are subtracted at a time, by two registers each */
#if VW == 16
enum { ROWS = 8 };
#else
enum { ROWS = 4 };
#endif

_Static_assert(CHUNK % LANES == 0 && CHUNK % ROWS == 0, "whole blocks in a chunk");
_Static_assert((2 * CHUNK + LANES) * LANES * sizeof(double) <= CPU_WORKSPACE_BYTES,
	       "panels are kept in the workspace");

struct step_solve {
	struct cpu_solve args;
	struct cpu_extent batch, sides; /* at most one depends on the count */
};

struct step_cholesky {
	struct cpu_cholesky args;
	struct cpu_extent batch;
};

#define REAL      float
#define VEC       vf
#define VEC_N     VW
#define VEC_SET   vf_set
#define VEC_LOAD  vf_load
#define VEC_STORE vf_store
#define REAL_SQRT f_sqrt
#define FN(name)  name##_f32
#include "cpu/triangular-type.c"
#undef REAL
#undef VEC
#undef VEC_N
#undef VEC_SET
#undef VEC_LOAD
#undef VEC_STORE
#undef REAL_SQRT
#undef FN

#define REAL      double
#define VEC       vd
#define VEC_N     VD
#define VEC_SET   vd_set
#define VEC_LOAD  vd_load
#define VEC_STORE vd_store
#define REAL_SQRT d_sqrt
#define FN(name)  name##_f64
#include "cpu/triangular-type.c"

void CPU_FN(solve)(const struct cpu_solve *args, size_t begin, size_t end, void *workspace)
{
	if (args->type == CPU_F64)
		solve_f64(args, begin, end, workspace);
	else
		solve_f32(args, begin, end, workspace);
}

void CPU_FN(cholesky)(const struct cpu_cholesky *args, size_t begin, size_t end, void *workspace)
{
	if (args->type == CPU_F64)
		cholesky_f64(args, begin, end, workspace);
	else
		cholesky_f32(args, begin, end, workspace);
}

static struct cpu_solve solve_args(const struct cpu_step *step, uint32_t count)
{
	const struct step_solve *s = cpu_step_args(step);
	struct cpu_solve args = s->args;

	args.batch = cpu_extent_at(&s->batch, count);
	args.sides = cpu_extent_at(&s->sides, count);
	return args;
}

static size_t units_solve(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_solve args = solve_args(step, count);

	return cpu_solve_units(&args);
}

static void run_solve(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		      size_t end, const struct cpu_context *context)
{
	struct cpu_solve args = solve_args(step, frame->count);

	args.pause = context->pause;
	args.a = cpu_operand_at(&step->in[0], frame);
	args.b = cpu_operand_at(&step->in[1], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	CPU_FN(solve)(&args, begin, min_size(end, cpu_solve_units(&args)), context->workspace);
}

const struct cpu_routine CPU_FN(solve_steps) = {run_solve, units_solve};

static size_t units_cholesky(const struct cpu_step *step, uint32_t count)
{
	const struct step_cholesky *s = cpu_step_args(step);

	return cpu_extent_at(&s->batch, count);
}

static void run_cholesky(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			 size_t end, const struct cpu_context *context)
{
	const struct step_cholesky *s = cpu_step_args(step);
	struct cpu_cholesky args = s->args;

	args.batch = cpu_extent_at(&s->batch, frame->count);
	args.pause = context->pause;
	args.a = cpu_operand_at(&step->in[0], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	CPU_FN(cholesky)(&args, begin, min_size(end, args.batch), context->workspace);
}

const struct cpu_routine CPU_FN(cholesky_steps) = {run_cholesky, units_cholesky};

#ifdef CPU_DESCRIBES
CPU_STEP_HOLDS(struct step_solve);
CPU_STEP_HOLDS(struct step_cholesky);
CPU_ROUTINES(cholesky_steps);
CPU_ROUTINES(solve_steps);

static int compile_cholesky(struct compiler *c)
{
	const struct shape *a = &node_in(c, 0)->shape;
	struct step_cholesky *step = compile_args(c);

	compile_level(c, cholesky_steps_routines);
	step->batch = extent_range(a, 0, a->rank - 2u);
	step->args.n = a->dims[a->rank - 1];
	step->args.type = node_float_type(node_in(c, 0));
	return 0;
}

static int compile_triangular_solve(struct compiler *c)
{
	const struct shape *a = &node_in(c, 0)->shape, *b = &node_in(c, 1)->shape;
	const union op_params *params = &c->node->params;
	struct step_solve *step = compile_args(c);
	struct cpu_solve *args = &step->args;

	compile_level(c, solve_steps_routines);
	args->left = params->triangular.left;
	args->upper = params->triangular.upper;
	args->trans = params->triangular.trans;
	args->unit = params->triangular.unit;
	args->n = a->dims[a->rank - 1];
	args->is_shared = a->rank == 2;
	args->type = node_float_type(node_in(c, 0));
	/* From the right, one matrix for all batches takes their rows as those of one. */
	if (!args->left && args->is_shared) {
		step->batch = (struct cpu_extent){.fixed = 1};
		step->sides = extent_range(b, 0, b->rank - 1u);
	} else {
		step->batch = extent_range(b, 0, b->rank - 2u);
		step->sides = extent_aligned(b, b->rank, args->left ? b->rank - 1u : b->rank - 2u);
	}
	return 0;
}

const struct cpu_op cpu_op_cholesky = {.compile = compile_cholesky};
const struct cpu_op cpu_op_triangular_solve = {.compile = compile_triangular_solve};
#endif
