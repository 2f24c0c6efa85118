/* SPDX-License-Identifier: MIT */
/*
 * From nodes to steps
 *
 * What all operators have in common: operands become a base and an offset, costs a guess in
 * nanoseconds, and constants may get a packed form. The rest of a step is filled by the compiler of
 * its operator, in the other compile-*.c files.
 */
#include "cpu/compile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/internal.h"
#include "plan/executor.h"
#include "util/error.h"

/* What one thread does in a nanosecond, roughly and rather too little. */
static const double flops_per_ns = 40, bytes_per_ns = 8;

static struct cpu_operand operand(const struct compiler *c, const struct tensor *tensor)
{
	struct cpu_operand operand = {.present = tensor != NULL};

	if (!tensor)
		return operand;
	switch (tensor->kind) {
	case RBK_TENSOR_CONSTANT: {
		const struct plan_constant *constant = &c->plan->constants[tensor->constant];

		operand.base = CPU_BASE_ABSOLUTE;
		operand.offset = (uintptr_t)constant->arena->base + constant->offset;
		break;
	}
	case RBK_TENSOR_SCRATCH:
		operand.base = CPU_BASE_SCRATCH;
		operand.offset = tensor->scratch_offset;
		break;
	default:
		operand.base = (uint16_t)(CPU_BASE_BINDING + tensor->binding);
		break;
	}
	return operand;
}

static void step_cost(struct compiler *c)
{
	const struct cost *cost = &c->node->cost;

	c->step->cost_fixed_ns =
		(double)cost->flops_fixed / flops_per_ns + (double)cost->bytes_fixed / bytes_per_ns;
	c->step->cost_row_ns =
		(double)cost->flops_row / flops_per_ns + (double)cost->bytes_row / bytes_per_ns;
}

int compile_pack(struct compiler *c, unsigned int i, enum pack_form form, const uint64_t *params,
		 unsigned int n_params, size_t floats, struct cpu_pack **ret, bool *ret_new)
{
	const struct plan_constant *constant = &c->plan->constants[node_in(c, i)->constant];
	struct cpu_pack_key key = {
		.owner = constant->arena->owner,
		.dev = constant->arena->dev,
		.ino = constant->arena->ino,
		.offset = constant->offset,
		.bytes = constant->bytes,
		.form = {form},
	};
	int r;

	memcpy(key.form + 1, params, n_params * sizeof(*params));
	r = cpu_pack_get(&c->cpu->packs, &key, floats, ret, ret_new);
	if (r)
		return error_fold(r);
	c->compiled->packs[c->compiled->n_packs++] = *ret;
	c->step->in[i].base = CPU_BASE_ABSOLUTE;
	c->step->in[i].offset = (uintptr_t)(*ret)->data;
	return 0;
}

static int (*const compilers[])(struct compiler *c) = {
	[OP_MATMUL] = compile_matmul,     [OP_GEMM] = compile_gemm,
	[OP_ADD] = compile_binary,        [OP_MUL] = compile_binary,
	[OP_RELU] = compile_relu,         [OP_SOFTMAX] = compile_softmax,
	[OP_REDUCE_SUM] = compile_reduce, [OP_TRANSPOSE] = compile_transpose,
	[OP_CONV] = compile_conv,         [OP_MAX_POOL] = compile_max_pool,
	[OP_TOP_K] = compile_top_k,
};
_Static_assert(sizeof(compilers) / sizeof(compilers[0]) == OP_KIND_COUNT, "one per operator");

int cpu_compile(struct cpu_executor *cpu, const struct plan *plan, struct cpu_plan *compiled)
{
	struct compiler c = {.cpu = cpu, .plan = plan, .compiled = compiled};
	int r;

	compiled->steps = calloc(plan->n_nodes, sizeof(*compiled->steps));
	/* At most one per node: b of a product, or the weights of a convolution. */
	compiled->packs = calloc(plan->n_nodes, sizeof(struct cpu_pack *));
	if (!compiled->steps || !compiled->packs)
		return error_origin(-ENOMEM);
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		c.node = &plan->nodes[i];
		c.step = &compiled->steps[i];
		c.step->kernels = cpu->kernels;
		for (unsigned int j = 0; j < 3; j++)
			c.step->in[j] = operand(&c, node_in(&c, j));
		for (unsigned int j = 0; j < c.node->n_out && j < 2; j++)
			c.step->out[j] = operand(&c, node_out(&c, j));
		step_cost(&c);
		r = compilers[c.node->op->kind](&c);
		if (r)
			return error_fold(r);
		compiled->n_steps++;
	}
	return 0;
}
