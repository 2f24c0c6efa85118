#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Cooperative matrices: products that the invocations of a subgroup compute together
 *
 * This module finds the matrix sizes that a device has instructions for, as its driver reports
 * them, and whether float16 products can use them: shaders/matmul-matrices.comp needs
 * VK_KHR_cooperative_matrix.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <volk.h>

/*
 * List the sizes m x n x k in which @physical multiplies float16 matrices and sums up in float32,
 * as "16x16x16,16x8x16"; "" if there are none. Sizes that do not fit into @ret are left out.
 */
void vk_matrices_describe(VkPhysicalDevice physical, char *ret, size_t ret_bytes);

/* The matrix size that products use. */
struct vk_matrices {
	uint32_t m, n, k;       /* 0: the device has none */
	uint32_t subgroup_size; /* subgroup size that the pipeline requires from the driver */
};

/* Choose the largest matrices that the shader can use; none if a requirement is missing. */
void vk_matrices_choose(VkPhysicalDevice physical, struct vk_matrices *ret);

/* Extensions that vkCreateDevice() must enable if vk_matrices_choose() finds matrices. */
enum { VK_MATRICES_EXTENSIONS = 2 };
extern const char *const vk_matrices_extensions[VK_MATRICES_EXTENSIONS];

/* VkPhysicalDeviceCooperativeMatrixFeaturesKHR */
struct vk_matrices_khr {
	VkStructureType type;
	void *next;
	VkBool32 matrices, robust;
};
/* Features that vkCreateDevice() must enable besides the extensions. */
struct vk_matrices_features {
	VkPhysicalDeviceSubgroupSizeControlFeaturesEXT sizes;
	struct vk_matrices_khr matrices;
};

/* Fill in @features, a chain that ends with @next. Return: the head of the chain. */
void *vk_matrices_features(struct vk_matrices_features *features, void *next);
