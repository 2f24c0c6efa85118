/* SPDX-License-Identifier: MIT */
/* Arenas of the broker's own: memory that no client has, which every executor can import */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/exec-arena.h"
#include "util/cleanup.h"
#include "util/error.h"

int exec_arena_make(const char *name, uint64_t bytes, struct exec_arena *ret)
{
	_cleanup_(close_fdp) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat status;
	void *base;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0 || fstat(fd, &status) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return error_origin(-errno);
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return error_origin(-errno);
	*ret = (struct exec_arena){.base = base,
				   .bytes = bytes,
				   .is_fixed = true,
				   .dev = status.st_dev,
				   .ino = status.st_ino,
				   .fd = steal_fd(&fd)};
	return 0;
}

int exec_arena_fill(const struct exec_arena *arena, uint64_t offset, uint64_t bytes)
{
	int r;

	do
		r = fallocate(arena->fd, 0, (off_t)offset, (off_t)bytes);
	while (r < 0 && errno == EINTR);
	return r < 0 ? error_origin(-errno) : 0;
}
