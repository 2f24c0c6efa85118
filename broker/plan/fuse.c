/* SPDX-License-Identifier: MIT */
/*
 * Fusion: nodes that are computed together, and tensors that share bytes
 *
 * An activation after a MatMul, Gemm, Conv or ConvTranspose costs more to launch, and to read and
 * write its elements again, than to compute. So executors apply it to a part of the result in the
 * epilogue of the kernel. Only activations that every device supports are fused: is_activation of
 * struct op marks those of shaders/activation.glsl. An Add after a MatMul is fused, too. Its addend
 * is a list that is the same for every row, such as a linear layer's bias, or a tensor as large as
 * the product, such as that of a residual connection. An activation may follow. Executors see the
 * addend as a third input. Float64 is rare, and its kernels have no such epilogues: its nodes are
 * not fused.
 *
 * Fused nodes stay in the plan. A fused node works in place: its input shares the bytes of its
 * output, which may be a bound tensor of the task. Other elementwise nodes work in place only
 * within scratch, because a device may have to read bound tensors from host memory.
 *
 * Only scratch that one node reads, once, is overwritten. That excludes tensors with views, since
 * the nodes that make views read them.
 */
#include "plan/fuse.h"

#include <errno.h>
#include <stdlib.h>

#include "shm/operators/op-call.h"
#include "util/checked.h"
#include "util/error.h"

/*
 * Return the node that computes scratch tensor @t: its writer, or the node that the writer is fused
 * into.
 */
static struct node *maker_of(const struct fuser *fuser, uint16_t t)
{
	struct node *node = &fuser->plan->nodes[fuser->writers[t]];

	return node->computed_by == PLAN_NO_NODE ? node : &fuser->plan->nodes[node->computed_by];
}

/* Return true if @t is scratch with bytes of its own, and has one reader. */
static bool is_given_up(const struct fuser *fuser, uint16_t t)
{
	const struct tensor *tensor = &fuser->plan->tensors[t];

	return tensor->kind == RBK_TENSOR_SCRATCH && tensor->root == t && fuser->n_reads[t] == 1;
}

static bool is_alike(const struct tensor *a, const struct tensor *b)
{
	return a->dtype == b->dtype && shape_equal(&a->shape, &b->shape);
}

static bool is_fusable_type(const struct tensor *tensor)
{
	return tensor->dtype == RBK_DTYPE_F32 || tensor->dtype == RBK_DTYPE_F16;
}

static void cost_take(struct cost *from, struct cost *to)
{
	to->flops_fixed += from->flops_fixed;
	to->flops_row += from->flops_row;
	*from = (struct cost){0};
}

/*
 * Compute node @index along with @maker, in place of tensor @from, whose reads and writes are
 * saved.
 */
static void compute_along(struct fuser *fuser, struct node *maker, uint16_t index, uint16_t from)
{
	struct plan *plan = fuser->plan;
	struct node *node = &plan->nodes[index];
	const uint16_t to = node->out[0];

	node->computed_by = (uint16_t)(maker - plan->nodes);
	plan->cost.bytes_fixed -= node->cost.bytes_fixed;
	plan->cost.bytes_row -= node->cost.bytes_row;
	cost_take(&node->cost, &maker->cost);
	plan->tensors[from].root = plan->tensors[to].root;
	/* The output is written as early as the tensor that it replaces. */
	fuser->lives[to].first = fuser->lives[from].first;
}

/* Fuse an activation into the node before it. Return: true if it was fused. */
static bool fuse_activation(struct fuser *fuser, uint16_t index)
{
	struct plan *plan = fuser->plan;
	const struct node *node = &plan->nodes[index];
	const uint16_t from = node->in[0];
	struct node *maker;

	if (!node->op->is_activation || !is_given_up(fuser, from) ||
	    !is_fusable_type(&plan->tensors[from]) ||
	    plan->tensors[node->out[0]].kind == RBK_TENSOR_STATE)
		return false;
	maker = maker_of(fuser, from);
	if (!maker->op->takes_activation || maker->activation != PLAN_NO_NODE)
		return false;
	maker->activation = index;
	compute_along(fuser, maker, index, from);
	return true;
}

/* Return true if the addend has one number for each column of @y, or one for all. */
static bool is_by_column(const struct tensor *addend, const struct tensor *y)
{
	const struct shape *shape = &addend->shape;

	for (unsigned int i = 0; i + 1 < shape->rank; i++)
		if (shape->dims[i] != 1)
			return false;
	return !shape->dynamic && shape->rank <= y->shape.rank;
}

/*
 * Return true if the addend has one number for each element of @y, and the right-hand side @b is
 * one matrix.
 */
static bool is_by_element(const struct tensor *addend, const struct tensor *y,
			  const struct tensor *b)
{
	for (unsigned int i = 0; i + 2 < b->shape.rank; i++)
		if (b->shape.dims[i] != 1)
			return false;
	return !b->shape.dynamic && is_alike(addend, y);
}

/* Return true if @t has its later value already when @maker runs. */
static bool is_there(const struct fuser *fuser, uint16_t t, const struct node *maker)
{
	switch (fuser->plan->tensors[t].kind) {
	case RBK_TENSOR_INPUT:
	case RBK_TENSOR_CONSTANT:
		return true;
	case RBK_TENSOR_STATE:
		return false;
	default:
		return fuser->writers[t] < maker - fuser->plan->nodes;
	}
}

/*
 * Executors may convert operands to float32. Return: false if there is no room for the addend's
 * copy.
 */
static bool add_work(struct plan *plan, struct node *maker, const struct tensor *addend)
{
	uint64_t bytes = 0;

	if (addend->dtype != RBK_DTYPE_F16)
		return true;
	checked_align(2 * addend->max_bytes, PLAN_SCRATCH_ALIGN, &bytes);
	if (bytes > PLAN_MAX_BYTES - maker->work_bytes)
		return false;
	maker->work_bytes += bytes;
	if (maker->work_bytes > plan->work_bytes)
		plan->work_bytes = maker->work_bytes;
	return true;
}

/* Fuse an Add whose input @i is a product into that product. Return: true if it was fused. */
static bool fuse_sum(struct fuser *fuser, uint16_t index, unsigned int i)
{
	struct plan *plan = fuser->plan;
	const struct node *node = &plan->nodes[index];
	const uint16_t from = node->in[i], other = node->in[1 - i];
	const struct tensor *y = &plan->tensors[from], *addend = &plan->tensors[other], *b;
	struct node *maker;

	if (!is_given_up(fuser, from) || !is_fusable_type(y) ||
	    !is_alike(y, &plan->tensors[node->out[0]]) ||
	    plan->tensors[node->out[0]].kind == RBK_TENSOR_STATE)
		return false;
	maker = maker_of(fuser, from);
	if (maker->op->kind != OP_MATMUL || maker->sum != PLAN_NO_NODE ||
	    maker->activation != PLAN_NO_NODE)
		return false;
	b = &plan->tensors[maker->in[1]];
	/* If the right-hand side is a list, the result has no columns. */
	if (b->shape.rank < 2 || (!is_by_column(addend, y) && !is_by_element(addend, y, b)) ||
	    !is_there(fuser, other, maker) || !add_work(plan, maker, addend))
		return false;
	maker->sum = index;
	maker->in[2] = other;
	maker->n_in = 3;
	compute_along(fuser, maker, index, from);
	maker->cost.bytes_fixed += addend->fixed_bytes;
	maker->cost.bytes_row += addend->row_bytes;
	plan->cost.bytes_fixed += addend->fixed_bytes;
	plan->cost.bytes_row += addend->row_bytes;
	return true;
}

static bool fuse_node(struct fuser *fuser, uint16_t index)
{
	if (fuser->plan->nodes[index].op->kind == OP_ADD)
		return fuse_sum(fuser, index, 0) || fuse_sum(fuser, index, 1);
	return fuse_activation(fuser, index);
}

static void work_in_place(struct fuser *fuser, struct node *node)
{
	struct tensor *tensors = fuser->plan->tensors;
	const uint16_t to = node->out[0];

	if (!node->op->in_place || tensors[to].kind != RBK_TENSOR_SCRATCH || tensors[to].root != to)
		return;
	for (unsigned int i = 0; i < node->n_in; i++) {
		const uint16_t from = node->in[i];

		if (from == PLAN_NO_TENSOR || !is_given_up(fuser, from) ||
		    !is_alike(&tensors[from], &tensors[to]))
			continue;
		tensors[from].root = to;
		fuser->lives[to].first = fuser->lives[from].first;
		return;
	}
}

int fuser_init(struct fuser *fuser, struct plan *plan, const uint16_t *writers,
	       struct plan_life *lives)
{
	*fuser = (struct fuser){.plan = plan, .writers = writers, .lives = lives};
	fuser->n_reads = calloc(plan->n_tensors, sizeof(*fuser->n_reads));
	return fuser->n_reads ? 0 : error_origin(-ENOMEM);
}

void fuser_deinit(struct fuser *fuser)
{
	free(fuser->n_reads);
	fuser->n_reads = NULL;
}

void fuser_count(struct fuser *fuser, unsigned int index)
{
	const struct node *node = &fuser->plan->nodes[index];

	for (unsigned int i = 0; i < node->n_in; i++)
		if (node->in[i] != PLAN_NO_TENSOR && fuser->n_reads[node->in[i]] < 2)
			fuser->n_reads[node->in[i]]++;
}

void fuser_fuse(struct fuser *fuser, unsigned int index)
{
	if (!fuse_node(fuser, (uint16_t)index))
		work_in_place(fuser, &fuser->plan->nodes[index]);
}
