#pragma once
/* SPDX-License-Identifier: MIT */
/* What kernels that work element by element are to give, by libm in a wider type. */
#include "cpu/kernels.h"

/* Of a function of one float, with its parameters. */
long double map_want(enum cpu_map_op op, long double x, long double a, long double b);
