#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Where the administrators' socket is
 *
 * Beside the other one, and named after it, so that brokers can share a folder: brokerd.sock, the
 * name by default, has admin.sock; x.sock has x.admin.sock; a name without .sock, x, has x.admin.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/*
 * Writes the path of what is called @word and belongs to the broker with that socket: @word or
 * @word.sock beside brokerd.sock; x.@word, followed by what follows x if it @is_socket, beside any
 * x or x.sock. Return: 0; -ENAMETOOLONG: cut short.
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

/* Writes the path of the one beside @socket_path. Return: 0; -ENAMETOOLONG: cut short. */
static inline int rbk_admin_path_of(const char *socket_path, char *ret, size_t bytes)
{
	return rbk_path_beside(socket_path, "admin", true, ret, bytes);
}
