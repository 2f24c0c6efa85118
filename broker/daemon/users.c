/* SPDX-License-Identifier: MIT */
/* Finding users and groups by name; a name may not exist. */
#include "daemon/users.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"

enum { NSS_BYTES = 65536 /* maximum of the name service's data about a user or a group */ };

/* Return: 0; -ENOENT if @text is no id. The highest number means "none" to the kernel. */
static int parse_number(const char *text, uint32_t *ret)
{
	unsigned long long number;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return -ENOENT;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || *end || number >= UINT32_MAX)
		return -ENOENT;
	*ret = (uint32_t)number;
	return 0;
}

int users_find_group(const char *name, gid_t *ret)
{
	_cleanup_(freep) char *buffer = malloc(NSS_BYTES);
	struct group group, *found = NULL;

	if (parse_number(name, ret) == 0)
		return 0;
	if (!buffer || getgrnam_r(name, &group, buffer, NSS_BYTES, &found) || !found)
		return -ENOENT;
	*ret = found->gr_gid;
	return 0;
}

static int find_user(const char *name, uid_t *ret)
{
	_cleanup_(freep) char *buffer = malloc(NSS_BYTES);
	struct passwd user, *found = NULL;

	if (parse_number(name, ret) == 0)
		return 0;
	if (!buffer || getpwnam_r(name, &user, buffer, NSS_BYTES, &found) || !found)
		return -ENOENT;
	*ret = found->pw_uid;
	return 0;
}

int users_parse(const char *list, struct users *ret)
{
	_cleanup_(freep) char *copy = strdup(list);
	char *rest = copy, *item, *end;

	*ret = (struct users){.n = 0};
	while ((item = strsep(&rest, ","))) {
		item += strspn(item, " \t");
		for (end = item + strlen(item); end > item && strchr(" \t", end[-1]); end--)
			end[-1] = '\0';
		if (ret->n == USERS_MAX)
			return -E2BIG;
		if (find_user(item, &ret->uids[ret->n]))
			return -ENOENT;
		ret->n++;
	}
	return ret->n > 0 ? 0 : -ENOENT;
}
