#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A Vulkan layer that fails on request
 *
 * Between the loader and any driver, so that a real broker's device can be made to fail. Enabled by
 * the Vulkan loader's variables, VK_LAYER_PATH (its manifest's folder, see
 * tests/support/meson.build) and VK_INSTANCE_LAYERS=VK_LAYER_RINGBROKER_failing; RBK_FAILING_LAYER
 * names a file that broker and test map, of one struct failing_layer.
 */
#include <stdatomic.h>
#include <stdint.h>

#define FAILING_LAYER_NAME "VK_LAYER_RINGBROKER_failing"
#define FAILING_LAYER_ENV  "RBK_FAILING_LAYER"

struct failing_layer {
	/* The test's: every so many-th vkQueueSubmit() says VK_ERROR_DEVICE_LOST; 0: none. */
	_Atomic uint32_t every;
	/* The test's: while it is not 0, vkCreateDevice() says VK_ERROR_INITIALIZATION_FAILED. */
	_Atomic uint32_t is_absent;
	/* The test's: while it is not 0, nothing that is waited for is seen to be done. */
	_Atomic uint32_t is_hanging;
	/* The layer's. */
	_Atomic uint64_t n_submits; /* failed ones too */
	_Atomic uint64_t n_failed;
	_Atomic uint64_t n_hung;    /* vkWaitSemaphores() that were kept waiting */
	_Atomic uint64_t n_devices; /* made */
};
