/* SPDX-License-Identifier: MIT */
/*
 * From nodes to steps
 *
 * Shapes are turned into the few numbers that a kernel wants, once. The only thing that varies per
 * task is the count, and it can only be a leading dimension: so of the loops of an operator at most
 * the outermost depends on it, and every stride is known here. Neighbouring dimensions are merged
 * where all operands walk through both in one stride, which makes most broadcasts a single loop.
 *
 * Constant right-hand sides of matrix products, and weights of convolutions, are packed, if that
 * makes reading them faster; the results are the same bits either way.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/internal.h"
#include "cpu/step.h"
#include "plan/executor.h"
#include "util/error.h"

/* Up to this size the product reads b in place as fast: see gemm-hot.c. */
enum { PACK_MIN_ELEMS = 16384 };

/* What one thread does in a nanosecond, roughly and rather too little: see cost_row_ns. */
static const double flops_per_ns = 40, bytes_per_ns = 8;

enum pack_form { PACK_MATRIX = 1, PACK_CONV };

struct compiler {
	struct cpu_executor *cpu;
	const struct plan *plan;
	struct cpu_plan *compiled;
	const struct node *node;
	struct cpu_step *step;
};

static const struct tensor *node_in(const struct compiler *c, unsigned int i)
{
	if (i >= c->node->n_in || c->node->in[i] == PLAN_NO_TENSOR)
		return NULL;
	return &c->plan->tensors[c->node->in[i]];
}

static const struct tensor *node_out(const struct compiler *c, unsigned int i)
{
	return &c->plan->tensors[c->node->out[i]];
}

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

/* Dimension @i of a shape, which is aligned at the end with one of @rank dimensions. */
static struct cpu_extent extent_aligned(const struct shape *shape, unsigned int rank,
					unsigned int i)
{
	const unsigned int missing = rank - shape->rank;

	if (i < missing)
		return (struct cpu_extent){.fixed = 1};
	if (i == missing && shape->dynamic)
		return (struct cpu_extent){.row = 1};
	return (struct cpu_extent){.fixed = shape->dims[i - missing]};
}

static bool extent_is_one(struct cpu_extent extent)
{
	return extent.row == 0 && extent.fixed == 1;
}

/* One of the two does not depend on the count. */
static struct cpu_extent extent_mul(struct cpu_extent a, struct cpu_extent b)
{
	if (b.row)
		return (struct cpu_extent){.row = b.row * a.fixed};
	return (struct cpu_extent){.fixed = a.fixed * b.fixed, .row = a.row * b.fixed};
}

/* Product of dimensions [from, to). */
static struct cpu_extent extent_range(const struct shape *shape, unsigned int from, unsigned int to)
{
	struct cpu_extent product = {.fixed = 1};

	for (unsigned int i = from; i < to; i++)
		product = extent_mul(product, extent_aligned(shape, shape->rank, i));
	return product;
}

/* Elements below dimension @i: the stride along it. Never depends on the count. */
static size_t shape_stride(const struct shape *shape, unsigned int i)
{
	size_t stride = 1;

	while (++i < shape->rank)
		stride *= shape->dims[i];
	return stride;
}

/* Stride along aligned dimension @i of @rank, 0 where it repeats. */
static size_t stride_aligned(const struct shape *shape, unsigned int rank, unsigned int i)
{
	if (extent_is_one(extent_aligned(shape, rank, i)))
		return 0;
	return shape_stride(shape, i - (rank - shape->rank));
}

static void step_cost(struct compiler *c)
{
	const struct cost *cost = &c->node->cost;

	c->step->cost_fixed_ns =
		(double)cost->flops_fixed / flops_per_ns + (double)cost->bytes_fixed / bytes_per_ns;
	c->step->cost_row_ns =
		(double)cost->flops_row / flops_per_ns + (double)cost->bytes_row / bytes_per_ns;
}

/*
 * Finds or makes the packed form of a constant and points operand @i of the step at it.
 * Return: 0, with *ret_new telling whether it is to be filled; -ENOMEM.
 */
static int pack_constant(struct compiler *c, unsigned int i, enum pack_form form,
			 const uint64_t *params, unsigned int n_params, size_t floats,
			 struct cpu_pack **ret, bool *ret_new)
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

/* Packs the constant b of a product, if it is one and large enough. */
static int pack_matrix(struct compiler *c, const struct tensor *b, size_t n_matrices)
{
	const struct cpu_kernels *kernels = c->cpu->kernels;
	struct cpu_step_gemm *step = &c->step->gemm;
	const size_t n = step->n.fixed, k = step->k;
	const size_t packed = kernels->pack_b_size(k, n);
	const uint64_t params[] = {k, n, n_matrices, step->trans_b};
	struct cpu_pack *pack;
	const float *from;
	size_t floats;
	bool is_new;
	int r;

	if (b->kind != RBK_TENSOR_CONSTANT || k * n <= PACK_MIN_ELEMS)
		return 0;
	/* A column is read as it is: a panel would be mostly padding. */
	if (n < kernels->gemm_nr / 2)
		return 0;
	if (__builtin_mul_overflow(packed, n_matrices, &floats))
		return error_origin(-ENOMEM);
	from = (const float *)c->step->in[1].offset;
	r = pack_constant(c, 1, PACK_MATRIX, params, 4, floats, &pack, &is_new);
	if (r)
		return error_fold(r);
	for (size_t i = 0; is_new && i < n_matrices; i++)
		kernels->pack_b(k, n, from + i * k * n, step->trans_b ? 1 : n,
				step->trans_b ? k : 1, pack->data + i * packed);
	step->b_is_packed = true;
	step->b_matrix = packed;
	return 0;
}

/* Dimensions of a batch, outermost first, merged where both operands allow. */
static void gemm_add_batch(struct cpu_step_gemm *step, struct cpu_extent extent, size_t a, size_t b)
{
	const unsigned int last = step->n_batch - 1;

	if (extent_is_one(extent))
		return;
	if (step->n_batch > 0 && extent.row == 0 && step->a_batch[last] == a * extent.fixed &&
	    step->b_batch[last] == b * extent.fixed) {
		step->batch[last] = extent_mul(step->batch[last], extent);
		step->a_batch[last] = a;
		step->b_batch[last] = b;
		return;
	}
	step->batch[step->n_batch] = extent;
	step->a_batch[step->n_batch] = a;
	step->b_batch[step->n_batch] = b;
	step->n_batch++;
}

/* The shape without its last @n dimensions. */
static struct shape shape_front(const struct shape *shape, unsigned int n)
{
	struct shape front = *shape;

	front.rank = shape->rank > n ? (uint8_t)(shape->rank - n) : 0;
	front.dynamic = shape->dynamic && front.rank > 0;
	return front;
}

static int compile_matmul(struct compiler *c)
{
	const struct tensor *a = node_in(c, 0), *b = node_in(c, 1);
	const struct shape *as = &a->shape, *bs = &b->shape;
	const struct shape a_front = shape_front(as, 2), b_front = shape_front(bs, 2);
	const unsigned int rank = a_front.rank > b_front.rank ? a_front.rank : b_front.rank;
	const struct cpu_extent b_batch = extent_range(&b_front, 0, b_front.rank);
	struct cpu_step_gemm *step = &c->step->gemm;

	c->step->run = cpu_run_gemm;
	c->step->units = cpu_units_gemm;
	step->alpha = 1;
	step->k = as->dims[as->rank - 1];
	step->m = as->rank > 1 ? extent_aligned(as, as->rank, as->rank - 2u)
			       : (struct cpu_extent){.fixed = 1};
	step->n = bs->rank > 1 ? extent_aligned(bs, bs->rank, bs->rank - 1u)
			       : (struct cpu_extent){.fixed = 1};
	step->a_matrix = step->m.fixed * step->k;
	step->b_matrix = step->n.fixed * step->k;

	/* One b for all: the batch only means more rows. */
	if (extent_is_one(b_batch)) {
		step->m = extent_mul(extent_range(&a_front, 0, a_front.rank), step->m);
		return pack_matrix(c, b, 1);
	}
	for (unsigned int i = 0; i < rank; i++) {
		const struct cpu_extent x = extent_aligned(&a_front, rank, i);
		const struct cpu_extent y = extent_aligned(&b_front, rank, i);

		gemm_add_batch(step, extent_is_one(x) ? y : x, stride_aligned(&a_front, rank, i),
			       stride_aligned(&b_front, rank, i));
	}
	return pack_matrix(c, b, b_batch.fixed);
}

static int compile_gemm(struct compiler *c)
{
	const struct tensor *a = node_in(c, 0), *b = node_in(c, 1), *addend = node_in(c, 2);
	struct cpu_step_gemm *step = &c->step->gemm;

	c->step->run = cpu_run_gemm;
	c->step->units = cpu_units_gemm;
	step->alpha = c->node->params.gemm.alpha;
	step->beta = c->node->params.gemm.beta;
	step->trans_a = c->node->params.gemm.trans_a;
	step->trans_b = c->node->params.gemm.trans_b;
	step->k = a->shape.dims[step->trans_a ? 0 : 1];
	step->m = extent_aligned(&a->shape, 2, step->trans_a ? 1 : 0);
	step->n = extent_aligned(&b->shape, 2, step->trans_b ? 0 : 1);
	step->a_matrix = step->m.fixed * step->k;
	step->b_matrix = step->n.fixed * step->k;
	/* ONNX: without beta the addend is not looked at. */
	if (addend && step->beta == 0)
		c->step->in[2].present = false;
	if (addend) {
		step->c_rs = stride_aligned(&addend->shape, 2, 0);
		step->c_cs = stride_aligned(&addend->shape, 2, 1);
	}
	return pack_matrix(c, b, 1);
}

static int compile_binary(struct compiler *c)
{
	const bool is_add = c->node->op->kind == OP_ADD;
	const struct shape *a = &node_in(c, 0)->shape, *b = &node_in(c, 1)->shape;
	const struct shape *y = &node_out(c, 0)->shape;
	struct cpu_step_binary *step = &c->step->binary;
	struct cpu_extent extent[CPU_MAX_DIMS];
	size_t a_stride[CPU_MAX_DIMS], b_stride[CPU_MAX_DIMS];
	unsigned int n = 0;

	for (unsigned int i = 0; i < y->rank; i++) {
		const struct cpu_extent e = extent_aligned(y, y->rank, i);
		const size_t as = stride_aligned(a, y->rank, i), bs = stride_aligned(b, y->rank, i);

		if (extent_is_one(e))
			continue;
		if (n > 0 && a_stride[n - 1] == as * e.fixed && b_stride[n - 1] == bs * e.fixed) {
			extent[n - 1] = extent_mul(extent[n - 1], e);
		} else {
			extent[n++] = e;
		}
		a_stride[n - 1] = as;
		b_stride[n - 1] = bs;
	}
	/* What is left innermost has strides of 0 or 1, and not both 0 unless it is all there is.
	 */
	step->inner = n > 0 ? extent[n - 1] : (struct cpu_extent){.fixed = 1};
	step->a_step = n > 0 ? a_stride[n - 1] : 0;
	step->b_step = n > 0 ? b_stride[n - 1] : 0;
	step->n_outer = n > 1 ? n - 1 : 0;
	for (unsigned int i = 0; i < step->n_outer; i++) {
		step->extent[i] = extent[i];
		step->a_stride[i] = a_stride[i];
		step->b_stride[i] = b_stride[i];
	}
	if (step->n_outer == 0) {
		c->step->run = is_add ? cpu_run_add_flat : cpu_run_mul_flat;
		c->step->units = cpu_units_flat;
	} else {
		c->step->run = is_add ? cpu_run_add : cpu_run_mul;
		c->step->units = cpu_units_broadcast;
	}
	return 0;
}

static int compile_relu(struct compiler *c)
{
	const struct shape *x = &node_in(c, 0)->shape;

	c->step->run = cpu_run_relu;
	c->step->units = cpu_units_relu;
	c->step->n = extent_range(x, 0, x->rank);
	return 0;
}

static void columns(struct compiler *c, unsigned int axis)
{
	const struct shape *x = &node_in(c, 0)->shape;

	c->step->columns.outer = extent_range(x, 0, axis);
	c->step->columns.len = extent_aligned(x, x->rank, axis);
	c->step->columns.inner = extent_range(x, axis + 1, x->rank);
}

static int compile_top_k(struct compiler *c)
{
	columns(c, c->node->params.top_k.axis);
	c->step->run = cpu_run_top_k;
	c->step->units = cpu_units_top_k;
	c->step->columns.k = c->node->params.top_k.k;
	c->step->columns.largest = c->node->params.top_k.largest;
	return 0;
}

static int (*const compilers[OP_KIND_COUNT])(struct compiler *c) = {
	[OP_MATMUL] = compile_matmul, [OP_GEMM] = compile_gemm, [OP_ADD] = compile_binary,
	[OP_MUL] = compile_binary,    [OP_RELU] = compile_relu, [OP_TOP_K] = compile_top_k,
};

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
		if (!compilers[c.node->op->kind])
			return error_origin(-ENOTSUP);
		r = compilers[c.node->op->kind](&c);
		if (r)
			return error_fold(r);
		compiled->n_steps++;
	}
	return 0;
}
