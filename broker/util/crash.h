#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Crashes: which task a thread computed when the program crashed
 *
 * A crash is SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT of the program's own making, or the
 * service manager's SIGABRT. Other signals that kill() sends are no crash.
 */
#include <stdbool.h>

struct crash_thread {
	const void *task; /* what the thread works on, as crash_fn knows it; NULL: nothing */
	bool is_own;      /* computes tasks only as ->task; false: a driver's thread, for example */
};

/* Access takes no call: the model of thread-local storage is that of a program's own variables. */
extern _Thread_local struct crash_thread crash_thread __attribute__((tls_model("initial-exec")));

/*
 * Note that the thread computes @task from now on; NULL: none. Return: what it computed before, to
 * which the caller returns.
 */
static inline const void *crash_enter(const void *task)
{
	const void *outer = crash_thread.task;

	crash_thread.task = task;
	return outer;
}

/* Called in a crash, by the thread that crashes: async-signal-safe. @task: NULL: not known. */
typedef void crash_fn(void *context, const void *task);

/* Have @blame called in crashes from now on; NULL: nothing. */
void crash_watch(crash_fn *blame, void *context);

/*
 * Catch crashes. The signals do afterwards what they did before. Call it once, before any thread
 * starts. Return: 0; a negative errno.
 */
int crash_init(void);

/* Call what crash_watch() has set, in another handler of a deadly signal. */
void crash_note(void);
