/* SPDX-License-Identifier: MIT */
/* Valid addresses, and the handling of an existing socket. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/metrics-address.h"
#include "support/test.h"
#include "util/checked.h"
#include "util/cleanup.h"

TEST(test_parse)
{
	static const struct {
		const char *text;
		int outcome, family;
	} cases[] = {
		{"none", 0, AF_UNSPEC},
		{"unix:/run/ringbroker/metrics.sock", 0, AF_UNIX},
		{"127.0.0.1:9469", 0, AF_INET},
		{"127.1.2.3:1", 0, AF_INET},
		{"[::1]:65535", 0, AF_INET6},
		{"0.0.0.0:9469", METRICS_E_ELSEWHERE, 0},
		{"192.168.1.1:9469", METRICS_E_ELSEWHERE, 0},
		{"8.8.8.8:9469", METRICS_E_ELSEWHERE, 0},
		{"[::]:9469", METRICS_E_ELSEWHERE, 0},
		{"[fe80::1]:9469", METRICS_E_ELSEWHERE, 0},
		{"[::ffff:10.0.0.1]:9469", METRICS_E_ELSEWHERE, 0},
		{"", METRICS_E_ADDRESS, 0},
		{"unix:", METRICS_E_ADDRESS, 0},
		{"unix:metrics.sock", METRICS_E_ADDRESS, 0},
		{"127.0.0.1", METRICS_E_ADDRESS, 0},
		{"127.0.0.1:", METRICS_E_ADDRESS, 0},
		{"127.0.0.1:0", METRICS_E_ADDRESS, 0},
		{"127.0.0.1:-1", METRICS_E_ADDRESS, 0},
		{"127.0.0.1:+80", METRICS_E_ADDRESS, 0},
		{"127.0.0.1:65536", METRICS_E_ADDRESS, 0},
		{"127.0.0.1:99999999999999999999999", METRICS_E_ADDRESS, 0},
		{"127.0.0.1:80x", METRICS_E_ADDRESS, 0},
		{"localhost:9469", METRICS_E_ADDRESS, 0},
		{":9469", METRICS_E_ADDRESS, 0},
		{"9469", METRICS_E_ADDRESS, 0},
		{"::1:9469", METRICS_E_ADDRESS, 0},
		{"[:9469", METRICS_E_ADDRESS, 0},
		{"[::1:9469", METRICS_E_ADDRESS, 0},
		{"[]:9469", METRICS_E_ADDRESS, 0},
		{"http://127.0.0.1:9469", METRICS_E_ADDRESS, 0},
	};
	struct metrics_address address;
	char text[300];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(metrics_address_parse(cases[i].text, &address), cases[i].outcome);
		if (cases[i].outcome)
			continue;
		assert_int_equal(address.socket.any.sa_family, cases[i].family);
		assert_int_equal(address.bytes > 0, cases[i].family != AF_UNSPEC);
	}
	memset(text, '1', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(metrics_address_parse(text, &address), METRICS_E_ADDRESS);
	memcpy(text, "unix:/", 6);
	assert_int_equal(metrics_address_parse(text, &address), METRICS_E_ADDRESS);
	text[5 + sizeof(address.socket.local.sun_path)] = '\0';
	assert_int_equal(metrics_address_parse(text, &address), METRICS_E_ADDRESS);
	text[4 + sizeof(address.socket.local.sun_path)] = '\0';
	assert_int_equal(metrics_address_parse(text, &address), 0);
}

static struct metrics_address address_in(const char *folder, const char *name)
{
	struct metrics_address address;
	char text[METRICS_ADDRESS_BYTES];

	snprintf(text, sizeof(text), "unix:%s/%s", folder, name);
	assert_int_equal(metrics_address_parse(text, &address), 0);
	return address;
}

TEST(test_path)
{
	char folder[] = "/tmp/test-metrics-XXXXXX";
	struct metrics_address address;
	struct stat status;
	const char *path;
	int fd = -1, other = -1;
	FILE *file;

	assert_non_null(mkdtemp(folder));
	address = address_in(folder, "sock");
	path = address.socket.local.sun_path;
	assert_int_equal(metrics_listen(&address, getgid(), &fd, NULL), 0);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0660);
	assert_int_equal(status.st_gid, getgid());
	assert_int_equal(metrics_listen(&address, (gid_t)-1, &other, NULL), METRICS_E_IN_USE);
	/* The listener at this path has exited. */
	close(fd);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(metrics_listen(&address, (gid_t)-1, &fd, NULL), 0);
	close(fd);
	unlink(path);

	file = fopen(path, "w");
	assert_non_null(file);
	fputs("precious", file);
	fclose(file);
	assert_int_equal(metrics_listen(&address, (gid_t)-1, &fd, NULL), METRICS_E_NO_SOCKET);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_size, 8);
	unlink(path);
	/* A link is not followed. */
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_int_equal(metrics_listen(&address, (gid_t)-1, &fd, NULL), METRICS_E_NO_SOCKET);
	unlink(path);

	address = address_in(folder, "none/sock");
	assert_int_equal(metrics_listen(&address, (gid_t)-1, &fd, NULL), METRICS_E_PATH);
	if (geteuid() != 0) {
		chmod(folder, 0500);
		address = address_in(folder, "sock");
		assert_int_equal(metrics_listen(&address, (gid_t)-1, &fd, NULL),
				 METRICS_E_PERMISSION);
		chmod(folder, 0700);
	}
	rmdir(folder);
}

/* If the broker cannot give the socket to the group, only the broker's user has access. */
TEST(test_foreign_group)
{
	char folder[] = "/tmp/test-metrics-XXXXXX";
	struct metrics_address address;
	struct stat status;
	bool has_group;
	int fd = -1;

	assert_non_null(mkdtemp(folder));
	address = address_in(folder, "sock");
	assert_int_equal(metrics_listen(&address, 12345, &fd, &has_group), 0);
	assert_int_equal(stat(address.socket.local.sun_path, &status), 0);
	assert_int_equal(status.st_mode & 07777, has_group ? 0660 : 0600);
	assert_int_equal(status.st_gid, has_group ? 12345 : getgid());
	close(fd);
	unlink(address.socket.local.sun_path);
	assert_int_equal(rmdir(folder), 0);
}

TEST(test_port)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct metrics_address address;
	socklen_t bytes = sizeof(any);
	char text[METRICS_ADDRESS_BYTES];
	int fd, other = -1;

	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&any, sizeof(any)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&any, &bytes), 0);
	snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(any.sin_port));
	assert_int_equal(metrics_address_parse(text, &address), 0);
	assert_int_equal(metrics_listen(&address, (gid_t)-1, &other, NULL), METRICS_E_IN_USE);
	close(fd);
}
