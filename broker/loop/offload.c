/* SPDX-License-Identifier: MIT */
/*
 * The setup thread
 *
 * A fair queue of owners' jobs and a list of jobs that have run, under one mutex. The thread writes
 * an eventfd when the list stops being empty, the loop calls us, and done() runs without the mutex.
 * All of this is cold; the mutex is only ever held for a few instructions, so that the reactor
 * never waits for a job.
 *
 * A slice is charged to its owner when it has ended, before anything is known of the next one. A
 * client that ends takes its jobs out of the queue, wherever they stand; a turn of the loop calls
 * no more than a batch of done(), however many that are.
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
#include "loop/turn.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/thread.h"

/* Jobs that have run get at least one over that of a turn. */
enum { JOBS_PART = 8, OFFLOAD_DONE_BATCH = 64 };

/* The cost of a slice that the clock cannot tell from nothing. */
static const uint64_t min_slice_ns = 1000;

enum job_state { JOB_IDLE, JOB_QUEUED, JOB_RUNNING, JOB_HAS_RUN };

struct offload {
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t submitted; /* queue is not empty, or stop */
	pthread_cond_t finished;  /* has_run is not empty */
	struct fair_queue queue;
	struct fair_flow broker; /* of jobs without another */
	struct list_node has_run;
	struct offload_report report; /* all but running.ns is up to date */
	bool is_running;
	uint64_t running_since_ns;
	bool stop;

	/* reactor only */
	struct loop *loop;
	struct loop_watch *watch;
	uint64_t n_jobs; /* submitted and not yet done() */
	int event_fd;
};

static struct offload_job *job_of_node(struct list_node *node)
{
	return container_of(node, struct offload_job, link);
}

static void offload_wake(const struct offload *offload)
{
	const uint64_t one = 1;

	/* The counter cannot be full: the reactor empties it before it takes from the list. */
	while (write(offload->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Under the mutex. */
static void offload_has_run(struct offload *offload, struct offload_job *job)
{
	bool was_empty = list_is_empty(&offload->has_run);

	job->state = JOB_HAS_RUN;
	list_append(&offload->has_run, &job->link);
	pthread_cond_signal(&offload->finished);
	if (was_empty)
		offload_wake(offload);
}

static struct fair_flow *job_owner(struct offload *offload, const struct offload_job *job)
{
	return job->owner ? job->owner : &offload->broker;
}

/* Under the mutex, as the next two. */
static void offload_queue(struct offload *offload, struct offload_job *job, uint64_t now_ns)
{
	struct fair_flow *owner = job_owner(offload, job);

	job->state = JOB_QUEUED;
	job->since_ns = now_ns;
	if (job->has_more && job->stays_first)
		fair_add_first(&offload->queue, owner, &job->link);
	else
		fair_add(&offload->queue, owner, &job->link);
	offload->report.n_waiting++;
}

static void offload_begin(struct offload *offload, struct offload_job *job, uint64_t now_ns)
{
	const uint64_t wait_ns = now_ns > job->since_ns ? now_ns - job->since_ns : 0;
	struct offload_time time = {.ns = wait_ns, .cause = job->cause, .tenant = job->tenant};

	job->state = JOB_RUNNING;
	offload->report.n_waiting--;
	if (wait_ns > offload->report.longest_wait.ns)
		offload->report.longest_wait = time;
	offload->report.running = time;
	offload->is_running = true;
	offload->running_since_ns = now_ns;
}

static void offload_charge(struct offload *offload, struct offload_job *job, uint64_t slice_ns)
{
	struct offload_stats *stats = &offload->report.causes[job->cause];

	offload->is_running = false;
	stats->n_slices++;
	stats->total_ns += slice_ns;
	if (slice_ns > stats->longest_ns) {
		stats->longest_ns = slice_ns;
		stats->longest_tenant = job->tenant;
	}
	fair_charge(&offload->queue, job_owner(offload, job),
		    slice_ns > min_slice_ns ? slice_ns : min_slice_ns);
}

static void *offload_thread(void *data)
{
	struct offload *offload = data;
	struct offload_job *job;
	struct list_node *node;
	uint64_t from_ns, to_ns;

	pthread_mutex_lock(&offload->mutex);
	for (;;) {
		while (fair_queue_is_empty(&offload->queue) && !offload->stop)
			pthread_cond_wait(&offload->submitted, &offload->mutex);
		if (!fair_take(&offload->queue, &node))
			break;
		job = job_of_node(node);
		from_ns = clock_now_ns();
		offload_begin(offload, job, from_ns);
		pthread_mutex_unlock(&offload->mutex);

		job->has_begun = true;
		job->has_more = false;
		job->run(job);
		to_ns = clock_now_ns();

		pthread_mutex_lock(&offload->mutex);
		offload_charge(offload, job, to_ns - from_ns);
		if (job->has_more &&
		    !atomic_load_explicit(&job->is_cancelled, memory_order_relaxed)) {
			offload_queue(offload, job, to_ns);
		} else {
			offload_has_run(offload, job);
		}
	}
	pthread_mutex_unlock(&offload->mutex);
	return NULL;
}

/* Moves jobs that have run to the empty @batch. Return: false if there was none. */
static bool offload_take(struct offload *offload, struct list_node *batch)
{
	struct list_node *node;

	pthread_mutex_lock(&offload->mutex);
	for (unsigned int n = 0; n < OFFLOAD_DONE_BATCH && !list_is_empty(&offload->has_run); n++) {
		node = offload->has_run.next;
		list_remove(node);
		list_append(batch, node);
	}
	if (!list_is_empty(&offload->has_run))
		offload_wake(offload);
	pthread_mutex_unlock(&offload->mutex);
	return !list_is_empty(batch);
}

/* Moves what is left of @batch back before what has run since, for a later turn. */
static void offload_put_back(struct offload *offload, struct list_node *batch)
{
	struct list_node *node;

	pthread_mutex_lock(&offload->mutex);
	while (!list_is_empty(batch)) {
		node = batch->prev;
		list_remove(node);
		/* Before the first: the list is a circle. */
		list_append(offload->has_run.next, node);
	}
	pthread_mutex_unlock(&offload->mutex);
	offload_wake(offload);
}

/*
 * Calls done() for what has run, until the turn has used @stop_ticks. Return: false if nothing has
 * run.
 */
static bool offload_finish(struct offload *offload, uint64_t stop_ticks)
{
	struct turn *turn = loop_current(offload->loop);
	struct offload_job *job;
	struct list_node batch;

	list_init(&batch);
	if (!offload_take(offload, &batch))
		return false;
	while (!list_is_empty(&batch)) {
		job = job_of_node(batch.next);
		list_remove(&job->link);
		job->state = JOB_IDLE;
		assert(offload->n_jobs > 0);
		offload->n_jobs--;
		job->done(job);
		if (!list_is_empty(&batch) && turn_used_ticks(turn) >= stop_ticks)
			offload_put_back(offload, &batch);
	}
	return true;
}

static void offload_on_event(void *data, uint32_t events)
{
	struct offload *offload = data;
	uint64_t count;

	struct turn *turn = loop_current(offload->loop);
	struct turn_source outer = turn_enter(turn, RBK_TURN_JOBS, 0);

	while (read(offload->event_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	offload_finish(offload, turn_stop_ticks(turn, JOBS_PART));
	turn_leave(turn, outer);
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
	offload->loop = loop;
	fair_queue_init(&offload->queue);
	fair_flow_init(&offload->broker);
	list_init(&offload->has_run);

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
		if (offload_finish(offload, UINT64_MAX))
			continue;
		pthread_mutex_lock(&offload->mutex);
		while (list_is_empty(&offload->has_run))
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
	const uint64_t now_ns = clock_now_ns();

	assert(job->cause < OFFLOAD_CAUSES && job->weight <= FAIR_MAX_WEIGHT);
	job->has_begun = false;
	job->has_more = false;
	atomic_init(&job->is_cancelled, false);
	list_init(&job->link);
	offload->n_jobs++;

	pthread_mutex_lock(&offload->mutex);
	job_owner(offload, job)->weight = job->weight > 0 ? job->weight : FAIR_WEIGHT;
	offload_queue(offload, job, now_ns);
	pthread_cond_signal(&offload->submitted);
	pthread_mutex_unlock(&offload->mutex);
}

void offload_cancel(struct offload *offload, struct offload_job *job)
{
	pthread_mutex_lock(&offload->mutex);
	/* Whoever reads it takes nothing else from us by it. */
	if (job->state != JOB_IDLE)
		atomic_store_explicit(&job->is_cancelled, true, memory_order_relaxed);
	if (job->state == JOB_QUEUED) {
		fair_remove(&offload->queue, job_owner(offload, job), &job->link);
		offload->report.n_waiting--;
		offload_has_run(offload, job);
	}
	pthread_mutex_unlock(&offload->mutex);
}

void offload_describe(struct offload *offload, struct offload_report *ret)
{
	const uint64_t now_ns = clock_now_ns();
	struct offload_stats *stats;
	uint64_t since_ns;
	bool is_running;

	pthread_mutex_lock(&offload->mutex);
	*ret = offload->report;
	is_running = offload->is_running;
	since_ns = offload->running_since_ns;
	pthread_mutex_unlock(&offload->mutex);
	if (!is_running) {
		ret->running = (struct offload_time){.ns = 0};
		return;
	}
	ret->running.ns = now_ns > since_ns ? now_ns - since_ns : 0;
	stats = &ret->causes[ret->running.cause];
	if (ret->running.ns > stats->longest_ns) {
		stats->longest_ns = ret->running.ns;
		stats->longest_tenant = ret->running.tenant;
	}
}

void offload_reset(struct offload *offload)
{
	pthread_mutex_lock(&offload->mutex);
	offload->report = (struct offload_report){
		.n_waiting = offload->report.n_waiting,
		.running = offload->report.running,
	};
	pthread_mutex_unlock(&offload->mutex);
}

const char *offload_cause_name(enum offload_cause cause)
{
	static const char *const names[] = {
		[OFFLOAD_OTHER] = "other",
		[OFFLOAD_PLAN_VERIFY] = "plan verification",
		[OFFLOAD_PLAN_MEASURE] = "plan translation",
		[OFFLOAD_PLAN_PREPARE] = "plan preparation",
		[OFFLOAD_PLAN_RELEASE] = "plan release",
		[OFFLOAD_ARENA_MAP] = "arena mapping",
		[OFFLOAD_ARENA_UNMAP] = "arena unmapping",
		[OFFLOAD_RING] = "ring creation",
		[OFFLOAD_LOAD] = "loading",
		[OFFLOAD_UNLOAD] = "unloading",
		[OFFLOAD_REOPEN] = "reopening a device",
		[OFFLOAD_CALIBRATION] = "calibration",
		[OFFLOAD_FILE] = "a file",
	};
	_Static_assert(ARRAY_SIZE(names) == OFFLOAD_CAUSES, "a name for each cause");

	assert(cause < OFFLOAD_CAUSES);
	return names[cause];
}
