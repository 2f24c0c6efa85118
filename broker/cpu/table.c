/* SPDX-License-Identifier: MIT */
/* The kernels of one level, by name: compiled once per level as they are. */
#include "cpu/kernels.h"
#include "cpu/level.h"

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
	.pack_b_size = CPU_FN(pack_b_size),
	.pack_b = CPU_FN(pack_b),
	.gemm = CPU_FN(gemm),
	.pack_nbits_size = CPU_FN(pack_nbits_size),
	.pack_nbits = CPU_FN(pack_nbits),
	.nbits = CPU_FN(nbits),
	.half_load = CPU_FN(half_load),
	.half_store = CPU_FN(half_store),
	.map = {[CPU_F32] = CPU_FN(map_f32),
		[CPU_I32] = CPU_FN(map_i32),
		[CPU_I64] = CPU_FN(map_i64),
		[CPU_I8] = CPU_FN(map_i8),
		[CPU_U8] = CPU_FN(map_u8),
		[CPU_BOOL] = CPU_FN(map_bool)},
	.cast = CPU_FN(cast),
	.where = CPU_FN(where),
	.softmax = CPU_FN(softmax),
	.top_k = CPU_FN(top_k),
	.reduce = CPU_FN(reduce),
	.arg = CPU_FN(arg),
	.scan = CPU_FN(scan),
	.norm = CPU_FN(norm),
	.batch_norm = CPU_FN(batch_norm),
	.lp_norm = CPU_FN(lp_norm),
	.rotary = CPU_FN(rotary),
	.attention = CPU_FN(attention),
	.move = CPU_FN(move),
	.gather = CPU_FN(gather),
	.gather_elements = CPU_FN(gather_elements),
	.scatter_elements = CPU_FN(scatter_elements),
	.scatter_nd = CPU_FN(scatter_nd),
	.one_hot = CPU_FN(one_hot),
	.trilu = CPU_FN(trilu),
	.pack_conv_size = CPU_FN(pack_conv_size),
	.pack_conv = CPU_FN(pack_conv),
	.conv = CPU_FN(conv),
	.max_pool = CPU_FN(max_pool),
	.average_pool = CPU_FN(average_pool),
	.lp_pool = CPU_FN(lp_pool),
	.max_pool_any = CPU_FN(max_pool_any),
};
