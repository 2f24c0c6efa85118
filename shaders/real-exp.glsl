/* SPDX-License-Identifier: MIT */
/* EXP and LOG: exponential function and logarithm of REAL; see common.glsl. */
#ifdef DOUBLES
#include "double-exp.glsl"
#define EXP exp_of
#define LOG log_of
#else
#define EXP exp
#define LOG log
#endif
