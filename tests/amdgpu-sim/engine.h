#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Engines: submissions that take time
 *
 * Without "execution=timed" a submission is complete when its ioctl returns. With it, each engine
 * of a card works on one submission at a time, and nothing interrupts a submission but the kernel's
 * timeout. Nothing is computed: time passes.
 *
 * No thread stands for the engines. Each ioctl first advances them to the present; what they have
 * done meanwhile follows from their state. A call that waits sleeps until the next event.
 *
 * All functions need the lock held.
 */
#include "client.h"
#include <stdint.h>

/* CLOCK_MONOTONIC */
uint64_t sim_now_ns(void);

/* Let engines do what they have done by now. Called before a card's state is read or changed. */
void sim_engine_advance(struct sim_card *card);

/* Wait until a submission has room. Return: 0; -ENODEV: the card was unplugged meanwhile. */
int sim_engine_await_room(const struct sim_fd *client);

/*
 * Begin or queue a submission, which must have room: a copy of @job, whose number the function
 * sets, as it does the fence of each syncobj that the job signals.
 */
void sim_engine_submit(const struct sim_fd *client, struct sim_job *job);

/* Return true if the fence of a submission has signalled. 0 is a fence that always has. */
bool sim_job_is_done(const struct sim_card *card, uint64_t number);

/* Have @job wait for another one. Return: 0; -ENOMEM: it waits for too many. */
int sim_job_wait_for(struct sim_job *job, uint64_t number);

/* Return the number of the client's submission @seq; 0: it is done. */
uint64_t sim_job_of_seq(const struct sim_card *card, uint32_t slot, uint64_t seq);

/* Return true if the syncobj's fence, for a timeline that of @point, has signalled. */
bool sim_point_is_done(const struct sim_card *card, uint32_t syncobj, uint64_t point);

/* Signal a syncobj, for a timeline its @point. */
void sim_point_signal(struct sim_card *card, uint32_t syncobj, uint64_t point);

/* Forget that submissions signal a syncobj, which is reset or destroyed. */
void sim_point_forget(struct sim_card *card, uint32_t syncobj);

/*
 * Return the time that an engine has worked for a client, with that of a submission that runs now:
 * amdgpu_ctx_fence_time().
 */
uint64_t sim_engine_time(const struct sim_card *card, uint32_t slot, unsigned int engine);

/* Give a syncobj the fence of another one, for timelines that of a point. Return: 0 or -ENOMEM. */
int sim_point_copy(struct sim_card *card, uint32_t from, uint64_t from_point, uint32_t to,
		   uint64_t to_point);

/* Have @job wait for the submissions that signal a syncobj. Return: as sim_job_wait_for(). */
int sim_point_wait_for(const struct sim_card *card, uint32_t syncobj, uint64_t point,
		       struct sim_job *job);

/*
 * Release the lock and sleep until something may have changed, at most until @deadline_ns.
 * Return: 0; -ETIME; -ENODEV: the card was unplugged meanwhile.
 */
int sim_engine_wait(const struct sim_fd *client, int64_t deadline_ns);

/* Wake all that wait: a fence has signalled, or may be there. */
void sim_engine_announce(struct sim_card *card);

/* A client has ended: drop what it has queued. */
void sim_engine_forget(struct sim_card *card, uint32_t slot);

/* Drop all submissions, whose fences signal: the card was reset or unplugged. */
void sim_engine_drop_all(struct sim_card *card);
