#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plan descriptions as large as they may be, of graphs that are hard for who verifies them
 *
 * Each kind of graph can be had in any size up to the largest, so that tests can tell how work
 * grows with it. Built by hand: support/describe.h looks tensors up by their names.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum big_plan {
	BIG_CHAIN,           /* Neg after Neg: each works in place, the bytes have one root */
	BIG_CHAIN_BACKWARDS, /* likewise, the last one's tensor first */
	BIG_CHAIN_APART,     /* without fusion: all have bytes of their own */
	BIG_VIEWS,           /* Reshape after Reshape */
	BIG_VIEWS_BETWEEN,   /* Reshape, Neg, Reshape, Neg */
	BIG_ALIVE,           /* a fan of tensors that all live until they are added up, in order */
	BIG_GAPS,            /* tensors of all sizes that live for long: a layout with many gaps */
	BIG_LIVES,           /* tensors of all sizes, each read by the next but a few */
	BIG_FAN_IN,          /* Concat of 32 inputs each */
	BIG_FAN_OUT,         /* Split into 32 outputs each, which nothing reads */
	BIG_CONSTANTS,       /* constants, of which one is read */
	BIG_FUSIBLE,         /* MatMul, Add and Relu, all computed along with the first */
	BIG_ABSENT,          /* nodes that share a list of inputs most of which are absent */
	BIG_ATTRS,           /* Conv with all of its attributes, and tensors of the largest rank */
	BIG_ILLEGAL,         /* BIG_CHAIN whose last node has no operator of that name */
	BIG_TOO_LARGE,       /* two chains whose scratch is found to be too large at the very end */
	BIG_PLANS,
};

const char *big_plan_name(enum big_plan kind);
/* Is it accepted? */
bool big_plan_is_legal(enum big_plan kind);

/*
 * About @n tensors or nodes, whichever there are more of, at most 4096. BIG_CONSTANTS names arena 1
 * from its beginning, 64 bytes each. Return: the description, for free(); *ret_bytes.
 */
void *big_plan(enum big_plan kind, unsigned int n, size_t *ret_bytes);
