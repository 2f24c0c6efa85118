#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Where scratch tensors lie in a plan's scratch block. Private to broker/plan.
 */
#include <stdint.h>

#include "plan/plan.h"

/* Most bytes that plan_layout() allocates while it works, for each tensor and each node. */
enum { PLAN_LAYOUT_TENSOR_BYTES = 128, PLAN_LAYOUT_NODE_BYTES = 128 };

/* In which nodes a tensor is alive: from the one that writes it to the last that reads it. */
struct plan_life {
	uint16_t first;
	uint16_t last;
};

/*
 * Sets scratch_offset of every scratch tensor and scratch_bytes of the plan; @lives is indexed by
 * tensor. Return: 0; PLAN_E_INVALID, the block would be too large; -ENOMEM.
 */
int plan_layout(struct plan *plan, const struct plan_life *lives, char message[PLAN_MESSAGE_BYTES]);
