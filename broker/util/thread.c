/* SPDX-License-Identifier: MIT */
/*
 * See thread.h.
 *
 * Kernels before 6.12 take a slice and ignore it; that they report none, where later ones always
 * report one, is how to tell.
 */
#include "util/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/error.h"

/* The kernel's struct sched_attr in its first version, which glibc before 2.41 does not declare. */
struct thread_attr {
	uint32_t bytes;
	uint32_t policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t slice_ns; /* of SCHED_DEADLINE another thing */
	uint64_t deadline_ns;
	uint64_t period_ns;
};

int thread_start(pthread_t *thread, const char *name, void *(*main)(void *data), void *data)
{
	char cut[THREAD_NAME_BYTES];
	sigset_t blocked, old;
	int r;

	/* The new thread inherits the mask. */
	sigfillset(&blocked);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGSEGV);
	sigdelset(&blocked, SIGILL);
	sigdelset(&blocked, SIGFPE);
	sigdelset(&blocked, SIGABRT);
	sigdelset(&blocked, SIGTRAP);
	pthread_sigmask(SIG_SETMASK, &blocked, &old);
	r = pthread_create(thread, NULL, main, data);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r)
		return error_origin(-r);
	snprintf(cut, sizeof(cut), "%s", name);
	pthread_setname_np(*thread, cut);
	return 0;
}

int thread_set_slice(uint64_t slice_ns)
{
	struct thread_attr attr = {.bytes = sizeof(attr)};

	/* Nice level and policy stay what they are. */
	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) < 0)
		return error_origin(-errno);
	if ((attr.policy != SCHED_OTHER && attr.policy != SCHED_BATCH) || attr.slice_ns == 0)
		return THREAD_E_NO_SLICES;
	attr.slice_ns = slice_ns;
	if (syscall(SYS_sched_setattr, 0, &attr, 0) < 0)
		return error_origin(-errno);
	return 0;
}
