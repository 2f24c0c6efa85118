#pragma once
/* SPDX-License-Identifier: MIT */
/* The kernels of the level being compiled, for table.c. kernels.h describes each. */
#include "cpu/kernels.h"
#include "cpu/vec.h"

#define LEVEL_KERNEL(result, name, arguments) result CPU_FN(name) arguments;
#define LEVEL_TABLE(type, name, size)         extern type *const CPU_FN(name)[size];
#define LEVEL_ROUTINE(name)                   extern const struct cpu_routine CPU_FN(name);
CPU_KERNELS(LEVEL_KERNEL, LEVEL_TABLE, LEVEL_ROUTINE)

LEVEL_TABLE(cpu_map_fn, map_f32, CPU_MAP_COUNT)
LEVEL_TABLE(cpu_map_fn, map_f64, CPU_MAP_COUNT)
LEVEL_TABLE(cpu_map_fn, map_i32, CPU_MAP_COUNT)
LEVEL_TABLE(cpu_map_fn, map_i64, CPU_MAP_COUNT)
LEVEL_TABLE(cpu_map_fn, map_i8, CPU_MAP_COUNT)
LEVEL_TABLE(cpu_map_fn, map_u8, CPU_MAP_COUNT)
LEVEL_TABLE(cpu_map_fn, map_bool, CPU_MAP_COUNT)
extern cpu_map_fn *const CPU_FN(cast)[CPU_TYPE_COUNT][CPU_TYPE_COUNT];

/* map-plain-hot.c, for map_f32. */
cpu_map_fn CPU_FN(equal_f32), CPU_FN(less_f32), CPU_FN(less_equal_f32), CPU_FN(greater_f32),
	CPU_FN(greater_equal_f32), CPU_FN(is_nan_f32), CPU_FN(is_inf_f32);

/* slide-hot.c, for conv(). Units: batch * channels. */
void CPU_FN(conv_depthwise)(const struct cpu_window *args, size_t begin, size_t end);
/* slide-last-hot.c, for conv_last() of cpu_conv_last_slides(). Units: cpu_rows_last(). */
void CPU_FN(conv_groups_last)(const struct cpu_window *args, size_t begin, size_t end);
/*
 * slide-tile-hot.c, for conv_groups_last() of single channels. Return: false, without effect, if
 * the windows are not supported.
 */
bool CPU_FN(conv_tiles_last)(const struct cpu_window *args, size_t begin, size_t end);
/* conv-strip-hot.c, for conv_last() of cpu_conv_last_strips(). Units: cpu_rows_last(). */
size_t CPU_FN(pack_conv_strips_size)(const struct cpu_window *args);
void CPU_FN(pack_conv_strips)(const struct cpu_window *args, float *to);
void CPU_FN(conv_strips)(const struct cpu_window *args, size_t begin, size_t end, void *workspace);

/* conv-direct-hot.c, for conv_last() of cpu_conv_last_is_direct(). Units: cpu_conv_last_units(). */
void CPU_FN(conv_direct)(const struct cpu_window *args, size_t begin, size_t end);

/* reduce-int-hot.c and reduce-double-hot.c, for reduce(). */
void CPU_FN(reduce_int)(const struct cpu_reduce *args, size_t begin, size_t end);
void CPU_FN(reduce_f64)(const struct cpu_reduce *args, size_t begin, size_t end);
/* axis-double-hot.c and norm-double-hot.c, for softmax() to batch_norm() where type is CPU_F64. */
void CPU_FN(softmax_f64)(const struct cpu_softmax *args, size_t begin, size_t end);
void CPU_FN(lp_norm_f64)(const struct cpu_lp_norm *args, size_t begin, size_t end);
void CPU_FN(scan_f64)(const struct cpu_scan *args, size_t begin, size_t end);
void CPU_FN(norm_f64)(const struct cpu_norm *args, size_t begin, size_t end);
void CPU_FN(batch_norm_f64)(const struct cpu_batch_norm *args, size_t begin, size_t end);

/*
 * gemm-hot.c, for the convolution: y[m][n] (+)= a * b over one block of the depth. @a: rows in
 * panels of GEMM_MR, see gemm_pack_a(). @b: one panel of GEMM_NR columns.
 */
void CPU_FN(gemm_pack_a)(size_t m, size_t k, const float *a, size_t a_rs, size_t a_cs, float *to);
void CPU_FN(gemm_panel)(size_t m, size_t n, size_t k, const float *a, const float *b, float *y,
			size_t y_rs, bool accumulate);
/* The same with @a unpacked, its rows @a_rs apart. */
void CPU_FN(gemm_rows_panel)(size_t m, size_t n, size_t k, const float *a, size_t a_rs,
			     const float *b, float *y, size_t y_rs, bool accumulate);
/* slide-double-hot.c, for conv_f64(). Units: batch * channels. */
void CPU_FN(conv_depthwise_f64)(const struct cpu_window_f64 *args, size_t begin, size_t end);
/* gemm-double-hot.c, for the float64 convolution; panels of GEMM_F64_NR columns. */
void CPU_FN(gemm_f64_pack_a)(size_t m, size_t k, const double *a, size_t a_rs, size_t a_cs,
			     double *to);
void CPU_FN(gemm_f64_panel)(size_t m, size_t n, size_t k, const double *a, const double *b,
			    double *y, size_t y_rs, bool accumulate);

#if VW == 16
#define GEMM_MR 12
#else
#define GEMM_MR 6
#endif
#define GEMM_NR     (2 * VW)
#define GEMM_F64_NR VW /* two vectors, as GEMM_NR */
/*
 * Rows of a (a convolution's output channels) that stay in the second-level cache while the panels
 * of b pass.
 */
#define GEMM_MC 240
_Static_assert(GEMM_MC % 12 == 0 && GEMM_MC % 6 == 0, "whole register tiles");

extern const struct cpu_kernels CPU_FN(kernels);
