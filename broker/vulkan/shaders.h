#pragma once
/* SPDX-License-Identifier: MIT */
/* The compiled shaders, as glslc prints them: shaders/NAME.comp is shader_NAME. */
#include <stdint.h>

#define SHADER_CODE(variable) static const uint32_t variable[] =

/* clang-format off */
SHADER_CODE(shader_conv_register)
#include "broker/vulkan/conv-register.spv.h"
;
SHADER_CODE(shader_conv_tiled)
#include "broker/vulkan/conv-tiled.spv.h"
;
SHADER_CODE(shader_copy)
#include "broker/vulkan/copy.spv.h"
;
SHADER_CODE(shader_elementwise)
#include "broker/vulkan/elementwise.spv.h"
;
SHADER_CODE(shader_matmul_register)
#include "broker/vulkan/matmul-register.spv.h"
;
SHADER_CODE(shader_matmul_tiled)
#include "broker/vulkan/matmul-tiled.spv.h"
;
SHADER_CODE(shader_max_pool)
#include "broker/vulkan/max-pool.spv.h"
;
SHADER_CODE(shader_naive_matmul)
#include "broker/vulkan/naive-matmul.spv.h"
;
SHADER_CODE(shader_reduce)
#include "broker/vulkan/reduce.spv.h"
;
SHADER_CODE(shader_reduce_rows)
#include "broker/vulkan/reduce-rows.spv.h"
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
SHADER_CODE(shader_transpose)
#include "broker/vulkan/transpose.spv.h"
;
/* clang-format on */
