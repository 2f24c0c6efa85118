#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Peers: identities of clients, as the kernel reports them
 *
 * User, group and supplementary groups are those at the time of connecting. The cgroup and the
 * executable are looked up in /proc when requested. They are used only if they are known to belong
 * to the client, because its process id may have passed to another process. Unknown values are
 * absent. Reactor thread; never waits for a client.
 */
#include "tenant/policy.h"

struct peer_identity {
	struct peer peer; /* points into the other members */
	gid_t *groups;
	char *cgroup;
	char comm[16];    /* name of the process; empty: unknown */
	int pidfd;        /* process that connected; -1: unknown */
	bool lacks_pidfd; /* the kernel has no pidfds for sockets */
};
#define PEER_IDENTITY_INIT ((struct peer_identity){.pidfd = -1})

/* Added to POLICY_MATCH_*: comm. */
enum { PEER_COMM = 1 << 16 };

/*
 * Identify the peer of the connected socket @fd: the process and user always, the rest as requested
 * with @kinds. @identity is PEER_IDENTITY_INIT or deinitialised.
 * Return: 0, or a negative errno.
 */
int peer_identity_init(struct peer_identity *identity, int fd, uint32_t kinds);
void peer_identity_deinit(struct peer_identity *identity);
