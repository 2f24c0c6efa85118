#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Where metrics can be had
 *
 * On this machine only: there is neither encryption nor authentication, only the permissions of a
 * socket in the file system. Any thread.
 */
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

enum {
	METRICS_E_ADDRESS = 1,    /* it is none that is understood */
	METRICS_E_ELSEWHERE = 2,  /* other machines could reach it */
	METRICS_E_IN_USE = 3,     /* somebody else listens there */
	METRICS_E_PERMISSION = 4, /* may not make the socket there */
	METRICS_E_PATH = 5,       /* its folder does not exist */
	METRICS_E_NO_SOCKET = 6,  /* something else than a socket is there */
	METRICS_E_NO_LIBRARY = 7, /* brokerd was built without libmicrohttpd */
};

/* Zeroed: nowhere. */
struct metrics_address {
	union {
		struct sockaddr any;
		struct sockaddr_un local;
		struct sockaddr_storage storage;
	} socket;
	socklen_t bytes; /* 0: nowhere */
};

enum { METRICS_ADDRESS_BYTES = 128 }; /* of a text that names one */

/*
 * Reads "unix:/PATH", "127.0.0.1:PORT", "[::1]:PORT", or "none".
 * Return: 0; METRICS_E_ADDRESS; METRICS_E_ELSEWHERE.
 */
int metrics_address_parse(const char *text, struct metrics_address *ret);

/*
 * Listens there; of a path for the broker's user and group @gid (-1: its own), if the socket may be
 * given to that, else for the user only. A socket that is there and that nobody listens on is
 * replaced. @ret_has_group may be NULL.
 * Return: 0; METRICS_E_IN_USE to METRICS_E_NO_SOCKET; negative errno.
 */
int metrics_listen(const struct metrics_address *address, gid_t gid, int *ret_fd,
		   bool *ret_has_group);
