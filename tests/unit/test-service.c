/* SPDX-License-Identifier: MIT */
/*
 * Messages to the service manager and their times, over timers that the test moves; environment and
 * descriptors from the manager
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/service.h"
#include "loop/loop.h"
#include "support/test.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/systemd.h"

#define MS 1000000ull
#define S  (1000 * MS)

/* ---- A reactor that the test turns ---- */

struct loop_timer {
	loop_timer_fn fn;
	void *data;
	uint64_t deadline_ns; /* 0: not armed */
};

static struct loop_timer *timers[8];
static unsigned int n_timers;
static uint64_t now_ns = 1000 * S;

uint64_t clock_now_ns(void)
{
	return now_ns;
}

int loop_timer_new(struct loop *loop, loop_timer_fn fn, void *data, struct loop_timer **ret)
{
	struct loop_timer *timer = calloc(1, sizeof(*timer));

	assert_non_null(timer);
	assert_in_range(n_timers, 0, 7);
	*timer = (struct loop_timer){.fn = fn, .data = data};
	timers[n_timers++] = *ret = timer;
	return 0;
}

void loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns)
{
	assert_true(delay_ns > 0);
	timer->deadline_ns = now_ns + delay_ns;
}

struct loop_timer *loop_timer_free(struct loop_timer *timer)
{
	if (!timer)
		return NULL;
	for (unsigned int i = 0; i < n_timers; i++)
		if (timers[i] == timer)
			timers[i] = timers[--n_timers];
	free(timer);
	return NULL;
}

/* Let @ns pass while the reactor turns. */
static void turn_for(uint64_t ns)
{
	uint64_t until_ns = now_ns + ns;
	struct loop_timer *first;

	for (;;) {
		first = NULL;
		for (unsigned int i = 0; i < n_timers; i++)
			if (timers[i]->deadline_ns && timers[i]->deadline_ns <= until_ns &&
			    (!first || timers[i]->deadline_ns < first->deadline_ns))
				first = timers[i];
		if (!first)
			break;
		if (first->deadline_ns > now_ns)
			now_ns = first->deadline_ns;
		first->deadline_ns = 0;
		first->fn(first->data);
	}
	now_ns = until_ns;
}

/* ---- An imitated manager ---- */

static int manager = -1;
static char manager_path[64];
static struct service *service;
static const char *description;

static void describe(void *context, char *text, size_t bytes)
{
	snprintf(text, bytes, "%s", description);
}

/* @prefix: "/tmp/", or "@" for an abstract address. */
static void manager_open(const char *prefix)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t n;

	snprintf(manager_path, sizeof(manager_path), "%stest-service-%d", prefix, (int)getpid());
	strcpy(address.sun_path, manager_path);
	n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(manager_path));
	if (*prefix == '@')
		address.sun_path[0] = '\0';
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(manager, (struct sockaddr *)&address, n), 0);
	setenv("NOTIFY_SOCKET", manager_path, 1);
}

/* Return the manager's next datagram, or "" if there is none. */
static const char *told(void)
{
	static char text[1024];
	ssize_t n = recv(manager, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static int test_setup(void **state)
{
	log_set_level(LOG_LEVEL_ERROR);
	description = "idle";
	return 0;
}

static int test_teardown(void **state)
{
	service = service_free(service);
	assert_int_equal(n_timers, 0);
	if (manager >= 0) {
		close(manager);
		unlink(manager_path);
	}
	manager = -1;
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	return 0;
}

static void start(void)
{
	assert_int_equal(service_new(NULL, &service), 0);
	assert_null(getenv("NOTIFY_SOCKET"));
	assert_null(getenv("WATCHDOG_USEC"));
}

static void start_and_be_ready(void)
{
	start();
	service_ready(service, describe, NULL);
	assert_string_equal(told(), "READY=1\nSTATUS=idle");
}

/* ---- Messages ---- */

TEST(test_state__start_to_stop, test_setup, test_teardown)
{
	manager_open("/tmp/");
	start();
	assert_string_equal(told(), "");
	service_starting(service, "opening");
	assert_string_equal(told(), "EXTEND_TIMEOUT_USEC=120000000\nSTATUS=opening");
	turn_for(100 * S);
	assert_string_equal(told(), "");
	service_ready(service, describe, NULL);
	assert_string_equal(told(), "READY=1\nSTATUS=idle");
	service_stopping(service);
	assert_string_equal(told(), "STOPPING=1\nSTATUS=finishing the tasks in flight");
	description = "something else";
	turn_for(100 * S);
	assert_string_equal(told(), "");
}

TEST(test_state__reload, test_setup, test_teardown)
{
	char wanted[128];

	manager_open("@");
	start_and_be_ready();
	snprintf(wanted, sizeof(wanted),
		 "RELOADING=1\nMONOTONIC_USEC=%llu\nSTATUS=reading the policy again",
		 (unsigned long long)(now_ns / 1000));
	service_reloading(service);
	assert_string_equal(told(), wanted);
	description = "2 sessions";
	turn_for(10 * S);
	assert_string_equal(told(), "");
	service_reloaded(service);
	assert_string_equal(told(), "READY=1\nSTATUS=2 sessions");
	/* A reload that ends while the broker stops does not revoke the stopping. */
	service_reloading(service);
	told();
	service_stopping(service);
	told();
	service_reloaded(service);
	assert_string_equal(told(), "");
}

/* The status is sent when it has changed, at most every five seconds. */
TEST(test_status__as_it_changes, test_setup, test_teardown)
{
	manager_open("/tmp/");
	start_and_be_ready();
	turn_for(60 * S);
	assert_string_equal(told(), "");
	description = "busy";
	turn_for(5 * S);
	assert_string_equal(told(), "STATUS=busy");
	for (int i = 0; i < 49; i++) {
		description = i % 2 ? "idle" : "busy";
		turn_for(100 * MS);
	}
	assert_string_equal(told(), "");
	description = "contended";
	turn_for(100 * MS);
	assert_string_equal(told(), "STATUS=contended");
	assert_string_equal(told(), "");
}

/* ---- Watchdog ---- */

static unsigned int count_signs(void)
{
	const char *text;
	unsigned int n = 0;

	while (*(text = told())) {
		assert_string_equal(text, "WATCHDOG=1");
		n++;
	}
	return n;
}

TEST(test_watchdog__while_the_reactor_turns, test_setup, test_teardown)
{
	char pid[16];

	manager_open("/tmp/");
	setenv("WATCHDOG_USEC", "30000000", 1);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	start();
	turn_for(60 * S);
	assert_int_equal(count_signs(), 0);
	service_ready(service, describe, NULL);
	assert_string_equal(told(), "READY=1\nSTATUS=idle");
	assert_int_equal(count_signs(), 1);
	turn_for(60 * S);
	assert_int_equal(count_signs(), 6);
	/* The reactor hangs: time passes without a turn. */
	now_ns += 3600 * S;
	assert_int_equal(count_signs(), 0);
	/* Signs of life continue during a long reload and while stopping. */
	turn_for(10 * S);
	assert_int_equal(count_signs(), 2);
	service_reloading(service);
	told();
	turn_for(30 * S);
	assert_int_equal(count_signs(), 3);
	service_stopping(service);
	told();
	turn_for(30 * S);
	assert_int_equal(count_signs(), 3);
}

TEST(test_watchdog__not_configured, test_setup, test_teardown)
{
	static const char *const none[][2] = {
		{NULL, NULL}, {"30000000", "1"}, {"", NULL},   {"0", NULL},
		{"-5", NULL}, {"30s", NULL},     {"30", "-1"}, {"99999999999999999999", NULL},
	};

	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
		manager_open("/tmp/");
		if (none[i][0])
			setenv("WATCHDOG_USEC", none[i][0], 1);
		if (none[i][1])
			setenv("WATCHDOG_PID", none[i][1], 1);
		start_and_be_ready();
		turn_for(3600 * S);
		assert_string_equal(told(), "");
		test_teardown(NULL);
	}
}

/* Even a tiny watchdog interval leaves time for other work. */
TEST(test_watchdog__too_often, test_setup, test_teardown)
{
	manager_open("/tmp/");
	setenv("WATCHDOG_USEC", "1", 1);
	start_and_be_ready();
	assert_int_equal(count_signs(), 1);
	turn_for(50 * MS);
	assert_int_equal(count_signs(), 5);
}

/* ---- A manager that is slow, gone, or absent ---- */

TEST(test_manager__slow, test_setup, test_teardown)
{
	unsigned int n = 0;
	const char *text;
	bool is_told = false;

	manager_open("/tmp/");
	setenv("WATCHDOG_USEC", "30000", 1);
	alarm(20);
	start_and_be_ready();
	turn_for(60 * S);
	service_stopping(service);
	turn_for(10 * MS);
	alarm(0);
	while (*(text = told())) {
		assert_string_equal(text, "WATCHDOG=1");
		n++;
	}
	/*
	 * The kernel kept a limited number of datagrams. The present state is sent when there is
	 * room again.
	 */
	assert_in_range(n, 1, 5999);
	turn_for(100 * MS);
	while (*(text = told()))
		is_told |= strcmp(text, "STOPPING=1\nSTATUS=finishing the tasks in flight") == 0;
	assert_true(is_told);
}

TEST(test_manager__gone, test_setup, test_teardown)
{
	manager_open("/tmp/");
	setenv("WATCHDOG_USEC", "30000000", 1);
	start_and_be_ready();
	unlink(manager_path);
	description = "busy";
	turn_for(60 * S);
	service_reloading(service);
	service_reloaded(service);
	service_stopping(service);
	turn_for(60 * S);
}

TEST(test_manager__none, test_setup, test_teardown)
{
	static const char *const addresses[] = {NULL, "", "relative", "@", "/", "vsock:2:1234"};
	char too_long[200];

	for (size_t i = 0; i <= sizeof(addresses) / sizeof(*addresses); i++) {
		if (i == sizeof(addresses) / sizeof(*addresses)) {
			memset(too_long, '/', sizeof(too_long) - 1);
			too_long[sizeof(too_long) - 1] = '\0';
			setenv("NOTIFY_SOCKET", too_long, 1);
		} else if (addresses[i]) {
			setenv("NOTIFY_SOCKET", addresses[i], 1);
		}
		setenv("WATCHDOG_USEC", "30000000", 1);
		assert_int_equal(service_new(NULL, &service), 0);
		assert_int_equal(n_timers, 0);
		service_starting(service, "opening");
		service_ready(service, describe, NULL);
		service_reloading(service);
		service_reloaded(service);
		service_stopping(service);
		test_teardown(NULL);
	}
}

/* ---- Descriptors from the manager ---- */

static void give(const char *pid, const char *n, const char *names)
{
	char own[16];

	snprintf(own, sizeof(own), "%d", (int)getpid());
	setenv("LISTEN_PID", pid ? pid : own, 1);
	setenv("LISTEN_FDS", n, 1);
	if (names)
		setenv("LISTEN_FDNAMES", names, 1);
	else
		unsetenv("LISTEN_FDNAMES");
}

/* Return the number of descriptors taken. */
static unsigned int take_fds(char names[SYSTEMD_MAX_FDS][SYSTEMD_NAME_BYTES])
{
	unsigned int n = 77;

	assert_int_equal(systemd_take_fds(names, &n), 0);
	return n;
}

TEST(test_fds__named, test_setup, test_teardown)
{
	char names[SYSTEMD_MAX_FDS][SYSTEMD_NAME_BYTES];
	unsigned int n;
	int pipe_fds[2], saved[2] = {dup(3), dup(4)}, long_name = 0;
	char text[200];

	assert_int_equal(pipe(pipe_fds), 0);
	assert_true(dup2(pipe_fds[0], 3) == 3 && dup2(pipe_fds[1], 4) == 4);

	give(NULL, "2", "brokerd.sock:admin.sock");
	assert_int_equal(take_fds(names), 2);
	assert_string_equal(names[0], "brokerd.sock");
	assert_string_equal(names[1], "admin.sock");
	assert_true(fcntl(3, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(4, F_GETFL) & O_NONBLOCK);
	/*
	 * Descriptors are taken once. Children must not take them for their own, so the variables
	 * are removed.
	 */
	assert_null(getenv("LISTEN_FDS"));
	assert_int_equal(take_fds(names), 0);

	give(NULL, "2", NULL);
	assert_int_equal(take_fds(names), 2);
	assert_string_equal(names[0], "");
	give(NULL, "2", "one");
	assert_int_equal(take_fds(names), 2);
	assert_string_equal(names[0], "one");
	assert_string_equal(names[1], "");
	memset(text, 'n', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	give(NULL, "1", text);
	assert_int_equal(take_fds(names), 1);
	long_name = (int)strlen(names[0]);
	assert_int_equal(long_name, SYSTEMD_NAME_BYTES - 1);

	close(3);
	give(NULL, "1", "brokerd.sock");
	assert_int_equal(systemd_take_fds(names, &n), -EBADF);
	for (int i = 0; i < 2; i++)
		if (saved[i] >= 0)
			dup2(saved[i], 3 + i);
}

TEST(test_fds__none, test_setup, test_teardown)
{
	char names[SYSTEMD_MAX_FDS][SYSTEMD_NAME_BYTES];
	unsigned int n;

	assert_int_equal(take_fds(names), 0);
	give("1", "1", "brokerd.sock");
	assert_int_equal(take_fds(names), 0);
	assert_null(getenv("LISTEN_FDS"));
	give(NULL, "0", NULL);
	assert_int_equal(take_fds(names), 0);
	give(NULL, "-1", NULL);
	assert_int_equal(systemd_take_fds(names, &n), SYSTEMD_E_MALFORMED);
	give("x", "1", NULL);
	assert_int_equal(systemd_take_fds(names, &n), SYSTEMD_E_MALFORMED);
	give(NULL, "9", NULL);
	assert_int_equal(systemd_take_fds(names, &n), SYSTEMD_E_TOO_MANY);
	give(NULL, "18446744073709551617", NULL);
	assert_int_equal(systemd_take_fds(names, &n), SYSTEMD_E_MALFORMED);
}
