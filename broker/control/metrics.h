#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The endpoint that Prometheus scrapes
 *
 * HTTP, in a thread of its own, which reads a statistics page as any other reader does: the reactor
 * takes no part in a scrape, and whoever connects can cost this thread's time only. One request a
 * connection; so many connections, each for so long; when all are taken the oldest makes room.
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
	/* The root page, kept up to date by whoever writes it until metrics_free(). */
	struct rbk_stats_view view;
	const char *version; /* the broker's */
	/* Before the page is read for somebody, in the endpoint's thread; may be NULL. */
	void (*scraped)(void *context);
	void *context;
};

/*
 * Listens, and starts the thread. Return: 0; METRICS_E_IN_USE to METRICS_E_NO_LIBRARY; negative
 * errno.
 */
int metrics_new(const struct metrics_options *options, struct metrics **ret);

/* Could the socket in the file system be given to the group? */
bool metrics_has_group(const struct metrics *metrics);

/* Ends the thread, whatever clients do, and removes the socket. Return: NULL. */
struct metrics *metrics_free(struct metrics *metrics);

DEFINE_CLEANUP(struct metrics *, metrics_free)
