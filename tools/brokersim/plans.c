/* SPDX-License-Identifier: MIT */
/*
 * Plans of a scenario
 *
 * A plan is one operator whose leading dimension is the task's count. It is described in the wire's
 * structures (shm/plan-wire.h) and passed to plan_new(), so that the engine under test sees the
 * same costs, grain of rows and fingerprint as in brokerd. Constants lie in an arena that is never
 * read.
 */
#include "plans.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plan/executor.h"
#include "shm/plan-wire.h"
#include "util/checked.h"
#include "util/error.h"

enum { MAX_TENSORS = 4, MAX_ATTRS = 2, MAX_VALUES = 4 };

/*
 * The description of a plan of one node. On the wire its sections follow each other without gaps.
 */
struct description {
	struct rbk_plan_header header;
	struct rbk_plan_tensor tensors[MAX_TENSORS];
	struct rbk_plan_node node;
	struct rbk_plan_attr attrs[MAX_ATTRS];
	uint16_t edges[MAX_TENSORS];
	int64_t values[MAX_ATTRS * MAX_VALUES];
	uint32_t n_values;
};

#define MATRIX(KIND, ...) [OP_##KIND] = 1 << ROWS | 1 << COLUMNS

static const uint32_t op_dims[OP_KIND_COUNT] = {
	[OP_MATMUL] = 1 << ROWS | 1 << INNER | 1 << COLUMNS,
	[OP_GEMM] = 1 << ROWS | 1 << INNER | 1 << COLUMNS,
	OP_ELEMENTWISE(MATRIX),
	[OP_SOFTMAX] = 1 << ROWS | 1 << COLUMNS,
	[OP_REDUCE_SUM] = 1 << ROWS | 1 << COLUMNS,
	[OP_TRANSPOSE] = 1 << ROWS | 1 << HEIGHT | 1 << WIDTH,
	[OP_CONV] =
		1 << ROWS | 1 << CHANNELS | 1 << HEIGHT | 1 << WIDTH | 1 << FILTERS | 1 << KERNEL,
	[OP_MAX_POOL] = 1 << ROWS | 1 << CHANNELS | 1 << HEIGHT | 1 << WIDTH | 1 << KERNEL,
	[OP_TOP_K] = 1 << ROWS | 1 << COLUMNS | 1 << KERNEL,
};

uint32_t plans_dims(enum op_kind op)
{
	return op_dims[op];
}

static void add_tensor(struct description *d, const char *name, enum rbk_tensor_kind kind,
		       unsigned int rank, const uint32_t *dims, bool is_dynamic)
{
	struct rbk_plan_tensor *tensor = &d->tensors[d->header.n_tensors];

	snprintf(tensor->name, sizeof(tensor->name), "%s", name);
	tensor->kind = (uint8_t)kind;
	tensor->dtype = RBK_DTYPE_F32;
	tensor->rank = (uint8_t)rank;
	if (rank == 0)
		tensor->flags = RBK_PLAN_TENSOR_INFER;
	for (unsigned int i = 0; i < rank; i++)
		tensor->dims[i] = dims[i];
	if (is_dynamic) {
		tensor->flags |= RBK_PLAN_TENSOR_DYNAMIC;
		tensor->dims[0] = 0;
	}
	if (kind == RBK_TENSOR_CONSTANT)
		tensor->constant_ref = RBK_REF(1, 0);
	d->edges[d->header.n_edges++] = d->header.n_tensors;
	if (kind == RBK_TENSOR_OUTPUT)
		d->node.n_out++;
	else
		d->node.n_in++;
	d->header.n_tensors++;
}

static void add_attr(struct description *d, const char *name, enum rbk_plan_attr_type type,
		     unsigned int n, const int64_t *values)
{
	struct rbk_plan_attr *attr = &d->attrs[d->header.n_attrs++];

	snprintf(attr->name, sizeof(attr->name), "%s", name);
	attr->type = type;
	attr->n = n;
	attr->blob_offset = d->n_values * (uint32_t)sizeof(int64_t);
	memcpy(d->values + d->n_values, values, n * sizeof(*values));
	d->n_values += n;
	d->node.n_attrs++;
}

static void describe_op(struct description *d, const struct scenario_plan *spec)
{
	const uint32_t *dims = spec->dims;
	enum rbk_tensor_kind weights = spec->is_constant ? RBK_TENSOR_CONSTANT : RBK_TENSOR_INPUT;
	const int64_t half = dims[KERNEL] / 2;

	switch (spec->op) {
	case OP_MATMUL:
	case OP_GEMM:
		add_tensor(d, "x", RBK_TENSOR_INPUT, 2, (uint32_t[]){dims[ROWS], dims[INNER]},
			   true);
		add_tensor(d, "w", weights, 2, (uint32_t[]){dims[INNER], dims[COLUMNS]}, false);
		break;
	case OP_TRANSPOSE:
		add_tensor(d, "x", RBK_TENSOR_INPUT, 3,
			   (uint32_t[]){dims[ROWS], dims[HEIGHT], dims[WIDTH]}, true);
		add_attr(d, "perm", RBK_ATTR_INTS, 3, (int64_t[]){0, 2, 1});
		break;
	case OP_CONV:
		add_tensor(d, "x", RBK_TENSOR_INPUT, 4,
			   (uint32_t[]){dims[ROWS], dims[CHANNELS], dims[HEIGHT], dims[WIDTH]},
			   true);
		add_tensor(d, "w", weights, 4,
			   (uint32_t[]){dims[FILTERS], dims[CHANNELS], dims[KERNEL], dims[KERNEL]},
			   false);
		add_attr(d, "pads", RBK_ATTR_INTS, 4, (int64_t[]){half, half, half, half});
		break;
	case OP_MAX_POOL:
		add_tensor(d, "x", RBK_TENSOR_INPUT, 4,
			   (uint32_t[]){dims[ROWS], dims[CHANNELS], dims[HEIGHT], dims[WIDTH]},
			   true);
		add_attr(d, "kernel_shape", RBK_ATTR_INTS, 2,
			 (int64_t[]){dims[KERNEL], dims[KERNEL]});
		add_attr(d, "strides", RBK_ATTR_INTS, 2, (int64_t[]){dims[KERNEL], dims[KERNEL]});
		break;
	default:
		for (unsigned int i = 0; i < op_by_kind(spec->op)->min_in; i++)
			add_tensor(d, (const char[]){"xzv"[i], 0}, RBK_TENSOR_INPUT, 2,
				   (uint32_t[]){dims[ROWS], dims[COLUMNS]}, true);
		if (spec->op == OP_REDUCE_SUM)
			add_attr(d, "axes", RBK_ATTR_INTS, 1, (int64_t[]){1});
		if (spec->op == OP_TOP_K)
			add_attr(d, "k", RBK_ATTR_INT, 1, (int64_t[]){dims[KERNEL]});
		break;
	}
	d->node.first_out = d->header.n_edges;
	add_tensor(d, "y", RBK_TENSOR_OUTPUT, 0, NULL, false);
	if (spec->op == OP_TOP_K) {
		add_tensor(d, "i", RBK_TENSOR_OUTPUT, 0, NULL, false);
		d->tensors[d->header.n_tensors - 1].dtype = RBK_DTYPE_I64;
	}
}

static uint8_t *put(uint8_t *target, const void *source, size_t bytes)
{
	memcpy(target, source, bytes);
	return target + bytes;
}

/* Return the arena of all constants, which has the maximum size and is never read. */
static struct exec_arena *find_arena(void *context, uint16_t arena_id, const char **ret_why)
{
	static struct exec_arena arena = {.bytes = PLAN_MAX_BYTES};

	return &arena;
}

int plans_of_description(const void *desc, size_t bytes, char message[PLAN_MESSAGE_BYTES],
			 struct plan **ret)
{
	static const struct plan_arena_lookup lookup = {.find = find_arena};

	return plan_new(desc, bytes, &lookup, message, ret);
}

int plans_new(const struct scenario_plan *spec, char message[PLAN_MESSAGE_BYTES], struct plan **ret)
{
	_Alignas(8) uint8_t desc[sizeof(struct description)];
	struct description d = {
		.header = {.magic = RBK_PLAN_MAGIC,
			   .version = RBK_PLAN_VERSION,
			   .max_count = spec->dims[ROWS],
			   .n_nodes = 1},
	};
	uint8_t *end = desc;
	int r;

	snprintf(d.header.name, sizeof(d.header.name), "%.*s", RBK_NAME_BYTES - 1, spec->name);
	snprintf(d.node.op, sizeof(d.node.op), "%s", op_by_kind(spec->op)->name);
	describe_op(&d, spec);
	d.header.blob_bytes = d.n_values * (uint32_t)sizeof(int64_t);

	end = put(end, &d.header, sizeof(d.header));
	end = put(end, d.tensors, d.header.n_tensors * sizeof(d.tensors[0]));
	end = put(end, &d.node, sizeof(d.node));
	end = put(end, d.attrs, d.header.n_attrs * sizeof(d.attrs[0]));
	end = put(end, d.edges, (d.header.n_edges * sizeof(d.edges[0]) + 7) & ~(size_t)7);
	end = put(end, d.values, d.header.blob_bytes);

	r = plans_of_description(desc, (size_t)(end - desc), message, ret);
	return r == PLAN_E_INVALID ? SCENARIO_E_INVALID : r ? error_fold(r) : 0;
}

void plans_link_bytes(const struct plan *plan, uint32_t count, double *ret_up, double *ret_down)
{
	*ret_up = *ret_down = 0;
	for (unsigned int i = 0; i < plan->n_bindings; i++) {
		const struct plan_binding *binding = &plan->bindings[i];
		uint8_t kind = plan->tensors[binding->tensor].kind;
		double bytes = (double)(binding->fixed_bytes + binding->row_bytes * count);

		if (kind != RBK_TENSOR_OUTPUT)
			*ret_up += bytes;
		if (kind != RBK_TENSOR_INPUT)
			*ret_down += bytes;
	}
}
