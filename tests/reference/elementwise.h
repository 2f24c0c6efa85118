#pragma once
/* SPDX-License-Identifier: MIT */
/* The plain reference: elementwise operators. Private to tests/reference. */
#include <stdint.h>

#include "plan/plan.h"

/* Run one node as reference_node() does; float16 elements must have been converted to float32. */
void reference_elementwise(const struct plan *plan, const struct node *node, uint32_t count,
			   const void *const *in, void *out);
