/* SPDX-License-Identifier: MIT */
/*
 * Arenas
 *
 * A memfd whose pages all exist and whose size cannot change, mapped here and by the broker. To
 * become immutable it must not be mapped writable by anybody while F_SEAL_WRITE is added: so the
 * broker gives it up first, then a read-only private mapping replaces ours in place, then it is
 * sealed and shared again. Private, because kernels before 6.7 refuse shared mappings of such a
 * file, and without a difference, because nobody can write it any more.
 *
 * The broker does not give up an arena while plans have constants in it. So plans hold it here,
 * and it is taken from the broker when the last of them is gone, whatever the order in which a
 * program frees its objects.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libclient/private.h"

#define ARENA_NO_ID RBK_REF_ARENA(RBK_REF_INVALID)

static void arena_freep(struct rbk_arena **arena)
{
	rbk_arena_free(*arena);
}

static int arena_share(struct rbk_arena *arena, struct rbk_error *error)
{
	struct rbk_wire_arena_add request = {
		.request.type = RBK_WIRE_ARENA_ADD,
		.bytes = arena->bytes,
	};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, arena->fd};
	struct client_answer answer;
	int r;

	r = client_request(arena->rbk, &message, &answer, error);
	if (r)
		return r;
	arena->id = answer.reply.id.id;
	return 0;
}

RBK_EXPORT int rbk_arena_new(struct rbk *rbk, size_t bytes, struct rbk_arena **ret,
			     struct rbk_error *error)
{
	client_cleanup(arena_freep) struct rbk_arena *arena = NULL;
	size_t page_bytes = client_page_bytes();
	void *data;
	int r;

	r = client_check(rbk, error);
	if (r)
		return r;
	if (bytes == 0 || bytes > (1ull << RBK_REF_OFFSET_BITS) - page_bytes)
		return client_error(error, -EINVAL, "an arena cannot have %zu bytes", bytes);

	arena = calloc(1, sizeof(*arena));
	if (!arena)
		return client_error(error, -ENOMEM, "out of memory");
	arena->refs = 1;
	arena->rbk = client_ref(rbk);
	arena->fd = -1;
	arena->id = ARENA_NO_ID;
	arena->bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;

	r = client_memfd_new("ringbroker-arena", arena->bytes, &arena->fd);
	if (r)
		return client_error(error, r, "cannot make an arena of %zu bytes: %m",
				    arena->bytes);
	data = mmap(NULL, arena->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, 0);
	if (data == MAP_FAILED)
		return client_error(error, -errno, "cannot map an arena of %zu bytes: %m",
				    arena->bytes);
	arena->data = data;
	r = arena_share(arena, error);
	if (r)
		return r;

	*ret = arena;
	arena = NULL;
	return 0;
}

struct rbk_arena *client_arena_ref(struct rbk_arena *arena)
{
	__atomic_fetch_add(&arena->refs, 1, __ATOMIC_RELAXED);
	return arena;
}

struct rbk_arena *client_arena_unref(struct rbk_arena *arena)
{
	if (!arena || __atomic_sub_fetch(&arena->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return NULL;
	if (arena->id != ARENA_NO_ID)
		client_request_id(arena->rbk, RBK_WIRE_ARENA_REMOVE, arena->id, NULL);
	client_unref(arena->rbk);
	free(arena);
	return NULL;
}

RBK_EXPORT struct rbk_arena *rbk_arena_free(struct rbk_arena *arena)
{
	if (!arena)
		return NULL;
	if (arena->data)
		munmap(arena->data, arena->bytes);
	arena->data = NULL;
	client_close(&arena->fd);
	return client_arena_unref(arena);
}

RBK_EXPORT void *rbk_arena_data(const struct rbk_arena *arena)
{
	return arena->data;
}

RBK_EXPORT size_t rbk_arena_bytes(const struct rbk_arena *arena)
{
	return arena->bytes;
}

RBK_EXPORT void *rbk_arena_alloc(struct rbk_arena *arena, size_t bytes)
{
	void *pointer;

	if (arena->sealed || bytes > arena->bytes - arena->used)
		return NULL;
	pointer = arena->data + arena->used;
	/* The arena's size is a multiple of the alignment: rounding up stays within it. */
	arena->used += (bytes + RBK_REF_ALIGN - 1) / RBK_REF_ALIGN * RBK_REF_ALIGN;
	return pointer;
}

RBK_EXPORT void rbk_arena_reset(struct rbk_arena *arena)
{
	arena->used = 0;
}

/* Maps the arena anew at its address. Return: 0; negative errno, and the old mapping is there. */
static int arena_map_again(struct rbk_arena *arena, int protection, int flags)
{
	void *data = mmap(arena->data, arena->bytes, protection, flags | MAP_FIXED, arena->fd, 0);

	return data == MAP_FAILED ? -errno : 0;
}

RBK_EXPORT int rbk_arena_seal(struct rbk_arena *arena, struct rbk_error *error)
{
	int r;

	r = client_check(arena->rbk, error);
	if (r)
		return r;
	if (arena->sealed)
		return arena->id == ARENA_NO_ID ? arena_share(arena, error) : 0;

	if (arena->id != ARENA_NO_ID) {
		r = client_request_id(arena->rbk, RBK_WIRE_ARENA_REMOVE, arena->id, error);
		/* Too late is not never: the broker will give it up. */
		if (!r || r == -ETIME)
			arena->id = ARENA_NO_ID;
		if (r)
			return r;
	}
	r = arena_map_again(arena, PROT_READ, MAP_PRIVATE);
	if (r) {
		client_error(error, r, "cannot map the arena read-only: %m");
	} else if (fcntl(arena->fd, F_ADD_SEALS, F_SEAL_WRITE)) {
		r = client_error(error, -errno,
				 "cannot seal the arena: another process still maps it: %m");
		/* Writable memory must not become read-only because sealing failed. */
		if (arena_map_again(arena, PROT_READ | PROT_WRITE, MAP_SHARED))
			return client_error(error, -ENOMEM, "the arena cannot be mapped any more");
	}
	if (r) {
		arena_share(arena, NULL);
		return r;
	}
	arena->sealed = true;
	return arena_share(arena, error);
}

RBK_EXPORT uint64_t rbk_arena_ref(const struct rbk_arena *arena, uint64_t offset)
{
	if (arena->id == ARENA_NO_ID || offset >= arena->bytes)
		return RBK_REF_INVALID;
	return RBK_REF(arena->id, offset);
}

RBK_EXPORT uint64_t rbk_ref(const struct rbk_arena *arena, const void *pointer)
{
	/* A pointer below the arena becomes an offset far beyond its end. */
	return rbk_arena_ref(arena, (uintptr_t)pointer - (uintptr_t)arena->data);
}
