/* SPDX-License-Identifier: MIT */
/* The kernel's texts: complete, cut short, and with names chosen by other users */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"
#include "util/cgroup.h"
#include "util/checked.h"
#include "util/proc.h"
#include "util/utf8.h"

#define PARSE(function, text, ...) function(text, strlen(text), __VA_ARGS__)

TEST(test_schedstat)
{
	static const char *const bad[] = {
		"",         "\n",     "1 2\n",   "1 2 x\n",
		"-1 2 3\n", "1 2 3x", "1,2,3\n", "18446744073709551616 0 0\n"};
	struct proc_schedstat found = {7, 7, 7};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(PARSE(proc_parse_schedstat, bad[i], &found));
	assert_int_equal(found.run_ns, 7);
	assert_true(PARSE(proc_parse_schedstat, "46065859 268450924 19\n", &found));
	assert_fields(found, (run_ns, 46065859), (wait_ns, 268450924), (n_waits, 19));
	assert_true(PARSE(proc_parse_schedstat, "18446744073709551615 0 0", &found));
	assert_int_equal(found.run_ns, UINT64_MAX);
}

TEST(test_involuntary)
{
	uint64_t found = 7;

	assert_true(PARSE(proc_parse_involuntary,
			  "Name:\tnonvoluntary_ctxt_switches:\t5\nvoluntary_ctxt_switches:\t1\n"
			  "nonvoluntary_ctxt_switches:\t58\n",
			  &found));
	assert_int_equal(found, 58);
	assert_false(PARSE(proc_parse_involuntary, "voluntary_ctxt_switches:\t1\n", &found));
	assert_false(PARSE(proc_parse_involuntary, "nonvoluntary_ctxt_switches:\t\n", &found));
	assert_int_equal(found, 58);
}

TEST(test_task)
{
	static const char rest[] =
		" S 1 1 1 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 3 0 12345 1000 100\n";
	static const char *const names[] = {"client", "a) S 1 (b", ")(", "", "a b", "\001\033[m"};
	static const char *const told[] = {"client", "a) S 1 (b", ")(", "", "a b", "??[m"};
	struct proc_task task;
	char text[256];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(text, sizeof(text), "77 (%s)%s", names[i], rest);
		assert_true(PARSE(proc_parse_task, text, &task));
		assert_string_equal(task.name, told[i]);
		assert_int_equal(task.start_ticks, 12345);
		/* The text ends before the number. */
		assert_false(proc_parse_task(text, strlen(text) - 16, &task));
	}
	assert_false(PARSE(proc_parse_task, "77 client S 1 1", &task));
	assert_false(PARSE(proc_parse_task, ") 77 (client S 1 1", &task));
	/* Names are truncated to the length that the kernel keeps. */
	snprintf(text, sizeof(text), "77 (kworker/u8:2-events_unbound)%s", rest);
	assert_true(PARSE(proc_parse_task, text, &task));
	assert_string_equal(task.name, "kworker/u8:2-ev");
}

TEST(test_pressure)
{
	uint64_t found = 7;

	assert_true(PARSE(proc_parse_pressure,
			  "some avg10=84.75 avg60=77.66 avg300=70.98 total=620387444\n"
			  "full avg10=0.00 avg60=0.00 avg300=0.00 total=3\n",
			  &found));
	assert_int_equal(found, 620387444000);
	assert_false(PARSE(proc_parse_pressure, "full avg10=0.00 total=3\n", &found));
	assert_false(PARSE(proc_parse_pressure, "some avg10=0.00\n", &found));
	assert_false(PARSE(proc_parse_pressure, "some total=18446744073709551615\n", &found));
	assert_int_equal(found, 620387444000);
}

TEST(test_stat)
{
	static const char text[] = "cpu  9 9 9 9 9 9 9 9 9 9\n"
				   "cpu0 1 2 3 100 5 6 7 8 1 0\n"
				   "cpu1 10 20 30 1000 50 60 70 80 0 0\n"
				   "cpu7 1 1 1 1 1 1 1 1 0 0\n"
				   "intr 5 6\n";
	uint64_t mask[PROC_MASK_WORDS] = {3};
	struct proc_stat stat;

	assert_true(PARSE(proc_parse_stat, text, mask, 10, &stat));
	assert_fields(stat, (n_processors, 2), (idle_ns, 10 * (105 + 1050)),
		      (busy_ns, 10 * (1 + 2 + 3 + 6 + 7 + 10 + 20 + 30 + 60 + 70)),
		      (steal_ns, 10 * 88));
	/* One of the processors; none of them. */
	mask[0] = 0x80;
	assert_true(PARSE(proc_parse_stat, text, mask, 10, &stat));
	assert_fields(stat, (n_processors, 1), (steal_ns, 10));
	mask[0] = 4;
	assert_false(PARSE(proc_parse_stat, text, mask, 10, &stat));
	/* The last line is cut off. */
	mask[0] = 3;
	assert_true(
		proc_parse_stat(text, (size_t)(strstr(text, " 80 0") + 2 - text), mask, 10, &stat));
	assert_int_equal(stat.n_processors, 1);
	/* A processor number too large, and values that are no numbers. */
	memset(mask, 0xff, sizeof(mask));
	assert_false(PARSE(proc_parse_stat, "cpu1024 1 1 1 1 1 1 1 1\n", mask, 10, &stat));
	assert_false(PARSE(proc_parse_stat, "cpux 1 1 1 1 1 1 1 1\n", mask, 10, &stat));
	assert_false(PARSE(proc_parse_stat, "cpu0 1 1 1 1 1 1 1\n", mask, 10, &stat));
	assert_false(PARSE(proc_parse_stat, "cpu0 1 1 1 18446744073709551615 1 1 1 1\n", mask, 10,
			   &stat));
}

TEST(test_cgroup)
{
	static const char text[] = "4:memory:/m\n3:cpu,cpuacct:/quota/one\n1:name=systemd:/\n"
				   "0::/services/a:b\n";
	char path[64];

	assert_true(PARSE(proc_parse_cgroup, text, NULL, path, sizeof(path)));
	assert_string_equal(path, "/services/a:b");
	assert_true(PARSE(proc_parse_cgroup, text, "cpu", path, sizeof(path)));
	assert_string_equal(path, "/quota/one");
	assert_true(PARSE(proc_parse_cgroup, text, "cpuacct", path, sizeof(path)));
	assert_false(PARSE(proc_parse_cgroup, text, "pids", path, sizeof(path)));
	assert_false(PARSE(proc_parse_cgroup, "4:memory:/m\n", NULL, path, sizeof(path)));
	assert_false(PARSE(proc_parse_cgroup, "0::relative\n", NULL, path, sizeof(path)));
	assert_false(PARSE(proc_parse_cgroup, "0::\n", NULL, path, sizeof(path)));
	/* The path must fit into the buffer. */
	assert_false(PARSE(proc_parse_cgroup, text, NULL, path, sizeof("/services/a:b") - 1));
	assert_true(PARSE(proc_parse_cgroup, text, NULL, path, sizeof("/services/a:b")));
}

TEST(test_quota)
{
	static const char *const none[] = {"max 100000\n",
					   "-1 100000\n",
					   "50000\n",
					   "",
					   "5 0\n",
					   "99999999999999999999 1\n",
					   "18446744073709552 1\n"};
	uint64_t found = 7;

	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		assert_false(proc_parse_quota(none[i], strlen(none[i]), &found));
	assert_int_equal(found, 7);
	assert_true(PARSE(proc_parse_quota, "50000 100000\n", &found));
	assert_int_equal(found, 500);
	assert_true(PARSE(proc_parse_quota, "350000 100000\n", &found));
	assert_int_equal(found, 3500);
}

static bool write_text(const char *folder, const char *name, const char *text)
{
	char path[600];
	FILE *file;
	bool is_written;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "we");
	if (!file)
		return false;
	is_written = fputs(text, file) >= 0;
	return fclose(file) == 0 && is_written;
}

/* The quota of a cgroup above counts. Where no cgroup can be made, there is nothing to see. */
TEST(test_quota__of_this_process)
{
	const uint64_t outer = cgroup_quota();
	char text[16384], root[256], above[300], folder[320];
	int status = 0;
	pid_t pid;

	if (!proc_parse_mounts(text, proc_read(text, sizeof(text), "/proc/self/mounts"), "cpu",
			       root, sizeof(root)))
		skip();
	snprintf(above, sizeof(above), "%s/rb-test-quota-%d", root, getpid());
	snprintf(folder, sizeof(folder), "%s/in", above);
	if (mkdir(above, 0755) < 0)
		skip();
	if (write_text(above, "cpu.cfs_period_us", "100000") &&
	    write_text(above, "cpu.cfs_quota_us", "30000") && mkdir(folder, 0755) == 0) {
		pid = fork();
		if (pid == 0)
			_exit(!write_text(folder, "cgroup.procs", "0") ||
			      cgroup_quota() != (outer < 300 ? outer : 300));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		while (rmdir(folder) < 0 && errno == EBUSY)
			usleep(1000);
	}
	rmdir(above);
	assert_int_equal(status, 0);
}

TEST(test_throttled)
{
	uint64_t found = 7;

	assert_true(PARSE(proc_parse_throttled,
			  "usage_usec 1\nnr_periods 5\nnr_throttled 3\nthrottled_usec 1200\n",
			  &found));
	assert_int_equal(found, 1200000);
	assert_true(PARSE(proc_parse_throttled,
			  "nr_periods 5\nnr_throttled 3\nthrottled_time 1200\n", &found));
	assert_int_equal(found, 1200);
	assert_false(PARSE(proc_parse_throttled, "usage_usec 1\n", &found));
	assert_false(PARSE(proc_parse_throttled, "throttled_usec 99999999999999999\n", &found));
	/* A number that is refused changes nothing. */
	assert_int_equal(found, 1200);
}

TEST(test_mounts)
{
	static const char text[] = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n"
				   "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"
				   "cgroup2 /with\\040blank cgroup2 rw 0 0\n"
				   "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n"
				   "cgroup2 /elsewhere cgroup2 rw 0 0\n";
	char path[64];

	assert_true(PARSE(proc_parse_mounts, text, NULL, path, sizeof(path)));
	assert_string_equal(path, "/sys/fs/cgroup/unified");
	assert_true(PARSE(proc_parse_mounts, text, "cpu", path, sizeof(path)));
	assert_string_equal(path, "/sys/fs/cgroup/cpu,cpuacct");
	assert_false(PARSE(proc_parse_mounts, text, "memory", path, sizeof(path)));
	assert_false(PARSE(proc_parse_mounts, "", NULL, path, sizeof(path)));
}

TEST(test_printable)
{
	char name[8];

	copy_printable("a\nb\033\x7f\xff~", 16, name, sizeof(name));
	assert_string_equal(name, "a?b???~");
	copy_printable("abcdefghij", 10, name, sizeof(name));
	assert_string_equal(name, "abcdefg");
	copy_printable("abc", 2, name, sizeof(name));
	assert_string_equal(name, "ab");
	copy_printable("", 0, name, sizeof(name));
	assert_string_equal(name, "");
}

TEST(test_read)
{
	char text[16];

	assert_int_equal(proc_read(text, sizeof(text), "/proc/%s/nothing", "self"), 0);
	assert_string_equal(text, "");
	assert_true(proc_read(text, sizeof(text), "/proc/self/status") == sizeof(text) - 1);
	assert_int_equal(strlen(text), sizeof(text) - 1);
}
