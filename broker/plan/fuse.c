/* SPDX-License-Identifier: MIT */
/*
 * Nodes that are computed together, and tensors that share bytes
 *
 * An activation behind a MatMul, Gemm, Conv or ConvTranspose costs more to begin, and to read and
 * write its elements again, than to compute. Executors apply it to a part of the result while that
 * is at hand. These are the activations that every device can: is_activation() has those of
 * shaders/activation.glsl.
 *
 * Nodes stay what and where they are. An activation only becomes one that works in place: what it
 * reads has the bytes of what it writes, which may be the task's own. Other elementwise nodes work
 * in place within scratch, and only there: a device may have to fetch what is the task's from afar.
 *
 * Only scratch that one node reads, once, is given up. That excludes whatever has views, since
 * those are made by nodes that read it.
 */
#include "plan/fuse.h"

#include <errno.h>
#include <stdlib.h>

#include "shm/operators/op-call.h"
#include "util/cleanup.h"
#include "util/error.h"

struct fuser {
	struct plan *plan;
	const uint16_t *writers;
	struct plan_life *lives;
	uint16_t *n_reads; /* by tensor */
};

static bool takes_activation(const struct node *node)
{
	switch (node->op->kind) {
	case OP_MATMUL:
	case OP_GEMM:
	case OP_CONV:
	case OP_CONV_TRANSPOSE:
		return node->activation == PLAN_NO_NODE;
	default:
		return false;
	}
}

static bool is_activation(const struct node *node)
{
	switch (node->op->kind) {
	case OP_RELU:
	case OP_LEAKY_RELU:
	case OP_CLIP:
	case OP_TANH:
	case OP_ELU:
	case OP_GELU:
	case OP_SIGMOID:
	case OP_HARD_SIGMOID:
	case OP_HARD_SWISH:
	case OP_SWISH:
	case OP_MISH:
		return true;
	default:
		return false;
	}
}

/* Scratch of its own that is only read by the node that reads it now. */
static bool is_given_up(const struct fuser *fuser, uint16_t t)
{
	const struct tensor *tensor = &fuser->plan->tensors[t];

	return tensor->kind == RBK_TENSOR_SCRATCH && tensor->root == t && fuser->n_reads[t] == 1;
}

static bool is_alike(const struct tensor *a, const struct tensor *b)
{
	return a->dtype == b->dtype && shape_equal(&a->shape, &b->shape);
}

static bool is_float(const struct tensor *tensor)
{
	return tensor->dtype == RBK_DTYPE_F32 || tensor->dtype == RBK_DTYPE_F16;
}

static void cost_take(struct cost *from, struct cost *to)
{
	to->flops_fixed += from->flops_fixed;
	to->flops_row += from->flops_row;
	*from = (struct cost){0};
}

/* Return: is it computed along with the node before it now? */
static bool fuse_activation(struct fuser *fuser, uint16_t index)
{
	struct plan *plan = fuser->plan;
	struct node *node = &plan->nodes[index], *before;
	const uint16_t from = node->in[0], to = node->out[0];

	if (!is_activation(node) || !is_given_up(fuser, from) || !is_float(&plan->tensors[from]) ||
	    plan->tensors[to].kind == RBK_TENSOR_STATE)
		return false;
	before = &plan->nodes[fuser->writers[from]];
	if (!takes_activation(before))
		return false;
	before->activation = index;
	node->is_activation = true;
	plan->cost.bytes_fixed -= node->cost.bytes_fixed;
	plan->cost.bytes_row -= node->cost.bytes_row;
	cost_take(&node->cost, &before->cost);
	plan->tensors[from].root = plan->tensors[to].root;
	/* It is written by then, and that is when its bytes are taken. */
	fuser->lives[to].first = fuser->lives[from].first;
	return true;
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

int plan_fuse(struct plan *plan, const uint16_t *writers, struct plan_life *lives)
{
	_cleanup_(freep) uint16_t *n_reads = calloc(plan->n_tensors, sizeof(*n_reads));
	struct fuser fuser = {plan, writers, lives, n_reads};

	if (!n_reads)
		return error_origin(-ENOMEM);
	for (uint32_t i = 0; i < plan->n_nodes; i++)
		for (unsigned int j = 0; j < plan->nodes[i].n_in; j++)
			if (plan->nodes[i].in[j] != PLAN_NO_TENSOR)
				n_reads[plan->nodes[i].in[j]] += n_reads[plan->nodes[i].in[j]] < 2;
	for (uint32_t i = 0; i < plan->n_nodes; i++)
		if (!fuse_activation(&fuser, (uint16_t)i))
			work_in_place(&fuser, &plan->nodes[i]);
	return 0;
}
