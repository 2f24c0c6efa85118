/* SPDX-License-Identifier: MIT */
/*
 * Settings: reading and writing the file
 *
 * Columns are stored by name, since new versions add columns. The file is replaced as a whole, so
 * that no reader sees a part of it.
 */
#include "settings.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 };

static const char *const table_names[TABLE_COUNT] = {
	[TABLE_TENANTS] = "tenants",     [TABLE_SESSIONS] = "sessions", [TABLE_PLANS] = "plans",
	[TABLE_DECISIONS] = "decisions", [TABLE_LEASES] = "leases",
};

int settings_path(char *path, size_t bytes)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	int n;

	/* The specification of these folders permits absolute paths only. */
	if (config && config[0] == '/')
		n = snprintf(path, bytes, "%s/ringbroker/brokertop.conf", config);
	else if (home && home[0] == '/')
		n = snprintf(path, bytes, "%s/.config/ringbroker/brokertop.conf", home);
	else
		return -ENOENT;
	return n >= 0 && (size_t)n < bytes ? 0 : -ENAMETOOLONG;
}

/* Return @text without the blanks around it, which are overwritten. */
static char *trim(char *text)
{
	size_t n;

	text += strspn(text, " \t");
	n = strlen(text);
	while (n > 0 && strchr(" \t\r\n", text[n - 1]))
		text[--n] = '\0';
	return text;
}

static void hide(struct table *table, const char *name)
{
	/* The first column names the row and cannot be hidden. */
	for (unsigned int i = 1; i < table->n_columns; i++)
		if (strcmp(table_column_label(table, i), name) == 0)
			table->hidden |= 1ull << i;
}

void settings_load(struct picture *picture, const char *path)
{
	FILE *file = fopen(path, "re");
	char line[LINE_BYTES], *rest, *name;

	while (file && fgets(line, sizeof(line), file)) {
		rest = strchr(line, '=');
		if (!rest)
			continue;
		*rest++ = '\0';
		for (unsigned int i = 0; i < TABLE_COUNT; i++) {
			if (strcmp(trim(line), table_names[i]) != 0)
				continue;
			while ((name = strsep(&rest, ",")) != NULL)
				hide(&picture->tables[i], trim(name));
		}
	}
	if (file)
		fclose(file);
}

static void write_settings(const struct picture *picture, FILE *file)
{
	fputs("# Columns that brokertop does not show. F2 changes them; see brokertop(1).\n", file);
	for (unsigned int i = 0; i < TABLE_COUNT; i++) {
		const struct table *table = &picture->tables[i];
		const char *separator = " ";

		fprintf(file, "%s =", table_names[i]);
		for (unsigned int k = 1; k < table->n_columns; k++) {
			if (!(table->hidden >> k & 1))
				continue;
			fprintf(file, "%s%s", separator, table_column_label(table, k));
			separator = ", ";
		}
		fputc('\n', file);
	}
}

/* Make the folders of a path that do not exist. Errors show when the file is opened. */
static void make_folders(const char *path)
{
	char folder[PATH_MAX];

	if (snprintf(folder, sizeof(folder), "%s", path) >= (int)sizeof(folder))
		return;
	for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(folder, 0700);
		*slash = '/';
	}
}

int settings_save(const struct picture *picture, const char *path)
{
	char new_path[PATH_MAX];
	FILE *file;
	int fd, r = 0;

	if (snprintf(new_path, sizeof(new_path), "%s.new", path) >= (int)sizeof(new_path))
		return -ENAMETOOLONG;
	make_folders(path);
	/* Never through a link that another user may have put there. */
	unlink(new_path);
	fd = open(new_path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	file = fdopen(fd, "w");
	if (!file) {
		close(fd);
		return -ENOMEM;
	}
	write_settings(picture, file);
	if (ferror(file))
		r = -EIO;
	if (fclose(file))
		r = -errno;
	if (r == 0 && rename(new_path, path))
		r = -errno;
	if (r)
		unlink(new_path);
	return r;
}
