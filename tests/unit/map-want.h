#pragma once
/* SPDX-License-Identifier: MIT */
/* Expected results of element-wise kernels, computed by libm in long double. */
#include "cpu/kernels.h"

/* Return the result of a unary function @op of @x, with its parameters @a and @b. */
long double map_want(enum cpu_map_op op, long double x, long double a, long double b);
