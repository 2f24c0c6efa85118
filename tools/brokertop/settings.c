/* SPDX-License-Identifier: MIT */
/*
 * Settings: reading and writing the file
 *
 * Columns are stored by name, since new versions add columns. The file is replaced as a whole, so
 * that no reader sees a part of it. If it is a link, which users make who keep their settings
 * elsewhere, the file to which it leads is replaced.
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

enum { LINE_BYTES = 4096, MAX_LINKS = 8 };

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

/*
 * Write the path to which a path leads. Links of other users are not followed: they may lead to any
 * file that only this user can write.
 * Return: 0; -EPERM: the link is another user's; -ELOOP, -ENAMETOOLONG.
 */
static int follow_links(const char *path, char target[static PATH_MAX])
{
	char link[PATH_MAX], *slash, *at;
	struct stat about;
	size_t room;
	ssize_t n;

	if (snprintf(target, PATH_MAX, "%s", path) >= PATH_MAX)
		return -ENAMETOOLONG;
	for (int i = 0; i <= MAX_LINKS; i++) {
		n = readlink(target, link, sizeof(link) - 1);
		/* No link, or nothing: the error shows when the file is opened. */
		if (n < 0 || lstat(target, &about))
			return 0;
		if (about.st_uid != geteuid())
			return -EPERM;
		link[n] = '\0';
		slash = link[0] == '/' ? NULL : strrchr(target, '/');
		at = slash ? slash + 1 : target;
		room = (size_t)(target + PATH_MAX - at);
		if (snprintf(at, room, "%s", link) >= (int)room)
			return -ENAMETOOLONG;
	}
	return -ELOOP;
}

int settings_save(const struct picture *picture, const char *path)
{
	char target[PATH_MAX], new_path[PATH_MAX];
	FILE *file;
	int fd, r = follow_links(path, target);

	if (r)
		return r;
	if (snprintf(new_path, sizeof(new_path), "%s.new", target) >= (int)sizeof(new_path))
		return -ENAMETOOLONG;
	make_folders(target);
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
	if (r == 0 && rename(new_path, target))
		r = -errno;
	if (r)
		unlink(new_path);
	return r;
}
