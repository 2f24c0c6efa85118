#pragma once
/* SPDX-License-Identifier: MIT */
/* Declarations that the files for emitting a step share */
#include "libclient/onnx/graph.h"

/*
 * Infer types and shapes of the step's outputs by the catalogue's rule; in emit-infer.c. Return:
 * false after a refusal.
 */
bool emit_infer(struct graph *graph, struct step *step);

/* Return true if an input has no elements; in emit-empty.c. */
bool emit_reads_nothing(const struct step *step);
/*
 * Compute a step that reads no elements into constants, without emitting it. The tensors of
 * step->out exist, without contents. Refuse the node if the result is not defined.
 */
void emit_empty(struct graph *graph, struct step *step);
