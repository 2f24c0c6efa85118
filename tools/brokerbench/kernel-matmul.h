#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The CPU kernel of MatMul without a broker: called directly by a few threads
 */
#include <stdint.h>

#include "samples.h"

struct kernel_matmul;

/*
 * Prepares C = A * B, row-major, borrowed, with B packed as a plan with a constant has it.
 * @n_threads compute, the caller among them. Return: 0; negative errno.
 */
int kernel_matmul_new(uint32_t m, uint32_t k, uint32_t n, const float *a, const float *b, float *c,
		      unsigned int n_threads, struct kernel_matmul **ret);

/* Return: NULL. */
struct kernel_matmul *kernel_matmul_free(struct kernel_matmul *matmul);

/* Computes C. */
void kernel_matmul_run(struct kernel_matmul *matmul);
