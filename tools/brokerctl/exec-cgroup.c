/* SPDX-License-Identifier: MIT */
/*
 * brokerctl exec: a cgroup for the program
 *
 * In a cgroup of its own the program can be identified, frozen or limited. Where systemd runs, it
 * manages all cgroups except those that it has delegated (Delegate=yes). The system's manager marks
 * delegated cgroups. A user's manager does not mark them, so it is asked.
 *
 * A cgroup that contains processes cannot enable controllers for its children, unless it is the
 * root. To enable one for the program, this process therefore moves out of the parent, into another
 * cgroup beside the program's. That does not help if other processes remain in the parent.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "broker/util/cgroup.h"
#include "broker/util/proc.h"
#include "brokerbench/cgroup-v2.h"
#include "exec.h"

enum { MANAGER_MS = 3000 };

/* Find this process's cgroup in the unified hierarchy. */
static bool own_cgroup(char *ret, size_t bytes)
{
	char path[EXEC_PATH_BYTES], mount[EXEC_PATH_BYTES / 2];

	return proc_own_cgroup(path, sizeof(path)) && cgroup_find_root(mount, sizeof(mount)) &&
	       (size_t)snprintf(ret, bytes, "%s%s", mount, path[1] ? path : "") < bytes;
}

/* Run systemctl in the new process, with its output to @to. */
__attribute__((noreturn)) static void ask_manager(const char *unit, int to)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (null >= 0)
		dup2(null, STDERR_FILENO);
	dup2(to, STDOUT_FILENO);
	execlp("systemctl", "systemctl", "--user", "show", "--property=Delegate", "--value", "--",
	       unit, (char *)NULL);
	_exit(1);
}

/* Return true if this user's manager delegates the unit of @path. The manager may not answer. */
static bool does_user_delegate(const char *path)
{
	const char *unit = strrchr(path, '/');
	struct pollfd ready = {.events = POLLIN};
	char answer[4] = "";
	struct stat status;
	int ends[2];
	pid_t pid;

	if (!unit || geteuid() == 0 || stat(path, &status) < 0 || status.st_uid != geteuid() ||
	    pipe2(ends, O_CLOEXEC))
		return false;
	pid = fork();
	if (pid == 0)
		ask_manager(unit + 1, ends[1]);
	close(ends[1]);
	ready.fd = ends[0];
	if (pid > 0 && poll(&ready, 1, MANAGER_MS) == 1 && read(ends[0], answer, 3) < 0)
		answer[0] = '\0';
	close(ends[0]);
	if (pid > 0) {
		kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	return strcmp(answer, "yes") == 0;
}

static bool is_given_away(const char *path)
{
	char value[2];

	if (access("/run/systemd/system", F_OK) != 0)
		return true;
	return getxattr(path, "user.delegate", value, sizeof(value)) > 0 ||
	       getxattr(path, "trusted.delegate", value, sizeof(value)) > 0 ||
	       does_user_delegate(path);
}

/* Make a folder, replacing one left by an earlier process with the same number. */
static bool make_folder(const char *path, char ret_text[EXEC_TEXT_BYTES])
{
	rmdir(path);
	if (mkdir(path, 0755) == 0)
		return true;
	snprintf(ret_text, EXEC_TEXT_BYTES, "%.300s: %s", path, strerror(errno));
	return false;
}

/*
 * Remove folders of processes that were killed before they could remove them. The kernel refuses to
 * remove a cgroup that contains processes.
 */
static void remove_left(const char *parent)
{
	char path[EXEC_PATH_BYTES + 64];
	const struct dirent *entry;
	DIR *folder = opendir(parent);

	while (folder && (entry = readdir(folder))) {
		int pid = 0, n = 0;

		if (sscanf(entry->d_name, "ringbroker-exec-%d%n", &pid, &n) != 1 || pid <= 0 ||
		    (entry->d_name[n] && strcmp(entry->d_name + n, "-own") != 0) ||
		    kill(pid, 0) == 0 || errno != ESRCH)
			continue;
		snprintf(path, sizeof(path), "%s/%.60s", parent, entry->d_name);
		rmdir(path);
	}
	if (folder)
		closedir(folder);
}

bool exec_cgroup_make(struct exec_cgroup *ret, char ret_text[EXEC_TEXT_BYTES])
{
	ret->path[0] = ret->own[0] = '\0';
	ret->fd = -1;
	if (!own_cgroup(ret->parent, sizeof(ret->parent) - 64)) {
		snprintf(ret_text, EXEC_TEXT_BYTES, "there are no cgroups of version 2");
		return false;
	}
	if (!is_given_away(ret->parent)) {
		snprintf(ret_text, EXEC_TEXT_BYTES, "%.300s is systemd's (without Delegate=yes)",
			 ret->parent);
		return false;
	}
	remove_left(ret->parent);
	snprintf(ret->path, sizeof(ret->path), "%.4000s/ringbroker-exec-%d", ret->parent,
		 (int)getpid());
	if (!make_folder(ret->path, ret_text)) {
		ret->path[0] = '\0';
		return false;
	}
	ret->fd = open(ret->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return true;
}

/*
 * Write @text to the parent's cgroup.subtree_control.
 * Return: 0, or a positive errno.
 */
static int give(const struct exec_cgroup *cgroup, const char *text)
{
	char path[EXEC_PATH_BYTES + 64];
	int fd, error = 0;

	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", cgroup->parent);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	if (write(fd, text, strlen(text)) < 0)
		error = errno;
	close(fd);
	return error;
}

/* Return true if the cgroup has the dmem controller. */
static bool has_dmem(const char *cgroup)
{
	char path[EXEC_PATH_BYTES + 64], found[64];
	bool is_found = false;
	FILE *file;

	snprintf(path, sizeof(path), "%s/cgroup.controllers", cgroup);
	file = fopen(path, "re");
	while (file && !is_found && fscanf(file, "%63s", found) == 1)
		is_found = strcmp(found, "dmem") == 0;
	if (file)
		fclose(file);
	return is_found;
}

static void explain_lack(const struct exec_cgroup *cgroup, char ret_text[EXEC_TEXT_BYTES])
{
	char root[EXEC_PATH_BYTES / 2];

	if (cgroup_find_root(root, sizeof(root)) && has_dmem(root))
		snprintf(ret_text, EXEC_TEXT_BYTES,
			 "%.300s is not given the dmem controller by the cgroups above it",
			 cgroup->parent);
	else
		snprintf(ret_text, EXEC_TEXT_BYTES, "this kernel has no dmem controller");
}

/*
 * Move this process into a cgroup of its own.
 * Return: false on failure, with everything as before.
 */
static bool move_aside(struct exec_cgroup *cgroup, bool (*may_stay)(void *data), void *data,
		       char ret_text[EXEC_TEXT_BYTES])
{
	snprintf(cgroup->own, sizeof(cgroup->own), "%.4000s/ringbroker-exec-%d-own", cgroup->parent,
		 (int)getpid());
	if (!make_folder(cgroup->own, ret_text)) {
		cgroup->own[0] = '\0';
		return false;
	}
	if (!cgroup_v2_move(cgroup->own, getpid()))
		snprintf(ret_text, EXEC_TEXT_BYTES, "%.300s: %s", cgroup->own, strerror(errno));
	else if (may_stay(data))
		return true;
	else
		snprintf(ret_text, EXEC_TEXT_BYTES,
			 "%.300s has processes, and brokerctl would belong to another tenant "
			 "outside it",
			 cgroup->parent);
	cgroup_v2_move(cgroup->parent, getpid());
	rmdir(cgroup->own);
	cgroup->own[0] = '\0';
	return false;
}

static void move_back(struct exec_cgroup *cgroup)
{
	if (cgroup->own[0] && cgroup_v2_move(cgroup->parent, getpid())) {
		rmdir(cgroup->own);
		cgroup->own[0] = '\0';
	}
}

bool exec_cgroup_enable(struct exec_cgroup *cgroup, bool (*may_stay)(void *data), void *data,
			char ret_text[EXEC_TEXT_BYTES])
{
	int error;

	if (cgroup->fd < 0 || !cgroup->path[0]) {
		snprintf(ret_text, EXEC_TEXT_BYTES, "the program has no cgroup of its own");
		return false;
	}
	if (has_dmem(cgroup->path))
		return true;
	if (!has_dmem(cgroup->parent)) {
		explain_lack(cgroup, ret_text);
		return false;
	}
	error = give(cgroup, "+dmem");
	if (error == EBUSY) {
		if (!move_aside(cgroup, may_stay, data, ret_text))
			return false;
		error = give(cgroup, "+dmem");
	}
	if (error == 0)
		return true;
	move_back(cgroup);
	if (error == EBUSY)
		snprintf(ret_text, EXEC_TEXT_BYTES,
			 "%.300s has processes beside brokerctl, so cgroups below it get no "
			 "controllers",
			 cgroup->parent);
	else
		snprintf(ret_text, EXEC_TEXT_BYTES,
			 "%.300s/cgroup.subtree_control cannot be written: %s", cgroup->parent,
			 strerror(error));
	return false;
}

bool exec_cgroup_enter(const struct exec_cgroup *cgroup)
{
	return cgroup_v2_move(cgroup->path, getpid());
}

bool exec_cgroup_leave(const struct exec_cgroup *cgroup)
{
	return cgroup_v2_move(cgroup->parent, getpid());
}

/*
 * Return true if the program's cgroup is the only one below the parent, so that no other cgroup
 * needs the controller.
 */
static bool is_only_one(const struct exec_cgroup *cgroup)
{
	char path[EXEC_PATH_BYTES + 64];
	unsigned int n = 0;
	FILE *file;
	bool is_read;

	snprintf(path, sizeof(path), "%s/cgroup.stat", cgroup->parent);
	file = fopen(path, "re");
	is_read = file && fscanf(file, "nr_descendants %u", &n) == 1;
	if (file)
		fclose(file);
	return is_read && n == 1;
}

void exec_cgroup_remove(struct exec_cgroup *cgroup)
{
	if (cgroup->fd >= 0)
		close(cgroup->fd);
	cgroup->fd = -1;
	if (cgroup->path[0])
		rmdir(cgroup->path);
	if (!cgroup->own[0] || !is_only_one(cgroup))
		return;
	if (give(cgroup, "-dmem") == 0)
		move_back(cgroup);
}
