/* SPDX-License-Identifier: MIT */
/*
 * Moving an arena to new memory
 *
 * A broker that dies leaves memfds with F_SEAL_FUTURE_WRITE behind, which the next broker cannot
 * map writable. The library therefore copies the arena's bytes into a new memfd and maps that at
 * the same address. The program does not take part: its threads may write the arena at any time,
 * and a write between the copy of its page and the new mapping would be lost.
 *
 * userfaultfd holds such writes up. It write-protects the old mapping, so that every writer waits
 * in its page fault, while readers continue. No thread handles these faults. The new mapping
 * removes the old one together with its protection; the writers are then woken, repeat their
 * writes, and find the new memory. The protection covers pages that this process has never touched:
 * with UFFD_FEATURE_WP_HUGETLBFS_SHMEM the kernel marks their empty page table entries, and a read
 * makes a protected entry of a marked one.
 *
 * The new memfd is made before the protection, and the old one freed after it, so writers wait only
 * for the copy. Until then the machine needs memory for both. The copy reads the old memfd, not the
 * mapping: to read a marked page costs a fault, which takes longer than to copy the page.
 *
 * Some writes cannot be held up, and fail during the move:
 *
 * - Without privilege, only writers in user mode wait. System calls that write into the arena, for
 *   example read(), fail with EFAULT or end early. The kernel makes them wait too if the process
 *   has CAP_SYS_PTRACE or the sysctl vm.unprivileged_userfaultfd is 1.
 * - Futex operations that change the futex's word fail with EFAULT, with privilege too.
 *
 * Some writes do not use the mapping's page table. They reach the old memory, and are lost:
 *
 * - writes into pages that were pinned before the move: by reads with O_DIRECT in flight, by
 *   buffers registered with io_uring, by drivers of devices;
 * - writes through another mapping or another descriptor of the memfd, for example by a child that
 *   inherited the mapping.
 *
 * A thread that sleeps on a futex in the arena which processes share (without FUTEX_PRIVATE_FLAG)
 * is not woken after the move, because the kernel finds such sleepers by the file. The new mapping
 * does not inherit what the program set for the old one by mlock(), madvise() or mbind().
 */
#include <errno.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "libclient/private.h"

/*
 * Remove the protection and wake the writers. Closing the descriptor would do both, but not while a
 * child has the descriptor too, which another thread forked meanwhile.
 */
static void unprotect(int fault_fd, const struct uffdio_range *range)
{
	ioctl(fault_fd, UFFDIO_UNREGISTER, range);
	/* Unregistering wakes only threads that wait for missing pages. */
	ioctl(fault_fd, UFFDIO_WAKE, range);
}

/* Let the range's writers wait from now on. */
static int protect(int fault_fd, const struct uffdio_range *range, struct rbk_error *error)
{
	struct uffdio_writeprotect protection = {
		.range = *range,
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};
	struct uffdio_register registration = {
		.range = *range,
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	int r;

	if (ioctl(fault_fd, UFFDIO_REGISTER, &registration) < 0)
		return client_error(error, -errno,
				    "cannot register the arena with userfaultfd: %m");
	if (ioctl(fault_fd, UFFDIO_WRITEPROTECT, &protection) < 0) {
		r = client_error(error, -errno, "cannot write-protect the arena: %m");
		unprotect(fault_fd, range);
		return r;
	}
	return 0;
}

/* Copy the arena's bytes to the beginning of @fd, a new memfd. Return: 0; negative errno. */
static int copy_file(const struct rbk_arena *arena, int fd)
{
	off_t done = 0;
	ssize_t n;

	while ((size_t)done < arena->bytes) {
		n = sendfile(fd, arena->fd, &done, arena->bytes - (size_t)done);
		if (n == 0)
			return -EIO;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
	return 0;
}

int client_arena_move(struct rbk_arena *arena, struct rbk_error *error)
{
	struct uffdio_range range = {.start = (uintptr_t)arena->data, .len = arena->bytes};
	client_cleanup(client_close) int fd = -1;
	client_cleanup(client_close) int fault_fd = -1;
	int r;

	if (arena->sealed || arena->exported || !arena->data)
		return client_error(error, -EINVAL,
				    "cannot move an arena that is sealed, freed, or memory of a "
				    "device");
	r = client_fault_fd_new(&fault_fd, error);
	if (r)
		return r;
	r = client_memfd_new(CLIENT_ARENA_MEMFD, arena->bytes, &fd);
	if (r)
		return client_error(error, r, "cannot make %zu bytes to move an arena to: %m",
				    arena->bytes);
	r = protect(fault_fd, &range, error);
	if (r)
		return r;
	r = copy_file(arena, fd);
	if (r)
		client_error(error, r, "cannot copy the arena's bytes: %m");
	else
		r = client_arena_exchange(arena, &fd, error);
	/* The new mapping has no protection to remove, but the writers still wait. */
	unprotect(fault_fd, &range);
	return r;
}
