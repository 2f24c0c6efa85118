/* SPDX-License-Identifier: MIT */
/*
 * Identifying clients
 *
 * A process id names a process only while the process lives. A client that connects, passes its
 * socket to another process and exits would be taken for the next process with its id. /proc/PID is
 * therefore opened first, as a descriptor that refers to one process for good. Then the process
 * that connected is shown to be alive, hence to be the one that was opened. The proof is its pidfd
 * where the kernel provides one with the socket (Linux 6.5). Otherwise it is its user and the
 * socket not being closed, in which case processes of one user can be taken for each other.
 * Everything else is read through the descriptor. A process that may not be inspected (another
 * user's, if the broker lacks privilege; one that is not dumpable) has neither cgroup nor
 * executable.
 *
 * The executable may lie on a file system that the client serves itself. Only data that the kernel
 * has without asking the file system is requested (AT_STATX_DONT_SYNC, and only the inode's
 * number).
 *
 * Reading /proc takes some tens of microseconds of the reactor's time. A client that connects over
 * and over must not cause that needlessly, so only data that the policy asks for is read.
 */
#include "session/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "util/error.h"
#include "util/proc.h"

/* Linux 6.5; not in Debian 12's headers. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* /proc/PID/cgroup: a line for each hierarchy, paths shorter than PATH_MAX. */
enum { PEER_CGROUP_BYTES = 65536 };

static int read_groups(struct peer_identity *identity, int fd)
{
	socklen_t bytes = 0;

	/* With no room the kernel returns the size needed; the groups are constant. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &bytes) == 0 || errno != ERANGE ||
	    bytes == 0)
		return 0;
	identity->groups = malloc(bytes);
	if (!identity->groups)
		return error_origin(-ENOMEM);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, identity->groups, &bytes) < 0)
		return 0;
	identity->peer.groups = identity->groups;
	identity->peer.n_groups = (uint32_t)(bytes / sizeof(gid_t));
	return 0;
}

/* Return true if the process that connected is alive, so that @proc_fd refers to it. */
static bool is_alive(const struct peer_identity *identity, int fd, int proc_fd, uid_t uid)
{
	struct pollfd poll_fd = {.fd = identity->pidfd, .events = POLLIN};
	struct stat status;

	if (identity->pidfd >= 0)
		return poll(&poll_fd, 1, 0) == 0;
	if (!identity->lacks_pidfd)
		return false;
	poll_fd = (struct pollfd){.fd = fd, .events = POLLRDHUP};
	return fstat(proc_fd, &status) == 0 && status.st_uid == uid && poll(&poll_fd, 1, 0) == 0;
}

static void take_pidfd(struct peer_identity *identity, int fd)
{
	int pidfd = -1;
	socklen_t bytes = sizeof(pidfd);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) == 0)
		identity->pidfd = pidfd;
	else
		identity->lacks_pidfd = errno == ENOPROTOOPT;
}

/* Read the path in the unified hierarchy, "0::PATH". */
static int read_cgroup(struct peer_identity *identity, int proc_fd)
{
	_cleanup_(close_fdp) int fd = openat(proc_fd, "cgroup", O_RDONLY | O_CLOEXEC);
	_cleanup_(freep) char *text = malloc(PEER_CGROUP_BYTES), *path = malloc(PEER_CGROUP_BYTES);
	size_t used = 0;
	ssize_t n;

	if (!text || !path)
		return error_origin(-ENOMEM);
	while (fd >= 0 && (n = read(fd, text + used, PEER_CGROUP_BYTES - used)) > 0)
		used += (size_t)n;
	/* A line without its end was cut: its path may be that of another cgroup. */
	while (used > 0 && text[used - 1] != '\n')
		used--;
	if (!proc_parse_cgroup(text, used, NULL, path, PEER_CGROUP_BYTES))
		return 0;
	identity->cgroup = strdup(path);
	if (!identity->cgroup)
		return error_origin(-ENOMEM);
	identity->peer.cgroup = identity->cgroup;
	return 0;
}

static void look_at_exe(struct peer_identity *identity, int proc_fd)
{
	struct statx status;

	if (statx(proc_fd, "exe", AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_INO, &status) < 0)
		return;
	identity->peer.has_exe = true;
	identity->peer.exe_dev = makedev(status.stx_dev_major, status.stx_dev_minor);
	identity->peer.exe_ino = status.stx_ino;
}

static void read_comm(struct peer_identity *identity, int proc_fd)
{
	_cleanup_(close_fdp) int fd = openat(proc_fd, "comm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, identity->comm, sizeof(identity->comm) - 1);

	identity->comm[n > 0 ? n : 0] = '\0';
	identity->comm[strcspn(identity->comm, "\n")] = '\0';
	/* Administrators see the name, which the process can choose. */
	for (char *c = identity->comm; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

int peer_identity_init(struct peer_identity *identity, int fd, uint32_t kinds)
{
	_cleanup_(close_fdp) int proc_fd = -1;
	struct ucred credentials;
	socklen_t bytes = sizeof(credentials);
	char path[32];
	int r;

	*identity = PEER_IDENTITY_INIT;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) < 0)
		return error_origin(-errno);
	identity->peer.pid = credentials.pid;
	identity->peer.uid = credentials.uid;
	identity->peer.gid = credentials.gid;
	r = kinds & POLICY_MATCH_GID ? read_groups(identity, fd) : 0;
	if (r)
		return error_fold(r);

	/* 0: it is in a process namespace that is invisible here. */
	if (credentials.pid <= 0)
		return 0;
	take_pidfd(identity, fd);
	if (!(kinds & (POLICY_MATCH_CGROUP | POLICY_MATCH_EXE | PEER_COMM)))
		return 0;
	snprintf(path, sizeof(path), "/proc/%d", (int)credentials.pid);
	proc_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (proc_fd < 0 || !is_alive(identity, fd, proc_fd, credentials.uid))
		return 0;
	if (kinds & PEER_COMM)
		read_comm(identity, proc_fd);
	if (kinds & POLICY_MATCH_EXE)
		look_at_exe(identity, proc_fd);
	r = kinds & POLICY_MATCH_CGROUP ? read_cgroup(identity, proc_fd) : 0;
	return r ? error_fold(r) : 0;
}

void peer_identity_deinit(struct peer_identity *identity)
{
	free(identity->groups);
	free(identity->cgroup);
	close_fd(identity->pidfd);
	*identity = PEER_IDENTITY_INIT;
}
