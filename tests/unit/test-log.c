/* SPDX-License-Identifier: MIT */
/* Log lines: levels, what a client may have put into a name, length, a broken standard error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/error.h"
#include "util/log.h"

static int capture_fds[2], saved_stderr;

static int test_setup(void **state)
{
	log_set_level(LOG_LEVEL_INFO);
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

/* What was written to standard error since the last call. */
static const char *captured(void)
{
	static char text[65536];
	ssize_t n = read(capture_fds[0], text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = 0;
	return text;
}

static void test_line__level_prefix(void **state)
{
	log_error("no %s", "device");
	assert_string_equal(captured(), "<3>brokerd: no device\n");
	log_warning("%d%%", 5);
	assert_string_equal(captured(), "<4>brokerd: 5%\n");
	log_info("up");
	assert_string_equal(captured(), "<6>brokerd: up\n");
}

/* What clients can cause without end is written once a second, and counted in between. */
static void test_limit__one_a_second(void **state)
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

static void test_level__filters(void **state)
{
	log_debug("quiet");
	assert_string_equal(captured(), "");
	log_set_level(LOG_LEVEL_DEBUG);
	assert_int_equal(log_get_level(), LOG_LEVEL_DEBUG);
	log_debug("loud");
	assert_string_equal(captured(), "<7>brokerd: loud\n");
	log_set_level(LOG_LEVEL_ERROR);
	log_warning("quiet");
	log_info("quiet");
	assert_string_equal(captured(), "");
	log_error("loud");
	assert_string_equal(captured(), "<3>brokerd: loud\n");
}

/* A client's name cannot forge a line, colour a terminal or end the text. */
static void test_line__control_characters(void **state)
{
	log_info("session \"%s\"", "a\nbrokerd: b\r\t\x1b[31m\x7f");
	assert_string_equal(captured(), "<6>brokerd: session \"a?brokerd: b???[31m?\"\n");
	for (int c = 1; c < 256; c++) {
		const char *line;

		log_info("%c.", c);
		line = captured();
		assert_int_equal(strlen(line), strlen("<6>brokerd: ?.\n"));
		assert_int_equal((unsigned char)line[12], c < 32 || c == 127 ? '?' : c);
		assert_int_equal(line[14], '\n');
	}
	/* UTF-8 passes. */
	log_info("Gr\xc3\xbc\xc3\x9f");
	assert_string_equal(captured(), "<6>brokerd: Gr\xc3\xbc\xc3\x9f\n");
}

static void test_line__long(void **state)
{
	char name[5000];
	const char *line;

	for (size_t bytes = 980; bytes < 1060; bytes++) {
		memset(name, 'n', bytes);
		name[bytes] = 0;
		log_info("%s", name);
		line = captured();
		assert_true(strlen(line) <= 1024);
		assert_true(strlen(line) >= 990);
		assert_memory_equal(line, "<6>brokerd: nnn", 15);
		/* One line, and a whole one. */
		assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
	}
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	log_info("%s", name);
	line = captured();
	assert_in_range(strlen(line), 990, 1024);
	assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
}

static void test_line__broken_stderr(void **state)
{
	char fill[65536] = {0};

	/* Full and not read: must return. */
	while (write(STDERR_FILENO, fill, sizeof(fill)) > 0)
		;
	log_error("lost");
	close(STDERR_FILENO);
	log_error("lost");
	assert_int_equal(dup2(capture_fds[1], STDERR_FILENO), STDERR_FILENO);
}

static void *log_many(void *data)
{
	for (int i = 0; i < 500; i++)
		log_error("thread %s line", (const char *)data);
	return NULL;
}

static void test_line__threads_do_not_mix(void **state)
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
		assert_true(strcmp(line, "<3>brokerd: thread aaaaaaaa line\n") == 0 ||
			    strcmp(line, "<3>brokerd: thread bbbbbbbb line\n") == 0);
		n++;
	}
	assert_int_equal(n, 1000);
	fclose(file);
}

static int fails_deep(void)
{
	return error_origin(-ENOENT);
}

static void test_error__trace(void **state)
{
	const char *text;

	/* Silent unless asked for, and the error is what it was. */
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

	/* A documented outcome that nobody consumed is a bug, not a number to pass on. */
	assert_int_equal(error_fold(3), -ENOTRECOVERABLE);
	assert_non_null(strstr(captured(), "unconsumed outcome (3)"));
}

/* A reader that has stopped must not stop the daemon; it is told how much it missed. */
static void test_line__reader_stopped(void **state)
{
	char byte = 0;
	int flags = fcntl(capture_fds[1], F_GETFL);

	log_info("whatever earlier tests lost is said now");
	captured();
	while (write(capture_fds[1], &byte, 1) == 1)
		;
	assert_int_equal(errno, EAGAIN);
	fcntl(capture_fds[1], F_SETFL, flags & ~O_NONBLOCK);
	alarm(10);
	log_info("first");
	log_info("second");
	alarm(0);
	while (*captured() || read(capture_fds[0], &byte, 1) == 1)
		;
	log_info("third");
	assert_string_equal(captured(), "<4>brokerd: 2 log lines were lost\n<6>brokerd: third\n");
}

int main(void)
{
#define LOG_TEST(name) cmocka_unit_test_setup_teardown(name, test_setup, test_teardown)
	const struct CMUnitTest tests[] = {
		LOG_TEST(test_limit__one_a_second),  LOG_TEST(test_line__level_prefix),
		LOG_TEST(test_level__filters),       LOG_TEST(test_line__control_characters),
		LOG_TEST(test_line__long),           LOG_TEST(test_line__broken_stderr),
		LOG_TEST(test_line__reader_stopped), LOG_TEST(test_line__threads_do_not_mix),
		LOG_TEST(test_error__trace),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
