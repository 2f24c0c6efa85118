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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Wait for the lock until a look at its owner, below a second; also that of a lost wake-up */
#define LOCK_PATIENCE_NS 100000000

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
 * Mark the mutex as the kernel does at its owner's end, if the owner is gone and the mutex is still
 * its own: handle_futex_death() of kernel/futex/core.c. The word is that of glibc. brokerd's
 * sandbox would refuse, and log, the calls of a look: there, the programs beside it look.
 */
static void mark_if_owner_is_gone(uint32_t word)
{
	uint32_t *lock = (uint32_t *)&sim.state->mutex.__data.__lock;

	if (__atomic_load_n(lock, __ATOMIC_RELAXED) == word &&
	    strcmp(program_invocation_short_name, "brokerd") != 0 && is_gone(word & FUTEX_TID_MASK))
		__atomic_compare_exchange_n(lock, &word, (word & FUTEX_WAITERS) | FUTEX_OWNER_DIED,
					    false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/*
 * Lock the mutex, or find that its owner has died. Waits as glibc does, but for a limited time:
 * ThreadSanitizer does not know of pthread_mutex_clocklock() that returns EOWNERDEAD.
 * Return: 0, EOWNERDEAD, another error.
 */
static int lock_mutex(void)
{
	static const struct timespec patience = {.tv_nsec = LOCK_PATIENCE_NS};
	uint32_t *lock = (uint32_t *)&sim.state->mutex.__data.__lock;
	bool has_waited = false;
	uint32_t word;
	int r;

	while ((r = pthread_mutex_trylock(&sim.state->mutex)) == EBUSY) {
		word = __atomic_load_n(lock, __ATOMIC_RELAXED);
		/* Have the owner wake a waiter when it unlocks the mutex, or ends. */
		if (!(word & FUTEX_TID_MASK) ||
		    !__atomic_compare_exchange_n(lock, &word, word | FUTEX_WAITERS, false,
						 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		has_waited = true;
		if (sys_futex_wait(lock, word | FUTEX_WAITERS, &patience) == -ETIMEDOUT)
			mark_if_owner_is_gone(word | FUTEX_WAITERS);
	}
	/* Others may wait, too; the bit was lost when the mutex was unlocked. */
	if (has_waited && (r == 0 || r == EOWNERDEAD))
		__atomic_fetch_or(lock, FUTEX_WAITERS, __ATOMIC_RELAXED);
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
