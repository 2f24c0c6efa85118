/* SPDX-License-Identifier: MIT */
/*
 * dma-bufs
 *
 * drivers/dma-buf/dma-buf.c, drivers/dma-buf/udmabuf.c, drivers/gpu/drm/drm_prime.c and
 * drivers/gpu/drm/amd/amdgpu/amdgpu_dma_buf.c.
 *
 * A udmabuf is an open file description of the memfd with a read lock on the range LOCK + offset,
 * as long as the buffer. Its fdinfo lists the locks that it holds, so no process needs to tell
 * another.
 */
#include "dma-buf.h"
#include "client.h"
#include "sys.h"
#include <linux/udmabuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Kept descriptors are above the numbers that programs expect to be small. */
#define KEPT_FD_MIN 512
#define MAX_IMPORTS 4096u
/* Linux 6.11's udmabuf.c refuses F_SEAL_FUTURE_WRITE too; 6.1's does not. */
#define UDMABUF_SEALS_DENIED F_SEAL_WRITE
#define UDMABUF_LIST_LIMIT   1024u

/* Imports of this process; guarded by the state's lock. */
static struct import {
	uint32_t card;
	uint32_t object;
	uint64_t id;
	int fd;
} imports[MAX_IMPORTS];
static uint32_t n_imports;

/*
 * Read the fdinfo of a descriptor.
 * Return: false if there is none.
 */
static bool read_fdinfo(int fd, char *text, size_t size)
{
	char path[64];
	ssize_t n;
	int info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = sys_open(path, O_RDONLY | O_CLOEXEC);
	if (info < 0)
		return false;
	n = read(info, text, size - 1);
	close(info);
	if (n < 0)
		return false;
	text[n] = '\0';
	return true;
}

bool sim_udmabuf_of_fd(int fd, bool parts_only, uint64_t *ret_offset, uint64_t *ret_bytes)
{
	unsigned long long begin, end;
	struct stat about;
	char text[2048];
	const char *at;

	if (!sim.state ||
	    (parts_only && !__atomic_load_n(&sim.state->n_udmabuf_parts, __ATOMIC_RELAXED)))
		return false;
	if (sys_fstat(fd, &about) || !S_ISREG(about.st_mode) || about.st_nlink ||
	    !read_fdinfo(fd, text, sizeof(text)))
		return false;
	for (at = text; (at = strstr(at, "lock:")); at++) {
		/* proc(5): number, kind, "ADVISORY", access, pid, device and inode, begin, end. */
		if (sscanf(at, "lock: %*s OFDLCK %*s READ %*s %*s %llu %llu", &begin, &end) != 2)
			continue;
		if (begin < SIM_LOCK_BASE)
			continue;
		*ret_offset = begin - SIM_LOCK_BASE;
		*ret_bytes = end - begin + 1;
		return true;
	}
	return false;
}

bool sim_is_udmabuf_device(int fd)
{
	struct stat about;

	return sim.state && !sys_fstat(fd, &about) && about.st_dev == sim.dev &&
	       about.st_ino == sim.state->udmabuf_ino;
}

int sim_udmabuf_open(int flags)
{
	int fd;

	if (sim.state->udmabuf_mode != SIM_UDMABUF_PRESENT)
		return -ENOENT;
	fd = sim_open_file("udmabuf", O_RDWR);
	if (fd >= 0 && !(flags & O_CLOEXEC))
		fcntl(fd, F_SETFD, 0);
	return fd;
}

/* Make one udmabuf as udmabuf_create() does. */
static int udmabuf_create(uint32_t memfd, uint32_t flags, uint64_t offset, uint64_t size)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	struct stat about;
	char path[64];
	int fd, seals, r;

	if ((offset | size) & (SIM_PAGE_BYTES - 1) || !size)
		return -EINVAL;
	if (size > sim.state->udmabuf_limit_bytes)
		return -EINVAL;
	seals = fcntl((int)memfd, F_GET_SEALS);
	/* "if (!shmem_mapping(mapping)) goto err" with -EBADFD, as for an invalid descriptor. */
	if (seals < 0)
		return -EBADFD;
	if (!(seals & F_SEAL_SHRINK) || seals & UDMABUF_SEALS_DENIED)
		return -EINVAL;
	r = sys_fstat((int)memfd, &about);
	if (r)
		return r;
	/* shmem_read_mapping_page() fails beyond the end. */
	if (offset > (uint64_t)about.st_size || size > (uint64_t)about.st_size - offset)
		return -EINVAL;

	snprintf(path, sizeof(path), "/proc/self/fd/%u", memfd);
	fd = sys_open(path, O_RDWR | (flags & UDMABUF_FLAGS_CLOEXEC ? O_CLOEXEC : 0));
	if (fd < 0)
		return fd;
	lock.l_start = SIM_LOCK_BASE + (off_t)offset;
	lock.l_len = (off_t)size;
	if (fcntl(fd, F_OFD_SETLK, &lock)) {
		r = -errno;
		close(fd);
		return r;
	}
	if (offset || size != (uint64_t)about.st_size)
		__atomic_add_fetch(&sim.state->n_udmabuf_parts, 1, __ATOMIC_RELAXED);
	return fd;
}

/* Handle udmabuf_ioctl(). */
int sim_udmabuf_ioctl(unsigned long request, void *argument)
{
	const struct udmabuf_create *one = argument;
	const struct udmabuf_create_list *list = argument;

	switch (request) {
	case UDMABUF_CREATE:
		return udmabuf_create(one->memfd, one->flags, one->offset, one->size);
	case UDMABUF_CREATE_LIST:
		if (list->count > UDMABUF_LIST_LIMIT || !list->count)
			return -EINVAL;
		/* One open file description of one memfd cannot represent several ranges. */
		if (list->count > 1)
			return -EOPNOTSUPP;
		return udmabuf_create(list->list[0].memfd, list->flags, list->list[0].offset,
				      list->list[0].size);
	default:
		return -ENOTTY;
	}
}

/* Find the object of any card whose file has inode @ino. */
static bool find_object(ino_t ino, struct sim_dma_buf *ret)
{
	for (uint32_t i = 0; i < sim.state->n_cards; i++) {
		struct sim_card *card = &sim.state->cards[i];

		for (uint32_t k = 0; k < card->n_objects; k++) {
			struct sim_object *object = &card->objects[k];

			if (object->kind != SIM_OBJECT_MEMORY || object->ino != ino)
				continue;
			ret->card = card;
			ret->object = object;
			ret->bytes = object->bytes;
			return true;
		}
	}
	return false;
}

/* Identify a dma-buf of a real exporter: the kernel names them "/dmabuf:NAME". */
static int real_dma_buf(int fd, struct sim_dma_buf *ret)
{
	char path[64], target[64];
	ssize_t n;
	off_t size;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = sys_readlinkat(AT_FDCWD, path, target, sizeof(target) - 1);
	if (n < 0)
		return -EBADF;
	target[n] = '\0';
	if (strncmp(target, "/dmabuf:", 8))
		return -EINVAL;
	/* dma_buf_llseek() tells user space the size. */
	size = sys_lseek(fd, 0, SEEK_END);
	if (size <= 0)
		return -EINVAL;
	sys_lseek(fd, 0, SEEK_SET);
	ret->bytes = (uint64_t)size;
	return 0;
}

int sim_dma_buf_of_fd(int fd, struct sim_dma_buf *ret)
{
	struct stat about;
	int r;

	*ret = (struct sim_dma_buf){0};
	r = sys_fstat(fd, &about);
	if (r)
		return r;
	ret->dev = about.st_dev;
	ret->ino = about.st_ino;
	if (about.st_dev == sim.dev && find_object(about.st_ino, ret))
		return 0;
	if (sim_udmabuf_of_fd(fd, false, &ret->offset, &ret->bytes))
		return 0;
	return real_dma_buf(fd, ret);
}

int sim_dma_buf_export(struct sim_card *card, struct sim_object *object, int flags)
{
	struct flock lock = {
		.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = SIM_LOCK_BASE, .l_len = 1};
	char name[64];
	int fd, r;

	sim_object_file_name(card, object->id, name);
	fd = sim_open_file(name, flags & O_ACCMODE);
	if (fd < 0)
		return fd;
	if (fcntl(fd, F_OFD_SETLK, &lock)) {
		r = -errno;
		close(fd);
		return r;
	}
	if (!(flags & O_CLOEXEC))
		fcntl(fd, F_SETFD, 0);
	object->is_exported = true;
	return fd;
}

static bool is_alive(const struct import *import)
{
	const struct sim_object *object = &sim.state->cards[import->card].objects[import->object];

	return object->kind == SIM_OBJECT_IMPORT && object->id == import->id;
}

void sim_import_purge(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_imports; i++) {
		if (is_alive(&imports[i]))
			imports[n++] = imports[i];
		else
			close(imports[i].fd);
	}
	n_imports = n;
}

int sim_import_keep(const struct sim_card *card, const struct sim_object *object, int fd)
{
	int kept;

	sim_import_purge();
	if (n_imports == MAX_IMPORTS)
		return -ENOMEM;
	kept = fcntl(fd, F_DUPFD_CLOEXEC, KEPT_FD_MIN);
	if (kept < 0)
		kept = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (kept < 0)
		return -errno;
	imports[n_imports++] = (struct import){
		.card = sim_card_index(card),
		.object = (uint32_t)(object - card->objects),
		.id = object->id,
		.fd = kept,
	};
	return 0;
}

int sim_import_fd(const struct sim_card *card, const struct sim_object *object)
{
	for (uint32_t i = 0; i < n_imports; i++) {
		if (imports[i].card == sim_card_index(card) &&
		    &card->objects[imports[i].object] == object && is_alive(&imports[i]))
			return imports[i].fd;
	}
	return -EBADF;
}
