#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Work for clients, shared fairly
 *
 * The queue holds the reactor's work for clients apart from their rings. The work is divided into
 * jobs, each with an owner: a tenant, or a user whose connections are not identified yet. Owners
 * share the reactor's time by weight, however many jobs each has. Jobs of one owner run in the
 * order of submission. A job is one small piece of work; an owner with more work submits the job
 * again.
 *
 * Reactor thread only. No function here allocates or fails.
 */
#include <stdbool.h>
#include <stdint.h>

#include "loop/turn.h"
#include "util/fair.h"
#include "util/list.h"

/* Embedded in the caller's object. */
struct turn_owner {
	struct fair_flow flow; /* the weight may change at any time */
	uint32_t tenant;       /* tenant number, for struct turn; 0: not known */
};

struct turn_job {
	struct list_node link; /* in the owner's jobs; empty: not queued */
	struct turn_owner *owner;
	enum rbk_turn_cause cause;
	bool is_held;                      /* in a list of turn_queue_hold() instead */
	void (*run)(struct turn_job *job); /* may resubmit or free the job */
};

struct turn_queue {
	struct turn *turn;
	struct fair_queue owners; /* owners with queued jobs */
	uint64_t n_jobs;          /* queued jobs */
};

/* @turn is borrowed. */
void turn_queue_init(struct turn_queue *queue, struct turn *turn);

void turn_owner_init(struct turn_owner *owner, uint32_t weight, uint32_t tenant);

/*
 * Return true if the owner has no jobs and owes no time. An owner that is forgotten before that and
 * returns starts without its debt.
 */
bool turn_owner_is_idle(const struct turn_queue *queue, const struct turn_owner *owner);

void turn_job_init(struct turn_job *job, enum rbk_turn_cause cause,
		   void (*run)(struct turn_job *job));

static inline bool turn_job_waits(const struct turn_job *job)
{
	return !list_is_empty(&job->link);
}

/* Queue @job for @owner, which must live until the job runs. A queued job stays where it is. */
void turn_queue_submit(struct turn_queue *queue, struct turn_owner *owner, struct turn_job *job);

/*
 * Put @job, which is being run, into @held instead of running it: turn_queue_release() submits it
 * again. Until then submitting it has no effect.
 */
void turn_queue_hold(struct list_node *held, struct turn_job *job);
void turn_queue_release(struct turn_queue *queue, struct turn_job *job);

/* Remove @job from the queue or from a list of turn_queue_hold(), if it is in one. */
void turn_queue_withdraw(struct turn_queue *queue, struct turn_job *job);

static inline bool turn_queue_is_empty(const struct turn_queue *queue)
{
	return queue->n_jobs == 0;
}

/*
 * Run jobs, including those submitted meanwhile, until this turn has used @stop_ticks
 * (turn_stop_ticks()). At least one job runs if any is queued.
 * Return: the number of jobs run.
 */
unsigned int turn_queue_run(struct turn_queue *queue, uint64_t stop_ticks);
