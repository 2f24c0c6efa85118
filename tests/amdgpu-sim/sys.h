#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * System calls that bypass the interposed functions of libc; otherwise the simulator would call
 * itself.
 * Return: the kernel's result, a negative errno for failure; errno is unchanged.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SYS_CALL(...)                                    \
	({                                               \
		int sys_errno_ = errno;                  \
		long sys_result_ = syscall(__VA_ARGS__); \
		if (sys_result_ == -1) {                 \
			sys_result_ = -errno;            \
			errno = sys_errno_;              \
		}                                        \
		sys_result_;                             \
	})

static inline int sys_openat(int folder, const char *path, int flags, unsigned mode)
{
	return (int)SYS_CALL(SYS_openat, folder, path, flags, mode);
}

static inline int sys_open(const char *path, int flags)
{
	return sys_openat(AT_FDCWD, path, flags, 0);
}

static inline int sys_fstatat(int folder, const char *path, struct stat *ret, int flags)
{
	return (int)SYS_CALL(SYS_newfstatat, folder, path, ret, flags);
}

static inline int sys_fstat(int fd, struct stat *ret)
{
	return sys_fstatat(fd, "", ret, AT_EMPTY_PATH);
}

static inline ssize_t sys_readlinkat(int folder, const char *path, char *buffer, size_t n)
{
	return SYS_CALL(SYS_readlinkat, folder, path, buffer, n);
}

static inline ssize_t sys_read(int fd, void *buffer, size_t n)
{
	return SYS_CALL(SYS_read, fd, buffer, n);
}

static inline int sys_kill(pid_t pid, int number)
{
	return (int)SYS_CALL(SYS_kill, pid, number);
}

static inline off_t sys_lseek(int fd, off_t offset, int whence)
{
	return SYS_CALL(SYS_lseek, fd, offset, whence);
}

/* Return the address, or a negative errno as a pointer. */
static inline void *sys_mmap(void *at, size_t n, int access, int flags, int fd, off_t offset)
{
	return (void *)SYS_CALL(SYS_mmap, at, n, access, flags, fd, offset);
}

/* Sleep while *@word is @value; shared between processes. @timeout: relative, or NULL. */
static inline int sys_futex_wait(uint32_t *word, uint32_t value, const struct timespec *timeout)
{
	return (int)SYS_CALL(SYS_futex, word, FUTEX_WAIT, value, timeout, NULL, 0);
}

static inline void sys_futex_wake(uint32_t *word)
{
	(void)SYS_CALL(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
