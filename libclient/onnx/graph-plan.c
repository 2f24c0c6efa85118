/* SPDX-License-Identifier: MIT */
/*
 * Making a plan of a compiled model
 *
 * The constants that steps read are stored in one arena, equal ones once. The arena is sealed and
 * belongs to the plan from then on. The bound inputs, outputs, constants, and each step with its
 * scratch tensors are then declared to a builder. A plan of some of the steps binds only the
 * tensors that these steps exchange with others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/onnx/graph.h"
#include "shm/number.h"

/* A constant of the plan and its offset in the arena. */
struct placed {
	struct tensor *tensor;
	uint64_t hash;
	uint64_t offset;
	bool is_same; /* equal to the one before it */
};

struct maker {
	struct graph *graph;
	struct rbk *rbk; /* NULL: constants get places in the arena, which has no memory */
	struct rbk_error *error;
	uint32_t first, end; /* steps */
	struct names *names;
	struct rbk_builder *builder;
	struct rbk_arena *arena;
	struct placed *placed;
	uint32_t n_placed;
	struct tensor **bound; /* inputs, then outputs */
	uint32_t n_bound, n_inputs;
};

static int out_of_memory(struct maker *maker)
{
	return onnx_error(maker->error, -ENOMEM, "out of memory");
}

/* ---- Constants ---- */

static uint64_t hash_bytes(const void *data, uint64_t n)
{
	const uint8_t *bytes = data;
	uint64_t hash = n * 0x9e3779b97f4a7c15u + 1, word;

	for (; n >= sizeof(word); n -= sizeof(word), bytes += sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		hash = (hash ^ word) * 0xff51afd7ed558ccdu;
		hash ^= hash >> 32;
	}
	for (; n > 0; n--)
		hash = (hash ^ *bytes++) * 0xff51afd7ed558ccdu;
	return hash ^ hash >> 29;
}

static int compare_hashes(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return 0;
}

static bool is_equal(const struct constant *a, const struct constant *b)
{
	return a->n_bytes == b->n_bytes &&
	       (a->data == b->data || !memcmp(a->data, b->data, a->n_bytes));
}

/*
 * Find equal constants, so that they share an offset, and place them one after the other.
 * Return: the arena's size in bytes.
 */
static uint64_t place_constants(struct maker *maker)
{
	bool shares = !(maker->graph->options.disable & RBK_ONNX_OPT_SHARE);
	uint64_t bytes = 0;

	if (shares) {
		for (uint32_t i = 0; i < maker->n_placed; i++) {
			const struct constant *constant = maker->placed[i].tensor->constant;

			maker->placed[i].hash = hash_bytes(constant->data, constant->n_bytes);
		}
		qsort(maker->placed, maker->n_placed, sizeof(*maker->placed), compare_hashes);
	}
	for (uint32_t i = 0; i < maker->n_placed; i++) {
		struct placed *placed = &maker->placed[i];

		if (shares && i > 0 && placed[-1].hash == placed->hash &&
		    is_equal(placed[-1].tensor->constant, placed->tensor->constant)) {
			placed->is_same = true;
			placed->offset = placed[-1].offset;
			continue;
		}
		placed->offset = bytes;
		bytes += round_up(placed->tensor->constant->n_bytes, RBK_REF_ALIGN);
	}
	return bytes;
}

static int fill_arena(struct maker *maker)
{
	uint64_t bytes = place_constants(maker);
	int r;

	if (maker->n_placed == 0 || !maker->rbk)
		return 0;
	/* An arena cannot be empty, even if no constant has any bytes. */
	r = rbk_arena_new_flags(maker->rbk, bytes ? bytes : RBK_REF_ALIGN, RBK_ARENA_MEMFD,
				&maker->arena, maker->error);
	if (r)
		return r;
	for (uint32_t i = 0; i < maker->n_placed; i++) {
		struct placed *placed = &maker->placed[i];
		const struct constant *constant = placed->tensor->constant;
		char *place;

		if (placed->is_same) {
			placed->offset = placed[-1].offset;
			continue;
		}
		placed->offset = 0;
		if (constant->n_bytes == 0)
			continue;
		place = rbk_arena_alloc(maker->arena, constant->n_bytes);
		if (!place)
			return onnx_error(maker->error, -ENOSPC,
					  "an arena of %llu bytes is too small",
					  (unsigned long long)bytes);
		memcpy(place, constant->data, constant->n_bytes);
		placed->offset = (uint64_t)(place - (char *)rbk_arena_data(maker->arena));
	}
	return rbk_arena_seal(maker->arena, maker->error);
}

/* ---- Selecting tensors ---- */

/* Set the place of each tensor, and collect the constants and bound inputs of the steps. */
static int collect(struct maker *maker)
{
	struct graph *graph = maker->graph;
	uint64_t n_max = graph->n_bound;

	for (uint32_t i = 0; i < graph->n_steps; i++) {
		struct step *step = graph->steps[i];

		for (unsigned int j = 0; j < step->n_in; j++)
			if (step->in[j])
				step->in[j]->place = PLACE_NONE;
		for (unsigned int j = 0; j < step->n_out; j++)
			if (step->out[j])
				step->out[j]->place = PLACE_NONE;
		n_max += step->n_in + step->n_out;
	}
	maker->bound = calloc(n_max + 1, sizeof(*maker->bound));
	maker->placed = calloc(n_max + 1, sizeof(*maker->placed));
	if (!maker->bound || !maker->placed)
		return out_of_memory(maker);

	/* Tensors written by these steps are scratch, unless other steps read them. */
	for (uint32_t i = maker->first; i < maker->end; i++)
		for (unsigned int j = 0; j < graph->steps[i]->n_out; j++)
			if (graph->steps[i]->out[j])
				graph->steps[i]->out[j]->place = PLACE_SCRATCH;
	for (uint32_t i = maker->first; i < maker->end; i++) {
		for (unsigned int j = 0; j < graph->steps[i]->n_in; j++) {
			struct tensor *in = graph->steps[i]->in[j];

			if (!in || in->place != PLACE_NONE)
				continue;
			in->place = in->constant ? PLACE_CONSTANT : PLACE_BOUND;
			if (in->constant)
				maker->placed[maker->n_placed++].tensor = in;
			else
				maker->bound[maker->n_bound++] = in;
		}
	}
	maker->n_inputs = maker->n_bound;
	return 0;
}

/* Bind the inputs and outputs of the whole model in the file's order. */
static void bind_whole(struct maker *maker)
{
	struct graph *graph = maker->graph;

	maker->n_inputs = maker->n_bound = 0;
	for (unsigned int i = 0; i < graph->n_bound; i++) {
		struct tensor *tensor = graph->bound[i];

		maker->bound[maker->n_bound++] = tensor;
		maker->n_inputs += tensor->output == UINT32_MAX;
		tensor->place = PLACE_BOUND;
	}
}

static void bind_outputs_of_part(struct maker *maker)
{
	struct graph *graph = maker->graph;

	for (uint32_t i = 0; i < graph->n_steps; i++) {
		bool is_outside = i < maker->first || i >= maker->end;

		for (unsigned int j = 0; is_outside && j < graph->steps[i]->n_in; j++)
			if (graph->steps[i]->in[j] &&
			    graph->steps[i]->in[j]->place == PLACE_SCRATCH)
				graph->steps[i]->in[j]->place = PLACE_BOUND_OUTPUT;
	}
	for (uint32_t i = maker->first; i < maker->end; i++) {
		for (unsigned int j = 0; j < graph->steps[i]->n_out; j++) {
			struct tensor *out = graph->steps[i]->out[j];

			if (!out || (out->place != PLACE_BOUND_OUTPUT && out->output == UINT32_MAX))
				continue;
			out->place = PLACE_BOUND;
			maker->bound[maker->n_bound++] = out;
		}
	}
}

/* ---- Declaring to the builder ---- */

static int name_tensor(struct maker *maker, const struct tensor *tensor, char ret[RBK_NAME_BYTES],
		       uint32_t dims[RBK_MAX_RANK])
{
	int r;

	r = names_make(maker->names, tensor->name, ret);
	if (r)
		return onnx_error(maker->error, r, "the model has more tensors than a plan can, %u",
				  RBK_MAX_PLAN_TENSORS);
	memcpy(dims, tensor->shape.dims, sizeof(tensor->shape.dims));
	if (tensor->shape.dynamic)
		dims[0] = RBK_DIM_COUNT;
	return 0;
}

static int declare_bound(struct maker *maker)
{
	uint32_t dims[RBK_MAX_RANK];
	char name[RBK_NAME_BYTES];
	int r;

	for (uint32_t i = 0; i < maker->n_bound; i++) {
		struct tensor *tensor = maker->bound[i];

		r = name_tensor(maker, tensor, name, dims);
		if (r)
			return r;
		tensor->id = i < maker->n_inputs
				     ? rbk_builder_input(maker->builder, name, tensor->dtype,
							 tensor->shape.rank, dims)
				     : rbk_builder_output(maker->builder, name, tensor->dtype,
							  tensor->shape.rank, dims);
	}
	return 0;
}

static int declare_constants(struct maker *maker)
{
	uint32_t dims[RBK_MAX_RANK];
	char name[RBK_NAME_BYTES];
	int r;

	for (uint32_t i = 0; i < maker->n_placed; i++) {
		struct tensor *tensor = maker->placed[i].tensor;

		r = name_tensor(maker, tensor, name, dims);
		if (r)
			return r;
		tensor->id = rbk_builder_constant(maker->builder, name, tensor->dtype,
						  tensor->shape.rank, dims, maker->arena,
						  maker->placed[i].offset);
	}
	return 0;
}

static void declare_attrs(struct maker *maker, unsigned int node, const struct step *step)
{
	struct rbk_builder *builder = maker->builder;

	for (unsigned int i = 0; i < step->n_attrs; i++) {
		const struct attr *attr = &step->attrs[i];

		switch (attr->type) {
		case RBK_ATTR_INT:
			rbk_builder_attr_int(builder, node, attr->name, attr->i);
			break;
		case RBK_ATTR_FLOAT:
			rbk_builder_attr_float(builder, node, attr->name, attr->f);
			break;
		case RBK_ATTR_INTS:
			rbk_builder_attr_ints(builder, node, attr->name, attr->ints, attr->n);
			break;
		case RBK_ATTR_FLOATS:
			rbk_builder_attr_floats(builder, node, attr->name, attr->floats, attr->n);
			break;
		case RBK_ATTR_STRING:
			rbk_builder_attr_string(builder, node, attr->name, attr->string);
			break;
		}
	}
}

/* Shorten a step's name; names of nodes need not be distinct. */
static void node_name(const struct step *step, char ret[RBK_NAME_BYTES])
{
	const char *name = step->name;
	size_t n = strlen(name);

	if (n >= RBK_NAME_BYTES)
		name += n - (RBK_NAME_BYTES - 1);
	strcpy(ret, name);
	for (char *c = ret; *c; c++)
		if (*c < 0x20 || *c > 0x7e)
			*c = '?';
}

static int declare_step(struct maker *maker, const struct step *step)
{
	unsigned int in[OP_MAX_INPUTS], out[OP_MAX_OUTPUTS], node;
	uint32_t dims[RBK_MAX_RANK];
	char name[RBK_NAME_BYTES];
	int r;

	for (unsigned int i = 0; i < step->n_out; i++) {
		struct tensor *tensor = step->out[i];

		if (!tensor || tensor->place != PLACE_SCRATCH)
			continue;
		r = name_tensor(maker, tensor, name, dims);
		if (r)
			return r;
		tensor->id = rbk_builder_scratch(maker->builder, name, tensor->dtype,
						 tensor->shape.rank, dims);
	}
	for (unsigned int i = 0; i < step->n_in; i++)
		in[i] = step->in[i] ? step->in[i]->id : RBK_TENSOR_NONE;
	for (unsigned int i = 0; i < step->n_out; i++)
		out[i] = step->out[i] ? step->out[i]->id : RBK_TENSOR_NONE;
	node_name(step, name);
	node = rbk_builder_node(maker->builder, step->op, name, in, step->n_in, out, step->n_out);
	declare_attrs(maker, node, step);
	return 0;
}

static int declare(struct maker *maker)
{
	int r;

	maker->names = names_new();
	maker->builder = rbk_builder_new("onnx");
	if (!maker->names || !maker->builder)
		return out_of_memory(maker);
	r = declare_bound(maker);
	if (!r)
		r = declare_constants(maker);
	for (uint32_t i = maker->first; !r && i < maker->end; i++)
		r = declare_step(maker, maker->graph->steps[i]);
	return r;
}

/* Check the limits of a plan before anything is allocated. */
static int check_size(struct maker *maker)
{
	if (maker->end - maker->first > RBK_MAX_PLAN_NODES)
		return onnx_error(maker->error, -E2BIG, "the model has %u steps, a plan at most %u",
				  maker->end - maker->first, RBK_MAX_PLAN_NODES);
	if (maker->n_bound > RBK_MAX_REFS)
		return onnx_error(maker->error, -E2BIG,
				  "the model has %u inputs and outputs, a plan at most %u",
				  maker->n_bound, RBK_MAX_REFS);
	return 0;
}

/* Return the plan's largest count: 1 if no bound tensor follows the count. */
static uint32_t plan_max_count(const struct maker *maker)
{
	for (uint32_t i = 0; i < maker->n_bound; i++)
		if (maker->bound[i]->shape.dynamic)
			return maker->graph->max_count;
	return 1;
}

/* Fill the arena, and declare all to the builder. */
static int make(struct maker *maker)
{
	bool is_whole = maker->first == 0 && maker->end == maker->graph->n_steps;
	int r;

	r = collect(maker);
	if (r)
		return r;
	if (is_whole)
		bind_whole(maker);
	else
		bind_outputs_of_part(maker);
	r = check_size(maker);
	if (!r)
		r = fill_arena(maker);
	if (!r)
		r = declare(maker);
	if (!r && maker->graph->options.disable & RBK_ONNX_OPT_FUSION)
		rbk_builder_disable_fusion(maker->builder);
	return r;
}

/* Free all but the arena and the builder. */
static void maker_deinit(struct maker *maker)
{
	names_free(maker->names);
	free(maker->placed);
	free(maker->bound);
}

int graph_plan(struct graph *graph, struct rbk *rbk, const struct rbk_onnx_options *options,
	       struct rbk_plan **ret, struct rbk_error *error)
{
	struct maker maker = {
		.graph = graph,
		.rbk = rbk,
		.error = error,
		.end = graph->n_steps,
	};
	struct tensor **bound;
	int r;

	if (options->n_steps) {
		if (options->first_step > graph->n_steps ||
		    options->n_steps > graph->n_steps - options->first_step)
			return onnx_error(error, -EINVAL, "the model has %u steps", graph->n_steps);
		maker.first = options->first_step;
		maker.end = maker.first + options->n_steps;
	}
	r = make(&maker);
	if (!r && options->pin)
		rbk_builder_pin_device(maker.builder, options->pin - 1);
	if (!r)
		r = rbk_plan_new(rbk, maker.builder, plan_max_count(&maker), ret, error);
	bound = r ? NULL : graph_take(graph, maker.n_bound * sizeof(*bound));
	if (bound) {
		memcpy(bound, maker.bound, maker.n_bound * sizeof(*bound));
		graph->plan_bound = bound;
		graph->n_plan_bound = maker.n_bound;
		graph->n_plan_inputs = maker.n_inputs;
	}
	rbk_builder_free(maker.builder);
	rbk_arena_free(maker.arena);
	maker_deinit(&maker);
	return r;
}

int graph_declare(struct graph *graph, struct rbk_arena *arena, struct rbk_builder **ret,
		  uint32_t *ret_max_count, struct rbk_error *error)
{
	struct maker maker = {
		.graph = graph,
		.error = error,
		.end = graph->n_steps,
		.arena = arena,
	};
	int r;

	r = make(&maker);
	*ret_max_count = plan_max_count(&maker);
	*ret = r ? rbk_builder_free(maker.builder) : maker.builder;
	maker_deinit(&maker);
	return r;
}
