#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Measuring devices again while others are served
 *
 * What there was no time for at the start, and what was measured long ago, is measured while a
 * device has nothing else to do, and no client has had a task for a second: what is under way on
 * the setup thread or on a device would be in the next task's way. Placement has the new profile at
 * once, and the cache keeps it for the next start. Reactor thread only.
 */
#include <stdint.h>

#include "plan/executor.h"
#include "util/cleanup.h"

struct account;
struct dispatch;
struct loop;
struct offload;
struct profiles;
struct refresh;
struct residency;

struct refresh_options {
	struct loop *loop;
	struct offload *offload;
	struct dispatch *dispatch;
	struct residency *residency;
	struct profiles *profiles;
	struct account *account; /* the broker's own, charged for what measuring takes */
	struct executor *const *executors;
	uint32_t n_executors;
};

/* Everything pointed to is borrowed. Begins by itself, a little later. Return: 0 or -ENOMEM. */
int refresh_new(const struct refresh_options *options, struct refresh **ret);

/* Begin nothing more. Work under way ends with the dispatcher and the setup thread. */
void refresh_stop(struct refresh *refresh);

/* After the setup thread has ended. Return: NULL. */
struct refresh *refresh_free(struct refresh *refresh);

DEFINE_CLEANUP(struct refresh *, refresh_free)
