#pragma once
/* SPDX-License-Identifier: MIT */
/* Threads: starting those beside the reactor, and their scheduling. */
#include <pthread.h>
#include <stdint.h>

enum { THREAD_NAME_BYTES = 16 }; /* bytes of a name, with the NUL; the kernel's limit */

enum {
	/* the kernel's slices are fixed, or the thread has another policy */
	THREAD_E_NO_SLICES = 1,
	/* the thread may use a single processor */
	THREAD_E_NO_OTHER = 2,
};

/*
 * Start a thread that calls itself @name, cut to THREAD_NAME_BYTES, which also decides which system
 * calls it may make (util/sandbox.h). All signals are blocked except those that its own faults
 * raise: the reactor handles the former, and the latter must reach the handler. Any thread.
 * Return: 0; -EAGAIN, no more threads; -ENOMEM; other negative errno.
 */
int thread_start(pthread_t *thread, const char *name, void *(*main)(void *data), void *data);

/*
 * Ask the scheduler to run the calling thread in slices of @slice_ns, which it clamps to 0.1 to 100
 * ms. When a thread with shorter slices than the running thread wakes up, it does not wait for the
 * end of that thread's slice. It still gets no more than its share, so this needs no privilege.
 * Threads that it starts later do not inherit the slice. Linux 6.12 or later.
 * Return: 0; THREAD_E_NO_SLICES, nothing was changed; negative errno: -EPERM or -ENOSYS if a
 * container forbids it.
 */
int thread_set_slice(uint64_t slice_ns);

/*
 * Set the nice level of the calling thread alone: from -20, with the largest share of a processor,
 * to 19. Threads that it starts later begin at 0 if its level is below 0.
 * Return: 0, also if the thread has a scheduling policy without nice levels; -EPERM: neither
 * RLIMIT_NICE nor CAP_SYS_NICE allows a level that low, or a container forbids it; other negative
 * errno.
 */
int thread_set_nice(int nice);

/*
 * Move the calling thread to another processor of those that it may use. The thread may return to
 * the processor that it leaves. Takes some 10 us.
 * Return: 0; THREAD_E_NO_OTHER, it may use no other processor; negative errno.
 */
int thread_leave_processor(void);

/*
 * Sleep for at least @ns, below a second. Other threads run meanwhile that wait for this one's
 * processor, whatever their nice levels, and the kernel may wake this one on another one. It may
 * add the thread's timer slack, 50 us by default. Any thread.
 */
void thread_nap(uint32_t ns);

/* Return the nice level of the calling thread; 0 if the kernel does not report it. */
int thread_nice(void);

/*
 * Execute a full fence here, and one on each processor that runs a process which has registered
 * with MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, before this returns. Takes 0.2 us if none runs,
 * otherwise 1 to 15 us in a virtual machine. Any thread.
 * Return: 0; negative errno: -ENOSYS, -EINVAL or -EPERM where the kernel or a container has no such
 * call; -ENOMEM.
 */
int thread_fence_others(void);

/* Yield to the processor's sibling for a moment, in a loop that waits for another thread. */
static inline void thread_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}
