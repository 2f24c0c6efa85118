#pragma once
/* SPDX-License-Identifier: MIT */
/* Threads: how those beside the reactor begin, and in what pieces one gets a processor. */
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
 * privilege. Threads that it starts later inherit it.
 * Linux 6.12 or later. Return: 0; THREAD_E_NO_SLICES, nothing was changed; negative errno: -EPERM
 * or -ENOSYS where a container forbids it.
 */
int thread_set_slice(uint64_t slice_ns);
