#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Pipelines: a shader with its specialisation constants, compiled
 *
 * One table says which shader, with which constants, does a job on which class of device. Compiled
 * when first asked for and kept; the driver's compiled code is kept on disk between runs.
 */
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

struct vk_device;

enum vk_pipe {
	VK_PIPE_MATMUL, /* the four: + 1 if A is transposed, + 2 if B is */
	VK_PIPE_MATMUL_T_A,
	VK_PIPE_MATMUL_T_B,
	VK_PIPE_MATMUL_T_AB,
	VK_PIPE_CONV,
	VK_PIPE_CONV_NARROW, /* few output channels per group, as in depthwise convolution */
	VK_PIPE_ADD,
	VK_PIPE_MUL,
	VK_PIPE_RELU,
	VK_PIPE_TRANSPOSE,
	VK_PIPE_SOFTMAX,
	VK_PIPE_SOFTMAX_ROWS, /* one workgroup per row */
	VK_PIPE_REDUCE,
	VK_PIPE_REDUCE_ROWS, /* one workgroup per sum */
	VK_PIPE_MAX_POOL,
	VK_PIPE_TOP_K,       /* k up to VK_TOP_K_SMALL: one pass */
	VK_PIPE_TOP_K_LARGE, /* k passes */
	VK_PIPE_COPY,
	VK_PIPE_NAIVE_MATMUL, /* the benchmark's baseline */
	VK_PIPE_COUNT,
};

enum {
	VK_TOP_K_SMALL = 8,
	VK_TOP_K_MAX = 256,
	VK_MAX_GROUPS = 65535, /* per dimension: what every implementation allows */
	VK_SPEC_MAX = 6,
};

/* A job's shader: constant i has id i; constant 0 is the workgroup's size. */
struct vk_pipe_info {
	const char *name;
	const uint32_t *code;
	size_t code_bytes;
	uint32_t n_spec;
	uint32_t spec[VK_SPEC_MAX];
	uint32_t tile_rows, tile_cols; /* of the output, per workgroup; elements in tile_cols */
};

struct vk_pipelines {
	VkPipelineLayout layout; /* push constant: the address of a struct vk_params */
	VkPipelineCache cache;
	VkPipeline pipelines[VK_PIPE_COUNT];
	char *path; /* of the cache on disk, NULL: none; lives as long as the executor */
	bool dirty;
};

/* @variant: enum vk_variant. NULL if the variant lacks that job. */
const struct vk_pipe_info *vk_pipe_info(enum vk_pipe pipe, int variant);

/* Where the cache on disk is; NULL: there is none. Return: 0 or negative errno. */
int vk_pipelines_set_path(struct vk_device *device, const char *cache_dir);

/* Reads the cache on disk; a missing, foreign or damaged one is as good as none. */
int vk_pipelines_init(struct vk_device *device);
/* Writes the cache on disk, if it changed and the device is not lost. */
void vk_pipelines_deinit(struct vk_device *device);

/* Compiles it unless that was done. Return: 0 or negative errno. */
int vk_pipeline_get(struct vk_device *device, enum vk_pipe pipe, VkPipeline *ret);
/* Compiles without keeping. Return: 0 or negative errno. */
int vk_pipeline_compile(struct vk_device *device, const struct vk_pipe_info *info, VkPipeline *ret);
