/* SPDX-License-Identifier: MIT */
/*
 * Detection of the last descriptor of a file in any process
 *
 * The kernel keeps a lock on an open file description until its last holder is gone: descriptors of
 * any process, descriptors in messages in flight, mappings. The layer therefore sets a lock on each
 * exported descriptor, and queries it through its own description of the same file. The driver
 * shares its description with every receiver.
 *
 * Files of dma-bufs cannot be opened anew, but the kernel reports their number of references. For a
 * dma-buf the layer keeps a descriptor, and checks whether that is the only reference.
 */
#include "libclient/layer/holders.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct holders {
	struct holders *next; /* in the list of all, for after_fork_in_child() */
	int fd;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct holders *all;

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

/* A child's copies would keep the files in use. */
static void after_fork_in_child(void)
{
	for (struct holders *holders = all; holders; holders = holders->next)
		close(holders->fd);
	all = NULL;
	pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* Return the number of references to a dma-buf's file; -1: not a dma-buf. */
static long count(int fd)
{
	char path[48], line[128];
	bool is_dma_buf = false;
	long n = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	file = fopen(path, "re");
	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, "count:", 6) == 0)
			n = strtol(line + 6, NULL, 10);
		is_dma_buf |= strncmp(line, "exp_name:", 9) == 0;
	}
	fclose(file);
	return is_dma_buf ? n : -1;
}

static bool is_locked(int fd)
{
	struct flock lock_there = {.l_type = F_WRLCK};

	return fcntl(fd, F_OFD_GETLK, &lock_there) || lock_there.l_type != F_UNLCK;
}

/* Open the file of @fd anew. Return: a descriptor with its own description; -1. */
static int open_anew(int fd)
{
	struct stat stat, opened;
	char path[48];
	int anew;

	if (fstat(fd, &stat) || !S_ISREG(stat.st_mode))
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	anew = open(path, O_RDONLY | O_CLOEXEC);
	if (anew < 0)
		return -1;
	if (!fstat(anew, &opened) && opened.st_dev == stat.st_dev && opened.st_ino == stat.st_ino)
		return anew;
	close(anew);
	return -1;
}

static int lock_for_ever(int fd)
{
	struct flock shared = {.l_type = F_RDLCK};

	return fcntl(fd, F_OFD_SETLK, &shared);
}

/* Begin to watch. Return: the descriptor to watch by; -1. */
static int watch(int fd)
{
	int anew;

	if (count(fd) > 0)
		return fcntl(fd, F_DUPFD_CLOEXEC, 0);
	anew = open_anew(fd);
	if (anew < 0)
		return -1;
	if (!lock_for_ever(fd) && is_locked(anew))
		return anew;
	close(anew);
	return -1;
}

struct holders *holders_new(int fd)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct holders *holders = calloc(1, sizeof(*holders));

	if (!holders)
		return NULL;
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&lock);
	holders->fd = watch(fd);
	if (holders->fd >= 0) {
		holders->next = all;
		all = holders;
	}
	pthread_mutex_unlock(&lock);
	if (holders->fd >= 0)
		return holders;
	free(holders);
	return NULL;
}

bool holders_add(const struct holders *holders, int fd)
{
	return count(holders->fd) > 0 || !lock_for_ever(fd);
}

bool holders_any(const struct holders *holders)
{
	long n;

	if (!holders)
		return true;
	n = count(holders->fd);
	return n < 0 ? is_locked(holders->fd) : n > 1;
}

bool holders_is_own(const struct holders *holders, int fd)
{
	return holders && holders->fd == fd;
}

struct holders *holders_free(struct holders *holders)
{
	struct holders **link = &all;

	if (!holders)
		return NULL;
	pthread_mutex_lock(&lock);
	while (*link != holders)
		link = &(*link)->next;
	*link = holders->next;
	close(holders->fd);
	pthread_mutex_unlock(&lock);
	free(holders);
	return NULL;
}
