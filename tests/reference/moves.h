#pragma once
/* SPDX-License-Identifier: MIT */
/* A part of reference.h: operators that only move elements. */
#include <stdbool.h>
#include <stdint.h>

#include "reference/reference.h"

/* As reference_node(), of elements of any type. Return: false: it is none of these operators. */
bool reference_moves(const struct plan *plan, const struct node *node, uint32_t count,
		     const void *const *in, void *const *out);
