#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plan descriptions of the largest allowed size, of graphs that are hard to verify
 *
 * Tests choose the size of each kind of graph, and so measure how the verifier's work grows with
 * it. The descriptions are built by hand: support/describe.h looks tensors up by name, which is
 * slow for thousands of tensors.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum big_plan {
	BIG_CHAIN,           /* Neg after Neg, each in place: all tensors alias one root's bytes */
	BIG_CHAIN_BACKWARDS, /* BIG_CHAIN with the tensors in reverse order */
	BIG_CHAIN_APART,     /* BIG_CHAIN without fusion: each tensor has its own bytes */
	BIG_VIEWS,           /* Reshape after Reshape */
	BIG_VIEWS_BETWEEN,   /* Reshape, Neg, Reshape, Neg */
	BIG_ALIVE,           /* a fan of tensors that all live until they are summed in order */
	BIG_GAPS,            /* long-lived tensors of all sizes: a layout with many gaps */
	BIG_LIVES,           /* tensors of all sizes, each read a few nodes later */
	BIG_FAN_IN,          /* Concat of 32 inputs each */
	BIG_FAN_OUT,         /* Split into 32 outputs each, which nothing reads */
	BIG_CONSTANTS,       /* constants, of which one is read */
	BIG_FUSIBLE,         /* MatMul, Add and Relu, all fused with the first node */
	BIG_ABSENT,          /* nodes that share an input list whose entries are mostly absent */
	BIG_ATTRS,           /* Conv with all of its attributes, and tensors of the largest rank */
	BIG_ILLEGAL,         /* BIG_CHAIN whose last node names an unknown operator */
	BIG_TOO_LARGE,       /* two chains whose scratch proves too large only at the very end */
	BIG_PLANS,
};

const char *big_plan_name(enum big_plan kind);
/* Return true if the verifier accepts graphs of @kind. */
bool big_plan_is_legal(enum big_plan kind);

/*
 * Describe a graph of about @n tensors or @n nodes, whichever are more; @n is at most 4096.
 * BIG_CONSTANTS names arena 1 from its beginning, 64 bytes per constant.
 * Return: the description, which the caller frees with free(); its size in *ret_bytes.
 */
void *big_plan(enum big_plan kind, unsigned int n, size_t *ret_bytes);
