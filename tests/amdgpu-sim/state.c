/* SPDX-License-Identifier: MIT */
/*
 * The state file
 *
 * Every process maps the same file and takes the same robust mutex, so that the simulator survives
 * a process that is killed in the middle of an ioctl. The next locker gets EOWNERDEAD and
 * recomputes the derived figures. The file is sparse: only the used part of the tables takes
 * memory.
 *
 * The kernel marks the mutex of a thread that ends, unless it cannot write the page, for example
 * while a file on a disk is written back. So a process that waits looks from time to time whether
 * the owner still exists, and otherwise sets the mark itself. The owner's number is that of its PID
 * namespace: programs over one simulator share a namespace.
 */
#include "state.h"
#include "memory.h"
#include "sys.h"
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* First wait for the lock, which doubles up to 32 times that; time until a look at the owner */
#define LOCK_POLL_NS     50000u
#define LOCK_PATIENCE_NS 300000000u

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

/* Return true if the thread has ended, even if its parent has not waited for it yet. */
static bool is_gone(uint32_t tid)
{
	char path[32], text[128];
	const char *name_end;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/stat", tid);
	fd = sys_open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) /* It may also be hidden from this user. */
		return sys_kill((pid_t)tid, 0) == -ESRCH;
	n = sys_read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	/* "NUMBER (NAME) STATE ..." */
	name_end = strrchr(text, ')');
	return name_end && (name_end[2] == 'Z' || name_end[2] == 'X');
}

/*
 * Mark the mutex as the kernel does at its owner's end, if the owner is gone: handle_futex_death()
 * of kernel/futex/core.c. The word is that of glibc.
 */
static void mark_if_owner_is_gone(uint32_t word)
{
	_Atomic uint32_t *lock = (_Atomic uint32_t *)&sim.state->mutex.__data.__lock;

	if ((word & FUTEX_TID_MASK) && is_gone(word & FUTEX_TID_MASK))
		atomic_compare_exchange_strong(lock, &word,
					       (word & FUTEX_WAITERS) | FUTEX_OWNER_DIED);
}

/*
 * Lock the mutex, or find that its owner has died.
 * Return: 0, EOWNERDEAD, another error.
 */
static int lock_mutex(void)
{
	const _Atomic uint32_t *lock = (const _Atomic uint32_t *)&sim.state->mutex.__data.__lock;
	uint32_t seen = 0, word;
	uint64_t waited_ns = 0;
	int r;

	/*
	 * Poll, since ThreadSanitizer does not know of waits with a time limit that return
	 * EOWNERDEAD. Locks are held for microseconds.
	 */
	for (uint64_t ns = LOCK_POLL_NS; (r = pthread_mutex_trylock(&sim.state->mutex)) == EBUSY;) {
		word = atomic_load(lock);
		if (word != seen)
			waited_ns = 0;
		seen = word;
		if (waited_ns >= LOCK_PATIENCE_NS) {
			mark_if_owner_is_gone(word);
			waited_ns = 0;
		}
		sys_sleep_ns(ns);
		waited_ns += ns;
		if (ns < LOCK_POLL_NS << 5)
			ns *= 2;
	}
	return r;
}

void sim_lock(void)
{
	int r = lock_mutex();

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
