/* SPDX-License-Identifier: MIT */
/*
 * Cooperative matrices: see matrices.h.
 *
 * VK_KHR_cooperative_matrix took over what VK_NV_cooperative_matrix had begun, and is newer than
 * the headers of Debian 12: what it is asked with is declared here, as the specification has it.
 * Drivers that have both list the same in both.
 */
#include "vulkan/matrices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "vulkan/device.h"

enum {
	PROPERTIES_KHR = 1000506001, /* VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR */
	FLOAT16 = VK_COMPONENT_TYPE_FLOAT16_NV,
	FLOAT32 = VK_COMPONENT_TYPE_FLOAT32_NV,
	SUBGROUP = VK_SCOPE_SUBGROUP_NV,
	MAX_PROPERTIES = 256,
};

/* VkCooperativeMatrixPropertiesKHR; types and scopes have the numbers of the older extension. */
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

/* Return: how many of @all there are now. */
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

void vk_matrices_describe(VkPhysicalDevice physical, char *ret, size_t ret_bytes)
{
	_cleanup_(freep) struct properties_khr *all = calloc(MAX_PROPERTIES, sizeof(*all));
	uint32_t n = 0;

	ret[0] = '\0';
	if (!all)
		return;
	if (vk_has_extension(physical, "VK_KHR_cooperative_matrix"))
		n = get_khr(physical, all, MAX_PROPERTIES);
	else if (vk_has_extension(physical, VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME))
		n = get_nv(physical, all, MAX_PROPERTIES);
	for (uint32_t i = 0; i < n; i++) {
		const struct properties_khr *at = &all[i];
		const size_t used = strlen(ret);
		char size[3 * sizeof("4294967295")];

		snprintf(size, sizeof(size), "%ux%ux%u", at->m, at->n, at->k);
		if (at->a == FLOAT16 && at->b == FLOAT16 && at->c == FLOAT32 &&
		    at->result == FLOAT32 && at->scope == SUBGROUP && !strstr(ret, size) &&
		    used + 1 + strlen(size) < ret_bytes)
			snprintf(ret + used, ret_bytes - used, "%s%s", used ? "," : "", size);
	}
}
