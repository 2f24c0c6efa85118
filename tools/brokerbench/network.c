/* SPDX-License-Identifier: MIT */
/* Small networks: see network.h. */
#include "network.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plans.h"
#include "shm/number.h"

#define WIDTH    256u
#define N_LAYERS 3u

enum { WEIGHT_BYTES = WIDTH * WIDTH * sizeof(float), ROW_BYTES = WIDTH * sizeof(float) };

/* Each layer multiplies by its weights, adds its bias, and all but the last have a Relu. */
static void describe(struct rbk_builder *builder, const struct rbk_arena *constants)
{
	static const uint32_t row[] = {1, WIDTH}, weights[] = {WIDTH, WIDTH}, bias[] = {WIDTH};
	unsigned int x = rbk_builder_input(builder, "x", RBK_DTYPE_F32, 2, row);

	for (unsigned int i = 0; i < N_LAYERS; i++) {
		const uint64_t at = i * (uint64_t)(WEIGHT_BYTES + ROW_BYTES);
		const bool is_last = i + 1 == N_LAYERS;
		unsigned int w, b, product, sum;
		char names[4][8];

		snprintf(names[0], sizeof(names[0]), "w%u", i);
		snprintf(names[1], sizeof(names[1]), "b%u", i);
		snprintf(names[2], sizeof(names[2]), "wx%u", i);
		snprintf(names[3], sizeof(names[3]), "y%u", i);
		w = rbk_builder_constant(builder, names[0], RBK_DTYPE_F32, 2, weights, constants,
					 at);
		b = rbk_builder_constant(builder, names[1], RBK_DTYPE_F32, 1, bias, constants,
					 at + WEIGHT_BYTES);
		product = rbk_builder_scratch(builder, names[2], RBK_DTYPE_F32, RBK_RANK_INFERRED,
					      NULL);
		sum = (is_last ? rbk_builder_output : rbk_builder_scratch)(
			builder, names[3], RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
		rbk_builder_binary(builder, "MatMul", x, w, product);
		rbk_builder_binary(builder, "Add", product, b, sum);
		x = sum;
		if (is_last)
			continue;
		snprintf(names[3], sizeof(names[3]), "x%u", i + 1);
		x = rbk_builder_scratch(builder, names[3], RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
		rbk_builder_unary(builder, "Relu", sum, x);
	}
}

static int make_perceptron(struct network *network, struct rbk *rbk, struct rbk_error *error)
{
	const uint64_t constant_bytes = N_LAYERS * (uint64_t)(WEIGHT_BYTES + ROW_BYTES);
	struct rbk_builder *builder;
	int r;

	r = rbk_arena_new(rbk, constant_bytes, &network->constants, error);
	if (r)
		return r;
	plans_fill(rbk_arena_data(network->constants), constant_bytes / sizeof(float), 2);
	r = rbk_arena_seal(network->constants, error);
	if (!r)
		r = rbk_arena_new(rbk, 2 * (uint64_t)ROW_BYTES, &network->arena, error);
	if (r)
		return r;
	plans_fill(rbk_arena_data(network->arena), WIDTH, 1);
	builder = rbk_builder_new("bench-perceptron");
	if (!builder)
		return -ENOMEM;
	describe(builder, network->constants);
	r = rbk_plan_new(rbk, builder, 1, &network->plan, error);
	rbk_builder_free(builder);
	if (r)
		return r;
	network->plan_id = rbk_plan_id(network->plan);
	network->count = 1;
	network->n_refs = 2;
	for (unsigned int i = 0; i < network->n_refs; i++) {
		network->refs[i] = rbk_arena_ref(network->arena, i * (uint64_t)ROW_BYTES);
		network->tensors[i] =
			(const char *)rbk_arena_data(network->arena) + i * (size_t)ROW_BYTES;
		network->bytes[i] = ROW_BYTES;
	}
	return 0;
}

int network_init(struct network *network, struct bench_env *env, struct rbk *rbk, const char *model)
{
	struct rbk_error error = {"out of memory"};
	int r;

	*network = (struct network)NETWORK_INIT;
	if (model)
		return network_file_new(network, env, rbk, model);
	r = make_perceptron(network, rbk, &error);
	return r ? bench_refused(env, r, error.text) : 0;
}

void network_deinit(struct network *network)
{
	network->file = network_file_free(network->file);
	network->plan = rbk_plan_free(network->plan);
	network->arena = rbk_arena_free(network->arena);
	network->constants = rbk_arena_free(network->constants);
}

void network_name(const char *model, char ret[NETWORK_NAME_BYTES])
{
	size_t end = model ? strcspn(model, ",") : 0, begin = end;

	for (unsigned int n_slashes = 0; begin > 0; begin--)
		if (model[begin - 1] == '/' && ++n_slashes == 2)
			break;
	if (model)
		snprintf(ret, NETWORK_NAME_BYTES, "%.*s", (int)(end - begin), model + begin);
	else
		snprintf(ret, NETWORK_NAME_BYTES, "perceptron %ux%u", N_LAYERS, WIDTH);
}
