#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Making and unmaking a ring's memory and bell
 */
#include "session/session.h"

enum {
	RING_E_GEOMETRY = 1, /* not a power of two, or above the limit */
	RING_E_QUOTA = 2,
};

/* Descriptors for the client: the areas and its end of the bell. */
struct ring_fds {
	int sq, cq, bell;
};

/*
 * Makes both areas, maps and seals them, makes the bell. @ret_fds are the caller's to send and
 * close. The ring is not watched and not known to the dispatcher.
 * Return: 0; RING_E_*; negative errno.
 */
int ring_new(struct session *session, uint32_t id, uint32_t n_entries, struct ring_fds *ret_fds,
	     struct session_ring **ret);

/* Unmaps and closes; its watch must be gone. Return: NULL. */
struct session_ring *ring_free(struct session_ring *ring);

DEFINE_CLEANUP(struct session_ring *, ring_free)
