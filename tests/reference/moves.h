#pragma once
/* SPDX-License-Identifier: MIT */
/* The plain reference: operators that only move elements. Private to tests/reference. */
#include <stdbool.h>
#include <stdint.h>

#include "reference/reference.h"

/*
 * Run one node as reference_node() does, on elements of any type.
 * Return: false if the operator is none of these.
 */
bool reference_moves(const struct plan *plan, const struct node *node, uint32_t count,
		     const void *const *in, void *const *out);
