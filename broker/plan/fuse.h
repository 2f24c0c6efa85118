#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Nodes that are computed together, and tensors that share bytes. Private to broker/plan.
 */
#include <stdint.h>

#include "plan/plan-layout.h"
#include "plan/plan.h"

/*
 * Finds sums and activations that are computed along with the product or convolution before them
 * (struct node: sum, activation, computed_by), moves their cost there, and makes what elementwise
 * nodes write a view of what they read, where nobody else reads that. @writers and @lives are
 * indexed by tensor. Return: 0; -ENOMEM.
 */
int plan_fuse(struct plan *plan, const uint16_t *writers, struct plan_life *lives);
