/* SPDX-License-Identifier: MIT */
/*
 * Functions for making steps, shared by all operators' compilers
 *
 * Operands become a base and an offset, and constants may get a packed form. The compiler of the
 * operator fills the rest of a step.
 */
#include "cpu/compile.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/internal.h"
#include "util/error.h"

static struct cpu_operand operand_of(const struct compiler *c, const struct tensor *tensor)
{
	struct cpu_operand operand = {.present = tensor != NULL};

	if (!tensor)
		return operand;
	tensor = &c->plan->tensors[tensor->root];
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

struct cpu_operand compile_in(const struct compiler *c, unsigned int i)
{
	if (i < OP_MAX_INPUTS && c->stand_in[i].present)
		return c->stand_in[i];
	return operand_of(c, node_in(c, i));
}

struct cpu_operand compile_out(const struct compiler *c, unsigned int i)
{
	if (i < OP_MAX_OUTPUTS && c->stand_out[i].present)
		return c->stand_out[i];
	return operand_of(c, node_out(c, i));
}

struct cpu_operand compile_operand(const struct compiler *c, const struct tensor *tensor)
{
	for (unsigned int i = 0; tensor && i < c->node->n_in; i++)
		if (node_in(c, i) == tensor)
			return compile_in(c, i);
	for (unsigned int i = 0; tensor && i < c->node->n_out; i++)
		if (node_out(c, i) == tensor)
			return compile_out(c, i);
	return operand_of(c, tensor);
}

/* Reserve room for one more than the @n elements of @bytes each. */
static int reserve(void **array, uint32_t n, uint32_t *max, size_t bytes)
{
	const uint32_t wanted = *max ? 2 * *max : 16;
	void *larger;

	if (n < *max)
		return 0;
	larger = reallocarray(*array, wanted, bytes);
	if (!larger)
		return error_origin(-ENOMEM);
	*array = larger;
	*max = wanted;
	return 0;
}

static int reserve_pack(struct compiler *c)
{
	return reserve((void **)&c->compiled->packs, c->compiled->n_packs, &c->max_packs,
		       sizeof(*c->compiled->packs));
}

int compile_add(struct compiler *c)
{
	struct cpu_plan *compiled = c->compiled;
	struct cpu_step *step;
	int r;

	r = reserve((void **)&compiled->steps, compiled->n_steps, &c->max_steps,
		    sizeof(*compiled->steps));
	if (r)
		return error_fold(r);
	c->step = step = &compiled->steps[compiled->n_steps++];
	*step = (struct cpu_step){.kernels = c->cpu->kernels};
	for (unsigned int i = 0; i < CPU_MAX_IN; i++)
		step->in[i] = compile_in(c, i);
	for (unsigned int i = 0; i < CPU_MAX_OUT; i++)
		step->out[i] = compile_out(c, i);
	return 0;
}

int compile_add_conversion(struct compiler *c, struct cpu_operand from, struct cpu_operand to,
			   uint64_t fixed_bytes, uint64_t row_bytes)
{
	int r = compile_add(c);

	if (r)
		return error_fold(r);
	memset(c->step->in, 0, sizeof(c->step->in));
	memset(c->step->out, 0, sizeof(c->step->out));
	c->step->in[0] = from;
	c->step->out[0] = to;
	c->step->cost_fixed_ns = 2 * (double)fixed_bytes / COMPILE_BYTES_PER_NS;
	c->step->cost_row_ns = 2 * (double)row_bytes / COMPILE_BYTES_PER_NS;
	return 0;
}

void compile_drop(struct compiler *c)
{
	c->compiled->n_steps--;
	c->step = NULL;
}

struct cpu_operand compile_work(struct compiler *c, uint64_t bytes)
{
	const struct cpu_operand operand = {
		.base = CPU_BASE_SCRATCH,
		.offset = cpu_work_offset(c->plan) + c->work_used,
		.present = true,
	};

	c->work_used += round_up(bytes, PLAN_SCRATCH_ALIGN);
	assert(c->work_used <= c->work_max);
	if (c->work_used > c->compiled->work_bytes)
		c->compiled->work_bytes = c->work_used;
	return operand;
}

/*
 * Return true if the plan holds @pack already. Plans are compiled in turns. If a plan that was
 * begun later has got the pack since, the list of packs decides.
 */
static bool is_held(const struct compiler *c, const struct cpu_pack *pack)
{
	const struct cpu_plan *compiled = c->compiled;

	if (pack->user <= c->number)
		return pack->user == c->number;
	for (uint32_t i = 0; i < compiled->n_packs; i++)
		if (compiled->packs[i] == pack)
			return true;
	return false;
}

int compile_pack_constant(struct compiler *c, const struct plan_constant *constant,
			  enum pack_form form, const uint64_t *params, unsigned int n_params,
			  size_t floats, struct cpu_pack **ret_pack, struct cpu_fill **ret)
{
	struct cpu_pack_key key = {
		.owner = constant->arena->owner,
		.dev = constant->arena->dev,
		.ino = constant->arena->ino,
		.offset = constant->offset,
		.bytes = constant->bytes,
		.form = {form | (uint64_t)c->plan->tensors[constant->tensor].dtype << 32},
	};
	struct cpu_plan *compiled = c->compiled;
	struct cpu_pack *pack;
	int r;

	*ret = NULL;
	if (n_params)
		memcpy(key.form + 1, params, n_params * sizeof(*params));
	r = reserve_pack(c);
	if (!r)
		r = reserve((void **)&compiled->fills, compiled->n_fills, &c->max_fills,
			    sizeof(*compiled->fills));
	if (!r)
		r = cpu_pack_get(&c->cpu->packs, &key, floats, &pack);
	if (r)
		return error_fold(r);
	*ret_pack = pack;
	/* Another node of the plan uses the same pack: it is held, charged and filled once. */
	if (is_held(c, pack)) {
		cpu_pack_unref(&c->cpu->packs, pack);
		return 0;
	}
	c->n_made += pack->user == 0;
	if (pack->user < c->number)
		pack->user = c->number;
	compiled->packs[compiled->n_packs++] = pack;
	if (pack->is_filled)
		return 0;
	*ret = &compiled->fills[compiled->n_fills++];
	**ret = (struct cpu_fill){.pack = pack, .kernels = c->cpu->kernels};
	return 0;
}

int compile_pack(struct compiler *c, unsigned int i, enum pack_form form, const uint64_t *params,
		 unsigned int n_params, size_t floats, struct cpu_fill **ret)
{
	struct cpu_pack *pack = NULL;
	int r;

	r = compile_pack_constant(c, &c->plan->constants[node_constant(c, i)], form, params,
				  n_params, floats, &pack, ret);
	if (r)
		return error_fold(r);
	c->step->in[i].base = CPU_BASE_ABSOLUTE;
	c->step->in[i].offset = (uintptr_t)pack->data;
	return 0;
}
