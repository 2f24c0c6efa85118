/* SPDX-License-Identifier: MIT */
/*
 * Threads: see thread.h.
 *
 * Kernels before 6.12 accept a slice and ignore it. They report a slice of 0, while later kernels
 * always report a slice.
 */
#include "util/thread.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "util/error.h"
#include "util/log.h"
#include "util/sandbox.h"

/* From linux/sched.h, which cannot be included together with sched.h. */
#ifndef SCHED_FLAG_RESET_ON_FORK
#define SCHED_FLAG_RESET_ON_FORK 0x01
#endif

/* The kernel's struct sched_attr, version 1, which glibc before 2.41 does not declare. */
struct thread_attr {
	uint32_t bytes;
	uint32_t policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t slice_ns; /* the runtime if the policy is SCHED_DEADLINE */
	uint64_t deadline_ns;
	uint64_t period_ns;
};

/* The properties of a new thread, which it takes over and frees */
struct beginning {
	char name[THREAD_NAME_BYTES];
	void *(*main)(void *data);
	void *data;
};

/* Name the thread, which its creator may not do: that takes a file of /proc. */
static void *begin(void *data)
{
	const struct beginning beginning = *(struct beginning *)data;

	free(data);
	pthread_setname_np(pthread_self(), beginning.name);
	if (sandbox_enter(beginning.name))
		log_warning(LOG_SANDBOX, "thread %s has no filter of system calls of its own",
			    beginning.name);
	return beginning.main(beginning.data);
}

int thread_start(pthread_t *thread, const char *name, void *(*main)(void *data), void *data)
{
	struct beginning *beginning = malloc(sizeof(*beginning));
	sigset_t blocked, old;
	int r;

	if (!beginning)
		return error_origin(-ENOMEM);
	beginning->main = main;
	beginning->data = data;
	snprintf(beginning->name, sizeof(beginning->name), "%s", name);

	/* The new thread inherits the mask. */
	sigfillset(&blocked);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGSEGV);
	sigdelset(&blocked, SIGILL);
	sigdelset(&blocked, SIGFPE);
	sigdelset(&blocked, SIGABRT);
	sigdelset(&blocked, SIGTRAP);
	sigdelset(&blocked, SIGSYS);
	pthread_sigmask(SIG_SETMASK, &blocked, &old);
	r = pthread_create(thread, NULL, begin, beginning);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		free(beginning);
		return error_origin(-r);
	}
	return 0;
}

static int get_attr(struct thread_attr *ret)
{
	*ret = (struct thread_attr){.bytes = sizeof(*ret)};
	return syscall(SYS_sched_getattr, 0, ret, sizeof(*ret), 0) < 0 ? error_origin(-errno) : 0;
}

/*
 * Apply attributes that get_attr() has read and the caller has changed. Threads started later do
 * not inherit them: a thread that starts others does little work at a time, and they do much.
 * Return: 0; negative errno.
 */
static int set_attr(struct thread_attr *attr)
{
	attr->flags |= SCHED_FLAG_RESET_ON_FORK;
	return syscall(SYS_sched_setattr, 0, attr, 0) < 0 ? error_origin(-errno) : 0;
}

static bool has_nice(const struct thread_attr *attr)
{
	return attr->policy == SCHED_OTHER || attr->policy == SCHED_BATCH;
}

int thread_set_slice(uint64_t slice_ns)
{
	struct thread_attr attr;
	int r = get_attr(&attr);

	if (r)
		return error_fold(r);
	if (!has_nice(&attr) || attr.slice_ns == 0)
		return THREAD_E_NO_SLICES;
	attr.slice_ns = slice_ns;
	return set_attr(&attr);
}

int thread_set_nice(int nice)
{
	struct thread_attr attr;
	int r = get_attr(&attr);

	if (r)
		return error_fold(r);
	if (!has_nice(&attr))
		return 0;
	attr.nice = nice;
	return set_attr(&attr);
}

int thread_nice(void)
{
	struct thread_attr attr;

	return get_attr(&attr) == 0 && has_nice(&attr) ? attr.nice : 0;
}

int thread_leave_processor(void)
{
	const int processor = sched_getcpu();
	cpu_set_t all, others;

	if (processor < 0 || sched_getaffinity(0, sizeof(all), &all) < 0)
		return error_origin(-errno);
	others = all;
	CPU_CLR(processor, &others);
	if (CPU_COUNT(&others) == 0)
		return THREAD_E_NO_OTHER;
	/* The kernel migrates the thread before the call returns. */
	if (sched_setaffinity(0, sizeof(others), &others) < 0)
		return error_origin(-errno);
	return sched_setaffinity(0, sizeof(all), &all) < 0 ? error_origin(-errno) : 0;
}

void thread_nap(uint32_t ns)
{
	const struct timespec nap = {.tv_nsec = (long)ns};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
}

int thread_fence_others(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) < 0 ? -errno : 0;
}
