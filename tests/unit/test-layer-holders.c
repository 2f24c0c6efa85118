/* SPDX-License-Identifier: MIT */
/* Whether any process still holds a file: memfds, and dma-bufs where this machine can make one. */
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/layer/holders.h"
#include "support/test.h"

enum { BYTES = 65536 };

static int make_memfd(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	return fd;
}

static void send_to(int socket, int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(fd))];
	} control = {.header = {CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec part = {(char[]){0}, 1};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};

	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	assert_int_equal(sendmsg(socket, &message, 0), 1);
}

/* Check a file. Takes ownership of @fd. */
static void check(int fd)
{
	struct holders *holders = holders_new(fd);
	int sockets[2], other, status;
	void *memory;
	pid_t pid;
	char byte;

	assert_non_null(holders);
	assert_true(holders_any(holders));
	assert_false(holders_is_own(holders, fd));
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets), 0);
	other = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	send_to(sockets[0], fd);
	close(fd);
	assert_true(holders_any(holders));
	close(other);
	assert_true(holders_any(holders));
	munmap(memory, BYTES);
	assert_true(holders_any(holders));
	close(sockets[0]);
	close(sockets[1]);
	assert_false(holders_any(holders));
	/* A child that was forked after the last descriptor was closed is no holder. */
	assert_int_equal(pipe(sockets), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)!write(sockets[1], "", 1);
		pause();
	}
	assert_int_equal(read(sockets[0], &byte, 1), 1);
	assert_false(holders_any(holders));
	holders_free(holders);
	close(sockets[0]);
	close(sockets[1]);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

TEST(test_holders__memfd)
{
	check(make_memfd());
}

TEST(test_holders__dma_buf)
{
	struct udmabuf_create create = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = BYTES};
	int maker = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd;

	if (maker < 0) {
		print_message("no udmabuf here\n");
		skip();
	}
	create.memfd = (unsigned int)make_memfd();
	assert_int_equal(fcntl((int)create.memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	fd = ioctl(maker, UDMABUF_CREATE, &create);
	assert_true(fd >= 0);
	close((int)create.memfd);
	close(maker);
	check(fd);
}

/* A child that inherited the file holds it. */
TEST(test_holders__child)
{
	int fd = make_memfd(), status;
	struct holders *holders = holders_new(fd);
	pid_t pid = fork();

	assert_non_null(holders);
	assert_true(pid >= 0);
	if (pid == 0)
		pause();
	close(fd);
	assert_true(holders_any(holders));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_false(holders_any(holders));
	holders_free(holders);
}

/* Several descriptors of one file, as a driver may make them. */
TEST(test_holders__several)
{
	int fd = make_memfd(), anew;
	struct holders *holders = holders_new(fd);
	char path[48];

	assert_non_null(holders);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	anew = open(path, O_RDWR | O_CLOEXEC);
	assert_true(anew >= 0);
	assert_true(holders_add(holders, anew));
	close(fd);
	assert_true(holders_any(holders));
	close(anew);
	assert_false(holders_any(holders));
	holders_free(holders);
}

TEST(test_holders__unknown)
{
	int fd = eventfd(0, EFD_CLOEXEC);

	assert_null(holders_new(fd));
	assert_null(holders_new(-1));
	assert_true(holders_any(NULL));
	assert_false(holders_is_own(NULL, fd));
	assert_null(holders_free(NULL));
	close(fd);
}
