/* SPDX-License-Identifier: MIT */
/* Restarting brokers: see restart-rig.h. */
#include "integration/restart-rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "integration/raw.h"
#include "support/test.h"

/* Ask the broker that is there now. Return: as rbk_admin_restart(). */
int restart_ask(const struct broker *broker, struct rbk_admin_restart *ret, struct rbk_error *error)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = broker->admin_path,
		.timeout_ns = harness_slow_ns(20000000000u),
	};
	struct rbk *admin;
	int r = rbk_admin_connect(&options, &admin, error);

	if (r)
		return r;
	r = rbk_admin_restart(admin, RBK_RESTART_ASK, 0, ret, error);
	rbk_disconnect(admin);
	return r;
}

/* Have the broker restart. Return: as rbk_admin_restart(). */
int restart_begin(const struct broker *broker, uint32_t drain_ms, struct rbk_admin_restart *ret,
		  struct rbk_error *error)
{
	struct rbk *admin = broker_connect_admin(broker, "administrator");
	int r = rbk_admin_restart(admin, RBK_RESTART_BEGIN, drain_ms, ret, error);

	rbk_disconnect(admin);
	return r;
}

/* Wait until a broker answers that began to serve later than @before, with @n sessions back. */
struct rbk_admin_restart restart_await(const struct broker *broker,
				       const struct rbk_admin_restart *before, uint32_t n)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000u);
	struct rbk_admin_restart after;
	struct rbk_error error = {""};

	while (restart_ask(broker, &after, &error) || after.ready_ns == before->ready_ns ||
	       after.n_restored < n) {
		if (harness_now_ns() > end_ns) {
			broker_show_log(broker);
			fail_msg("no next broker, or not all sessions are back: %s", error.text);
		}
		harness_sleep_ms(1);
	}
	return after;
}

struct checker *restart_clients(const struct broker *broker)
{
	struct checker *clients = calloc(RESTART_CLIENTS, sizeof(*clients));

	assert_non_null(clients);
	for (unsigned int i = 0; i < RESTART_CLIENTS; i++) {
		clients[i].by_event_loop = i % 2;
		clients[i].n_plans = RESTART_PLANS;
		checker_start(&clients[i], broker->socket_path);
	}
	checkers_await_work(clients, RESTART_CLIENTS);
	return clients;
}

/* Copy the program to @path. */
void restart_copy_program(const char *path)
{
	const char *program = getenv("BROKERD");
	char command[512];

	snprintf(command, sizeof(command), "cp '%s' '%s'", program ? program : BROKERD_PATH, path);
	assert_int_equal(system(command), 0);
}

void restart_write_script(const char *path, const char *text)
{
	FILE *file;

	unlink(path);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, 0700), 0);
}

int restart_raw_admin(const struct broker *broker)
{
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.features = UINT64_MAX,
	};
	struct rbk_wire_welcome welcome;
	struct broker other = *broker;
	int fd;

	memcpy(other.socket_path, broker->admin_path, sizeof(other.socket_path));
	fd = raw_connect(&other);
	raw_ask(fd, &hello, sizeof(hello), NULL, 0, &welcome, sizeof(welcome));
	assert_true(welcome.features & RBK_FEAT_RESTART);
	return fd;
}

/* Ask for a restart, or about one, without the library's own check. Return: the answer. */
struct rbk_wire_restart restart_raw(int fd, uint32_t action)
{
	const struct rbk_wire_admin_restart request = {
		.request = {.type = RBK_WIRE_ADMIN_RESTART, .cookie = 7},
		.action = action,
	};
	struct rbk_wire_restart answer = {.ready_ns = 0};
	unsigned int n_fds = 0;

	assert_true(raw_send(fd, &request, sizeof(request), NULL, 0) > 0);
	assert_true(raw_receive(fd, &answer, sizeof(answer), NULL, &n_fds, 20000) >=
		    (ssize_t)sizeof(answer.reply));
	assert_int_equal(answer.reply.cookie, 7);
	return answer;
}
