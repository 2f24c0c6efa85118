#pragma once
/* SPDX-License-Identifier: MIT */
/* Finding patterns of steps, and replacing each by one step; see fuse.c */
#include "libclient/onnx/canon.h"

/*
 * Return the step that writes @tensor, if it is an @op; else NULL. @tensor may be NULL, here and
 * below.
 */
const struct step *fuse_maker(const struct tensor *tensor, const char *op);
/* Return that step only if @tensor is its only output and is read once. */
const struct step *fuse_only_maker(const struct tensor *tensor, const char *op);
/* Return an attribute; NULL: absent. */
const struct attr *fuse_attr(const struct step *step, const char *name);
/* Return true if @tensor is one known floating-point number. */
bool fuse_number(const struct tensor *tensor, double *ret);

/*
 * Add a step that replaces @step and writes the same outputs. Return: false: nothing happened,
 * because the catalogue refused the step or its outputs would differ.
 */
bool fuse_replace(struct graph *graph, struct step *step, const char *op, struct tensor *const *in,
		  unsigned int n_in, const struct attr *attrs, unsigned int n_attrs);

/*
 * Fuse an attention that ends in the MatMul @step; in fuse-attention.c. Return: false: no attention
 * ends there.
 */
bool fuse_attention(struct graph *graph, struct step *step);
