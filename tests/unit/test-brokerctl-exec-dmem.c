/* SPDX-License-Identifier: MIT */
/*
 * Limiting a program to its lease by dmem.max: tools/brokerctl/exec-dmem.c, broker/util/dmem.h
 *
 * The cgroup is a folder with files. write() behaves like a kernel, or like a faulty one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "brokerctl/exec.h"
#include "support/test.h"

#define GIB    (1ull << 30)
#define REGION "drm/0000:03:00.0/vram"

enum kernel {
	TAKES,
	DROPS,    /* reports success, and stores nothing */
	REFUSES,  /* fails with the errno in refusal */
	VANISHES, /* stores the value, then the cgroup disappears */
};

static enum kernel kernel;
static int refusal;
static const char *only; /* the file with the fault; NULL: all files */
static unsigned int n_writes;
static char dir[64];
static int dir_fd = -1;

static void put(const char *file, const char *text)
{
	char path[128];
	FILE *stream;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	stream = fopen(path, "we");
	assert_non_null(stream);
	assert_true(fputs(text, stream) >= 0);
	assert_int_equal(fclose(stream), 0);
}

static void put_limit(const char *file, const char *value)
{
	char text[128];

	snprintf(text, sizeof(text), "drm/0000:0a:00.0/vram 77\n" REGION " %s\nlab/vram0 max\n",
		 value);
	put(file, text);
}

static void vanish(void)
{
	static const char *const files[] = {"dmem.max", "dmem.low", "dmem.current", "dmem.peak"};

	for (unsigned int i = 0; i < 4; i++)
		unlinkat(dir_fd, files[i], 0);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t n);
ssize_t __real_write(int fd, const void *bytes, size_t n);

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
	char path[64], target[256] = "", line[128], value[64];
	const char *file;
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	length = readlink(path, target, sizeof(target) - 1);
	file = strrchr(target, '/');
	if (length <= 0 || strncmp(target, dir, strlen(dir)) != 0 || !file)
		return __real_write(fd, bytes, n);
	file++;
	assert_true(n < sizeof(line));
	memcpy(line, bytes, n);
	line[n] = '\0';
	/* A line has one region, its value, and a line feed. */
	assert_int_equal(sscanf(line, REGION " %63s\n", value), 1);
	assert_int_equal(line[n - 1], '\n');
	n_writes++;
	if (kernel == TAKES || (only && strcmp(only, file) != 0)) {
		put_limit(file, value);
	} else if (kernel == REFUSES) {
		errno = refusal;
		return -1;
	} else if (kernel == VANISHES) {
		vanish();
	}
	return (ssize_t)n;
}

static int setup(void **state)
{
	strcpy(dir, "/tmp/test-exec-dmem-XXXXXX");
	assert_non_null(mkdtemp(dir));
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir_fd >= 0);
	kernel = TAKES;
	only = NULL;
	n_writes = 0;
	put_limit("dmem.max", "max");
	put_limit("dmem.low", "0");
	put_limit("dmem.current", "0");
	return 0;
}

static int teardown(void **state)
{
	vanish();
	close(dir_fd);
	assert_int_equal(rmdir(dir), 0);
	return 0;
}

static uint64_t value_of(const char *file)
{
	uint64_t value = 0;

	assert_int_equal(dmem_read(dir_fd, file, REGION, &value), 0);
	return value;
}

/* --- The files --- */

TEST(test_name, setup, teardown)
{
	char name[DMEM_REGION_BYTES];

	dmem_name_memory(0, 3, 0, 0, name);
	assert_string_equal(name, REGION);
	dmem_name_memory(0x10002, 0xc1, 0x1f, 7, name);
	assert_string_equal(name, "drm/10002:c1:1f.7/vram");
}

static int find(const char *text, char name[static DMEM_REGION_BYTES])
{
	put("dmem.max", text);
	strcpy(name, "untouched");
	return dmem_find(dir_fd, REGION, name);
}

TEST(test_find, setup, teardown)
{
	char name[DMEM_REGION_BYTES], longest[3 * DMEM_REGION_BYTES];

	assert_int_equal(find("a 1\n" REGION " max\nb 2\n", name), 0);
	assert_string_equal(name, REGION);
	assert_int_equal(find(REGION "0 max\n", name), 0);
	assert_string_equal(name, REGION "0");
	assert_int_equal(find(REGION "0 max\n" REGION "1 max\n", name), DMEM_E_SEVERAL);
	/* Other regions, and names that only resemble this one. */
	assert_int_equal(find("", name), DMEM_E_NO_REGION);
	assert_int_equal(find("drm/0000:04:00.0/vram max\n" REGION "x 1\n" REGION "1x 1\n"
			      "xdrm/0000:03:00.0/vram 1\n",
			      name),
			 DMEM_E_NO_REGION);
	assert_int_equal(find("\n \n" REGION "\n\xff\xfe 1\n", name), DMEM_E_NO_REGION);
	/* A line without a line feed is incomplete. */
	assert_int_equal(find("a 1\n" REGION " 1", name), DMEM_E_NO_REGION);
	snprintf(longest, sizeof(longest), "%s%0*d max\n", REGION, 2 * DMEM_REGION_BYTES, 1);
	assert_int_equal(find(longest, name), DMEM_E_NO_REGION);
	assert_string_equal(name, "untouched");
	/* An empty name is no region. */
	put("dmem.max", " max\n0 max\n");
	assert_int_equal(dmem_find(dir_fd, "", name), DMEM_E_NO_REGION);
	vanish();
	assert_int_equal(dmem_find(dir_fd, REGION, name), DMEM_E_NO_FILE);
}

TEST(test_read, setup, teardown)
{
	static const char *const garbage[] = {
		"", "-1", "1x", "0x10", " 1", "1 ", "Max", "1.5", "18446744073709551616"};
	uint64_t value = 5;

	put_limit("dmem.max", "18446744073709551615");
	assert_int_equal(value_of("dmem.max"), UINT64_MAX);
	put_limit("dmem.max", "max");
	assert_int_equal(value_of("dmem.max"), DMEM_NO_LIMIT);
	put_limit("dmem.max", "0");
	assert_int_equal(value_of("dmem.max"), 0);
	for (unsigned int i = 0; i < sizeof(garbage) / sizeof(*garbage); i++) {
		put_limit("dmem.max", garbage[i]);
		assert_int_equal(dmem_read(dir_fd, "dmem.max", REGION, &value), DMEM_E_NO_REGION);
	}
	assert_int_equal(dmem_read(dir_fd, "dmem.peak", REGION, &value), DMEM_E_NO_FILE);
	assert_int_equal(dmem_read(dir_fd, "dmem.max", "", &value), DMEM_E_NO_REGION);
	assert_int_equal(value, 5);
	/* A folder in place of the file. */
	assert_int_equal(mkdirat(dir_fd, "folder", 0700), 0);
	assert_int_equal(dmem_read(dir_fd, "folder", REGION, &value), -EISDIR);
	assert_int_equal(unlinkat(dir_fd, "folder", AT_REMOVEDIR), 0);
}

/* --- The beginning --- */

static char text[EXEC_TEXT_BYTES];

static bool begin(struct exec_dmem *dmem)
{
	text[0] = '\0';
	return exec_dmem_begin(dmem, dir_fd, REGION, 4 * GIB, GIB, text);
}

TEST(test_begin, setup, teardown)
{
	struct exec_dmem dmem;

	assert_true(begin(&dmem));
	assert_true(dmem.is_held);
	assert_int_equal(value_of("dmem.max"), 4 * GIB);
	assert_int_equal(value_of("dmem.low"), GIB);
	assert_non_null(strstr(text, "dmem.max of " REGION " is 4 GiB"));
	assert_non_null(strstr(text, "dmem.low is 1 GiB"));
	/* Other regions are left alone. */
	assert_int_equal(n_writes, 2);
}

TEST(test_begin__no_region, setup, teardown)
{
	struct exec_dmem dmem;

	assert_false(exec_dmem_begin(&dmem, dir_fd, "", 1, 1, text));
	assert_non_null(strstr(text, "the broker knows no dmem region"));
	assert_false(exec_dmem_begin(&dmem, dir_fd, "drm/0000:99:00.0/vram", 1, 1, text));
	assert_non_null(strstr(text, "no number for a region drm/0000:99:00.0/vram"));
	put("dmem.max", REGION "0 max\n" REGION "1 max\n");
	assert_false(begin(&dmem));
	assert_non_null(strstr(text, "several regions"));
	vanish();
	assert_false(begin(&dmem));
	assert_non_null(strstr(text, "is gone"));
	assert_false(dmem.has_region);
	assert_int_equal(n_writes, 0);
	/* Without a region, a later change of the lease writes nothing. */
	assert_false(exec_dmem_follow(&dmem, GIB, text));
}

TEST(test_begin__dropped, setup, teardown)
{
	struct exec_dmem dmem;

	kernel = DROPS;
	assert_false(begin(&dmem));
	assert_string_equal(text, "the kernel keeps dmem.max of " REGION " at no limit");
	assert_true(dmem.has_region);
}

TEST(test_begin__refused, setup, teardown)
{
	static const int errors[] = {EINVAL, EACCES, EROFS, EBUSY, EPERM};
	struct exec_dmem dmem;

	kernel = REFUSES;
	for (unsigned int i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		refusal = errors[i];
		assert_false(begin(&dmem));
		assert_non_null(strstr(text, "dmem.max cannot be set: "));
		assert_non_null(strstr(text, strerror(errors[i])));
	}
	/* Writing fails, but another process has set the same value. */
	put_limit("dmem.max", "4294967296");
	assert_true(begin(&dmem));
}

TEST(test_begin__vanished, setup, teardown)
{
	struct exec_dmem dmem;

	kernel = VANISHES;
	assert_false(begin(&dmem));
	assert_non_null(strstr(text, "is gone"));
}

TEST(test_begin__garbage, setup, teardown)
{
	struct exec_dmem dmem;

	kernel = DROPS;
	put_limit("dmem.max", "lots");
	assert_false(begin(&dmem));
	assert_non_null(strstr(text, "no number"));
}

TEST(test_begin__no_protection, setup, teardown)
{
	struct exec_dmem dmem;

	kernel = REFUSES;
	refusal = EINVAL;
	only = "dmem.low";
	assert_true(begin(&dmem));
	assert_non_null(strstr(text, "is 4 GiB, but nothing is protected: dmem.low cannot be set"));
}

/* --- The lease changes --- */

TEST(test_follow, setup, teardown)
{
	struct exec_dmem dmem;

	assert_true(begin(&dmem));
	/* Nothing is written when the lease has not changed. */
	n_writes = 0;
	assert_false(exec_dmem_follow(&dmem, 4 * GIB, text));
	assert_int_equal(n_writes, 0);
	assert_true(exec_dmem_follow(&dmem, 2 * GIB, text));
	assert_string_equal(text, "dmem.max of " REGION " is 2 GiB");
	assert_int_equal(value_of("dmem.max"), 2 * GIB);
	assert_true(exec_dmem_follow(&dmem, 6 * GIB, text));
	assert_int_equal(value_of("dmem.max"), 6 * GIB);
	assert_false(exec_dmem_follow(&dmem, 6 * GIB, text));
	assert_int_equal(n_writes, 2);
}

/* The program uses more than the new limit: one message, and a retry until the kernel takes it. */
TEST(test_follow__dropped, setup, teardown)
{
	struct exec_dmem dmem;

	assert_true(begin(&dmem));
	kernel = DROPS;
	n_writes = 0;
	assert_true(exec_dmem_follow(&dmem, 2 * GIB, text));
	assert_false(dmem.is_held);
	assert_string_equal(text, "the kernel keeps dmem.max of " REGION
				  " at 4 GiB; the wanted limit is 2 GiB");
	assert_false(exec_dmem_follow(&dmem, 2 * GIB, text));
	assert_false(exec_dmem_follow(&dmem, 2 * GIB, text));
	assert_int_equal(n_writes, 3);
	kernel = TAKES;
	assert_true(exec_dmem_follow(&dmem, 2 * GIB, text));
	assert_true(dmem.is_held);
	assert_int_equal(value_of("dmem.max"), 2 * GIB);
	assert_false(exec_dmem_follow(&dmem, 2 * GIB, text));
	assert_true(exec_dmem_follow(&dmem, 3 * GIB, text));
	assert_int_equal(value_of("dmem.max"), 3 * GIB);
	assert_string_equal(text, "dmem.max of " REGION " is 3 GiB");
}

TEST(test_follow__others_write, setup, teardown)
{
	struct exec_dmem dmem;

	assert_true(begin(&dmem));
	/* The program, which has the same user, has lifted the limit. */
	put_limit("dmem.max", "max");
	assert_false(exec_dmem_follow(&dmem, 4 * GIB, text));
	assert_int_equal(value_of("dmem.max"), 4 * GIB);
	/* An administrator's lower limit stays, also when the lease changes. */
	put_limit("dmem.max", "1000");
	assert_false(exec_dmem_follow(&dmem, 4 * GIB, text));
	assert_true(exec_dmem_follow(&dmem, 3 * GIB, text));
	assert_true(dmem.is_held);
	assert_int_equal(value_of("dmem.max"), 1000);
	assert_string_equal(text, "dmem.max of " REGION " is 0.977 KiB");
}

TEST(test_follow__vanished, setup, teardown)
{
	struct exec_dmem dmem;

	assert_true(begin(&dmem));
	vanish();
	assert_true(exec_dmem_follow(&dmem, 4 * GIB, text));
	assert_false(dmem.is_held);
	assert_non_null(strstr(text, "is gone"));
	assert_false(exec_dmem_follow(&dmem, 4 * GIB, text));
	exec_dmem_note_use(&dmem);
	assert_int_equal(dmem.peak_bytes, 0);
}

TEST(test_peak, setup, teardown)
{
	struct exec_dmem dmem;

	assert_true(begin(&dmem));
	put_limit("dmem.current", "5000");
	exec_dmem_follow(&dmem, 4 * GIB, text);
	put_limit("dmem.current", "3000");
	exec_dmem_note_use(&dmem);
	assert_int_equal(dmem.peak_bytes, 5000);
	put_limit("dmem.current", "garbage");
	exec_dmem_note_use(&dmem);
	assert_int_equal(dmem.peak_bytes, 5000);
	/* Newer kernels report the peak themselves. */
	put_limit("dmem.peak", "7000");
	exec_dmem_note_use(&dmem);
	assert_int_equal(dmem.peak_bytes, 7000);
}
