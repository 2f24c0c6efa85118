#pragma once
/* SPDX-License-Identifier: MIT */
/* Calls that the linker replaces, as the simulator itself makes them: they reach the kernel. */
#include <poll.h>
#include <sys/types.h>

struct timespec;
int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __real_close(int fd);
void *__real_mmap64(void *base, size_t bytes, int protection, int flags, int fd, off_t offset);
pid_t __real_getpid(void);
int __real_munmap(void *base, size_t bytes);
ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __real_write(int fd, const void *bytes, size_t size);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

/* Close a descriptor of a simulated process. Return: as close(). */
int sim_close(int fd);
