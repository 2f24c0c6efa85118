/* SPDX-License-Identifier: MIT */
/*
 * Pipelines: see pipeline.h.
 *
 * The file on disk is "vulkan-DEVICE-DRIVER.cache", the two being UUIDs, so that another driver
 * never reads it; in front of the driver's bytes stand a magic number, their length and a checksum,
 * because drivers check only the header of what they are given. It is written to a temporary
 * name and renamed, so that a reader sees the whole of one version.
 */
#include "vulkan/pipeline.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shaders/params.glsl"
#include "util/checked.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/log.h"
#include "vulkan/device.h"
#include "vulkan/shaders.h"

enum { CACHE_MAX_BYTES = 64 << 20 };

struct cache_header {
	char magic[8];
	uint64_t bytes;
	uint64_t checksum;
};
static const char cache_magic[8] = "rbkvkc1";

enum { PLAIN = VK_VARIANT_PLAIN, SHARED = VK_VARIANT_SHARED };

/* Constant 0 is always the workgroup's size; the others are the shader's own. */
static const struct vk_pipe_info pipe_infos[VK_PIPE_MAP][VK_VARIANT_COUNT] = {
/* Shapes of tiles, the first of each the one for whatever was not measured: see tiles.h. */
#define MATMUL_PLAIN(pipe, trans, sets, sides)                                      \
	[(pipe) + (trans)][PLAIN] = {"MatMul, registers",                           \
				     &vk_shader_matmul_register,                    \
				     6,                                             \
				     {8, (trans) % 2, (trans) / 2, sets, sides, 8}, \
				     8 * (sets),                                    \
				     32 * (sides)}
#define MATMUL_SHARED(pipe, trans, size, lanes, sides, steps)                                \
	[(pipe) + (trans)][SHARED] = {"MatMul, tiles",                                       \
				      &vk_shader_matmul_tiled,                               \
				      6,                                                     \
				      {size, (trans) % 2, (trans) / 2, lanes, sides, steps}, \
				      (size) / (lanes)*4,                                    \
				      (lanes)*4 * (sides)}
/* Of VK_SPEC_MAX constants, the last three are the device's: see vk_pipe_is_of_matrices(). */
#define MATMUL_MATRICES(pipe, trans, variant)                                 \
	[(pipe) + (trans)][variant] = {.name = "MatMul, matrices",            \
				       .shader = &vk_shader_matmul_matrices,  \
				       .n_spec = 6,                           \
				       .spec = {4, (trans) % 2, (trans) / 2}, \
				       .tile_rows = 64,                       \
				       .tile_cols = 64}
#define MATMUL(tile, kind, ...)                                             \
	MATMUL_##kind(VK_PIPE_MATMUL + 4 * (tile), 0, __VA_ARGS__),         \
		MATMUL_##kind(VK_PIPE_MATMUL + 4 * (tile), 1, __VA_ARGS__), \
		MATMUL_##kind(VK_PIPE_MATMUL + 4 * (tile), 2, __VA_ARGS__), \
		MATMUL_##kind(VK_PIPE_MATMUL + 4 * (tile), 3, __VA_ARGS__)
	MATMUL(0, PLAIN, 1, 2),
	MATMUL(1, PLAIN, 2, 2),
	MATMUL(2, PLAIN, 1, 4),
	MATMUL(3, MATRICES, PLAIN),
	MATMUL(0, SHARED, 256, 16, 2, 16),
	MATMUL(1, SHARED, 256, 16, 1, 16),
	MATMUL(2, SHARED, 128, 16, 1, 16),
	MATMUL(3, SHARED, 64, 16, 1, 8),
	MATMUL(4, SHARED, 64, 8, 1, 8),
	MATMUL(5, MATRICES, SHARED),
#define MATMUL_ROW(trans)                                                                \
	[VK_PIPE_MATMUL_ROW + (trans)][PLAIN] = {"MatMul, one row",                      \
						 &vk_shader_matmul_register,             \
						 6,                                      \
						 {8, (trans) % 2, (trans) / 2, 1, 2, 1}, \
						 1,                                      \
						 64}
	MATMUL_ROW(0),
	MATMUL_ROW(1),
	MATMUL_ROW(2),
	MATMUL_ROW(3),
#undef MATMUL_ROW
#undef MATMUL
#undef MATMUL_MATRICES
#undef MATMUL_SHARED
#undef MATMUL_PLAIN
#define CONV_PLAIN(tile, sets)             \
	[VK_PIPE_CONV + (tile)][PLAIN] = { \
		"Conv, registers", &vk_shader_conv_register, 3, {8, 8, sets}, 8 * (sets), 32}
#define CONV_SHARED(tile, size, lanes, sides, steps)                                       \
	[VK_PIPE_CONV + (tile)][SHARED] = {                                                \
		"Conv, tiles",      &vk_shader_conv_tiled, 4, {size, lanes, sides, steps}, \
		(size) / (lanes)*4, (lanes)*4 * (sides)}
	CONV_PLAIN(0, 1),
	CONV_PLAIN(1, 2),
	CONV_PLAIN(2, 4),
	CONV_SHARED(0, 256, 16, 2, 16),
	CONV_SHARED(1, 256, 16, 1, 16),
	CONV_SHARED(2, 128, 16, 1, 16),
	CONV_SHARED(3, 64, 16, 1, 8),
#undef CONV_SHARED
#undef CONV_PLAIN
	[VK_PIPE_CONV_FEW][PLAIN] = {"Conv, registers", &vk_shader_conv_register, 2, {8, 8}, 8, 32},
	[VK_PIPE_CONV_FEW][SHARED] =
		{"Conv, direct", &vk_shader_conv_direct, 3, {64, 8, 2}, 8, 128},
	[VK_PIPE_CONV_NARROW][PLAIN] = {"Conv, narrow", &vk_shader_conv_register, 2, {8, 1}, 1, 32},
	[VK_PIPE_CONV_NARROW][SHARED] =
		{"Conv, direct", &vk_shader_conv_direct, 3, {64, 1, 2}, 1, 128},
	[VK_PIPE_CONV_VOLUME][PLAIN] = {"Conv, volume", &vk_shader_conv_volume, 1, {8}, 1, 8},
	[VK_PIPE_CONV_VOLUME][SHARED] = {"Conv, volume", &vk_shader_conv_volume, 1, {64}, 1, 64},
	[VK_PIPE_CONV_TRANSPOSE][PLAIN] =
		{"ConvTranspose", &vk_shader_conv_transpose, 1, {8}, 1, 8},
	[VK_PIPE_CONV_TRANSPOSE][SHARED] =
		{"ConvTranspose", &vk_shader_conv_transpose, 1, {64}, 1, 64},
	[VK_PIPE_SOFTMAX][PLAIN] = {"Softmax", &vk_shader_softmax, 1, {8}, 1, 8},
	[VK_PIPE_SOFTMAX][SHARED] = {"Softmax", &vk_shader_softmax, 1, {64}, 1, 64},
	[VK_PIPE_SOFTMAX_ROWS][PLAIN] =
		{"Softmax, subgroups", &vk_shader_softmax_rows, 1, {8}, 1, 1},
	[VK_PIPE_SOFTMAX_ROWS][SHARED] =
		{"Softmax, subgroups", &vk_shader_softmax_rows, 1, {256}, 1, 1},
	[VK_PIPE_REDUCE][PLAIN] = {"ReduceSum", &vk_shader_reduce, 2, {8, 1}, 1, 8},
	[VK_PIPE_REDUCE][SHARED] = {"ReduceSum", &vk_shader_reduce, 2, {64, 1}, 1, 64},
	[VK_PIPE_REDUCE_ROWS][PLAIN] =
		{"ReduceSum, subgroups", &vk_shader_reduce_rows, 2, {8, 1}, 1, 1},
	[VK_PIPE_REDUCE_ROWS][SHARED] =
		{"ReduceSum, subgroups", &vk_shader_reduce_rows, 2, {256, 1}, 1, 1},
	[VK_PIPE_REDUCE_ANY][PLAIN] = {"Reduce", &vk_shader_reduce, 2, {8, 0}, 1, 8},
	[VK_PIPE_REDUCE_ANY][SHARED] = {"Reduce", &vk_shader_reduce, 2, {64, 0}, 1, 64},
	[VK_PIPE_REDUCE_ANY_ROWS][PLAIN] =
		{"Reduce, subgroups", &vk_shader_reduce_rows, 2, {8, 0}, 1, 1},
	[VK_PIPE_REDUCE_ANY_ROWS][SHARED] =
		{"Reduce, subgroups", &vk_shader_reduce_rows, 2, {256, 0}, 1, 1},
	[VK_PIPE_ARG][PLAIN] = {"ArgMax", &vk_shader_arg, 2, {8, 0}, 1, 8},
	[VK_PIPE_ARG][SHARED] = {"ArgMax", &vk_shader_arg, 2, {64, 0}, 1, 64},
	[VK_PIPE_ARG_ROWS][PLAIN] = {"ArgMax, rows", &vk_shader_arg, 2, {8, 1}, 1, 1},
	[VK_PIPE_ARG_ROWS][SHARED] = {"ArgMax, rows", &vk_shader_arg, 2, {256, 1}, 1, 1},
	[VK_PIPE_SCAN][PLAIN] = {"CumSum", &vk_shader_scan, 1, {8}, 1, 8},
	[VK_PIPE_SCAN][SHARED] = {"CumSum", &vk_shader_scan, 1, {64}, 1, 64},
	[VK_PIPE_NORM][PLAIN] = {"normalisation", &vk_shader_norm, 1, {8}, 1, 1},
	[VK_PIPE_NORM][SHARED] = {"normalisation", &vk_shader_norm, 1, {128}, 1, 1},
	[VK_PIPE_BATCH_NORM][PLAIN] =
		{"BatchNormalization", &vk_shader_batch_norm, 2, {8, 32}, 1, 256},
	[VK_PIPE_BATCH_NORM][SHARED] =
		{"BatchNormalization", &vk_shader_batch_norm, 2, {256, 4}, 1, 1024},
	[VK_PIPE_LP_NORM][PLAIN] = {"LpNormalization", &vk_shader_lp_norm, 1, {8}, 1, 8},
	[VK_PIPE_LP_NORM][SHARED] = {"LpNormalization", &vk_shader_lp_norm, 1, {64}, 1, 64},
	[VK_PIPE_ROTARY][PLAIN] = {"RotaryEmbedding", &vk_shader_rotary, 2, {8, 32}, 1, 256},
	[VK_PIPE_ROTARY][SHARED] = {"RotaryEmbedding", &vk_shader_rotary, 2, {256, 2}, 1, 512},
	[VK_PIPE_ATTENTION][PLAIN] = {"Attention", &vk_shader_attention, 1, {8}, 1, 1},
	[VK_PIPE_ATTENTION][SHARED] = {"Attention", &vk_shader_attention, 1, {64}, 1, 1},
	[VK_PIPE_ATTENTION_BLOCK][PLAIN] =
		{"Attention, queries", &vk_shader_attention_queries, 2, {8, 16}, 8, 1},
	[VK_PIPE_ATTENTION_BLOCK][SHARED] =
		{"Attention, queries", &vk_shader_attention_block, 1, {64}, 4, 1},
	[VK_PIPE_ATTENTION_BLOCK_WIDE][PLAIN] =
		{"Attention, queries", &vk_shader_attention_queries, 2, {8, 32}, 8, 1},
	[VK_PIPE_PRESENT][PLAIN] = {"Attention, present", &vk_shader_present, 2, {8, 32}, 1, 256},
	[VK_PIPE_PRESENT][SHARED] =
		{"Attention, present", &vk_shader_present, 2, {256, 4}, 1, 1024},
#define POOL(pipe, label, shader, kind, is_signed)                      \
	[pipe][PLAIN] = {label, shader, 3, {8, kind, is_signed}, 1, 8}, \
	[pipe][SHARED] = {label, shader, 3, {64, kind, is_signed}, 1, 64}
	POOL(VK_PIPE_MAX_POOL, "MaxPool", &vk_shader_pool, POOL_MAX, 0),
	POOL(VK_PIPE_MAX_POOL_I8, "MaxPool, int8", &vk_shader_pool_bytes, POOL_MAX, 1),
	POOL(VK_PIPE_MAX_POOL_U8, "MaxPool, uint8", &vk_shader_pool_bytes, POOL_MAX, 0),
	POOL(VK_PIPE_AVERAGE_POOL, "AveragePool", &vk_shader_pool, POOL_AVERAGE, 0),
	POOL(VK_PIPE_LP_POOL, "LpPool", &vk_shader_pool, POOL_LP, 0),
#undef POOL
	[VK_PIPE_TOP_K][PLAIN] = {"TopK", &vk_shader_top_k, 2, {8, 1}, 1, 1},
	[VK_PIPE_TOP_K][SHARED] = {"TopK", &vk_shader_top_k, 2, {256, 1}, 1, 1},
	[VK_PIPE_TOP_K_LARGE][PLAIN] = {"TopK, large k", &vk_shader_top_k, 2, {64, 0}, 1, 1},
	[VK_PIPE_TOP_K_LARGE][SHARED] = {"TopK, large k", &vk_shader_top_k, 2, {256, 0}, 1, 1},
#define MOVE(pipe, label, shader, width)                                                       \
	[pipe][PLAIN] = {label, (shader), 3, {8, 32, width}, 1, 256}, [pipe][SHARED] = {       \
									      label,           \
									      (shader),        \
									      3,               \
									      {256, 4, width}, \
									      1,               \
									      1024}
	MOVE(VK_PIPE_MOVE, "move, bytes", &vk_shader_move_bytes, 0),
	MOVE(VK_PIPE_MOVE_2, "move, 2 bytes", &vk_shader_move_halves, 1),
	MOVE(VK_PIPE_MOVE_4, "move, 4 bytes", &vk_shader_move, 2),
	MOVE(VK_PIPE_MOVE_8, "move, 8 bytes", &vk_shader_move, 3),
	MOVE(VK_PIPE_MOVE_16, "move, 16 bytes", &vk_shader_move, 4),
#undef MOVE
#define QUANTIZE(pipe, label, back, type)                                            \
	[pipe][PLAIN] = {label, &vk_shader_quantize, 4, {8, 8, back, type}, 1, 256}, \
	[pipe][SHARED] = {label, &vk_shader_quantize, 4, {256, 1, back, type}, 1, 1024}
	QUANTIZE(VK_PIPE_QUANTIZE_U8, "QuantizeLinear, uint8", 0, RBK_DTYPE_U8),
	QUANTIZE(VK_PIPE_QUANTIZE_I8, "QuantizeLinear, int8", 0, RBK_DTYPE_I8),
	QUANTIZE(VK_PIPE_DEQUANTIZE_U8, "DequantizeLinear, uint8", 1, RBK_DTYPE_U8),
	QUANTIZE(VK_PIPE_DEQUANTIZE_I8, "DequantizeLinear, int8", 1, RBK_DTYPE_I8),
	QUANTIZE(VK_PIPE_DEQUANTIZE_I32, "DequantizeLinear, int32", 1, RBK_DTYPE_I32),
#undef QUANTIZE
	[VK_PIPE_RANGE][PLAIN] = {"DynamicQuantizeLinear, ranges", &vk_shader_range, 1, {8}, 1, 1},
	[VK_PIPE_RANGE][SHARED] =
		{"DynamicQuantizeLinear, ranges", &vk_shader_range, 1, {256}, 1, 1},
	[VK_PIPE_RANGE_END][PLAIN] =
		{"DynamicQuantizeLinear, scale", &vk_shader_range_end, 1, {8}, 1, 1},
	[VK_PIPE_RANGE_END][SHARED] =
		{"DynamicQuantizeLinear, scale", &vk_shader_range_end, 1, {64}, 1, 1},
	[VK_PIPE_MATMUL_INTEGER][PLAIN] =
		{"MatMulInteger, registers", &vk_shader_matmul_integer_register, 1, {8}, 8, 32},
	[VK_PIPE_MATMUL_INTEGER][SHARED] =
		{"MatMulInteger, tiles", &vk_shader_matmul_integer_tiled, 1, {256}, 64, 64},
#define CONV(pipe, label, rows)                                                         \
	[pipe][PLAIN] = {label, &vk_shader_conv_integer, 4, {8, rows, 4, 1}, rows, 32}, \
	[pipe][SHARED] = {label, &vk_shader_conv_integer, 4, {64, rows, 2, 0}, rows, 128}
	CONV(VK_PIPE_CONV_INTEGER, "ConvInteger", 8),
	CONV(VK_PIPE_CONV_INTEGER_NARROW, "ConvInteger, narrow", 1),
#undef CONV
#define REQUANTIZE(pipe, label, is_signed)                                            \
	[pipe][PLAIN] = {label, &vk_shader_requantize, 3, {8, 8, is_signed}, 1, 256}, \
	[pipe][SHARED] = {label, &vk_shader_requantize, 3, {256, 1, is_signed}, 1, 1024}
	REQUANTIZE(VK_PIPE_REQUANTIZE_U8, "sums to uint8", 0),
	REQUANTIZE(VK_PIPE_REQUANTIZE_I8, "sums to int8", 1),
#undef REQUANTIZE
#define NBITS(pipe, label, rows)                                                 \
	[pipe][PLAIN] = {label, &vk_shader_matmul_nbits, 2, {8, rows}, rows, 8}, \
	[pipe][SHARED] = {label, &vk_shader_matmul_nbits, 2, {64, rows}, rows, 64}
	NBITS(VK_PIPE_MATMUL_NBITS, "MatMulNBits", VK_NBITS_ROWS),
	NBITS(VK_PIPE_MATMUL_NBITS_ROW, "MatMulNBits, one row", 1),
#undef NBITS
#define MATMUL_DOUBLE(trans)                                                                 \
	[VK_PIPE_MATMUL_DOUBLE + (trans)][PLAIN] = {"MatMul, float64",                       \
						    &vk_shader_matmul_double,                \
						    3,                                       \
						    {8, (trans) % 2, (trans) / 2},           \
						    4,                                       \
						    24},                                     \
				 [VK_PIPE_MATMUL_DOUBLE +                                    \
					 (trans)][SHARED] = {"MatMul, float64",              \
							     &vk_shader_matmul_double,       \
							     3,                              \
							     {64, (trans) % 2, (trans) / 2}, \
							     4,                              \
							     192}
	MATMUL_DOUBLE(0),
	MATMUL_DOUBLE(1),
	MATMUL_DOUBLE(2),
	MATMUL_DOUBLE(3),
#undef MATMUL_DOUBLE
#define COPY(pipe, label, shader)                                                                  \
	[pipe][PLAIN] = {label, (shader), 2, {8, 64}, 1, 2048}, [pipe][SHARED] = {label, (shader), \
										  2,     {256, 4}, \
										  1,     4096}
	COPY(VK_PIPE_COPY, "copy", &vk_shader_copy),
	COPY(VK_PIPE_COPY_BYTES, "copy, bytes", &vk_shader_copy_bytes),
#undef COPY
	[VK_PIPE_NAIVE_MATMUL][PLAIN] = {"MatMul, naive", &vk_shader_naive_matmul, 1, {8}, 1, 8},
	[VK_PIPE_NAIVE_MATMUL][SHARED] = {"MatMul, naive", &vk_shader_naive_matmul, 1, {64}, 1, 64},
#define MOVED(pipe, log, label, shader)                                       \
	[(pipe) + (log)][PLAIN] = {label, (shader), 3, {8, 32, log}, 1, 256}, \
		  [(pipe) + (log)][SHARED] = {label, (shader), 3, {256, 4, log}, 1, 1024}
#define MOVED_EACH(pipe, label, shader)                             \
	MOVED(pipe, 0, label ", 1 byte", shader##_narrow),          \
		MOVED(pipe, 1, label ", 2 bytes", shader##_narrow), \
		MOVED(pipe, 2, label ", 4 bytes", shader),          \
		MOVED(pipe, 3, label ", 8 bytes", shader)
	MOVED_EACH(VK_PIPE_GATHER, "Gather", &vk_shader_gather),
	MOVED(VK_PIPE_GATHER, 4, "Gather, 16 bytes", &vk_shader_gather),
	MOVED_EACH(VK_PIPE_GATHER_ELEMENTS, "GatherElements", &vk_shader_gather_elements),
	MOVED_EACH(VK_PIPE_ONE_HOT, "OneHot", &vk_shader_one_hot),
	MOVED_EACH(VK_PIPE_TRILU, "Trilu", &vk_shader_trilu),
#undef MOVED_EACH
#undef MOVED
#define SCATTER(place, label, shader, dtype)                                                    \
	[VK_PIPE_SCATTER + (place)][PLAIN] = {label, (shader), 3, {8, 4, dtype}, 1, 32},        \
			   [VK_PIPE_SCATTER + (place)][SHARED] = {label,           (shader), 3, \
								  {256, 1, dtype}, 1,        256}
	SCATTER(0, "Scatter, float32", &vk_shader_scatter, RBK_DTYPE_F32),
	SCATTER(1, "Scatter, float16", &vk_shader_scatter, RBK_DTYPE_F16),
	SCATTER(2, "Scatter, int32", &vk_shader_scatter, RBK_DTYPE_I32),
	SCATTER(3, "Scatter, int64", &vk_shader_scatter, RBK_DTYPE_I64),
	SCATTER(4, "Scatter, int8", &vk_shader_scatter, RBK_DTYPE_I8),
	SCATTER(5, "Scatter, uint8", &vk_shader_scatter, RBK_DTYPE_U8),
	SCATTER(6, "Scatter, float64", &vk_shader_scatter_double, RBK_DTYPE_F64),
#undef SCATTER
/* One result per invocation, and one per workgroup. */
#define EACH(pipe, label, shader, n_spec, ...)                             \
	[pipe][PLAIN] = {label, (shader), n_spec, {8, __VA_ARGS__}, 1, 8}, \
	[pipe][SHARED] = {label, (shader), n_spec, {64, __VA_ARGS__}, 1, 64}
#define ROWS_OF(lanes, pipe, label, shader, n_spec, ...)                       \
	[pipe][PLAIN] = {label, (shader), n_spec, {lanes, __VA_ARGS__}, 1, 1}, \
	[pipe][SHARED] = {label, (shader), n_spec, {256, __VA_ARGS__}, 1, 1}
#define ROWS(...) ROWS_OF(8, __VA_ARGS__)
#define ORDERED(place, type, dtype)                                                                \
	EACH(VK_PIPE_ARG_INTEGER + (place), "ArgMax, " type, &vk_shader_arg_integer, 3, 0, dtype), \
		ROWS(VK_PIPE_ARG_INTEGER_ROWS + (place), "ArgMax, rows, " type,                    \
		     &vk_shader_arg_integer, 3, 1, dtype),                                         \
		ROWS(VK_PIPE_TOP_K_INTEGER + (place), "TopK, " type, &vk_shader_top_k_integer, 3,  \
		     1, dtype),                                                                    \
		ROWS_OF(64, VK_PIPE_TOP_K_LARGE_INTEGER + (place), "TopK, large k, " type,         \
			&vk_shader_top_k_integer, 3, 0, dtype)
#define INTEGER(place, type, dtype)                                                              \
	EACH(VK_PIPE_REDUCE_INTEGER + (place), "Reduce, " type, &vk_shader_reduce_integer, 4, 0, \
	     dtype, 0),                                                                          \
		ROWS(VK_PIPE_REDUCE_INTEGER_ROWS + (place), "Reduce, rows, " type,               \
		     &vk_shader_reduce_integer, 4, 0, dtype, 1),                                 \
		ORDERED(place, type, dtype)
	INTEGER(0, "int32", RBK_DTYPE_I32),
	INTEGER(1, "int64", RBK_DTYPE_I64),
	INTEGER(2, "int8", RBK_DTYPE_I8),
	INTEGER(3, "uint8", RBK_DTYPE_U8),
	ORDERED(4, "float64", RBK_DTYPE_F64),
	EACH(VK_PIPE_SCAN_INTEGER, "CumSum, int32", &vk_shader_scan_integer, 2, RBK_DTYPE_I32),
	EACH(VK_PIPE_SCAN_INTEGER + 1, "CumSum, int64", &vk_shader_scan_integer, 2, RBK_DTYPE_I64),
#undef INTEGER
#undef ORDERED
#undef ROWS
#undef ROWS_OF
#undef EACH
};

const struct vk_pipe_info *vk_pipe_info(enum vk_pipe pipe, int variant)
{
	const struct vk_pipe_info *info;

	if (pipe >= VK_PIPE_MAP)
		return vk_map_info(pipe, variant);
	info = &pipe_infos[pipe][variant];
	return info->shader ? info : NULL;
}

enum vk_pipe vk_pipe_scatter(uint8_t dtype)
{
	for (int pipe = VK_PIPE_SCATTER; pipe < VK_PIPE_REDUCE_INTEGER; pipe++)
		if (pipe_infos[pipe][PLAIN].spec[2] == dtype)
			return (enum vk_pipe)pipe;
	/* What is moved by its width alone. */
	return vk_pipe_scatter(dtype == RBK_DTYPE_BF16 ? RBK_DTYPE_F16 : RBK_DTYPE_U8);
}

enum vk_pipe vk_pipe_integer(enum vk_pipe first, uint8_t dtype)
{
	const unsigned int place = dtype == RBK_DTYPE_I32   ? 0
				   : dtype == RBK_DTYPE_I64 ? 1
				   : dtype == RBK_DTYPE_I8  ? 2
				   : dtype == RBK_DTYPE_F64 ? 4
							    : 3;

	/* What ArgMax and TopK look at is an order; the others compute with what they read. */
	assert(dtype != RBK_DTYPE_F64 ||
	       (first >= VK_PIPE_ARG_INTEGER && first < VK_PIPE_SCAN_INTEGER));
	return (enum vk_pipe)((unsigned int)first + place);
}

/* The cache on disk */

/* FNV-1a over 64-bit words and the rest: finds damage, not intent. */
static uint64_t checksum(const uint8_t *bytes, size_t n_bytes)
{
	uint64_t sum = 0xcbf29ce484222325ull, word;

	for (size_t i = 0; i < n_bytes; i += sizeof(word)) {
		word = 0;
		memcpy(&word, bytes + i, n_bytes - i < sizeof(word) ? n_bytes - i : sizeof(word));
		sum = (sum ^ word) * 0x100000001b3ull;
	}
	return sum;
}

static char *cache_path(struct vk_device *device, const char *dir)
{
	char hex[2][2 * VK_UUID_SIZE + 1], *path;

	for (unsigned int i = 0; i < VK_UUID_SIZE; i++) {
		sprintf(hex[0] + 2 * i, "%02x", device->device_uuid[i]);
		sprintf(hex[1] + 2 * i, "%02x", device->driver_uuid[i]);
	}
	if (asprintf(&path, "%s/vulkan-%s-%s.cache", dir, hex[0], hex[1]) < 0)
		return NULL;
	return path;
}

static bool read_all(int fd, void *buffer, size_t n_bytes)
{
	ssize_t n;

	for (size_t at = 0; at < n_bytes; at += n) {
		n = read(fd, (char *)buffer + at, n_bytes - at);
		if (n <= 0)
			return false;
	}
	return true;
}

static bool write_all(int fd, const void *buffer, size_t n_bytes)
{
	ssize_t n;

	for (size_t at = 0; at < n_bytes; at += n) {
		n = write(fd, (const char *)buffer + at, n_bytes - at);
		if (n <= 0)
			return false;
	}
	return true;
}

/* Return: the driver's bytes, NULL if there are none that are whole. */
static void *cache_read(const char *path, size_t *ret_bytes)
{
	_cleanup_(close_fdp) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	_cleanup_(freep) void *data = NULL;
	struct cache_header header;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_size <= (off_t)sizeof(header) || st.st_size > CACHE_MAX_BYTES)
		return NULL;
	if (!read_all(fd, &header, sizeof(header)) ||
	    memcmp(header.magic, cache_magic, sizeof(cache_magic)) != 0 ||
	    header.bytes != (uint64_t)st.st_size - sizeof(header))
		return NULL;
	data = malloc(header.bytes);
	if (!data || !read_all(fd, data, header.bytes) ||
	    checksum(data, header.bytes) != header.checksum)
		return NULL;
	*ret_bytes = header.bytes;
	return steal_ptr(data);
}

static bool cache_write(const char *path, const void *data, size_t n_bytes)
{
	struct cache_header header = {.bytes = n_bytes, .checksum = checksum(data, n_bytes)};
	_cleanup_(close_fdp) int fd = -1;
	_cleanup_(freep) char *temporary = NULL;

	memcpy(header.magic, cache_magic, sizeof(cache_magic));
	if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
		temporary = NULL;
		return false;
	}
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return false;
	if (!write_all(fd, &header, sizeof(header)) || !write_all(fd, data, n_bytes) ||
	    fsync(fd) < 0 || rename(temporary, path) < 0) {
		unlink(temporary);
		return false;
	}
	return true;
}

static void cache_save(struct vk_device *device)
{
	struct vk_pipelines *pipelines = &device->pipelines;
	_cleanup_(freep) void *data = NULL;
	size_t n_bytes = 0;

	if (device->vk.vkGetPipelineCacheData(device->handle, pipelines->cache, &n_bytes, NULL) ||
	    n_bytes == 0 || n_bytes > CACHE_MAX_BYTES - sizeof(struct cache_header))
		return;
	data = malloc(n_bytes);
	if (!data ||
	    device->vk.vkGetPipelineCacheData(device->handle, pipelines->cache, &n_bytes, data))
		return;
	if (!cache_write(pipelines->path, data, n_bytes))
		log_debug(LOG_DETAIL, "cannot write %s", pipelines->path);
}

/* Pipelines */

int vk_pipelines_set_path(struct vk_device *device, const char *cache_dir)
{
	if (!cache_dir)
		return 0;
	device->pipelines.path = cache_path(device, cache_dir);
	return device->pipelines.path ? 0 : error_origin(-ENOMEM);
}

int vk_pipelines_init(struct vk_device *device)
{
	struct vk_pipelines *pipelines = &device->pipelines;
	const VkPushConstantRange push = {
		.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
		.size = sizeof(VkDeviceAddress),
	};
	const VkPipelineLayoutCreateInfo layout = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
		.pushConstantRangeCount = 1,
		.pPushConstantRanges = &push,
	};
	VkPipelineCacheCreateInfo cache = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
	};
	_cleanup_(freep) void *data = NULL;
	size_t n_bytes = 0;
	VkResult result;
	int r;

	r = vk_result(device->vk.vkCreatePipelineLayout(device->handle, &layout, NULL,
							&pipelines->layout),
		      "vkCreatePipelineLayout");
	if (r)
		return error_fold(r);
	if (pipelines->path) {
		data = cache_read(pipelines->path, &n_bytes);
		pipelines->dirty = !data;
	}
	cache.initialDataSize = data ? n_bytes : 0;
	cache.pInitialData = data;
	result = device->vk.vkCreatePipelineCache(device->handle, &cache, NULL, &pipelines->cache);
	if (result != VK_SUCCESS && data) {
		cache.initialDataSize = 0;
		result = device->vk.vkCreatePipelineCache(device->handle, &cache, NULL,
							  &pipelines->cache);
	}
	return vk_result(result, "vkCreatePipelineCache");
}

static void destroy(struct vk_device *device, const VkPipeline *pipelines, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (pipelines[i])
			device->vk.vkDestroyPipeline(device->handle, pipelines[i], NULL);
}

void vk_pipelines_deinit(struct vk_device *device)
{
	struct vk_pipelines *pipelines = &device->pipelines;

	if (pipelines->path && pipelines->cache && pipelines->dirty &&
	    !vk_queue_is_dead(&device->submit))
		cache_save(device);
	destroy(device, pipelines->pipelines[0], VK_PIPE_COUNT * VK_N_NUMBERS);
	destroy(device, pipelines->curved[0][0], VK_N_CURVES * VK_N_CURVED * VK_N_NUMBERS);
	if (pipelines->cache)
		device->vk.vkDestroyPipelineCache(device->handle, pipelines->cache, NULL);
	if (pipelines->layout)
		device->vk.vkDestroyPipelineLayout(device->handle, pipelines->layout, NULL);
	*pipelines = (struct vk_pipelines){.path = pipelines->path};
}

/* Capabilities of SPIR-V. */
enum {
	FLOAT64 = 10,
	STORAGE_BUFFER_16_BIT_ACCESS = 4433,
	STORAGE_BUFFER_8_BIT_ACCESS = 4448,
	COOPERATIVE_MATRIX = 6022,
};

/* Modules begin with a header of five words and the instructions that say what they need. */
static bool code_needs(const uint32_t *code, size_t bytes, uint32_t capability)
{
	enum { HEADER_WORDS = 5, OP_CAPABILITY = 17 };
	const size_t n_words = bytes / sizeof(code[0]);

	for (size_t i = HEADER_WORDS; i + 1 < n_words && (code[i] & 0xffff) == OP_CAPABILITY;
	     i += code[i] >> 16)
		if (code[i + 1] == capability)
			return true;
	return false;
}

bool vk_pipe_is_of_matrices(const struct vk_pipe_info *info)
{
	return info->shader->code[VK_HALVES].words &&
	       code_needs(info->shader->code[VK_HALVES].words, info->shader->code[VK_HALVES].bytes,
			  COOPERATIVE_MATRIX);
}

bool vk_pipeline_can_compile(const struct vk_device *device, const struct vk_pipe_info *info,
			     enum vk_numbers numbers)
{
	const uint32_t *code = info->shader->code[numbers].words;
	const size_t bytes = info->shader->code[numbers].bytes;

	return code &&
	       (device->has_half || !code_needs(code, bytes, STORAGE_BUFFER_16_BIT_ACCESS)) &&
	       (device->has_bytes || !code_needs(code, bytes, STORAGE_BUFFER_8_BIT_ACCESS)) &&
	       (device->product.m > 0 || !code_needs(code, bytes, COOPERATIVE_MATRIX)) &&
	       (device->has_doubles || !code_needs(code, bytes, FLOAT64));
}

int vk_pipeline_compile(struct vk_device *device, const struct vk_pipe_info *info,
			enum vk_numbers numbers, uint32_t curve, VkPipeline *ret)
{
	const VkShaderModuleCreateInfo module_info = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
		.codeSize = info->shader->code[numbers].bytes,
		.pCode = info->shader->code[numbers].words,
	};
	uint32_t constants[VK_SPEC_MAX + 1];
	VkSpecializationMapEntry entries[VK_SPEC_MAX + 1];
	const VkSpecializationInfo spec = {
		.mapEntryCount = info->n_spec + (curve != 0),
		.pMapEntries = entries,
		.dataSize = sizeof(constants),
		.pData = constants,
	};
	VkComputePipelineCreateInfo pipeline = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.layout = device->pipelines.layout,
		.stage =
			{
				.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
				.stage = VK_SHADER_STAGE_COMPUTE_BIT,
				.pName = "main",
				.pSpecializationInfo = &spec,
			},
	};
	const VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT subgroups = {
		.sType =
			VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT,
		.requiredSubgroupSize = device->product.subgroup_size,
	};
	VkResult result;
	int r;

	memcpy(constants, info->spec, sizeof(info->spec));
	if (vk_pipe_is_of_matrices(info)) {
		pipeline.stage.pNext = &subgroups;
		constants[0] *= device->product.subgroup_size;
		constants[3] = device->product.m;
		constants[4] = device->product.n;
		constants[5] = device->product.k;
	}
	for (uint32_t i = 0; i <= info->n_spec; i++)
		entries[i] = (VkSpecializationMapEntry){i, i * sizeof(uint32_t), sizeof(uint32_t)};
	entries[info->n_spec].constantID = ACTIVATION_ID;
	constants[info->n_spec] = curve;
	r = vk_result(device->vk.vkCreateShaderModule(device->handle, &module_info, NULL,
						      &pipeline.stage.module),
		      "vkCreateShaderModule");
	if (r)
		return error_fold(r);
	result = device->vk.vkCreateComputePipelines(device->handle, device->pipelines.cache, 1,
						     &pipeline, NULL, ret);
	device->vk.vkDestroyShaderModule(device->handle, pipeline.stage.module, NULL);
	return vk_result(result, info->name);
}

VkPipeline *vk_pipeline_place(struct vk_device *device, enum vk_pipe pipe, enum vk_numbers numbers,
			      uint32_t curve)
{
	struct vk_pipelines *pipelines = &device->pipelines;

	if (curve == 0)
		return &pipelines->pipelines[pipe][numbers];
	assert(curve >= VK_FIRST_CURVE && curve < MAP_FLOATS && pipe < VK_N_CURVED);
	return &pipelines->curved[curve - VK_FIRST_CURVE][pipe][numbers];
}

void vk_pipeline_put(struct vk_device *device, enum vk_pipe pipe, enum vk_numbers numbers,
		     uint32_t curve, VkPipeline pipeline)
{
	*vk_pipeline_place(device, pipe, numbers, curve) = pipeline;
	device->pipelines.dirty = true;
}

int vk_pipeline_get(struct vk_device *device, enum vk_pipe pipe, enum vk_numbers numbers,
		    uint32_t curve, VkPipeline *ret)
{
	const struct vk_pipe_info *info = vk_pipe_info(pipe, device->variant);
	VkPipeline *place = vk_pipeline_place(device, pipe, numbers, curve);
	VkPipeline made;
	int r;

	if (!info || !info->shader->code[numbers].words)
		return error_origin(-EINVAL);
	if (!*place) {
		r = vk_pipeline_compile(device, info, numbers, curve, &made);
		if (r)
			return error_fold(r);
		vk_pipeline_put(device, pipe, numbers, curve, made);
	}
	*ret = *place;
	return 0;
}
