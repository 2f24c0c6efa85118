#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Restarting: the next broker takes this one's place
 *
 * Reactor thread.
 */
#include <stdbool.h>

struct broker;
struct restart;
struct server_restarter;

/*
 * Keep what the next broker is started with: the path of this program, its arguments and its
 * environment; and the numbers of descriptors that pass sockets to it. Call first in main(), after
 * streams_init(). Without memory, the broker cannot be restarted. @argv is borrowed.
 */
struct restart *restart_new(char **argv, struct broker *broker);
/* Return: NULL. */
struct restart *restart_free(struct restart *restart);

/*
 * Return true if an earlier broker of this process passed its listening sockets on, which then are
 * this broker's own, and no service manager's. Removes the mark from the environment.
 */
bool restart_was_passed(void);

/* This broker serves clients from now on. */
void restart_ready(struct restart *restart);

/* The broker stops: give up a restart that has not begun to drain. @restart may be NULL. */
void restart_stop(struct restart *restart);

/*
 * Wait until a check that is given up has ended: the setup thread gives orders to the steward. Call
 * after restart_stop(), before the steward frees the parts. @restart may be NULL.
 */
void restart_end(struct restart *restart);

struct server_restarter restart_hooks(struct restart *restart);
