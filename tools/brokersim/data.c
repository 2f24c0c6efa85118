/* SPDX-License-Identifier: MIT */
/* Location of the profiles and scenarios */
#include "data.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/error.h"

static bool is_data(const char *directory)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/profiles", directory);
	return !access(path, R_OK | X_OK);
}

bool data_find(char *ret, size_t n)
{
	const char *set = getenv("BROKERSIM_DATA");
	char program[2048];
	ssize_t bytes;
	char *slash;

	if (set && *set) {
		snprintf(ret, n, "%s", set);
		return is_data(ret);
	}
	bytes = readlink("/proc/self/exe", program, sizeof(program) - 1);
	program[bytes > 0 ? bytes : 0] = '\0';
	slash = strrchr(program, '/');
	if (slash) {
		*slash = '\0';
		/*
		 * The program is BUILD/tools/brokersim/brokersim, with BUILD a folder of the source
		 * tree.
		 */
		snprintf(ret, n, "%s/../../../tools/brokersim", program);
		if (is_data(ret))
			return true;
	}
	snprintf(ret, n, "%s", BROKERSIM_DATA_DIR);
	return is_data(ret);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void data_names_free(char **names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	free(names);
}

int data_names(const char *directory, const char *suffix, char ***ret_names, size_t *ret_n)
{
	DIR *stream = opendir(directory);
	struct dirent *entry;
	char **names = NULL;
	size_t n = 0;
	int r = 0;

	if (!stream)
		return -errno;
	while (!r && (entry = readdir(stream))) {
		size_t length = strlen(entry->d_name), end = strlen(suffix);
		char **more;

		if (length <= end || strcmp(entry->d_name + length - end, suffix))
			continue;
		more = reallocarray(names, n + 1, sizeof(*names));
		if (more) {
			names = more;
			names[n] = strdup(entry->d_name);
		}
		if (!more || !names[n])
			r = error_origin(-ENOMEM);
		else
			n++;
	}
	closedir(stream);
	if (r) {
		data_names_free(names, n);
		return r;
	}
	if (n)
		qsort(names, n, sizeof(*names), compare);
	*ret_names = names;
	*ret_n = n;
	return 0;
}
