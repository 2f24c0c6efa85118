#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Emitting a step: what its files share
 */
#include "libclient/onnx/graph.h"

/*
 * emit-infer.c: fills in types and shapes of the step's outputs by the catalogue's rule. Return:
 * false after a refusal.
 */
bool emit_infer(struct graph *graph, struct step *step);

/* emit-empty.c: is there an input without elements? */
bool emit_reads_nothing(const struct step *step);
/*
 * What the operator makes of that: constants, for which there will be no step. Outputs are there,
 * without contents. Where it is not defined: a refusal.
 */
void emit_empty(struct graph *graph, struct step *step);
