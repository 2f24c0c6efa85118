/* SPDX-License-Identifier: MIT */
/*
 * Measuring a device before clients are served
 *
 * Everything happens on the calling thread, which is the executors' reactor and setup thread in
 * one. The setup of a probe consists of making the plan, compiling, and a first run in which some
 * drivers compile again. It may take far longer than the runs that are timed. So the setup is
 * timed, too, and no probe begins that would end late if its setup took as long as the longest so
 * far.
 */
#include "calibrate/calibrate.h"

#include <errno.h>
#include <math.h>
#include <poll.h>

#include "util/clock.h"
#include "util/error.h"
#include "util/waker.h"

enum {
	START_CLASS = 3,        /* probes up to this class are measured at the start */
	START_MEMORY_CLASS = 4, /* and addition up to this one, beyond most caches */
	/* lavapipe has LLVM compile at the first dispatch. */
	SOFTWARE_SETUP_NS = 60000000,
};

/* ---- The world ---- */

static uint64_t real_now_ns(void *context)
{
	return clock_now_ns();
}

static void run_part(struct waker *waker, struct executor *executor, struct exec_task *task)
{
	struct pollfd pollfd = {.fd = waker->fd, .events = POLLIN};
	struct exec_task *done;

	task->start_ticks = task->end_ticks = task->busy_ticks = 0;
	atomic_store_explicit(&task->state, EXEC_QUEUED, memory_order_relaxed);
	if (executor->ops->submit(executor, task)) {
		task->res = -EIO;
		return;
	}
	executor->ops->flush(executor);
	for (;;) {
		waker_arm(waker);
		if (executor->ops->reap(executor, &done, 1) == 1)
			break;
		poll(&pollfd, 1, -1);
		waker_disarm(waker);
	}
	waker_disarm(waker);
}

static int real_run(void *context, struct executor *executor, struct exec_task *task,
		    uint64_t *ret_exec_ns, uint64_t *ret_busy_ns)
{
	const unsigned int n_parts = task->plan->n_parts[executor->index];
	uint64_t exec_ns;

	*ret_exec_ns = *ret_busy_ns = 0;
	task->part = 0;
	do {
		run_part(context, executor, task);
		exec_ns = clock_elapsed_ns(task->start_ticks, task->end_ticks);
		*ret_exec_ns += exec_ns;
		*ret_busy_ns += task->busy_ticks ? clock_ticks_to_ns(task->busy_ticks) : exec_ns;
	} while (task->res == 0 && ++task->part < n_parts);
	return task->res;
}

struct calibrate_world calibrate_world_real(struct waker *waker)
{
	return (struct calibrate_world){.now_ns = real_now_ns, .run = real_run, .context = waker};
}

/* ---- Measuring ---- */

struct measure {
	const struct calibrate_world *world;
	struct calibrate_bench bench;
	struct calibrate_samples *samples;
	uint64_t end_ns;
	uint64_t setup_ns; /* longest time before the counted runs of a probe */
};

static uint64_t now_ns(const struct measure *measure)
{
	return measure->world->now_ns(measure->world->context);
}

static bool is_for_start(unsigned int index)
{
	struct calibrate_probe probe = calibrate_probe(index);

	return probe.size_class <= START_CLASS ||
	       (probe.family == OP_FAMILY_ELEMENTWISE && probe.size_class <= START_MEMORY_CLASS);
}

/* Return true if there is time for a probe, judging by earlier ones. */
static bool has_time(const struct measure *measure, unsigned int probe)
{
	double expected_ns = 4 * calibrate_expected_ns(measure->samples, probe);
	uint64_t now = now_ns(measure);

	return now < measure->end_ns &&
	       (double)measure->setup_ns + expected_ns <= (double)(measure->end_ns - now);
}

static int run_once(struct measure *measure, uint64_t *ret_exec_ns, uint64_t *ret_busy_ns)
{
	int res = measure->world->run(measure->world->context, measure->bench.executor,
				      &measure->bench.task, ret_exec_ns, ret_busy_ns);

	/* No cause but the device: the task is not cancelled, and lacks nothing. */
	return res ? error_origin(-EIO) : 0;
}

/* Run the probe on the bench until its best run can be believed, or time is up. */
static int measure_runs(struct measure *measure, uint64_t begin_ns, struct calibrate_runs *runs)
{
	uint64_t exec_ns, busy_ns, setup_ns;
	bool is_more = true;
	int r;

	while (is_more) {
		r = run_once(measure, &exec_ns, &busy_ns);
		if (r)
			return error_fold(r);
		is_more = calibrate_runs_add(runs, exec_ns, busy_ns);
		setup_ns = now_ns(measure) - begin_ns;
		if (runs->n == 1 && setup_ns > measure->setup_ns)
			measure->setup_ns = setup_ns;
		if (now_ns(measure) >= measure->end_ns)
			break;
	}
	return 0;
}

/*
 * Measure a probe.
 * Return: 0, also if the device cannot or there was no time; -EIO; -ENOMEM.
 */
static int measure_probe(struct measure *measure, unsigned int probe)
{
	struct calibrate_runs runs = {.n = 0};
	uint64_t begin_ns = now_ns(measure);
	int r;

	r = calibrate_bench_prepare(&measure->bench, probe);
	if (r)
		return r == EXECUTOR_E_UNSUPPORTED ? 0 : error_fold(r);
	r = calibrate_bench_load(&measure->bench);
	if (r == 0)
		r = measure_runs(measure, begin_ns, &runs);
	else if (r == EXECUTOR_E_NO_MEMORY)
		r = 0;
	if (r == 0 && runs.n > 1) {
		runs.best.work = measure->bench.work;
		measure->samples->of[probe] = runs.best;
		measure->samples->measured |= 1ull << probe;
	}
	calibrate_bench_clear(&measure->bench);
	return r ? error_fold(r) : 0;
}

int calibrate_measure(const struct calibrate_world *world, struct executor *executor,
		      uint64_t end_ns, struct calibrate_samples *samples)
{
	struct measure measure = {
		.world = world,
		.samples = samples,
		.end_ns = end_ns,
		.setup_ns = executor->info.kind == EXECUTOR_SOFTWARE_GPU ? SOFTWARE_SETUP_NS : 0,
	};
	int r;

	if (!has_time(&measure, 0))
		return 0;
	r = calibrate_bench_init(&measure.bench, executor, START_MEMORY_CLASS);
	for (unsigned int i = 0; i < CALIBRATE_PROBES && r == 0; i++) {
		if (!(samples->measured >> i & 1) && is_for_start(i) && has_time(&measure, i))
			r = measure_probe(&measure, i);
	}
	calibrate_bench_deinit(&measure.bench);
	return r ? error_fold(r) : 0;
}
