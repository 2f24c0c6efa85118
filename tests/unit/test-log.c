/* SPDX-License-Identifier: MIT */
/*
 * Log lines: levels, hostile names, length, rate limits, a broken standard error, and the journal.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/test.h"
#include "util/error.h"
#include "util/log.h"

static int capture_fds[2], saved_stderr;
static uint64_t fake_now_ns;

uint64_t __wrap_clock_now_ns(void);
uint64_t __wrap_clock_now_ns(void)
{
	return fake_now_ns;
}

static int test_setup(void **state)
{
	log_set_level(LOG_LEVEL_INFO);
	/* Lines of earlier tests are too old to count. */
	fake_now_ns += 100000000000u;
	if (pipe2(capture_fds, O_CLOEXEC | O_NONBLOCK))
		return -1;
	saved_stderr = dup(STDERR_FILENO);
	return dup2(capture_fds[1], STDERR_FILENO) < 0 ? -1 : 0;
}

static int test_teardown(void **state)
{
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	close(capture_fds[0]);
	close(capture_fds[1]);
	return 0;
}

/* Return the text written to standard error since the last call. */
static const char *captured(void)
{
	static char text[65536];
	ssize_t n = read(capture_fds[0], text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = 0;
	return text;
}

/* Only the journal understands a prefix with the level; see test_journal__gone. */
TEST(test_line__no_prefix, test_setup, test_teardown)
{
	log_error(LOG_DETAIL, "no %s", "device");
	assert_string_equal(captured(), "brokerd: no device\n");
	log_warning(LOG_DETAIL, "%d%%", 5);
	assert_string_equal(captured(), "brokerd: 5%\n");
	log_info(LOG_DETAIL, "up");
	assert_string_equal(captured(), "brokerd: up\n");
}

/*
 * Lines that clients can cause without limit are written once per second, and counted in between.
 */
TEST(test_limit__one_a_second, test_setup, test_teardown)
{
	struct log_limit limit = {0};
	uint64_t n = 99;

	assert_true(log_limit_pass(&limit, 5, &n));
	assert_int_equal(n, 0);
	for (int i = 0; i < 1000; i++)
		assert_false(log_limit_pass(&limit, 6 + (uint64_t)i, &n));
	assert_false(log_limit_pass(&limit, 1000000004, &n));
	assert_true(log_limit_pass(&limit, 1000000005, &n));
	assert_int_equal(n, 1001);
	assert_false(log_limit_pass(&limit, 1000000006, &n));
	assert_true(log_limit_pass(&limit, 9000000000, &n));
	assert_int_equal(n, 1);
}

TEST(test_level__filters, test_setup, test_teardown)
{
	log_debug(LOG_DETAIL, "quiet");
	assert_string_equal(captured(), "");
	log_set_level(LOG_LEVEL_DEBUG);
	assert_int_equal(log_get_level(), LOG_LEVEL_DEBUG);
	log_debug(LOG_DETAIL, "loud");
	assert_string_equal(captured(), "brokerd: loud\n");
	log_set_level(LOG_LEVEL_ERROR);
	log_warning(LOG_DETAIL, "quiet");
	log_info(LOG_DETAIL, "quiet");
	assert_string_equal(captured(), "");
	log_error(LOG_DETAIL, "loud");
	assert_string_equal(captured(), "brokerd: loud\n");
}

/* A client's name cannot forge a line, colour a terminal or end the text. */
TEST(test_line__control_characters, test_setup, test_teardown)
{
	log_info(LOG_DETAIL, "session \"%s\"", "a\nbrokerd: b\r\t\x1b[31m\x7f");
	assert_string_equal(captured(), "brokerd: session \"a?brokerd: b???[31m?\"\n");
	for (int c = 1; c < 256; c++) {
		const char *line;

		log_info(LOG_DETAIL, "%c.", c);
		line = captured();
		assert_int_equal(strlen(line), strlen("brokerd: ?.\n"));
		/* A lone byte above 127 is not UTF-8, and some terminals take it for a control. */
		assert_int_equal((unsigned char)line[9], c < 32 || c >= 127 ? '?' : c);
		assert_int_equal(line[11], '\n');
	}
}

TEST(test_line__utf8, test_setup, test_teardown)
{
	static const char *const pass[] = {"Gr\xc3\xbc\xc3\x9f", "\xe2\x82\xac",
					   "\xf0\x9f\x8e\x89",   "\xed\x9f\xbf",
					   "\xf4\x8f\xbf\xbf",   "\xc2\xa0"};
	static const char *const replaced[][2] = {
		{"a\xc2\x9b"
		 "1mb",
		 "a??1mb"}, /* CSI as one character */
		{"a\xe2\x80\xae"
		 "b",
		 "a???b"}, /* right-to-left override */
		{"a\xe2\x81\xa6"
		 "b",
		 "a???b"},
		{"\xc0\xaf", "??"}, /* overlong encoding */
		{"\xe0\x80\xaf", "???"},
		{"\xed\xa0\x80", "???"},      /* half of a surrogate pair */
		{"\xf4\x90\x80\x80", "????"}, /* above U+10FFFF */
		{"\xe2\x82", "??"},           /* cut short */
		{"\xe2\x82z", "??z"},
	};
	char wanted[64];

	for (size_t i = 0; i < sizeof(pass) / sizeof(*pass); i++) {
		log_info(LOG_DETAIL, "%s", pass[i]);
		snprintf(wanted, sizeof(wanted), "brokerd: %s\n", pass[i]);
		assert_string_equal(captured(), wanted);
	}
	for (size_t i = 0; i < sizeof(replaced) / sizeof(*replaced); i++) {
		log_info(LOG_DETAIL, "%s", replaced[i][0]);
		snprintf(wanted, sizeof(wanted), "brokerd: %s\n", replaced[i][1]);
		assert_string_equal(captured(), wanted);
	}
}

TEST(test_line__long, test_setup, test_teardown)
{
	char name[5000];
	const char *line;

	for (size_t bytes = 980; bytes < 1060; bytes++) {
		memset(name, 'n', bytes);
		name[bytes] = 0;
		log_info(LOG_DETAIL, "%s", name);
		line = captured();
		assert_true(strlen(line) <= 1024);
		assert_true(strlen(line) >= 990);
		assert_memory_equal(line, "brokerd: nnn", 12);
		/* Exactly one complete line. */
		assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
	}
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	log_info(LOG_DETAIL, "%s", name);
	line = captured();
	assert_in_range(strlen(line), 990, 1024);
	assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
}

TEST(test_line__broken_stderr, test_setup, test_teardown)
{
	char fill[65536] = {0};

	/* The pipe is full and not read: logging must not block. */
	while (write(STDERR_FILENO, fill, sizeof(fill)) > 0)
		;
	log_error(LOG_DETAIL, "lost");
	close(STDERR_FILENO);
	log_error(LOG_DETAIL, "lost");
	assert_int_equal(dup2(capture_fds[1], STDERR_FILENO), STDERR_FILENO);
}

/* A reader that has stopped must not stop the daemon; it is told the number of lost lines. */
TEST(test_line__reader_stopped, test_setup, test_teardown)
{
	char byte = 0;
	int flags = fcntl(capture_fds[1], F_GETFL);

	log_info(LOG_DETAIL, "whatever earlier tests lost is said now");
	captured();
	while (write(capture_fds[1], &byte, 1) == 1)
		;
	assert_int_equal(errno, EAGAIN);
	fcntl(capture_fds[1], F_SETFL, flags & ~O_NONBLOCK);
	alarm(10);
	log_info(LOG_DETAIL, "first");
	log_info(LOG_DETAIL, "second");
	alarm(0);
	while (*captured() || read(capture_fds[0], &byte, 1) == 1)
		;
	log_info(LOG_DETAIL, "third");
	assert_string_equal(captured(), "brokerd: 2 log lines were lost\nbrokerd: third\n");
}

static void *log_many(void *data)
{
	for (int i = 0; i < 500; i++)
		log_error(LOG_DETAIL, "thread %s line", (const char *)data);
	return NULL;
}

TEST(test_line__threads_do_not_mix, test_setup, test_teardown)
{
	pthread_t threads[2];
	FILE *file = tmpfile();
	char line[256];
	int n = 0;

	assert_non_null(file);
	assert_int_equal(dup2(fileno(file), STDERR_FILENO), STDERR_FILENO);
	pthread_create(&threads[0], NULL, log_many, "aaaaaaaa");
	pthread_create(&threads[1], NULL, log_many, "bbbbbbbb");
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	rewind(file);
	while (fgets(line, sizeof(line), file)) {
		assert_true(strcmp(line, "brokerd: thread aaaaaaaa line\n") == 0 ||
			    strcmp(line, "brokerd: thread bbbbbbbb line\n") == 0);
		n++;
	}
	assert_int_equal(n, 1000);
	fclose(file);
}

static int fails_deep(void)
{
	return error_origin(-ENOENT);
}

TEST(test_error__trace, test_setup, test_teardown)
{
	const char *text;

	/* No trace by default, and the error is unchanged. */
	assert_int_equal(error_fold(fails_deep()), -ENOENT);
	assert_string_equal(captured(), "");
	assert_int_equal(error_fold(0), 0);

	log_set_level(LOG_LEVEL_DEBUG);
	assert_int_equal(error_fold(fails_deep()), -ENOENT);
	text = captured();
	assert_non_null(strstr(text, "origin: No such file or directory (-2) in fails_deep()"));
	assert_non_null(strstr(text, "from: No such file or directory (-2) in test_error__trace"));
	assert_int_equal(error_fold(0), 0);
	assert_string_equal(captured(), "");

	/* A documented outcome that no caller consumed is a bug, not a number to pass on. */
	assert_int_equal(error_fold(3), -ENOTRECOVERABLE);
	assert_non_null(strstr(captured(), "unconsumed outcome (3)"));
}

static unsigned int count_captured(const char *text)
{
	unsigned int n = 0;

	for (const char *at = captured(); (at = strstr(at, text)); at++)
		n++;
	return n;
}

/* A flood of one kind of line is counted, and does not affect other kinds. */
TEST(test_line__too_many, test_setup, test_teardown)
{
	for (int i = 0; i < 150; i++)
		log_info(LOG_DEVICE_BACK, "again");
	assert_int_equal(count_captured("again"), 100);
	log_info(LOG_DEVICE_GONE, "other");
	assert_string_equal(captured(), "brokerd: other\n");
	fake_now_ns += 10000000000u;
	log_info(LOG_DEVICE_BACK, "later");
	assert_string_equal(captured(), "brokerd: 50 lines of device-back exceeded the limit "
					"and were not logged\n"
					"brokerd: later\n");
}

/* --- The journal --- */

static int journal_fds[2]; /* a socket at a path, like journald's */
static char journal_path[64];

static void journal_open(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char stream[64];
	struct stat status;

	snprintf(journal_path, sizeof(journal_path), "/tmp/test-log-%d", (int)getpid());
	strcpy(address.sun_path, journal_path);
	journal_fds[0] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(journal_fds[0], (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(fstat(STDERR_FILENO, &status), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)status.st_dev,
		 (unsigned long long)status.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
}

static void journal_close(void)
{
	unsetenv("JOURNAL_STREAM");
	assert_false(log_open_journal(journal_path));
	close(journal_fds[0]);
	unlink(journal_path);
}

/* Return the next entry that the journal received. */
static const char *journal_entry(void)
{
	static char text[8192];
	ssize_t n = recv(journal_fds[0], text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = 0;
	return text;
}

TEST(test_journal__entry, test_setup, test_teardown)
{
	const struct log_about about = {.tenant = "a\nMESSAGE=forged",
					.plan = "p\x1b",
					.session = 7,
					.pid = 12,
					.uid = 0,
					.has_device = true,
					.device = 0};
	const char *entry;

	journal_open();
	assert_true(log_open_journal(journal_path));
	log_warning_of(&about, LOG_SESSION_CLOSED, "closed: %s", "bad\nUID=0");
	assert_string_equal(captured(), "");
	entry = journal_entry();
	assert_non_null(strstr(entry, "PRIORITY=4\nSYSLOG_IDENTIFIER=brokerd\nMESSAGE_ID="));
	assert_non_null(strstr(entry, "\nRINGBROKER_EVENT=session-closed\n"
				      "TENANT=a?MESSAGE=forged\nPLAN=p?\nSESSION=7\nPID=12\nUID=0\n"
				      "DEVICE=0\nMESSAGE=closed: bad?UID=0\n"));
	/* Unknown fields are left out. */
	log_info(LOG_STOPPED, "stopped");
	entry = journal_entry();
	assert_non_null(strstr(entry, "\nRINGBROKER_EVENT=stopped\nMESSAGE=stopped\n"));
	assert_null(strstr(entry, "UID="));
	assert_null(strstr(entry, "DEVICE="));
	journal_close();
}

/* Names of any length leave the entry complete. */
TEST(test_journal__long, test_setup, test_teardown)
{
	char name[5000];
	const char *entry;

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	journal_open();
	assert_true(log_open_journal(journal_path));
	log_info_of(LOG_OF(.tenant = name, .plan = name, .session = UINT32_MAX, .pid = INT32_MAX,
			   .uid = UINT32_MAX, .has_device = true, .device = UINT32_MAX),
		    LOG_PLAN_NOT_PREPARED, "%s", name);
	entry = journal_entry();
	assert_in_range(strlen(entry), 1024, 4096);
	assert_non_null(strstr(entry, "\nDEVICE=4294967295\nMESSAGE=nnn"));
	assert_int_equal(entry[strlen(entry) - 1], '\n');
	journal_close();
}

/* A journal that has stopped must not stop the daemon either. */
TEST(test_journal__stopped, test_setup, test_teardown)
{
	unsigned int n_sent = 0, n_there = 0;
	char wanted[64];

	journal_open();
	assert_true(log_open_journal(journal_path));
	alarm(10);
	for (int i = 0; i < 2000; i++)
		log_info(LOG_DETAIL, "line");
	alarm(0);
	n_sent = 2000;
	while (*journal_entry())
		n_there++;
	assert_in_range(n_there, 1, n_sent - 1);
	log_info(LOG_DETAIL, "after");
	snprintf(wanted, sizeof(wanted), "MESSAGE=%u log lines were lost\n", n_sent - n_there);
	assert_non_null(strstr(journal_entry(), wanted));
	assert_non_null(strstr(journal_entry(), "MESSAGE=after\n"));
	assert_string_equal(captured(), "");
	journal_close();
}

TEST(test_journal__gone, test_setup, test_teardown)
{
	char name[200];

	journal_open();
	assert_true(log_open_journal(journal_path));
	unlink(journal_path);
	log_info(LOG_STOPPED, "to whoever listens");
	assert_string_equal(captured(), "<6>brokerd: to whoever listens\n");
	log_warning(LOG_DETAIL, "%d%%", 5);
	assert_string_equal(captured(), "<4>brokerd: 5%\n");
	log_error(LOG_DETAIL, "no %s", "device");
	assert_string_equal(captured(), "<3>brokerd: no device\n");
	/* A path that no socket can have is like a journal that is gone. */
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_false(log_open_journal(name));
	log_info(LOG_STOPPED, "stopped");
	assert_string_equal(captured(), "<6>brokerd: stopped\n");
	journal_close();
	/* The reader of another stream sees no prefix. */
	log_info(LOG_STOPPED, "stopped");
	assert_string_equal(captured(), "brokerd: stopped\n");
}

/* JOURNAL_STREAM is not standard error, which was redirected: the lines are written there. */
TEST(test_journal__other_stream, test_setup, test_teardown)
{
	static const char *const streams[] = {"1:1", "", "x", "1", "99999999999999999999999:1"};

	journal_open();
	for (size_t i = 0; i < sizeof(streams) / sizeof(*streams); i++) {
		setenv("JOURNAL_STREAM", streams[i], 1);
		assert_false(log_open_journal(journal_path));
		log_info(LOG_DETAIL, "plain");
		assert_string_equal(captured(), "brokerd: plain\n");
	}
	journal_close();
}

TEST_MAIN(NULL, NULL, signal(SIGPIPE, SIG_IGN))
