#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Metrics of this broker
 *
 * Puts the endpoint and the root page that it serves together. Reactor thread only.
 */
struct metrics;
struct options;
struct server;

/*
 * Serves what --metrics asks for, if it does, until endpoint_stop(). Logs where, or why not.
 * Return: 0, *ret is NULL if nothing was asked for; else the status to exit with.
 */
int endpoint_start(const struct options *options, struct server *server, struct metrics **ret);

/* Before the server is freed. @metrics may be NULL. */
void endpoint_stop(struct metrics *metrics, struct server *server);
