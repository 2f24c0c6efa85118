#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Cooperative matrices: products that the invocations of a subgroup compute together
 *
 * What a device has instructions for, as its driver tells: for listings. No pipeline uses them.
 */
#include <stddef.h>
#include <volk.h>

/*
 * Sizes m x n x k of which @physical multiplies float16 matrices and sums up in float32, as
 * "16x16x16,16x8x16"; "" for none. What does not fit is left out.
 */
void vk_matrices_describe(VkPhysicalDevice physical, char *ret, size_t ret_bytes);
