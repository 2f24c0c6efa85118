/* SPDX-License-Identifier: MIT */
/*
 * From nodes to steps
 *
 * Nodes are compiled one after the other, each by its operator's compile() in the compile-*.c file
 * of its family. Costs become estimates in nanoseconds.
 */
#include "cpu/compile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/internal.h"
#include "plan/executor.h"
#include "util/error.h"

/*
 * Nodes and steps compiled per call, with at most one node more: less than a millisecond. Making a
 * pack takes one or two system calls, as long as PACK_STEPS steps.
 */
enum { PART_STEPS = 1024, PACK_STEPS = 4 };

static bool has_cost(const struct cpu_step *step)
{
	return step->cost_fixed_ns > 0 || step->cost_row_ns > 0;
}

/* Estimate the node's cost, divided equally among its steps without a cost of their own. */
static void step_costs(struct compiler *c, uint32_t first)
{
	const struct cost *cost = &c->node->cost;
	const double flops = COMPILE_FLOPS_PER_NS * c->speed_up;
	uint32_t n = 0;

	for (uint32_t i = first; i < c->compiled->n_steps; i++)
		n += !has_cost(&c->compiled->steps[i]);
	for (uint32_t i = first; i < c->compiled->n_steps; i++) {
		struct cpu_step *step = &c->compiled->steps[i];

		if (!has_cost(step)) {
			step->cost_fixed_ns = ((double)cost->flops_fixed / flops +
					       (double)cost->bytes_fixed / COMPILE_BYTES_PER_NS) /
					      n;
			step->cost_row_ns = ((double)cost->flops_row / flops +
					     (double)cost->bytes_row / COMPILE_BYTES_PER_NS) /
					    n;
		}
		c->compiled->cost_fixed_ns += step->cost_fixed_ns;
		c->compiled->cost_row_ns += step->cost_row_ns;
	}
}

static int compile_node(struct compiler *c, const struct node *node)
{
	const uint32_t first = c->compiled->n_steps;
	int r;

	c->node = node;
	c->op = cpu_op_of(node->op->kind);
	c->work_used = 0;
	c->work_max = node->work_bytes;
	c->speed_up = 1;
	memset(c->stand_in, 0, sizeof(c->stand_in));
	memset(c->stand_out, 0, sizeof(c->stand_out));
	r = compile_layout_begin(c);
	if (!r)
		r = compile_half_begin(c);
	if (!r)
		r = compile_add(c);
	if (!r)
		r = c->op->compile(c);
	if (!r && node->activation != PLAN_NO_NODE)
		compile_activation(c, &c->plan->nodes[node->activation]);
	if (!r)
		r = compile_half_end(c, first);
	if (!r)
		r = compile_layout_end(c);
	compile_half_deinit(c);
	if (r)
		return error_fold(r);
	step_costs(c, first);
	c->compiled->overhead_one_ns += compile_overhead_ns(c, first, 1);
	c->compiled->overhead_max_ns += compile_overhead_ns(c, first, c->plan->max_count);
	return 0;
}

/* Release unused capacity. */
static int trim_array(void **array, uint32_t n, size_t bytes)
{
	void *smaller;

	if (n == 0) {
		free(*array);
		*array = NULL;
		return 0;
	}
	smaller = reallocarray(*array, n, bytes);
	if (!smaller)
		return error_origin(-ENOMEM);
	*array = smaller;
	return 0;
}

static int trim(struct cpu_plan *compiled)
{
	int r = trim_array((void **)&compiled->steps, compiled->n_steps, sizeof(*compiled->steps));

	if (!r)
		r = trim_array((void **)&compiled->packs, compiled->n_packs,
			       sizeof(struct cpu_pack *));
	if (!r)
		r = trim_array((void **)&compiled->fills, compiled->n_fills,
			       sizeof(*compiled->fills));
	return r ? error_fold(r) : 0;
}

static int compile_begin(struct cpu_executor *cpu, const struct plan *plan,
			 struct cpu_plan *compiled)
{
	struct compiler *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_origin(-ENOMEM);
	compiled->compiler = c;
	c->cpu = cpu;
	c->plan = plan;
	c->compiled = compiled;
	c->number = ++cpu->n_compiled;
	/* Usually sufficient: growing may move a hundred megabytes. */
	c->max_steps = plan->n_nodes + plan->n_pieces / 2 + 1;
	compiled->steps = reallocarray(NULL, c->max_steps, sizeof(*compiled->steps));
	if (!compiled->steps)
		return error_origin(-ENOMEM);
	r = cpu_layout_init(&c->layout, plan, cpu->layout_wish);
	return r ? error_fold(r) : 0;
}

/* Return the compiled nodes and steps; a made pack counts as PACK_STEPS. */
static uint32_t work_done(const struct compiler *c)
{
	return c->next_node + c->compiled->n_steps + PACK_STEPS * c->n_made;
}

/* Return: 0, all nodes are compiled; EXECUTOR_E_MORE; -ENOMEM. */
static int compile_some(struct compiler *c)
{
	const struct plan *plan = c->plan;
	const uint32_t done_before = work_done(c);
	int r = cpu_layout_choose(&c->layout);

	if (r)
		return r < 0 ? error_fold(r) : r;
	while (c->next_node < plan->n_nodes) {
		const struct node *node = &plan->nodes[c->next_node];

		if (work_done(c) - done_before >= PART_STEPS)
			return EXECUTOR_E_MORE;
		c->next_node++;
		r = node->computed_by == PLAN_NO_NODE ? compile_node(c, node) : 0;
		if (r)
			return error_fold(r);
	}
	return 0;
}

int cpu_compile(struct cpu_executor *cpu, const struct plan *plan, struct cpu_plan *compiled)
{
	int r = compiled->compiler ? 0 : compile_begin(cpu, plan, compiled);

	if (!r)
		r = compile_some(compiled->compiler);
	if (r)
		return r < 0 ? error_fold(r) : r;
	cpu_compile_deinit(compiled);
	return trim(compiled);
}

void cpu_compile_deinit(struct cpu_plan *compiled)
{
	if (!compiled->compiler)
		return;
	cpu_layout_deinit(&compiled->compiler->layout);
	free(compiled->compiler);
	compiled->compiler = NULL;
}
