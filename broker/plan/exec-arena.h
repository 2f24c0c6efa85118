#pragma once
/* SPDX-License-Identifier: MIT */
/* Arenas of the broker's own: memory that no client has, which every executor can import */
#include <stdint.h>

#include "plan/executor.h"

/*
 * Make an arena of @bytes, a positive multiple of the page size, of a memfd called @name. No page
 * is allocated yet, and the arena is fixed. The caller imports the arena into executors (struct
 * executor_ops), then closes ret->fd. After all executors' arena_release() the caller unmaps
 * ret->base. A thread that may allocate.
 * Return: 0; a negative errno.
 */
int exec_arena_make(const char *name, uint64_t bytes, struct exec_arena *ret);

/*
 * Allocate the pages of @bytes from @offset on, before the arena's fd is closed: no later access
 * can fail for want of memory. A thread that may allocate.
 * Return: 0; a negative errno.
 */
int exec_arena_fill(const struct exec_arena *arena, uint64_t offset, uint64_t bytes);
