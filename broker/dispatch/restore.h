#pragma once
/* SPDX-License-Identifier: MIT */
/* Rings that an earlier broker made: see restore.c. All functions: reactor. */
#include "dispatch/dispatch-private.h"

/* Take over what an earlier broker has finished in a ring that it made. */
void restore_begin(struct dispatch_ring *ring);

/*
 * Admit a batch of the ring's restored entries again, and publish.
 * Return: their number.
 */
int restore_poll(struct dispatch *dispatch, struct dispatch_ring *ring);

/*
 * Admit the next restored entry, @sqe, without publishing. Where its table has to be copied first,
 * the entry stays the next one.
 */
void restore_entry(struct dispatch *dispatch, struct dispatch_ring *ring,
		   const struct rbk_sqe *sqe);
