/* SPDX-License-Identifier: MIT */
/*
 * Memory that is freed at once
 *
 * The size of blocks grows with the bytes taken, so that a small model costs little and a large
 * model few calls. A request of more than half a block gets its own block behind the current one,
 * which stays in use.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/onnx/mem.h"
#include "shm/number.h"

#define MEM_ALIGN       16u
#define MEM_FIRST_BYTES 16384u
#define MEM_BLOCK_BYTES 262144u

struct mem_block {
	struct mem_block *next;
	uint64_t used_bytes;
	uint64_t bytes;
	uint64_t pad; /* keeps data aligned */
	unsigned char data[];
};
_Static_assert(sizeof(struct mem_block) % MEM_ALIGN == 0, "data is aligned");

void mem_init(struct mem *mem, uint64_t max_bytes)
{
	*mem = (struct mem){.max_bytes = max_bytes};
}

void mem_deinit(struct mem *mem)
{
	while (mem->blocks) {
		struct mem_block *next = mem->blocks->next;

		free(mem->blocks);
		mem->blocks = next;
	}
}

static struct mem_block *add_block(struct mem *mem, uint64_t bytes)
{
	uint64_t usual = mem->used_bytes < MEM_BLOCK_BYTES ? MEM_FIRST_BYTES : MEM_BLOCK_BYTES;
	bool is_large = bytes > usual / 2;
	uint64_t block_bytes = is_large ? bytes : usual;
	struct mem_block *block = malloc(sizeof(*block) + block_bytes);

	if (!block)
		return NULL;
	block->used_bytes = 0;
	block->bytes = block_bytes;
	if (is_large && mem->blocks) {
		block->next = mem->blocks->next;
		mem->blocks->next = block;
	} else {
		block->next = mem->blocks;
		mem->blocks = block;
	}
	return block;
}

void *mem_take(struct mem *mem, uint64_t bytes)
{
	struct mem_block *block = mem->blocks;
	void *place;

	if (bytes > mem->max_bytes - mem->used_bytes) {
		mem->limited = true;
		return NULL;
	}
	/* An empty request, too, gets its own address. */
	bytes = round_up(bytes + !bytes, MEM_ALIGN);
	if (!block || bytes > block->bytes - block->used_bytes)
		block = add_block(mem, bytes);
	if (!block) {
		mem->failed = true;
		return NULL;
	}
	place = block->data + block->used_bytes;
	block->used_bytes += bytes;
	mem->used_bytes +=
		bytes < mem->max_bytes - mem->used_bytes ? bytes : mem->max_bytes - mem->used_bytes;
	return place;
}

void *mem_zero(struct mem *mem, uint64_t n, uint64_t item_bytes)
{
	uint64_t bytes;
	void *place;

	if (__builtin_mul_overflow(n, item_bytes, &bytes)) {
		mem->limited = true;
		return NULL;
	}
	place = mem_take(mem, bytes);
	if (place)
		memset(place, 0, bytes);
	return place;
}

char *mem_string(struct mem *mem, const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = mem_take(mem, bytes);

	return copy ? memcpy(copy, text, bytes) : NULL;
}

char *mem_printf(struct mem *mem, const char *format, ...)
{
	va_list args, again;
	char *text;
	int n;

	va_start(args, format);
	va_copy(again, args);
	n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	text = n < 0 ? NULL : mem_take(mem, (uint64_t)n + 1);
	if (text)
		vsnprintf(text, (size_t)n + 1, format, again);
	va_end(again);
	return text;
}

void mem_limit(struct mem *mem, uint64_t max_bytes)
{
	mem->max_bytes = max_bytes;
	if (mem->used_bytes > max_bytes)
		mem->used_bytes = max_bytes;
}

int mem_error(const struct mem *mem)
{
	return mem->limited ? -EFBIG : -ENOMEM;
}
