/* SPDX-License-Identifier: MIT */
/* Completions that clients get, and whether they are right: see client.h */
#include "simulator/client-private.h"

#include <errno.h>
#include <poll.h>
#include <stdnoreturn.h>
#include <string.h>

#include "simulator/machine.h"

static struct task *task_of(struct client *client, uint64_t id)
{
	for (unsigned int i = 0; id != 0 && i < SLOTS; i++)
		if (client->tasks[i].kind != TASK_FREE && client->tasks[i].id == id)
			return &client->tasks[i];
	return NULL;
}

/* Entries that are cancelled or rejected before they start need not wait for others. */
static void check_order(struct client *client, const struct task *task, int res)
{
	if (res == -ECANCELED ||
	    (res < 0 && (task->may_fail || task->is_void || !client->options->is_strict)))
		return;
	if (task->kind != TASK_INVALID && task->predecessor && task_of(client, task->predecessor))
		sim_violation("entry %llu completed with %d before its predecessor %llu",
			      (unsigned long long)task->id, res,
			      (unsigned long long)task->predecessor);
	if (client->barrier && task->id > client->barrier)
		sim_violation("entry %llu completed before the BARRIER %llu",
			      (unsigned long long)task->id, (unsigned long long)client->barrier);
	for (unsigned int i = 0; task->kind == TASK_BARRIER && i < SLOTS; i++)
		if (client->tasks[i].kind != TASK_FREE && client->tasks[i].id < task->id)
			sim_violation("the BARRIER %llu completed before entry %llu",
				      (unsigned long long)task->id,
				      (unsigned long long)client->tasks[i].id);
}

/* Check the order of an entry that waits for others, and let those fail that wait for it. */
static void check_joins(struct client *client, const struct task *task, int res)
{
	for (unsigned int i = 0; res >= 0 && i < RBK_SQE_AFTER_MAX; i++)
		if (task->named[i] != 0 && task_of(client, task->named[i]))
			sim_violation("entry %llu completed before entry %llu, for which it waits",
				      (unsigned long long)task->id,
				      (unsigned long long)task->named[i]);
	for (unsigned int i = 0; res < 0 && i < SLOTS * RBK_SQE_AFTER_MAX; i++) {
		struct task *other = &client->tasks[i / RBK_SQE_AFTER_MAX];

		if (other->named[i % RBK_SQE_AFTER_MAX] == task->id)
			other->is_cancelled = other->must_fail = true;
	}
}

static void check_result(const struct client *client, const struct task *task)
{
	const struct state *state = &client->states[task->state];
	const bool is_state = task->plan == PLAN_STATE;
	const uint32_t *is = is_state ? state->words : task->out;
	const uint32_t *wanted = is_state ? state->expected : task->expected;

	if (task->is_void || task->is_overwritten)
		return;
	for (uint32_t i = 0; i < (is_state ? STATE_WORDS : task->n_rows * WIDTH); i++)
		if (is[i] != wanted[i])
			sim_violation("entry %llu: word %u of the %s is %08x instead of %08x",
				      (unsigned long long)task->id, i,
				      is_state ? "state" : "result", is[i], wanted[i]);
}

/* The rest of the chain of an entry that failed is cancelled. */
static void break_chain(struct client *client, const struct task *task)
{
	for (unsigned int i = 0; i < SLOTS; i++)
		if (client->tasks[i].predecessor == task->id)
			client->tasks[i].is_cancelled = client->tasks[i].must_fail = true;
}

/*
 * Check a failed RUN. A task that updates a state fails where its device is lost in the middle. A
 * broker's death in the middle is no reason: the next one knows the state as it was before.
 */
static void check_failure(struct client *client, struct task *task, int res)
{
	struct state *state = &client->states[task->state];

	if (client->options->is_strict && !(res == -ECANCELED && task->is_cancelled) &&
	    !task->may_fail && !task->is_void && !(task->plan == PLAN_STATE && res == -EIO) &&
	    !(res == -ECONNABORTED && client->options->has_crashes))
		sim_violation("entry %llu, a task of plan %d, completed with %d",
			      (unsigned long long)task->id, (int)task->plan, res);
	if (res == -ECANCELED)
		client_figures.n_cancelled++;
	else
		client_figures.n_failed++;
	break_chain(client, task);
	if (task->plan != PLAN_STATE || task->is_void)
		return;
	if (res == -ECANCELED && memcmp(state->words, task->old_state, sizeof(task->old_state)))
		sim_violation("entry %llu was cancelled, and has changed its state",
			      (unsigned long long)task->id);
	if (res == -ECONNRESET)
		client_figures.n_states_lost++;
	/* The state is the old one, the new one, or lost. */
	memcpy(state->expected, state->words, sizeof(state->expected));
}

/* Return true if a CANCEL in flight names the entry. */
static bool is_to_be_cancelled(const struct client *client, uint64_t id)
{
	for (unsigned int i = 0; i < SLOTS; i++)
		if (client->tasks[i].kind == TASK_CANCEL && client->tasks[i].target == id)
			return true;
	return false;
}

static noreturn void say_cancelled_by_none(uint64_t id)
{
	sim_violation("entry %llu was cancelled, and no CANCEL says so", (unsigned long long)id);
}

/*
 * A CANCEL that has completed with 0 has stopped its target, whichever completes first. One that
 * has failed has not; its slot is free already.
 */
static void check_cancel(struct client *client, uint64_t target, int res)
{
	struct task *task = task_of(client, target);

	if (client->options->is_strict && res != 0 && res != -ENOENT && res != -EALREADY &&
	    !(res == -ECONNABORTED && client->options->has_crashes))
		sim_violation("a CANCEL completed with %d", res);
	if (task && res == 0)
		task->must_fail = true;
	for (unsigned int i = 0; i < ENDED; i++) {
		struct ended *ended = &client->ended[i];

		if (ended->id != target)
			continue;
		if (res == 0 && ended->res >= 0)
			sim_violation("entry %llu has completed, and then was cancelled",
				      (unsigned long long)target);
		if (res == 0)
			ended->awaits_cancel = false;
		else if (ended->awaits_cancel && !is_to_be_cancelled(client, target))
			say_cancelled_by_none(target);
	}
}

/* Return true if a CANCEL that has not completed must have stopped the task. */
static bool awaits_cancel(const struct client *client, const struct task *task, int res)
{
	if (!client->options->is_strict || task->kind != TASK_RUN || res != -ECANCELED ||
	    task->must_fail || task->may_fail || task->is_void)
		return false;
	if (!is_to_be_cancelled(client, task->id))
		say_cancelled_by_none(task->id);
	return true;
}

/* Check an entry that does nothing but complete. */
static void check_bare(const struct client *client, const struct task *task, int res)
{
	if (res != 0 && client->options->is_strict && !task->is_cancelled &&
	    !(res == -ECONNABORTED && client->options->has_crashes))
		sim_violation("a %s completed with %d", task->kind == TASK_NOP ? "NOP" : "BARRIER",
			      res);
}

static void check_run(struct client *client, struct task *task, int res)
{
	if (task->plan == PLAN_STATE)
		client->states[task->state].is_busy = false;
	if (res == 0)
		check_result(client, task);
	else
		check_failure(client, task, res);
}

static void complete(struct client *client, const struct rbk_cqe *cqe)
{
	struct task *task = task_of(client, cqe->user_data);
	const bool is_cancel = task && task->kind == TASK_CANCEL;

	if (!task)
		sim_violation("a completion of entry %llu, which is not in flight",
			      (unsigned long long)cqe->user_data);
	sim_trace("entry %llu completes: %d", (unsigned long long)task->id, cqe->res);
	client_figures.n_completions++;
	check_joins(client, task, cqe->res);
	if (cqe->res != -ECONNABORTED || !client->options->has_crashes)
		check_order(client, task, cqe->res);
	if (cqe->res >= 0 && (task->must_fail || task->kind == TASK_INVALID))
		sim_violation("entry %llu has completed although it %s",
			      (unsigned long long)task->id,
			      task->must_fail ? "was cancelled" : "is invalid");
	if (cqe->res < 0 && (task->kind == TASK_INVALID || task->kind == TASK_NOP))
		break_chain(client, task);
	if (task->kind == TASK_RUN)
		check_run(client, task, cqe->res);
	else if (task->kind == TASK_NOP || task->kind == TASK_BARRIER)
		check_bare(client, task, cqe->res);
	else if (task->kind == TASK_STALE && cqe->res >= 0 && client->options->is_strict)
		sim_violation("entry %llu ran, with a plan that was removed",
			      (unsigned long long)task->id);
	client->ended[client->n_ended++ % ENDED] = (struct ended){
		task->id, cqe->res, task->index, awaits_cancel(client, task, cqe->res)};
	if (task->id == client->barrier)
		client->barrier = 0;
	if (task->predecessor)
		client_count_uses(client, task, -1);
	task->kind = TASK_FREE;
	client->n_in_flight--;
	if (is_cancel)
		check_cancel(client, task->target, cqe->res);
}

/* Complete the oldest @n entries. */
static void consume_batch(struct client *client, const struct rbk_cqe **cqes, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		complete(client, cqes[i]);
	rbk_cq_advance(client->ring, n);
}

/*
 * Look again and again, ever less often. Counts do not tell of a lost connection, so that they
 * alone are not enough. Return: as rbk_peek_batch_cqe(), but not 0.
 */
static int peek(struct client *client, const struct rbk_cqe **cqes)
{
	const uint64_t end_ns = sim_now_ns() + PATIENCE_NS;
	const bool counts = sim_below(2);
	int n;

	for (unsigned int i = 0;; i++) {
		n = counts && rbk_cq_ready(client->ring) == 0 && i % 8 < 7
			    ? 0
			    : rbk_peek_batch_cqe(client->ring, cqes, BATCH);
		if (n != 0)
			return n;
		if (sim_now_ns() >= end_ns)
			return -ETIME;
		client_sleep_ns(i < 16 ? 100000 : i < 64 ? 1000000 : 1000000000);
	}
}

/* Wait as an event loop does. Return: as rbk_wait_cqe_timeout(). */
static int wait_by_loop(struct client *client, const struct rbk_cqe **ret)
{
	struct pollfd poll_fd = {.fd = rbk_ring_fd(client->ring), .events = POLLIN};
	int r;

	if (poll_fd.fd < 0)
		return poll_fd.fd;
	for (;;) {
		r = rbk_peek_cqe(client->ring, ret);
		if (r != -EAGAIN)
			return r;
		r = rbk_ring_arm(client->ring);
		if (r < 0)
			return r;
		if (r == 0 && poll(&poll_fd, 1, (int)(PATIENCE_NS / 1000000)) == 0)
			return -ETIME;
	}
}

/* Wait in any of several ways. Return: the number of completions, or an error. */
static int wait_somehow(struct client *client, const struct rbk_cqe **cqes)
{
	int r;

	switch (sim_pick(client->options->mix.ways, SIM_WAYS)) {
	case SIM_PEEK:
		return peek(client, cqes);
	case SIM_LOOP:
		r = wait_by_loop(client, cqes);
		return r ? r : 1;
	case SIM_SUBMIT_AND_WAIT:
		r = rbk_submit_and_wait(client->ring, 1);
		return r < 0 ? r : peek(client, cqes);
	default:
		r = rbk_wait_cqe_timeout(client->ring, cqes, PATIENCE_NS);
		return r ? r : 1;
	}
}

/* The oldest entry tells most. */
static noreturn void say_stuck(const struct client *client)
{
	const struct task *oldest = NULL;

	for (unsigned int i = 0; i < SLOTS; i++)
		if (client->tasks[i].kind != TASK_FREE &&
		    (!oldest || client->tasks[i].id < oldest->id))
			oldest = &client->tasks[i];
	sim_violation("%u entries do not complete; the oldest, %llu, is of kind %d, with plan %d",
		      client->n_in_flight, oldest ? (unsigned long long)oldest->id : 0,
		      oldest ? (int)oldest->kind : 0, oldest ? (int)oldest->plan : 0);
}

/* Wait for a completion and check it. Return: false: the connection is lost. */
bool client_consume(struct client *client)
{
	const struct rbk_cqe *cqes[BATCH];
	int r;

	do {
		r = wait_somehow(client, cqes);
	} while (r == -EINTR);
	if (r == -ETIME)
		say_stuck(client);
	if (r < 0)
		return client_accept_error(client, "waiting", r, NULL);
	consume_batch(client, cqes, (unsigned int)r);
	return true;
}

/* Submit a NOP to the second ring, or wait for those in flight. */
bool client_use_second(struct client *client)
{
	const struct rbk_cqe *cqe;
	struct rbk_sqe *sqe;
	int r = 0;

	if (!client->second)
		return true;
	for (uint64_t n = sim_below(4); n > 0 && (sqe = rbk_get_sqe(client->second)); n--) {
		rbk_prep_nop(sqe);
		rbk_sqe_set_data64(sqe, client->n_second++);
	}
	r = rbk_submit(client->second);
	while (r >= 0 && client->n_second > 0 && sim_below(4)) {
		r = rbk_wait_cqe_timeout(client->second, &cqe, PATIENCE_NS);
		if (r == -ETIME)
			sim_violation("%u entries of the second ring do not complete",
				      client->n_second);
		if (r < 0)
			break;
		client->n_second--;
		rbk_cqe_seen(client->second, cqe);
	}
	return r >= 0 || client_accept_error(client, "the second ring", r, NULL);
}
