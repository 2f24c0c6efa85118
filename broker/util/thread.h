#pragma once
/* SPDX-License-Identifier: MIT */
/* Threads beside the reactor. */
#include <pthread.h>

enum { THREAD_NAME_BYTES = 16 }; /* of a thread's name, with the NUL; the kernel's limit */

/*
 * Starts a thread called @name, cut to THREAD_NAME_BYTES, with all signals blocked but those that a
 * fault of its own raises: the former are the reactor's, the latter must reach the handler.
 * Any thread. Return: 0; -EAGAIN, no more threads; other negative errno.
 */
int thread_start(pthread_t *thread, const char *name, void *(*main)(void *data), void *data);
