/* SPDX-License-Identifier: MIT */
/* A peer's identity: as the kernel reports it, and only of the process that connected */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fail-alloc.h"
#include "session/peer.h"
#include "support/test.h"

enum {
	ALL_KINDS = POLICY_MATCH_GID | POLICY_MATCH_UID | POLICY_MATCH_CGROUP | POLICY_MATCH_EXE,
};

struct listener {
	struct sockaddr_un address;
	int fd;
};

/* Listen on an abstract address, without a path in the file system. */
static void listener_init(struct listener *listener)
{
	listener->address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(listener->address.sun_path + 1, sizeof(listener->address.sun_path) - 1,
		 "ringbroker-test-peer-%d", (int)getpid());
	listener->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(listener->fd >= 0);
	assert_int_equal(bind(listener->fd, (struct sockaddr *)&listener->address,
			      sizeof(listener->address)),
			 0);
	assert_int_equal(listen(listener->fd, 4), 0);
}

static int connect_to(const struct listener *listener)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0 ||
	    connect(fd, (const struct sockaddr *)&listener->address, sizeof(listener->address)) < 0)
		return -1;
	return fd;
}

static int accept_from(const struct listener *listener)
{
	int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/*
 * Get the process's unified cgroup path from /proc/self/cgroup.
 * Return: true if there is one.
 */
static bool has_unified_cgroup(char *path, size_t bytes)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[8192];
	bool is_found = false;

	while (file && !is_found && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		is_found = strncmp(line, "0::/", 4) == 0;
		if (is_found)
			snprintf(path, bytes, "%s", line + 3);
	}
	if (file)
		fclose(file);
	return is_found;
}

/* Expect a pidfd that refers to the live process, if the kernel supports it. */
static void expect_pidfd(const struct peer_identity *identity)
{
	struct pollfd poll_fd = {.fd = identity->pidfd, .events = POLLIN};

	assert_int_equal(identity->pidfd < 0, identity->lacks_pidfd);
	if (identity->pidfd >= 0)
		assert_int_equal(poll(&poll_fd, 1, 0), 0);
}

TEST(test_peer__alive)
{
	struct peer_identity identity = PEER_IDENTITY_INIT;
	char cgroup[8192] = "";
	bool has_cgroup = has_unified_cgroup(cgroup, sizeof(cgroup));
	struct listener listener;
	gid_t groups[256];
	struct stat status;
	int ours, theirs, n;
	unsigned int i;
	int r;

	listener_init(&listener);
	theirs = connect_to(&listener);
	assert_true(theirs >= 0);
	ours = accept_from(&listener);
	for (i = 1;; i++) {
		fail_alloc_at(i);
		r = peer_identity_init(&identity, ours, ALL_KINDS);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		peer_identity_deinit(&identity);
	}
	assert_int_equal(r, 0);
	assert_fields(identity.peer, (pid, getpid()), (uid, geteuid()), (gid, getegid()));
	n = getgroups(256, groups);
	assert_int_equal(identity.peer.n_groups, n);
	for (int k = 0; k < n; k++)
		assert_int_equal(identity.peer.groups[k], groups[k]);
	if (has_cgroup)
		assert_string_equal(identity.peer.cgroup, cgroup);
	else
		assert_null(identity.peer.cgroup);
	assert_true(identity.peer.has_exe);
	assert_int_equal(stat("/proc/self/exe", &status), 0);
	assert_fields(identity.peer, (exe_dev, status.st_dev), (exe_ino, status.st_ino));
	expect_pidfd(&identity);
	peer_identity_deinit(&identity);
	assert_null(identity.peer.cgroup);
	assert_int_equal(identity.pidfd, -1);

	/* No kinds of identity were requested. */
	assert_int_equal(peer_identity_init(&identity, ours, POLICY_MATCH_UID), 0);
	assert_fields(identity.peer, (uid, geteuid()), (n_groups, 0));
	assert_null(identity.peer.cgroup);
	assert_false(identity.peer.has_exe);
	expect_pidfd(&identity);
	peer_identity_deinit(&identity);
	close(theirs);
	close(ours);
	close(listener.fd);
}

/* A process's name is shown to administrators, whose terminals it must not control. */
TEST(test_peer__hostile_name)
{
	struct peer_identity identity = PEER_IDENTITY_INIT;
	struct listener listener;
	char before[16];
	int theirs, ours;

	assert_int_equal(prctl(PR_GET_NAME, before), 0);
	assert_int_equal(prctl(PR_SET_NAME, "\033[2J\"\xc2\x9b\xff\x7f|a"), 0);
	listener_init(&listener);
	theirs = connect_to(&listener);
	ours = accept_from(&listener);
	assert_int_equal(peer_identity_init(&identity, ours, PEER_COMM), 0);
	assert_string_equal(identity.comm, "?[2J\"????|a");
	peer_identity_deinit(&identity);
	assert_int_equal(prctl(PR_SET_NAME, before), 0);
	close(theirs);
	close(ours);
	close(listener.fd);
}

/*
 * The process connected, handed its socket to a child, and exited. Its PID stays in use until it is
 * reaped, so /proc still has an entry that must not be taken for the socket's present holder.
 */
TEST(test_peer__gone)
{
	struct peer_identity identity = PEER_IDENTITY_INIT;
	struct listener listener;
	siginfo_t info;
	int ours, ends[2], unused = -1;
	socklen_t bytes = sizeof(unused);
	pid_t pid;

	listener_init(&listener);
	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char byte;

		if (connect_to(&listener) < 0)
			_exit(1);
		/* The grandchild keeps the socket until the test is over. */
		if (fork() == 0) {
			close(ends[1]);
			_exit(read(ends[0], &byte, 1) != 0);
		}
		_exit(0);
	}
	ours = accept_from(&listener);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(peer_identity_init(&identity, ours, ALL_KINDS), 0);
	assert_fields(identity.peer, (pid, pid), (uid, geteuid()));
	if (getsockopt(ours, SOL_SOCKET, 77, &unused, &bytes) < 0 && errno == ENOPROTOOPT) {
		print_message("no SO_PEERPIDFD before Linux 6.5: less is known\n");
	} else {
		assert_null(identity.peer.cgroup);
		assert_false(identity.peer.has_exe);
	}
	if (unused >= 0)
		close(unused);
	peer_identity_deinit(&identity);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(ours);
	close(listener.fd);
}

TEST(test_peer__no_socket)
{
	struct peer_identity identity = PEER_IDENTITY_INIT;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(peer_identity_init(&identity, ends[0], ALL_KINDS), -ENOTSOCK);
	peer_identity_deinit(&identity);
	close(ends[0]);
	close(ends[1]);
}
