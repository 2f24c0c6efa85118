#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The endpoint that Prometheus scrapes
 *
 * HTTP, in a thread of its own, which reads a statistics page as any other reader does: the reactor
 * takes no part in a scrape, and clients can only use up this thread's time. Each connection has
 * one request. The number and the time of connections are limited; when all are taken the oldest
 * ends.
 */
#include <stdbool.h>
#include <sys/types.h>
#include <ringbroker/stats.h>

#include "control/metrics-address.h"
#include "util/cleanup.h"

struct metrics;

struct metrics_options {
	struct metrics_address address;
	gid_t gid; /* of a socket in the file system; -1: the broker's */
	/* The root page, which must be kept up to date until metrics_free(). */
	struct rbk_stats_view view;
	const char *version; /* the broker's */
	/* Called in the endpoint's thread before the page is read; may be NULL. */
	void (*scraped)(void *context);
	void *context;
};

/*
 * Listen, and start the thread.
 * Return: 0; METRICS_E_IN_USE to METRICS_E_NO_LIBRARY; negative errno.
 */
int metrics_new(const struct metrics_options *options, struct metrics **ret);

/* Return false if the socket in the file system could not be given to the group. */
bool metrics_has_group(const struct metrics *metrics);

/*
 * End the thread, whatever clients do, and remove the socket.
 * Return: NULL.
 */
struct metrics *metrics_free(struct metrics *metrics);

DEFINE_CLEANUP(struct metrics *, metrics_free)
