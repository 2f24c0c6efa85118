#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Users and groups that options name
 *
 * They are named by name or number, as in keys of tenants. A look-up may take as long as the
 * system's name service needs. Any thread.
 */
#include <stdint.h>
#include <sys/types.h>

enum { USERS_MAX = 64 /* users in a list, at most */ };

struct users {
	uid_t uids[USERS_MAX];
	uint32_t n;
};

/* Find a group. Return: 0; -ENOENT if there is no such group. */
int users_find_group(const char *name, gid_t *ret);

/* Parse a list, separated by commas. Return: 0; -ENOENT if a user does not exist; -E2BIG. */
int users_parse(const char *list, struct users *ret);
