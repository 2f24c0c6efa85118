#pragma once
/* SPDX-License-Identifier: MIT */
/* Expected results of single operators, see work.h */
#include <stdbool.h>
#include <stdint.h>

#include "work.h"

/*
 * Return the elements of one row of the left input (work_left_elems()) and of the output
 * (work_row_elems()). For the right input (work_right_elems()) return the elements of the whole
 * tensor for MatMul and Conv, of one row for Add, 0 for other operators.
 */
uint64_t work_left_elems(const struct work_shape *shape);
uint64_t work_right_elems(const struct work_shape *shape);
uint64_t work_row_elems(const struct work_shape *shape);

/*
 * Return true if work_compute() may take long. Only MatMul and Conv can be large; work_project()
 * checks them.
 */
bool work_is_large(const struct work_shape *shape);

/* Compute the result with loops that follow the operator's definition. */
void work_compute(const struct work_shape *shape, const float *left, const float *right,
		  float *ret);

/*
 * Check @output by projection. MatMul and Conv are linear in the right input. A random combination
 * of the result's columns (filters) therefore equals the result for the same combination of the
 * right input's columns, which takes a fraction of the time (Freivalds, "Probabilistic machines can
 * use less running time", 1977). All values are integers, summed modulo 2^64, so that a wrong row
 * passes with probability 2^-32 at most.
 * Return: 1 if @output is right, 0 if not, -ENOMEM.
 */
int work_project(const struct work_shape *shape, uint32_t rows, const float *left,
		 const float *right, const float *output);
