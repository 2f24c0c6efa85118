/* SPDX-License-Identifier: MIT */
/*
 * Memory in pieces: see chunks.h.
 *
 * A chunk has slots of one size, which is a power of two. An unmapped piece loses its pages at
 * once, so that memory returns to the system and no owner finds another's data; the chunk's
 * addresses are freed with its last piece.
 *
 * The kernel does not account memory that is not writable, and a plan is compiled before it is
 * charged. So a chunk is writable only up to the last committed piece: it is two mappings at most.
 *
 * Chunks of slots below the huge page have no huge pages: a huge page under one small piece would
 * be memory that no tenant is charged for.
 */
#include "util/chunks.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "util/error.h"

enum { PAGE_BYTES = 4096, PAGE_SHIFT = 12, HUGE_PAGE_BYTES = 2 << 20 };

struct chunk {
	struct index_node node;
	struct list_node link; /* in *with_room, unless the chunk is full */
	struct list_node *with_room;
	uint8_t *base; /* a multiple of chunks.chunk_bytes */
	size_t slot_bytes, writable_bytes;
	uint32_t n_slots, n_used;
	uint64_t used[]; /* bit per slot */
};

void chunks_init(struct chunks *chunks, enum chunks_kind kind)
{
	chunks->kind = kind;
	chunks->chunk_bytes = kind == CHUNKS_LARGE ? 64 << 20 : 4 << 20;
	chunks->slot_max_bytes = chunks->chunk_bytes / 4;
	chunks->by_address = NULL;
	for (unsigned int i = 0; i < CHUNKS_SLOT_SIZES; i++)
		list_init(&chunks->with_room[i]);
}

void chunks_deinit(struct chunks *chunks)
{
	assert(!chunks->by_address);
}

size_t chunks_map_bytes(size_t bytes)
{
	const size_t unit = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : PAGE_BYTES;
	size_t map_bytes;

	if (__builtin_add_overflow(bytes, unit - 1, &map_bytes))
		return 0;
	return map_bytes & ~(unit - 1);
}

static uint64_t chunk_key(const struct chunks *chunks, const void *address)
{
	return index_hash((uintptr_t)address / chunks->chunk_bytes, 0);
}

/* Return the chunk that contains @map; NULL if @map is a mapping of its own. */
static struct chunk *chunk_of(struct chunks *chunks, const void *map)
{
	struct index_node *node = index_find(&chunks->by_address, chunk_key(chunks, map));

	return node ? container_of(node, struct chunk, node) : NULL;
}

static void *map_addresses(size_t bytes)
{
	void *map = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return map == MAP_FAILED ? NULL : map;
}

static struct chunk *chunk_new(struct chunks *chunks, size_t slot_bytes, bool is_huge,
			       struct list_node *with_room)
{
	const size_t chunk_bytes = chunks->chunk_bytes;
	const uint32_t n_slots = (uint32_t)(chunk_bytes / slot_bytes);
	struct chunk *chunk = calloc(1, sizeof(*chunk) + (n_slots + 63) / 64 * sizeof(uint64_t));
	uint8_t *area = chunk ? map_addresses(2 * chunk_bytes) : NULL;
	size_t before;

	if (!area) {
		free(chunk);
		return NULL;
	}
	before = -(uintptr_t)area % chunk_bytes;
	if (before > 0)
		munmap(area, before);
	chunk->base = area + before;
	munmap(chunk->base + chunk_bytes, chunk_bytes - before);
	/* This is only advice: if huge pages are off, small pages work. */
	madvise(chunk->base, chunk_bytes,
		is_huge && chunks->kind == CHUNKS_LARGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	chunk->with_room = with_room;
	chunk->slot_bytes = slot_bytes;
	chunk->n_slots = n_slots;
	if (n_slots < 64)
		chunk->used[0] = ~0ull << n_slots;
	list_append(with_room, &chunk->link);
	index_insert(&chunks->by_address, &chunk->node, chunk_key(chunks, chunk->base));
	return chunk;
}

static void *take_slot(struct chunks *chunks, size_t map_bytes)
{
	const bool is_huge = map_bytes >= HUGE_PAGE_BYTES;
	const int shift = map_bytes > PAGE_BYTES ? 64 - __builtin_clzll(map_bytes - 1) : PAGE_SHIFT;
	struct list_node *with_room = &chunks->with_room[shift - PAGE_SHIFT + is_huge];
	struct chunk *chunk;
	uint32_t slot = 0;

	if (list_is_empty(with_room) && !chunk_new(chunks, (size_t)1 << shift, is_huge, with_room))
		return NULL;
	chunk = container_of(with_room->next, struct chunk, link);
	while (chunk->used[slot / 64] == ~0ull)
		slot += 64;
	slot += (uint32_t)__builtin_ctzll(~chunk->used[slot / 64]);
	chunk->used[slot / 64] |= 1ull << slot % 64;
	if (++chunk->n_used == chunk->n_slots)
		list_remove(&chunk->link);
	return chunk->base + slot * chunk->slot_bytes;
}

static void leave_slot(struct chunks *chunks, struct chunk *chunk, const uint8_t *map)
{
	const size_t slot = (size_t)(map - chunk->base) / chunk->slot_bytes;

	chunk->used[slot / 64] &= ~(1ull << slot % 64);
	if (chunk->n_used-- == chunk->n_slots)
		list_append(chunk->with_room, &chunk->link);
	if (chunk->n_used > 0)
		return;
	list_remove(&chunk->link);
	index_remove(&chunks->by_address, &chunk->node);
	munmap(chunk->base, chunks->chunk_bytes);
	free(chunk);
}

void *chunks_reserve(struct chunks *chunks, size_t bytes, size_t *ret_map_bytes)
{
	const size_t map_bytes = chunks_map_bytes(bytes);
	void *map;

	if (map_bytes == 0)
		return NULL;
	if (map_bytes <= chunks->slot_max_bytes) {
		map = take_slot(chunks, map_bytes);
	} else {
		map = map_addresses(map_bytes);
		if (map)
			madvise(map, map_bytes,
				chunks->kind == CHUNKS_LARGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	}
	if (map)
		*ret_map_bytes = map_bytes;
	return map;
}

int chunks_commit(struct chunks *chunks, void *map, size_t map_bytes)
{
	struct chunk *chunk = chunk_of(chunks, map);
	uint8_t *begin = map, *end = begin + map_bytes;

	if (chunk) {
		begin = chunk->base + chunk->writable_bytes;
		if (end <= begin)
			return 0;
	}
	if (mprotect(begin, (size_t)(end - begin), PROT_READ | PROT_WRITE) < 0)
		return error_origin(-ENOMEM);
	if (chunk)
		chunk->writable_bytes = (size_t)(end - chunk->base);
	return 0;
}

void *chunks_map(struct chunks *chunks, size_t bytes, size_t *ret_map_bytes)
{
	void *map = chunks_reserve(chunks, bytes, ret_map_bytes);

	if (!map || chunks_commit(chunks, map, *ret_map_bytes) == 0)
		return map;
	chunks_unmap(chunks, map, *ret_map_bytes);
	*ret_map_bytes = 0;
	return NULL;
}

bool chunks_unmap_some(struct chunks *chunks, void *map, size_t *map_bytes, size_t bytes)
{
	struct chunk *chunk;
	uint8_t *end;
	int r;

	/* Bytes may have been measured without being mapped. */
	if (!map || *map_bytes == 0)
		return false;
	chunk = chunk_of(chunks, map);
	bytes = bytes < *map_bytes ? bytes : *map_bytes;
	*map_bytes -= bytes;
	end = (uint8_t *)map + *map_bytes;
	r = chunk ? madvise(end, bytes, MADV_DONTNEED) : munmap(end, bytes);
	/* The next owner of the slot must find zeros. */
	assert(r == 0 || !chunk);
	if (chunk && *map_bytes == 0)
		leave_slot(chunks, chunk, map);
	return *map_bytes > 0;
}

void chunks_unmap(struct chunks *chunks, void *map, size_t map_bytes)
{
	chunks_unmap_some(chunks, map, &map_bytes, map_bytes);
}
