/* SPDX-License-Identifier: MIT */
/*
 * Checking and mapping arenas
 *
 * The seals are checked first: F_SEAL_SHRINK and F_SEAL_GROW cannot be removed from a memfd, so the
 * size that is read afterwards is final. Holes can still be punched. Reading a hole later allocates
 * a zero page, which was charged to the tenant with the arena's full size.
 *
 * Mapping and faulting in are separate: the pages of a large arena are faulted in, and unmapped, a
 * step at a time, so that other threads can map memory and other jobs can run in between.
 *
 * An immutable arena is mapped private and read-only: kernels before 6.7 refuse a shared mapping of
 * a memfd with F_SEAL_WRITE, and a private mapping without writes shows the same pages.
 */
#include "session/arena-memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "util/checked.h"
#include "util/error.h"
#include "util/pages.h"

/* Drivers round the size of a dma-buf up. */
#define DMA_BUF_SPARE_BYTES (2ull << 20)

static int refuse(char message[ARENA_MESSAGE_BYTES], const char *why)
{
	snprintf(message, ARENA_MESSAGE_BYTES, "the arena %s", why);
	return ARENA_E_UNSUITABLE;
}

/* Check as arena_check() does, and return the seals and the status. */
static int check(int fd, uint64_t bytes, int *ret_seals, struct stat *ret_status,
		 char message[ARENA_MESSAGE_BYTES])
{
	const int wanted_seals = F_SEAL_SHRINK | F_SEAL_GROW;
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;

	if (seals < 0)
		return refuse(message, "is not a memfd");
	if ((seals & wanted_seals) != wanted_seals)
		return refuse(message, "is not sealed with F_SEAL_SHRINK and F_SEAL_GROW");
	if (fstatfs(fd, &fs) < 0 || fstat(fd, ret_status) < 0)
		return error_origin(-errno);
	if (fs.f_type != TMPFS_MAGIC)
		return refuse(message, "is not an ordinary memfd (hugetlb is refused)");
	if (bytes == 0 || bytes % page_bytes != 0)
		return refuse(message,
			      "has a size that is not a positive multiple of the page size");
	if ((uint64_t)ret_status->st_size != bytes)
		return refuse(message, "has another size than its request says");
	if (bytes > (1ull << RBK_REF_OFFSET_BITS))
		return refuse(message, "is larger than a tensor reference can address");
	if ((uint64_t)ret_status->st_blocks * 512 < bytes)
		return refuse(message, "is sparse: allocate its pages first, with fallocate()");
	*ret_seals = seals;
	return 0;
}

int arena_check(int fd, uint64_t bytes, char message[ARENA_MESSAGE_BYTES])
{
	struct stat status;
	int seals;

	return check(fd, bytes, &seals, &status, message);
}

int arena_map(int fd, uint64_t bytes, struct exec_arena *ret, char message[ARENA_MESSAGE_BYTES])
{
	struct stat status;
	bool immutable;
	void *base;
	int seals = 0, r;

	r = check(fd, bytes, &seals, &status, message);
	if (r)
		return r;

	/*
	 * The open file description is the client's, too: its access mode must permit our mapping.
	 */
	immutable = (seals & F_SEAL_WRITE) != 0;
	base = immutable ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0)
			 : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) {
		if (errno == EACCES || errno == EPERM)
			return refuse(message,
				      "cannot be mapped: it is sealed with F_SEAL_FUTURE_WRITE "
				      "only, or it is not open for reading and writing");
		return error_origin(-errno);
	}

	*ret = (struct exec_arena){
		.base = base,
		.bytes = bytes,
		.immutable = immutable,
		.dev = status.st_dev,
		.ino = status.st_ino,
		.fd = -1,
	};
	return 0;
}

int arena_check_dma_buf(int fd, uint64_t bytes, struct dma_buf_about *ret,
			char message[ARENA_MESSAGE_BYTES])
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	struct dma_buf_about about;

	if (dma_buf_examine(fd, &about))
		return refuse(message, "is not a dma-buf");
	if (bytes == 0 || bytes % page_bytes != 0 || bytes > 1ull << RBK_REF_OFFSET_BITS)
		return refuse(message, "has a size that is not a positive multiple of the page "
				       "size, or that a reference cannot reach");
	if (about.bytes < bytes || about.bytes - bytes >= DMA_BUF_SPARE_BYTES)
		return refuse(message, "has another size than its request says");
	*ret = about;
	return 0;
}

bool arena_is_host_memory(const char *exporter)
{
	static const char *const drivers[] = {"amdgpu", "udmabuf"};

	for (size_t i = 0; i < ARRAY_SIZE(drivers); i++)
		if (strcmp(exporter, drivers[i]) == 0)
			return true;
	return false;
}

int arena_map_dma_buf(int fd, uint64_t bytes, struct exec_arena *ret,
		      char message[ARENA_MESSAGE_BYTES])
{
	struct stat status;
	void *base;

	if (fstat(fd, &status) < 0)
		return error_origin(-errno);
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) {
		/* Drivers have errors of their own. */
		if (errno != ENOMEM)
			return refuse(message, "cannot be mapped for reading and writing");
		return error_origin(-errno);
	}
	*ret = (struct exec_arena){
		.base = base,
		.bytes = bytes,
		.dev = status.st_dev,
		.ino = status.st_ino,
		.fd = -1,
		.is_restored = true,
	};
	return 0;
}

void arena_populate(const struct exec_arena *arena, uint64_t offset, uint64_t bytes)
{
	pages_populate((char *)arena->base + offset, bytes, !arena->immutable);
}

bool arena_fix(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0;
}

bool arena_is_whole(int fd, uint64_t bytes)
{
	struct stat status;

	return fstat(fd, &status) == 0 && (uint64_t)status.st_blocks * 512 >= bytes;
}

bool arena_unmap(struct exec_arena *arena)
{
	uint64_t bytes = arena->bytes < ARENA_STEP_BYTES ? arena->bytes : ARENA_STEP_BYTES;

	if (!arena->base)
		return true;
	arena->bytes -= bytes;
	pages_unmap((char *)arena->base + arena->bytes, bytes);
	if (arena->bytes > 0)
		return false;
	arena->base = NULL;
	return true;
}
