/* SPDX-License-Identifier: MIT */
/*
 * The cache of profiles: valid files are read back, others rejected, and files are spoiled in every
 * way.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calibrate/calibrate-cache.h"
#include "fail-alloc.h"
#include "plan/executor.h"
#include "support/test.h"
#include "util/checked.h"

static const struct executor_info card = {
	.kind = EXECUTOR_GPU,
	.name = "Card\nof many lines",
	.driver = "driver 1",
	.paths = "host-import",
	.n_threads = 0,
	.identity = {.uuid = {1, 2, 3}},
};

struct fixture {
	char folder[64], path[128];
	char key[CALIBRATE_KEY_BYTES];
	struct calibrate_cached cached;
};

static void fill(struct calibrate_cached *cached)
{
	*cached = (struct calibrate_cached){
		.measured_s = 1795219200,
		.tiles = {{{0, 2, 3, 2}, {0, EXEC_MAX_TILES - 1, 0, 1}, {3, 1, 0, 2}}},
		.profile = {.name = "Card",
			    .source = "measured",
			    .is_valid = true,
			    .n_servers = 1,
			    .n_servers_per_task = 1,
			    .task_ns = 12345.678f,
			    .node_ns = 1.5f,
			    .up_bytes_per_ns = 6.2f,
			    .down_bytes_per_ns = 5.9f,
			    .memory_bytes = 8ull << 30},
	};
	for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++)
		for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++)
			cached->profile.rates[i][k] =
				(struct place_rate){1.0f / 3 * (float)(i + 1), (float)(k + 1)};
}

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	char file[CALIBRATE_FILE_BYTES];

	assert_non_null(fixture);
	strcpy(fixture->folder, "/tmp/test-cache-XXXXXX");
	assert_non_null(mkdtemp(fixture->folder));
	calibrate_cache_file(&card, file);
	snprintf(fixture->path, sizeof(fixture->path), "%s/%s", fixture->folder, file);
	calibrate_cache_key(&card, "1.0", fixture->key);
	fill(&fixture->cached);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	unlink(fixture->path);
	rmdir(fixture->path);
	/* The test has left no other file. */
	assert_int_equal(rmdir(fixture->folder), 0);
	free(fixture);
	return 0;
}

static void write_right(struct fixture *fixture)
{
	assert_int_equal(
		calibrate_cache_write(fixture->folder, &card, fixture->key, &fixture->cached), 0);
}

static void expect_refusal(struct fixture *fixture, const char *why)
{
	struct calibrate_cached cached;
	const char *said = NULL;

	assert_int_equal(calibrate_cache_read(fixture->folder, &card, fixture->key, &cached, &said),
			 CALIBRATE_CACHE_E_REFUSED);
	assert_non_null(said);
	if (why)
		assert_string_equal(said, why);
}

static void expect_right(struct fixture *fixture)
{
	struct calibrate_cached cached;
	const char *why;

	memset(&cached, 0, sizeof(cached));
	assert_int_equal(calibrate_cache_read(fixture->folder, &card, fixture->key, &cached, &why),
			 0);
	assert_memory_equal(&cached.profile, &fixture->cached.profile, sizeof(cached.profile));
	assert_int_equal(cached.measured_s, fixture->cached.measured_s);
	assert_memory_equal(&cached.tiles, &fixture->cached.tiles, sizeof(cached.tiles));
	assert_int_equal(cached.is_complete, fixture->cached.is_complete);
}

TEST(test_cache__reads_what_was_written, setup, teardown)
{
	struct fixture *fixture = *state;
	struct calibrate_cached cached;
	struct stat status;
	const char *why;

	assert_int_equal(calibrate_cache_read(fixture->folder, &card, fixture->key, &cached, &why),
			 CALIBRATE_CACHE_E_ABSENT);
	write_right(fixture);
	expect_right(fixture);
	assert_int_equal(stat(fixture->path, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0600);
	/* The new file replaces the old one. */
	fixture->cached.is_complete = true;
	fixture->cached.measured_s++;
	write_right(fixture);
	expect_right(fixture);
	assert_null(strchr(fixture->key, '\n'));
}

/* Each part of the key tells profiles apart; only another device has another file. */
TEST(test_cache__of_another_device_or_key, setup, teardown)
{
	struct fixture *fixture = *state;
	struct executor_info other = card;
	char key[CALIBRATE_KEY_BYTES], file[2][CALIBRATE_FILE_BYTES];

	write_right(fixture);
	calibrate_cache_file(&card, file[0]);
#define EXPECT_OTHER_KEY(is_same_file)                                         \
	do {                                                                   \
		calibrate_cache_key(&other, "1.0", key);                       \
		assert_string_not_equal(key, fixture->key);                    \
		calibrate_cache_file(&other, file[1]);                         \
		assert_int_equal(strcmp(file[0], file[1]) == 0, is_same_file); \
		other = card;                                                  \
	} while (0)
	other.driver = "driver 2";
	EXPECT_OTHER_KEY(true);
	other.paths = "udmabuf";
	EXPECT_OTHER_KEY(true);
	other.n_threads = 1;
	EXPECT_OTHER_KEY(true);
	other.kind = EXECUTOR_CPU;
	EXPECT_OTHER_KEY(true);
	other.name = "Another card";
	EXPECT_OTHER_KEY(false);
	other.identity.uuid[15] = 1;
	EXPECT_OTHER_KEY(false);
#undef EXPECT_OTHER_KEY
	calibrate_cache_key(&card, "1.1", fixture->key);
	expect_refusal(fixture, "it belongs to another device, driver or version");
}

static char *read_file(const char *path, size_t *ret_bytes)
{
	FILE *file = fopen(path, "r");
	char *text = malloc(65536);

	assert_non_null(file);
	assert_non_null(text);
	*ret_bytes = fread(text, 1, 65536, file);
	fclose(file);
	return text;
}

static void write_file(const char *path, const char *text, size_t bytes)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, bytes, file), bytes);
	fclose(file);
	assert_int_equal(chmod(path, 0600), 0);
}

TEST(test_cache__cut_off, setup, teardown)
{
	struct fixture *fixture = *state;
	size_t n, at;
	char *text;

	write_right(fixture);
	text = read_file(fixture->path, &n);
	for (at = 0; at < n; at += at < 200 || at + 10 > n ? 1 : 7) {
		assert_int_equal(truncate(fixture->path, (off_t)at), 0);
		expect_refusal(fixture, NULL);
		write_file(fixture->path, text, n);
	}
	expect_right(fixture);
	free(text);
}

TEST(test_cache__damaged, setup, teardown)
{
	struct fixture *fixture = *state;
	size_t n;
	char *text;

	write_right(fixture);
	text = read_file(fixture->path, &n);
	for (size_t i = 0; i < n; i += i < 200 ? 1 : 11) {
		text[i] ^= 1;
		write_file(fixture->path, text, n);
		expect_refusal(fixture, NULL);
		text[i] ^= 1;
	}
	text[n / 2] = '\0';
	write_file(fixture->path, text, n);
	expect_refusal(fixture, NULL);
	write_file(fixture->path, "garbage\n", 8);
	expect_refusal(fixture, "it has another format");
	write_file(fixture->path, "", 0);
	expect_refusal(fixture, "it has another format");
	memset(text, 'a', 65536);
	write_file(fixture->path, text, 65536);
	expect_refusal(fixture, "it has another format");
	assert_int_equal(truncate(fixture->path, 65537), 0);
	expect_refusal(fixture, "it is too large");
	assert_int_equal(truncate(fixture->path, 1ll << 40), 0);
	expect_refusal(fixture, "it is too large");
	free(text);
}

/* A file with a valid checksum but impossible figures is rejected. */
TEST(test_cache__hostile_figures, setup, teardown)
{
	struct fixture *fixture = *state;
	static const float bad[] = {-1, 0, NAN, INFINITY, -INFINITY, 1e30f, 1e-30f};

	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		fill(&fixture->cached);
		fixture->cached.profile.rates[OP_FAMILY_POOLING][2].flops_per_ns = bad[i];
		write_right(fixture);
		expect_refusal(fixture, "its figures are impossible");
	}
	fill(&fixture->cached);
	fixture->cached.profile.n_servers = UINT32_MAX;
	write_right(fixture);
	expect_refusal(fixture, "its figures are impossible");
	for (unsigned int tile = EXEC_MAX_TILES; tile < 256; tile += 7) {
		fill(&fixture->cached);
		fixture->cached.tiles.of[EXEC_TILE_CONV][EXEC_TILE_FEW_COLS] = (uint8_t)tile;
		write_right(fixture);
		expect_refusal(fixture, "it does not say which tiles were fastest");
	}
	fill(&fixture->cached);
	fixture->cached.profile.task_ns = -5;
	write_right(fixture);
	expect_refusal(fixture, "its figures are impossible");
}

TEST(test_cache__no_file, setup, teardown)
{
	struct fixture *fixture = *state;
	char elsewhere[160];

	/* A link, also to a valid file, is neither followed nor written through. */
	write_right(fixture);
	snprintf(elsewhere, sizeof(elsewhere), "%s.elsewhere", fixture->path);
	assert_int_equal(rename(fixture->path, elsewhere), 0);
	assert_int_equal(symlink(elsewhere, fixture->path), 0);
	expect_refusal(fixture, "it is a symbolic link");
	fixture->cached.measured_s = 5;
	write_right(fixture);
	expect_right(fixture);
	unlink(elsewhere);
	unlink(fixture->path);

	assert_int_equal(mkfifo(fixture->path, 0600), 0);
	expect_refusal(fixture, "it is not a regular file");
	unlink(fixture->path);
	assert_int_equal(mkdir(fixture->path, 0700), 0);
	expect_refusal(fixture, "it is not a regular file");
	/* A folder cannot be replaced either, and no temporary file is left beside it. */
	assert_int_not_equal(
		calibrate_cache_write(fixture->folder, &card, fixture->key, &fixture->cached), 0);
	rmdir(fixture->path);
}

TEST(test_cache__writable_by_others, setup, teardown)
{
	struct fixture *fixture = *state;

	write_right(fixture);
	assert_int_equal(chmod(fixture->path, 0620), 0);
	expect_refusal(fixture, "other users may write to it");
	assert_int_equal(chmod(fixture->path, 0602), 0);
	expect_refusal(fixture, "other users may write to it");
	assert_int_equal(chmod(fixture->path, 0600), 0);
	if (geteuid() != 0)
		return;
	assert_int_equal(chown(fixture->path, 1, 1), 0);
	expect_refusal(fixture, "it belongs to another user");
	/* Written anew, the file belongs to this user. */
	write_right(fixture);
	expect_right(fixture);
}

TEST(test_cache__no_folder, setup, teardown)
{
	struct fixture *fixture = *state;
	struct fixture nowhere = *fixture;

	strcpy(nowhere.folder, "/nowhere/at/all");
	assert_int_equal(calibrate_cache_write(nowhere.folder, &card, nowhere.key, &nowhere.cached),
			 -ENOENT);
	expect_refusal(&nowhere, "the folder cannot be opened");
	strcpy(nowhere.folder, "/dev/null");
	assert_int_equal(calibrate_cache_write(nowhere.folder, &card, nowhere.key, &nowhere.cached),
			 -ENOTDIR);
	if (geteuid() == 0)
		return;
	assert_int_equal(chmod(fixture->folder, 0500), 0);
	assert_int_equal(
		calibrate_cache_write(fixture->folder, &card, fixture->key, &fixture->cached),
		-EACCES);
	assert_int_equal(chmod(fixture->folder, 0700), 0);
}

TEST(test_cache__no_memory, setup, teardown)
{
	struct fixture *fixture = *state;
	struct calibrate_cached cached;
	const char *why;
	int r;

	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = calibrate_cache_write(fixture->folder, &card, fixture->key, &fixture->cached);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
	}
	assert_int_equal(r, 0);
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = calibrate_cache_read(fixture->folder, &card, fixture->key, &cached, &why);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
	}
	assert_int_equal(r, 0);
}
