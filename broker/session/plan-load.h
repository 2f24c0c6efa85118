#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plans in device memory, all of a plan or nothing
 *
 * Setup thread. Every plan has a block of its own constants on every device that prepared it, and
 * keeps it as long as it lives.
 */
#include "plan/executor.h"

/*
 * Loads a prepared plan, with as many slots as fit into info.memory_bytes. device_state becomes
 * PLAN_DEVICE_READY, PLAN_DEVICE_NO_MEMORY or PLAN_DEVICE_FAILED, device_bytes and host_bytes what
 * it holds. Return: the block, for plan_unload(), or NULL if it is not loaded or needs none.
 */
struct exec_block *plan_load(struct executor *executor, struct plan *plan);

/* Accepts a plan that is not loaded, and NULL for @block. Return: NULL. */
struct exec_block *plan_unload(struct executor *executor, struct plan *plan,
			       struct exec_block *block);
