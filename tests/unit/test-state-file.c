/* SPDX-License-Identifier: MIT */
/* State files that two threads write at the same time, as the checkpoint at a stop. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"
#include "util/state-file.h"

enum { BYTES = 20000, N_TIMES = 300 };

static char folder[] = "/tmp/rbk-state-XXXXXX";
static atomic_int n_running, n_failed;

/* Write a file of one letter, over and over. */
static void *write_often(void *letter)
{
	static _Thread_local char bytes[BYTES];

	memset(bytes, *(const char *)letter, sizeof(bytes));
	for (int i = 0; i < N_TIMES; i++)
		if (state_file_write(folder, "state", bytes, sizeof(bytes)))
			atomic_fetch_add(&n_failed, 1);
	atomic_fetch_sub(&n_running, 1);
	return NULL;
}

/* Both succeed each time, and a reader finds the file of one of them. */
TEST(test_state_file__two_writers)
{
	unsigned int n_files = 0;
	pthread_t threads[2];
	struct dirent *entry;
	const char *why;
	char path[64], *text;
	DIR *directory;
	size_t n;
	int r;

	assert_non_null(mkdtemp(folder));
	atomic_store(&n_running, 2);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, write_often, i ? "b" : "a"), 0);
	do {
		r = state_file_read(folder, "state", BYTES, &text, &n, &why);
		if (r == STATE_FILE_E_ABSENT)
			continue;
		assert_int_equal(r, 0);
		assert_int_equal(n, BYTES);
		assert_true(text[0] == 'a' || text[0] == 'b');
		for (size_t i = 1; i < n; i++)
			assert_true(text[i] == text[0]);
		free(text);
	} while (atomic_load(&n_running) > 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&n_failed), 0);
	directory = opendir(folder);
	assert_non_null(directory);
	while ((entry = readdir(directory)))
		n_files += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
	closedir(directory);
	assert_int_equal(n_files, 1);
	snprintf(path, sizeof(path), "%s/state", folder);
	unlink(path);
	rmdir(folder);
}
