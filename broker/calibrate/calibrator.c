/* SPDX-License-Identifier: MIT */
/*
 * Measuring devices while clients are served
 *
 * Devices are measured one at a time, one probe at a time. The probe's memory is charged, and its
 * plan made and loaded on the setup thread. Its task runs a few times whenever the device is not
 * needed otherwise; then its plan and memory are freed. Every step ends in a callback on the
 * reactor, which decides whether to continue.
 *
 *	open -> [prepare -> load -> run ... -> clear] ... -> close
 *
 * If a device has shapes of tiles to choose from, these are compared first, and the fastest of each
 * class is chosen (calibrate-bench.h). So the other probes run with the shapes that plans will use.
 *
 * Probes that would keep the device busy for longer than a submission may are left out: no task is
 * to wait for a measurement.
 */
#include <errno.h>
#include <stdlib.h>

#include "calibrate/calibrate.h"
#include "util/clock.h"
#include "util/error.h"

enum {
	LARGEST_CLASS = CALIBRATE_CLASSES - 1,
	MAX_RUN_NS = 10000000,
};

struct calibrator {
	struct calibrate_ops ops;
	struct executor *const *executors;
	uint32_t n_executors;
	uint32_t devices; /* devices still to be measured, as a mask */
	bool is_stopping;

	/* The device being measured */
	struct executor *executor; /* NULL: none */
	uint64_t bench_bytes;      /* charged for the bench's memory */
	struct calibrate_bench bench;
	struct calibrate_samples samples;
	struct calibrate_runs runs;
	uint64_t run_ns, busy_ns; /* of the finished parts of the current run */
	unsigned int tile;        /* tile probe; CALIBRATE_TILE_PROBES: all done */
	struct calibrate_tiles tiles;
	bool has_chosen; /* the fastest tiles were chosen */
	unsigned int probe;
	bool is_sampled; /* runs is a sample; for tiles, with right results */
	int result;      /* of the last step on the setup thread */
	bool has_failed;
};

static void next_device(struct calibrator *calibrator);
static void next_probe(struct calibrator *calibrator);

static void setup(struct calibrator *calibrator, calibrate_step_fn *run, calibrate_step_fn *done)
{
	calibrator->ops.setup(calibrator->ops.context, run, done, calibrator);
}

static bool charge(struct calibrator *calibrator, uint64_t device_bytes, uint64_t host_bytes)
{
	return calibrator->ops.charge(calibrator->ops.context, calibrator->executor, device_bytes,
				      host_bytes);
}

/* ---- The end of a device ---- */

static void finish_device(struct calibrator *calibrator)
{
	struct executor *executor = calibrator->executor;

	charge(calibrator, 0, 0);
	calibrator->executor = NULL;
	if (!calibrator->is_stopping)
		calibrator->ops.result(calibrator->ops.context, executor,
				       calibrator->has_failed ? NULL : &calibrator->samples);
	next_device(calibrator);
}

static void close_run(void *data)
{
	struct calibrator *calibrator = data;

	calibrate_bench_deinit(&calibrator->bench);
}

static void close_done(void *data)
{
	finish_device(data);
}

/* ---- Probes ---- */

static bool is_at_tiles(const struct calibrator *calibrator)
{
	return calibrator->tile < CALIBRATE_TILE_PROBES;
}

static void keep_sample(struct calibrator *calibrator)
{
	if (is_at_tiles(calibrator)) {
		calibrator->tiles.exec_ns[calibrator->tile] = calibrator->runs.best.exec_ns;
		return;
	}
	calibrator->runs.best.work = calibrator->bench.work;
	calibrator->samples.of[calibrator->probe] = calibrator->runs.best;
	calibrator->samples.measured |= 1ull << calibrator->probe;
}

static void clear_run(void *data)
{
	struct calibrator *calibrator = data;

	if (calibrator->is_sampled && is_at_tiles(calibrator))
		calibrator->is_sampled =
			calibrate_bench_tile_is_right(&calibrator->bench, calibrator->tile);
	calibrate_bench_clear(&calibrator->bench);
}

static void clear_done(void *data)
{
	struct calibrator *calibrator = data;

	charge(calibrator, 0, calibrator->bench_bytes);
	if (calibrator->is_sampled)
		keep_sample(calibrator);
	calibrator->is_sampled = false;
	if (is_at_tiles(calibrator))
		calibrator->tile++;
	else
		calibrator->probe++;
	next_probe(calibrator);
}

static void clear(struct calibrator *calibrator)
{
	setup(calibrator, clear_run, clear_done);
}

static void run_done(void *data);

static void run_part(struct calibrator *calibrator)
{
	calibrator->ops.run(calibrator->ops.context, calibrator->executor, &calibrator->bench.task,
			    run_done, calibrator);
}

static void run(struct calibrator *calibrator)
{
	calibrator->run_ns = calibrator->busy_ns = 0;
	calibrator->bench.task.part = 0;
	run_part(calibrator);
}

static void run_done(void *data)
{
	struct calibrator *calibrator = data;
	struct exec_task *task = &calibrator->bench.task;
	uint64_t exec_ns = clock_elapsed_ns(task->start_ticks, task->end_ticks);
	bool is_more;

	if (task->res) {
		calibrator->has_failed |= task->res != -ECANCELED;
		clear(calibrator);
		return;
	}
	calibrator->run_ns += exec_ns;
	calibrator->busy_ns += task->busy_ticks ? clock_ticks_to_ns(task->busy_ticks) : exec_ns;
	if (++task->part < task->plan->n_parts[calibrator->executor->index]) {
		/* Run all parts of a task, even if its result will not be used. */
		run_part(calibrator);
		return;
	}
	is_more = calibrate_runs_add(&calibrator->runs, calibrator->run_ns, calibrator->busy_ns);
	if (is_more && !calibrator->is_stopping) {
		run(calibrator);
		return;
	}
	calibrator->is_sampled = !is_more;
	clear(calibrator);
}

static void load_run(void *data)
{
	struct calibrator *calibrator = data;

	calibrator->result = calibrate_bench_load(&calibrator->bench);
}

static void load_done(void *data)
{
	struct calibrator *calibrator = data;

	if (calibrator->result || calibrator->is_stopping) {
		calibrator->has_failed |= calibrator->result < 0;
		clear(calibrator);
		return;
	}
	calibrator->runs = (struct calibrate_runs){.n = 0};
	run(calibrator);
}

static void prepare_run(void *data)
{
	struct calibrator *calibrator = data;

	calibrator->result =
		is_at_tiles(calibrator)
			? calibrate_bench_prepare_tile(&calibrator->bench, calibrator->tile)
			: calibrate_bench_prepare(&calibrator->bench, calibrator->probe);
}

static void prepare_done(void *data)
{
	struct calibrator *calibrator = data;
	const struct executor *executor = calibrator->executor;
	const struct plan *plan = calibrator->bench.plan;
	uint64_t device_bytes = 0, host_bytes = calibrator->bench_bytes;

	if (calibrator->result || calibrator->is_stopping) {
		calibrator->has_failed |= calibrator->result < 0;
		clear(calibrator);
		return;
	}
	host_bytes += plan->host_bytes[executor->index];
	if (executor->ops->plan_load) {
		const struct exec_footprint *footprint = &plan->footprint[executor->index];

		device_bytes = exec_footprint_device_bytes(footprint, &executor->info, 1);
		host_bytes += exec_footprint_host_bytes(footprint, &executor->info, 1);
	}
	if (charge(calibrator, device_bytes, host_bytes))
		setup(calibrator, load_run, load_done);
	else
		clear(calibrator);
}

/* Advance to the next wanted probe of tiles; after the last one, choose the fastest tiles. */
static void next_tile(struct calibrator *calibrator)
{
	struct exec_tiles tiles;

	for (; is_at_tiles(calibrator); calibrator->tile++)
		if (calibrate_tile_is_wanted(calibrator->executor, calibrator->tile))
			return;
	if (calibrator->has_chosen)
		return;
	calibrator->has_chosen = true;
	executor_get_tiles(calibrator->executor, &tiles);
	calibrate_tiles_choose(&calibrator->tiles, &tiles);
	executor_set_tiles(calibrator->executor, &tiles);
}

static void next_probe(struct calibrator *calibrator)
{
	next_tile(calibrator);
	for (; calibrator->probe < CALIBRATE_PROBES; calibrator->probe++)
		if (calibrate_expected_ns(&calibrator->samples, calibrator->probe) <= MAX_RUN_NS)
			break;
	if (calibrator->probe < CALIBRATE_PROBES && !calibrator->has_failed &&
	    !calibrator->is_stopping)
		setup(calibrator, prepare_run, prepare_done);
	else
		setup(calibrator, close_run, close_done);
}

/* ---- Devices ---- */

static void open_run(void *data)
{
	struct calibrator *calibrator = data;

	calibrator->result =
		calibrate_bench_init(&calibrator->bench, calibrator->executor, LARGEST_CLASS);
}

static void open_done(void *data)
{
	struct calibrator *calibrator = data;

	calibrator->has_failed = calibrator->result != 0;
	calibrator->tile = 0;
	calibrator->tiles = (struct calibrate_tiles){{0}};
	calibrator->has_chosen = false;
	calibrator->is_sampled = false;
	calibrator->probe = 0;
	next_probe(calibrator);
}

static void next_device(struct calibrator *calibrator)
{
	unsigned int i;

	while (!calibrator->executor && calibrator->devices && !calibrator->is_stopping) {
		i = (unsigned int)__builtin_ctz(calibrator->devices);
		calibrator->devices &= ~(1u << i);
		calibrator->executor = calibrator->executors[i];
		calibrator->samples.measured = 0;
		calibrator->has_failed = false;
		calibrator->bench_bytes = calibrate_bench_bytes(LARGEST_CLASS);
		if (charge(calibrator, 0, calibrator->bench_bytes)) {
			setup(calibrator, open_run, open_done);
			return;
		}
		calibrator->executor = NULL;
		calibrator->ops.result(calibrator->ops.context, calibrator->executors[i], NULL);
	}
}

int calibrator_new(const struct calibrate_ops *ops, struct executor *const *executors,
		   uint32_t n_executors, struct calibrator **ret)
{
	struct calibrator *calibrator = calloc(1, sizeof(*calibrator));

	if (!calibrator)
		return error_origin(-ENOMEM);
	calibrator->ops = *ops;
	calibrator->executors = executors;
	calibrator->n_executors = n_executors;
	*ret = calibrator;
	return 0;
}

void calibrator_start(struct calibrator *calibrator, uint32_t devices)
{
	calibrator->devices |= devices & ((1u << calibrator->n_executors) - 1);
	next_device(calibrator);
}

void calibrator_stop(struct calibrator *calibrator)
{
	calibrator->is_stopping = true;
}

bool calibrator_is_busy(const struct calibrator *calibrator)
{
	return calibrator->executor != NULL;
}

struct calibrator *calibrator_free(struct calibrator *calibrator)
{
	free(calibrator);
	return NULL;
}
