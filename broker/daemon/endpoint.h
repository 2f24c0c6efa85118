#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Metrics of this broker
 *
 * Puts the endpoint and the root page that it serves together. Reactor thread only.
 */
#include <stdint.h>

struct endpoint;
struct loop;
struct options;
struct server;

/* For so long after a scrape figures are kept up to date for the next one. */
static const uint64_t endpoint_awake_ns = 60000000000;

/*
 * Serves what --metrics asks for, if it does, until endpoint_stop(). Logs where, or why not. Rests
 * when nobody has scraped for @awake_ns, endpoint_awake_ns but in tests.
 * Return: 0, *ret is NULL if nothing was asked for; else the status to exit with.
 */
int endpoint_start(const struct options *options, struct loop *loop, struct server *server,
		   uint64_t awake_ns, struct endpoint **ret);

/* Before the server and the loop are freed. @endpoint may be NULL. Return: NULL. */
struct endpoint *endpoint_stop(struct endpoint *endpoint);
