/* SPDX-License-Identifier: MIT */
/*
 * Restraint of tenants that make requests without end
 *
 * A tenant may prepare and free plans, connect, register arenas or ask questions in a loop. Each
 * request takes the reactor's time, and the setup thread's, which competes with other tenants'
 * clients for the processors. While other tenants' rings are busy, the time that a tenant spends in
 * this way is therefore limited to 1 / REQUESTS_PART of a processor.
 *
 * An owner (owner.c) has a credit of time, which fills at that rate up to burst_ns. So a
 * client's start, with some dozens of arenas and plans, is not slowed down. An owner that has used
 * up its credit is restrained until half of the credit is back. A restrained owner's next requests
 * wait for a tick of the timer at which it is out of debt. All requests that wait are then served
 * one after the other, those that come later wait for the next tick. A request, with the jobs that
 * it gives to other threads, interrupts neighbours' tasks up to a dozen times, whatever it costs:
 * at each job, once where the thread runs, and once where the reactor learns of its end. So a tick
 * is long enough for a neighbour with one batch of entries after the other: fewer than 1% of its
 * batches, of some microseconds each, are interrupted, and its tail does not suffer either.
 *
 * A tenant's other work on these threads counts as well, for example the reloading of evicted
 * plans, and can keep an owner in debt. So a request waits for at most longest_ns, or it would wait
 * for ever.
 *
 * While no other tenant's rings are busy, nothing waits. Ends of sessions, and work that has begun,
 * never wait: others may need the memory. Nor does the HELLO of a connection, which has waited.
 * Administrators are not restrained, nor is any client for a moment after the broker's start, when
 * clients of an earlier broker connect again.
 *
 * Such a client comes back with all that it had, and its tasks wait. Its requests for this are
 * known by their kind, which any client can send; session.c looks at the kind of a request that
 * would wait. So an owner has an allowance of time for them, of which it spends before its credit.
 * As long as the allowance lasts, the owner is not restrained. One that is used up is not there
 * again before it is full, which takes RETURN_PART times as long as it lasts. So a client that only
 * pretends to come back gains 1 / RETURN_PART of a processor in the long run.
 *
 * The time of the setup thread, and of the threads that close descriptors, counts in full where
 * there are two processors. With more of them these threads displace a neighbour more rarely.
 */
#include "loop/loop.h"
#include "session/server-private.h"
#include "util/clock.h"

enum {
	REQUESTS_PART = 40,
	RETURN_PART = 400,
	/* Paced owners, and requests of one of them, that one tick looks at */
	TICK_OWNERS = 64,
	TICK_REQUESTS = 64,
	/* The number of processors with which other threads' time counts in full */
	FULL_PROCESSORS = 2,
};

static const int64_t burst_ns = 20000000;
static const uint64_t tick_ns = 4000000;
static const uint64_t return_ns = 2000000000;
/* Enough for some thousands of plans */
static const uint64_t allowance_ns = 5000000000;
/* Clients have come back if none has made a request for it for so long. */
static const uint64_t return_pause_ns = 1000000000;
/* More than the time in which the largest debt is paid off */
static const uint64_t longest_ns = 1000000000;
/*
 * Estimate of the reactor's time for a job of another thread beside the time of the request: waking
 * the thread, being woken, and the job's done().
 */
static const uint64_t job_ns = 8000;

void restraint_init(struct restraint *restraint)
{
	*restraint = (struct restraint){.credit_ns = burst_ns, .allowance_ns = allowance_ns};
	list_init(&restraint->held);
	list_init(&restraint->link);
}

void restraint_job(struct owner *owner)
{
	owner->restraint.jobs_ns += job_ns;
}

void restraint_returns(struct owner *owner)
{
	owner->restraint.returned_ns = clock_now_ns();
}

static bool returns(const struct restraint *restraint, uint64_t now_ns)
{
	return restraint->returned_ns > 0 && !restraint->has_returned &&
	       now_ns - restraint->returned_ns < return_pause_ns;
}

/* Return the time that the owner has spent since the last look. */
static uint64_t spent_since(const struct server *server, struct owner *owner,
			    const struct tenant *tenant)
{
	const uint32_t n_processors = server->options.n_processors > FULL_PROCESSORS
					      ? server->options.n_processors
					      : FULL_PROCESSORS;
	const uint64_t spent_ticks = owner->share.flow.spent;
	struct restraint *restraint = &owner->restraint;
	uint64_t spent_ns, thread_ns;

	spent_ns = clock_ticks_to_ns(spent_ticks - restraint->spent_ticks) + restraint->jobs_ns;
	restraint->jobs_ns = 0;
	restraint->spent_ticks = spent_ticks;
	if (!tenant)
		return spent_ns;
	thread_ns = atomic_load_explicit(&tenant->setup.spent, memory_order_relaxed) +
		    account_closing_ns(tenant->account);
	if (restraint->knows_threads)
		spent_ns += (thread_ns - restraint->thread_ns) * FULL_PROCESSORS / n_processors;
	restraint->thread_ns = thread_ns;
	restraint->knows_threads = true;
	return spent_ns;
}

/* Fill the allowance. Return the part of @spent_ns that it pays. */
static uint64_t pay_for_return(struct restraint *restraint, uint64_t spent_ns, uint64_t elapsed_ns,
			       uint64_t now_ns)
{
	restraint->allowance_ns += elapsed_ns / RETURN_PART;
	if (restraint->allowance_ns >= allowance_ns) {
		restraint->allowance_ns = allowance_ns;
		restraint->has_returned = false;
	}
	if (!returns(restraint, now_ns))
		return 0;
	if (spent_ns >= restraint->allowance_ns) {
		spent_ns = restraint->allowance_ns;
		restraint->has_returned = true;
	}
	restraint->allowance_ns -= spent_ns;
	return spent_ns;
}

/* Fill the credit, and deduct what the owner has spent since the last look. */
static void look(const struct server *server, struct owner *owner, const struct tenant *tenant,
		 uint64_t now_ns)
{
	struct restraint *restraint = &owner->restraint;
	const uint64_t elapsed_ns = restraint->looked_ns > 0 ? now_ns - restraint->looked_ns : 0;
	uint64_t spent_ns = spent_since(server, owner, tenant);

	spent_ns -= pay_for_return(restraint, spent_ns, elapsed_ns, now_ns);
	/* Deduct before the bound applies: the time has been spent while the credit was filling. */
	restraint->credit_ns += (int64_t)(elapsed_ns / REQUESTS_PART) - (int64_t)spent_ns;
	restraint->looked_ns = now_ns;
	if (restraint->credit_ns > burst_ns)
		restraint->credit_ns = burst_ns;
	/* A single long job, for example the upload of a large arena, has no consequence for long.
	 */
	if (restraint->credit_ns < -burst_ns)
		restraint->credit_ns = -burst_ns;
	if (restraint->credit_ns < 0)
		restraint->is_restrained = true;
	else if (restraint->credit_ns >= burst_ns / 2)
		restraint->is_restrained = false;
}

/* Look at the owner, and at the one that it follows. */
static void look_at(const struct server *server, struct owner *owner, const struct tenant *tenant)
{
	const uint64_t now_ns = clock_now_ns();

	look(server, owner, tenant, now_ns);
	if (owner->last)
		look(server, owner->last, NULL, now_ns);
}

/* Return true if requests wait until the debt is paid; after look(). */
static bool is_restrained(const struct restraint *restraint)
{
	return restraint->is_restrained && !returns(restraint, restraint->looked_ns);
}

static bool owes(const struct restraint *restraint)
{
	return restraint->credit_ns < 0 && is_restrained(restraint);
}

/* Return true if it is so of the owner, or of the one that it follows. */
static bool any(const struct owner *owner, bool (*is_so)(const struct restraint *restraint))
{
	return is_so(&owner->restraint) || (owner->last && is_so(&owner->last->restraint));
}

/* Return true if requests of @tenant, NULL if it is not known, would be in others' way. */
static bool is_in_the_way(const struct server *server, const struct tenant *tenant)
{
	const struct server_hooks *hooks = &server->options.hooks;

	/* A broker that is about to restart waits for clients that connect. */
	return hooks->others_work && !server->holds_connections && !server->end_ns &&
	       clock_now_ns() - server->started_ns >= return_ns &&
	       hooks->others_work(hooks->context, tenant);
}

bool restraint_holds(struct server *server, struct owner *owner, const struct tenant *tenant,
		     struct turn_job *job)
{
	struct restraint *restraint = &owner->restraint;

	/* Clients of the common owner have nothing in common. */
	if (owner == &server->common)
		return false;
	if (restraint->n_passes > 0) {
		restraint->n_passes--;
		return false;
	}
	restraint->tenant = tenant;
	look_at(server, owner, tenant);
	if (!any(owner, is_restrained) || !is_in_the_way(server, tenant))
		return false;
	if (list_is_empty(&restraint->held))
		restraint->held_ns = restraint->looked_ns;
	turn_queue_hold(&restraint->held, job);
	if (list_is_empty(&server->restrained))
		loop_timer_arm(server->restraint_timer, tick_ns);
	if (list_is_empty(&restraint->link))
		list_append(&server->restrained, &restraint->link);
	return true;
}

/* Let requests of the owner pass. */
static void release(struct server *server, struct restraint *restraint)
{
	restraint->n_passes = 0;
	restraint->held_ns = restraint->looked_ns;
	while (restraint->n_passes < TICK_REQUESTS && !list_is_empty(&restraint->held)) {
		restraint->n_passes++;
		turn_queue_release(&server->work,
				   container_of(restraint->held.next, struct turn_job, link));
	}
}

static void on_tick(void *data)
{
	struct server *server = data;
	struct list_node *last = server->restrained.prev;

	for (unsigned int n = 0; n < TICK_OWNERS && !list_is_empty(&server->restrained); n++) {
		struct list_node *node = server->restrained.next;
		struct restraint *restraint = container_of(node, struct restraint, link);
		struct owner *owner = container_of(restraint, struct owner, restraint);

		list_remove(node);
		/* Without requests there may be no tenant any more. */
		if (!list_is_empty(&restraint->held)) {
			look_at(server, owner, restraint->tenant);
			if (!any(owner, owes) ||
			    restraint->looked_ns - restraint->held_ns >= longest_ns ||
			    !is_in_the_way(server, restraint->tenant))
				release(server, restraint);
			if (!list_is_empty(&restraint->held))
				list_append(&server->restrained, node);
		}
		if (node == last)
			break;
	}
	if (!list_is_empty(&server->restrained))
		loop_timer_arm(server->restraint_timer, tick_ns);
}

bool restraint_is_idle(struct server *server, struct owner *owner)
{
	look(server, owner, NULL, clock_now_ns());
	return owner->restraint.credit_ns == burst_ns &&
	       owner->restraint.allowance_ns == allowance_ns;
}

int restraints_init(struct server *server)
{
	server->started_ns = clock_now_ns();
	return loop_timer_new(server->options.loop, on_tick, server, &server->restraint_timer);
}

void restraints_deinit(struct server *server)
{
	server->restraint_timer = loop_timer_free(server->restraint_timer);
}
