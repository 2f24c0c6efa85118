#pragma once
/* SPDX-License-Identifier: MIT */
/* Ring memory: making and unmaking a ring's areas and bell */
#include "session/session.h"

enum {
	RING_E_GEOMETRY = 1, /* not a power of two, or above the limit */
	RING_E_QUOTA = 2,
	RING_E_UNSEALED = 3, /* the client's fault: its submission area cannot be sealed */
};

/*
 * Charge for a ring, and create its object, without memory for entries, and the holds for the parts
 * that a client may keep. Reactor.
 * Return: 0; RING_E_*; a negative errno.
 */
int ring_new(struct session *session, uint32_t id, uint32_t n_entries, struct session_ring **ret);

/*
 * Make, map and seal both areas; make the bell and the dispatcher's memory. The caller sends
 * client_fds. The ring is not watched, not known to the dispatcher, and not in the SIGBUS table.
 * Setup thread.
 * Return: 0; a negative errno, after which ring_unmake() is still due.
 */
int ring_make(struct session_ring *ring);

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
