/* SPDX-License-Identifier: MIT */
/* Plans of fighters; see fight-plan.h. */
#include "integration/fight-plan.h"

#include <math.h>
#include <stdio.h>

#include "integration/harness.h"

enum { N_SAMPLES = 6, MAX_SOFTMAX = 256 };

uint64_t fight_part_bytes(const struct fight_plan *plan)
{
	return (plan->kind == FIGHT_SUMS ? 1 : (uint64_t)plan->k) * plan->n * sizeof(float);
}

uint64_t fight_row_in_bytes(const struct fight_plan *plan)
{
	return (plan->kind == FIGHT_SUMS ? plan->n : plan->k) * sizeof(float);
}

uint64_t fight_row_out_bytes(const struct fight_plan *plan)
{
	return plan->n * sizeof(float);
}

float fight_input(uint32_t row, uint32_t i)
{
	return (float)((int)((row * 5 + i * 3) % 7) - 3);
}

int fight_constants_new(struct rbk *rbk, uint64_t bytes, struct rbk_arena **ret,
			struct rbk_error *error)
{
	struct rbk_arena *arena;
	float *at;
	int r;

	r = rbk_arena_new_flags(rbk, bytes, RBK_ARENA_MEMFD, &arena, error);
	if (r)
		return r;
	at = rbk_arena_data(arena);
	for (uint64_t i = 0; i < bytes / sizeof(float); i++)
		at[i] = (float)((int)((i * 7 + i / 251) % 5) - 2);
	r = rbk_arena_seal(arena, error);
	if (r)
		arena = rbk_arena_free(arena);
	else
		*ret = arena;
	return r;
}

/* Add the nodes that add one part, or x times the part, to @sum. Return: the new sum. */
static unsigned int add_part(struct rbk_builder *b, const struct fight_plan *plan, unsigned int x,
			     unsigned int part, unsigned int sum, uint32_t index)
{
	unsigned int product = part, ret;
	char name[32];

	if (plan->kind != FIGHT_SUMS) {
		snprintf(name, sizeof(name), "p%u", index);
		product = rbk_builder_scratch(b, name, RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
		rbk_builder_binary(b, "MatMul", x, part, product);
		if (index == 0)
			return product;
	}
	snprintf(name, sizeof(name), "s%u", index);
	ret = rbk_builder_scratch(b, name, RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
	rbk_builder_binary(b, "Add", sum, product, ret);
	return ret;
}

int fight_plan_new(struct rbk *rbk, struct fight_plan *plan, const struct rbk_arena *constants,
		   struct rbk_error *error)
{
	const bool is_sum = plan->kind == FIGHT_SUMS;
	const uint32_t in[] = {RBK_DIM_COUNT, is_sum ? plan->n : plan->k};
	const uint32_t out[] = {RBK_DIM_COUNT, plan->n}, dims[] = {plan->k, plan->n};
	struct rbk_builder *b = rbk_builder_new("fight");
	unsigned int x, y, sum;
	int r;

	x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, in);
	sum = x;
	for (uint32_t i = 0; i < plan->n_parts; i++) {
		char name[32];
		unsigned int part;

		snprintf(name, sizeof(name), "w%u", i);
		part = rbk_builder_constant(b, name, RBK_DTYPE_F32, is_sum ? 1 : 2,
					    is_sum ? dims + 1 : dims, constants, plan->offsets[i]);
		sum = add_part(b, plan, x, part, sum, i);
	}
	y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, out);
	rbk_builder_unary(b, plan->kind == FIGHT_SOFTMAX ? "Softmax" : "Relu", sum, y);
	if (plan->is_pinned)
		rbk_builder_pin_device(b, RBK_DEVICE_GPU);
	r = rbk_plan_new(rbk, b, FIGHT_ROWS, &plan->plan, error);
	if (r == 0)
		plan->id = rbk_plan_id(plan->plan);
	rbk_builder_free(b);
	return r;
}

/* Return an element of the last operator's input. */
static float sum_at(const struct fight_plan *plan, const struct rbk_arena *constants, uint32_t row,
		    uint32_t column)
{
	const char *data = rbk_arena_data(constants);
	float sum = plan->kind == FIGHT_SUMS ? fight_input(row, column) : 0;

	for (uint32_t i = 0; i < plan->n_parts; i++) {
		const float *part = (const float *)(const void *)(data + plan->offsets[i]);

		if (plan->kind == FIGHT_SUMS) {
			sum += part[column];
			continue;
		}
		for (uint32_t k = 0; k < plan->k; k++)
			sum += fight_input(row, k) * part[(uint64_t)k * plan->n + column];
	}
	return sum;
}

static const char *check_softmax(const struct fight_plan *plan, const struct rbk_arena *constants,
				 const float *y, uint32_t row)
{
	float sums[MAX_SOFTMAX], most = -INFINITY;
	double total = 0;

	for (uint32_t i = 0; i < plan->n; i++) {
		sums[i] = sum_at(plan, constants, row, i);
		most = fmaxf(most, sums[i]);
	}
	for (uint32_t i = 0; i < plan->n; i++)
		total += exp((double)(sums[i] - most));
	for (uint32_t i = 0; i < plan->n; i++)
		if (!(fabs((double)y[i] - exp((double)(sums[i] - most)) / total) <= 1e-5))
			return "a softmax is wrong";
	return NULL;
}

const char *fight_check(const struct fight_plan *plan, const struct rbk_arena *constants,
			const float *y, uint32_t n_rows, uint64_t *random)
{
	uint32_t row = (uint32_t)(harness_random(random) % n_rows);

	y += (uint64_t)row * plan->n;
	if (plan->kind == FIGHT_SOFTMAX)
		return check_softmax(plan, constants, y, row);
	for (uint32_t i = 0; i < N_SAMPLES; i++) {
		uint32_t column = (uint32_t)(harness_random(random) % plan->n);

		if (!(y[column] == fmaxf(0, sum_at(plan, constants, row, column))))
			return plan->kind == FIGHT_SUMS ? "a sum is wrong" : "a product is wrong";
	}
	return NULL;
}
