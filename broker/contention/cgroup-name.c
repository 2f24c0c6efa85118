/* SPDX-License-Identifier: MIT */
/*
 * Names of cgroups: see cgroup-name.h.
 *
 * The kernel opens a cgroup by its number for a process with CAP_DAC_READ_SEARCH. Without it, the
 * tree is searched for a folder with that inode number; searches are bounded in size and rare.
 */
#include "contention/cgroup-name.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "util/clock.h"
#include "util/error.h"
#include "util/proc.h"
#include "util/utf8.h"

enum {
	N_CACHED = 64,
	MAX_FOLDERS = 4096, /* folders per search */
	MAX_DEPTH = 24,
	SEARCH_PATH_BYTES = 4096,
	HANDLE_KERNFS = 0xfe, /* FILEID_KERNFS of the kernel: eight bytes, the number */
};

static const uint64_t search_again_ns = 1000000000u;

struct cached {
	uint64_t id;   /* 0: free */
	uint64_t used; /* count at the last use */
	bool is_gone;
	char path[RUN_QUEUE_PATH_BYTES];
};

struct cgroup_names {
	const char *root;
	int fd;           /* root folder; -1: there is none */
	bool has_numbers; /* a hierarchy whose folders can be opened by number */
	uint64_t n_used, next_search_ns;
	uint32_t folders_left;
	struct cached cached[N_CACHED];
};

int cgroup_names_new(const char *root, struct cgroup_names **ret)
{
	struct cgroup_names *names = calloc(1, sizeof(*names));
	struct statfs info;

	if (!names)
		return error_origin(-ENOMEM);
	names->root = root;
	names->fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	names->has_numbers = names->fd >= 0 && fstatfs(names->fd, &info) == 0 &&
			     info.f_type == CGROUP2_SUPER_MAGIC;
	*ret = names;
	return 0;
}

struct cgroup_names *cgroup_names_free(struct cgroup_names *names)
{
	if (names)
		close_fd(names->fd);
	free(names);
	return NULL;
}

/* Cut a path, which begins with '/', for display. */
static void shorten(const char *path, char ret[static RUN_QUEUE_PATH_BYTES])
{
	const char dots[] = "...";
	size_t bytes = strlen(path);
	size_t room = RUN_QUEUE_PATH_BYTES - 1;

	if (bytes <= room) {
		copy_printable(path, bytes, ret, RUN_QUEUE_PATH_BYTES);
		return;
	}
	room -= sizeof(dots) - 1;
	memcpy(ret, dots, sizeof(dots) - 1);
	copy_printable(path + bytes - room, room, ret + sizeof(dots) - 1, room + 1);
}

/* Return: 0; -ENOENT, there is none of that number; other negative errno: unknown. */
static int open_by_id(const struct cgroup_names *names, uint64_t id,
		      char ret[static RUN_QUEUE_PATH_BYTES])
{
	_cleanup_(close_fdp) int fd = -1;
	union {
		struct file_handle handle;
		char room[sizeof(struct file_handle) + sizeof(uint64_t)];
	} u = {.handle = {.handle_bytes = sizeof(uint64_t), .handle_type = HANDLE_KERNFS}};
	char path[SEARCH_PATH_BYTES], link[64];
	const size_t root_bytes = strlen(names->root);
	ssize_t n;

	memcpy(u.handle.f_handle, &id, sizeof(id));
	fd = open_by_handle_at(names->fd, &u.handle, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return errno == ESTALE ? -ENOENT : -errno;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return -EIO;
	path[n] = '\0';
	/* The number belongs to another file system. */
	if (strncmp(path, names->root, root_bytes) != 0 ||
	    (path[root_bytes] != '/' && path[root_bytes] != '\0'))
		return -EXDEV;
	shorten(path[root_bytes] ? path + root_bytes : "/", ret);
	return 0;
}

/* Return: 0; -ENOENT; -E2BIG: the search ended before all folders were seen. */
static int search(struct cgroup_names *names, char *path, size_t bytes, unsigned int depth,
		  uint64_t id)
{
	struct dirent *entry;
	int r = -ENOENT;
	DIR *folder;

	if (depth > MAX_DEPTH || names->folders_left == 0)
		return -E2BIG;
	names->folders_left--;
	folder = opendir(path);
	if (!folder)
		return -ENOENT;
	while (r == -ENOENT && (entry = readdir(folder))) {
		size_t name_bytes = strlen(entry->d_name);

		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		if (bytes + 1 + name_bytes >= SEARCH_PATH_BYTES) {
			r = -E2BIG;
			break;
		}
		path[bytes] = '/';
		memcpy(path + bytes + 1, entry->d_name, name_bytes + 1);
		if (entry->d_ino == id)
			r = 0;
		else
			r = search(names, path, bytes + 1 + name_bytes, depth + 1, id);
	}
	closedir(folder);
	return r;
}

static int search_all(struct cgroup_names *names, uint64_t id,
		      char ret[static RUN_QUEUE_PATH_BYTES])
{
	const size_t root_bytes = strlen(names->root);
	uint64_t now_ns = clock_now_ns();
	char path[SEARCH_PATH_BYTES];
	struct stat info;
	int r;

	if (root_bytes >= sizeof(path) || fstat(names->fd, &info) < 0)
		return -EIO;
	if (info.st_ino == id) {
		shorten("/", ret);
		return 0;
	}
	if (now_ns < names->next_search_ns)
		return -EAGAIN;
	names->next_search_ns = now_ns + search_again_ns;
	names->folders_left = MAX_FOLDERS;
	memcpy(path, names->root, root_bytes + 1);
	r = search(names, path, root_bytes, 0, id);
	if (r == 0)
		shorten(path + root_bytes, ret);
	return r;
}

static struct cached *find(struct cgroup_names *names, uint64_t id, bool *ret_found)
{
	struct cached *oldest = &names->cached[0];

	for (unsigned int i = 0; i < N_CACHED; i++) {
		struct cached *cached = &names->cached[i];

		if (cached->id == id) {
			*ret_found = true;
			return cached;
		}
		if (cached->used < oldest->used)
			oldest = cached;
	}
	*ret_found = false;
	return oldest;
}

bool cgroup_names_find(struct cgroup_names *names, uint64_t id,
		       char ret[static RUN_QUEUE_PATH_BYTES])
{
	char path[RUN_QUEUE_PATH_BYTES] = "";
	struct cached *cached;
	bool is_cached;
	int r;

	if (id == 0 || names->fd < 0)
		return false;
	cached = find(names, id, &is_cached);
	if (!is_cached) {
		r = names->has_numbers ? open_by_id(names, id, path) : -EXDEV;
		if (r && r != -ENOENT)
			r = search_all(names, id, path);
		if (r && r != -ENOENT)
			return false;
		cached->id = id;
		cached->is_gone = r != 0;
		memcpy(cached->path, path, sizeof(path));
	}
	cached->used = ++names->n_used;
	if (cached->is_gone)
		return false;
	memcpy(ret, cached->path, sizeof(cached->path));
	return true;
}

uint64_t cgroup_names_id(const struct cgroup_names *names, const char *path)
{
	char whole[SEARCH_PATH_BYTES];
	struct stat info;
	int n;

	n = snprintf(whole, sizeof(whole), "%s%s%s", names->root, path[0] == '/' ? "" : "/", path);
	if (n < 0 || n >= (int)sizeof(whole) || stat(whole, &info) < 0 || !S_ISDIR(info.st_mode))
		return 0;
	return info.st_ino;
}
