/* SPDX-License-Identifier: MIT */
/*
 * Normalisations
 *
 * All but BatchNormalization work on rows of adjacent elements: the dimensions from an axis on, a
 * channel, or a group of channels. Scale and bias have the row's length, one value per channel, or
 * a single value.
 */
#include "cpu/compile.h"
#include "cpu/run-norm.h"

static bool is_one(const struct tensor *tensor)
{
	return !tensor->shape.dynamic && shape_elems(&tensor->shape, 1) == 1;
}

static int compile_layer_norm(struct compiler *c)
{
	const struct tensor *x = node_in(c, 0), *scale = node_in(c, 1), *bias = node_in(c, 2);
	const unsigned int axis = c->node->params.norm.axis;
	struct cpu_step_norm *step = compile_args(c);

	c->step->run = cpu_run_norm;
	c->step->units = cpu_units_norm;
	step->rows = extent_range(&x->shape, 0, axis);
	step->len = extent_range(&x->shape, axis, x->shape.rank);
	step->args.period = 1;
	step->args.scale_each = !is_one(scale);
	step->args.bias_each = bias && !is_one(bias);
	step->args.type = node_float_type(node_in(c, 0));
	step->args.epsilon = c->node->params.norm.epsilon;
	step->args.rms = c->node->op->kind == OP_RMS_NORM;
	return 0;
}

/* GroupNormalization and InstanceNormalization, which has as many groups as channels */
static int compile_group_norm(struct compiler *c)
{
	const struct shape *x = &node_in(c, 0)->shape;
	const uint32_t groups = c->node->params.norm.groups;
	struct cpu_step_norm *step = compile_args(c);

	c->step->run = cpu_run_norm;
	c->step->units = cpu_units_norm;
	step->rows = extent_mul(extent_range(x, 0, 1), (struct cpu_extent){.fixed = groups});
	step->args.run = extent_range(x, 2, x->rank).fixed;
	step->len.fixed = step->args.run * (x->dims[1] / groups);
	step->args.period = groups;
	step->args.scale_each = step->args.bias_each = step->args.run == 1;
	step->args.type = node_float_type(node_in(c, 0));
	step->args.epsilon = c->node->params.norm.epsilon;
	return 0;
}

static int compile_batch_norm(struct compiler *c)
{
	const struct shape *x = &node_in(c, 0)->shape;
	struct cpu_step_batch_norm *step = compile_args(c);

	c->step->run = cpu_run_batch_norm;
	c->step->units = cpu_units_batch_norm;
	step->batch = extent_range(x, 0, 1);
	step->args.channels = x->dims[1];
	step->args.run = extent_range(x, 2, x->rank).fixed;
	if (c->is_last) {
		step->batch = extent_mul(step->batch, (struct cpu_extent){step->args.run, 0});
		step->args.run = 1;
	}
	step->args.type = node_float_type(node_in(c, 0));
	step->args.epsilon = c->node->params.norm.epsilon;
	return 0;
}

static bool batch_norm_may(const struct plan *plan, const struct node *node)
{
	return cpu_layout_has_in(plan, node, 0);
}

const struct cpu_op cpu_op_layer_norm = {.compile = compile_layer_norm, .overhead = {30, 0, 0}};
const struct cpu_op cpu_op_rms_norm = {.compile = compile_layer_norm, .overhead = {25, 0, 0}};
const struct cpu_op cpu_op_instance_norm = {.compile = compile_group_norm, .overhead = {40, 0, 0}};
const struct cpu_op cpu_op_group_norm = {.compile = compile_group_norm, .overhead = {40, 0, 0}};
const struct cpu_op cpu_op_batch_norm = {.compile = compile_batch_norm,
					 .may_be_last = batch_norm_may};
