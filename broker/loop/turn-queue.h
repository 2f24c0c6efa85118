#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Work for clients, shared fairly
 *
 * The reactor's work for clients beside their rings waits here in pieces (jobs), each for an owner:
 * a tenant, or a user whose connections are not identified yet. Owners get the reactor's time by
 * their weights, whichever number of jobs each has; the jobs of one owner run in the order in which
 * they came. A job is one small piece of work: an owner with more work submits the job again.
 *
 * Reactor thread only. Nothing here allocates or fails.
 */
#include <stdbool.h>
#include <stdint.h>

#include "loop/turn.h"
#include "util/fair.h"
#include "util/list.h"

/* Embedded in the caller's object. */
struct turn_owner {
	struct fair_flow flow; /* its weight may change at any time */
	uint32_t tenant;       /* its number, for struct turn; 0: not known */
};

struct turn_job {
	struct list_node link; /* in the owner's jobs; alone: it does not wait */
	struct turn_owner *owner;
	enum rbk_turn_cause cause;
	void (*run)(struct turn_job *job); /* may submit the job again, and may free it */
};

struct turn_queue {
	struct turn *turn;
	struct fair_queue owners; /* that have jobs */
	uint64_t n_jobs;          /* that wait */
};

/* @turn is borrowed. */
void turn_queue_init(struct turn_queue *queue, struct turn *turn);

void turn_owner_init(struct turn_owner *owner, uint32_t weight, uint32_t tenant);

/*
 * Has the owner nothing to do, and nothing to make up for? Who forgets an owner before that lets it
 * begin anew.
 */
bool turn_owner_is_idle(const struct turn_queue *queue, const struct turn_owner *owner);

void turn_job_init(struct turn_job *job, enum rbk_turn_cause cause,
		   void (*run)(struct turn_job *job));

static inline bool turn_job_waits(const struct turn_job *job)
{
	return !list_is_empty(&job->link);
}

/* Has @job run later, for @owner, who must live until then. Nothing happens if it waits already. */
void turn_queue_submit(struct turn_queue *queue, struct turn_owner *owner, struct turn_job *job);

/* Takes a job back, if it waits. */
void turn_queue_withdraw(struct turn_queue *queue, struct turn_job *job);

static inline bool turn_queue_is_empty(const struct turn_queue *queue)
{
	return queue->n_jobs == 0;
}

/*
 * Runs jobs until this turn has used @stop_ticks (turn_stop_ticks()), at least one, if there is
 * one. Jobs that are submitted meanwhile take part. Return: how many ran.
 */
unsigned int turn_queue_run(struct turn_queue *queue, uint64_t stop_ticks);
