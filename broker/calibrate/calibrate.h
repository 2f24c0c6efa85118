#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Calibration: measuring what devices are able to do
 *
 * Probes (calibrate-bench.h) are run on a device, the best of a few runs of each counts, and a
 * profile is derived from what was seen: calibrate_fit(). What was not measured is inferred from
 * what was.
 *
 * Two ways to measure: calibrate_measure() does everything on the calling thread, before anybody is
 * served, within a budget of wall time; a struct calibrator goes through all probes one by one in a
 * broker that is serving, while a device has nothing else to do. Both are given what they need of
 * the world as callbacks.
 */
#include <stdbool.h>
#include <stdint.h>

#include "calibrate/calibrate-bench.h"
#include "place/profile.h"
#include "plan/executor.h"
#include "util/cleanup.h"

struct waker;

/* ---- Samples ---- */

/* The best run of a probe. */
struct calibrate_sample {
	struct calibrate_work work;
	float exec_ns; /* from begin to end */
	float busy_ns; /* of all servers together */
};

struct calibrate_samples {
	uint64_t measured; /* bit i: probe i */
	struct calibrate_sample of[CALIBRATE_PROBES];
};

/* Runs of one probe: the first does not count, of the others the best does. */
struct calibrate_runs {
	uint32_t n;
	double total_ns;
	struct calibrate_sample best;
};

/* One more run. Return: is another one wanted? */
bool calibrate_runs_add(struct calibrate_runs *runs, uint64_t exec_ns, uint64_t busy_ns);

/* Properties of a device that need no measuring. */
struct calibrate_device {
	enum executor_kind kind;
	const char *name;
	uint32_t n_servers;    /* at least 1 */
	bool shares_tasks;     /* servers help each other with one task */
	float share_min_ns;    /* a node that takes longer is shared */
	uint64_t memory_bytes; /* of its own */
	/* The link that bound tensors cross, bytes per ns; 0: there is none. */
	float up_bytes_per_ns, down_bytes_per_ns;
};

/* What an executor says of itself, with a link where its memory is its own. */
void calibrate_describe(const struct executor *executor, float up_bytes_per_ns,
			float down_bytes_per_ns, struct calibrate_device *ret);

/*
 * Derives a profile. For each family and size class that was measured, the time without what a task
 * and a node cost and without the link gives the rate of the ceiling that binds the family:
 * operations for products, convolutions, pooling, softmax and selection; bytes for the others. The
 * other ceiling is as high as anything that was measured. Classes between and beyond those that
 * were measured follow the curve of the family's reference, MatMul or elementwise addition; a
 * family of which nothing was measured is a fixed part of it, by kind of device. Return: false,
 * nothing known, if neither reference has been measured at any size.
 */
bool calibrate_fit(const struct calibrate_device *device, const struct calibrate_samples *samples,
		   struct place_profile *ret);

/*
 * What a probe is expected to take, by its family's or its reference's smaller sizes; 0: nothing is
 * known yet.
 */
double calibrate_expected_ns(const struct calibrate_samples *samples, unsigned int probe);

/* ---- Before anybody is served ---- */

/* What measuring needs of the world. */
struct calibrate_world {
	uint64_t (*now_ns)(void *context);
	/*
	 * Runs a task from submission until it is back, all parts of it, and adds up *ret_exec_ns
	 * and *ret_busy_ns. Return: the task's res.
	 */
	int (*run)(void *context, struct executor *executor, struct exec_task *task,
		   uint64_t *ret_exec_ns, uint64_t *ret_busy_ns);
	void *context;
};

/* The real one: CLOCK_MONOTONIC, and the calling thread as the reactor of @waker's executors. */
struct calibrate_world calibrate_world_real(struct waker *waker);

/*
 * Measures one device until everything up to 2 MiB, and addition of 16 MiB, was measured or the
 * clock says @end_ns: no probe is begun after that, nor one that is expected to end later. A probe
 * is run once without being counted, then until its best run can be believed. Adds to @samples.
 * Return: 0; -EIO, the device fails: what was measured of it means nothing; -ENOMEM.
 */
int calibrate_measure(const struct calibrate_world *world, struct executor *executor,
		      uint64_t end_ns, struct calibrate_samples *samples);

/* ---- While others are served ---- */

typedef void calibrate_step_fn(void *data);

/* What a calibrator needs of the broker. Everything is called on the reactor. */
struct calibrate_ops {
	/*
	 * Calls run(data) on the setup thread, then done(data) on the reactor, not from in here.
	 * One at a time.
	 */
	void (*setup)(void *context, calibrate_step_fn *run, calibrate_step_fn *done, void *data);
	/*
	 * From now on so much is charged to the broker itself for measuring a device, in all; 0 and
	 * 0 is never refused. Return: false, and what was charged is as it was, if that is too
	 * much.
	 */
	bool (*charge)(void *context, struct executor *executor, uint64_t device_bytes,
		       uint64_t host_bytes);
	/*
	 * Runs a task, one part of it, while nothing else wants the device, then calls done(data)
	 * on the reactor, not from in here. The task's results are in @task then; -ECANCELED: it
	 * did not run, because the broker stops.
	 */
	void (*run)(void *context, struct executor *executor, struct exec_task *task,
		    calibrate_step_fn *done, void *data);
	/* A device has been measured: @samples, borrowed; NULL: it fails, or there is no memory. */
	void (*result)(void *context, struct executor *executor,
		       const struct calibrate_samples *samples);
	void *context;
};

struct calibrator;

/* @executors, borrowed, are told apart by their index. Return: 0 or -ENOMEM. */
int calibrator_new(const struct calibrate_ops *ops, struct executor *const *executors,
		   uint32_t n_executors, struct calibrator **ret);

/* Measures the devices of the mask, too, one after the other; result() is called for each. */
void calibrator_start(struct calibrator *calibrator, uint32_t devices);

/*
 * Leaves off after the step that is under way; no result() is called any more. What it has on the
 * setup thread or a device comes back through done() first.
 */
void calibrator_stop(struct calibrator *calibrator);

/* Is anything under way or charged? */
bool calibrator_is_busy(const struct calibrator *calibrator);

/* Not busy. Return: NULL. */
struct calibrator *calibrator_free(struct calibrator *calibrator);

DEFINE_CLEANUP(struct calibrator *, calibrator_free)
