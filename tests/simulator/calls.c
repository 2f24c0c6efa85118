/* SPDX-License-Identifier: MIT */
/*
 * Calls to the kernel, as simulated processes make them
 *
 * The linker sends calls of functions below to __wrap_ here (--wrap). Each is a step. Most then
 * reach the kernel, which never waits: a call that would is turned into a wait of the simulated
 * thread. Every descriptor and mapping is noted, so that it ends with its process.
 *
 * A call fails now and then if the options say so, with an error that a full system gives.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "libclient/private.h"
#include "simulator/machine.h"
#include "simulator/real.h"

/* Declare the replacement of a function, and the function itself. */
#define CALL(type, name, ...)            \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

static int fail(int error)
{
	errno = error;
	return -1;
}

/* A step that may fail: true if the call shall fail, with @error. */
static bool step_fails(int error)
{
	sim_call();
	if (!sim_call_fails())
		return false;
	sim_trace("a call fails: %s", strerror(error));
	errno = error;
	return true;
}

/* --- Descriptors --- */

CALL(int, close, int fd)
{
	sim_call();
	sim_check_unused(fd);
	sim_disown_fd(fd);
	sim_touched();
	return sim_close(fd);
}

CALL(int, socket, int domain, int type, int protocol)
{
	return step_fails(EMFILE) ? -1 : sim_own_fd(__real_socket(domain, type, protocol));
}

CALL(int, socketpair, int domain, int type, int protocol, int fds[2])
{
	int r = step_fails(EMFILE) ? -1 : __real_socketpair(domain, type, protocol, fds);

	if (r == 0) {
		sim_own_fd(fds[0]);
		sim_own_fd(fds[1]);
	}
	return r;
}

CALL(int, accept4, int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
	sim_touched();
	return step_fails(EMFILE) ? -1 : sim_own_fd(__real_accept4(fd, address, bytes, flags));
}

CALL(int, eventfd, unsigned int count, int flags)
{
	return step_fails(EMFILE) ? -1 : sim_own_fd(__real_eventfd(count, flags));
}

CALL(int, memfd_create, const char *name, unsigned int flags)
{
	return step_fails(ENFILE) ? -1 : sim_own_fd(__real_memfd_create(name, flags));
}

CALL(int, epoll_create1, int flags)
{
	return step_fails(EMFILE) ? -1 : sim_own_fd(__real_epoll_create1(flags));
}

/*
 * Instances of inotify. The kernel needs ten milliseconds to close one, in which it could run
 * thousands of steps. So an instance stays, without watches, for the next that asks.
 */
static struct instance {
	int fd;        /* the instance; 0: none yet */
	int own_fd;    /* its copy that a process has; 0: it is free */
	int last_wd;   /* of the last watch */
	int n_watches; /* added since the process has it; their numbers increase */
} instances[16] __attribute__((__section__("sim_variables")));

static struct instance *instance_of(int own_fd)
{
	for (unsigned int i = 0; i < sizeof(instances) / sizeof(*instances); i++)
		if (instances[i].own_fd == own_fd)
			return &instances[i];
	return NULL;
}

int __real_fcntl64(int fd, int command, unsigned long arg);
int __real_inotify_init1(int flags);
int __wrap_inotify_init1(int flags);
int __wrap_inotify_init1(int flags)
{
	struct instance *instance = instance_of(0);
	int fd;

	if (step_fails(EMFILE))
		return -1;
	sim_check(instance);
	if (instance->fd == 0) {
		fd = __real_inotify_init1(flags);
		if (fd < 0)
			return -1;
		/* Processes get the lowest numbers. */
		instance->fd = __real_fcntl64(fd, F_DUPFD_CLOEXEC, 500);
		__real_close(fd);
		sim_check(instance->fd > 0);
	}
	instance->own_fd = __real_fcntl64(instance->fd, F_DUPFD_CLOEXEC, 0);
	return sim_own_fd(instance->own_fd);
}

CALL(int, inotify_add_watch, int fd, const char *path, uint32_t mask)
{
	struct instance *instance = instance_of(fd);
	int wd = __real_inotify_add_watch(fd, path, mask);

	sim_check(instance);
	if (wd < 0)
		return -1;
	instance->last_wd = wd;
	instance->n_watches++;
	return wd;
}

int sim_close(int fd)
{
	struct instance *instance = fd > 0 ? instance_of(fd) : NULL;
	char bytes[4096];

	for (; instance && instance->n_watches > 0; instance->n_watches--)
		inotify_rm_watch(fd, instance->last_wd - instance->n_watches + 1);
	while (instance && __real_read(fd, bytes, sizeof(bytes)) > 0)
		;
	if (instance)
		instance->own_fd = 0;
	return __real_close(fd);
}

CALL(int, dup3, int from, int to, int flags)
{
	sim_call();
	sim_check_unused(to);
	return sim_own_fd(__real_dup3(from, to, flags));
}

int __real_open64(const char *path, int flags, mode_t mode);
int __wrap_open64(const char *path, int flags, mode_t mode);
int __wrap_open64(const char *path, int flags, mode_t mode)
{
	return step_fails(EMFILE) ? -1 : sim_own_fd(__real_open64(path, flags, mode));
}

int __real_openat64(int at, const char *path, int flags, mode_t mode);
int __wrap_openat64(int at, const char *path, int flags, mode_t mode);
int __wrap_openat64(int at, const char *path, int flags, mode_t mode)
{
	return step_fails(EMFILE) ? -1 : sim_own_fd(__real_openat64(at, path, flags, mode));
}

int __real_fcntl64(int fd, int command, unsigned long arg);
int __wrap_fcntl64(int fd, int command, unsigned long arg);
int __wrap_fcntl64(int fd, int command, unsigned long arg)
{
	if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
		return step_fails(EMFILE) ? -1 : sim_own_fd(__real_fcntl64(fd, command, arg));
	sim_call();
	/* Only arenas get this seal alone. */
	if (command == F_ADD_SEALS && arg == F_SEAL_FUTURE_WRITE && sim_seal_fails())
		return fail(EINVAL);
	return __real_fcntl64(fd, command, arg);
}

/* --- Waiting for descriptors --- */

static uint64_t until_ns(const struct timespec *timeout)
{
	if (!timeout)
		return SIM_NEVER;
	return sim_now_ns() + (uint64_t)timeout->tv_sec * 1000000000u + (uint64_t)timeout->tv_nsec;
}

static int poll_until(struct pollfd *fds, nfds_t n, uint64_t deadline_ns)
{
	int r;

	while ((r = __real_poll(fds, n, 0)) == 0) {
		if (deadline_ns <= sim_now_ns())
			return 0;
		/* A signal ends the wait. */
		if (sim_call_fails())
			return fail(EINTR);
		sim_wait(fds, (unsigned int)n, NULL, deadline_ns);
	}
	return r;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	sim_call();
	if (timeout_ms == 0)
		return __real_poll(fds, n, 0);
	return poll_until(fds, n,
			  timeout_ms < 0 ? SIM_NEVER
					 : sim_now_ns() + (uint64_t)timeout_ms * 1000000u);
}

CALL(int, ppoll, struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	int r;

	sim_use_fd(n > 0 ? fds[0].fd : -1);
	sim_call();
	r = poll_until(fds, n, until_ns(timeout));
	sim_use_fd(-1);
	return r;
}

/*
 * Wait until a socket is ready, where a call without MSG_DONTWAIT would.
 * Return: false with errno if the socket's timeout has passed.
 */
static bool await_socket(int fd, int flags, short events, uint64_t *deadline_ns)
{
	struct pollfd poll_fd = {.fd = fd, .events = events};
	struct timeval timeout = {.tv_sec = 0};
	socklen_t bytes = sizeof(timeout);
	int r;

	if (flags & MSG_DONTWAIT || __real_fcntl64(fd, F_GETFL, 0) & O_NONBLOCK) {
		errno = EAGAIN;
		return false;
	}
	if (*deadline_ns == 0) {
		getsockopt(fd, SOL_SOCKET, events & POLLIN ? SO_RCVTIMEO : SO_SNDTIMEO, &timeout,
			   &bytes);
		*deadline_ns = timeout.tv_sec == 0 && timeout.tv_usec == 0
				       ? SIM_NEVER
				       : sim_now_ns() + (uint64_t)timeout.tv_sec * 1000000000u +
						 (uint64_t)timeout.tv_usec * 1000u;
	}
	r = poll_until(&poll_fd, 1, *deadline_ns);
	if (r == 0)
		errno = EAGAIN;
	return r > 0;
}

static void own_received(struct msghdr *message)
{
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(message); cmsg;
	     cmsg = CMSG_NXTHDR(message, cmsg)) {
		const int *fds = (const int *)CMSG_DATA(cmsg);
		size_t n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS)
			for (size_t i = 0; i < n; i++)
				sim_own_fd(fds[i]);
	}
}

/* Trace a message between the library and the broker by the number of its type in shm/wire.h. */
static void trace_message(const char *what, int fd, const struct msghdr *message, ssize_t n)
{
	const uint32_t *words = message->msg_iovlen > 0 ? message->msg_iov[0].iov_base : NULL;

	if (sim_is_verbose() && n >= 8 && words && message->msg_iov[0].iov_len >= 12)
		sim_trace("%s %d: type %u, cookie %u, then %d; %zd bytes", what, fd, words[0],
			  words[1], (int)words[2], n);
}

CALL(ssize_t, recvmsg, int fd, struct msghdr *message, int flags)
{
	uint64_t deadline_ns = 0;
	ssize_t n;

	sim_use_fd(fd);
	sim_call();
	do {
		n = __real_recvmsg(fd, message, flags | MSG_DONTWAIT);
	} while (n < 0 && errno == EAGAIN && await_socket(fd, flags, POLLIN, &deadline_ns));
	sim_use_fd(-1);
	if (n >= 0)
		own_received(message);
	if (!(flags & MSG_PEEK))
		trace_message("receives from", fd, message, n);
	sim_touched();
	if (n > 0)
		sim_message();
	return n;
}

CALL(ssize_t, recv, int fd, void *bytes, size_t size, int flags)
{
	uint64_t deadline_ns = 0;
	ssize_t n;

	sim_call();
	do {
		n = __real_recv(fd, bytes, size, flags | MSG_DONTWAIT);
	} while (n < 0 && errno == EAGAIN && await_socket(fd, flags, POLLIN, &deadline_ns));
	sim_touched();
	return n;
}

CALL(ssize_t, sendmsg, int fd, const struct msghdr *message, int flags)
{
	uint64_t deadline_ns = 0;
	ssize_t n = -1;
	bool fails;

	sim_use_fd(fd);
	fails = step_fails(ENOBUFS);
	while (!fails && (n = __real_sendmsg(fd, message, flags | MSG_DONTWAIT)) < 0 &&
	       errno == EAGAIN && await_socket(fd, flags, POLLOUT, &deadline_ns))
		;
	sim_use_fd(-1);
	if (fails)
		return -1;
	trace_message("sends to", fd, message, n);
	sim_touched();
	if (n > 0)
		sim_message();
	return n;
}

CALL(ssize_t, send, int fd, const void *bytes, size_t size, int flags)
{
	uint64_t deadline_ns = 0;
	ssize_t n;

	if (step_fails(ENOBUFS))
		return -1;
	do {
		n = __real_send(fd, bytes, size, flags | MSG_DONTWAIT);
	} while (n < 0 && errno == EAGAIN && await_socket(fd, flags, POLLOUT, &deadline_ns));
	/* Messages are sent with sendmsg(). */
	sim_rings();
	sim_touched();
	return n;
}

CALL(ssize_t, read, int fd, void *bytes, size_t size)
{
	sim_call();
	sim_touched();
	return __real_read(fd, bytes, size);
}

CALL(ssize_t, write, int fd, const void *bytes, size_t size)
{
	if (fd == STDERR_FILENO) {
		/* Lines of the log, each with its line feed */
		if (size > 0)
			sim_trace("log: %.*s", (int)size - 1, (const char *)bytes);
		return (ssize_t)size;
	}
	sim_call();
	sim_touched();
	return __real_write(fd, bytes, size);
}

CALL(int, eventfd_write, int fd, eventfd_t count)
{
	sim_call();
	sim_touched();
	return __real_eventfd_write(fd, count);
}

CALL(int, shutdown, int fd, int how)
{
	sim_call();
	sim_touched();
	return __real_shutdown(fd, how);
}

/* A client's socket gets a name that tells the broker's identification which process it is. */
CALL(int, connect, int fd, const struct sockaddr *address, socklen_t bytes)
{
	struct sockaddr_un own = {.sun_family = AF_UNIX};
	const int flags = __real_fcntl64(fd, F_GETFL, 0);
	int r, n;

	sim_call();
	n = snprintf(own.sun_path + 1, sizeof(own.sun_path) - 1, "faultsim-%d-%u-%llu",
		     (int)__real_getpid(), sim_process(), (unsigned long long)sim_n_steps());
	bind(fd, (const struct sockaddr *)&own,
	     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n));
	__real_fcntl64(fd, F_SETFL, (unsigned long)(flags | O_NONBLOCK));
	/* A full queue of connections */
	while ((r = __real_connect(fd, address, bytes)) < 0 && errno == EAGAIN)
		sim_wait(NULL, 0, NULL, sim_now_ns() + 1000000);
	n = errno;
	__real_fcntl64(fd, F_SETFL, (unsigned long)flags);
	sim_touched();
	errno = n;
	return r;
}

/* --- Mappings --- */

CALL(void *, mmap64, void *base, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	void *mapped = step_fails(ENOMEM)
			       ? MAP_FAILED
			       : __real_mmap64(base, bytes, protection, flags, fd, offset);

	if (mapped != MAP_FAILED)
		sim_own_mapping(mapped, bytes);
	if (fd >= 0)
		sim_trace("maps descriptor %d at %p, for writing: %d", fd, mapped,
			  (protection & PROT_WRITE && flags & MAP_SHARED) > 0);
	return mapped;
}

CALL(int, munmap, void *base, size_t bytes)
{
	sim_call();
	sim_disown_mapping(base, bytes);
	return __real_munmap(base, bytes);
}

CALL(int, ftruncate64, int fd, off_t bytes)
{
	return step_fails(ENOMEM) ? -1 : __real_ftruncate64(fd, bytes);
}

/* --- What differs from run to run --- */

CALL(ssize_t, getrandom, void *bytes, size_t size, unsigned int flags)
{
	for (size_t i = 0; i < size; i++)
		((uint8_t *)bytes)[i] = (uint8_t)sim_random();
	return (ssize_t)size;
}

CALL(int, sched_getcpu, void)
{
	return (int)sim_processor();
}

CALL(int, sched_getaffinity, pid_t pid, size_t bytes, cpu_set_t *ret)
{
	CPU_ZERO(ret);
	for (unsigned int i = 0; i < sim_n_processors(); i++)
		CPU_SET(i, ret);
	return 0;
}

CALL(pid_t, getpid, void)
{
	return (pid_t)(100000 + sim_process());
}

/* Number inodes in the order in which they are first seen. */
static ino_t number_inode(ino_t inode)
{
	enum { MAX_INODES = 1 << 20 };
	static struct {
		ino_t inode, number;
	} * seen __attribute__((__section__("sim_variables")));
	static ino_t n_seen __attribute__((__section__("sim_variables")));
	size_t at = (inode * 0x9e3779b97f4a7c15u >> 40) % MAX_INODES;

	if (!seen)
		seen = __real_mmap64(NULL, MAX_INODES * sizeof(*seen), PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	while (seen[at].inode != 0 && seen[at].inode != inode)
		at = (at + 1) % MAX_INODES;
	if (seen[at].inode == 0) {
		seen[at].inode = inode;
		seen[at].number = ++n_seen;
		sim_check(n_seen < MAX_INODES / 2);
	}
	return seen[at].number;
}

CALL(int, fstat64, int fd, struct stat *ret)
{
	int r;

	sim_call();
	r = __real_fstat64(fd, ret);
	if (r == 0)
		ret->st_ino = number_inode(ret->st_ino);
	return r;
}

/* Files of which the broker need not have all pages */
enum { LARGE_BYTES = 512 << 10 };

CALL(int, fallocate64, int fd, int mode, off_t offset, off_t bytes)
{
	struct stat status;

	if (step_fails(ENOSPC))
		return -1;
	/*
	 * The broker's statistics, of which hardly any page is used in a life of a millisecond: the
	 * kernel would clear them all.
	 */
	if (sim_process() == SIM_BROKER && mode == 0 && bytes >= LARGE_BYTES &&
	    __real_fstat64(fd, &status) == 0)
		return status.st_size >= offset + bytes ? 0
							: __real_ftruncate64(fd, offset + bytes);
	return __real_fallocate64(fd, mode, offset, bytes);
}

/* --- userfaultfd: no other thread runs during a move --- */

int client_fault_fd_new(int *ret_fd, struct rbk_error *error)
{
	int fd = __wrap_eventfd(0, EFD_CLOEXEC);

	if (fd < 0)
		return client_error(error, -errno, "cannot make a userfaultfd: %m");
	*ret_fd = fd;
	return 0;
}

bool client_may_hold_up_writers(void)
{
	return true;
}

int __real_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	if (_IOC_TYPE(request) != UFFDIO)
		return fail(ENOTTY);
	/* Writers wait between the protection and its end. */
	if (request == UFFDIO_WRITEPROTECT)
		sim_calm_begin();
	else if (request == UFFDIO_UNREGISTER)
		sim_calm_end();
	return 0;
}
