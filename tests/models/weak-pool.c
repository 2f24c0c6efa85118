/* SPDX-License-Identifier: MIT */
/*
 * broker/cpu: a worker sleeps while the reactor submits tasks, and is stopped at the end. Each task
 * is run and handed back, and the worker wakes up for it and for the stop. Its futex is replaced
 * below.
 */
#include <linux/futex.h>
#include <stdarg.h>
#include <string.h>

#include "models/weak-memory.h"
#include "models/weak-scenarios.h"
#include "util/waker.h"

/* For worker_main() */
#include "cpu/worker.c"

enum { N_TASKS = 1 };

static struct cpu_executor cpu;
static struct cpu_worker workers[2]; /* the worker, and the reactor's own */
static _Atomic(struct exec_task *) slots[2][N_TASKS];
static void *done_slots[N_TASKS];
static struct cpu_plan cpu_plan;
static struct plan plan;
static struct exec_task tasks[N_TASKS];
static struct weak_bell futex_bell;

/* The kernel checks the word and waits for a wake-up as one step; a wake-up in between is kept. */
long syscall(long number, ...)
{
	_Atomic uint32_t *word;
	uint32_t value;
	va_list list;
	int operation;

	va_start(list, number);
	word = va_arg(list, _Atomic uint32_t *);
	operation = va_arg(list, int);
	value = va_arg(list, uint32_t);
	va_end(list);
	weak_check(number == SYS_futex && word == &workers[0].asleep);
	if (operation == FUTEX_WAKE_PRIVATE) {
		weak_bell_ring(&futex_bell);
		return 1;
	}
	weak_bell_hear(&futex_bell, false);
	if (weak_futex_word(word) == value)
		weak_bell_hear(&futex_bell, true);
	return 0;
}

void cpu_flush_denormals(void)
{
}

static void set_up(void)
{
	memset(&cpu, 0, sizeof(cpu));
	memset(workers, 0, sizeof(workers));
	memset(slots, 0, sizeof(slots));
	futex_bell = (struct weak_bell){.is_futex = true};
	weak_waker_reset();
	plan = (struct plan){.exec = {&cpu_plan}};
	cpu.executor.waker = &weak_waker_object;
	cpu.workers = workers;
	cpu.n_workers = cpu.n_in_use = cpu.n_active = 1;
	cpu.max_tasks = N_TASKS;
	cpu.urgent = (struct cpu_queue){.slots = slots[1], .mask = N_TASKS - 1};
	workers[0].queue = (struct cpu_queue){.slots = slots[0], .mask = N_TASKS - 1};
	workers[0].done = (struct spsc){.slots = done_slots, .mask = N_TASKS - 1};
	for (unsigned int i = 0; i < 2; i++) {
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

static void react(void)
{
	for (unsigned int i = 0; i < N_TASKS; i++) {
		weak_check(cpu_pool_submit(&cpu.executor, &tasks[i]) == 0);
		cpu_pool_flush(&cpu.executor);
		take_back();
	}
	/* As cpu_free() */
	atomic_store_explicit(&cpu.stop, true, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	cpu_worker_rouse(&workers[0]);
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
	{&futex_bell, "futex"},
	{NULL, NULL},
};

const struct weak_scenario weak_pool = {
	.name = "pool",
	.n_threads = 2,
	.names = names,
	.set_up = set_up,
	.threads = {work, react},
};
