#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The plain reference: operators that take indices, Trilu, and GridSample. Private to
 * tests/reference.
 */
#include "reference/reference.h"

/*
 * Run one node as reference_node() does.
 * Return: false if the operator is none of these.
 */
bool reference_gather(const struct plan *plan, const struct node *node, uint32_t count,
		      const void *const *in, void *const *out);
