/* SPDX-License-Identifier: MIT */
/*
 * The broker's memory under a driver's command buffers: see command-memory.h.
 *
 * A piece is filled from its beginning to its end, and is unmapped when all its allocations were
 * freed. That fits the pattern of use: drivers free a command buffer as a whole, and the broker
 * frees command buffers one by one, the newest first. Freed bytes of a piece are not reused before
 * the piece is empty.
 */
#include "vulkan/command-memory.h"

#include <string.h>

#include "util/checked.h"
#include "util/chunks.h"

/* maximum of a piece, but for larger requests */
enum { LEAST_BYTES = 16 << 10, MOST_BYTES = 1 << 20 };

/* A piece of memory; the struct lies at its beginning. */
struct piece {
	struct list_node link;
	size_t map_bytes, used_bytes;
	size_t n_allocations;
};

/* Lies directly before each allocation. */
struct header {
	struct piece *piece;
	size_t bytes;
};

static struct piece *last_piece(const struct vk_command_memory *memory)
{
	return list_is_empty(&memory->pieces)
		       ? NULL
		       : container_of(memory->pieces.prev, struct piece, link);
}

static void piece_free(struct vk_command_memory *memory, struct piece *piece)
{
	list_remove(&piece->link);
	chunks_unmap(memory->chunks, piece, piece->map_bytes);
}

static struct piece *piece_new(struct vk_command_memory *memory, size_t bytes)
{
	size_t map_bytes;
	struct piece *piece;

	if (__builtin_add_overflow(bytes, sizeof(*piece), &bytes))
		return NULL;
	piece = chunks_map(memory->chunks, bytes > memory->next_bytes ? bytes : memory->next_bytes,
			   &map_bytes);
	if (!piece)
		return NULL;
	*piece = (struct piece){.map_bytes = map_bytes, .used_bytes = sizeof(*piece)};
	list_append(&memory->pieces, &piece->link);
	memory->used_bytes += sizeof(*piece);
	memory->next_bytes = map_bytes < MOST_BYTES / 2 ? 2 * map_bytes : MOST_BYTES;
	return piece;
}

/* Allocate from @piece. Return: NULL if the piece has no room. */
static void *take(struct vk_command_memory *memory, struct piece *piece, size_t bytes, size_t align)
{
	const uintptr_t from = (uintptr_t)piece + piece->used_bytes + sizeof(struct header);
	const uintptr_t at = (from + align - 1) & ~(uintptr_t)(align - 1);
	const size_t begin = at - (uintptr_t)piece;
	struct header *header = (struct header *)at - 1;

	if (begin > piece->map_bytes || bytes > piece->map_bytes - begin)
		return NULL;
	*header = (struct header){.piece = piece, .bytes = bytes};
	memory->used_bytes += begin + bytes - piece->used_bytes;
	piece->used_bytes = begin + bytes;
	piece->n_allocations++;
	return (void *)at;
}

static VKAPI_ATTR void *VKAPI_CALL allocate(void *context, size_t bytes, size_t align,
					    VkSystemAllocationScope scope)
{
	struct vk_command_memory *memory = context;
	struct piece *piece = last_piece(memory);
	size_t most_bytes;
	void *at;

	if (align < _Alignof(struct header))
		align = _Alignof(struct header);
	at = piece ? take(memory, piece, bytes, align) : NULL;
	if (at || __builtin_add_overflow(bytes, align + sizeof(struct header), &most_bytes))
		return at;
	/* Free an empty piece here: no later release() would. */
	if (piece && piece->n_allocations == 0)
		piece_free(memory, piece);
	piece = piece_new(memory, most_bytes);
	return piece ? take(memory, piece, bytes, align) : NULL;
}

static VKAPI_ATTR void VKAPI_CALL release(void *context, void *at)
{
	struct vk_command_memory *memory = context;
	struct piece *piece;

	if (!at)
		return;
	piece = ((struct header *)at - 1)->piece;
	if (--piece->n_allocations > 0)
		return;
	if (piece == last_piece(memory))
		piece->used_bytes = sizeof(*piece);
	else
		piece_free(memory, piece);
}

static VKAPI_ATTR void *VKAPI_CALL reallocate(void *context, void *at, size_t bytes, size_t align,
					      VkSystemAllocationScope scope)
{
	void *to = bytes > 0 ? allocate(context, bytes, align, scope) : NULL;
	size_t old_bytes = at ? ((const struct header *)at - 1)->bytes : 0;

	if (to && at)
		memcpy(to, at, old_bytes < bytes ? old_bytes : bytes);
	if (to || bytes == 0)
		release(context, at);
	return to;
}

void vk_command_memory_init(struct vk_command_memory *memory, struct chunks *chunks,
			    uint64_t expected_bytes)
{
	*memory = (struct vk_command_memory){
		.callbacks = {.pUserData = memory,
			      .pfnAllocation = allocate,
			      .pfnReallocation = reallocate,
			      .pfnFree = release},
		.chunks = chunks,
		.next_bytes = expected_bytes < LEAST_BYTES  ? LEAST_BYTES
			      : expected_bytes < MOST_BYTES ? (size_t)expected_bytes
							    : MOST_BYTES,
	};
	list_init(&memory->pieces);
}

void vk_command_memory_deinit(struct vk_command_memory *memory)
{
	while (!list_is_empty(&memory->pieces))
		piece_free(memory, last_piece(memory));
}
