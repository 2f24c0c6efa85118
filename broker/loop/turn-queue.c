/* SPDX-License-Identifier: MIT */
/*
 * Work for clients, shared fairly
 *
 * Jobs wait in a fair queue (util/fair.h). The measured time of each job is charged after it ran,
 * so an owner whose jobs take long waits longer for its next one. The reactor may be preempted in
 * the middle of a job, most often by the client that the job has woken, for which the owner is not
 * to blame: a job that took long costs processor time. A hypervisor's interruptions count as
 * processor time, so no job costs more than the shortest overrun.
 */
#include "loop/turn-queue.h"

void turn_queue_init(struct turn_queue *queue, struct turn *turn)
{
	*queue = (struct turn_queue){.turn = turn};
	fair_queue_init(&queue->owners);
}

void turn_owner_init(struct turn_owner *owner, uint32_t weight, uint32_t tenant)
{
	fair_flow_init(&owner->flow);
	owner->flow.weight = weight;
	owner->tenant = tenant;
}

bool turn_owner_is_idle(const struct turn_queue *queue, const struct turn_owner *owner)
{
	return fair_flow_is_idle(&owner->flow) && !fair_flow_owes(&queue->owners, &owner->flow);
}

void turn_job_init(struct turn_job *job, enum rbk_turn_cause cause,
		   void (*run)(struct turn_job *job))
{
	*job = (struct turn_job){.cause = cause, .run = run};
	list_init(&job->link);
}

void turn_queue_submit(struct turn_queue *queue, struct turn_owner *owner, struct turn_job *job)
{
	if (turn_job_waits(job))
		return;
	job->owner = owner;
	fair_add(&queue->owners, &owner->flow, &job->link);
	queue->n_jobs++;
}

void turn_queue_withdraw(struct turn_queue *queue, struct turn_job *job)
{
	if (!turn_job_waits(job))
		return;
	if (job->is_held) {
		job->is_held = false;
		list_remove(&job->link);
		return;
	}
	fair_remove(&queue->owners, &job->owner->flow, &job->link);
	queue->n_jobs--;
}

void turn_queue_hold(struct list_node *held, struct turn_job *job)
{
	job->is_held = true;
	list_append(held, &job->link);
}

void turn_queue_release(struct turn_queue *queue, struct turn_job *job)
{
	turn_queue_withdraw(queue, job);
	turn_queue_submit(queue, job->owner, job);
}

static void run_one(struct turn_queue *queue)
{
	struct list_node *link = NULL;
	struct fair_flow *flow = fair_take(&queue->owners, &link);
	struct turn_job *job = container_of(link, struct turn_job, link);
	const uint64_t most_ticks = TURN_OVERRUN * queue->turn->budget_ticks;
	struct turn_source outer;
	struct turn_span span;
	uint64_t ticks;

	queue->n_jobs--;
	outer = turn_enter(queue->turn, job->cause,
			   container_of(flow, struct turn_owner, flow)->tenant);
	span = turn_span(queue->turn, queue->turn->slice_ticks);
	job->run(job);
	turn_leave(queue->turn, outer);
	ticks = turn_span_cost(queue->turn, span, queue->turn->slice_ticks);
	if (ticks > most_ticks)
		ticks = most_ticks;
	/* Charge at least 1 tick, so that owners take turns even if the clock stands still. */
	if (ticks == 0)
		ticks = 1;
	fair_charge(&queue->owners, flow, ticks, ticks);
}

unsigned int turn_queue_run(struct turn_queue *queue, uint64_t stop_ticks)
{
	unsigned int n = 0;

	if (!turn_queue_is_empty(queue))
		turn_time_cpu(queue->turn);
	while (!turn_queue_is_empty(queue)) {
		run_one(queue);
		n++;
		if (turn_used_ticks(queue->turn) >= stop_ticks)
			break;
	}
	return n;
}
