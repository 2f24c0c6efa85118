#pragma once
/* SPDX-License-Identifier: MIT */
/* The CPU kernels of an operator without a broker, called directly by several threads */
#include "operator.h"

struct kernel_operator;

/*
 * Prepare the operator over @data, borrowed, with weights packed as in a plan with constants.
 * @n_threads compute, including the caller.
 * Return: 0; a negative errno.
 */
int kernel_operator_new(const struct operator_shape *shape, const struct operator_data *data,
			unsigned int n_threads, struct kernel_operator **ret);

/* Return: NULL. */
struct kernel_operator *kernel_operator_free(struct kernel_operator *kernel);

/* Compute y. */
void kernel_operator_run(struct kernel_operator *kernel);
