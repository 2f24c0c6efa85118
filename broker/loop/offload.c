/* SPDX-License-Identifier: MIT */
/*
 * The setup thread
 *
 * Two lists under one mutex: jobs to run, oldest first, and jobs that have run. The thread writes
 * an eventfd when the second one stops being empty, the loop calls us, and done() runs without the
 * mutex. All of this is cold; the mutex is only ever held for a few instructions, so that the
 * reactor never waits for a job.
 */
#include "loop/offload.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "loop/loop.h"
#include "util/error.h"
#include "util/thread.h"

struct job_list {
	struct offload_job *first, *last;
};

struct offload {
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t submitted; /* to_run is not empty, or stop */
	pthread_cond_t finished;  /* a job has run */
	struct job_list to_run, has_run;
	bool stop;

	/* reactor only */
	struct loop_watch *watch;
	uint64_t n_jobs; /* submitted and not yet done() */
	int event_fd;
};

static void job_list_append(struct job_list *list, struct offload_job *job)
{
	job->next = NULL;
	if (list->last)
		list->last->next = job;
	else
		list->first = job;
	list->last = job;
}

static struct offload_job *job_list_pop(struct job_list *list)
{
	struct offload_job *job = list->first;

	if (!job)
		return NULL;
	list->first = job->next;
	if (!list->first)
		list->last = NULL;
	job->next = NULL;
	return job;
}

static void *offload_thread(void *data)
{
	struct offload *offload = data;
	const uint64_t one = 1;
	struct offload_job *job;
	bool was_empty;

	pthread_mutex_lock(&offload->mutex);
	for (;;) {
		while (!offload->to_run.first && !offload->stop)
			pthread_cond_wait(&offload->submitted, &offload->mutex);
		job = job_list_pop(&offload->to_run);
		if (!job)
			break;
		pthread_mutex_unlock(&offload->mutex);
		job->run(job);
		pthread_mutex_lock(&offload->mutex);
		was_empty = offload->has_run.first == NULL;
		job_list_append(&offload->has_run, job);
		pthread_cond_signal(&offload->finished);
		/* The counter cannot be full: the reactor empties it before it takes the list. */
		if (was_empty)
			while (write(offload->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
				;
	}
	pthread_mutex_unlock(&offload->mutex);
	return NULL;
}

/* Calls done() for what has run. Return: false if that is nothing. */
static bool offload_finish(struct offload *offload)
{
	struct job_list list;
	struct offload_job *job;

	pthread_mutex_lock(&offload->mutex);
	list = offload->has_run;
	offload->has_run = (struct job_list){.first = NULL};
	pthread_mutex_unlock(&offload->mutex);

	if (!list.first)
		return false;
	while ((job = job_list_pop(&list))) {
		assert(offload->n_jobs > 0);
		offload->n_jobs--;
		job->done(job);
	}
	return true;
}

static void offload_on_event(void *data, uint32_t events)
{
	struct offload *offload = data;
	uint64_t count;

	while (read(offload->event_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	offload_finish(offload);
}

int offload_new(struct loop *loop, struct offload **ret)
{
	_cleanup_(close_fdp) int event_fd = -1;
	_cleanup_(freep) struct offload *offload = NULL;
	int r;

	offload = calloc(1, sizeof(*offload));
	if (!offload)
		return error_origin(-ENOMEM);

	event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (event_fd < 0)
		return error_origin(-errno);
	offload->event_fd = event_fd;

	r = loop_watch(loop, event_fd, POLLIN, offload_on_event, offload, &offload->watch);
	if (r)
		return error_fold(r);

	/* With default attributes these only set memory. */
	pthread_mutex_init(&offload->mutex, NULL);
	pthread_cond_init(&offload->submitted, NULL);
	pthread_cond_init(&offload->finished, NULL);
	r = thread_start(&offload->thread, "rb-setup", offload_thread, offload);
	if (r) {
		loop_unwatch(offload->watch);
		return error_fold(r);
	}

	steal_fd(&event_fd);
	*ret = steal_ptr(offload);
	return 0;
}

struct offload *offload_free(struct offload *offload)
{
	if (!offload)
		return NULL;

	/* done() may submit again. */
	while (offload->n_jobs > 0) {
		if (offload_finish(offload))
			continue;
		pthread_mutex_lock(&offload->mutex);
		while (!offload->has_run.first)
			pthread_cond_wait(&offload->finished, &offload->mutex);
		pthread_mutex_unlock(&offload->mutex);
	}

	pthread_mutex_lock(&offload->mutex);
	offload->stop = true;
	pthread_cond_signal(&offload->submitted);
	pthread_mutex_unlock(&offload->mutex);
	pthread_join(offload->thread, NULL);

	loop_unwatch(offload->watch);
	close_fd(offload->event_fd);
	pthread_cond_destroy(&offload->finished);
	pthread_cond_destroy(&offload->submitted);
	pthread_mutex_destroy(&offload->mutex);
	free(offload);
	return NULL;
}

void offload_submit(struct offload *offload, struct offload_job *job)
{
	offload->n_jobs++;
	pthread_mutex_lock(&offload->mutex);
	job_list_append(&offload->to_run, job);
	pthread_cond_signal(&offload->submitted);
	pthread_mutex_unlock(&offload->mutex);
}
