/* SPDX-License-Identifier: MIT */
/* The kernel table of one level; compiled once per level, like the kernels. */
#include "cpu/kernels.h"
#include "cpu/level.h"

#define OF_KERNEL(result, name, arguments) .name = CPU_FN(name),
#define OF_TABLE(type, name, size)         .name = CPU_FN(name),
#define OF_ROUTINE(name)                   .name = &CPU_FN(name),

const struct cpu_kernels CPU_FN(kernels) = {
#if VW == 16
	.level = CPU_SIMD_AVX512,
	.name = "avx512",
#elif VW == 8
	.level = CPU_SIMD_AVX2,
	.name = "avx2",
#elif defined(__SSE2__)
	.level = CPU_SIMD_SSE2,
	.name = "sse2",
#else
	.level = CPU_SIMD_SSE2,
	.name = "generic",
#endif
	.gemm_mr = GEMM_MR,
	.gemm_nr = GEMM_NR,
	.map = {[CPU_F32] = CPU_FN(map_f32),
		[CPU_F64] = CPU_FN(map_f64),
		[CPU_I32] = CPU_FN(map_i32),
		[CPU_I64] = CPU_FN(map_i64),
		[CPU_I8] = CPU_FN(map_i8),
		[CPU_U8] = CPU_FN(map_u8),
		[CPU_BOOL] = CPU_FN(map_bool)},
	.cast = CPU_FN(cast),
	CPU_KERNELS(OF_KERNEL, OF_TABLE, OF_ROUTINE)};
