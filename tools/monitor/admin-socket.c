/* SPDX-License-Identifier: MIT */
/* Reasons why a program is not connected to the administrators' socket. */
#include "monitor/admin-socket.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "monitor/text.h"

bool admin_socket_group(const char *path, gid_t *ret)
{
	const char *slash = strrchr(path, '/');
	struct stat status = {.st_mode = 0};
	mode_t needed = S_IWGRP;
	char folder[ADMIN_PATH_BYTES];
	int r = stat(path, &status);

	if (r && errno == EACCES && slash) {
		snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
		needed = S_IXGRP;
		r = stat(folder, &status);
	}
	*ret = status.st_gid;
	return r == 0 && status.st_mode & needed;
}

const char *admin_socket_users(const char *path)
{
	static char text[128];
	const struct group *group;
	gid_t gid;

	if (!admin_socket_group(path, &gid))
		return "the user that brokerd runs as";
	group = getgrgid(gid);
	if (group)
		snprintf(text, sizeof(text), "members of group %s", text_name(group->gr_name));
	else
		snprintf(text, sizeof(text), "members of group %u", gid);
	return text;
}

/* With --admin-users every user may connect, and the broker decides whom it answers. */
static bool is_for_all(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && status.st_mode & S_IWOTH;
}

void admin_socket_cause(const struct admin_attempt *attempt, char *text, size_t bytes)
{
	const char *path = text_name(attempt->path);

	switch (attempt->r) {
	case 0:
		snprintf(text, bytes,
			 "you may look, but not change anything: that is for root, the user that "
			 "brokerd runs as, and the admin-users of brokerd.conf(5)");
		break;
	case -ENOENT:
		snprintf(text, bytes, "no administrators' socket is at %s", path);
		break;
	case -ECONNREFUSED:
		snprintf(text, bytes, "no program listens at the administrators' socket (%s)",
			 path);
		break;
	case -EACCES:
	case -EPERM:
		snprintf(text, bytes, "only root and %s may use the administrators' socket (%s)",
			 is_for_all(attempt->path) ? "this broker's administrators"
						   : admin_socket_users(attempt->path),
			 path);
		break;
	default:
		snprintf(text, bytes, "cannot use the administrators' socket: %s",
			 attempt->error.text[0] ? text_name(attempt->error.text)
						: strerror(-attempt->r));
		break;
	}
}

const char *admin_socket_remedy(const struct admin_attempt *attempt)
{
	switch (attempt->r) {
	case -ENOENT:
	case -ECONNREFUSED:
		return "name the path of the broker's (brokerctl --admin-socket, "
		       "RINGBROKER_ADMIN_SOCKET), or start brokerd without --admin-socket=none";
	case -EACCES:
	case -EPERM:
		return "admin-group of brokerd.conf(5) lets others look, and admin-users make "
		       "changes";
	default:
		return "";
	}
}

void admin_socket_explain(const struct admin_attempt *attempt, char *text, size_t bytes)
{
	const char *remedy = admin_socket_remedy(attempt);
	size_t n;

	admin_socket_cause(attempt, text, bytes);
	n = strlen(text);
	if (remedy[0])
		snprintf(text + n, bytes - n, "; %s", remedy);
}
