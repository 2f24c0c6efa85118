/* SPDX-License-Identifier: MIT */
/*
 * Permission to hold up writers
 *
 * arena-move.c needs a userfaultfd that write-protects memfds, which old kernels, seccomp filters
 * and security modules do not let a process have. A connection finds out when it is made: fixed
 * arenas that cannot move cannot be restored, so it then does not re-attach.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libclient/private.h"

/* Write the sentence for a kernel that cannot hold up writers. Return: -EOPNOTSUPP. */
static int not_offered(struct rbk_error *error, const char *reason)
{
	return client_error(error, -EOPNOTSUPP,
			    "cannot move an arena while threads may write it: %s", reason);
}

/* Write the sentence for errno @r of userfaultfd(). Return: @r or -EOPNOTSUPP. */
static int fault_fd_error(int r, struct rbk_error *error)
{
	switch (r) {
	case -ENOSYS:
		return not_offered(error, "the kernel has no userfaultfd (CONFIG_USERFAULTFD), or "
					  "a seccomp filter hides it");
	case -EPERM:
	case -EACCES:
		return not_offered(error,
				   "a seccomp filter or a security module forbids userfaultfd");
	case -EINVAL: /* Linux before 5.11 does not know UFFD_USER_MODE_ONLY */
		return not_offered(error, "userfaultfd cannot write-protect shared memory "
					  "(Linux 5.19 and later can)");
	default:
		return client_error(error, r, "cannot make a userfaultfd: %m");
	}
}

int client_fault_fd_new(int *ret_fd, struct rbk_error *error)
{
	client_cleanup(client_close) int fd = -1;
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
	};

	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == EPERM)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	/* The kernel refuses features that it does not know with EINVAL. */
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
		return fault_fd_error(-errno, error);
	*ret_fd = fd;
	fd = -1;
	return 0;
}

bool client_may_hold_up_writers(void)
{
	client_cleanup(client_close) int fd = -1;

	return client_fault_fd_new(&fd, NULL) == 0;
}
