#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Memory of plans: packed constants, scratch. Private to broker/cpu; setup thread only.
 *
 * The kernel allows a process some 65,000 mappings (vm.max_map_count), and without a free one
 * every mmap() fails, whoever asks. So pieces of up to CPU_SLOT_MAX_BYTES lie in slots of mappings
 * that they share, and only larger pieces have mappings of their own: however many pieces of
 * whatever size clients have made and given back, mappings are few beside the bytes that clients
 * are charged for.
 */
#include <stdbool.h>
#include <stddef.h>

#include "util/index.h"
#include "util/list.h"

enum {
	CPU_CHUNK_BYTES = 64 << 20, /* of addresses: a mapping of slots */
	CPU_SLOT_MAX_BYTES = 16 << 20,
	CPU_UNMAP_BYTES = 8 << 20, /* about a millisecond of work; a multiple of the huge page */
	CPU_SLOT_SIZES = 14,       /* powers of two, up to 2 MiB and, of huge pages, from there */
};

struct cpu_memory {
	struct index_node *chunks;                  /* by address */
	struct list_node with_room[CPU_SLOT_SIZES]; /* chunks that have free slots */
};

void cpu_memory_init(struct cpu_memory *memory);
/* Asserts that everything was given back. */
void cpu_memory_deinit(struct cpu_memory *memory);

/* Compute the bytes that cpu_map() takes for @bytes. Return: 0 on overflow. */
size_t cpu_map_bytes(size_t bytes);
/*
 * Find addresses for @bytes, page-aligned, on huge pages where large. They must not be touched
 * before cpu_commit(). Return: NULL if out of memory.
 */
void *cpu_reserve(struct cpu_memory *memory, size_t bytes, size_t *ret_map_bytes);
/* Make addresses usable, which are zeroed memory from now on. Return: 0; -ENOMEM. */
int cpu_commit(struct cpu_memory *memory, void *map, size_t map_bytes);
/* Reserve and commit. Return: NULL if out of memory. */
void *cpu_map(struct cpu_memory *memory, size_t bytes, size_t *ret_map_bytes);
/*
 * Give back the last @bytes, a multiple of the huge page, or all, of what is left of a piece.
 * Accepts an empty one, and NULL. Return: true if some of the piece is left.
 */
bool cpu_unmap_some(struct cpu_memory *memory, void *map, size_t *map_bytes, size_t bytes);
void cpu_unmap(struct cpu_memory *memory, void *map, size_t map_bytes);
