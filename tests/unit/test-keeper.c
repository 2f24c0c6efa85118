/* SPDX-License-Identifier: MIT */
/*
 * A process that executes a program while a connection has an unread message with a socket that
 * lingers
 */
#include "daemon/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/lingering.h"
#include "support/test.h"

enum { LINGER_S = 3600, LIMIT_MS = 20000, HANGS_MS = 300 };

static int listener;

static int begin(void **state)
{
	const struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int bytes = 4096;

	(void)state;
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(listener >= 0);
	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 64), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	close(listener);
	return 0;
}

/* Leave a message with a lingering socket in @ends[0]. Close @ends[1] and the socket. */
static void send_lingering(const int *ends)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {.iov_base = (char[]){"x"}, .iov_len = 1};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int fd = lingering_socket(listener, LINGER_S);

	*header = (struct cmsghdr){
		.cmsg_len = CMSG_LEN(sizeof(fd)),
		.cmsg_level = SOL_SOCKET,
		.cmsg_type = SCM_RIGHTS,
	};
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	assert_int_equal(sendmsg(ends[1], &message, 0), 1);
	close(fd);
	close(ends[1]);
}

/*
 * Have a process with such a connection execute a program, with a keeper or without.
 * Return: true if it ends within @limit_ms; then the keeper ends, too.
 */
static bool executes(bool has_keeper, int limit_ms)
{
	int ends[2], alive[2], hole = dup(0), other_hole = dup(0), fd = -1;
	struct pollfd poll_fd = {.events = POLLIN};
	int status, waited_ms = 0;
	pid_t pid, ended;

	assert_true(hole >= 0 && other_hole >= 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	/* The keeper holds one end. */
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, alive), 0);
	send_lingering(ends);
	/* The numbers of a pipe would be below that of the connection. */
	close(hole);
	close(other_hole);
	pid = fork();
	if (pid == 0) {
		close(alive[0]);
		close(listener);
		if (has_keeper && keeper_start(&fd))
			_exit(3);
		/* Our parent has to close its reference first. */
		if (read(alive[1], &(char){0}, 1) == 1)
			execl("/bin/true", "true", NULL);
		_exit(4);
	}
	close(ends[0]);
	close(alive[1]);
	assert_int_equal(write(alive[0], "x", 1), 1);
	while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && waited_ms++ < limit_ms)
		poll(NULL, 0, 1);
	if (ended == 0) {
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
	} else {
		assert_int_equal(ended, pid);
		assert_int_equal(status, 0);
		poll_fd.fd = alive[0];
		assert_int_equal(poll(&poll_fd, 1, LIMIT_MS), 1);
	}
	close(alive[0]);
	return ended == pid;
}

TEST(test_keeper__a_lingering_socket_delays_nothing)
{
	assert_false(executes(false, HANGS_MS));
	assert_true(executes(true, LIMIT_MS));
}

/* The keeper holds no lock, is no child of ours, and ends with its descriptor. */
TEST(test_keeper__holds_only_connections)
{
	char path[] = "/tmp/rbk-keeper-XXXXXX";
	int lock_fd = mkostemp(path, O_CLOEXEC), pair[2], fd = -1;
	struct pollfd poll_fd = {.events = POLLIN};

	assert_true(lock_fd >= 0);
	assert_int_equal(flock(lock_fd, LOCK_EX), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(keeper_start(&fd), 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(lock_fd);
	lock_fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(flock(lock_fd, LOCK_EX | LOCK_NB), 0);
	close(lock_fd);
	unlink(path);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);

	close(pair[1]);
	poll_fd.fd = pair[0];
	assert_int_equal(poll(&poll_fd, 1, 0), 0);
	close(fd);
	assert_int_equal(poll(&poll_fd, 1, LIMIT_MS), 1);
	close(pair[0]);
}

TEST_MAIN(begin, end, alarm(60))
