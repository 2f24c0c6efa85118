#pragma once
/* SPDX-License-Identifier: MIT */
/* Rings that an earlier broker made: see restore.c. All functions: reactor. */
#include "dispatch/dispatch-private.h"

/* Take over what an earlier broker has finished in a ring that it made. */
void restore_begin(struct dispatch_ring *ring);

/*
 * Prepare to admit @sqe, the entry of the next record, again: its task gets the record's slot.
 * *ret_admit_ticks is set to the time of its first admission.
 * Return: 0; the errno with which an entry that cannot be repeated completes: restore_refuse().
 */
int restore_prepare(struct dispatch *dispatch, struct dispatch_ring *ring,
		    const struct rbk_sqe *sqe, uint64_t *ret_admit_ticks);

/* Complete an entry that is not to run, as if it had been rejected. */
void restore_refuse(struct dispatch *dispatch, struct dispatch_ring *ring,
		    const struct rbk_sqe *sqe, int res);

/*
 * The entry was admitted or refused. Where its table has to be copied first, it stays the next one.
 */
void restore_finish(struct dispatch_ring *ring);
