/* SPDX-License-Identifier: MIT */
/*
 * Memory for the parts of plans that decisions read
 *
 * A decision reads one cache line of its plan, and another one if the count changed. For ten
 * thousand plans allocated separately, each beside kilobytes of learning data, these lines are on
 * ten thousand pages. A decision then waits longer for the page table than for the line. Side by
 * side the lines take 640 KB, the entries some ten megabytes, on a handful of pages where the
 * kernel has huge pages.
 *
 * Pieces come out of chunks: a small first one, since most machines have few plans, then chunks of
 * a huge page each. A piece never moves. A freed piece is reused for the next of its kind; chunks
 * are freed with the slab. The sizes of kinds must be powers of two of each other, so that all free
 * pieces together are no more than the largest kind once took.
 *
 * The kernel clears a huge page when it is touched, and may have to make room for it first: that
 * takes up to tens of milliseconds. So another thread makes the next chunk while the current one
 * still has some room. A chunk that was not made in time has small pages, which are faulted in one
 * by one.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "place/placer-private.h"
#include "util/error.h"

enum {
	FIRST_CHUNK_BYTES = 64 << 10,
	CHUNK_BYTES = 2 << 20,
	/* The next chunk is made when less than 1 / LOW_PART of a chunk is left. */
	LOW_PART = 2,
};

/* Pieces follow. */
struct place_chunk {
	struct place_chunk *next;
} __attribute__((__aligned__(64)));

/* A free piece */
struct place_free {
	struct place_free *next;
};

static bool grow(struct place_slab *slab)
{
	size_t bytes = slab->chunks ? CHUNK_BYTES : FIRST_CHUNK_BYTES;
	/* Pairs with the release in place_slab_prepare(). */
	struct place_chunk *chunk =
		atomic_exchange_explicit(&slab->spare, NULL, memory_order_acquire);

	if (!chunk) {
		chunk = aligned_alloc(bytes, bytes);
		if (!chunk)
			return false;
		if (bytes == CHUNK_BYTES)
			madvise(chunk, bytes, MADV_NOHUGEPAGE);
	}
	chunk->next = slab->chunks;
	slab->chunks = chunk;
	slab->next = (char *)(chunk + 1);
	slab->left_bytes = bytes - sizeof(*chunk);
	slab->low_bytes = slab->left_bytes / LOW_PART;
	atomic_store_explicit(&slab->is_low, false, memory_order_relaxed);
	return true;
}

void place_slab_prepare(struct place_slab *slab)
{
	struct place_chunk *chunk;

	if (!atomic_load_explicit(&slab->is_low, memory_order_relaxed) ||
	    atomic_load_explicit(&slab->spare, memory_order_relaxed))
		return;
	chunk = aligned_alloc(CHUNK_BYTES, CHUNK_BYTES);
	if (!chunk)
		return;
	/* Small pages suffice if this fails. */
	madvise(chunk, CHUNK_BYTES, MADV_HUGEPAGE);
	chunk->next = NULL;
	/* Pairs with the acquire in grow(). */
	atomic_store_explicit(&slab->spare, chunk, memory_order_release);
}

int place_slab_init(struct place_slab *slab)
{
	return grow(slab) ? 0 : error_origin(-ENOMEM);
}

void *place_slab_take(struct place_slab *slab, unsigned int kind, size_t bytes)
{
	struct place_free *piece = slab->free[kind];

	if (piece) {
		slab->free[kind] = piece->next;
		return piece;
	}
	if (slab->left_bytes < bytes && !grow(slab))
		return NULL;
	slab->left_bytes -= bytes;
	if (slab->left_bytes < slab->low_bytes)
		atomic_store_explicit(&slab->is_low, true, memory_order_relaxed);
	slab->next += bytes;
	return slab->next - bytes;
}

void place_slab_give(struct place_slab *slab, unsigned int kind, void *memory)
{
	struct place_free *piece = memory;

	piece->next = slab->free[kind];
	slab->free[kind] = piece;
}

void place_slab_deinit(struct place_slab *slab)
{
	while (slab->chunks) {
		struct place_chunk *chunk = slab->chunks;

		slab->chunks = chunk->next;
		free(chunk);
	}
	free(atomic_load_explicit(&slab->spare, memory_order_relaxed));
	*slab = (struct place_slab){0};
}
