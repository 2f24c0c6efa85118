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
 *
 * A broker that offers RBK_FEAT_FIXED_ARENAS is asked to seal the memfd against further writable
 * mappings, once it has mapped it like us: then no page can be taken away, which lets it touch the
 * arena without a detour. So an arena is mapped writable once in its life.
 *
 * Where the broker says so, a device makes the memory instead and we map its dma-buf. That cannot
 * be sealed: rbk_arena_seal() puts a memfd with the same bytes in its place, so that programs need
 * not know which they have.
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

/* Registers the memfd with the broker. */
static int arena_share(struct rbk_arena *arena, struct rbk_error *error)
{
	struct rbk_wire_arena_add request = {
		.request.type = RBK_WIRE_ARENA_ADD,
		.bytes = arena->bytes,
	};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, arena->fd};
	struct client_answer answer;
	int r;

	/* We have mapped it, and need no more. */
	if (!arena->sealed && (arena->rbk->features & RBK_FEAT_FIXED_ARENAS))
		request.bytes |= RBK_WIRE_ARENA_FIX;
	r = client_request(arena->rbk, &message, &answer, error);
	if (r)
		return r;
	arena->id = answer.reply.id.id;
	return 0;
}

/* Maps the descriptor, of arena->bytes, at a place of the kernel's choice. */
static int arena_map(struct rbk_arena *arena, struct rbk_error *error)
{
	void *data = mmap(NULL, arena->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, 0);

	if (data == MAP_FAILED)
		return client_error(error, -errno, "cannot map an arena of %zu bytes: %m",
				    arena->bytes);
	arena->data = data;
	return 0;
}

/* The memory is a memfd of our own. */
static int arena_make(struct rbk_arena *arena, struct rbk_error *error)
{
	int r;

	r = client_memfd_new("ringbroker-arena", arena->bytes, &arena->fd);
	if (r)
		return client_error(error, r, "cannot make an arena of %zu bytes: %m",
				    arena->bytes);
	r = arena_map(arena, error);
	if (r)
		return r;
	arena->segment_bytes = arena->rbk->segment_bytes;
	return arena_share(arena, error);
}

/* The broker has a device make the memory. */
static int arena_ask(struct rbk_arena *arena, struct rbk_error *error)
{
	struct rbk_wire_arena_new request = {
		.request.type = RBK_WIRE_ARENA_NEW,
		.bytes = arena->bytes,
	};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	off_t bytes;
	int r;

	r = client_request(arena->rbk, &message, &answer, error);
	if (r)
		return r;
	arena->fd = answer.fds[0];
	arena->id = answer.reply.id.id;
	arena->exported = true;
	/* Memory behind its end would raise SIGBUS, much later. */
	bytes = lseek(arena->fd, 0, SEEK_END);
	if (bytes < 0 || (uint64_t)bytes < arena->bytes) {
		client_lose(arena->rbk, -EPROTO);
		return client_error(error, -EPROTO,
				    "the broker made an arena of %lld bytes instead of %zu",
				    (long long)bytes, arena->bytes);
	}
	return arena_map(arena, error);
}

/* Is that an answer after which a memfd of ours is worth a try? */
static bool is_refusal(int r)
{
	return r == -EOPNOTSUPP || r == -ENOMEM || r == -EDQUOT;
}

/* Undoes arena_ask(), so that something else can be tried. */
static void arena_unask(struct rbk_arena *arena)
{
	if (arena->id != ARENA_NO_ID)
		client_request_id(arena->rbk, RBK_WIRE_ARENA_REMOVE, arena->id, NULL);
	arena->id = ARENA_NO_ID;
	arena->exported = false;
	client_close(&arena->fd);
}

RBK_EXPORT int rbk_arena_new_flags(struct rbk *rbk, size_t bytes, unsigned int flags,
				   struct rbk_arena **ret, struct rbk_error *error)
{
	client_cleanup(arena_freep) struct rbk_arena *arena = NULL;
	size_t page_bytes = client_page_bytes();
	int r;

	r = client_check(rbk, error);
	if (r)
		return r;
	if (flags & ~RBK_ARENA_MEMFD)
		return client_error(error, -EINVAL, "unknown flags 0x%x of an arena", flags);
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

	r = -EOPNOTSUPP;
	if (rbk->exports && !(flags & RBK_ARENA_MEMFD)) {
		r = arena_ask(arena, error);
		if (is_refusal(r))
			arena_unask(arena);
	}
	if (is_refusal(r))
		r = arena_make(arena, error);
	if (r)
		return r;
	*ret = arena;
	arena = NULL;
	return 0;
}

RBK_EXPORT int rbk_arena_new(struct rbk *rbk, size_t bytes, struct rbk_arena **ret,
			     struct rbk_error *error)
{
	return rbk_arena_new_flags(rbk, bytes, 0, ret, error);
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
	uint64_t segment_bytes = arena->segment_bytes, left;
	void *pointer;

	if (arena->sealed || bytes > arena->bytes - arena->used)
		return NULL;
	/*
	 * Not over the end of a segment if that can be helped: it starts at the next one, unless it
	 * fits in none, or not there any more, which is worth less than memory.
	 */
	if (segment_bytes > 0 && bytes <= segment_bytes) {
		left = segment_bytes - arena->used % segment_bytes;
		if (bytes > left && left + bytes <= arena->bytes - arena->used)
			arena->used += left;
	}
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

/* The same bytes in a memfd, open for a copy and nothing mapped. */
static int copy_to_memfd(const struct rbk_arena *arena, int *ret_fd, struct rbk_error *error)
{
	client_cleanup(client_close) int fd = -1;
	size_t done = 0;
	ssize_t n;
	int r;

	r = client_memfd_new("ringbroker-arena", arena->bytes, &fd);
	while (!r && done < arena->bytes) {
		n = pwrite(fd, arena->data + done, arena->bytes - done, (off_t)done);
		if (n > 0)
			done += (size_t)n;
		else if (n == 0 || errno != EINTR)
			r = n == 0 ? -EIO : -errno;
	}
	if (r)
		return client_error(error, r, "cannot make a copy of the arena to seal: %m");
	*ret_fd = fd;
	fd = -1;
	return 0;
}

/* Takes the arena from the broker, whose tasks may still use it. */
static int arena_take_back(struct rbk_arena *arena, struct rbk_error *error)
{
	int r;

	if (arena->id == ARENA_NO_ID)
		return 0;
	r = client_request_id(arena->rbk, RBK_WIRE_ARENA_REMOVE, arena->id, error);
	/* Too late is not never: the broker will give it up. */
	if (!r || r == -ETIME)
		arena->id = ARENA_NO_ID;
	return r;
}

/*
 * Puts the bytes of an arena into a memfd at the same address: of an exported one, which cannot be
 * sealed, or of one that cannot be mapped writable again. Once the broker has given it up, only we
 * write it.
 */
static int arena_convert(struct rbk_arena *arena, struct rbk_error *error)
{
	int old_fd = arena->fd, fd = -1, r;

	r = copy_to_memfd(arena, &fd, error);
	if (r)
		return r;
	arena->fd = fd;
	r = arena_map_again(arena, PROT_READ | PROT_WRITE, MAP_SHARED);
	if (r) {
		arena->fd = old_fd;
		close(fd);
		return client_error(error, r, "cannot map a copy of the arena: %m");
	}
	close(old_fd);
	arena->exported = false;
	arena->segment_bytes = arena->rbk->segment_bytes;
	return 0;
}

RBK_EXPORT int rbk_arena_seal(struct rbk_arena *arena, struct rbk_error *error)
{
	int r;

	r = client_check(arena->rbk, error);
	if (r)
		return r;
	if (arena->sealed)
		return arena->id == ARENA_NO_ID ? arena_share(arena, error) : 0;

	r = arena_take_back(arena, error);
	if (!r && arena->exported)
		r = arena_convert(arena, error);
	if (r)
		return r;
	r = arena_map_again(arena, PROT_READ, MAP_PRIVATE);
	if (r) {
		client_error(error, r, "cannot map the arena read-only: %m");
	} else if (fcntl(arena->fd, F_ADD_SEALS, F_SEAL_WRITE)) {
		r = client_error(error, -errno,
				 "cannot seal the arena: another process still maps it: %m");
		/* Writable memory must not become read-only because sealing failed. */
		if (arena_map_again(arena, PROT_READ | PROT_WRITE, MAP_SHARED) &&
		    arena_convert(arena, NULL))
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
