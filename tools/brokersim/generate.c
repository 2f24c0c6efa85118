/* SPDX-License-Identifier: MIT */
/*
 * Scenarios: generated plans of all sizes
 *
 * The operators alternate. The plans' touched bytes are spread evenly over the logarithm of the
 * range, one plan per step, so that every seed covers all sizes. The seed determines a plan's place
 * within its step, and its shape.
 */
#include "scenario.h"

#include <stdio.h>

#include "random.h"

enum { MIN_ROWS = 64 };

static uint32_t at_least(double value, uint32_t min)
{
	return value < min ? min : value > 1e9 ? 1000000000 : (uint32_t)value;
}

static void set_matrix(struct scenario_plan *plan, double bytes, uint64_t seed, uint32_t i)
{
	/*
	 * x, w and y have four bytes per element; rows and columns differ by at most a factor of
	 * four.
	 */
	double side = sqrt(bytes / 12);
	double aspect = exp2(2 * draw_uniform(seed, DRAW_GENERATE, i, 1) - 1);

	plan->dims[ROWS] = at_least(side * aspect, MIN_ROWS);
	plan->dims[INNER] = at_least(side / aspect, 8);
	plan->dims[COLUMNS] = at_least(side, 8);
	plan->is_constant = draw_uniform(seed, DRAW_GENERATE, i, 2) < 0.5;
}

static void set_image(struct scenario_plan *plan, double bytes, uint64_t seed, uint32_t i)
{
	uint32_t channels = 16u << (unsigned int)(3 * draw_uniform(seed, DRAW_GENERATE, i, 1));
	double side = sqrt(bytes / MIN_ROWS / (8.0 * channels));

	side = side < 4 ? 4 : side > 56 ? 56 : floor(side);
	plan->dims[CHANNELS] = channels;
	plan->dims[HEIGHT] = plan->dims[WIDTH] = (uint32_t)side;
	if (plan->op == OP_CONV) {
		plan->dims[FILTERS] = channels;
		plan->dims[KERNEL] = 3;
	} else {
		plan->dims[KERNEL] = 2;
	}
	plan->dims[ROWS] = at_least(bytes / (8.0 * channels * side * side), 1);
}

static void set_rows(struct scenario_plan *plan, double bytes, unsigned int n_tensors,
		     uint64_t seed, uint32_t i)
{
	uint32_t columns = 64u << (unsigned int)(5 * draw_uniform(seed, DRAW_GENERATE, i, 1));

	plan->dims[COLUMNS] = columns;
	plan->dims[ROWS] = at_least(bytes / (4.0 * n_tensors * columns), MIN_ROWS);
}

void scenario_generate(struct scenario *scenario, uint32_t n, const bool ops[OP_KIND_COUNT],
		       double bytes_min, double bytes_max, uint64_t seed)
{
	enum op_kind op = OP_KIND_COUNT - 1;

	for (uint32_t i = 0; i < n && scenario->n_plans < SCENARIO_MAX_PLANS; i++) {
		struct scenario_plan *plan = &scenario->plans[scenario->n_plans++];
		/*
		 * 7 and n have no common factor for any useful n, so neighbouring sizes get
		 * different operators.
		 */
		double step = (i * 7 % n) + draw_uniform(seed, DRAW_GENERATE, i, 0);
		double bytes =
			bytes_min * pow(bytes_max / bytes_min, n % 7 ? step / n : (i + 0.5) / n);

		do
			op = (op + 1) % OP_KIND_COUNT;
		while (!ops[op]);
		*plan = (struct scenario_plan){.op = op, .share = 1, .is_constant = true};
		snprintf(plan->name, sizeof(plan->name), "%s-%u", op_by_kind(op)->name, i);
		switch (op) {
		case OP_MATMUL:
		case OP_GEMM:
			set_matrix(plan, bytes, seed, i);
			break;
		case OP_CONV:
		case OP_MAX_POOL:
			set_image(plan, bytes, seed, i);
			break;
		case OP_TRANSPOSE:
			plan->dims[HEIGHT] = 32;
			plan->dims[WIDTH] = 16;
			plan->dims[ROWS] = at_least(bytes / (8.0 * 32 * 16), 1);
			break;
		case OP_TOP_K:
			set_rows(plan, bytes, 1, seed, i);
			plan->dims[KERNEL] = 10;
			break;
		default:
			set_rows(plan, bytes, op == OP_REDUCE_SUM ? 1 : op_by_kind(op)->min_in + 1u,
				 seed, i);
			break;
		}
	}
}
