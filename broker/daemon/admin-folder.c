/* SPDX-License-Identifier: MIT */
/* The folder of the administrators' socket, and its earlier path. */
#include "daemon/admin-folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
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

static void set_permissions(int fd, const struct options *options)
{
	mode_t mode = 0700;

	if (options->has_admin_group && fchown(fd, (uid_t)-1, options->admin_group) == 0)
		mode |= 0050;
	if (options->admin_users.n > 0)
		mode |= 0011;
	if (fchmod(fd, mode) < 0)
		log_debug(LOG_DETAIL, "the administrators' folder keeps its permissions: %s",
			  strerror(errno));
}

void admin_folder_make(const struct options *options)
{
	char path[PATH_BYTES];
	struct stat status;
	int fd;

	if (!has_own_folder(options))
		return;
	snprintf(path, sizeof(path), "%s", options->admin_socket_path);
	*strrchr(path, '/') = '\0';
	mkdir(path, 0700);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* Another user's folder, such as that of a service, has the permissions of its owner. */
	if (fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == geteuid())
		set_permissions(fd, options);
	close_fd(fd);
}

void admin_link_make(const struct options *options)
{
	char path[PATH_BYTES], target[PATH_BYTES];
	struct stat status;
	const char *name;

	if (!has_own_folder(options) ||
	    rbk_admin_old_path_of(options->socket_path, path, sizeof(path)))
		return;
	/* A socket or link there is left from an earlier broker. */
	if (lstat(path, &status) == 0 &&
	    ((!S_ISSOCK(status.st_mode) && !S_ISLNK(status.st_mode)) || unlink(path) < 0))
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
