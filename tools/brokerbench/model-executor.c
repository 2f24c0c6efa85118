/* SPDX-License-Identifier: MIT */
/*
 * A device that takes time and computes nothing: see model-executor.h.
 *
 * Tasks run one after the other in a thread, which sleeps until the absolute end time of each task,
 * so that late wake-ups do not accumulate. Loads sleep likewise on the setup thread. These two
 * threads and the callers of model_executor_set_outside() share the list of loaded plans, which a
 * lock protects, and each plan's time of use and mark of being moved out, which are atomic.
 */
#include "model-executor.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "util/checked.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/spsc.h"
#include "util/waker.h"

enum {
	QUEUE_TASKS = 256,
	PAGE_BYTES = 4096,
	ALIGN_BYTES = 256,
	LOAD_PART_NS = 4000000,
};

/* A plan in the device's memory, pointed to by plan->exec[] */
struct model_load {
	struct list_node link;
	uint64_t bytes;
	_Atomic uint64_t used_ns;
	atomic_bool is_moved_out;
};

struct model_executor {
	struct executor executor;
	struct model_options options;
	struct spsc todo, done;
	uint32_t n_held; /* tasks submitted and not reaped; used by the reactor */
	pthread_t thread;
	bool has_thread;
	sem_t wake;
	atomic_bool is_stopping;

	uint64_t bus_free_ns; /* time at which the bus is free; used by the setup thread */
	_Atomic uint64_t moved_bytes;

	pthread_mutex_t lock;
	struct list_node loads;
	uint64_t outside_bytes;
};

static struct model_executor *model_of(struct executor *executor)
{
	return container_of(executor, struct model_executor, executor);
}

/*
 * Sleep for the transfer of @bytes at a rate, after the transfers before it.
 * Return: the time of its end.
 */
static uint64_t sleep_for(uint64_t *free_ns, uint64_t bytes, uint64_t bytes_per_s)
{
	uint64_t now_ns = clock_now_ns();
	struct timespec time;

	if (*free_ns < now_ns)
		*free_ns = now_ns;
	*free_ns += (uint64_t)((double)bytes * 1e9 / (double)bytes_per_s);
	time.tv_sec = (time_t)(*free_ns / 1000000000u);
	time.tv_nsec = (long)(*free_ns % 1000000000u);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
		;
	return *free_ns;
}

static uint64_t constant_bytes(const struct plan *plan)
{
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < plan->n_constants; i++)
		bytes += plan->constants[i].bytes;
	return bytes;
}

/* ---- Plans ---- */

static void arena_nothing(struct executor *executor, struct exec_arena *arena)
{
}

static int plan_prepare(struct executor *executor, struct plan *plan)
{
	const struct model_executor *model = model_of(executor);

	plan->footprint[executor->index] = (struct exec_footprint){.max_slots = 1};
	plan->device_state[executor->index] =
		model->options.memory_bytes ? PLAN_DEVICE_EVICTED : PLAN_DEVICE_READY;
	return 0;
}

static void plan_release(struct executor *executor, struct plan *plan)
{
}

/* ---- Memory ---- */

/* Move plans out until the rest fits beside the other programs' memory. Call with the lock. */
static void move_out(struct model_executor *model)
{
	for (;;) {
		struct model_load *oldest = NULL;
		uint64_t bytes = model->outside_bytes;

		list_for_each (node, &model->loads) {
			struct model_load *load = container_of(node, struct model_load, link);

			if (atomic_load(&load->is_moved_out))
				continue;
			bytes += load->bytes;
			if (!oldest || atomic_load(&load->used_ns) < atomic_load(&oldest->used_ns))
				oldest = load;
		}
		if (!oldest || bytes <= model->options.memory_bytes)
			return;
		atomic_store(&oldest->is_moved_out, true);
	}
}

static int block_load(struct executor *executor, struct exec_block *block)
{
	struct model_executor *model = model_of(executor);
	uint64_t bytes = model->options.bus_bytes_per_s * LOAD_PART_NS / 1000000000u;

	if (atomic_load(&block->is_cancelled)) {
		block->memory = NULL;
		return EXECUTOR_E_CANCELLED;
	}
	block->memory = model;
	if (bytes > block->bytes - block->loaded_bytes)
		bytes = block->bytes - block->loaded_bytes;
	sleep_for(&model->bus_free_ns, bytes, model->options.bus_bytes_per_s);
	block->loaded_bytes += bytes;
	atomic_fetch_add(&model->moved_bytes, bytes);
	return block->loaded_bytes < block->bytes ? EXECUTOR_E_MORE : 0;
}

static void block_unload(struct executor *executor, struct exec_block *block)
{
	block->memory = NULL;
}

static int plan_load(struct executor *executor, struct plan *plan, const struct exec_load *exec)
{
	struct model_executor *model = model_of(executor);
	struct model_load *load = calloc(1, sizeof(*load));

	if (!load)
		return -ENOMEM;
	load->bytes = constant_bytes(plan);
	atomic_store(&load->used_ns, clock_now_ns());
	plan->exec[executor->index] = load;
	pthread_mutex_lock(&model->lock);
	list_append(&model->loads, &load->link);
	move_out(model);
	pthread_mutex_unlock(&model->lock);
	return 0;
}

static void plan_unload(struct executor *executor, struct plan *plan)
{
	struct model_executor *model = model_of(executor);
	struct model_load *load = plan->exec[executor->index];

	if (!load)
		return;
	pthread_mutex_lock(&model->lock);
	list_remove(&load->link);
	pthread_mutex_unlock(&model->lock);
	free(load);
	plan->exec[executor->index] = NULL;
}

void model_executor_set_outside(struct executor *executor, uint64_t bytes)
{
	struct model_executor *model = model_of(executor);

	pthread_mutex_lock(&model->lock);
	model->outside_bytes = bytes;
	move_out(model);
	pthread_mutex_unlock(&model->lock);
}

uint64_t model_executor_moved_bytes(const struct executor *executor)
{
	return atomic_load(
		&container_of(executor, const struct model_executor, executor)->moved_bytes);
}

static int reopen(struct executor *executor)
{
	return 0;
}

static bool is_lost(struct executor *executor)
{
	return false;
}

/* ---- Tasks ---- */

static void run_task(struct model_executor *model, struct exec_task *task, uint64_t *free_ns)
{
	struct model_load *load = task->plan->exec[model->executor.index];
	uint64_t bytes_per_s = model->options.read_bytes_per_s;

	if (!exec_task_begin(task)) {
		task->res = -ECANCELED;
		return;
	}
	task->start_ticks = clock_ticks();
	if (load) {
		atomic_store(&load->used_ns, clock_now_ns());
		if (atomic_load(&load->is_moved_out))
			bytes_per_s = model->options.bus_bytes_per_s;
	}
	sleep_for(free_ns, constant_bytes(task->plan), bytes_per_s);
	task->end_ticks = clock_ticks();
	task->res = 0;
}

static void *run_thread(void *data)
{
	struct model_executor *model = data;
	struct exec_task *task;
	uint64_t free_ns = 0;

	/* The default timer slack would add 50 us to each sleep. */
	prctl(PR_SET_TIMERSLACK, 1);
	for (;;) {
		while (sem_wait(&model->wake) < 0)
			;
		while ((task = spsc_pop(&model->todo))) {
			run_task(model, task, &free_ns);
			spsc_push(&model->done, task);
			waker_ring(model->executor.waker);
		}
		if (atomic_load(&model->is_stopping))
			return NULL;
	}
}

static int submit(struct executor *executor, struct exec_task *task)
{
	struct model_executor *model = model_of(executor);

	if (model->n_held == QUEUE_TASKS)
		return EXECUTOR_E_BUSY;
	model->n_held++;
	spsc_push(&model->todo, task);
	return 0;
}

static void flush(struct executor *executor)
{
	sem_post(&model_of(executor)->wake);
}

/* Complete a task at once. Used without a thread where tasks take no time. */
static int submit_at_once(struct executor *executor, struct exec_task *task)
{
	struct model_executor *model = model_of(executor);

	if (model->n_held == QUEUE_TASKS)
		return EXECUTOR_E_BUSY;
	model->n_held++;
	task->res = exec_task_begin(task) ? 0 : -ECANCELED;
	task->start_ticks = task->end_ticks = clock_ticks();
	spsc_push(&model->done, task);
	return 0;
}

static void flush_nothing(struct executor *executor)
{
}

static unsigned int reap(struct executor *executor, struct exec_task **ret, unsigned int max)
{
	struct model_executor *model = model_of(executor);
	unsigned int n = 0;

	while (n < max && (ret[n] = spsc_pop(&model->done)))
		n++;
	model->n_held -= n;
	return n;
}

/* ---- Making and freeing ---- */

static struct executor *model_free(struct executor *executor)
{
	struct model_executor *model = model_of(executor);

	if (model->has_thread) {
		atomic_store(&model->is_stopping, true);
		sem_post(&model->wake);
		pthread_join(model->thread, NULL);
	}
	assert(list_is_empty(&model->loads));
	sem_destroy(&model->wake);
	pthread_mutex_destroy(&model->lock);
	spsc_deinit(&model->todo);
	spsc_deinit(&model->done);
	free(model);
	return NULL;
}

#define MODEL_OPS(submit_fn, flush_fn)                                                          \
	{                                                                                       \
		.arena_import = arena_nothing, .arena_release = arena_nothing,                  \
		.plan_prepare = plan_prepare, .plan_release = plan_release,                     \
		.block_load = block_load, .block_unload = block_unload, .plan_load = plan_load, \
		.plan_unload = plan_unload, .reopen = reopen, .is_lost = is_lost,               \
		.submit = submit_fn, .flush = flush_fn, .reap = reap, .free = model_free,       \
	}
static const struct executor_ops timed_ops = MODEL_OPS(submit, flush);
static const struct executor_ops instant_ops = MODEL_OPS(submit_at_once, flush_nothing);

int model_executor_new(const struct model_options *options, struct executor **ret)
{
	bool is_timed = options->read_bytes_per_s > 0;
	struct model_executor *model = calloc(1, sizeof(*model));
	int r;

	if (!model)
		return -ENOMEM;
	model->options = *options;
	model->executor = (struct executor){
		.ops = is_timed ? &timed_ops : &instant_ops,
		.index = options->index,
		.waker = options->waker,
		.info = {.kind = options->index == RBK_DEVICE_CPU ? EXECUTOR_CPU : EXECUTOR_GPU,
			 .name = options->name,
			 .driver = "model",
			 .paths = "",
			 .memory_bytes = options->memory_bytes,
			 .memory_page_bytes = options->memory_bytes ? PAGE_BYTES : 0,
			 .memory_align_bytes = options->memory_bytes ? ALIGN_BYTES : 0},
	};
	list_init(&model->loads);
	pthread_mutex_init(&model->lock, NULL);
	sem_init(&model->wake, 0, 0);
	if (!spsc_init(&model->todo, QUEUE_TASKS) || !spsc_init(&model->done, QUEUE_TASKS)) {
		model_free(&model->executor);
		return -ENOMEM;
	}
	if (is_timed) {
		r = pthread_create(&model->thread, NULL, run_thread, model);
		if (r) {
			model_free(&model->executor);
			return -r;
		}
		model->has_thread = true;
	}
	*ret = &model->executor;
	return 0;
}
