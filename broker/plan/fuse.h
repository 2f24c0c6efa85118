#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Fusion: nodes that are computed together, and tensors that share bytes. Private to broker/plan.
 */
#include <stdint.h>

#include "plan/plan-layout.h"
#include "plan/plan.h"

struct fuser {
	struct plan *plan;
	const uint16_t *writers;
	struct plan_life *lives;
	uint16_t *n_reads; /* by tensor */
};

/* @writers and @lives are indexed by tensor and borrowed. Return: 0; -ENOMEM. */
int fuser_init(struct fuser *fuser, struct plan *plan, const uint16_t *writers,
	       struct plan_life *lives);
void fuser_deinit(struct fuser *fuser);

/* Count the reads of node @index. Call it for all nodes before the first fuser_fuse(). */
void fuser_count(struct fuser *fuser, unsigned int index);
/*
 * Fuse node @index, if it is a sum or an activation after a product or convolution: the node is
 * computed along with that node (struct node: sum, activation, computed_by), which takes over its
 * cost. Otherwise, if the node is elementwise and the only reader of an input, make that input and
 * the output share bytes. Call it for all nodes, in order.
 */
void fuser_fuse(struct fuser *fuser, unsigned int index);
