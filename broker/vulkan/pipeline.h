#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Pipelines: a shader with its specialisation constants, compiled
 *
 * Tables in the files of lowerers say which shader, with which constants, does a job on which class
 * of device. What a device has of a pipeline is found by that and compiled when first asked for;
 * the driver's compiled code is kept on disk between runs.
 */
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

#include "util/index.h"

struct vk_device;

/* The shader variants of a device. */
enum vk_variant {
	VK_VARIANT_PLAIN,  /* software: registers only, one subgroup per workgroup */
	VK_VARIANT_SHARED, /* GPUs: tiles in shared memory, subgroup reductions */
	VK_VARIANT_COUNT,
};

enum {
	VK_MAX_GROUPS = 65535, /* per dimension: what every implementation allows */
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
	const struct vk_shader *shader; /* NULL: the class of devices lacks the job */
	uint32_t n_spec;
	uint32_t spec[VK_SPEC_MAX];
	uint32_t tile_rows, tile_cols; /* of the output, per workgroup; elements in tile_cols */
};

/* A job, by enum vk_variant. Its address is its name: there is one of each. */
struct vk_pipe {
	struct vk_pipe_info of[VK_VARIANT_COUNT];
};

/*
 * A pipeline of a device. It is there from when a step first needs it until the device is freed,
 * also while the logical device is closed; there are no more than the tables of pipes allow.
 *
 * Pipelines of products and convolutions also compute an activation along: straight lines in all of
 * them, and one function of shaders/curves.glsl, by the number that the build gives it, if compiled
 * for it.
 */
struct vk_pipeline {
	struct index_node by_key;
	struct vk_pipeline *next; /* of all of the device, in no order */
	const struct vk_pipe_info *info;
	enum vk_numbers numbers;
	uint32_t curve;    /* 0: none */
	uint32_t number;   /* of those of the device, from 0 on */
	bool has_run;      /* so the driver has nothing left to compile */
	bool has_failed;   /* the driver refused it when last asked */
	VkPipeline handle; /* VK_NULL_HANDLE until it is compiled */
};

struct vk_pipelines {
	VkPipelineLayout layout; /* push constant: the address of a struct vk_params */
	VkPipelineCache cache;
	struct index_node *by_key;
	struct vk_pipeline *first;
	uint32_t n;
	char *path; /* of the cache on disk, NULL: none; lives as long as the executor */
	bool dirty;
};

/*
 * By cooperative matrices? Constants behind the third are their sizes then, which are the device's,
 * and constant 0 counts subgroups.
 */
bool vk_pipe_is_of_matrices(const struct vk_pipe_info *info);

/* Where the cache on disk is; NULL: there is none. Return: 0 or negative errno. */
int vk_pipelines_set_path(struct vk_device *device, const char *cache_dir);

/* Reads the cache on disk; a missing, foreign or damaged one is as good as none. */
int vk_pipelines_init(struct vk_device *device);
/* Writes the cache on disk, if it changed and the device is not lost. */
void vk_pipelines_deinit(struct vk_device *device);
/* Called when no plan has steps any more. */
void vk_pipelines_free(struct vk_pipelines *pipelines);

/* Setup thread: that of @info, which has code for @numbers. Return: NULL if out of memory. */
struct vk_pipeline *vk_pipeline_find(struct vk_pipelines *pipelines,
				     const struct vk_pipe_info *info, enum vk_numbers numbers,
				     uint32_t curve);
/* Compiles it, unless that was done. Return: 0 or negative errno. */
int vk_pipeline_get(struct vk_device *device, struct vk_pipeline *pipeline, VkPipeline *ret);
/* The same of a job of floats. */
int vk_pipeline_of(struct vk_device *device, const struct vk_pipe_info *info, VkPipeline *ret);
/* Keeps what vk_pipeline_compile() made; there is none yet. */
void vk_pipeline_put(struct vk_device *device, struct vk_pipeline *pipeline, VkPipeline made);
/*
 * Is there code, and has the device the elements of 8 and 16 bits, the doubles and the matrices it
 * is for?
 */
bool vk_pipeline_can_compile(const struct vk_device *device, const struct vk_pipe_info *info,
			     enum vk_numbers numbers);
/* Compiles without keeping. Any thread, while the device is open. Return: 0 or negative errno. */
int vk_pipeline_compile(struct vk_device *device, const struct vk_pipe_info *info,
			enum vk_numbers numbers, uint32_t curve, VkPipeline *ret);
