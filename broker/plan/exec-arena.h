#pragma once
/* SPDX-License-Identifier: MIT */
/* Arenas of the broker's own: memory that no client has, which every executor can import */
#include <stdint.h>

#include "plan/executor.h"

/*
 * Make an arena of @bytes, a positive multiple of the page size, of a memfd called @name. No page
 * is allocated yet. The caller imports it into executors (struct executor_ops), then closes
 * ret->fd; after their arena_release() it unmaps the memory. A thread that may allocate.
 * Return: 0; a negative errno.
 */
int exec_arena_make(const char *name, uint64_t bytes, struct exec_arena *ret);
