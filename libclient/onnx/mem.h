#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Memory that is freed at once
 *
 * A model has thousands of small objects with the same lifetime. They are cut from blocks. The
 * bytes taken are counted and limited, so that a small file cannot take much memory.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mem_block;

struct mem {
	struct mem_block *blocks; /* list, the newest first */
	uint64_t used_bytes;      /* taken so far */
	uint64_t max_bytes;
	bool limited; /* a request exceeded the limit */
	bool failed;  /* a request failed without memory */
};

/* Initialise an empty mem. Allocates nothing. */
void mem_init(struct mem *mem, uint64_t max_bytes);
/*
 * Limit the bytes taken in total to @max_bytes; if more were taken already, no more can be taken.
 */
void mem_limit(struct mem *mem, uint64_t max_bytes);
/* Free all memory. Call once; a zeroed mem is allowed. */
void mem_deinit(struct mem *mem);

/* Take @bytes, aligned to 16; not zeroed (take), zeroed (zero). Return: NULL without memory. */
void *mem_take(struct mem *mem, uint64_t bytes);
void *mem_zero(struct mem *mem, uint64_t n, uint64_t item_bytes);
char *mem_string(struct mem *mem, const char *text);
char *mem_printf(struct mem *mem, const char *format, ...)
	__attribute__((__format__(__printf__, 2, 3)));

/* Return the errno of the last failure: -EFBIG at the limit, else -ENOMEM. */
int mem_error(const struct mem *mem);
