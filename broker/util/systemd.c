/* SPDX-License-Identifier: MIT */
/* The service manager's environment, datagrams and descriptors. */
#include "util/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/error.h"

int notifier_init(struct notifier *ret)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t n = path ? strlen(path) : 0;
	int r = 0;

	*ret = NOTIFIER_INIT;
	if (n == 0)
		return 0;
	/* "@" stands for the NUL of the abstract namespace. */
	if ((path[0] != '/' && path[0] != '@') || n < 2 || n >= sizeof(ret->address.sun_path)) {
		r = SYSTEMD_E_ADDRESS;
	} else {
		ret->address.sun_family = AF_UNIX;
		memcpy(ret->address.sun_path, path, n);
		if (path[0] == '@')
			ret->address.sun_path[0] = '\0';
		ret->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
		ret->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		r = ret->fd < 0 ? error_origin(-errno) : 0;
	}
	unsetenv("NOTIFY_SOCKET");
	return r;
}

void notifier_deinit(struct notifier *notifier)
{
	notifier->fd = close_fd(notifier->fd);
}

int notifier_send(const struct notifier *notifier, const char *text)
{
	if (notifier->fd < 0)
		return 0;
	if (sendto(notifier->fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
		   (const struct sockaddr *)&notifier->address, notifier->address_bytes) >= 0)
		return 0;
	/* The manager may be gone: nothing is lost. */
	return errno == EAGAIN || errno == ENOBUFS ? SYSTEMD_E_BUSY : -errno;
}

/*
 * Read a variable of the environment as a number.
 * Return: false if it is absent or is not exactly a number.
 */
static bool read_number(const char *name, uint64_t *ret)
{
	const char *text = getenv(name);
	char *end;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno == 0 && !*end;
}

uint64_t systemd_watchdog_ns(void)
{
	uint64_t usec = 0, pid = 0;
	bool has_pid = getenv("WATCHDOG_PID");
	bool is_ours = !has_pid || (read_number("WATCHDOG_PID", &pid) && pid == (uint64_t)getpid());

	if (!read_number("WATCHDOG_USEC", &usec) || usec > UINT64_MAX / 1000)
		usec = 0;
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	return is_ours ? usec * 1000 : 0;
}

static int prepare_fd(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return error_origin(-errno);
	return 0;
}

/* Split the names of @n descriptors, separated by colons; missing names are empty. */
static void split_names(char ret_names[SYSTEMD_MAX_FDS][SYSTEMD_NAME_BYTES], int n)
{
	const char *at = getenv("LISTEN_FDNAMES");
	size_t length;

	for (int i = 0; i < n; i++) {
		ret_names[i][0] = '\0';
		if (!at)
			continue;
		length = strcspn(at, ":");
		if (length >= SYSTEMD_NAME_BYTES)
			length = SYSTEMD_NAME_BYTES - 1;
		memcpy(ret_names[i], at, length);
		ret_names[i][length] = '\0';
		at = strchr(at, ':');
		at = at ? at + 1 : NULL;
	}
}

static int take_fds(char ret_names[SYSTEMD_MAX_FDS][SYSTEMD_NAME_BYTES], unsigned int *ret_n)
{
	uint64_t pid, n;
	int r;

	*ret_n = 0;
	if (!getenv("LISTEN_FDS") || !getenv("LISTEN_PID"))
		return 0;
	if (!read_number("LISTEN_PID", &pid) || !read_number("LISTEN_FDS", &n))
		return SYSTEMD_E_MALFORMED;
	/* They were passed to an ancestor of this process. */
	if (pid != (uint64_t)getpid())
		return 0;
	if (n > SYSTEMD_MAX_FDS)
		return SYSTEMD_E_TOO_MANY;
	for (int i = 0; i < (int)n; i++) {
		r = prepare_fd(SYSTEMD_FIRST_FD + i);
		if (r)
			return r;
	}
	split_names(ret_names, (int)n);
	*ret_n = (unsigned int)n;
	return 0;
}

int systemd_take_fds(char ret_names[SYSTEMD_MAX_FDS][SYSTEMD_NAME_BYTES], unsigned int *ret_n)
{
	int r = take_fds(ret_names, ret_n);

	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return r;
}
