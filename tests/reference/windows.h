#pragma once
/* SPDX-License-Identifier: MIT */
/* A part of reference.h: the operators that slide a window. */
#include <stdbool.h>
#include <stdint.h>

#include "reference/reference.h"

/* As reference_node(). Return: false: it is none of these operators. */
bool reference_windows(const struct plan *plan, const struct node *node, uint32_t count,
		       const void *const *in, void *const *out);
