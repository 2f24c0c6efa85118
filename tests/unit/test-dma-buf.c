/* SPDX-License-Identifier: MIT */
/* Waiting for devices that use a dma-buf; a socket, which is ready for writing or not, stands for
 * it. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/test.h"
#include "util/clock.h"
#include "util/dma-buf.h"

static int fds[2];

/* Fill the socket: the device is busy. */
static void begin(void)
{
	static const char bytes[4096];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	while (send(fds[0], bytes, sizeof(bytes), 0) > 0)
		;
}

static void end(void)
{
	close(fds[0]);
	close(fds[1]);
}

static void on_signal(int signal_number)
{
}

/* Interrupt the waiting thread, then let the device finish. */
static void *finish(void *data)
{
	char bytes[65536];

	usleep(5000);
	pthread_kill(*(pthread_t *)data, SIGUSR1);
	usleep(5000);
	while (recv(fds[1], bytes, sizeof(bytes), 0) > 0)
		;
	return NULL;
}

TEST(test_wait__until_idle)
{
	const struct sigaction action = {.sa_handler = on_signal};
	pthread_t self = pthread_self(), thread;

	begin();
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, finish, &self), 0);
	assert_int_equal(dma_buf_wait(fds[0], 60000), 0);
	pthread_join(thread, NULL);
	assert_int_equal(dma_buf_wait(fds[0], 0), 0);
	end();
}

TEST(test_wait__ends)
{
	uint64_t begin_ns;

	begin();
	begin_ns = clock_now_ns();
	assert_int_equal(dma_buf_wait(fds[0], 20), DMA_BUF_E_BUSY);
	assert_true(clock_now_ns() - begin_ns >= 20000000);
	end();
}

/* A caller that waited again and again would keep a processor busy. */
TEST(test_wait__refused)
{
	struct rlimit old;
	int fd;

	begin();
	fd = fds[0];
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	/* poll() takes no more descriptors than a process may have. */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, old.rlim_max}), 0);
	assert_int_equal(dma_buf_wait(fd, 60000), -EINVAL);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	end();
	assert_int_equal(dma_buf_wait(fd, 60000), -EIO);
}

TEST_MAIN(NULL, NULL)
