#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The sandbox: which system calls a thread may make
 *
 * A thread's name decides which calls it may make: sandbox-calls.h lists them. A call that it may
 * not make fails with EPERM, or with ENOSYS if the call is so new that the C library expects
 * kernels without it, and is reported once for each kind of thread.
 */
#include <stdbool.h>
#include <stdint.h>

enum {
	SANDBOX_E_LACKING = 1,   /* the kernel, or the container, has no filters */
	SANDBOX_E_BUILD = 2,     /* this build has none, because of the processor */
	SANDBOX_E_SANITIZED = 3, /* this build has none, because of a sanitizer */
};

enum sandbox_mode {
	SANDBOX_ON,
	SANDBOX_LOG, /* report the calls, and let them happen */
	SANDBOX_OFF,
};

/* A call that was refused, or in mode SANDBOX_LOG would have been. Texts are constants. */
struct sandbox_refusal {
	const char *thread; /* kind of thread, as in "setup threads (rb-setup)" */
	const char *call;   /* NULL: a call that this program was built without knowing */
	int number;
	int error; /* errno of the call; 0: it happened */
};

/*
 * Switch the sandbox on; before, sandbox_enter() does nothing. Call it once, before the threads
 * that are to be filtered start. *ret_fd: a descriptor of the sandbox that becomes readable when
 * sandbox_take() has something, or a thread's filter was refused; -1 if there is no sandbox.
 * Return: 0; SANDBOX_E_*, without a sandbox; a negative errno.
 */
int sandbox_init(enum sandbox_mode mode, int *ret_fd);

/*
 * Take from the calling thread, and from threads that it starts later, the calls that threads
 * called @thread do not need. Cannot be undone. A name that sandbox-calls.h does not have changes
 * nothing. Any thread.
 * Return: 0; negative errno: the thread has the filters that it had before.
 */
int sandbox_enter(const char *thread);

/* Return true once the kernel has refused the filter of a thread. Any thread. */
bool sandbox_is_incomplete(void);

/*
 * Take the next refusal that was not taken before, and reset the descriptor when there is none.
 * Thread of sandbox_init(). Return: true with *ret.
 */
bool sandbox_take(struct sandbox_refusal *ret);
