#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Who is at the other end of a connection, by the kernel's word
 *
 * User, group and supplementary groups are those that the client had when it connected. Its cgroup
 * and executable are looked up in /proc, at the time of asking, and only taken if they are known to
 * be the client's own: its process id may have passed to another process since. What cannot be
 * found out is absent. Reactor thread; never waits for a client.
 */
#include "tenant/policy.h"

struct peer_identity {
	struct peer peer; /* points into the rest */
	gid_t *groups;
	char *cgroup;
	char comm[16];    /* what its process calls itself; empty: not known */
	int pidfd;        /* of the process that connected; -1: not known, */
	bool lacks_pidfd; /* since the kernel has none for sockets */
};
#define PEER_IDENTITY_INIT ((struct peer_identity){.pidfd = -1})

/* Beside POLICY_MATCH_*: comm. */
enum { PEER_COMM = 1 << 16 };

/*
 * Finds out what is asked for with @kinds, process and user always. Fills
 * @identity, which is PEER_IDENTITY_INIT or deinitialised, for the connected socket @fd.
 * Return: 0 or negative errno.
 */
int peer_identity_init(struct peer_identity *identity, int fd, uint32_t kinds);
void peer_identity_deinit(struct peer_identity *identity);
