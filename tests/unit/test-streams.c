/* SPDX-License-Identifier: MIT */
/*
 * Programs started without standard streams, or unable to write. Each test runs in its own process.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"
#include "util/streams.h"

/*
 * Run @child in a process of its own.
 * Return: the value that @child returns.
 */
static int run(int (*child)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int start_without_any(void)
{
	char byte = 'x';
	int fd;

	for (fd = 0; fd <= 2; fd++)
		close(fd);
	streams_init();
	fd = open("/dev/null", O_RDWR);
	if (fd <= 2)
		return 1;
	if (write(1, &byte, 1) >= 0 || errno != EBADF)
		return 2;
	if (write(2, &byte, 1) != 1)
		return 3;
	if (read(0, &byte, 1) != 0)
		return 4;
	puts("nobody sees it");
	return streams_finish("test", 0) == 1 ? 0 : 5;
}

static int start_without_output(void)
{
	int before = fcntl(2, F_GETFL);

	close(1);
	streams_init();
	/* The other streams are unchanged. */
	if (fcntl(2, F_GETFL) != before || open("/dev/null", O_RDWR) <= 2)
		return 1;
	return 0;
}

TEST(test_init__closed)
{
	assert_int_equal(run(start_without_any), 0);
	assert_int_equal(run(start_without_output), 0);
}

/* Write to a regular file beyond the limit of its size. */
static int write_beyond_limit(void)
{
	const struct rlimit limit = {.rlim_cur = 3, .rlim_max = 3};
	char path[] = "/tmp/rbk-streams-XXXXXX";
	int fd = mkstemp(path);

	unlink(path);
	if (fd < 0 || setrlimit(RLIMIT_FSIZE, &limit) < 0)
		return 1;
	streams_init();
	if (write(fd, "abcd", 4) != 3)
		return 2;
	return write(fd, "e", 1) < 0 && errno == EFBIG ? 0 : 3;
}

TEST(test_init__file_that_may_not_grow)
{
	assert_int_equal(run(write_beyond_limit), 0);
}

/*
 * Call streams_finish() with output to @path; it must write @text (NULL: nothing).
 * Return: 0 if its message and result are as expected, or else 100 to 103.
 */
static int finish_into(const char *path, const char *text)
{
	int pipes[2], fd = open(path, O_WRONLY);
	char said[200] = "";

	if (fd < 0 || pipe(pipes) < 0 || dup2(fd, 1) < 0 || dup2(pipes[1], 2) < 0)
		return 100;
	fputs("figures", stdout);
	if (streams_finish("test", 7) != (text ? 1 : 7))
		return 101;
	close(2);
	close(pipes[1]);
	if (read(pipes[0], said, sizeof(said) - 1) < 0)
		return 102;
	return strcmp(said, text ? text : "") == 0 ? 0 : 103;
}

static int finish_well(void)
{
	return finish_into("/dev/null", NULL);
}

static int finish_full(void)
{
	return finish_into("/dev/full", "test: cannot write: No space left on device\n");
}

TEST(test_finish)
{
	assert_int_equal(run(finish_well), 0);
	assert_int_equal(run(finish_full), 0);
}
