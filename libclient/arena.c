/* SPDX-License-Identifier: MIT */
/*
 * Arenas
 *
 * An arena is a memfd whose pages all exist and whose size cannot change, mapped by this process
 * and by the broker. F_SEAL_WRITE requires that no process maps the memfd writable. Sealing
 * therefore removes the arena from the broker first, then replaces this process's mapping in place
 * by a read-only private one, seals the memfd, and shares it again. The mapping is private because
 * kernels before 6.7 refuse shared mappings of a file with F_SEAL_WRITE; it makes no difference,
 * because the file is never written again.
 *
 * The broker does not remove an arena while plans have constants in it. Plans therefore hold
 * references to their arenas in this library, and the arena is removed from the broker with the
 * last reference, whatever the order in which a program frees its objects.
 *
 * A broker that offers RBK_FEAT_FIXED_ARENAS is asked to seal the memfd against further writable
 * mappings after both sides have mapped it. No process can then remove a page, so the broker
 * accesses the arena directly. A memfd of an arena is therefore mapped writable once in its life;
 * arena-move.c replaces it for the next broker.
 *
 * Where the broker asks for it, a device makes the memory and this process maps its dma-buf. A
 * dma-buf cannot be sealed: rbk_arena_seal() replaces it by a memfd with the same bytes, so
 * programs can treat both kinds alike. The memory outlives the broker that had it made: the next
 * broker gets the dma-buf.
 *
 * When the connection re-attaches, reattach.c registers each arena that has an id with the next
 * broker. An id is therefore set and removed under reattach.objects only. An arena without one is
 * its own thread's to change: the next broker hears of it when that thread shares it again. An
 * arena keeps its id, memfd and mapping until a broker has removed it, because that broker waits
 * for tasks, which the next one has to finish if the first one dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libclient/private.h"
#include "shm/number.h"

#define ARENA_NO_ID RBK_REF_ARENA(RBK_REF_INVALID)

/* Tell rbk_sqe_check() what tasks can use now. */
static void arena_know(struct rbk_arena *arena)
{
	client_know(arena->rbk, &arena->rbk->arenas, &arena->known, arena->id, arena->sealed,
		    arena->data);
}

/* Segments are those of the present broker. */
static void arena_set_segment(struct rbk_arena *arena)
{
	const uint64_t bytes = __atomic_load_n(&arena->rbk->segment_bytes, __ATOMIC_RELAXED);

	__atomic_store_n(&arena->segment_bytes, bytes, __ATOMIC_RELAXED);
}

/*
 * Count the arena while no other broker could restore it: the connection does not re-attach then.
 * Without fixed arenas each small task would take a hundred times as long, so arenas are fixed also
 * in a process that cannot move them.
 */
static void arena_count(struct rbk_arena *arena)
{
	struct rbk *rbk = arena->rbk;
	uint32_t *count = NULL;

	if (arena->exported && !(rbk->features & RBK_FEAT_RESTORE))
		count = &rbk->reattach.n_exported;
	else if (arena->fixed && !arena->sealed && rbk->reattach.lacks_userfaultfd)
		count = &rbk->reattach.n_unmovable;
	if (count == arena->count)
		return;
	if (count)
		client_count_held(rbk, count, 1);
	if (arena->count)
		client_count_held(rbk, arena->count, -1);
	arena->count = count;
}

static void arena_set_exported(struct rbk_arena *arena, bool is_exported)
{
	arena->exported = is_exported;
	arena_count(arena);
}

static void arena_set_fixed(struct rbk_arena *arena, bool is_fixed)
{
	arena->fixed = is_fixed;
	arena_count(arena);
}

/* Return true if the next broker may get the arena. */
static bool arena_may_be_restored(const struct rbk_arena *arena)
{
	return arena->rbk->reattach.is_possible &&
	       (!arena->exported || arena->rbk->features & RBK_FEAT_RESTORE);
}

static void arena_freep(struct rbk_arena **arena)
{
	rbk_arena_free(*arena);
}

int client_arena_add(struct rbk *rbk, struct rbk_arena *arena, struct client_answer *ret,
		     struct rbk_error *error)
{
	struct rbk_wire_arena_add request = {
		.request.type = RBK_WIRE_ARENA_ADD,
		.bytes = arena->bytes,
	};
	struct client_message message = {
		.request = &request.request,
		.request_bytes = sizeof(request),
		.fd = arena->fd,
		.repeat = CLIENT_ONCE,
	};
	int r;

	if (arena->exported) {
		request.bytes |= RBK_WIRE_ARENA_DMA_BUF;
	} else if (!arena->sealed && (rbk->features & RBK_FEAT_FIXED_ARENAS)) {
		/* This process has mapped the arena, and needs no further writable mapping. */
		request.bytes |= RBK_WIRE_ARENA_FIX;
		arena_set_fixed(arena, true);
	}
	r = client_request(rbk, &message, ret, error);
	/* A broker that refuses the arena has not fixed it. */
	if (r < 0 && r != -ETIME && !client_check(rbk, NULL))
		arena_set_fixed(arena, false);
	return r;
}

static void arena_unmap(struct rbk_arena *arena)
{
	if (arena->data)
		munmap(arena->data, arena->bytes);
	arena->data = NULL;
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
		client_remove(arena->rbk, RBK_WIRE_ARENA_REMOVE, arena->id, NULL);
	else
		client_objects_lock(arena->rbk);
	client_unknow(arena->rbk, &arena->known);
	client_objects_unlock(arena->rbk);
	arena_unmap(arena);
	client_close(&arena->fd);
	arena->fixed = false;
	arena_set_exported(arena, false);
	client_unref(arena->rbk);
	free(arena);
	return NULL;
}

RBK_EXPORT struct rbk_arena *rbk_arena_free(struct rbk_arena *arena)
{
	if (!arena)
		return NULL;
	client_objects_lock(arena->rbk);
	/* No thread reads a table there from now on. */
	if (arena->known.is_known)
		client_know(arena->rbk, &arena->rbk->arenas, &arena->known, arena->id,
			    arena->sealed, NULL);
	/*
	 * The next broker needs the descriptor, to finish tasks until the arena is removed, and as
	 * constants until the last plan is freed. To move an arena takes its mapping, too.
	 */
	if (!arena_may_be_restored(arena) || arena->sealed || arena->exported)
		arena_unmap(arena);
	if (!arena_may_be_restored(arena))
		client_close(&arena->fd);
	client_objects_unlock(arena->rbk);
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
	uint64_t segment_bytes = __atomic_load_n(&arena->segment_bytes, __ATOMIC_RELAXED), left;
	void *pointer;

	if (arena->sealed || bytes > arena->bytes - arena->used)
		return NULL;
	/*
	 * Do not straddle the end of a segment: start at the next segment if @bytes fit into a
	 * segment and into the rest of the arena. Otherwise straddle: memory is worth more.
	 */
	if (segment_bytes > 0 && bytes <= segment_bytes) {
		left = segment_bytes - arena->used % segment_bytes;
		if (bytes > left && left + bytes <= arena->bytes - arena->used)
			arena->used += left;
	}
	pointer = arena->data + arena->used;
	/* The arena's size is a multiple of the alignment: rounding up stays within it. */
	arena->used += round_up(bytes, RBK_REF_ALIGN);
	return pointer;
}

RBK_EXPORT void rbk_arena_reset(struct rbk_arena *arena)
{
	arena->used = 0;
}

/*
 * Map the arena anew at its address. The kernel checks the limits of the process before it removes
 * the old mapping. After that, only the allocation of a few small objects that describe the new
 * mapping can fail, with -ENOMEM, and the address range may then be left without a mapping. Mapping
 * the memfd elsewhere first, to move it here by mremap(), would be no better: mremap() also unmaps
 * its target first (as of Linux 6.16), and then allocates as much.
 * Return: 0; negative errno, and the old mapping remains, with this exception.
 */
static int arena_map_again(struct rbk_arena *arena, int protection, int flags)
{
	void *data = mmap(arena->data, arena->bytes, protection, flags | MAP_FIXED, arena->fd, 0);

	return data == MAP_FAILED ? -errno : 0;
}

/* Copy the arena's bytes to the beginning of @fd, an unmapped memfd. Return: 0; negative errno. */
static int arena_copy(const struct rbk_arena *arena, int fd)
{
	size_t done = 0;
	ssize_t n;

	while (done < arena->bytes) {
		n = pwrite(fd, arena->data + done, arena->bytes - done, (off_t)done);
		if (n > 0)
			done += (size_t)n;
		else if (n == 0)
			return -EIO;
		else if (errno != EINTR)
			return -errno;
	}
	return 0;
}

int client_arena_exchange(struct rbk_arena *arena, int *fd, struct rbk_error *error)
{
	int old_fd = arena->fd, r;

	arena->fd = *fd;
	r = arena_map_again(arena, PROT_READ | PROT_WRITE, MAP_SHARED);
	if (r) {
		arena->fd = old_fd;
		return client_error(error, r, "cannot map a copy of the arena: %m");
	}
	*fd = old_fd;
	arena_set_fixed(arena, false);
	arena_set_segment(arena);
	return 0;
}

/*
 * Remove the arena from the broker, whose tasks may still use it. *ret_may_be_mapped: there is no
 * broker, and the last one, which ends in order, may unmap the arena later.
 */
static int arena_take_back(struct rbk_arena *arena, bool *ret_may_be_mapped,
			   struct rbk_error *error)
{
	bool is_away;
	int r;

	*ret_may_be_mapped = false;
	if (arena->id == ARENA_NO_ID)
		return 0;
	r = client_remove(arena->rbk, RBK_WIRE_ARENA_REMOVE, arena->id, error);
	is_away = __atomic_load_n(&arena->rbk->reattach.is_away, __ATOMIC_ACQUIRE);
	/* After -ETIME the broker removes the arena later; without one, the next broker gets it. */
	if (!r || (r == -ETIME && !is_away))
		arena->id = ARENA_NO_ID;
	*ret_may_be_mapped = is_away;
	client_objects_unlock(arena->rbk);
	return r;
}

/*
 * Replace an arena's memory by a memfd with the same bytes at the same address. This serves arenas
 * made by a device, which cannot be sealed, and arenas that cannot be mapped writable again, or
 * that a broker may still map. The broker must have removed the arena before, so that only this
 * process writes it.
 */
static int arena_convert(struct rbk_arena *arena, struct rbk_error *error)
{
	client_cleanup(client_close) int fd = -1;
	int r;

	r = client_memfd_new(CLIENT_ARENA_MEMFD, arena->bytes, &fd);
	if (!r)
		r = arena_copy(arena, fd);
	if (r)
		return client_error(error, r, "cannot make a copy of the arena to seal: %m");
	r = client_arena_exchange(arena, &fd, error);
	if (!r)
		arena_set_exported(arena, false);
	return r;
}

/* Register the memfd with the broker, and tell rbk_sqe_check(). */
static int arena_share(struct rbk_arena *arena, struct rbk_error *error)
{
	const uint64_t timeout_ns = arena->rbk->timeout_ns;
	const uint64_t begin_ns = client_now_ns();
	struct client_answer answer;
	int r;

	do {
		/* A broker that died before it answered may have fixed the memfd. */
		r = arena->fixed && !arena->sealed ? arena_convert(arena, error) : 0;
		if (!r)
			r = client_arena_add(arena->rbk, arena, &answer, error);
		if (r == CLIENT_E_GONE && client_may_repeat(begin_ns, timeout_ns, error))
			r = -ETIME;
		if (r < 0)
			return r;
	} while (r == CLIENT_E_GONE || !client_objects_lock_for(arena->rbk, answer.generation));
	arena->id = answer.reply.id.id;
	arena_know(arena);
	client_objects_unlock(arena->rbk);
	return 0;
}

/* Map arena->bytes of the descriptor at an address that the kernel chooses. */
static int arena_map(struct rbk_arena *arena, struct rbk_error *error)
{
	void *data = mmap(NULL, arena->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, 0);

	if (data == MAP_FAILED)
		return client_error(error, -errno, "cannot map an arena of %zu bytes: %m",
				    arena->bytes);
	arena->data = data;
	return 0;
}

/* Make the memory as a memfd of this process. */
static int arena_make(struct rbk_arena *arena, struct rbk_error *error)
{
	int r;

	r = client_memfd_new(CLIENT_ARENA_MEMFD, arena->bytes, &arena->fd);
	if (r)
		return client_error(error, r, "cannot make an arena of %zu bytes: %m",
				    arena->bytes);
	r = arena_map(arena, error);
	if (r)
		return r;
	arena_set_segment(arena);
	return arena_share(arena, error);
}

/* Map the dma-buf that the broker has answered with. */
static int arena_map_exported(struct rbk_arena *arena, struct rbk_error *error)
{
	const off_t bytes = lseek(arena->fd, 0, SEEK_END);

	/* Access beyond the file's end would raise SIGBUS, much later. */
	if (bytes >= 0 && (uint64_t)bytes >= arena->bytes)
		return arena_map(arena, error);
	client_lose(arena->rbk, -EPROTO);
	return client_error(error, -EPROTO, "the broker made an arena of %lld bytes instead of %zu",
			    (long long)bytes, arena->bytes);
}

/*
 * Have the broker make the memory on a device, map it, and tell rbk_sqe_check(). Return: 0;
 * negative errno: nothing has changed.
 */
static int arena_ask(struct rbk_arena *arena, struct rbk_error *error)
{
	struct rbk_wire_arena_new request = {
		.request.type = RBK_WIRE_ARENA_NEW,
		.bytes = arena->bytes,
	};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct rbk *rbk = arena->rbk;
	struct client_answer answer;
	int r;

	arena_set_exported(arena, true);
	do {
		/* The memory of a broker that has died since is empty, so it is not restored. */
		arena_unmap(arena);
		client_close(&arena->fd);
		r = client_request(rbk, &message, &answer, error);
		if (r)
			break;
		arena->fd = answer.fds[0];
		r = arena_map_exported(arena, error);
		if (r)
			client_remove_unlisted(rbk, RBK_WIRE_ARENA_REMOVE, answer.reply.id.id,
					       answer.generation);
	} while (!r && !client_objects_lock_for(rbk, answer.generation));
	if (r) {
		arena_set_exported(arena, false);
		client_close(&arena->fd);
		return r;
	}
	arena->id = answer.reply.id.id;
	arena_know(arena);
	client_objects_unlock(rbk);
	return 0;
}

/* Return true if a memfd of this process may succeed after the broker's answer @r. */
static bool is_refusal(int r)
{
	return r == -EOPNOTSUPP || r == -ENOMEM || r == -EDQUOT;
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
	arena->bytes = round_up(bytes, page_bytes);

	r = -EOPNOTSUPP;
	if (__atomic_load_n(&rbk->exports, __ATOMIC_RELAXED) && !(flags & RBK_ARENA_MEMFD))
		r = arena_ask(arena, error);
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

static int arena_seal(struct rbk_arena *arena, struct rbk_error *error)
{
	bool may_be_mapped;
	int r;

	if (arena->sealed)
		return arena->id == ARENA_NO_ID ? arena_share(arena, error) : 0;

	r = arena_take_back(arena, &may_be_mapped, error);
	if (!r && (arena->exported || may_be_mapped))
		r = arena_convert(arena, error);
	if (r)
		return r;
	r = arena_map_again(arena, PROT_READ, MAP_PRIVATE);
	if (r) {
		client_error(error, r, "cannot map the arena read-only: %m");
	} else if (fcntl(arena->fd, F_ADD_SEALS, F_SEAL_WRITE)) {
		r = client_error(error, -errno,
				 "cannot seal the arena: another process still maps it: %m");
		/* Writable memory must stay writable when sealing fails. */
		if (arena_map_again(arena, PROT_READ | PROT_WRITE, MAP_SHARED) &&
		    arena_convert(arena, NULL))
			return client_error(error, -ENOMEM,
					    "the library cannot map the arena again");
	}
	if (r) {
		arena_share(arena, NULL);
		return r;
	}
	arena->sealed = true;
	arena_count(arena);
	return arena_share(arena, error);
}

RBK_EXPORT int rbk_arena_seal(struct rbk_arena *arena, struct rbk_error *error)
{
	int r;

	r = client_check(arena->rbk, error);
	if (r)
		return r;
	r = arena_seal(arena, error);
	arena_know(arena);
	return r;
}

RBK_EXPORT uint64_t rbk_arena_ref(const struct rbk_arena *arena, uint64_t offset)
{
	if (arena->id == ARENA_NO_ID || offset >= arena->bytes)
		return RBK_REF_INVALID;
	return RBK_REF(arena->id, offset);
}

RBK_EXPORT uint64_t rbk_ref(const struct rbk_arena *arena, const void *pointer)
{
	/* A pointer below the arena wraps around to an offset far beyond its end. */
	return rbk_arena_ref(arena, (uintptr_t)pointer - (uintptr_t)arena->data);
}
