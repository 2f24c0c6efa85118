/* SPDX-License-Identifier: MIT */
/*
 * The state file
 *
 * Every process maps the same file and takes the same robust mutex, so that the simulator survives
 * a process that is killed in the middle of an ioctl. The next locker gets EOWNERDEAD and
 * recomputes the derived figures. The file is sparse: only the used part of the tables takes
 * memory.
 */
#include "state.h"
#include "memory.h"
#include "sys.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct sim sim;

static int init_mutex(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attributes;
	int r;

	r = -pthread_mutexattr_init(&attributes);
	if (r)
		return r;
	r = -pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	if (!r)
		r = -pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	if (!r)
		r = -pthread_mutex_init(mutex, &attributes);
	pthread_mutexattr_destroy(&attributes);
	return r;
}

/*
 * Open @dir's state file and store the directory's path.
 * Return: descriptor or a negative errno.
 */
static int open_state_file(const char *dir, int flags)
{
	char path[SIM_PATH_MAX + 16];
	struct stat about;
	ssize_t n;
	int fd, r;

	snprintf(path, sizeof(path), "%s/state", dir);
	fd = sys_openat(AT_FDCWD, path, flags | O_RDWR | O_CLOEXEC, 0666);
	if (fd < 0)
		return fd;
	r = sys_fstat(fd, &about);
	if (r < 0)
		goto fail;

	/*
	 * Links of /proc to descriptors contain no symbolic links, so the stored path must not
	 * either.
	 */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = sys_readlinkat(AT_FDCWD, path, sim.dir, sizeof(sim.dir) - 1);
	r = (int)n;
	if (n < 0)
		goto fail;
	sim.dir[n] = '\0';
	*strrchr(sim.dir, '/') = '\0';
	sim.dev = about.st_dev;
	return fd;
fail:
	close(fd);
	return r;
}

static int map_state(int fd)
{
	void *at =
		sys_mmap(NULL, sizeof(struct sim_state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if ((intptr_t)at < 0 && (intptr_t)at > -SIM_PATH_MAX)
		return (int)(intptr_t)at;
	sim.state = at;
	return 0;
}

int sim_state_create(const char *dir)
{
	int fd, r;

	fd = open_state_file(dir, O_CREAT | O_TRUNC);
	if (fd < 0)
		return fd;
	/* Access to the folder controls access to the simulator, as a group does for /dev/dri. */
	r = fchmod(fd, 0666) || ftruncate(fd, sizeof(struct sim_state)) ? -errno : 0;
	if (!r)
		r = map_state(fd);
	close(fd);
	if (r)
		return r;

	r = init_mutex(&sim.state->mutex);
	if (r)
		return r;
	/* drivers/dma-buf/udmabuf.c: size_limit_mb. */
	sim.state->udmabuf_limit_bytes = 64ull << 20;
	sim.state->magic = SIM_MAGIC;
	return 0;
}

int sim_state_open(const char *dir)
{
	struct stat about;
	int fd, r;

	fd = open_state_file(dir, 0);
	if (fd < 0)
		return fd;
	r = sys_fstat(fd, &about);
	if (!r && about.st_size != sizeof(struct sim_state))
		r = -EPROTO;
	if (!r)
		r = map_state(fd);
	close(fd);
	if (!r && sim.state->magic != SIM_MAGIC) {
		munmap(sim.state, sizeof(struct sim_state));
		sim.state = NULL;
		r = -EPROTO;
	}
	return r;
}

void sim_lock(void)
{
	int r = pthread_mutex_lock(&sim.state->mutex);

	if (r == EOWNERDEAD) {
		for (unsigned i = 0; i < sim.state->n_cards; i++)
			sim_memory_recount(&sim.state->cards[i]);
		pthread_mutex_consistent(&sim.state->mutex);
	} else if (r) {
		fprintf(stderr, "amdgpu-sim: lock of %s/state: %s\n", sim.dir, strerror(r));
		abort();
	}
}

void sim_unlock(void)
{
	pthread_mutex_unlock(&sim.state->mutex);
}

int sim_open_file(const char *name, int flags)
{
	char path[SIM_PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", sim.dir, name);
	return sys_openat(AT_FDCWD, path, flags | O_CLOEXEC, 0666);
}

void sim_card_file_name(const struct sim_card *card, char name[32])
{
	snprintf(name, 32, "card%u", sim_card_index(card));
}

void sim_object_file_name(const struct sim_card *card, uint64_t id, char name[64])
{
	snprintf(name, 64, "card%u-bo/%llu", sim_card_index(card), (unsigned long long)id);
}
