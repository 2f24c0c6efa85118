/* SPDX-License-Identifier: MIT */
/* The int8 kernels of one level, by name. Compiled once per level. */
#include "cpu/int8-level.h"

#define OF_KERNEL(result, name, arguments) .name = CPU_FN(i8_##name),

const struct cpu_int8_kernels CPU_FN(int8_kernels) = {
#if VW == 16 && I8_VNNI
	.level = CPU_INT8_AVX512_VNNI,
	.name = "avx512-vnni",
#elif VW == 16
	.level = CPU_INT8_AVX512,
	.name = "avx512",
#elif VW == 8 && I8_VNNI
	.level = CPU_INT8_AVX_VNNI,
	.name = "avx-vnni",
#elif VW == 8
	.level = CPU_INT8_AVX2,
	.name = "avx2",
#elif defined(__SSE2__)
	.level = CPU_INT8_SSE2,
	.name = "sse2",
#else
	.level = CPU_INT8_SSE2,
	.name = "generic",
#endif
	.gemm_mr = I8_MR,
	.gemm_nr = I8_NR,
	CPU_INT8_KERNELS(OF_KERNEL)};
