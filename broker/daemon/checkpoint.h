#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The checkpoint: what the next broker needs to place its first tasks as this one placed its last
 *
 * Reactor thread.
 */
#include "util/cleanup.h"

struct broker;
struct checkpoint;

/*
 * Restore what an earlier broker has kept in the cache folder, if there is one, and keep the
 * present state there from time to time. Call after the dispatcher was made. @broker is borrowed.
 * Return: 0, whatever the file is like; -ENOMEM.
 */
int checkpoint_new(struct broker *broker, struct checkpoint **ret);
/* Return: NULL. */
struct checkpoint *checkpoint_free(struct checkpoint *checkpoint);

/* Keep the present state now: the broker is about to end. @checkpoint may be NULL. */
void checkpoint_write(struct checkpoint *checkpoint);

DEFINE_CLEANUP(struct checkpoint *, checkpoint_free)
