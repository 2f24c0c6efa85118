#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Pipelines: shaders with their specialisation constants, compiled
 *
 * Tables in the lowerers' files tell which shader, with which constants, does a job on which class
 * of devices. A device's pipeline is found by this table entry and compiled when it is first
 * needed. The driver's compiled code is kept on disk between runs.
 */
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

#include "util/index.h"

struct vk_device;

/* The shader variants, one per class of devices. */
enum vk_variant {
	VK_VARIANT_PLAIN,  /* software: registers only, one subgroup per workgroup */
	VK_VARIANT_SHARED, /* GPUs: tiles in shared memory, subgroup reductions */
	VK_VARIANT_COUNT,
};

enum {
	VK_MAX_GROUPS = 65535, /* workgroups per dimension that every implementation allows */
	VK_SPEC_MAX = 6,
};

/*
 * Element types of floating-point tensors in memory for which a shader is compiled. Shaders compute
 * in float32, except for VK_DOUBLES.
 */
enum vk_numbers {
	VK_FLOATS, /* float32; also all shaders without floats */
	VK_HALVES,
	VK_DOUBLES, /* float64, also for computing */
	VK_N_NUMBERS,
};

/* A shader, compiled for each element type; "vulkan/shaders.h" declares all shaders. */
struct vk_shader {
	struct {
		const uint32_t *words; /* NULL: not compiled for this element type */
		size_t bytes;
	} code[VK_N_NUMBERS];
};

/* The shader of a job. Constant i has id i; constant 0 is the workgroup's size. */
struct vk_pipe_info {
	const char *name;
	const struct vk_shader *shader; /* NULL: the class of devices lacks the job */
	uint32_t n_spec;
	uint32_t spec[VK_SPEC_MAX];
	/* output tile of a workgroup; element-wise shaders: elements in tile_cols */
	uint32_t tile_rows, tile_cols;
};

/* The pipe of a job, by enum vk_variant. Its address identifies it: each pipe exists once. */
struct vk_pipe {
	struct vk_pipe_info of[VK_VARIANT_COUNT];
};

/*
 * A pipeline of a device. It exists from a step's first need of it until the device is freed, also
 * while the logical device is closed. The tables of pipes limit the number of pipelines.
 *
 * Pipelines of products and convolutions also compute an activation. All of them compute piecewise
 * linear activations. A pipeline compiled for a curve also computes this function of
 * shaders/curves.glsl, given by the number that the build assigns.
 */
struct vk_pipeline {
	struct index_node by_key;
	struct vk_pipeline *next; /* next of all pipelines of the device, in no order */
	const struct vk_pipe_info *info;
	enum vk_numbers numbers;
	uint32_t curve;    /* number of the curve; 0: none */
	uint32_t number;   /* index among the device's pipelines */
	bool has_run;      /* it has run, so the driver has nothing left to compile */
	bool has_failed;   /* the driver refused it at the last attempt */
	VkPipeline handle; /* VK_NULL_HANDLE until it is compiled */
};

struct vk_pipelines {
	VkPipelineLayout layout; /* push constant: address of a struct vk_params */
	VkPipelineCache cache;
	struct index_node *by_key;
	struct vk_pipeline *first;
	uint32_t n;
	char *path; /* path of the cache on disk; NULL: none; lives as long as the executor */
	bool dirty;
};

/*
 * Return true if the pipe uses cooperative matrices. Constants 3 to 5 are then the device's matrix
 * sizes, and constant 0 counts subgroups.
 */
bool vk_pipe_is_of_matrices(const struct vk_pipe_info *info);

/* Set the folder of the cache on disk; NULL: no cache on disk. Return: 0 or negative errno. */
int vk_pipelines_set_path(struct vk_device *device, const char *cache_dir);

/*
 * Make the pipeline layout and the cache, from the file on disk. A missing, foreign or damaged file
 * counts as none. Return: 0 or negative errno.
 */
int vk_pipelines_init(struct vk_device *device);
/*
 * Write the cache to disk if it changed and the device is not dead; destroy all compiled pipelines.
 */
void vk_pipelines_deinit(struct vk_device *device);
/* Free all pipelines, once no plan has steps any more. */
void vk_pipelines_free(struct vk_pipelines *pipelines);

/*
 * Find or make the pipeline of @info, which has code for @numbers. Setup thread. Return: NULL if
 * out of memory.
 */
struct vk_pipeline *vk_pipeline_find(struct vk_pipelines *pipelines,
				     const struct vk_pipe_info *info, enum vk_numbers numbers,
				     uint32_t curve);
/* Compile the pipeline unless it is compiled. Return: 0 or negative errno. */
int vk_pipeline_get(struct vk_device *device, struct vk_pipeline *pipeline, VkPipeline *ret);
/* Find and compile the pipeline of @info for VK_FLOATS. Return: 0 or negative errno. */
int vk_pipeline_of(struct vk_device *device, const struct vk_pipe_info *info, VkPipeline *ret);
/* Store the handle that vk_pipeline_compile() made; the pipeline has none yet. */
void vk_pipeline_put(struct vk_device *device, struct vk_pipeline *pipeline, VkPipeline made);
/*
 * Return true if the shader has code for @numbers, and the device has the 8-bit and 16-bit
 * elements, the doubles and the matrices that the code needs.
 */
bool vk_pipeline_can_compile(const struct vk_device *device, const struct vk_pipe_info *info,
			     enum vk_numbers numbers);
/*
 * Compile a pipeline without storing it. Any thread, while the device is open. Return: 0 or
 * negative errno.
 */
int vk_pipeline_compile(struct vk_device *device, const struct vk_pipe_info *info,
			enum vk_numbers numbers, uint32_t curve, VkPipeline *ret);
