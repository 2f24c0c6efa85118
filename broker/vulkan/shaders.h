#pragma once
/* SPDX-License-Identifier: MIT */
/* The compiled shaders, as glslc prints them: shaders/NAME.comp is shader_NAME, for
 * float16 shader_NAME_half, for float64 shader_NAME_double. */
#include <stdint.h>

#define SHADER_CODE(variable) static const uint32_t variable[] =

/* clang-format off */
SHADER_CODE(shader_arg)
#include "broker/vulkan/arg.spv.h"
;
SHADER_CODE(shader_attention)
#include "broker/vulkan/attention.spv.h"
;
SHADER_CODE(shader_batch_norm)
#include "broker/vulkan/batch-norm.spv.h"
;
SHADER_CODE(shader_conv_direct)
#include "broker/vulkan/conv-direct.spv.h"
;
SHADER_CODE(shader_conv_register)
#include "broker/vulkan/conv-register.spv.h"
;
SHADER_CODE(shader_conv_tiled)
#include "broker/vulkan/conv-tiled.spv.h"
;
SHADER_CODE(shader_conv_transpose)
#include "broker/vulkan/conv-transpose.spv.h"
;
SHADER_CODE(shader_conv_volume)
#include "broker/vulkan/conv-volume.spv.h"
;
SHADER_CODE(shader_copy)
#include "broker/vulkan/copy.spv.h"
;
SHADER_CODE(shader_elementwise)
#include "broker/vulkan/elementwise.spv.h"
;
SHADER_CODE(shader_gather)
#include "broker/vulkan/gather.spv.h"
;
SHADER_CODE(shader_gather_narrow)
#include "broker/vulkan/gather-narrow.spv.h"
;
SHADER_CODE(shader_gather_elements)
#include "broker/vulkan/gather-elements.spv.h"
;
SHADER_CODE(shader_gather_elements_narrow)
#include "broker/vulkan/gather-elements-narrow.spv.h"
;
SHADER_CODE(shader_lp_norm)
#include "broker/vulkan/lp-norm.spv.h"
;
SHADER_CODE(shader_matmul_register)
#include "broker/vulkan/matmul-register.spv.h"
;
SHADER_CODE(shader_matmul_matrices)
#include "broker/vulkan/matmul-matrices.spv.h"
;
SHADER_CODE(shader_matmul_tiled)
#include "broker/vulkan/matmul-tiled.spv.h"
;
SHADER_CODE(shader_move)
#include "broker/vulkan/move.spv.h"
;
SHADER_CODE(shader_move_bytes)
#include "broker/vulkan/move-bytes.spv.h"
;
SHADER_CODE(shader_move_halves)
#include "broker/vulkan/move-halves.spv.h"
;
SHADER_CODE(shader_naive_matmul)
#include "broker/vulkan/naive-matmul.spv.h"
;
SHADER_CODE(shader_norm)
#include "broker/vulkan/norm.spv.h"
;
SHADER_CODE(shader_one_hot)
#include "broker/vulkan/one-hot.spv.h"
;
SHADER_CODE(shader_one_hot_narrow)
#include "broker/vulkan/one-hot-narrow.spv.h"
;
SHADER_CODE(shader_pool)
#include "broker/vulkan/pool.spv.h"
;
SHADER_CODE(shader_present)
#include "broker/vulkan/present.spv.h"
;
SHADER_CODE(shader_reduce)
#include "broker/vulkan/reduce.spv.h"
;
SHADER_CODE(shader_reduce_rows)
#include "broker/vulkan/reduce-rows.spv.h"
;
SHADER_CODE(shader_rotary)
#include "broker/vulkan/rotary.spv.h"
;
SHADER_CODE(shader_scan)
#include "broker/vulkan/scan.spv.h"
;
SHADER_CODE(shader_scatter)
#include "broker/vulkan/scatter.spv.h"
;
SHADER_CODE(shader_softmax)
#include "broker/vulkan/softmax.spv.h"
;
SHADER_CODE(shader_softmax_rows)
#include "broker/vulkan/softmax-rows.spv.h"
;
SHADER_CODE(shader_top_k)
#include "broker/vulkan/top-k.spv.h"
;
SHADER_CODE(shader_trilu)
#include "broker/vulkan/trilu.spv.h"
;
SHADER_CODE(shader_trilu_narrow)
#include "broker/vulkan/trilu-narrow.spv.h"
;
SHADER_CODE(shader_conv_register_half)
#include "broker/vulkan/conv-register-half.spv.h"
;
SHADER_CODE(shader_conv_tiled_half)
#include "broker/vulkan/conv-tiled-half.spv.h"
;
SHADER_CODE(shader_conv_transpose_half)
#include "broker/vulkan/conv-transpose-half.spv.h"
;
SHADER_CODE(shader_conv_volume_half)
#include "broker/vulkan/conv-volume-half.spv.h"
;
SHADER_CODE(shader_elementwise_half)
#include "broker/vulkan/elementwise-half.spv.h"
;
SHADER_CODE(shader_matmul_register_half)
#include "broker/vulkan/matmul-register-half.spv.h"
;
SHADER_CODE(shader_matmul_tiled_half)
#include "broker/vulkan/matmul-tiled-half.spv.h"
;
SHADER_CODE(shader_pool_half)
#include "broker/vulkan/pool-half.spv.h"
;
SHADER_CODE(shader_reduce_half)
#include "broker/vulkan/reduce-half.spv.h"
;
SHADER_CODE(shader_reduce_rows_half)
#include "broker/vulkan/reduce-rows-half.spv.h"
;
SHADER_CODE(shader_softmax_half)
#include "broker/vulkan/softmax-half.spv.h"
;
SHADER_CODE(shader_softmax_rows_half)
#include "broker/vulkan/softmax-rows-half.spv.h"
;
SHADER_CODE(shader_top_k_half)
#include "broker/vulkan/top-k-half.spv.h"
;
SHADER_CODE(shader_copy_bytes)
#include "broker/vulkan/copy-bytes.spv.h"
;
SHADER_CODE(shader_conv_direct_half)
#include "broker/vulkan/conv-direct-half.spv.h"
;
SHADER_CODE(shader_pool_bytes)
#include "broker/vulkan/pool-bytes.spv.h"
;
SHADER_CODE(shader_typed)
#include "broker/vulkan/typed.spv.h"
;
SHADER_CODE(shader_typed_double)
#include "broker/vulkan/typed-double.spv.h"
;
SHADER_CODE(shader_conv_integer)
#include "broker/vulkan/conv-integer.spv.h"
;
SHADER_CODE(shader_matmul_integer_register)
#include "broker/vulkan/matmul-integer-register.spv.h"
;
SHADER_CODE(shader_matmul_integer_tiled)
#include "broker/vulkan/matmul-integer-tiled.spv.h"
;
SHADER_CODE(shader_matmul_nbits)
#include "broker/vulkan/matmul-nbits.spv.h"
;
SHADER_CODE(shader_matmul_nbits_half)
#include "broker/vulkan/matmul-nbits-half.spv.h"
;
SHADER_CODE(shader_quantize)
#include "broker/vulkan/quantize.spv.h"
;
SHADER_CODE(shader_quantize_half)
#include "broker/vulkan/quantize-half.spv.h"
;
SHADER_CODE(shader_range)
#include "broker/vulkan/range.spv.h"
;
SHADER_CODE(shader_range_end)
#include "broker/vulkan/range-end.spv.h"
;
SHADER_CODE(shader_requantize)
#include "broker/vulkan/requantize.spv.h"
;
SHADER_CODE(shader_requantize_half)
#include "broker/vulkan/requantize-half.spv.h"
;
SHADER_CODE(shader_arg_half)
#include "broker/vulkan/arg-half.spv.h"
;
SHADER_CODE(shader_arg_integer)
#include "broker/vulkan/arg-integer.spv.h"
;
SHADER_CODE(shader_attention_half)
#include "broker/vulkan/attention-half.spv.h"
;
SHADER_CODE(shader_batch_norm_half)
#include "broker/vulkan/batch-norm-half.spv.h"
;
SHADER_CODE(shader_lp_norm_half)
#include "broker/vulkan/lp-norm-half.spv.h"
;
SHADER_CODE(shader_norm_half)
#include "broker/vulkan/norm-half.spv.h"
;
SHADER_CODE(shader_present_half)
#include "broker/vulkan/present-half.spv.h"
;
SHADER_CODE(shader_reduce_integer)
#include "broker/vulkan/reduce-integer.spv.h"
;
SHADER_CODE(shader_rotary_half)
#include "broker/vulkan/rotary-half.spv.h"
;
SHADER_CODE(shader_scan_half)
#include "broker/vulkan/scan-half.spv.h"
;
SHADER_CODE(shader_scan_integer)
#include "broker/vulkan/scan-integer.spv.h"
;
SHADER_CODE(shader_top_k_integer)
#include "broker/vulkan/top-k-integer.spv.h"
;
SHADER_CODE(shader_attention_queries)
#include "broker/vulkan/attention-queries.spv.h"
;
SHADER_CODE(shader_attention_queries_half)
#include "broker/vulkan/attention-queries-half.spv.h"
;
SHADER_CODE(shader_attention_block)
#include "broker/vulkan/attention-block.spv.h"
;
SHADER_CODE(shader_attention_block_half)
#include "broker/vulkan/attention-block-half.spv.h"
;
SHADER_CODE(shader_batch_norm_double)
#include "broker/vulkan/batch-norm-double.spv.h"
;
SHADER_CODE(shader_conv_transpose_double)
#include "broker/vulkan/conv-transpose-double.spv.h"
;
SHADER_CODE(shader_conv_volume_double)
#include "broker/vulkan/conv-volume-double.spv.h"
;
SHADER_CODE(shader_lp_norm_double)
#include "broker/vulkan/lp-norm-double.spv.h"
;
SHADER_CODE(shader_norm_double)
#include "broker/vulkan/norm-double.spv.h"
;
SHADER_CODE(shader_pool_double)
#include "broker/vulkan/pool-double.spv.h"
;
SHADER_CODE(shader_reduce_double)
#include "broker/vulkan/reduce-double.spv.h"
;
SHADER_CODE(shader_reduce_rows_double)
#include "broker/vulkan/reduce-rows-double.spv.h"
;
SHADER_CODE(shader_scatter_double)
#include "broker/vulkan/scatter-double.spv.h"
;
SHADER_CODE(shader_scan_double)
#include "broker/vulkan/scan-double.spv.h"
;
SHADER_CODE(shader_softmax_double)
#include "broker/vulkan/softmax-double.spv.h"
;
SHADER_CODE(shader_softmax_rows_double)
#include "broker/vulkan/softmax-rows-double.spv.h"
;
SHADER_CODE(shader_matmul_double)
#include "broker/vulkan/matmul-double.spv.h"
;
/* clang-format on */
