/* SPDX-License-Identifier: MIT */
/* The exponential function and the logarithm of REAL: see common.glsl. */
#ifdef DOUBLES
#include "double-exp.glsl"
#define EXP exp_of
#define LOG log_of
#else
#define EXP exp
#define LOG log
#endif
