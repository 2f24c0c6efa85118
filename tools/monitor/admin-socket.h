#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The administrators' socket: why a program is not connected to it, or may not make changes there
 *
 * Programs try this socket first, and connect as an ordinary client if they fail. The first attempt
 * is kept: it is the reason why the program may not do what administrators may.
 *
 * The functions look users and groups up, and have static results: one thread only.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <ringbroker.h>

enum {
	ADMIN_PATH_BYTES = 512,
	ADMIN_TEXT_BYTES = ADMIN_PATH_BYTES + RBK_ERROR_BYTES, /* of a cause and its remedy */
};

/* An attempt to connect to the administrators' socket. */
struct admin_attempt {
	int r; /* 0: connected, or not tried; else the library's negative errno */
	char path[ADMIN_PATH_BYTES];
	struct rbk_error error; /* the library's sentence */
};

/* Write the cause: why there is no connection or, with r == 0, no right to make changes. */
void admin_socket_cause(const struct admin_attempt *attempt, char *text, size_t bytes);
/* Return the remedy for the cause; "": the cause names it. */
const char *admin_socket_remedy(const struct admin_attempt *attempt);
/* Write the cause and the remedy as one sentence. */
void admin_socket_explain(const struct admin_attempt *attempt, char *text, size_t bytes);

/*
 * Find the group that may connect to the socket at @path, or, if this user may not enter the
 * socket's folder, the group that may.
 * Return: false if there is none.
 */
bool admin_socket_group(const char *path, gid_t *ret);
/*
 * Describe the users beside root whom the permissions of the socket at @path admit: "members of
 * group ringbroker". Static storage.
 */
const char *admin_socket_users(const char *path);
