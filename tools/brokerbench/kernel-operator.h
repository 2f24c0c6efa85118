#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The CPU kernels of an operator without a broker: called directly by a few threads
 */
#include "operator.h"

struct kernel_operator;

/*
 * Prepares the operator over @data, borrowed, with weights packed as a plan with constants has
 * them. @n_threads compute, the caller among them. Return: 0; negative errno.
 */
int kernel_operator_new(const struct operator_shape *shape, const struct operator_data *data,
			unsigned int n_threads, struct kernel_operator **ret);

/* Return: NULL. */
struct kernel_operator *kernel_operator_free(struct kernel_operator *kernel);

/* Computes y. */
void kernel_operator_run(struct kernel_operator *kernel);
