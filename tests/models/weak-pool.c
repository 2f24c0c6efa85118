/* SPDX-License-Identifier: MIT */
/*
 * broker/cpu: a worker sleeps while the reactor submits tasks, and is stopped at the end. Each task
 * is run and handed back, and the worker wakes up for it and for the stop. Then, of two workers,
 * the one that has the task is limited, and the other one, which sleeps, must learn of the task.
 * Last, a leader sleeps until both of its helpers have left. Their futexes are replaced below.
 */
#include <limits.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <string.h>

#include "models/weak-memory.h"
#include "models/weak-scenarios.h"
#include "util/waker.h"

/* For worker_main() */
#include "cpu/worker.c"

enum { N_TASKS = 1, MAX_WORKERS = 2 };

static struct cpu_executor cpu;
static struct cpu_worker workers[MAX_WORKERS + 1]; /* the workers, and the reactor's own */
static _Atomic(struct exec_task *) slots[MAX_WORKERS + 1][N_TASKS];
static void *done_slots[MAX_WORKERS][N_TASKS];
static struct cpu_plan cpu_plan;
static struct plan plan;
static struct exec_task tasks[N_TASKS];
static struct cpu_team *const team = &workers[0].layers[CPU_LAYER_BASE].team;
static uint32_t helped[2]; /* what the helpers compute */
/* Bells of the workers, and of the leader that waits for its helpers */
static struct weak_bell futex_bells[MAX_WORKERS + 1];

/* The kernel checks the word and waits for a wake-up as one step; a wake-up in between is kept. */
long syscall(long number, ...)
{
	_Atomic uint32_t *word;
	struct weak_bell *bell;
	uint32_t value;
	va_list list;
	int operation;

	va_start(list, number);
	word = va_arg(list, _Atomic uint32_t *);
	operation = va_arg(list, int);
	value = va_arg(list, uint32_t);
	va_end(list);
	weak_check(number == SYS_futex);
	bell = &futex_bells[word == &team->state ? MAX_WORKERS : word == &workers[1].asleep];
	weak_check(bell == &futex_bells[MAX_WORKERS] ||
		   word == &workers[bell - futex_bells].asleep);
	if (operation == FUTEX_WAKE_PRIVATE) {
		weak_bell_ring(bell);
		return 1;
	}
	weak_bell_hear(bell, false);
	if (weak_futex_word(word) == value)
		weak_bell_hear(bell, true);
	return 0;
}

void cpu_flush_denormals(void)
{
}

static void set_up_workers(unsigned int n)
{
	memset(&cpu, 0, sizeof(cpu));
	memset(workers, 0, sizeof(workers));
	memset(slots, 0, sizeof(slots));
	for (unsigned int i = 0; i <= MAX_WORKERS; i++)
		futex_bells[i] = (struct weak_bell){.is_futex = true};
	weak_waker_reset();
	plan = (struct plan){.exec = {&cpu_plan}};
	cpu.executor.waker = &weak_waker_object;
	cpu.workers = workers;
	cpu.n_workers = cpu.n_in_use = cpu.n_active = n;
	cpu.max_tasks = N_TASKS;
	cpu.urgent = (struct cpu_queue){.slots = slots[n], .mask = N_TASKS - 1};
	for (unsigned int i = 0; i < n; i++) {
		workers[i].queue = (struct cpu_queue){.slots = slots[i], .mask = N_TASKS - 1};
		workers[i].done = (struct spsc){.slots = done_slots[i], .mask = N_TASKS - 1};
	}
	for (unsigned int i = 0; i <= n; i++) {
		workers[i].cpu = &cpu;
		workers[i].index = i;
		workers[i].processor = -1;
		for (unsigned int k = 0; k < CPU_LAYERS; k++) {
			struct cpu_layer *layer = &workers[i].layers[k];

			layer->worker = &workers[i];
			layer->context.pause = &layer->pause;
			layer->pause = (struct cpu_pause){
				.n_waiting = &cpu_none_waiting,
				.state = &cpu_calm_state,
				.serve = cpu_worker_serve,
			};
		}
	}
	for (unsigned int i = 0; i < N_TASKS; i++)
		tasks[i] = (struct exec_task){.plan = &plan, .count = 1, .res = 1};
}

static void set_up(void)
{
	set_up_workers(1);
}

static void work(void)
{
	worker_main(&workers[0]);
}

/* Take back a task; sleep until there is one. */
static void take_back(void)
{
	struct exec_task *task;

	while (cpu_pool_reap(&cpu.executor, &task, 1) == 0) {
		waker_arm(&weak_waker_object);
		if (cpu_pool_reap(&cpu.executor, &task, 1) > 0) {
			waker_disarm(&weak_waker_object);
			break;
		}
		weak_waker_sleep();
		waker_disarm(&weak_waker_object);
	}
	weak_check(task->res == 0);
}

/* As cpu_free() */
static void stop(void)
{
	atomic_store_explicit(&cpu.stop, true, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned int i = 0; i < cpu.n_workers; i++)
		cpu_worker_rouse(&workers[i]);
}

static void react(void)
{
	for (unsigned int i = 0; i < N_TASKS; i++) {
		weak_check(cpu_pool_submit(&cpu.executor, &tasks[i]) == 0);
		cpu_pool_flush(&cpu.executor);
		take_back();
	}
	stop();
}

/* --- A worker that is limited --- */

/* The first worker sleeps, and the second one has found nothing yet. */
static void set_up_limited(void)
{
	set_up_workers(2);
	workers[0].asleep = 1;
	cpu.n_sleeping = cpu.n_looking = 1;
	/* The task is for the worker that is limited next. */
	cpu.next_worker = 1;
}

/* As worker_sleep(); whatever wakes the worker, it looks for work then. */
static void sleep_first(void)
{
	while (atomic_load_explicit(&workers[0].asleep, memory_order_acquire) == 1)
		futex_wait(&workers[0].asleep, 1);
	stop();
}

/* As worker_main() of a worker that does not spin; finding the task ends all. */
static void work_limited(void)
{
	while (!atomic_load_explicit(&cpu.stop, memory_order_relaxed)) {
		if (!cpu_worker_is_limited(&workers[1]) &&
		    cpu_queue_length(&workers[1].queue) > 0) {
			stop();
			return;
		}
		worker_sleep(&workers[1]);
	}
}

static void submit_and_limit(void)
{
	weak_check(cpu_pool_submit(&cpu.executor, &tasks[0]) == 0);
	cpu_pool_flush(&cpu.executor);
	cpu_executor_limit(&cpu.executor, 1, false);
}

/* --- A leader that waits for its helpers --- */

static void set_up_team(void)
{
	set_up_workers(2);
	memset(helped, 0, sizeof(helped));
	team->state = 2;
}

/* As team_end(), without spins, and without the limit of the sleep */
static void wait_for_helpers(void)
{
	while (cpu_team_has_helpers(team))
		cpu_team_wait(&workers[0], team, UINT_MAX);
	weak_check(helped[0] == 1 && helped[1] == 1);
}

static void help_first(void)
{
	helped[0] = 1;
	cpu_team_leave(team);
}

static void help_second(void)
{
	helped[1] = 1;
	cpu_team_leave(team);
}

static const struct weak_name names[] = {
	{&workers[0].asleep, "asleep"},
	{&workers[0].queue.tail, "queue's tail"},
	{&workers[0].queue.head, "queue's head"},
	{&workers[0].done.tail, "done's tail"},
	{&cpu.n_looking, "n_looking"},
	{&cpu.n_sleeping, "n_sleeping"},
	{&cpu.n_active, "n_active"},
	{&cpu.stop, "stop"},
	{&tasks[0].state, "state"},
	{&weak_waker_object.armed, "armed"},
	{&weak_eventfd, "eventfd"},
	{&futex_bells[0], "futex"},
	{&workers[1].asleep, "asleep of the second"},
	{&workers[1].queue.tail, "queue's tail of the second"},
	{&workers[1].queue.head, "queue's head of the second"},
	{&futex_bells[1], "futex of the second"},
	{&workers[0].layers[CPU_LAYER_BASE].team.state, "team's state"},
	{&futex_bells[MAX_WORKERS], "futex of the leader"},
	{&helped[0], "helped by the first"},
	{&helped[1], "helped by the second"},
	{NULL, NULL},
};

const struct weak_scenario weak_pool = {
	.name = "pool",
	.n_threads = 2,
	.names = names,
	.set_up = set_up,
	.threads = {work, react},
};

const struct weak_scenario weak_pool_limited = {
	.name = "pool-limited",
	.n_threads = 3,
	.names = names,
	.set_up = set_up_limited,
	.threads = {sleep_first, work_limited, submit_and_limit},
};

const struct weak_scenario weak_pool_team = {
	.name = "pool-team",
	.n_threads = 3,
	.names = names,
	.set_up = set_up_team,
	.threads = {wait_for_helpers, help_first, help_second},
};
