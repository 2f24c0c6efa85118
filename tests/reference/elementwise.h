#pragma once
/* SPDX-License-Identifier: MIT */
/* The plain reference: what works element by element. Private to tests/reference. */
#include <stdint.h>

#include "plan/plan.h"

/* One node, as reference_node(); float16s as float32s. */
void reference_elementwise(const struct plan *plan, const struct node *node, uint32_t count,
			   const void *const *in, void *out);
