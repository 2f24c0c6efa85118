/* SPDX-License-Identifier: MIT */
/* See fake-proc.h. */
#include "fake-proc.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "support/test.h"

char fake_proc[64];
char fake_cgroup[64];
static char root[48];

int fake_proc_set_up(void **state)
{
	const char *folder = getenv("TMPDIR");

	snprintf(root, sizeof(root), "%.24s/fake-proc-XXXXXX", folder ? folder : "/tmp");
	if (!mkdtemp(root))
		return -1;
	snprintf(fake_proc, sizeof(fake_proc), "%s/proc", root);
	snprintf(fake_cgroup, sizeof(fake_cgroup), "%s/cgroup", root);
	return mkdir(fake_proc, 0700) || mkdir(fake_cgroup, 0700);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
	return remove(path);
}

int fake_proc_tear_down(void **state)
{
	return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Write the whole path to @path, and create its folders. */
static void make_path(char *path, size_t bytes, const char *format, va_list args)
{
	int n = snprintf(path, bytes, "%s/", root);

	vsnprintf(path + n, bytes - (size_t)n, format, args);
	for (char *slash = strchr(path + n, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0700) < 0)
			assert_int_equal(errno, EEXIST);
		*slash = '/';
	}
}

void fake_put(const char *text, const char *format, ...)
{
	char path[512];
	size_t bytes = strlen(text);
	va_list args;
	int fd;

	va_start(args, format);
	make_path(path, sizeof(path), format, args);
	va_end(args);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	/*
	 * Overwrite in place with one write: a reader that has the file open sees the new text. The
	 * file must not be empty in between, because an empty file means that the process has
	 * ended.
	 */
	assert_int_equal(write(fd, text, bytes), bytes);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(close(fd), 0);
}

void fake_link(const char *target, const char *format, ...)
{
	char path[512];
	va_list args;

	va_start(args, format);
	make_path(path, sizeof(path), format, args);
	va_end(args);
	assert_int_equal(symlink(target, path), 0);
}

void fake_remove(const char *format, ...)
{
	char path[512];
	va_list args;

	va_start(args, format);
	make_path(path, sizeof(path), format, args);
	va_end(args);
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void fake_put_stat(unsigned int n, uint64_t busy, uint64_t idle, uint64_t steal)
{
	static char text[65536];
	int bytes;

	bytes = snprintf(text, sizeof(text), "cpu  1 2 3 4 5 6 7 8 9 10\n");
	for (unsigned int i = 0; i < n; i++)
		bytes += snprintf(text + bytes, sizeof(text) - (size_t)bytes,
				  "cpu%u %" PRIu64 " 0 0 %" PRIu64 " 0 0 0 %" PRIu64 " 0 0\n", i,
				  busy, idle, steal);
	snprintf(text + bytes, sizeof(text) - (size_t)bytes, "intr 1 2 3\nctxt 5\n");
	fake_put(text, "proc/stat");
}

static void put_task(const char *folder, pid_t tid, const char *name, uint64_t start)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "%d (%s) S 1 1 1 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 3 0 %" PRIu64 " 1000 100\n",
		 tid, name, start);
	fake_put(text, "%s/stat", folder);
}

void fake_put_thread(pid_t tid, const char *name, uint64_t start, uint64_t run_ns, uint64_t wait_ns,
		     uint64_t n_involuntary)
{
	char folder[64], text[256];

	snprintf(folder, sizeof(folder), "proc/self/task/%d", tid);
	put_task(folder, tid, name, start);
	snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64 " 7\n", run_ns, wait_ns);
	fake_put(text, "%s/schedstat", folder);
	snprintf(text, sizeof(text),
		 "Name:\t%s\nThreads:\t3\nvoluntary_ctxt_switches:\t12\n"
		 "nonvoluntary_ctxt_switches:\t%" PRIu64 "\n",
		 name, n_involuntary);
	fake_put(text, "%s/status", folder);
}

void fake_link_own_schedstat(void)
{
	char target[64];

	snprintf(target, sizeof(target), "/proc/self/task/%d/schedstat", gettid());
	fake_link(target, "proc/self/task/%d/schedstat", gettid());
}

void fake_put_process(pid_t pid, const char *name, uint64_t start, uint64_t run_ns,
		      uint64_t wait_ns)
{
	char folder[64], text[128];

	snprintf(folder, sizeof(folder), "proc/%d", pid);
	put_task(folder, pid, name, start);
	snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64 " 3\n", run_ns, wait_ns);
	fake_put(text, "%s/task/%d/schedstat", folder, pid);
	fake_put("0::/services/one\n", "%s/cgroup", folder);
}

void fake_moment(void)
{
	nanosleep(&(struct timespec){0, 1000000}, NULL);
}
