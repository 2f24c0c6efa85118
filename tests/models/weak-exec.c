/* SPDX-License-Identifier: MIT */
/*
 * plan/executor.h: a task is cancelled or stopped by the reactor while an executor begins, runs and
 * ends it. It is handed back once, by way of a queue, and its result is that which the reactor told
 * its client.
 */
#include "models/weak-scenarios.h"
#include "models/weak-memory.h"
#include "plan/executor.h"
#include "util/spsc.h"

static void *slots[1];
static struct spsc done;
static struct exec_task task;
static bool is_told; /* the reactor's: a CANCEL has succeeded */

unsigned int weak_exec_results;

static void set_up(void)
{
	done = (struct spsc){.mask = 0, .slots = slots};
	task = (struct exec_task){.state = EXEC_QUEUED, .res = 1};
	is_told = false;
}

/* The executor cannot stop a task that has begun. */
static void execute(void)
{
	task.res = exec_task_begin(&task) ? 0 : -1;
	weak_check(spsc_push(&done, &task));
}

/* The executor can stop a task, which it runs in two pieces. */
static void execute_pieces(void)
{
	bool is_stopped = false;

	if (!exec_task_begin(&task)) {
		task.res = -1;
	} else {
		is_stopped =
			atomic_load_explicit(&task.state, memory_order_relaxed) != EXEC_RUNNING;
		task.has_progress = is_stopped;
		task.res = !exec_task_end(&task) ? -1 : is_stopped ? EXEC_UNFINISHED : 0;
	}
	weak_check(spsc_push(&done, &task));
}

static bool withdraw(void)
{
	uint8_t expected = EXEC_QUEUED;

	return atomic_compare_exchange_strong_explicit(&task.state, &expected, EXEC_CANCELLED,
						       memory_order_acq_rel, memory_order_relaxed);
}

static void take_back(void)
{
	while (!spsc_pop(&done))
		weak_wait_for_news();
	weak_check(!spsc_pop(&done));
}

static void cancel(void)
{
	is_told = withdraw();
	take_back();
	weak_check(task.res == (is_told ? -1 : 0));
	weak_exec_results |= 1u << (task.res + 1);
}

static void stop_and_cancel(void)
{
	const bool is_stopped = exec_task_stop(&task, EXEC_STOPPING);

	is_told = withdraw() || exec_task_stop(&task, EXEC_CANCELLED);
	take_back();
	weak_check(is_told == (task.res == -1));
	/* A task that is to stop may end before it sees that. */
	weak_check(task.res != EXEC_UNFINISHED || is_stopped);
	weak_exec_results |= 1u << (task.res + 1);
}

static const struct weak_name names[] = {
	{&task.state, "state"}, {&done.tail, "tail"}, {&done.head, "head"}, {NULL, NULL}};

const struct weak_scenario weak_cancel = {
	.name = "cancel",
	.n_threads = 2,
	.names = names,
	.set_up = set_up,
	.threads = {execute, cancel},
};

const struct weak_scenario weak_stop = {
	.name = "stop",
	.n_threads = 2,
	.names = names,
	.set_up = set_up,
	.threads = {execute_pieces, stop_and_cancel},
};
