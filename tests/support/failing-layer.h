#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A Vulkan layer that fails on request
 *
 * The layer sits between the loader and any driver, so that tests can make a real broker's device
 * fail. The Vulkan loader's variables enable it: VK_LAYER_PATH (the folder of its manifest, see
 * tests/support/meson.build) and VK_INSTANCE_LAYERS=VK_LAYER_RINGBROKER_failing. RBK_FAILING_LAYER
 * names a file of one struct failing_layer, which broker and test both map.
 */
#include <stdatomic.h>
#include <stdint.h>

#define FAILING_LAYER_NAME "VK_LAYER_RINGBROKER_failing"
#define FAILING_LAYER_ENV  "RBK_FAILING_LAYER"

struct failing_layer {
	/*
	 * Set by the test: each @every-th vkQueueSubmit() returns VK_ERROR_DEVICE_LOST; 0: none
	 * fails.
	 */
	_Atomic uint32_t every;
	/*
	 * Set by the test: while nonzero, vkCreateDevice() returns VK_ERROR_INITIALIZATION_FAILED.
	 */
	_Atomic uint32_t is_absent;
	/* Set by the test: while nonzero, waits never see a semaphore signalled. */
	_Atomic uint32_t is_hanging;
	/* Counted by the layer. */
	_Atomic uint64_t n_submits; /* vkQueueSubmit() calls, failed ones included */
	_Atomic uint64_t n_failed;
	_Atomic uint64_t n_hung;    /* vkWaitSemaphores() calls that were kept waiting */
	_Atomic uint64_t n_devices; /* devices made */
};
