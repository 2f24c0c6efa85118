/* SPDX-License-Identifier: MIT */
/*
 * Rights of administrators
 *
 * The socket's permissions exclude most other users, but the peer's credentials at the time of
 * connecting decide. Sessions of administrators belong to no tenant, are charged to the broker, and
 * are counted separately. No tenant's limit can exclude an administrator, and administrators use
 * nothing of the tenants' limits.
 */
#include <unistd.h>

#include "session/server-private.h"

static bool is_in_group(const struct peer *peer, gid_t gid)
{
	if (peer->gid == gid)
		return true;
	for (uint32_t i = 0; i < peer->n_groups; i++)
		if (peer->groups[i] == gid)
			return true;
	return false;
}

uint64_t admin_rights(const struct server_admin_options *options, const struct peer *peer)
{
	if (peer->uid == 0 || peer->uid == geteuid())
		return RBK_FEAT_ADMIN | RBK_FEAT_ADMIN_CHANGE;
	for (uint32_t i = 0; i < options->n_users; i++)
		if (options->users[i] == peer->uid)
			return RBK_FEAT_ADMIN | RBK_FEAT_ADMIN_CHANGE;
	return options->has_group && is_in_group(peer, options->gid) ? RBK_FEAT_ADMIN : 0;
}

bool admin_session_begin(struct server *server, uint64_t rights)
{
	uint32_t max = rights & RBK_FEAT_ADMIN_CHANGE ? SERVER_ADMIN_SESSIONS
						      : SERVER_ADMIN_LOOKING_SESSIONS;

	if (server->n_admin_sessions >= max)
		return false;
	server->n_admin_sessions++;
	return true;
}

void admin_session_end(struct server *server)
{
	server->n_admin_sessions--;
}
