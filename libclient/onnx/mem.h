#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Memory that is freed at once
 *
 * A model has thousands of small things of one lifetime. They are cut from blocks; what was taken
 * is counted, and refused beyond a limit, so that a small file cannot ask for much.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mem_block;

struct mem {
	struct mem_block *blocks; /* the newest first */
	uint64_t used_bytes;      /* ever taken */
	uint64_t max_bytes;
	bool limited; /* something was refused because of the limit, */
	bool failed;  /* or for want of memory */
};

/* Starts an empty one. Nothing is allocated yet. */
void mem_init(struct mem *mem, uint64_t max_bytes);
/* Lets it take no more than @max_bytes, what it has taken included: nothing, if that is more. */
void mem_limit(struct mem *mem, uint64_t max_bytes);
/* Frees all of it; once, or of a zeroed one. */
void mem_deinit(struct mem *mem);

/* @bytes, aligned to 16; not zeroed (take), zeroed (zero). Return: NULL without memory. */
void *mem_take(struct mem *mem, uint64_t bytes);
void *mem_zero(struct mem *mem, uint64_t n, uint64_t item_bytes);
char *mem_string(struct mem *mem, const char *text);
char *mem_printf(struct mem *mem, const char *format, ...)
	__attribute__((__format__(__printf__, 2, 3)));

/* Why the last one was NULL, as an errno: -EFBIG at the limit, else -ENOMEM. */
int mem_error(const struct mem *mem);
