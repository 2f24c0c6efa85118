/* SPDX-License-Identifier: MIT */
/*
 * A device for tests: see test-device.h
 *
 * A task begins when it is submitted or when the task before it ends. The thread sleeps until the
 * absolute time at which the task ends: a late wake-up delays this task, but not the next ones. The
 * thread costs a processor no more than a real device's queue thread.
 */
#include "daemon/test-device.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "util/checked.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/number.h"
#include "util/spsc.h"
#include "util/thread.h"
#include "util/waker.h"

struct test_device {
	struct executor executor;
	struct place_profile profile;
	struct test_device_options options;
	_Atomic uint64_t used_bytes; /* of memory, by the setup thread */
	struct spsc todo, done;      /* executor_private[0] of a task: time of submission in ns */
	/* Reactor: tasks submitted and not reaped; tasks submitted since the last flush(). */
	uint32_t n_held, n_unstarted;
	pthread_t thread;
	bool has_thread;
	sem_t wake;
	atomic_bool is_stopping;
};

static struct test_device *device_of(struct executor *executor)
{
	return container_of(executor, struct test_device, executor);
}

/* ---- Functions without effect: the device needs no arenas or plans ---- */

static void arena_nothing(struct executor *executor, struct exec_arena *arena)
{
}

static void plan_release(struct executor *executor, struct plan *plan)
{
}

static int reopen(struct executor *executor)
{
	return 0;
}

static bool is_lost(struct executor *executor)
{
	return false;
}

static void sleep_until(uint64_t at_ns)
{
	const struct timespec time = {
		.tv_sec = (time_t)(at_ns / 1000000000u),
		.tv_nsec = (long)(at_ns % 1000000000u),
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
		;
}

/* ---- Memory, which is only counted ---- */

static int plan_prepare(struct executor *executor, struct plan *plan)
{
	const bool has_memory = executor->info.memory_page_bytes > 0;

	plan->footprint[executor->index] = (struct exec_footprint){
		.slot_device_bytes = has_memory ? plan->scratch_bytes : 0,
		.max_slots = 1,
	};
	plan->device_state[executor->index] = has_memory ? PLAN_DEVICE_EVICTED : PLAN_DEVICE_READY;
	return 0;
}

/* Sleep while a part of the block comes over the link. Return: true if a part is left. */
static bool load_some(struct exec_block *block, uint32_t link_bytes_per_us)
{
	enum { PART_US = 1000 };
	const uint64_t left = block->bytes - block->loaded_bytes;
	const uint64_t bytes = min_u64(left, (uint64_t)PART_US * link_bytes_per_us);

	if (link_bytes_per_us == 0)
		return false;
	sleep_until(clock_now_ns() + bytes * 1000 / link_bytes_per_us);
	block->loaded_bytes += bytes;
	return block->loaded_bytes < block->bytes;
}

static int block_load(struct executor *executor, struct exec_block *block)
{
	struct test_device *device = device_of(executor);

	if (atomic_load(&block->is_cancelled))
		return EXECUTOR_E_CANCELLED;
	if (load_some(block, device->options.link_bytes_per_us))
		return EXECUTOR_E_MORE;
	device->used_bytes += block->bytes;
	block->memory = device;
	block->loaded_bytes = block->bytes;
	return 0;
}

static void block_unload(struct executor *executor, struct exec_block *block)
{
	if (!block->memory)
		return;
	device_of(executor)->used_bytes -= block->bytes;
	block->memory = NULL;
}

/* Return the bytes of a loaded plan's working memory. */
static uint64_t loaded_bytes(const struct executor *executor, const struct plan *plan)
{
	return (uintptr_t)plan->exec[executor->index];
}

static int plan_load(struct executor *executor, struct plan *plan, const struct exec_load *load)
{
	const uint64_t bytes = exec_footprint_device_bytes(&plan->footprint[executor->index],
							   &executor->info, load->n_slots);

	device_of(executor)->used_bytes += bytes;
	plan->exec[executor->index] = (void *)(uintptr_t)bytes;
	return 0;
}

static void plan_unload(struct executor *executor, struct plan *plan)
{
	device_of(executor)->used_bytes -= loaded_bytes(executor, plan);
	plan->exec[executor->index] = NULL;
}

static uint64_t memory_used(struct executor *executor, enum exec_tier tier)
{
	return tier == EXEC_TIER_VRAM ? device_of(executor)->used_bytes : 0;
}

/* ---- Tasks ---- */

static uint64_t duration_ns(const struct test_device_options *options, const struct exec_task *task)
{
	const struct cost *cost = &task->plan->cost;
	uint64_t ns = options->latency_ns + task->count * options->row_ns;

	if (options->flops_per_ns > 0)
		ns += (cost->flops_fixed + cost->flops_row * task->count) / options->flops_per_ns;
	return ns;
}

/* @free_ns: end of the task before; set to the end of this task. */
static void run_task(const struct test_device *device, struct exec_task *task, uint64_t *free_ns)
{
	const uint64_t takes_ns = duration_ns(&device->options, task);
	uint64_t begin_ns = (uint64_t)(uintptr_t)task->executor_private[0], late_ns;

	task->start_ticks = task->end_ticks = clock_ticks();
	if (!exec_task_begin(task)) {
		task->res = -ECANCELED;
		return;
	}
	if (begin_ns < *free_ns)
		begin_ns = *free_ns;
	*free_ns = begin_ns + takes_ns;
	sleep_until(*free_ns);
	/* For tests of a driver that crashes */
	if (strcmp(task->plan->name, "crash") == 0)
		abort();
	/* The wake-up is not a part of the device's work. */
	late_ns = clock_now_ns() - *free_ns;
	task->end_ticks = clock_ticks() - clock_ns_to_ticks(late_ns);
	task->start_ticks = task->end_ticks - clock_ns_to_ticks(takes_ns);
	task->res = 0;
}

static void *run_thread(void *data)
{
	const struct sched_param param = {.sched_priority = 1};
	struct test_device *device = data;
	struct exec_task *task;
	uint64_t free_ns = 0;

	/* By default, threads sleep up to 50 us longer. */
	prctl(PR_SET_TIMERSLACK, 1);
	/*
	 * The thread stands for hardware, which waits for no processor. Without the privilege it
	 * does wait.
	 */
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &param);
	for (;;) {
		while (sem_wait(&device->wake) < 0)
			;
		while ((task = spsc_pop(&device->todo))) {
			run_task(device, task, &free_ns);
			spsc_push(&device->done, task);
			waker_ring(device->executor.waker);
		}
		if (atomic_load(&device->is_stopping))
			return NULL;
	}
}

static int submit(struct executor *executor, struct exec_task *task)
{
	struct test_device *device = device_of(executor);

	if (device->n_held == TEST_DEVICE_QUEUE)
		return EXECUTOR_E_BUSY;
	device->n_held++;
	device->n_unstarted++;
	task->executor_private[0] = (void *)(uintptr_t)clock_now_ns();
	spsc_push(&device->todo, task);
	return 0;
}

static void flush(struct executor *executor)
{
	struct test_device *device = device_of(executor);

	if (device->n_unstarted > 0)
		sem_post(&device->wake);
	device->n_unstarted = 0;
}

static unsigned int reap(struct executor *executor, struct exec_task **ret, unsigned int max)
{
	struct test_device *device = device_of(executor);
	unsigned int n = 0;

	while (n < max && (ret[n] = spsc_pop(&device->done)))
		n++;
	device->n_held -= n;
	return n;
}

/* ---- Start and stop ---- */

static struct executor *device_free(struct executor *executor)
{
	struct test_device *device = device_of(executor);

	if (device->has_thread) {
		atomic_store(&device->is_stopping, true);
		sem_post(&device->wake);
		pthread_join(device->thread, NULL);
	}
	sem_destroy(&device->wake);
	spsc_deinit(&device->todo);
	spsc_deinit(&device->done);
	free(device);
	return NULL;
}

static const struct executor_ops ops = {
	.arena_import = arena_nothing,
	.arena_release = arena_nothing,
	.plan_prepare = plan_prepare,
	.plan_release = plan_release,
	.block_load = block_load,
	.block_unload = block_unload,
	.plan_load = plan_load,
	.plan_unload = plan_unload,
	.memory_used = memory_used,
	.reopen = reopen,
	.is_lost = is_lost,
	.submit = submit,
	.flush = flush,
	.reap = reap,
	.free = device_free,
};

/* Describe a device on which bytes take no time, however many there are. */
static void describe(struct place_profile *profile, const struct test_device_options *options)
{
	const float flops_per_ns =
		options->flops_per_ns > 0 ? (float)options->flops_per_ns : PLACE_MAX_RATE;

	*profile = (struct place_profile){
		.name = "test device",
		.source = "test device",
		.is_valid = true,
		.n_servers = 1,
		.n_servers_per_task = 1,
		.task_ns = (float)options->latency_ns,
		.memory_bytes = options->memory_bytes,
	};
	for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++)
		for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++)
			profile->rates[i][k] = (struct place_rate){flops_per_ns, PLACE_MAX_RATE};
}

int test_device_new(const struct test_device_options *options, struct waker *waker,
		    struct executor **ret)
{
	enum { PAGE_BYTES = 4096 };
	struct test_device *device = calloc(1, sizeof(*device));
	int r;

	if (!device)
		return error_origin(-ENOMEM);
	device->options = *options;
	device->executor = (struct executor){
		.ops = &ops,
		.waker = waker,
		.info = {.kind = EXECUTOR_GPU,
			 .name = "test device",
			 .driver = "none",
			 .paths = "computes nothing",
			 .memory_bytes = options->memory_bytes,
			 .memory_page_bytes = options->memory_bytes ? PAGE_BYTES : 0,
			 .memory_align_bytes = PLAN_SCRATCH_ALIGN},
	};
	describe(&device->profile, options);
	sem_init(&device->wake, 0, 0);
	if (!spsc_init(&device->todo, TEST_DEVICE_QUEUE) ||
	    !spsc_init(&device->done, TEST_DEVICE_QUEUE)) {
		device_free(&device->executor);
		return error_origin(-ENOMEM);
	}
	r = thread_start(&device->thread, "rb-test-device", run_thread, device);
	if (r) {
		device_free(&device->executor);
		return error_fold(r);
	}
	device->has_thread = true;
	*ret = &device->executor;
	return 0;
}

const struct place_profile *test_device_profile(const struct executor *executor)
{
	return &container_of(executor, const struct test_device, executor)->profile;
}
