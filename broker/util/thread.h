#pragma once
/* SPDX-License-Identifier: MIT */
/* Threads: how those beside the reactor begin, and how the scheduler treats one. */
#include <pthread.h>
#include <stdint.h>

enum { THREAD_NAME_BYTES = 16 }; /* of a thread's name, with the NUL; the kernel's limit */

enum {
	THREAD_E_NO_SLICES =
		1, /* the kernel's are all alike, or this thread is scheduled otherwise */
};

/*
 * Starts a thread called @name, cut to THREAD_NAME_BYTES, with all signals blocked but those that a
 * fault of its own raises: the former are the reactor's, the latter must reach the handler.
 * Any thread. Return: 0; -EAGAIN, no more threads; other negative errno.
 */
int thread_start(pthread_t *thread, const char *name, void *(*main)(void *data), void *data);

/*
 * Asks the scheduler to give the calling thread the processor in slices of @slice_ns, which it cuts
 * to what it allows: 0.1 to 100 ms. A thread with shorter slices than whoever runs does not wait
 * for the end of theirs when it wakes up, and still gets no more than its share: so this needs no
 * privilege. Threads that it starts later do not inherit it.
 * Linux 6.12 or later. Return: 0; THREAD_E_NO_SLICES, nothing was changed; negative errno: -EPERM
 * or -ENOSYS where a container forbids it.
 */
int thread_set_slice(uint64_t slice_ns);

/*
 * Sets the nice level of the calling thread alone: from -20, whose share of a processor is the
 * largest, to 19. Threads that it starts later begin at 0 if this one is below that.
 * Return: 0, also where the thread is scheduled by another policy, which knows no nice level;
 * -EPERM: neither RLIMIT_NICE nor CAP_SYS_NICE allows a level as low as that, or a container
 * forbids it; other negative errno.
 */
int thread_set_nice(int nice);

/* Return: the nice level of the calling thread; 0 where the kernel does not say. */
int thread_nice(void);

/* In a loop that waits for another thread: leaves the processor to its sibling for a moment. */
static inline void thread_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}
