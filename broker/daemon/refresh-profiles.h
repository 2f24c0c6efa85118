#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Measuring devices again while clients are served
 *
 * Probes left out at the start, and old measurements, are measured while a device has nothing else
 * to do and no client has had a task for a second: a step on the setup thread or on a device would
 * delay the next task. Placement gets the new profile at once, and the cache keeps it for the next
 * start. Reactor thread only.
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
	struct account *account; /* the broker's own, charged for measuring */
	struct executor *const *executors;
	uint32_t n_executors;
};

/*
 * Make a refresh, which borrows everything that @options points to and begins by itself, a little
 * later.
 * Return: 0 or -ENOMEM.
 */
int refresh_new(const struct refresh_options *options, struct refresh **ret);

/* Begin nothing more. Work under way ends with the dispatcher and the setup thread. */
void refresh_stop(struct refresh *refresh);

/*
 * Free the refresh, after the setup thread has ended.
 * Return: NULL.
 */
struct refresh *refresh_free(struct refresh *refresh);

DEFINE_CLEANUP(struct refresh *, refresh_free)
