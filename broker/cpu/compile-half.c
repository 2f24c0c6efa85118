/* SPDX-License-Identifier: MIT */
/*
 * Float16
 *
 * A node with float16 operands becomes conversions to scratch of its own, the steps of its
 * operator, which see float32, and conversions back. So sums are in float32, and every kernel
 * supports float16 for two more passes over its operands.
 *
 * Constants are converted once, when packed forms are filled. If the operator packs the constant,
 * the converted copy is freed afterwards. If steps read the converted copy, it is kept as a packed
 * form itself. While the node is compiled, the copy has an address that no object has.
 */
#include "cpu/compile.h"

#include <string.h>

#include "cpu/internal.h"
#include "util/error.h"

enum { FILL_FLOATS = 1 << 19 }; /* floats converted at a time */

static bool is_half(const struct tensor *tensor)
{
	return tensor && tensor->dtype == RBK_DTYPE_F16;
}

static uint64_t n_elems(const struct compiler *c, const struct tensor *tensor)
{
	return shape_elems(&tensor->shape, c->plan->max_count);
}

/* Add a step that converts all of @tensor. */
static int add_conversion(struct compiler *c, const struct tensor *tensor, cpu_run_fn *run,
			  struct cpu_operand from, struct cpu_operand to)
{
	const uint64_t elem_bytes = sizeof(uint16_t) + sizeof(float);
	int r = compile_add_conversion(c, from, to, tensor->fixed_bytes * elem_bytes / 4,
				       tensor->row_bytes * elem_bytes / 4);

	if (r)
		return error_fold(r);
	c->step->run = run;
	c->step->units = cpu_units_elems;
	*(struct cpu_extent *)compile_args(c) = extent_range(&tensor->shape, 0, tensor->shape.rank);
	return 0;
}

uintptr_t compile_half_address(unsigned int i)
{
	/* Above all addresses of user space, and spaced for the largest tensor */
	return (uintptr_t)1 << 63 | (uintptr_t)i << 50;
}

int compile_half_begin(struct compiler *c)
{
	struct cpu_operand operand, converted;
	int r = 0;

	c->is_half = false;
	if (c->op->takes_half && c->op->takes_half(c->node))
		return 0;
	for (unsigned int i = 0; !r && i < c->node->n_in; i++) {
		const struct tensor *in = node_in(c, i);

		if (!is_half(in))
			continue;
		operand = compile_in(c, i);
		if (c->plan->tensors[in->root].kind == RBK_TENSOR_CONSTANT) {
			c->half_constants[i] = operand.offset;
			c->stand_in[i] = operand;
			c->stand_in[i].offset = compile_half_address(i);
		} else {
			converted = compile_work(c, n_elems(c, in) * sizeof(float));
			r = add_conversion(c, in, cpu_run_half_load, operand, converted);
			c->stand_in[i] = converted;
		}
		c->is_half = true;
	}
	for (unsigned int i = 0; !r && i < c->node->n_out; i++) {
		if (!is_half(node_out(c, i)))
			continue;
		c->stand_out[i] = compile_work(c, n_elems(c, node_out(c, i)) * sizeof(float));
		c->is_half = true;
	}
	return r ? error_fold(r) : 0;
}

static bool fill_floats(const struct cpu_fill *fill, uint64_t number)
{
	const size_t begin = number * FILL_FLOATS, left = *(const size_t *)fill->args - begin;
	const size_t n = left < FILL_FLOATS ? left : FILL_FLOATS;

	fill->kernels->half_load(n, (const uint16_t *)fill->from[0] + begin,
				 fill->pack->data + begin);
	return n < left;
}

/* Keep a converted constant if a step from @first on reads it. */
static int keep_constant(struct compiler *c, unsigned int i, uint32_t first)
{
	const struct plan_constant *constant = &c->plan->constants[node_constant(c, i)];
	const uintptr_t begin = compile_half_address(i);
	const size_t n = n_elems(c, node_in(c, i));
	struct cpu_pack *pack = NULL;
	struct cpu_fill *fill;
	int r;

	for (uint32_t step = first; step < c->compiled->n_steps; step++) {
		for (unsigned int k = 0; k < CPU_MAX_IN; k++) {
			struct cpu_operand *in = &c->compiled->steps[step].in[k];

			if (!in->present || in->base != CPU_BASE_ABSOLUTE || in->offset < begin ||
			    in->offset - begin >= n * sizeof(float))
				continue;
			if (!pack) {
				r = compile_pack_constant(c, constant, PACK_FLOATS, NULL, 0, n,
							  &pack, &fill);
				if (r)
					return error_fold(r);
				if (fill) {
					fill->part = fill_floats;
					*(size_t *)fill->args = n;
					fill->from[0] = (const void *)c->half_constants[i];
				}
			}
			in->offset = (uintptr_t)pack->data + (in->offset - begin);
		}
	}
	return 0;
}

int compile_half_end(struct compiler *c, uint32_t first_step)
{
	int r = 0;

	if (!c->is_half)
		return 0;
	for (unsigned int i = 0; !r && i < c->node->n_in; i++)
		if (c->half_constants[i])
			r = keep_constant(c, i, first_step);
	for (unsigned int i = 0; !r && i < c->node->n_out; i++) {
		const struct cpu_operand converted = c->stand_out[i];

		if (!converted.present)
			continue;
		c->stand_out[i].present = false;
		r = add_conversion(c, node_out(c, i), cpu_run_half_store, converted,
				   compile_out(c, i));
	}
	return r ? error_fold(r) : 0;
}

void compile_half_deinit(struct compiler *c)
{
	memset(c->half_constants, 0, sizeof(c->half_constants));
}
