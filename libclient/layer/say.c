/* SPDX-License-Identifier: MIT */
/*
 * Log of the layer
 *
 * A line is one write() to a file opened for appending, so that lines of several processes and
 * threads do not mix. The descriptor is close-on-exec; programs that this one starts open the log
 * anew by name.
 */
#include "libclient/layer/say.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libclient/layer/layer.h"

enum { NO_LOG = -1, LINES_PER_SECOND = 10 };

static int log_fd = NO_LOG; /* atomic */

static void say_to(int fd, const char *format, va_list args)
{
	char line[1024];
	int before_errno = errno; /* programs rely on their errno */
	size_t bytes;
	ssize_t n;

	bytes = (size_t)snprintf(line, sizeof(line), "ringbroker lease [%d]: ", (int)getpid());
	vsnprintf(line + bytes, sizeof(line) - bytes - 1, format, args);
	bytes = strlen(line);
	line[bytes++] = '\n';
	do
		n = write(fd, line, bytes);
	while (n < 0 && errno == EINTR);
	errno = before_errno;
}

void say_open(const char *path)
{
	int before = __atomic_load_n(&log_fd, __ATOMIC_ACQUIRE), fd = NO_LOG;

	if (path && strcmp(path, "-") == 0)
		fd = STDERR_FILENO;
	else if (path) {
		fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
		if (fd < 0)
			say_error("cannot open the log %s: %s", path, strerror(errno));
	}
	__atomic_store_n(&log_fd, fd, __ATOMIC_RELEASE);
	if (before > STDERR_FILENO)
		close(before);
}

void say(const char *format, ...)
{
	int fd = __atomic_load_n(&log_fd, __ATOMIC_ACQUIRE);
	va_list args;

	if (fd == NO_LOG)
		return;
	va_start(args, format);
	say_to(fd, format, args);
	va_end(args);
}

void say_rarely(const char *format, ...)
{
	static uint64_t second, n_left, n_dropped; /* atomic */
	int fd = __atomic_load_n(&log_fd, __ATOMIC_ACQUIRE);
	uint64_t now = layer_now_ns() / 1000000000u, dropped;
	va_list args;

	if (fd == NO_LOG)
		return;
	if (__atomic_exchange_n(&second, now, __ATOMIC_RELAXED) != now) {
		__atomic_store_n(&n_left, LINES_PER_SECOND, __ATOMIC_RELAXED);
		dropped = __atomic_exchange_n(&n_dropped, 0, __ATOMIC_RELAXED);
		if (dropped > 0)
			say("%llu more lines were not written", (unsigned long long)dropped);
	}
	if ((int64_t)__atomic_sub_fetch(&n_left, 1, __ATOMIC_RELAXED) < 0) {
		__atomic_fetch_add(&n_dropped, 1, __ATOMIC_RELAXED);
		return;
	}
	va_start(args, format);
	say_to(fd, format, args);
	va_end(args);
}

void say_error(const char *format, ...)
{
	int fd = __atomic_load_n(&log_fd, __ATOMIC_ACQUIRE);
	va_list args;

	va_start(args, format);
	say_to(STDERR_FILENO, format, args);
	va_end(args);
	if (fd == NO_LOG || fd == STDERR_FILENO)
		return;
	va_start(args, format);
	say_to(fd, format, args);
	va_end(args);
}
