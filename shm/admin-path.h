#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Path of the administrators' socket
 *
 * The socket is named after the clients' socket, so that brokers can share a folder: brokerd.sock,
 * the default name, has admin.sock; x.sock has x.admin.sock; a name without .sock, x, has x.admin.
 *
 * Containers mount the folder of the clients' socket, as a rule the default one, which is called
 * ringbroker. The administrators' socket must not be mounted with it: root of a container may be
 * the machine's root, whom no permission of a folder stops. It is therefore in another folder,
 * ringbroker-admin, beside that one. In a folder of another name it is beside the clients' socket.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Name of the default folder of the clients' socket, and the end of the administrators'. */
#define RBK_SOCKET_FOLDER "ringbroker"
#define RBK_ADMIN_FOLDER  RBK_SOCKET_FOLDER "-admin"

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
 * Return the length of the folder's path in @path, without slashes at its end, if the folder is
 * called ringbroker; else 0.
 */
static inline size_t rbk_default_folder_of(const char *path)
{
	static const char name[] = RBK_SOCKET_FOLDER;
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0, n_name = sizeof(name) - 1;

	while (n > 0 && path[n - 1] == '/')
		n--;
	if (n < n_name || memcmp(path + n - n_name, name, n_name) != 0)
		return 0;
	return n == n_name || path[n - n_name - 1] == '/' ? n : 0;
}

/*
 * Write the path of the administrators' socket that belongs to @socket_path.
 * Return: 0; -ENAMETOOLONG: the path was cut.
 */
static inline int rbk_admin_path_of(const char *socket_path, char *ret, size_t bytes)
{
	static const char end[] = RBK_ADMIN_FOLDER;
	const size_t n = rbk_default_folder_of(socket_path);
	const size_t n_end = n > 0 ? sizeof(end) - sizeof(RBK_SOCKET_FOLDER) : 0;
	int r;

	if (bytes <= n + n_end)
		return -ENAMETOOLONG;
	r = rbk_path_beside(socket_path, "admin", true, ret, bytes - n_end);
	if (r || n == 0)
		return r;
	memmove(ret + n + n_end, ret + n, strlen(ret + n) + 1);
	memcpy(ret + n, end + sizeof(RBK_SOCKET_FOLDER) - 1, n_end);
	return 0;
}

/*
 * Write the path that earlier builds of version 0.1.0 give to the administrators' socket: beside
 * @socket_path. The next version removes it.
 * Return: 0; -ENAMETOOLONG: the path was cut.
 */
static inline int rbk_admin_old_path_of(const char *socket_path, char *ret, size_t bytes)
{
	return rbk_path_beside(socket_path, "admin", true, ret, bytes);
}

/*
 * Write the path at which a program finds the administrators' socket: that of rbk_admin_path_of(),
 * or the old one if that exists and the folder of the other does not.
 * Return: 0; -ENAMETOOLONG: the path was cut.
 */
static inline int rbk_admin_path_find(const char *socket_path, char *ret, size_t bytes)
{
	int r = rbk_admin_path_of(socket_path, ret, bytes);
	char *slash = strrchr(ret, '/');
	bool has_folder;

	if (r || rbk_default_folder_of(socket_path) == 0)
		return r;
	*slash = '\0';
	/* A folder that this user may not enter (EACCES) exists. */
	has_folder = access(ret, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
	*slash = '/';
	if (has_folder)
		return 0;
	r = rbk_admin_old_path_of(socket_path, ret, bytes);
	return r == 0 && access(ret, F_OK) == 0 ? 0 : rbk_admin_path_of(socket_path, ret, bytes);
}
