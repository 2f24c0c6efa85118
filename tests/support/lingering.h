#pragma once
/* SPDX-License-Identifier: MIT */
/* Sockets that take long to close */
#include <netinet/in.h>
#include <sys/socket.h>

#include "support/test.h"

/*
 * Make a socket whose close() waits for @linger_s, because the peer never reads what was written.
 * @listener is a listening TCP socket with a small buffer.
 */
static inline int lingering_socket(int listener, int linger_s)
{
	const struct linger linger = {.l_onoff = 1, .l_linger = linger_s};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	static const char bytes[65536];
	struct sockaddr_in address;
	socklen_t length = sizeof(address);

	assert_true(fd >= 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	return fd;
}
