#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Metrics of this broker
 *
 * This module connects the metrics endpoint with the root page that it serves. Reactor thread only.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct endpoint;
struct loop;
struct options;
struct server;

/* Time after a scrape for which figures are kept up to date for the next one. */
static const uint64_t endpoint_awake_ns = 60000000000;

/*
 * Serve what --metrics asks for, if anything, until endpoint_stop(). Log the address, or the reason
 * of a failure. The endpoint rests if there was no scrape for @awake_ns, endpoint_awake_ns except
 * in tests.
 * Return: 0, *ret is NULL if no metrics were asked for; else the status to exit with.
 */
int endpoint_start(const struct options *options, struct loop *loop, struct server *server,
		   uint64_t awake_ns, struct endpoint **ret);

/*
 * Try to listen where --metrics says, for a moment.
 * Return: true if it is possible; else @sentence says why not.
 */
bool endpoint_try(const struct options *options, char *sentence, size_t bytes);

/*
 * Stop the endpoint, before the server and the loop are freed. @endpoint may be NULL. Return: NULL.
 */
struct endpoint *endpoint_stop(struct endpoint *endpoint);
