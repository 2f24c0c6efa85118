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
};
#define PEER_IDENTITY_INIT ((struct peer_identity){.groups = NULL})

/*
 * Finds out what is asked for with @kinds (POLICY_MATCH_*), process and user always. Fills
 * @identity, which is PEER_IDENTITY_INIT or deinitialised, for the connected socket @fd.
 * Return: 0 or negative errno.
 */
int peer_identity_init(struct peer_identity *identity, int fd, uint32_t kinds);
void peer_identity_deinit(struct peer_identity *identity);
