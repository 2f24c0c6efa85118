#pragma once
/* SPDX-License-Identifier: MIT */
/* Ring memory: making and unmaking a ring's areas and bell */
#include "session/session.h"

enum {
	RING_E_GEOMETRY = 1, /* not a power of two, or above the limit */
	RING_E_QUOTA = 2,
	RING_E_UNSEALED = 3, /* the client's fault: its submission area cannot be sealed */
	RING_E_UNSUITABLE =
		4, /* the areas of an earlier broker are none; session_ring.why says why */
	RING_E_MORE = 5,
};

/*
 * Charge for a ring, and create its object, without memory for entries, and the holds for the parts
 * that a client may keep. Reactor.
 * Return: 0; RING_E_*; a negative errno.
 */
int ring_new(struct session *session, uint32_t id, uint32_t n_entries, struct session_ring **ret);

/*
 * As ring_new(), for a ring of an earlier broker: @fds are its submission and its completion area,
 * which the function takes on success.
 * Return: as ring_new(); RING_E_UNSUITABLE with *ret_why set: they are no areas of such a ring.
 */
int ring_new_restored(struct session *session, uint32_t id, uint32_t n_entries, int fds[2],
		      struct session_ring **ret, const char **ret_why);

/*
 * Make, map and seal both areas; make the bell and the dispatcher's memory, a step per call. The
 * caller sends client_fds. The ring is not watched, not known to the dispatcher, and not in the
 * SIGBUS table. Setup thread.
 * Return: 0; RING_E_MORE: call again; RING_E_UNSUITABLE or a negative errno, after which
 * ring_unmake() is still due.
 */
int ring_make(struct session_ring *ring);

/*
 * Check an area that a client has sent: a memfd of @bytes whose size and pages are fixed. Return:
 * NULL; a sentence about the area. Any thread.
 */
const char *ring_restore_check(int fd, uint64_t bytes);

/*
 * Fill the new completion area of a restored ring: unread completions, records of unfinished
 * entries, and the commit. Sets the ring's indices and n_restored. Setup thread; in ring-restore.c.
 * Return: 0; RING_E_UNSUITABLE; a negative errno.
 */
int ring_restore(struct session_ring *ring);

/*
 * Seal the submission area: the client, which has mapped it, can neither map it writable again nor
 * remove pages, and all pages are present. Close client_fds. A closers.h thread, because adding a
 * seal waits for processes that write to the file or punch holes into it.
 * Return: 0; RING_E_UNSEALED; a negative errno.
 */
int ring_seal(struct session_ring *ring);

/*
 * Undo ring_make(), even one that failed. The ring's watch must be gone, and the dispatcher must
 * have forgotten the ring. Our end of the bell stays open. Setup thread.
 */
void ring_unmake(struct session_ring *ring);

/* Undo ring_new(). Reactor. Return: NULL. */
struct session_ring *ring_free(struct session_ring *ring);

DEFINE_CLEANUP(struct session_ring *, ring_free)
