/* SPDX-License-Identifier: MIT */
/* See metrics-address.h. */
#include "control/metrics-address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/error.h"

enum {
	BACKLOG = 64,
	SOCKET_MODE = 0660,
};

static int parse_path(const char *path, struct metrics_address *ret)
{
	struct sockaddr_un *local = &ret->socket.local;

	if (path[0] != '/' || strlen(path) >= sizeof(local->sun_path))
		return METRICS_E_ADDRESS;
	local->sun_family = AF_UNIX;
	strcpy(local->sun_path, path);
	ret->bytes = sizeof(*local);
	return 0;
}

/*
 * Parse a port number.
 * Return: the port in network order; 0: no valid port.
 */
static in_port_t parse_port(const char *text)
{
	unsigned long port;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return 0;
	port = strtoul(text, &end, 10);
	return *end || port > UINT16_MAX ? 0 : htons((uint16_t)port);
}

static int parse_ip4(const char *host, in_port_t port, struct metrics_address *ret)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = port};

	if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
		return METRICS_E_ADDRESS;
	if (ntohl(address.sin_addr.s_addr) >> 24 != IN_LOOPBACKNET)
		return METRICS_E_ELSEWHERE;
	memcpy(&ret->socket, &address, sizeof(address));
	ret->bytes = sizeof(address);
	return 0;
}

static int parse_ip6(const char *host, in_port_t port, struct metrics_address *ret)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = port};

	if (inet_pton(AF_INET6, host, &address.sin6_addr) != 1)
		return METRICS_E_ADDRESS;
	if (!IN6_IS_ADDR_LOOPBACK(&address.sin6_addr))
		return METRICS_E_ELSEWHERE;
	memcpy(&ret->socket, &address, sizeof(address));
	ret->bytes = sizeof(address);
	return 0;
}

int metrics_address_parse(const char *text, struct metrics_address *ret)
{
	char host[METRICS_ADDRESS_BYTES], *colon;
	in_port_t port;
	size_t n;

	*ret = (struct metrics_address){.bytes = 0};
	if (strcmp(text, "none") == 0)
		return 0;
	if (strncmp(text, "unix:", 5) == 0)
		return parse_path(text + 5, ret);
	n = strlen(text);
	if (n >= sizeof(host))
		return METRICS_E_ADDRESS;
	memcpy(host, text, n + 1);
	colon = strrchr(host, ':');
	port = colon ? parse_port(colon + 1) : 0;
	if (port == 0)
		return METRICS_E_ADDRESS;
	*colon = '\0';
	if (host[0] != '[')
		return parse_ip4(host, port, ret);
	n = strlen(host);
	if (host[n - 1] != ']')
		return METRICS_E_ADDRESS;
	host[n - 1] = '\0';
	return parse_ip6(host + 1, port, ret);
}

/* ---- Listening ---- */

static int outcome_of(int error)
{
	switch (error) {
	case EADDRINUSE:
		return METRICS_E_IN_USE;
	case EACCES:
	case EPERM:
	case EROFS:
		return METRICS_E_PERMISSION;
	case ENOENT:
	case ENOTDIR:
		return METRICS_E_PATH;
	default:
		return error_origin(-error);
	}
}

/* Remove a socket at the path that a killed broker may have left. */
static int clear_path(const struct metrics_address *address)
{
	const char *path = address->socket.local.sun_path;
	_cleanup_(close_fdp) int fd = -1;
	struct stat status;

	if (lstat(path, &status) < 0)
		return errno == ENOENT ? 0 : outcome_of(errno);
	if (!S_ISSOCK(status.st_mode))
		return METRICS_E_NO_SOCKET;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_origin(-errno);
	if (connect(fd, &address->socket.any, address->bytes) == 0 || errno == EAGAIN)
		return METRICS_E_IN_USE;
	/* A socket of another type is in use, too. */
	if (errno != ECONNREFUSED)
		return errno == EPROTOTYPE ? METRICS_E_IN_USE : outcome_of(errno);
	return unlink(path) < 0 ? outcome_of(errno) : 0;
}

/*
 * Set the socket's group and mode. No client can connect before listen().
 * Return: as metrics_listen().
 */
static int give_to_group(const char *path, gid_t gid, bool *ret_has_group)
{
	bool has_group = gid == (gid_t)-1 || chown(path, (uid_t)-1, gid) == 0;

	if (chmod(path, has_group ? SOCKET_MODE : SOCKET_MODE & 0700) < 0) {
		int error = errno;

		unlink(path);
		return outcome_of(error);
	}
	if (ret_has_group)
		*ret_has_group = has_group;
	return 0;
}

int metrics_listen(const struct metrics_address *address, gid_t gid, int *ret_fd,
		   bool *ret_has_group)
{
	const int family = address->socket.any.sa_family, on = 1;
	_cleanup_(close_fdp) int fd = -1;
	int r;

	if (ret_has_group)
		*ret_has_group = true;
	if (family == AF_UNIX) {
		r = clear_path(address);
		if (r)
			return r;
	}
	fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_origin(-errno);
	/* Ignore connections of an earlier broker that the kernel still remembers. */
	if (family != AF_UNIX && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
		return error_origin(-errno);
	if (bind(fd, &address->socket.any, address->bytes) < 0)
		return outcome_of(errno);
	if (family == AF_UNIX) {
		r = give_to_group(address->socket.local.sun_path, gid, ret_has_group);
		if (r)
			return r;
	}
	if (listen(fd, BACKLOG) < 0)
		return outcome_of(errno);
	*ret_fd = steal_fd(&fd);
	return 0;
}
