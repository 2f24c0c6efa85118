#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The checkpoint: what the next broker needs to place its first tasks as this one placed its last
 *
 * Reactor thread.
 */
#include <stdbool.h>

#include "util/cleanup.h"

struct broker;
struct checkpoint;
struct options;

/*
 * Restore what an earlier broker has kept in the cache folder, if there is one, and keep the
 * present state there from time to time. Call after the dispatcher was made. @broker is borrowed.
 * Return: 0, whatever the file is like; -ENOMEM.
 */
int checkpoint_new(struct broker *broker, struct checkpoint **ret);
/* Return: NULL. */
struct checkpoint *checkpoint_free(struct checkpoint *checkpoint);

/* Return true if the checkpoint was written a moment ago: an earlier broker's clients may wait. */
bool checkpoint_is_fresh(const struct options *options);

/* Keep the present state now: the broker is about to end. @checkpoint may be NULL. */
void checkpoint_write(struct checkpoint *checkpoint);

DEFINE_CLEANUP(struct checkpoint *, checkpoint_free)
