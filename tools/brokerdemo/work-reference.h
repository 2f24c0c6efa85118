#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What a work's result has to be
 */
#include <stdbool.h>
#include <stdint.h>

#include "work.h"

/*
 * Elements of one row of what is read on the left and of what is written, and of what is read on
 * the right: of the whole tensor for MatMul and Conv, of one row for Add, 0 for the others.
 */
uint64_t work_left_elems(const struct work_shape *shape);
uint64_t work_right_elems(const struct work_shape *shape);
uint64_t work_row_elems(const struct work_shape *shape);

/* May work_compute() take a while? Then there is work_project() for it: MatMul and Conv. */
bool work_is_large(const struct work_shape *shape);

/* The result, by loops as the definition reads. */
void work_compute(const struct work_shape *shape, const float *left, const float *right,
		  float *ret);

/*
 * Is @output the result? MatMul and Conv are linear in the right side, so a random combination of
 * the result's columns (filters) is the result for one column that is combined likewise, which
 * takes a fraction of the time (Freivalds, "Probabilistic machines can use less running time",
 * 1977). All values are integers and sums are taken modulo 2^64, so that a wrong row is overlooked
 * once in 2^32 times at most. Return: 1 if so, 0 if not, -ENOMEM.
 */
int work_project(const struct work_shape *shape, uint32_t rows, const float *left,
		 const float *right, const float *output);
