/* SPDX-License-Identifier: MIT */
/* See thread.h. */
#include "util/thread.h"

#include <signal.h>
#include <stdio.h>

#include "util/error.h"

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
