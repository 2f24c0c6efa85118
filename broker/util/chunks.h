#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Memory in pieces of pages, many of them in one mapping
 *
 * The kernel allows a process some 65,000 mappings (vm.max_map_count); beyond that every mmap()
 * fails, in every thread. So small pieces lie in slots of shared mappings, and only large pieces
 * have mappings of their own. Whatever pieces clients have allocated and freed, mappings are few in
 * relation to the bytes that clients are charged for. A freed piece's pages return to the system at
 * once; malloc() keeps pages between live pieces.
 *
 * A struct chunks belongs to one thread at a time; the broker's belong to the setup thread.
 */
#include <stdbool.h>
#include <stddef.h>

#include "util/index.h"
#include "util/list.h"

/* The use of pieces: see chunks_init(). */
enum chunks_kind {
	CHUNKS_SMALL,
	CHUNKS_LARGE,
};

enum {
	CHUNKS_UNMAP_BYTES = 8 << 20, /* about a millisecond of work; a multiple of the huge page */
	CHUNKS_SLOT_SIZES = 14,       /* powers of two up to 2 MiB; with huge pages, from 2 MiB */
};

struct chunks {
	enum chunks_kind kind;
	size_t chunk_bytes;    /* address space of a mapping of slots */
	size_t slot_max_bytes; /* larger pieces have their own mappings */
	struct index_node *by_address;
	struct list_node with_room[CHUNKS_SLOT_SIZES]; /* chunks with free slots, by slot size */
};

/*
 * CHUNKS_LARGE: chunks of 64 MiB of addresses, slots of up to 16 MiB. From 2 MiB on, pieces lie on
 * huge pages, which suits pieces that are used as a whole. CHUNKS_SMALL: chunks of 4 MiB, slots of
 * up to 1 MiB, small pages only: a page costs memory, and the time to clear it, when it is written.
 */
void chunks_init(struct chunks *chunks, enum chunks_kind kind);
/* Assert that all pieces were unmapped. */
void chunks_deinit(struct chunks *chunks);

/*
 * Compute the bytes that chunks_map() takes for @bytes.
 * Return: 0 on overflow.
 */
size_t chunks_map_bytes(size_t bytes);
/*
 * Reserve addresses for @bytes, page-aligned. They must not be touched before chunks_commit().
 * Return: NULL if out of memory.
 */
void *chunks_reserve(struct chunks *chunks, size_t bytes, size_t *ret_map_bytes);
/*
 * Make reserved addresses usable, as zeroed memory.
 * Return: 0; -ENOMEM.
 */
int chunks_commit(struct chunks *chunks, void *map, size_t map_bytes);
/*
 * Reserve and commit.
 * Return: NULL if out of memory.
 */
void *chunks_map(struct chunks *chunks, size_t bytes, size_t *ret_map_bytes);
/*
 * Unmap the last @bytes, a multiple of the huge page, or all, of the rest of a piece. The rest may
 * be empty, @map may be NULL.
 * Return: true if some of the piece is left.
 */
bool chunks_unmap_some(struct chunks *chunks, void *map, size_t *map_bytes, size_t bytes);
void chunks_unmap(struct chunks *chunks, void *map, size_t map_bytes);
