#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Cooperative matrices: products that the invocations of a subgroup compute together
 *
 * What a device has instructions for, as its driver tells, and whether products of float16 can be
 * made of them: shaders/matmul-matrices.comp is for devices that have VK_KHR_cooperative_matrix.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <volk.h>

/*
 * Sizes m x n x k of which @physical multiplies float16 matrices and sums up in float32, as
 * "16x16x16,16x8x16"; "" for none. What does not fit is left out.
 */
void vk_matrices_describe(VkPhysicalDevice physical, char *ret, size_t ret_bytes);

/* The matrices that products are made of. */
struct vk_matrices {
	uint32_t m, n, k;       /* 0: the device cannot */
	uint32_t subgroup_size; /* the pipeline's, which is told to the driver */
};

/* The largest that the shader can take; none if anything that it needs is missing. */
void vk_matrices_choose(VkPhysicalDevice physical, struct vk_matrices *ret);

/* What vkCreateDevice() is to enable where vk_matrices_choose() finds some. */
enum { VK_MATRICES_EXTENSIONS = 2 };
extern const char *const vk_matrices_extensions[VK_MATRICES_EXTENSIONS];

/* VkPhysicalDeviceCooperativeMatrixFeaturesKHR */
struct vk_matrices_khr {
	VkStructureType type;
	void *next;
	VkBool32 matrices, robust;
};
/* What vkCreateDevice() has to be told besides the extensions. */
struct vk_matrices_features {
	VkPhysicalDeviceSubgroupSizeControlFeaturesEXT sizes;
	struct vk_matrices_khr matrices;
};

/* Fills @features, which @next follows. Return: the first of the chain. */
void *vk_matrices_features(struct vk_matrices_features *features, void *next);
