#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Making and unmaking a ring's memory and bell
 */
#include "session/session.h"

enum {
	RING_E_GEOMETRY = 1, /* not a power of two, or above the limit */
	RING_E_QUOTA = 2,
	RING_E_UNSEALED = 3, /* the client's doing: its submission area cannot be sealed */
};

/*
 * Charges for a ring and makes the object that says so, without memory for entries, and the holds
 * of what a client may keep of it. Reactor.
 * Return: 0; RING_E_*; negative errno.
 */
int ring_new(struct session *session, uint32_t id, uint32_t n_entries, struct session_ring **ret);

/*
 * Makes both areas, maps and seals them, makes the bell and the dispatcher's memory. The ring's
 * client_fds are to be sent. The ring is not watched, not known to the dispatcher, and not in the
 * SIGBUS table. Setup thread. Return: 0; negative errno, and ring_unmake() is still due.
 */
int ring_make(struct session_ring *ring);

/*
 * Sees to it that the submission area stays as it is: the client, which has mapped it, can neither
 * map it writable again nor take pages away, and all of them are there. Closes client_fds. A thread
 * of closers.h, because adding a seal waits for whoever writes to the file or punches holes into
 * it. Return: 0; RING_E_UNSEALED; negative errno.
 */
int ring_seal(struct session_ring *ring);

/*
 * Undoes ring_make(), however far that came; the ring's watch must be gone, and the dispatcher must
 * have forgotten it. What is left is our end of the bell. Setup thread.
 */
void ring_unmake(struct session_ring *ring);

/* Undoes ring_new(). Reactor. Return: NULL. */
struct session_ring *ring_free(struct session_ring *ring);

DEFINE_CLEANUP(struct session_ring *, ring_free)
