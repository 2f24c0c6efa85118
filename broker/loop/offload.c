/* SPDX-License-Identifier: MIT */
/*
 * The setup thread
 *
 * The thread serves a fair queue of owners' jobs under a mutex, and shares two lock-free stacks
 * with the reactor. The reactor pushes submitted jobs on one stack, from which the thread moves
 * them to the queue. The thread pushes jobs that have run on the other stack, and writes an eventfd
 * when that stack stops being empty, so that the loop calls offload_on_event().
 *
 * The thread may lose its processor at any instruction, also while it holds the mutex. The reactor
 * would then wait until the thread runs again, for milliseconds on a busy machine. Therefore
 * submitting a job and calling done() take no mutex. Cancelling a job and reading the figures take
 * it, and are rare. The thread makes no system call while it holds the mutex.
 *
 * A slice is charged to its owner when it has ended, before the next one is chosen. It takes the
 * thread from other owners for its whole duration; but only its processor time counts as what the
 * owner has spent: a thread that waits, or was preempted, takes no processor from other clients.
 *
 * A client that ends takes its jobs out of the queue at any position. A turn of the loop calls at
 * most OFFLOAD_DONE_BATCH done() functions.
 */
#include "loop/offload.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "loop/loop.h"
#include "loop/turn.h"
#include "util/crash.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/thread.h"

/* done() calls get 1 / JOBS_PART of a turn's budget: entries wait meanwhile. */
enum { JOBS_PART = 4, OFFLOAD_DONE_BATCH = 64 };

/* Charge for a slice that is shorter than the clock can measure */
static const uint64_t min_slice_ns = 1000;

enum job_state { JOB_IDLE, JOB_QUEUED, JOB_RUNNING, JOB_HAS_RUN };

/* A stack that one thread pushes to and another thread takes from as a whole. */
struct job_stack {
	struct offload_job *_Atomic top; /* the newest; NULL: empty */
};

struct offload {
	pthread_t thread;
	bool has_thread;
	struct job_stack submitted; /* by the reactor */
	struct job_stack ended;     /* by the thread */
	sem_t wanted;               /* posted when submitted stops being empty, and on stop */
	atomic_bool stop;
	int event_fd; /* readable when done() calls are due on the reactor */

	pthread_mutex_t mutex; /* protects the members up to "reactor only" */
	struct fair_queue queue;
	struct fair_flow broker;      /* flow of the jobs without an owner */
	struct offload_report report; /* current, except running.ns */
	bool is_running;
	uint64_t running_since_ns;

	/* reactor only */
	struct loop *loop;
	struct loop_watch *watch;
	struct list_node has_run; /* jobs whose done() comes next, oldest first */
	uint64_t n_jobs;          /* submitted, done() not called yet */
};

static struct offload_job *job_of_node(struct list_node *node)
{
	return container_of(node, struct offload_job, link);
}

static void offload_wake(const struct offload *offload)
{
	const uint64_t one = 1;

	/* The counter cannot be full: the reactor resets it before it takes the ended jobs. */
	while (write(offload->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Reset the counter that offload_wake() incremented. */
static void offload_woken(const struct offload *offload)
{
	uint64_t count;

	while (read(offload->event_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

/*
 * Push @job.
 * Return: true if @stack was empty: its taker may sleep.
 */
static bool stack_push(struct job_stack *stack, struct offload_job *job)
{
	struct offload_job *below = atomic_load_explicit(&stack->top, memory_order_relaxed);

	do
		job->below = below;
	while (!atomic_compare_exchange_weak_explicit(&stack->top, &below, job,
						      memory_order_release, memory_order_relaxed));
	return !below;
}

/* Append all jobs of @stack to @list, oldest first. */
static void stack_take(struct job_stack *stack, struct list_node *list)
{
	struct offload_job *job = atomic_exchange_explicit(&stack->top, NULL, memory_order_acquire);
	struct list_node *next = list;

	for (; job; job = job->below) {
		list_append(next, &job->link);
		next = &job->link;
	}
}

static struct fair_flow *job_owner(struct offload *offload, const struct offload_job *job)
{
	return job->owner ? job->owner : &offload->broker;
}

/* The caller of this function and the next three holds the mutex. */
static void offload_queue(struct offload *offload, struct offload_job *job, uint64_t now_ns)
{
	struct fair_flow *owner = job_owner(offload, job);

	job->state = JOB_QUEUED;
	job->since_ns = now_ns;
	if (job->goes_first && job->has_more)
		fair_add_first(&offload->queue, owner, &job->link);
	else if (job->goes_first)
		fair_add_early(&offload->queue, owner, &job->link);
	else
		fair_add(&offload->queue, owner, &job->link);
	offload->report.n_waiting++;
}

/* Move submitted jobs to the queue. */
static void offload_admit(struct offload *offload)
{
	struct offload_job *job;
	struct list_node jobs;

	list_init(&jobs);
	stack_take(&offload->submitted, &jobs);
	while (!list_is_empty(&jobs)) {
		job = job_of_node(jobs.next);
		list_remove(&job->link);
		job_owner(offload, job)->weight = job->weight > 0 ? job->weight : FAIR_WEIGHT;
		offload_queue(offload, job, job->since_ns);
	}
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
		    slice_ns > min_slice_ns ? slice_ns : min_slice_ns, job->cpu_ns);
}

/* Take the job whose turn it is. Return: the job; NULL if the queue is empty. */
static struct offload_job *offload_take(struct offload *offload)
{
	struct offload_job *job = NULL;
	struct list_node *node;

	pthread_mutex_lock(&offload->mutex);
	offload_admit(offload);
	if (fair_take(&offload->queue, &node)) {
		job = job_of_node(node);
		offload_begin(offload, job, clock_now_ns());
	}
	pthread_mutex_unlock(&offload->mutex);
	return job;
}

/* Charge the slice of @job that has ended, and queue the job again or hand it to the reactor. */
static void offload_end(struct offload *offload, struct offload_job *job)
{
	const uint64_t now_ns = clock_now_ns();
	bool has_more;

	pthread_mutex_lock(&offload->mutex);
	/* fair_charge() must know which flows waited during the slice. */
	offload_admit(offload);
	has_more = job->has_more && !atomic_load_explicit(&job->is_cancelled, memory_order_relaxed);
	/* Queue before the charge: a charge after which no flow has items clears all debts. */
	if (has_more)
		offload_queue(offload, job, now_ns);
	else
		job->state = JOB_HAS_RUN;
	offload_charge(offload, job, now_ns - offload->running_since_ns);
	pthread_mutex_unlock(&offload->mutex);

	if (!has_more && stack_push(&offload->ended, job))
		offload_wake(offload);
}

static void *offload_thread(void *data)
{
	struct offload *offload = data;
	struct offload_job *job;
	uint64_t begin_ns;

	crash_thread.is_own = true;
	for (;;) {
		job = offload_take(offload);
		if (!job) {
			if (atomic_load_explicit(&offload->stop, memory_order_acquire))
				return NULL;
			while (sem_wait(&offload->wanted) && errno == EINTR)
				;
			continue;
		}
		job->has_begun = true;
		job->has_more = false;
		begin_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
		job->run(job);
		job->cpu_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
		offload_end(offload, job);
	}
}

/*
 * Call done() of ended jobs until the turn has used @stop_ticks.
 * Return: false if no job has ended.
 */
static bool offload_finish(struct offload *offload, uint64_t stop_ticks)
{
	struct turn *turn = loop_current(offload->loop);
	struct list_node *has_run = &offload->has_run;
	struct offload_job *job;

	stack_take(&offload->ended, has_run);
	if (list_is_empty(has_run))
		return false;
	for (unsigned int n = 0; n < OFFLOAD_DONE_BATCH && !list_is_empty(has_run); n++) {
		if (n > 0 && turn_used_ticks(turn) >= stop_ticks)
			break;
		job = job_of_node(has_run->next);
		list_remove(&job->link);
		job->state = JOB_IDLE;
		assert(offload->n_jobs > 0);
		offload->n_jobs--;
		job->done(job);
	}
	if (!list_is_empty(has_run))
		offload_wake(offload);
	return true;
}

static void offload_on_event(void *data, uint32_t events)
{
	struct offload *offload = data;
	struct turn *turn = loop_current(offload->loop);
	struct turn_source outer = turn_enter(turn, RBK_TURN_JOBS, 0);

	offload_woken(offload);
	offload_finish(offload, turn_used_ticks(turn) + turn->budget_ticks / JOBS_PART);
	turn_leave(turn, outer);
}

int offload_new_idle(struct loop *loop, struct offload **ret)
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

	/* With default attributes these calls only set memory and cannot fail. */
	pthread_mutex_init(&offload->mutex, NULL);
	sem_init(&offload->wanted, 0, 0);
	steal_fd(&event_fd);
	*ret = steal_ptr(offload);
	return 0;
}

int offload_start(struct offload *offload, const char *name)
{
	const int r = thread_start(&offload->thread, name, offload_thread, offload);

	offload->has_thread = r == 0;
	return r ? error_fold(r) : 0;
}

void offload_stop(struct offload *offload)
{
	if (!offload->has_thread)
		return;
	atomic_store_explicit(&offload->stop, true, memory_order_release);
	sem_post(&offload->wanted);
	pthread_join(offload->thread, NULL);
	offload->has_thread = false;
}

int offload_new_named(struct loop *loop, const char *name, struct offload **ret)
{
	_cleanup_(offload_freep) struct offload *offload = NULL;
	int r = offload_new_idle(loop, &offload);

	if (r == 0)
		r = offload_start(offload, name);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(offload);
	return 0;
}

int offload_new(struct loop *loop, struct offload **ret)
{
	return offload_new_named(loop, "rb-setup", ret);
}

struct offload *offload_free(struct offload *offload)
{
	struct pollfd wait;

	if (!offload)
		return NULL;

	/* done() may submit jobs. */
	while (offload->n_jobs > 0) {
		if (offload_finish(offload, UINT64_MAX))
			continue;
		wait = (struct pollfd){.fd = offload->event_fd, .events = POLLIN};
		poll(&wait, 1, -1);
		offload_woken(offload);
	}

	offload_stop(offload);
	loop_unwatch(offload->watch);
	close_fd(offload->event_fd);
	sem_destroy(&offload->wanted);
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
	job->state = JOB_QUEUED;
	job->since_ns = now_ns;
	atomic_init(&job->is_cancelled, false);
	list_init(&job->link);
	offload->n_jobs++;

	if (stack_push(&offload->submitted, job))
		sem_post(&offload->wanted);
}

void offload_cancel(struct offload *offload, struct offload_job *job)
{
	bool was_empty = list_is_empty(&offload->has_run);

	pthread_mutex_lock(&offload->mutex);
	offload_admit(offload);
	/* Relaxed: the flag publishes no other data. */
	if (job->state != JOB_IDLE)
		atomic_store_explicit(&job->is_cancelled, true, memory_order_relaxed);
	if (job->state == JOB_QUEUED) {
		fair_remove(&offload->queue, job_owner(offload, job), &job->link);
		offload->report.n_waiting--;
		job->state = JOB_HAS_RUN;
		list_append(&offload->has_run, &job->link);
	}
	pthread_mutex_unlock(&offload->mutex);
	if (was_empty && !list_is_empty(&offload->has_run))
		offload_wake(offload);
}

void offload_describe(struct offload *offload, struct offload_report *ret)
{
	const uint64_t now_ns = clock_now_ns();
	struct offload_stats *stats;
	uint64_t since_ns;
	bool is_running;

	pthread_mutex_lock(&offload->mutex);
	offload_admit(offload);
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
