#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A bare Vulkan loop, for brokerbench
 *
 * It computes c = a * b over n by n matrices in the shortest possible loop: the commands are
 * recorded once, and a run is one vkQueueSubmit() and one wait by the caller. brokerbench measures
 * what the broker adds to that. The loop has no thread, no queue and no checks; it is not part of
 * brokerd.
 */
#include <stdint.h>

#include "util/cleanup.h"
#include "vulkan/vulkan.h"

struct vulkan_bare;
struct exec_arena;

enum vulkan_bare_shader {
	VULKAN_BARE_SAME,  /* the executor's MatMul before calibration */
	VULKAN_BARE_NAIVE, /* one output per invocation: shaders/naive-matmul.comp */
	/*
	 * A product in registers, without shared memory, as the executor has on software devices,
	 * but without features that only plans need, and over bound buffers:
	 * shaders/register-matmul.comp. n must be a multiple of 32.
	 */
	VULKAN_BARE_REGISTERS,
};

enum { VULKAN_BARE_E_NO_DEVICE = 1 };

/*
 * Open the first device that @options allow, with an instance of its own. The matrices lie in
 * @arena, page-aligned memory that outlives the result, at these offsets in bytes, multiples of
 * RBK_REF_ALIGN. If the device imports arenas, it works in place; else a run copies a and b in and
 * c out, as the executor does.
 * Return: 0; VULKAN_BARE_E_NO_DEVICE; negative errno.
 */
int vulkan_bare_new(const struct vulkan_options *options, enum vulkan_bare_shader shader,
		    uint32_t n, struct exec_arena *arena, uint64_t a_offset, uint64_t b_offset,
		    uint64_t c_offset, struct vulkan_bare **ret);

/* Compute one product and wait for it. Return: 0 or negative errno. */
int vulkan_bare_run(struct vulkan_bare *bare);

/* Return: NULL. */
struct vulkan_bare *vulkan_bare_free(struct vulkan_bare *bare);

DEFINE_CLEANUP(struct vulkan_bare *, vulkan_bare_free)
