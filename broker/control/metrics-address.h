#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Addresses at which metrics are offered
 *
 * All addresses are on this machine, because there is neither encryption nor authentication: only
 * the permissions of a socket in the file system restrict access. Any thread may call these
 * functions.
 */
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

enum {
	METRICS_E_ADDRESS = 1,    /* not an address of a known form */
	METRICS_E_ELSEWHERE = 2,  /* other machines could reach it */
	METRICS_E_IN_USE = 3,     /* another program listens there */
	METRICS_E_PERMISSION = 4, /* no permission to make the socket */
	METRICS_E_PATH = 5,       /* the path's folder does not exist */
	METRICS_E_NO_SOCKET = 6,  /* the path is not a socket */
	METRICS_E_NO_LIBRARY = 7, /* brokerd was built without libmicrohttpd */
};

/* An address; zeroed: none */
struct metrics_address {
	union {
		struct sockaddr any;
		struct sockaddr_un local;
		struct sockaddr_storage storage;
	} socket;
	socklen_t bytes; /* 0: no address */
};

enum { METRICS_ADDRESS_BYTES = 128 }; /* size of an address as text */

/*
 * Parse "unix:/PATH", "127.0.0.1:PORT", "[::1]:PORT", or "none".
 * Return: 0; METRICS_E_ADDRESS; METRICS_E_ELSEWHERE.
 */
int metrics_address_parse(const char *text, struct metrics_address *ret);

/*
 * Listen at an address. A socket at a path is open to the broker's user and to the group @gid (-1:
 * the broker's group). If the socket cannot be given to that group, it is open to the user only,
 * and *ret_has_group is false; @ret_has_group may be NULL. A socket at the path on which no program
 * listens is replaced.
 * Return: 0; METRICS_E_IN_USE to METRICS_E_NO_SOCKET; negative errno.
 */
int metrics_listen(const struct metrics_address *address, gid_t gid, int *ret_fd,
		   bool *ret_has_group);
