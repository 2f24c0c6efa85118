/* SPDX-License-Identifier: MIT */
/*
 * The metrics endpoint: its answers, and clients that are slow, many, or hostile. Whatever they do,
 * other clients are answered, and the endpoint ends when told to.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "control/metrics-gzip.h"
#include "control/metrics.h"
#include "fail-alloc.h"
#include "support/test.h"
#include "tests/unit/metrics-rig.h"
#include "util/checked.h"

enum {
	MANY_TENANTS = 256, /* their text exceeds any socket buffer */
	ANSWER_BYTES = 1 << 16,
};

struct kit {
	struct metrics_rig rig;
	char folder[32];
	struct metrics_options options;
	struct metrics *metrics;
};

static int setup(void **state)
{
	static struct kit kit;
	char text[METRICS_ADDRESS_BYTES];

	kit = (struct kit){.folder = "/tmp/test-metrics-XXXXXX"};
	assert_non_null(mkdtemp(kit.folder));
	metrics_rig_init(&kit.rig, MANY_TENANTS);
	metrics_rig_fill(&kit.rig);
	for (uint32_t i = 2; i < MANY_TENANTS; i++) {
		snprintf(text, sizeof(text), "tenant-%u", i);
		metrics_rig_tenant(&kit.rig, i, text);
	}
	kit.options = (struct metrics_options){
		.gid = (gid_t)-1, .view = kit.rig.view, .version = "1.2.3"};
	snprintf(text, sizeof(text), "unix:%s/sock", kit.folder);
	assert_int_equal(metrics_address_parse(text, &kit.options.address), 0);
	assert_int_equal(metrics_new(&kit.options, &kit.metrics), 0);
	*state = &kit;
	return 0;
}

static int teardown(void **state)
{
	struct kit *kit = *state;

	metrics_free(kit->metrics);
	/* The socket was removed. */
	assert_int_equal(rmdir(kit->folder), 0);
	metrics_rig_deinit(&kit->rig);
	return 0;
}

static void sleep_ms(unsigned int ms)
{
	const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&time, NULL);
}

/* Return: a descriptor, or -1 if the endpoint has no room. */
static int try_connect(const struct kit *kit)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	if (connect(fd, &kit->options.address.socket.any, kit->options.address.bytes) == 0)
		return fd;
	assert_int_equal(errno, EAGAIN);
	close(fd);
	return -1;
}

static int connect_to(const struct kit *kit)
{
	int fd;

	while ((fd = try_connect(kit)) < 0)
		sleep_ms(10);
	return fd;
}

/*
 * Send the whole text, waiting for room.
 * Return: false if the peer has closed.
 */
static bool send_text(int fd, const char *text, size_t bytes)
{
	struct pollfd poller = {.fd = fd, .events = POLLOUT};
	ssize_t n;

	while (bytes > 0) {
		n = send(fd, text, bytes, MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN)
			return false;
		if (n < 0)
			poll(&poller, 1, -1);
		else
			text += n, bytes -= (size_t)n;
	}
	return true;
}

/*
 * Receive until the end. @ret holds the first ANSWER_BYTES - 1 bytes, NUL-terminated.
 * Return: the number of all bytes.
 */
static size_t receive(int fd, char ret[ANSWER_BYTES])
{
	struct pollfd poller = {.fd = fd, .events = POLLIN};
	char buffer[65536];
	size_t bytes = 0;
	ssize_t n;

	for (;;) {
		poll(&poller, 1, -1);
		n = recv(fd, buffer, sizeof(buffer), 0);
		if (n < 0 && errno == EAGAIN)
			continue;
		if (n <= 0)
			break;
		if (bytes < ANSWER_BYTES - 1)
			memcpy(ret + bytes, buffer,
			       bytes + (size_t)n < ANSWER_BYTES ? (size_t)n
								: ANSWER_BYTES - 1 - bytes);
		bytes += (size_t)n;
	}
	ret[bytes < ANSWER_BYTES ? bytes : ANSWER_BYTES - 1] = '\0';
	close(fd);
	return bytes;
}

/* Return: the number of bytes of the answer. */
static size_t ask(const struct kit *kit, const char *request, char ret[ANSWER_BYTES])
{
	int fd = connect_to(kit);

	assert_true(send_text(fd, request, strlen(request)));
	return receive(fd, ret);
}

static const char get_metrics[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/* Scrape like a well-behaved client, and retry until there is an answer. */
static void scrape(const struct kit *kit)
{
	static char answer[ANSWER_BYTES];
	int fd;

	do {
		fd = connect_to(kit);
		send_text(fd, get_metrics, sizeof(get_metrics) - 1);
	} while (receive(fd, answer) == 0);
	assert_memory_equal(answer, "HTTP/1.1 200 OK\r\n", 17);
}

static unsigned int count_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

/* Wait until the endpoint has closed all descriptors of clients. */
static void wait_fds(unsigned int expected)
{
	while (count_fds() > expected)
		sleep_ms(10);
}

TEST(test_answers, setup, teardown)
{
	static char answer[ANSWER_BYTES];
	struct kit *kit = *state;
	size_t bytes;

	bytes = ask(kit, get_metrics, answer);
	assert_true(bytes > 1000000);
	assert_memory_equal(answer, "HTTP/1.1 200 OK\r\n", 17);
	assert_non_null(strstr(answer, "\r\nConnection: close\r\n"));
	assert_non_null(strstr(answer, "text/plain; version=0.0.4; charset=utf-8\r\n"));
	assert_non_null(strstr(answer,
			       "\nringbroker_build_info{version=\"1.2.3\",statistics=\"1.2\""
			       "} 1\n"));
	ask(kit, "GET /metrics?x=1 HTTP/1.0\r\nAccept: application/openmetrics-text\r\n\r\n",
	    answer);
	assert_memory_equal(answer + 8, " 200 OK\r\n", 9);
	assert_non_null(strstr(answer, "application/openmetrics-text; version=1.0.0; "));
	assert_non_null(strstr(answer, "\nringbroker_statistics_resets_created "));
	bytes = ask(kit, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", answer);
	assert_memory_equal(answer, "HTTP/1.1 200 OK\r\n", 17);
	assert_true(bytes < 500);
	ask(kit, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", answer);
	assert_memory_equal(answer, "HTTP/1.1 200 OK\r\n", 17);
	assert_non_null(strstr(answer, "Its metrics are at /metrics."));
}

TEST(test_refused, setup, teardown)
{
	static const struct {
		const char *request, *status;
	} cases[] = {
		{"GET /metrics/ HTTP/1.1\r\nHost: x\r\n\r\n", " 404 "},
		{"GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", " 404 "},
		{"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", " 404 "},
		{"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
		 " 405 "},
		{"DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", " 405 "},
		{"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", " 405 "},
		{"GET /metrics HTTP/1.1\r\n\r\n", " 400 "},
	};
	static char answer[ANSWER_BYTES], large[100000];
	struct kit *kit = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ask(kit, cases[i].request, answer);
		assert_memory_equal(answer + 8, cases[i].status, 5);
	}
	assert_null(strstr(answer, "ringbroker_"));
	ask(kit, cases[3].request, answer);
	assert_non_null(strstr(answer, "\r\nAllow: GET, HEAD\r\n"));

	/* An unwanted body, oversized headers, and bytes that are not HTTP. */
	memset(large, 'x', sizeof(large));
	for (unsigned int i = 0; i < 3; i++) {
		static const char *const begins[] = {
			"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
			"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ", ""};
		int fd = connect_to(kit);

		send_text(fd, begins[i], strlen(begins[i]));
		send_text(fd, large, sizeof(large));
		receive(fd, answer);
		assert_null(strstr(answer, " 200 OK"));
	}
	scrape(kit);
}

/* One text of the page has the same figures for each coding. */
TEST(test_gzip, setup, teardown)
{
	static const char gzip[] =
		"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n";
	static char answer[ANSWER_BYTES], again[ANSWER_BYTES];
	struct kit *kit = *state;
	size_t bytes, plain_bytes;
	char *data;

	if (!metrics_gzip("x", 1, &data, &bytes))
		skip();
	free(data);
	plain_bytes = ask(kit, get_metrics, answer);
	assert_null(strstr(answer, "\r\nContent-Encoding:"));
	assert_non_null(strstr(answer, "\r\nVary: Accept, Accept-Encoding\r\n"));
	bytes = ask(kit, gzip, answer);
	assert_memory_equal(answer, "HTTP/1.1 200 OK\r\n", 17);
	assert_non_null(strstr(answer, "\r\nContent-Encoding: gzip\r\n"));
	assert_non_null(strstr(answer, "\r\nVary: Accept, Accept-Encoding\r\n"));
	assert_non_null(strstr(answer, "text/plain; version=0.0.4; charset=utf-8\r\n"));
	assert_true(bytes < plain_bytes / 5);
	/* The text is compressed once: processor time would differ in a second text. */
	assert_int_equal(ask(kit, gzip, again), bytes);
	assert_memory_equal(strstr(answer, "\r\n\r\n"), strstr(again, "\r\n\r\n"),
			    ANSWER_BYTES / 2);
	__atomic_store_n(&kit->rig.header->n_updates, 2, __ATOMIC_RELEASE);
	ask(kit, gzip, again);
	assert_memory_not_equal(strstr(answer, "\r\n\r\n"), strstr(again, "\r\n\r\n"),
				ANSWER_BYTES / 2);
}

/* A text is written once for each update of the page. */
TEST(test_update, setup, teardown)
{
	static char answer[ANSWER_BYTES];
	struct kit *kit = *state;

	ask(kit, get_metrics, answer);
	assert_non_null(strstr(answer, "\nringbroker_sessions 10\n"));
	kit->rig.broker->n_sessions = 11;
	ask(kit, get_metrics, answer);
	assert_non_null(strstr(answer, "\nringbroker_sessions 10\n"));
	__atomic_store_n(&kit->rig.header->n_updates, 2, __ATOMIC_RELEASE);
	ask(kit, get_metrics, answer);
	assert_non_null(strstr(answer, "\nringbroker_sessions 11\n"));
	kit->rig.broker->n_sessions = 12;
	__atomic_store_n(&kit->rig.header->n_resets, 7, __ATOMIC_RELEASE);
	ask(kit, get_metrics, answer);
	assert_non_null(strstr(answer, "\nringbroker_sessions 12\n"));
}

/* Clients that send a byte now and then, and never a whole request. */
TEST(test_slow_senders, setup, teardown)
{
	unsigned int n_fds = count_fds(), n_left = 0;
	struct kit *kit = *state;
	int fds[40];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = connect_to(kit);
		send_text(fds[i], "GET /metrics HTTP/1.1\r\nX: ", 26);
	}
	/* All slow clients are connected before the good one. */
	for (unsigned int round = 0; round < 3; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
			send_text(fds[i], "x", 1);
		scrape(kit);
	}
	/* The last slow clients are disconnected even if no other client needs their place. */
	do {
		n_left = 0;
		for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
			n_left += send_text(fds[i], "x", 1);
		sleep_ms(50);
	} while (n_left > 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	wait_fds(n_fds);
}

/* Clients that send requests and do not read the answers. */
TEST(test_slow_readers, setup, teardown)
{
	unsigned int n_fds = count_fds();
	struct kit *kit = *state;
	int fds[40];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = connect_to(kit);
		send_text(fds[i], get_metrics, sizeof(get_metrics) - 1);
		/* Each client gets a different text. */
		__atomic_fetch_add(&kit->rig.header->n_updates, 1, __ATOMIC_RELEASE);
	}
	scrape(kit);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	wait_fds(n_fds);
}

TEST(test_thousand, setup, teardown)
{
	enum { N = 1000 };
	static int fds[N];
	unsigned int n_fds = count_fds(), n_connected = 0;
	struct kit *kit = *state;

	for (unsigned int i = 0; i < N; i++) {
		fds[i] = try_connect(kit);
		n_connected += fds[i] >= 0;
	}
	/* Connected clients, and those in the backlog. */
	assert_true(n_connected >= 16 && n_connected < 200);
	scrape(kit);
	for (unsigned int i = 0; i < N; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	wait_fds(n_fds);
}

/* Clients that disconnect at any point of a request. */
TEST(test_aborts, setup, teardown)
{
	struct kit *kit = *state;
	unsigned int n_fds = count_fds();

	for (unsigned int i = 0; i < 300; i++) {
		int fd = connect_to(kit);

		send_text(fd, get_metrics, i % sizeof(get_metrics));
		if (i % 3 == 0)
			shutdown(fd, SHUT_WR);
		close(fd);
	}
	scrape(kit);
	wait_fds(n_fds);
}

/* The endpoint ends, whatever clients do. */
TEST(test_stop, setup, teardown)
{
	struct kit *kit = *state;
	static char answer[ANSWER_BYTES];
	int fds[20];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = connect_to(kit);
		send_text(fds[i], get_metrics, i % 2 ? sizeof(get_metrics) - 1 : 5);
	}
	kit->metrics = metrics_free(kit->metrics);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		receive(fds[i], answer);
}

TEST(test_socket, setup, teardown)
{
	struct kit *kit = *state;
	const char *path = kit->options.address.socket.local.sun_path;
	struct metrics *other = NULL;
	struct stat status;

	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0660);
	assert_int_equal(metrics_new(&kit->options, &other), METRICS_E_IN_USE);
	scrape(kit);

	/* A socket of another process stays, as after a restart. */
	unlink(path);
	assert_int_equal(metrics_new(&kit->options, &other), 0);
	kit->metrics = metrics_free(kit->metrics);
	assert_int_equal(access(path, F_OK), 0);
	scrape(kit);
	metrics_free(other);
	assert_int_equal(access(path, F_OK), -1);
}

/* Write the endpoint thread's lines of /proc to @ret, NUL-terminated. */
static void find_thread(char ret[8192])
{
	DIR *folder = opendir("/proc/self/task");
	struct dirent *entry;
	char path[300];
	FILE *file;
	size_t n;

	ret[0] = '\0';
	while ((entry = readdir(folder))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		n = fread(ret, 1, 8191, file);
		ret[n] = '\0';
		fclose(file);
		if (strstr(ret, "Name:\tmetrics\n"))
			break;
	}
	closedir(folder);
}

TEST(test_privileges, setup, teardown)
{
	struct kit *kit = *state;
	static char status[8192];
	unsigned long long blocked;

	scrape(kit);
	find_thread(status);
	assert_non_null(strstr(status, "Name:\tmetrics\n"));
	assert_non_null(strstr(status, "\nCapEff:\t0000000000000000\n"));
	assert_non_null(strstr(status, "\nCapPrm:\t0000000000000000\n"));
	assert_non_null(strstr(status, "\nNoNewPrivs:\t1\n"));
	blocked = strtoull(strstr(status, "\nSigBlk:\t") + 9, NULL, 16);
	for (int signal = 1; signal < 16; signal++)
		if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP)
			assert_true(blocked & 1ull << (signal - 1));
}

TEST(test_memory, setup, teardown)
{
	struct kit *kit = *state;
	struct metrics *metrics = NULL;
	int r;

	kit->metrics = metrics_free(kit->metrics);
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = metrics_new(&kit->options, &metrics);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(access(kit->options.address.socket.local.sun_path, F_OK), -1);
	}
	assert_int_equal(r, 0);
	metrics_free(metrics);
}
