#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Nodes that are computed together, and tensors that share bytes. Private to broker/plan.
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

/* Counts the reads of node @index. Call it for all nodes before the first fuser_fuse(). */
void fuser_count(struct fuser *fuser, unsigned int index);
/*
 * Finds out whether node @index, a sum or an activation, is computed along with the product or
 * convolution before it (struct node: sum, activation, computed_by), and moves its cost there; else
 * makes what an elementwise node writes a view of what it reads, where no other node reads that.
 * Call it for all nodes, in order.
 */
void fuser_fuse(struct fuser *fuser, unsigned int index);
