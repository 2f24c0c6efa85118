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

#include "plan/executor.h"
#include "shaders/map.glsl"

struct vk_device;

enum vk_pipe {
	VK_PIPE_MATMUL, /* + 1 if A is transposed, + 2 if B is, + 4 for each further tile */
	VK_PIPE_CONV = VK_PIPE_MATMUL + 4 * EXEC_MAX_TILES, /* + 1 for each further tile */
	VK_PIPE_MATMUL_ROW = VK_PIPE_CONV + EXEC_MAX_TILES, /* of one row; as VK_PIPE_MATMUL */
	VK_PIPE_CONV_FEW =
		VK_PIPE_MATMUL_ROW + 4, /* less than VK_CONV_MANY output channels per group */
	VK_PIPE_CONV_NARROW,            /* less than VK_CONV_FEW, as in depthwise convolution */
	VK_PIPE_CONV_VOLUME,            /* with a depth */
	VK_PIPE_CONV_TRANSPOSE,
	VK_N_CURVED, /* those before it may have an activation */
	VK_PIPE_SOFTMAX = VK_N_CURVED,
	VK_PIPE_SOFTMAX_ROWS, /* one workgroup per row */
	VK_PIPE_REDUCE,
	VK_PIPE_REDUCE_ROWS, /* one workgroup per sum */
	VK_PIPE_REDUCE_ANY,  /* neither a sum nor a mean */
	VK_PIPE_REDUCE_ANY_ROWS,
	VK_PIPE_ARG,
	VK_PIPE_ARG_ROWS, /* one workgroup per row */
	VK_PIPE_SCAN,
	VK_PIPE_NORM,
	VK_PIPE_BATCH_NORM,
	VK_PIPE_LP_NORM,
	VK_PIPE_ROTARY,
	VK_PIPE_ATTENTION,
	VK_PIPE_ATTENTION_BLOCK,      /* several queries per workgroup */
	VK_PIPE_ATTENTION_BLOCK_WIDE, /* with more than VK_ATTENTION_HEAD elements, PLAIN */
	VK_PIPE_PRESENT,
	VK_PIPE_MAX_POOL,
	VK_PIPE_MAX_POOL_I8,
	VK_PIPE_MAX_POOL_U8,
	VK_PIPE_AVERAGE_POOL,
	VK_PIPE_LP_POOL,
	VK_PIPE_TOP_K,       /* k up to VK_TOP_K_SMALL: one pass */
	VK_PIPE_TOP_K_LARGE, /* k passes */
	VK_PIPE_MOVE,        /* the five: elements of 1, 2, 4, 8, 16 bytes */
	VK_PIPE_MOVE_2,
	VK_PIPE_MOVE_4,
	VK_PIPE_MOVE_8,
	VK_PIPE_MOVE_16,
	VK_PIPE_QUANTIZE_U8,
	VK_PIPE_QUANTIZE_I8,
	VK_PIPE_DEQUANTIZE_U8,
	VK_PIPE_DEQUANTIZE_I8,
	VK_PIPE_DEQUANTIZE_I32,
	VK_PIPE_RANGE, /* of DynamicQuantizeLinear */
	VK_PIPE_RANGE_END,
	VK_PIPE_MATMUL_INTEGER,
	VK_PIPE_CONV_INTEGER,
	VK_PIPE_CONV_INTEGER_NARROW, /* less than VK_CONV_FEW output channels per group */
	VK_PIPE_REQUANTIZE_U8,
	VK_PIPE_REQUANTIZE_I8,
	VK_PIPE_MATMUL_NBITS,
	VK_PIPE_MATMUL_NBITS_ROW, /* of few rows */
	VK_PIPE_MATMUL_DOUBLE,    /* of float64; + 1 if A is transposed, + 2 if B is */
	VK_PIPE_COPY = VK_PIPE_MATMUL_DOUBLE + 4,
	VK_PIPE_COPY_BYTES,   /* of tensors that do not end with a word of 4 bytes */
	VK_PIPE_NAIVE_MATMUL, /* the benchmark's baseline */
	/* By the logarithm of the bytes that are moved at once. */
	VK_PIPE_GATHER,
	VK_PIPE_GATHER_ELEMENTS = VK_PIPE_GATHER + 5,
	VK_PIPE_ONE_HOT = VK_PIPE_GATHER_ELEMENTS + 4,
	VK_PIPE_TRILU = VK_PIPE_ONE_HOT + 4,
	VK_PIPE_SCATTER = VK_PIPE_TRILU + 4, /* by vk_pipe_scatter() */
	/*
	 * Of integers, by vk_pipe_integer(): those of ArgMax and TopK also of float64, whose order
	 * is compared as that of integers is; CumSum of the first two types alone.
	 */
	VK_PIPE_REDUCE_INTEGER = VK_PIPE_SCATTER + 7,
	VK_PIPE_REDUCE_INTEGER_ROWS = VK_PIPE_REDUCE_INTEGER + 4,
	VK_PIPE_ARG_INTEGER = VK_PIPE_REDUCE_INTEGER_ROWS + 4,
	VK_PIPE_ARG_INTEGER_ROWS = VK_PIPE_ARG_INTEGER + 5,
	VK_PIPE_TOP_K_INTEGER = VK_PIPE_ARG_INTEGER_ROWS + 5,
	VK_PIPE_TOP_K_LARGE_INTEGER = VK_PIPE_TOP_K_INTEGER + 5,
	VK_PIPE_SCAN_INTEGER = VK_PIPE_TOP_K_LARGE_INTEGER + 5,
	VK_PIPE_MAP = VK_PIPE_SCAN_INTEGER + 2, /* as many as functions of floats: vk_pipe_map() */
	VK_PIPE_TYPED = VK_PIPE_MAP + 48,       /* of functions and types: vk_pipe_typed() */
	VK_PIPE_COUNT = VK_PIPE_TYPED + 244,
};

enum { VK_N_MAP = VK_PIPE_TYPED - VK_PIPE_MAP, VK_N_TYPED = VK_PIPE_COUNT - VK_PIPE_TYPED };

enum {
	VK_CONV_FEW = 4,
	VK_CONV_MANY = 32,
	VK_NBITS_ROWS = 8,
	VK_TOP_K_SMALL = 8,
	VK_TOP_K_MAX = 256,
	VK_ATTENTION_HEAD = 64,
	VK_ATTENTION_MAX_VALUE = 1024, /* elements of a value: shared memory */
	VK_MAX_GROUPS = 65535,         /* per dimension: what every implementation allows */
	VK_SPEC_MAX = 6,
};

/* What stands in memory where a shader computes with floats, which is what it is compiled for. */
enum vk_numbers {
	VK_FLOATS, /* and of all other shaders */
	VK_HALVES,
	VK_DOUBLES, /* these it also computes with */
	VK_N_NUMBERS,
};

/* A shader as it was compiled for each kind of numbers; "vulkan/shaders.h" declares all. */
struct vk_shader {
	struct {
		const uint32_t *words; /* NULL: is not there for these numbers */
		size_t bytes;
	} code[VK_N_NUMBERS];
};

/* A job's shader: constant i has id i; constant 0 is the workgroup's size. */
struct vk_pipe_info {
	const char *name;
	const struct vk_shader *shader;
	uint32_t n_spec;
	uint32_t spec[VK_SPEC_MAX];
	uint32_t tile_rows, tile_cols; /* of the output, per workgroup; elements in tile_cols */
};

/*
 * Pipelines of products and convolutions also compute an activation along: straight lines in all of
 * them, and one function of shaders/curves.glsl, by its number in map.glsl, if compiled for it. 0
 * is none.
 */
enum { VK_FIRST_CURVE = MAP_TANH, VK_N_CURVES = MAP_FLOATS - VK_FIRST_CURVE };

struct vk_pipelines {
	VkPipelineLayout layout; /* push constant: the address of a struct vk_params */
	VkPipelineCache cache;
	VkPipeline pipelines[VK_PIPE_COUNT][VK_N_NUMBERS];
	VkPipeline curved[VK_N_CURVES][VK_N_CURVED][VK_N_NUMBERS];
	bool has_run[VK_PIPE_COUNT][VK_N_NUMBERS]; /* so the driver has nothing left to compile */
	bool curved_has_run[VK_N_CURVES][VK_N_CURVED][VK_N_NUMBERS];
	bool has_failed[VK_PIPE_COUNT][VK_N_NUMBERS]; /* the driver refused it when last asked */
	bool curved_has_failed[VK_N_CURVES][VK_N_CURVED][VK_N_NUMBERS];
	char *path; /* of the cache on disk, NULL: none; lives as long as the executor */
	bool dirty;
};

/* @variant: enum vk_variant. NULL if the variant lacks that job. */
const struct vk_pipe_info *vk_pipe_info(enum vk_pipe pipe, int variant);

/*
 * By cooperative matrices? Constants behind the third are their sizes then, which are the device's,
 * and constant 0 counts subgroups.
 */
bool vk_pipe_is_of_matrices(const struct vk_pipe_info *info);

/* Of scatter.comp, for elements of a type (enum rbk_dtype); bools are bytes. */
enum vk_pipe vk_pipe_scatter(uint8_t dtype);

/*
 * Of those from @first on that which is for integers of a type, or of ArgMax and TopK for float64;
 * bools are bytes.
 */
enum vk_pipe vk_pipe_integer(enum vk_pipe first, uint8_t dtype);

/* pipeline-map.c: the same of VK_PIPE_MAP and above */
const struct vk_pipe_info *vk_map_info(enum vk_pipe pipe, int variant);
/* Of elementwise.comp; @operation: MAP_ADD and so on, see shaders/map.glsl. */
enum vk_pipe vk_pipe_map(uint32_t operation);
/* Of typed.comp; VK_PIPE_COUNT: there is no such function of these types (enum rbk_dtype). */
enum vk_pipe vk_pipe_typed(uint32_t operation, uint8_t type, uint8_t to);

/* Where the cache on disk is; NULL: there is none. Return: 0 or negative errno. */
int vk_pipelines_set_path(struct vk_device *device, const char *cache_dir);

/* Reads the cache on disk; a missing, foreign or damaged one is as good as none. */
int vk_pipelines_init(struct vk_device *device);
/* Writes the cache on disk, if it changed and the device is not lost. */
void vk_pipelines_deinit(struct vk_device *device);

/* Compiles it, unless that was done. Return: 0 or negative errno. */
int vk_pipeline_get(struct vk_device *device, enum vk_pipe pipe, enum vk_numbers numbers,
		    uint32_t curve, VkPipeline *ret);
/* Keeps one that vk_pipeline_compile() made; there is none yet. */
void vk_pipeline_put(struct vk_device *device, enum vk_pipe pipe, enum vk_numbers numbers,
		     uint32_t curve, VkPipeline pipeline);
/* Where it is kept: VK_NULL_HANDLE until it is compiled. */
VkPipeline *vk_pipeline_place(struct vk_device *device, enum vk_pipe pipe, enum vk_numbers numbers,
			      uint32_t curve);
/*
 * Is there code, and has the device the elements of 8 and 16 bits, the doubles and the matrices it
 * is for?
 */
bool vk_pipeline_can_compile(const struct vk_device *device, const struct vk_pipe_info *info,
			     enum vk_numbers numbers);
/* Compiles without keeping. Any thread, while the device is open. Return: 0 or negative errno. */
int vk_pipeline_compile(struct vk_device *device, const struct vk_pipe_info *info,
			enum vk_numbers numbers, uint32_t curve, VkPipeline *ret);
