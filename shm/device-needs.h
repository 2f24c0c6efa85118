#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Features that devices must have
 *
 * The broker checks a Vulkan device for each feature, and rejects a device that lacks a feature
 * before VULKAN_FEATURE_REQUIRED. The features after it enable element types. brokerctl lists the
 * required features by the same names: a rejected device lacks one of them.
 */

enum vulkan_feature {
	VULKAN_1_2,
	VULKAN_BUFFER_DEVICE_ADDRESS,
	VULKAN_TIMELINE_SEMAPHORE,
	VULKAN_INT64,
	VULKAN_SUBGROUP_ARITHMETIC,
	VULKAN_SUBGROUP_BALLOT,
	VULKAN_WORKGROUP_256,
	VULKAN_COMPUTE_QUEUE,
	VULKAN_FEATURE_REQUIRED, /* number of required features */

	VULKAN_STORAGE_16_BIT = VULKAN_FEATURE_REQUIRED, /* float16, bfloat16 */
	VULKAN_STORAGE_8_BIT,                            /* int8, uint8, bool */
	VULKAN_FLOAT64,                                  /* float64 */
	VULKAN_FEATURE_COUNT,
};

/* Return Vulkan's name of the feature, or a description. */
static inline const char *vulkan_feature_name(enum vulkan_feature feature)
{
	switch (feature) {
	case VULKAN_1_2:
		return "Vulkan 1.2";
	case VULKAN_BUFFER_DEVICE_ADDRESS:
		return "bufferDeviceAddress";
	case VULKAN_TIMELINE_SEMAPHORE:
		return "timelineSemaphore";
	case VULKAN_INT64:
		return "shaderInt64";
	case VULKAN_SUBGROUP_ARITHMETIC:
		return "subgroup arithmetic";
	case VULKAN_SUBGROUP_BALLOT:
		return "subgroup ballots";
	case VULKAN_WORKGROUP_256:
		return "workgroups of 256 invocations";
	case VULKAN_COMPUTE_QUEUE:
		return "a compute queue";
	case VULKAN_STORAGE_16_BIT:
		return "storageBuffer16BitAccess";
	case VULKAN_STORAGE_8_BIT:
		return "storageBuffer8BitAccess";
	case VULKAN_FLOAT64:
		return "shaderFloat64";
	case VULKAN_FEATURE_COUNT:
		break;
	}
	return "unknown";
}
