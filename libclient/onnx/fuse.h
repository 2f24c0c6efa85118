#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What patterns of steps are found by, and replaced by one; see fuse.c
 */
#include "libclient/onnx/canon.h"

/* The step that writes @tensor, if it is an @op. @tensor may be NULL, here and below. */
const struct step *fuse_maker(const struct tensor *tensor, const char *op);
/* Likewise, if @tensor is read once and all that the step writes. */
const struct step *fuse_only_maker(const struct tensor *tensor, const char *op);
/* NULL: it has none. */
const struct attr *fuse_attr(const struct step *step, const char *name);
/* Is @tensor one floating-point number that is known? */
bool fuse_number(const struct tensor *tensor, double *ret);

/*
 * Adds a step that writes what @step does, instead of it. Return: false: nothing happened, as the
 * catalogue refused it or it would write something else.
 */
bool fuse_replace(struct graph *graph, struct step *step, const char *op, struct tensor *const *in,
		  unsigned int n_in, const struct attr *attrs, unsigned int n_attrs);

/* fuse-attention.c: @step is a MatMul. Return: false: it is not the end of an attention. */
bool fuse_attention(struct graph *graph, struct step *step);
