/* SPDX-License-Identifier: MIT */
/*
 * Keeping connections open over an execve()
 *
 * When a socket is freed, the kernel closes the descriptors of its unread messages. A client can
 * send a socket that takes hours to close (SO_LINGER). A thread that closes its connections in
 * execve() waits for it. A process that exits does not: the kernel lingers for no process with
 * PF_EXITING. So the last references to the connections must be those of an exiting process.
 *
 * That process waits for the end of a pipe. execve() closes descriptors in the order of their
 * numbers, so the number of the pipe is above all others: when the pipe ends, this process has
 * closed its connections.
 *
 * The keeper is a child of a child that ends at once, so that the next program has no child that it
 * does not know. It closes the lock files and the devices before keeper_start() returns, because
 * the next broker needs them. Other threads may hold any lock when it is forked: it calls only
 * async-signal-safe functions, and _Fork() calls no handlers of drivers.
 */
#include "daemon/keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/error.h"

/* Numbers left free below the pipe, for descriptors that other threads open meanwhile. */
enum { MARGIN = 64 };

/* Return the highest number of a descriptor; negative errno. */
static int last_descriptor(void)
{
	DIR *folder = opendir("/proc/self/fd");
	const struct dirent *entry;
	int last = 0;

	if (!folder)
		return error_origin(-errno);
	while ((entry = readdir(folder)))
		if (atoi(entry->d_name) > last)
			last = atoi(entry->d_name);
	closedir(folder);
	return last;
}

/* Make a pipe whose writing end has the highest number of all descriptors. */
static int make_pipe(int *ret_read_fd, int *ret_write_fd)
{
	const int last = last_descriptor();
	int fds[2], write_fd;

	if (last < 0)
		return error_fold(last);
	if (pipe2(fds, O_CLOEXEC) < 0)
		return error_origin(-errno);
	write_fd = fcntl(fds[1], F_DUPFD_CLOEXEC, last + MARGIN);
	/* Near the limit; the pipe itself may have the numbers after the last. */
	if (write_fd < 0)
		write_fd = fcntl(fds[1], F_DUPFD_CLOEXEC, last + 1);
	close(fds[1]);
	if (write_fd < 0) {
		close(fds[0]);
		return error_origin(-EMFILE);
	}
	*ret_read_fd = fds[0];
	*ret_write_fd = write_fd;
	return 0;
}

static bool is_connection(int fd)
{
	socklen_t bytes = sizeof(int);
	int listens;

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && !listens;
}

/* Be the keeper's parent, then the keeper. */
static _Noreturn void keep(int read_fd, int write_fd)
{
	pid_t pid;
	char byte;

	/* ThreadSanitizer takes close() for a race with threads that use the descriptor. */
	for (int fd = 0; fd <= write_fd; fd++)
		if (fd != read_fd && !is_connection(fd))
			close_range((unsigned int)fd, (unsigned int)fd, 0);
	pid = _Fork();
	if (pid != 0)
		_exit(pid < 0 ? errno : 0);
	while (read(read_fd, &byte, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}

int keeper_start(int *ret_fd)
{
	_cleanup_(close_fdp) int read_fd = -1;
	_cleanup_(close_fdp) int write_fd = -1;
	int status = 0, r;
	pid_t pid;

	r = make_pipe(&read_fd, &write_fd);
	if (r)
		return error_fold(r);
	pid = _Fork();
	if (pid < 0)
		return error_origin(-errno);
	if (pid == 0)
		keep(read_fd, write_fd);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		return error_origin(-ECHILD);
	if (WEXITSTATUS(status))
		return error_origin(-WEXITSTATUS(status));
	*ret_fd = steal_fd(&write_fd);
	return 0;
}
