#pragma once
/* SPDX-License-Identifier: MIT */
/* Between operators.c and gather.c. */
#include "reference/reference.h"

/* As reference_node(). Return: false if the operator is none of these. */
bool reference_gather(const struct plan *plan, const struct node *node, uint32_t count,
		      const void *const *in, void *const *out);
