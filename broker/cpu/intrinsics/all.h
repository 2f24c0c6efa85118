/* SPDX-License-Identifier: MIT */
/* Compiled once for all kernels of a level, where b_pch is set. */
#include <immintrin.h>
