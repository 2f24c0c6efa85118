/* SPDX-License-Identifier: MIT */
/* Precompiled once per level for all kernels, if b_pch is set. */
#include <immintrin.h>
