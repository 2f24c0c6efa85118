#pragma once
/* SPDX-License-Identifier: MIT */
/* MatMul's CPU kernel without a broker, called directly by several threads */
#include <stdint.h>

#include "samples.h"

struct kernel_matmul;

/*
 * Prepare C = A * B, row-major and borrowed, with B packed as in a plan with a constant. @n_threads
 * compute, including the caller.
 * Return: 0; a negative errno.
 */
int kernel_matmul_new(uint32_t m, uint32_t k, uint32_t n, const float *a, const float *b, float *c,
		      unsigned int n_threads, struct kernel_matmul **ret);

/* Return: NULL. */
struct kernel_matmul *kernel_matmul_free(struct kernel_matmul *matmul);

/* Compute C. */
void kernel_matmul_run(struct kernel_matmul *matmul);
