#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Where the administrators' socket is
 *
 * Beside the other one, and named after it, so that brokers can share a folder: brokerd.sock, the
 * name by default, has admin.sock; x.sock has x.admin.sock; a name without .sock, x, has x.admin.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Writes the path of the one beside @socket_path. Return: 0; -ENAMETOOLONG: cut short. */
static inline int rbk_admin_path_of(const char *socket_path, char *ret, size_t bytes)
{
	static const char suffix[] = ".sock";
	const char *slash = strrchr(socket_path, '/');
	const char *name = slash ? slash + 1 : socket_path;
	const size_t n_folder = (size_t)(name - socket_path), n_suffix = sizeof(suffix) - 1;
	size_t n_stem = strlen(name);
	int n;

	if (strcmp(name, "brokerd.sock") == 0) {
		n = snprintf(ret, bytes, "%.*sadmin.sock", (int)n_folder, socket_path);
	} else {
		if (n_stem > n_suffix && strcmp(name + n_stem - n_suffix, suffix) == 0)
			n_stem -= n_suffix;
		n = snprintf(ret, bytes, "%.*s.admin%s", (int)(n_folder + n_stem), socket_path,
			     name + n_stem);
	}
	return n >= 0 && (size_t)n < bytes ? 0 : -ENAMETOOLONG;
}
