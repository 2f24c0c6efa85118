/* SPDX-License-Identifier: MIT */
/*
 * Cooperative matrices: see matrices.h.
 *
 * VK_KHR_cooperative_matrix replaces VK_NV_cooperative_matrix and is newer than the headers of
 * Debian 12, so its structures are declared here as the specification has them. Drivers with both
 * extensions list the same matrices in both.
 */
#include "vulkan/matrices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "vulkan/device.h"
#include "vulkan/physical.h"

enum {
	FEATURES_KHR = 1000506000,   /* VK_STRUCTURE_TYPE_..._COOPERATIVE_MATRIX_FEATURES_KHR */
	PROPERTIES_KHR = 1000506001, /* VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR */
	FLOAT16 = VK_COMPONENT_TYPE_FLOAT16_NV,
	FLOAT32 = VK_COMPONENT_TYPE_FLOAT32_NV,
	SUBGROUP = VK_SCOPE_SUBGROUP_NV,
	MAX_PROPERTIES = 256,
	/* Constants of matmul-matrices.comp. */
	SHADER_PART = 32, /* rows, columns and steps of k per subgroup */
	SHADER_SUBGROUPS = 4,
	/* upper bound of its shared memory with the largest matrices */
	SHADER_SHARED_BYTES = 32 << 10,
};

static const char extension_khr[] = "VK_KHR_cooperative_matrix";
const char *const vk_matrices_extensions[VK_MATRICES_EXTENSIONS] = {
	extension_khr, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME};

/* VkCooperativeMatrixPropertiesKHR. Types and scopes have the numbers of the older extension. */
struct properties_khr {
	VkStructureType type;
	void *next;
	uint32_t m, n, k;
	int32_t a, b, c, result;
	VkBool32 saturates;
	int32_t scope;
};
typedef VkResult(VKAPI_PTR *get_properties_khr)(VkPhysicalDevice physical, uint32_t *n,
						struct properties_khr *ret);

/* Return: the number of entries of @all that were filled in. */
static uint32_t get_khr(VkPhysicalDevice physical, struct properties_khr *all, uint32_t max)
{
	const get_properties_khr get = (get_properties_khr)vkGetInstanceProcAddr(
		volkGetLoadedInstance(), "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
	uint32_t n = max;

	for (uint32_t i = 0; i < max; i++)
		all[i] = (struct properties_khr){.type = (VkStructureType)PROPERTIES_KHR};
	return get && get(physical, &n, all) >= 0 ? n : 0;
}

static uint32_t get_nv(VkPhysicalDevice physical, struct properties_khr *all, uint32_t max)
{
	_cleanup_(freep) VkCooperativeMatrixPropertiesNV *properties =
		calloc(max, sizeof(*properties));
	uint32_t n = max;

	for (uint32_t i = 0; properties && i < max; i++)
		properties[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_NV;
	if (!properties || !vkGetPhysicalDeviceCooperativeMatrixPropertiesNV ||
	    vkGetPhysicalDeviceCooperativeMatrixPropertiesNV(physical, &n, properties) < 0)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		all[i] = (struct properties_khr){.m = properties[i].MSize,
						 .n = properties[i].NSize,
						 .k = properties[i].KSize,
						 .a = (int32_t)properties[i].AType,
						 .b = (int32_t)properties[i].BType,
						 .c = (int32_t)properties[i].CType,
						 .result = (int32_t)properties[i].DType,
						 .scope = (int32_t)properties[i].scope};
	return n;
}

/* Return true for matrices of float16, summed up in float32, by a subgroup. */
static bool is_ours(const struct properties_khr *at)
{
	return at->a == FLOAT16 && at->b == FLOAT16 && at->c == FLOAT32 && at->result == FLOAT32 &&
	       at->scope == SUBGROUP;
}

void vk_matrices_describe(VkPhysicalDevice physical, char *ret, size_t ret_bytes)
{
	_cleanup_(freep) struct properties_khr *all = calloc(MAX_PROPERTIES, sizeof(*all));
	uint32_t n = 0;

	ret[0] = '\0';
	if (!all)
		return;
	if (vk_has_extension(physical, extension_khr))
		n = get_khr(physical, all, MAX_PROPERTIES);
	else if (vk_has_extension(physical, VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME))
		n = get_nv(physical, all, MAX_PROPERTIES);
	for (uint32_t i = 0; i < n; i++) {
		const struct properties_khr *at = &all[i];
		const size_t used = strlen(ret);
		char size[3 * sizeof("4294967295")];

		snprintf(size, sizeof(size), "%ux%ux%u", at->m, at->n, at->k);
		if (is_ours(at) && !strstr(ret, size) && used + 1 + strlen(size) < ret_bytes)
			snprintf(ret + used, ret_bytes - used, "%s%s", used ? "," : "", size);
	}
}

static bool has_extensions(VkPhysicalDevice physical)
{
	for (unsigned int i = 0; i < VK_MATRICES_EXTENSIONS; i++)
		if (!vk_has_extension(physical, vk_matrices_extensions[i]))
			return false;
	return true;
}

void *vk_matrices_features(struct vk_matrices_features *features, void *next)
{
	*features = (struct vk_matrices_features){
		.sizes =
			{
				.sType =
					VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT,
				.pNext = &features->matrices,
				.subgroupSizeControl = VK_TRUE,
			},
		.matrices = {.type = (VkStructureType)FEATURES_KHR,
			     .next = next,
			     .matrices = VK_TRUE},
	};
	return features;
}

/* Check all features that vkCreateDevice() must enable for matrices. */
static bool has_features(VkPhysicalDevice physical)
{
	VkPhysicalDeviceVulkan12Features vulkan12 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
	};
	struct vk_matrices_features matrices;
	VkPhysicalDeviceFeatures2 features = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
		.pNext = vk_matrices_features(&matrices, &vulkan12),
	};

	/*
	 * Clear the requests before the query: a driver may claim the extension and leave the
	 * structure untouched.
	 */
	matrices.sizes.subgroupSizeControl = VK_FALSE;
	matrices.matrices.matrices = VK_FALSE;
	vkGetPhysicalDeviceFeatures2(physical, &features);
	return matrices.sizes.subgroupSizeControl && matrices.matrices.matrices &&
	       vulkan12.shaderFloat16 && vulkan12.vulkanMemoryModel;
}

/*
 * Return the size of the smallest subgroups that a pipeline may have: AMD's instructions are made
 * for 32 invocations, Intel's for the smallest size, and other vendors have only one.
 * Return: 0 if a workgroup of the shader cannot hold its subgroups or their shared memory.
 */
static uint32_t subgroup_size(VkPhysicalDevice physical)
{
	VkPhysicalDeviceSubgroupSizeControlPropertiesEXT sizes = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES_EXT,
	};
	VkPhysicalDeviceProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
		.pNext = &sizes,
	};
	const VkPhysicalDeviceLimits *limits = &properties.properties.limits;

	vkGetPhysicalDeviceProperties2(physical, &properties);
	if (!(sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) ||
	    sizes.maxComputeWorkgroupSubgroups < SHADER_SUBGROUPS ||
	    limits->maxComputeSharedMemorySize < SHADER_SHARED_BYTES ||
	    sizes.minSubgroupSize > limits->maxComputeWorkGroupInvocations / SHADER_SUBGROUPS ||
	    sizes.minSubgroupSize > limits->maxComputeWorkGroupSize[0] / SHADER_SUBGROUPS)
		return 0;
	return sizes.minSubgroupSize;
}

void vk_matrices_choose(VkPhysicalDevice physical, struct vk_matrices *ret)
{
	_cleanup_(freep) struct properties_khr *all = calloc(MAX_PROPERTIES, sizeof(*all));
	uint32_t n = 0, size;

	*ret = (struct vk_matrices){0};
	if (!all || !has_extensions(physical) || !has_features(physical))
		return;
	size = subgroup_size(physical);
	if (size > 0)
		n = get_khr(physical, all, MAX_PROPERTIES);
	for (uint32_t i = 0; i < n; i++) {
		const struct properties_khr *at = &all[i];

		/* The shader stores four columns at a time. */
		if (is_ours(at) && at->m > 0 && SHADER_PART % at->m == 0 && at->n >= 4 &&
		    SHADER_PART % at->n == 0 && at->k >= 4 && SHADER_PART % at->k == 0 &&
		    at->m * at->n * at->k > ret->m * ret->n * ret->k)
			*ret = (struct vk_matrices){at->m, at->n, at->k, size};
	}
}
