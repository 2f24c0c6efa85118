#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Path of the administrators' socket
 *
 * The socket is beside the clients' socket and named after it, so that brokers can share a folder:
 * brokerd.sock, the default name, has admin.sock; x.sock has x.admin.sock; a name without .sock, x,
 * has x.admin.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/*
 * Write the path of the file @word that belongs to the broker with that socket. Beside brokerd.sock
 * it is @word, or @word.sock if it @is_socket. Beside any other x or x.sock it is x.@word, followed
 * by the suffix of the socket's name if it @is_socket.
 * Return: 0; -ENAMETOOLONG: the path was cut.
 */
static inline int rbk_path_beside(const char *socket_path, const char *word, bool is_socket,
				  char *ret, size_t bytes)
{
	static const char suffix[] = ".sock";
	const char *slash = strrchr(socket_path, '/');
	const char *name = slash ? slash + 1 : socket_path, *end;
	const bool is_default = strcmp(name, "brokerd.sock") == 0;
	size_t n_stem = strlen(name), n_suffix = sizeof(suffix) - 1;
	int n;

	if (n_stem > n_suffix && strcmp(name + n_stem - n_suffix, suffix) == 0)
		n_stem -= n_suffix;
	end = name + n_stem;
	if (is_default)
		n_stem = 0;
	n = snprintf(ret, bytes, "%.*s%s%s%s", (int)((size_t)(name - socket_path) + n_stem),
		     socket_path, is_default ? "" : ".", word, is_socket ? end : "");
	return n >= 0 && (size_t)n < bytes ? 0 : -ENAMETOOLONG;
}

/*
 * Write the path of the administrators' socket beside @socket_path.
 * Return: 0; -ENAMETOOLONG: the path was cut.
 */
static inline int rbk_admin_path_of(const char *socket_path, char *ret, size_t bytes)
{
	return rbk_path_beside(socket_path, "admin", true, ret, bytes);
}
