#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Metrics of this broker
 *
 * Puts the endpoint and the root page that it serves together. Reactor thread only.
 */
struct endpoint;
struct loop;
struct options;
struct server;

/*
 * Serves what --metrics asks for, if it does, until endpoint_stop(). Logs where, or why not.
 * Return: 0, *ret is NULL if nothing was asked for; else the status to exit with.
 */
int endpoint_start(const struct options *options, struct loop *loop, struct server *server,
		   struct endpoint **ret);

/* Before the server and the loop are freed. @endpoint may be NULL. Return: NULL. */
struct endpoint *endpoint_stop(struct endpoint *endpoint);
