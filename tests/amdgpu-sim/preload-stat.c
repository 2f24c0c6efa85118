/* SPDX-License-Identifier: MIT */
/*
 * stat() and its relatives, and names of files
 *
 * A card's descriptor, its node and /dev/udmabuf are regular files to the system, and character
 * devices to the program. The links of /proc to these descriptors are corrected, too.
 */
#include "preload.h"
#include "client.h"
#include "dma-buf.h"
#include "fdinfo.h"
#include "sysroot.h"
#include "sys.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* A misc device, whose minor is dynamic. */
#define UDMABUF_RDEV makedev(10, 125)

/*
 * Find the simulated device number of @path, or of @folder if @path is empty.
 * Return: false if there is none.
 */
static bool device_number(int folder, const char *path, dev_t dev, ino_t ino, dev_t *ret)
{
	struct sim_card *card;
	struct sim_fd client;
	char text[2048];
	uint32_t minor;

	if (dev != sim.dev)
		return false;
	if (ino == sim.state->udmabuf_ino) {
		*ret = UDMABUF_RDEV;
		return true;
	}
	if (path && path[0] && sim_card_of_node(path, &minor)) {
		*ret = makedev(SIM_DRM_MAJOR, minor);
		return true;
	}
	card = sim_card_of_inode(dev, ino);
	if (!card)
		return false;
	if ((!path || !path[0]) && sim_client_of_fd(folder, &client))
		minor = card->clients[client.slot].node_minor;
	else if (path && sim_fdinfo_find(path, &client, text, sizeof(text)))
		minor = card->clients[client.slot].node_minor;
	else
		return false;
	*ret = makedev(SIM_DRM_MAJOR, minor);
	return true;
}

static int stat_any(int folder, const char *path, struct stat *ret, int flags)
{
	char buffer[SIM_PATH_MAX], absolute[SIM_PATH_MAX];
	uint64_t offset, bytes;
	bool is_fd;
	dev_t rdev;
	int r;

	if (!sim_is_ready() || !path)
		return sim_result(sys_fstatat(folder, path, ret, flags));
	r = sys_fstatat(folder, sim_map_path(folder, path, buffer), ret, flags);
	if (r || !S_ISREG(ret->st_mode))
		return sim_result(r);

	is_fd = !path[0] && flags & AT_EMPTY_PATH;
	if (device_number(folder, is_fd ? NULL : sim_absolute_path(folder, path, absolute),
			  ret->st_dev, ret->st_ino, &rdev)) {
		ret->st_mode = S_IFCHR | 0666;
		ret->st_rdev = rdev;
		ret->st_size = 0;
		ret->st_blocks = 0;
	} else if (is_fd && !ret->st_nlink && sim_udmabuf_of_fd(folder, true, &offset, &bytes)) {
		/* Every dma-buf has its own inode; the file's inode is the memfd's. */
		ret->st_size = (off_t)bytes;
		ret->st_ino ^= (offset >> 12) << 32;
	}
	return 0;
}

INTERPOSED int stat(const char *path, struct stat *ret)
{
	return stat_any(AT_FDCWD, path, ret, 0);
}

INTERPOSED int stat64(const char *path, struct stat64 *ret)
{
	return stat_any(AT_FDCWD, path, (struct stat *)ret, 0);
}

INTERPOSED int lstat(const char *path, struct stat *ret)
{
	return stat_any(AT_FDCWD, path, ret, AT_SYMLINK_NOFOLLOW);
}

INTERPOSED int lstat64(const char *path, struct stat64 *ret)
{
	return stat_any(AT_FDCWD, path, (struct stat *)ret, AT_SYMLINK_NOFOLLOW);
}

INTERPOSED int fstat(int fd, struct stat *ret)
{
	return stat_any(fd, "", ret, AT_EMPTY_PATH);
}

INTERPOSED int fstat64(int fd, struct stat64 *ret)
{
	return stat_any(fd, "", (struct stat *)ret, AT_EMPTY_PATH);
}

INTERPOSED int fstatat(int folder, const char *path, struct stat *ret, int flags)
{
	return stat_any(folder, path, ret, flags);
}

INTERPOSED int fstatat64(int folder, const char *path, struct stat64 *ret, int flags)
{
	return stat_any(folder, path, (struct stat *)ret, flags);
}

/* Variants that programs built against glibc before 2.33 call. */
INTERPOSED int __xstat(int version, const char *path, struct stat *ret);
INTERPOSED int __xstat64(int version, const char *path, struct stat64 *ret);
INTERPOSED int __lxstat(int version, const char *path, struct stat *ret);
INTERPOSED int __lxstat64(int version, const char *path, struct stat64 *ret);
INTERPOSED int __fxstat(int version, int fd, struct stat *ret);
INTERPOSED int __fxstat64(int version, int fd, struct stat64 *ret);

int __xstat(int version, const char *path, struct stat *ret)
{
	return stat_any(AT_FDCWD, path, ret, 0);
}

int __xstat64(int version, const char *path, struct stat64 *ret)
{
	return stat_any(AT_FDCWD, path, (struct stat *)ret, 0);
}

int __lxstat(int version, const char *path, struct stat *ret)
{
	return stat_any(AT_FDCWD, path, ret, AT_SYMLINK_NOFOLLOW);
}

int __lxstat64(int version, const char *path, struct stat64 *ret)
{
	return stat_any(AT_FDCWD, path, (struct stat *)ret, AT_SYMLINK_NOFOLLOW);
}

int __fxstat(int version, int fd, struct stat *ret)
{
	return stat_any(fd, "", ret, AT_EMPTY_PATH);
}

int __fxstat64(int version, int fd, struct stat64 *ret)
{
	return stat_any(fd, "", (struct stat *)ret, AT_EMPTY_PATH);
}

INTERPOSED int statx(int folder, const char *path, int flags, unsigned mask, struct statx *ret)
{
	char buffer[SIM_PATH_MAX], absolute[SIM_PATH_MAX];
	bool is_fd;
	dev_t rdev;
	int r;

	if (!sim_is_ready())
		return sim_result((int)SYS_CALL(SYS_statx, folder, path, flags, mask, ret));
	r = (int)SYS_CALL(SYS_statx, folder, sim_map_path(folder, path, buffer), flags,
			  mask | STATX_INO | STATX_TYPE, ret);
	if (r || !S_ISREG(ret->stx_mode))
		return sim_result(r);
	is_fd = !path[0] && flags & AT_EMPTY_PATH;
	if (device_number(folder, is_fd ? NULL : sim_absolute_path(folder, path, absolute),
			  makedev(ret->stx_dev_major, ret->stx_dev_minor), ret->stx_ino, &rdev)) {
		ret->stx_mode = S_IFCHR | 0666;
		ret->stx_rdev_major = major(rdev);
		ret->stx_rdev_minor = minor(rdev);
		ret->stx_size = 0;
		ret->stx_blocks = 0;
	}
	return 0;
}

INTERPOSED int access(const char *path, int mode)
{
	char buffer[SIM_PATH_MAX];

	return sim_result(
		(int)SYS_CALL(SYS_faccessat, AT_FDCWD, sim_map_path(AT_FDCWD, path, buffer), mode));
}

INTERPOSED int faccessat(int folder, const char *path, int mode, int flags)
{
	static int (*next)(int, const char *, int, int);
	char buffer[SIM_PATH_MAX];

	if (!next)
		next = dlsym(RTLD_NEXT, "faccessat");
	return next(folder, sim_map_path(folder, path, buffer), mode, flags);
}

/* "ls -l" and similar programs ask for access lists first. */
INTERPOSED ssize_t getxattr(const char *path, const char *name, void *ret, size_t size)
{
	char buffer[SIM_PATH_MAX];
	ssize_t n = SYS_CALL(SYS_getxattr, sim_map_path(AT_FDCWD, path, buffer), name, ret, size);

	return n < 0 ? sim_result((int)n) : n;
}

INTERPOSED ssize_t lgetxattr(const char *path, const char *name, void *ret, size_t size)
{
	char buffer[SIM_PATH_MAX];
	ssize_t n = SYS_CALL(SYS_lgetxattr, sim_map_path(AT_FDCWD, path, buffer), name, ret, size);

	return n < 0 ? sim_result((int)n) : n;
}

/*
 * Find the target that the program must see for a link of /proc into DIR.
 * Return: false if @target is right.
 */
static bool true_target(const char *path, const char *target, char ret[SIM_PATH_MAX])
{
	size_t n = strlen(sim.dir);
	struct sim_fd client;
	char text[2048];

	if (strncmp(target, sim.dir, n) || target[n] != '/')
		return false;
	target += n + 1;
	if (!strcmp(target, "udmabuf")) {
		strcpy(ret, "/dev/udmabuf");
	} else if (strstr(target, "-bo/")) {
		/* fs/d_path of drivers/dma-buf/dma-buf.c, dmabuffs_dname(). */
		strcpy(ret, "/dmabuf:");
	} else if (!strncmp(target, "root/", 5)) {
		snprintf(ret, SIM_PATH_MAX, "/%s", target + 5);
	} else if (sim_fdinfo_find(path, &client, text, sizeof(text))) {
		uint32_t minor = client.card->clients[client.slot].node_minor;

		snprintf(ret, SIM_PATH_MAX, "/dev/dri/%s%u",
			 minor < SIM_RENDER_MINOR ? "card" : "renderD", minor);
	} else {
		return false;
	}
	return true;
}

static ssize_t read_link(int folder, const char *path, char *ret, size_t size)
{
	char mapped[SIM_PATH_MAX], absolute[SIM_PATH_MAX], target[SIM_PATH_MAX],
		better[SIM_PATH_MAX];
	const char *full;
	ssize_t n;

	if (!sim_is_ready() || !path) {
		n = sys_readlinkat(folder, path, ret, size);
		return n < 0 ? sim_result((int)n) : n;
	}
	n = sys_readlinkat(folder, sim_map_path(folder, path, mapped), target, sizeof(target) - 1);
	if (n < 0)
		return sim_result((int)n);
	target[n] = '\0';
	full = sim_absolute_path(folder, path, absolute);
	if (!strncmp(full, "/proc/", 6) && true_target(full, target, better)) {
		strcpy(target, better);
		n = (ssize_t)strlen(target);
	}
	if ((size_t)n > size)
		n = (ssize_t)size;
	memcpy(ret, target, (size_t)n);
	return n;
}

INTERPOSED ssize_t readlink(const char *path, char *ret, size_t size)
{
	return read_link(AT_FDCWD, path, ret, size);
}

INTERPOSED ssize_t readlinkat(int folder, const char *path, char *ret, size_t size)
{
	return read_link(folder, path, ret, size);
}

INTERPOSED ssize_t __readlink_chk(const char *path, char *ret, size_t size, size_t room);
INTERPOSED ssize_t __readlinkat_chk(int folder, const char *path, char *ret, size_t size,
				    size_t room);

ssize_t __readlink_chk(const char *path, char *ret, size_t size, size_t room)
{
	return read_link(AT_FDCWD, path, ret, size < room ? size : room);
}

ssize_t __readlinkat_chk(int folder, const char *path, char *ret, size_t size, size_t room)
{
	return read_link(folder, path, ret, size < room ? size : room);
}

static char *real_path(const char *path, char *ret)
{
	static char *(*next)(const char *, char *);
	char mapped[SIM_PATH_MAX], found[SIM_PATH_MAX];
	const char *target = sim_map_path(AT_FDCWD, path, mapped);

	if (!next)
		next = dlsym(RTLD_NEXT, "realpath");
	if (target == path)
		return next(path, ret);
	if (!next(target, found))
		return NULL;
	target = sim_sysroot_unmap(found);
	return ret ? strcpy(ret, target) : strdup(target);
}

INTERPOSED char *realpath(const char *path, char *ret)
{
	return real_path(path, ret);
}

INTERPOSED char *canonicalize_file_name(const char *path)
{
	return real_path(path, NULL);
}

INTERPOSED char *__realpath_chk(const char *path, char *ret, size_t room);

char *__realpath_chk(const char *path, char *ret, size_t room)
{
	return real_path(path, ret);
}
