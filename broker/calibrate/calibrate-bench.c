/* SPDX-License-Identifier: MIT */
/*
 * Probes and the bench
 *
 * Sizes are those of profiles: a probe of a class reads and writes about as many bytes as the class
 * stands for. Shapes are common for their family, and no powers of two where these would hit the
 * same sets of a cache again and again. The actual work is taken from the plan.
 *
 * Tensors hold numbers between 0 and 1 in random order, because selection takes longer where maxima
 * are found late, and processors slow down on denormals.
 */
#include "calibrate/calibrate-bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plan/exec-arena.h"
#include "shm/half.h"
#include "shm/plan-wire.h"
#include "util/checked.h"
#include "util/cleanup.h"
#include "util/error.h"

enum {
	MAX_TENSORS = CALIBRATE_CHAIN_NODES + 1,
	MAX_ATTRS = 3,
	MAX_EDGES = 2 * CALIBRATE_CHAIN_NODES + 2, /* padded to 8 bytes */
	MAX_VALUES = 8,
	PAGE_BYTES = 4096,
	ROW = 256,       /* elements of a row, for operators along rows */
	TOP_K = 8,       /* elements selected of a row */
	N_CHAIN = 16,    /* elements of the tensors of a chain */
	MAX_SIDE = 1024, /* of a product that compares tiles, in elements */
};

/* ---- The probes ---- */

#define RATE(family, class)                  \
	{                                    \
		OP_FAMILY_##family, class, 1 \
	}
#define RATES(class)                                                                \
	RATE(CONVOLUTION, class), RATE(SOFTMAX, class), RATE(REDUCTION, class),     \
		RATE(TRANSPOSE, class), RATE(GEMM, class), RATE(ACTIVATION, class), \
		RATE(POOLING, class), RATE(SELECTION, class)

/* Probes from which others can be inferred come first. */
static const struct calibrate_probe probes[CALIBRATE_PROBES] = {
	RATE(ELEMENTWISE, 3),
	RATE(MATMUL, 3),
	[CALIBRATE_CHAIN_SHORT] = {OP_FAMILY_ACTIVATION, 0, 1},
	[CALIBRATE_CHAIN_LONG] = {OP_FAMILY_ACTIVATION, 0, CALIBRATE_CHAIN_NODES},
	RATE(MATMUL, 2),
	RATE(ELEMENTWISE, 2),
	RATE(ELEMENTWISE, 4),
	RATE(MATMUL, 1),
	RATE(ELEMENTWISE, 1),
	RATES(2),
	RATE(MATMUL, 0),
	RATE(ELEMENTWISE, 0),
	RATES(3),
	RATES(1),
	RATES(0),
	RATE(MATMUL, 4),
	RATES(4),
};

struct calibrate_probe calibrate_probe(unsigned int index)
{
	return probes[index];
}

unsigned int calibrate_probe_index(enum op_family family, unsigned int size_class)
{
	unsigned int i = 0;

	while (calibrate_probe_is_chain(i) || probes[i].family != family ||
	       probes[i].size_class != size_class)
		i++;
	return i;
}

static uint64_t class_bytes(unsigned int size_class)
{
	return 1ull << (PLACE_SIZE_FIRST_LOG2 + PLACE_SIZE_STEP_LOG2 * size_class);
}

/* ---- Descriptions ---- */

/* A plan under construction; counts are in the header */
struct sketch {
	struct rbk_plan_header header;
	struct rbk_plan_tensor tensors[MAX_TENSORS];
	struct rbk_plan_node nodes[CALIBRATE_CHAIN_NODES];
	struct rbk_plan_attr attrs[MAX_ATTRS];
	uint16_t edges[MAX_EDGES];
	int64_t values[MAX_VALUES];
	uint32_t n_values;
};

static uint16_t add_tensor(struct sketch *sketch, enum rbk_tensor_kind kind, enum rbk_dtype dtype,
			   unsigned int rank, const uint32_t *dims)
{
	uint16_t index = sketch->header.n_tensors++;
	struct rbk_plan_tensor *tensor = &sketch->tensors[index];

	snprintf(tensor->name, sizeof(tensor->name), "t%u", index);
	tensor->kind = (uint8_t)kind;
	tensor->dtype = (uint8_t)dtype;
	tensor->rank = (uint8_t)rank;
	tensor->flags = rank == 0 ? RBK_PLAN_TENSOR_INFER : 0;
	for (unsigned int i = 0; i < rank; i++)
		tensor->dims[i] = dims[i];
	return index;
}

#define DIMS(...)                                                                \
	sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), (const uint32_t[]) \
	{                                                                        \
		__VA_ARGS__                                                      \
	}
#define INFERRED 0, NULL

static uint16_t add_input(struct sketch *sketch, unsigned int rank, const uint32_t *dims)
{
	return add_tensor(sketch, RBK_TENSOR_INPUT, RBK_DTYPE_F32, rank, dims);
}

static uint16_t add_output(struct sketch *sketch)
{
	return add_tensor(sketch, RBK_TENSOR_OUTPUT, RBK_DTYPE_F32, INFERRED);
}

static void add_edge(struct sketch *sketch, uint16_t tensor)
{
	sketch->edges[sketch->header.n_edges++] = tensor;
}

static struct rbk_plan_node *add_node(struct sketch *sketch, const char *op, unsigned int n_in)
{
	struct rbk_plan_node *node = &sketch->nodes[sketch->header.n_nodes++];

	snprintf(node->op, sizeof(node->op), "%s", op);
	node->first_in = sketch->header.n_edges;
	node->n_in = (uint16_t)n_in;
	node->first_out = node->first_in + n_in;
	node->n_out = 1;
	node->first_attr = sketch->header.n_attrs;
	return node;
}

static void add_ints(struct sketch *sketch, struct rbk_plan_node *node, const char *name,
		     enum rbk_plan_attr_type type, unsigned int n, int64_t value)
{
	struct rbk_plan_attr *attr = &sketch->attrs[sketch->header.n_attrs++];

	snprintf(attr->name, sizeof(attr->name), "%s", name);
	attr->type = type;
	attr->n = n;
	attr->blob_offset = sketch->n_values * (uint32_t)sizeof(int64_t);
	for (unsigned int i = 0; i < n; i++)
		sketch->values[sketch->n_values++] = value;
	node->n_attrs++;
}

static void add_unary(struct sketch *sketch, const char *op, unsigned int rank,
		      const uint32_t *dims)
{
	uint16_t in = add_input(sketch, rank, dims), out = add_output(sketch);

	add_node(sketch, op, 1);
	add_edge(sketch, in);
	add_edge(sketch, out);
}

static void add_binary(struct sketch *sketch, const char *op, unsigned int rank,
		       const uint32_t *dims)
{
	uint16_t a = add_input(sketch, rank, dims), b = add_input(sketch, rank, dims);
	uint16_t out = add_output(sketch);

	add_node(sketch, op, 2);
	add_edge(sketch, a);
	add_edge(sketch, b);
	add_edge(sketch, out);
}

static void add_chain(struct sketch *sketch, unsigned int n_nodes)
{
	uint16_t from = add_input(sketch, DIMS(N_CHAIN)), to;

	for (unsigned int i = 0; i < n_nodes; i++) {
		to = i + 1 == n_nodes
			     ? add_output(sketch)
			     : add_tensor(sketch, RBK_TENSOR_SCRATCH, RBK_DTYPE_F32, INFERRED);
		add_node(sketch, "Relu", 1);
		add_edge(sketch, from);
		add_edge(sketch, to);
		from = to;
	}
}

/* Return the side of a square, a multiple of 4, of which @n fit into @bytes. */
static uint32_t square_side(double bytes, double n)
{
	uint32_t side = (uint32_t)sqrt(bytes / sizeof(float) / n);

	return side < 4 ? 4 : side & ~3u;
}

static uint32_t count_rows(double bytes, double row_bytes)
{
	return bytes < row_bytes ? 1 : (uint32_t)(bytes / row_bytes);
}

static void add_convolution(struct sketch *sketch, uint32_t channels, uint32_t side)
{
	uint16_t in = add_input(sketch, DIMS(1, channels, side, side));
	uint16_t weight = add_input(sketch, DIMS(channels, channels, 3, 3));
	uint16_t out = add_output(sketch);

	add_ints(sketch, add_node(sketch, "Conv", 2), "pads", RBK_ATTR_INTS, 4, 1);
	add_edge(sketch, in);
	add_edge(sketch, weight);
	add_edge(sketch, out);
}

static void add_pooling(struct sketch *sketch, double bytes)
{
	const uint32_t channels = 8, side = square_side(bytes, 1.25 * channels);
	uint16_t in = add_input(sketch, DIMS(1, channels, side, side)), out = add_output(sketch);
	struct rbk_plan_node *node = add_node(sketch, "MaxPool", 1);

	add_ints(sketch, node, "kernel_shape", RBK_ATTR_INTS, 2, 2);
	add_ints(sketch, node, "strides", RBK_ATTR_INTS, 2, 2);
	add_edge(sketch, in);
	add_edge(sketch, out);
}

static void add_selection(struct sketch *sketch, double bytes)
{
	const double row_bytes = ROW * sizeof(float) + TOP_K * (sizeof(float) + sizeof(int64_t));
	uint16_t in = add_input(sketch, DIMS(count_rows(bytes, row_bytes), ROW));
	uint16_t values = add_output(sketch);
	uint16_t places = add_tensor(sketch, RBK_TENSOR_OUTPUT, RBK_DTYPE_I64, INFERRED);
	struct rbk_plan_node *node = add_node(sketch, "TopK", 1);

	node->n_out = 2;
	add_ints(sketch, node, "k", RBK_ATTR_INT, 1, TOP_K);
	add_edge(sketch, in);
	add_edge(sketch, values);
	add_edge(sketch, places);
}

static void sketch_probe(struct sketch *sketch, struct calibrate_probe probe)
{
	const double bytes = (double)class_bytes(probe.size_class), element = sizeof(float);
	uint32_t side, channels;

	switch (probe.family) {
	case OP_FAMILY_MATMUL:
	case OP_FAMILY_GEMM:
		side = square_side(bytes, 3);
		add_binary(sketch, probe.family == OP_FAMILY_GEMM ? "Gemm" : "MatMul",
			   DIMS(side, side));
		break;
	case OP_FAMILY_CONVOLUTION:
		channels = 4u << probe.size_class;
		side = square_side(bytes - 9.0 * channels * channels * element, 2.0 * channels);
		add_convolution(sketch, channels, side);
		break;
	case OP_FAMILY_ELEMENTWISE:
		add_binary(sketch, "Add", DIMS((uint32_t)(bytes / element / 3)));
		break;
	case OP_FAMILY_ACTIVATION:
		add_unary(sketch, "Relu", DIMS((uint32_t)(bytes / element / 2)));
		break;
	case OP_FAMILY_POOLING:
		add_pooling(sketch, bytes);
		break;
	case OP_FAMILY_REDUCTION:
		add_unary(sketch, "ReduceSum", DIMS(count_rows(bytes, (ROW + 1) * element), ROW));
		add_ints(sketch, &sketch->nodes[0], "axes", RBK_ATTR_INTS, 1, 1);
		break;
	case OP_FAMILY_SOFTMAX:
		add_unary(sketch, "Softmax", DIMS(count_rows(bytes, 2 * ROW * element), ROW));
		break;
	case OP_FAMILY_TRANSPOSE:
		side = square_side(bytes, 2);
		add_unary(sketch, "Transpose", DIMS(side, side));
		break;
	case OP_FAMILY_SELECTION:
		add_selection(sketch, bytes);
		break;
	case OP_FAMILY_COUNT:
		break;
	}
}

static uint8_t *put(uint8_t *to, const void *from, size_t bytes)
{
	if (bytes > 0)
		memcpy(to, from, bytes);
	return to + bytes;
}

static void sketch_begin(struct sketch *sketch, const char *name, unsigned int index)
{
	*sketch = (struct sketch){
		.header = {.magic = RBK_PLAN_MAGIC, .version = RBK_PLAN_VERSION, .max_count = 1},
	};
	snprintf(sketch->header.name, sizeof(sketch->header.name), "%s-%u", name, index);
}

/*
 * Serialize a sketch on the heap.
 * Return: NULL if there is no memory.
 */
static void *describe(struct sketch *sketch, size_t *ret_bytes)
{
	struct rbk_plan_header *header = &sketch->header;
	size_t edge_bytes;
	uint8_t *desc, *end;

	header->blob_bytes = sketch->n_values * (uint32_t)sizeof(int64_t);

	edge_bytes = (header->n_edges * sizeof(uint16_t) + 7) & ~(size_t)7;
	*ret_bytes = sizeof(*header) + header->n_tensors * sizeof(sketch->tensors[0]) +
		     header->n_nodes * sizeof(sketch->nodes[0]) +
		     header->n_attrs * sizeof(sketch->attrs[0]) + edge_bytes + header->blob_bytes;
	desc = malloc(*ret_bytes);
	if (!desc)
		return NULL;
	end = put(desc, header, sizeof(*header));
	end = put(end, sketch->tensors, header->n_tensors * sizeof(sketch->tensors[0]));
	end = put(end, sketch->nodes, header->n_nodes * sizeof(sketch->nodes[0]));
	end = put(end, sketch->attrs, header->n_attrs * sizeof(sketch->attrs[0]));
	/* Zeros follow the used edges. */
	end = put(end, sketch->edges, edge_bytes);
	put(end, sketch->values, header->blob_bytes);
	return desc;
}

/* ---- Memory ---- */

/* Tensors begin on pages of their own, and shapes are rounded. */
uint64_t calibrate_bench_bytes(unsigned int size_class)
{
	return class_bytes(size_class) + 16 * PAGE_BYTES;
}

/* Make memory that the device can access, in the device's best way. */
static int make_arena(struct executor *executor, uint64_t bytes, struct exec_arena *arena)
{
	int fd = -1, r;

	if (executor->info.exports_arenas && executor->ops->arena_export &&
	    executor->ops->arena_export(executor, bytes, arena, &fd) == 0) {
		close_fd(fd);
		return 0;
	}
	r = exec_arena_make("ringbroker probe", bytes, arena);
	if (r)
		return error_fold(r);
	if (executor->ops->arena_wrap)
		executor->ops->arena_wrap(executor, arena);
	executor->ops->arena_import(executor, arena);
	arena->fd = close_fd(arena->fd);
	return 0;
}

/* Fill memory by repeating a pattern that is long for a selection. */
static void fill(uint8_t *to, uint64_t bytes)
{
	enum { N = 8192 };
	float *values = (float *)to;
	uint32_t state = 1;

	for (unsigned int i = 0; i < N; i++) {
		state = state * 1664525u + 1013904223u;
		values[i] = (float)(state >> 8) / (1 << 24);
	}
	for (uint64_t at = N * sizeof(float), n; at < bytes; at += n) {
		n = bytes - at < N * sizeof(float) ? bytes - at : N * sizeof(float);
		memcpy(to + at, values, n);
	}
}

int calibrate_bench_init(struct calibrate_bench *bench, struct executor *executor,
			 unsigned int size_class)
{
	int r;

	*bench = (struct calibrate_bench){.executor = executor};
	r = make_arena(executor, calibrate_bench_bytes(size_class), &bench->arena);
	if (r) {
		bench->arena.base = NULL;
		return error_fold(r);
	}
	fill(bench->arena.base, bench->arena.bytes);
	return 0;
}

/* ---- The bench ---- */

/*
 * Place the plan's bound tensors in the arena.
 * Return: false if there is no room.
 */
static bool bind_tensors(struct calibrate_bench *bench)
{
	const struct plan *plan = bench->plan;
	uint64_t at = 0, bytes;

	for (unsigned int i = 0; i < plan->n_bindings; i++) {
		bytes = plan->bindings[i].fixed_bytes + plan->bindings[i].row_bytes;
		bench->refs[i] = (struct exec_ref){.arena = &bench->arena, .offset = at};
		if (plan->bindings[i].written)
			bench->work.down_bytes += (double)bytes;
		else
			bench->work.up_bytes += (double)bytes;
		if (!checked_add(at, bytes, &at) || !checked_align(at, PAGE_BYTES, &at))
			return false;
	}
	return at <= bench->arena.bytes;
}

static int lay(struct calibrate_bench *bench, struct sketch *sketch)
{
	struct executor *executor = bench->executor;
	_cleanup_(freep) void *desc = NULL;
	char message[PLAN_MESSAGE_BYTES];
	struct plan_arena_lookup nothing = {.find = NULL};
	size_t desc_bytes;
	int r;

	desc = describe(sketch, &desc_bytes);
	if (!desc)
		return error_origin(-ENOMEM);
	r = plan_new(desc, desc_bytes, &nothing, message, &bench->plan);
	if (r)
		return error_fold(r);
	bench->work = (struct calibrate_work){
		.n_nodes = bench->plan->n_nodes,
		.flops = (double)plan_flops(bench->plan, 1),
		.bytes = (double)(bench->plan->cost.bytes_fixed + bench->plan->cost.bytes_row),
	};
	if (!bind_tensors(bench)) {
		calibrate_bench_clear(bench);
		return error_origin(-EINVAL);
	}
	r = executor->ops->plan_prepare(executor, bench->plan);
	if (r) {
		calibrate_bench_clear(bench);
		return r == EXECUTOR_E_UNSUPPORTED ? r : error_fold(r);
	}
	bench->task = (struct exec_task){.plan = bench->plan, .refs = bench->refs, .count = 1};
	return 0;
}

int calibrate_bench_prepare(struct calibrate_bench *bench, unsigned int probe)
{
	struct sketch sketch;
	int r;

	if (bench->is_overwritten)
		fill(bench->arena.base, bench->arena.bytes);
	bench->is_overwritten = false;
	sketch_begin(&sketch, "probe", probe);
	if (calibrate_probe_is_chain(probe))
		add_chain(&sketch, probes[probe].n_nodes);
	else
		sketch_probe(&sketch, probes[probe]);
	r = lay(bench, &sketch);
	return r < 0 ? error_fold(r) : r;
}

int calibrate_bench_load(struct calibrate_bench *bench)
{
	/* The first run never counts, and no job of the setup thread is to wait for a warm-up. */
	const struct exec_load load = {.tier = EXEC_TIER_VRAM, .n_slots = 1, .starts_cold = true};
	struct executor *executor = bench->executor;
	int r;

	if (!executor->ops->plan_load)
		return 0;
	do
		r = executor->ops->plan_load(executor, bench->plan, &load);
	while (r == EXECUTOR_E_MORE);
	if (r == 0)
		bench->is_loaded = true;
	else
		executor->ops->plan_unload(executor, bench->plan);
	return r;
}

/* ---- Shapes of tiles ---- */

/* x * w * w ..., m times k and k times n; a convolution of n channels with n filters, k times k */
struct problem {
	uint16_t m, k, n;
	uint8_t n_nodes; /* 0: there is no such problem */
};

/*
 * Each problem takes some milliseconds at most. On a card, products follow one another, so that
 * they outweigh the transfers; a software device works on tensors in place.
 */
static const struct problem software_problems[EXEC_TILE_OPS][EXEC_TILE_CLASSES] = {
	[EXEC_TILE_MATMUL] = {[EXEC_TILE_LARGE] = {256, 256, 256, 1},
			      [EXEC_TILE_SMALL] = {96, 128, 128, 1},
			      [EXEC_TILE_FEW_ROWS] = {4, 256, 512, 1},
			      [EXEC_TILE_FEW_COLS] = {256, 256, 49, 1}},
	[EXEC_TILE_CONV] = {[EXEC_TILE_LARGE] = {0, 46, 32, 1},
			    [EXEC_TILE_SMALL] = {0, 16, 32, 1},
			    [EXEC_TILE_FEW_COLS] = {0, 7, 64, 1}},
	[EXEC_TILE_MATMUL_HALF] = {[EXEC_TILE_LARGE] = {256, 256, 256, 1},
				   [EXEC_TILE_SMALL] = {96, 128, 128, 1},
				   [EXEC_TILE_FEW_ROWS] = {4, 256, 512, 1},
				   [EXEC_TILE_FEW_COLS] = {256, 256, 49, 1}},
};
static const struct problem card_problems[EXEC_TILE_OPS][EXEC_TILE_CLASSES] = {
	[EXEC_TILE_MATMUL] = {[EXEC_TILE_LARGE] = {1024, 512, 512, 6},
			      [EXEC_TILE_SMALL] = {128, 256, 256, 6},
			      [EXEC_TILE_FEW_ROWS] = {8, 1024, 1024, 6},
			      [EXEC_TILE_FEW_COLS] = {512, 512, 49, 1}},
	[EXEC_TILE_CONV] = {[EXEC_TILE_LARGE] = {0, 56, 64, 1},
			    [EXEC_TILE_SMALL] = {0, 14, 64, 1},
			    [EXEC_TILE_FEW_COLS] = {0, 7, 256, 1}},
	[EXEC_TILE_MATMUL_HALF] = {[EXEC_TILE_LARGE] = {1024, 512, 512, 6},
				   [EXEC_TILE_SMALL] = {128, 256, 256, 6},
				   [EXEC_TILE_FEW_ROWS] = {8, 1024, 1024, 6},
				   [EXEC_TILE_FEW_COLS] = {512, 512, 49, 1}},
};

struct tile_probe {
	enum exec_tile_op op;
	enum exec_tile_class class;
	unsigned int tile;
};

static struct tile_probe tile_probe(unsigned int index)
{
	return (struct tile_probe){.op = index / EXEC_MAX_TILES / EXEC_TILE_CLASSES,
				   .class = index / EXEC_MAX_TILES % EXEC_TILE_CLASSES,
				   .tile = index % EXEC_MAX_TILES};
}

static const struct problem *problem_of(const struct executor *executor, struct tile_probe probe)
{
	return executor->info.kind == EXECUTOR_GPU ? &card_problems[probe.op][probe.class]
						   : &software_problems[probe.op][probe.class];
}

bool calibrate_tile_is_wanted(struct executor *executor, unsigned int index)
{
	const struct tile_probe probe = tile_probe(index);
	struct exec_tile tile;

	return executor->ops->tile && problem_of(executor, probe)->n_nodes > 0 &&
	       executor->ops->tile(executor, probe.op, 1, &tile) &&
	       executor->ops->tile(executor, probe.op, probe.tile, &tile);
}

static void add_products(struct sketch *sketch, const struct problem *problem, enum rbk_dtype dtype)
{
	const enum rbk_tensor_kind in = RBK_TENSOR_INPUT;
	uint16_t from = add_tensor(sketch, in, dtype, DIMS(problem->m, problem->k)), to;
	uint16_t weight = add_tensor(sketch, in, dtype, DIMS(problem->k, problem->n));

	for (unsigned int i = 0; i < problem->n_nodes; i++) {
		const bool is_last = i + 1 == problem->n_nodes;

		to = add_tensor(sketch, is_last ? RBK_TENSOR_OUTPUT : RBK_TENSOR_SCRATCH, dtype,
				INFERRED);
		add_node(sketch, "MatMul", 2);
		add_edge(sketch, from);
		add_edge(sketch, weight);
		add_edge(sketch, to);
		from = to;
	}
}

/* Return the data of tensor @t of the plan. */
static void *bench_tensor(const struct calibrate_bench *bench, unsigned int t)
{
	const struct exec_ref *ref = &bench->refs[bench->plan->tensors[t].binding];

	return ref->arena->base + ref->offset;
}

/*
 * Fill x and w of float16, whose range is small: results of products stay about as large as their
 * operands. Half of w is zero, so that wrong sums differ by more than rounding does.
 */
static void fill_half(struct calibrate_bench *bench, const struct problem *problem)
{
	uint16_t *x = bench_tensor(bench, 0), *w = bench_tensor(bench, 1);
	uint32_t state = 1;

	for (uint32_t i = 0; i < (uint32_t)problem->m * problem->k; i++) {
		state = state * 1664525u + 1013904223u;
		x[i] = half_from_float((float)(state >> 8) / (1 << 24));
	}
	for (uint32_t i = 0; i < (uint32_t)problem->k * problem->n; i++) {
		state = state * 1664525u + 1013904223u;
		w[i] = half_from_float(state >> 31 ? (float)(state >> 8) / (1 << 23) / problem->k
						   : 0);
	}
}

int calibrate_bench_prepare_tile(struct calibrate_bench *bench, unsigned int index)
{
	const struct tile_probe probe = tile_probe(index);
	const struct problem *problem = problem_of(bench->executor, probe);
	const bool is_half = probe.op == EXEC_TILE_MATMUL_HALF;
	struct exec_tiles before, tiles;
	struct sketch sketch;
	int r;

	/* Operands must be reset: products of results would grow without bound. */
	fill(bench->arena.base, bench->arena.bytes);
	bench->is_overwritten = true;
	sketch_begin(&sketch, "tile", index);
	if (probe.op == EXEC_TILE_CONV)
		add_convolution(&sketch, problem->n, problem->k);
	else
		add_products(&sketch, problem, is_half ? RBK_DTYPE_F16 : RBK_DTYPE_F32);
	executor_get_tiles(bench->executor, &before);
	tiles = before;
	tiles.of[probe.op][probe.class] = (uint8_t)probe.tile;
	executor_set_tiles(bench->executor, &tiles);
	r = lay(bench, &sketch);
	executor_set_tiles(bench->executor, &before);
	if (r == 0 && is_half)
		fill_half(bench, problem);
	return r < 0 ? error_fold(r) : r;
}

/* Return element @i of tensor @t of the plan. */
static double bench_value(const struct calibrate_bench *bench, unsigned int t, uint32_t i)
{
	if (bench->plan->tensors[t].dtype == RBK_DTYPE_F16)
		return (double)half_to_float(((const uint16_t *)bench_tensor(bench, t))[i]);
	return (double)((const float *)bench_tensor(bench, t))[i];
}

/*
 * Compare @sum with element @i of the last tensor. All summands are positive, so nothing cancels
 * out; rounding to float16 adds at most 2^-11 per node.
 */
static bool is_near(const struct calibrate_bench *bench, double sum, uint32_t i)
{
	const unsigned int t = bench->plan->n_tensors - 1u;
	const bool is_half = bench->plan->tensors[t].dtype == RBK_DTYPE_F16;
	const double tolerance = 1e-3 + (is_half ? bench->plan->n_nodes * 0x1p-11 : 0);

	return fabs(sum - bench_value(bench, t, i)) <= tolerance * sum;
}

/* Check one row, which depends on no other row. */
static bool is_row_right(const struct calibrate_bench *bench, const struct problem *problem,
			 uint32_t row)
{
	double sums[2][MAX_SIDE] = {{0}};

	for (uint32_t k = 0; k < problem->k; k++)
		sums[0][k] = bench_value(bench, 0, row * problem->k + k);
	for (unsigned int i = 0; i < problem->n_nodes; i++) {
		const double *from = sums[i % 2];
		double *to = sums[(i + 1) % 2];

		memset(to, 0, sizeof(sums[0]));
		for (uint32_t k = 0; k < problem->k; k++)
			for (uint32_t n = 0; n < problem->n; n++)
				to[n] += from[k] * bench_value(bench, 1, k * problem->n + n);
	}
	for (uint32_t n = 0; n < problem->n; n++)
		if (!is_near(bench, sums[problem->n_nodes % 2][n], row * problem->n + n))
			return false;
	return true;
}

static bool is_pixel_right(const struct calibrate_bench *bench, const struct problem *problem,
			   uint32_t pixel)
{
	const uint32_t side = problem->k, channels = problem->n, area = side * side;
	const uint32_t filter = pixel / area, top = pixel % area / side, left = pixel % side;
	double sum = 0;

	for (uint32_t c = 0; c < channels; c++)
		for (uint32_t tap = 0; tap < 9; tap++) {
			const uint32_t from_y = top + tap / 3 - 1, from_x = left + tap % 3 - 1;

			if (from_y < side && from_x < side)
				sum += bench_value(bench, 1, (filter * channels + c) * 9 + tap) *
				       bench_value(bench, 0, c * area + from_y * side + from_x);
		}
	return is_near(bench, sum, pixel);
}

bool calibrate_bench_tile_is_right(const struct calibrate_bench *bench, unsigned int index)
{
	enum { N_PIXELS = 61 };
	const struct tile_probe probe = tile_probe(index);
	const struct problem *problem = problem_of(bench->executor, probe);
	const uint32_t n_pixels = (uint32_t)problem->n * problem->k * problem->k;

	if (probe.op != EXEC_TILE_CONV)
		return is_row_right(bench, problem, 0) &&
		       is_row_right(bench, problem, problem->m - 1u);
	for (uint32_t i = 0; i < N_PIXELS; i++)
		if (!is_pixel_right(bench, problem, (n_pixels - 1) / (N_PIXELS - 1) * i))
			return false;
	return true;
}

void calibrate_tiles_choose(const struct calibrate_tiles *measured, struct exec_tiles *tiles)
{
	/* Repeated measurements may differ by less. */
	const float least_gain = 0.97f;

	for (unsigned int i = 0; i < CALIBRATE_TILE_PROBES; i += EXEC_MAX_TILES) {
		const struct tile_probe probe = tile_probe(i);
		uint8_t *chosen = &tiles->of[probe.op][probe.class];
		float best_ns = measured->exec_ns[i + *chosen] * least_gain;

		for (uint8_t tile = 0; tile < EXEC_MAX_TILES; tile++) {
			const float ns = measured->exec_ns[i + tile];

			if (ns > 0 && (!(best_ns > 0) || ns < best_ns)) {
				best_ns = ns;
				*chosen = tile;
			}
		}
	}
}

void calibrate_bench_clear(struct calibrate_bench *bench)
{
	const struct executor_ops *ops = bench->executor->ops;

	if (!bench->plan)
		return;
	if (bench->is_loaded)
		ops->plan_unload(bench->executor, bench->plan);
	bench->is_loaded = false;
	ops->plan_release(bench->executor, bench->plan);
	bench->plan = plan_free(bench->plan);
}

void calibrate_bench_deinit(struct calibrate_bench *bench)
{
	if (!bench->arena.base)
		return;
	calibrate_bench_clear(bench);
	bench->executor->ops->arena_release(bench->executor, &bench->arena);
	exec_arena_unwrap(&bench->arena);
	munmap(bench->arena.base, bench->arena.bytes);
	bench->arena.base = NULL;
}
