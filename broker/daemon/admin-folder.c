/* SPDX-License-Identifier: MIT */
/* The folder of the administrators' socket, and its earlier path. */
#include "daemon/admin-folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/options.h"
#include "shm/admin-path.h"
#include "util/cleanup.h"
#include "util/log.h"

enum { PATH_BYTES = sizeof(((struct options *)0)->socket_path) };

/* Return true if the administrators' socket is in the default folder of its own. */
static bool has_own_folder(const struct options *options)
{
	char path[PATH_BYTES];

	return options->admin_socket_path[0] && rbk_default_folder_of(options->socket_path) > 0 &&
	       rbk_admin_path_of(options->socket_path, path, sizeof(path)) == 0 &&
	       strcmp(path, options->admin_socket_path) == 0;
}

/* Add permissions: other brokers of this user may share the folder. */
static void set_permissions(int fd, const struct options *options, const struct stat *status)
{
	mode_t mode = 0700 | (status->st_mode & 0051);

	if (options->has_admin_group && fchown(fd, (uid_t)-1, options->admin_group) == 0)
		mode |= 0050;
	if (options->admin_users.n > 0)
		mode |= 0011;
	if (fchmod(fd, mode) < 0)
		log_debug(LOG_DETAIL, "the administrators' folder keeps its permissions: %s",
			  strerror(errno));
}

/*
 * Return true if the owner of the administrators' folder may own it: root, this user, or the owner
 * of the clients' folder, such as a service's user. Another user could replace the socket there.
 */
static bool is_trusted(const struct options *options, const struct stat *folder)
{
	char path[PATH_BYTES];
	struct stat status;

	if (folder->st_uid == 0 || folder->st_uid == geteuid())
		return true;
	snprintf(path, sizeof(path), "%s", options->socket_path);
	*strrchr(path, '/') = '\0';
	return stat(path, &status) == 0 && status.st_uid == folder->st_uid;
}

bool admin_folder_make(const struct options *options)
{
	char path[PATH_BYTES];
	struct stat status;
	bool is_ours = true;
	int fd;

	if (!has_own_folder(options))
		return true;
	snprintf(path, sizeof(path), "%s", options->admin_socket_path);
	*strrchr(path, '/') = '\0';
	mkdir(path, 0700);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status) < 0)
		is_ours = errno != ELOOP && errno != ENOTDIR;
	else if (!is_trusted(options, &status))
		is_ours = false;
	else if (status.st_uid == geteuid())
		set_permissions(fd, options, &status);
	close_fd(fd);
	if (!is_ours)
		log_warning(LOG_DETAIL,
			    "%s is no folder of root's, of this user's or of the clients' folder's "
			    "owner: there is no administrators' socket; remove %s, or name another "
			    "path with --admin-socket",
			    path, path);
	return is_ours;
}

/* Return false if connecting to the socket at @path is refused: then no program listens there. */
static bool is_in_use(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_(close_fdp) int fd = -1;

	if ((size_t)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) >=
	    sizeof(address.sun_path))
		return true;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ||
	       errno != ECONNREFUSED;
}

void admin_link_make(const struct options *options)
{
	char path[PATH_BYTES], target[PATH_BYTES];
	struct stat status;
	const char *name;

	if (!has_own_folder(options) ||
	    rbk_admin_old_path_of(options->socket_path, path, sizeof(path)))
		return;
	/* A link, or a socket on which no program listens, is left from an earlier broker. */
	if (lstat(path, &status) == 0 &&
	    ((!S_ISLNK(status.st_mode) && (!S_ISSOCK(status.st_mode) || is_in_use(path))) ||
	     unlink(path) < 0))
		return;
	name = strrchr(options->admin_socket_path, '/') + 1;
	snprintf(target, sizeof(target), "../" RBK_ADMIN_FOLDER "/%s", name);
	if (symlink(target, path) < 0)
		log_debug(LOG_DETAIL, "%s, where older programs look, is missing: %s", path,
			  strerror(errno));
}

void admin_link_remove(const struct options *options)
{
	char path[PATH_BYTES];
	struct stat status;

	if (has_own_folder(options) &&
	    rbk_admin_old_path_of(options->socket_path, path, sizeof(path)) == 0 &&
	    lstat(path, &status) == 0 && S_ISLNK(status.st_mode))
		unlink(path);
}
