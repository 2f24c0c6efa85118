/* SPDX-License-Identifier: MIT */
/* The steward: one order at a time, whose giver waits. */
#include "daemon/steward.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "util/cleanup.h"
#include "util/crash.h"
#include "util/error.h"
#include "util/thread.h"

struct steward {
	pthread_t thread;
	pthread_mutex_t mutex; /* held while there is an order */
	sem_t given, done;
	void (*fn)(void *context); /* NULL: end */
	void *context;
};

static void await(sem_t *semaphore)
{
	while (sem_wait(semaphore) < 0 && errno == EINTR)
		;
}

static void *steward_main(void *data)
{
	struct steward *steward = data;

	crash_thread.is_own = true;
	for (;;) {
		await(&steward->given);
		if (!steward->fn)
			return NULL;
		steward->fn(steward->context);
		sem_post(&steward->done);
	}
}

int steward_new(struct steward **ret)
{
	_cleanup_(freep) struct steward *steward = calloc(1, sizeof(*steward));
	int r;

	if (!steward)
		return error_origin(-ENOMEM);
	/* With default attributes these calls only set memory and cannot fail. */
	pthread_mutex_init(&steward->mutex, NULL);
	sem_init(&steward->given, 0, 0);
	sem_init(&steward->done, 0, 0);
	r = thread_start(&steward->thread, "rb-steward", steward_main, steward);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(steward);
	return 0;
}

struct steward *steward_free(struct steward *steward)
{
	if (!steward)
		return NULL;
	steward->fn = NULL;
	sem_post(&steward->given);
	pthread_join(steward->thread, NULL);
	sem_destroy(&steward->given);
	sem_destroy(&steward->done);
	pthread_mutex_destroy(&steward->mutex);
	free(steward);
	return NULL;
}

void steward_do(struct steward *steward, void (*fn)(void *context), void *context)
{
	if (!steward || pthread_equal(pthread_self(), steward->thread)) {
		fn(context);
		return;
	}
	pthread_mutex_lock(&steward->mutex);
	steward->fn = fn;
	steward->context = context;
	sem_post(&steward->given);
	await(&steward->done);
	pthread_mutex_unlock(&steward->mutex);
}
