#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Calibration: measuring the performance of devices
 *
 * Probes (calibrate-bench.h) run on a device; the best of a few runs of each counts.
 * calibrate_fit() derives a profile from them, and infers rates that were not measured.
 *
 * There are two ways to measure. calibrate_measure() does everything on the calling thread, before
 * any client is served, within a budget of wall time. A struct calibrator runs all probes one by
 * one in a broker that is serving, while a device has nothing else to do. Both access the rest of
 * the broker through callbacks.
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

/* Runs of one probe: the first does not count, the best of the others does. */
struct calibrate_runs {
	uint32_t n;
	double total_ns;
	struct calibrate_sample best;
};

/*
 * Add a run.
 * Return: true if another run is wanted.
 */
bool calibrate_runs_add(struct calibrate_runs *runs, uint64_t exec_ns, uint64_t busy_ns);

/* Properties of a device that need no measuring. */
struct calibrate_device {
	enum executor_kind kind;
	const char *name;
	uint32_t n_servers;    /* at least 1 */
	bool shares_tasks;     /* servers help each other with one task */
	float share_min_ns;    /* a node that takes longer is shared */
	uint64_t memory_bytes; /* of the device; 0: it uses host memory */
	/* Rate of the link that bound tensors cross, in bytes per ns; 0: there is no link. */
	float up_bytes_per_ns, down_bytes_per_ns;
};

/* Describe an executor's device, with a link if the device has memory of its own. */
void calibrate_describe(const struct executor *executor, float up_bytes_per_ns,
			float down_bytes_per_ns, struct calibrate_device *ret);

/*
 * Derive a profile. The time of each measured family and size class, without the link and the
 * overhead of task and nodes, gives the rate of the ceiling that binds the family: operations for
 * products, convolutions, pooling, softmax and selection; bytes for the others. The other ceiling
 * is as high as anything that was measured. Classes between and beyond the measured ones follow the
 * curve of the family's reference, MatMul or elementwise addition. A family without any measurement
 * is a fixed part of the reference, by kind of device.
 * Return: false, with nothing known, if neither reference has been measured at any size.
 */
bool calibrate_fit(const struct calibrate_device *device, const struct calibrate_samples *samples,
		   struct place_profile *ret);

/*
 * Return the expected time of a probe, by its family's or its reference's smaller sizes; 0: nothing
 * is known yet.
 */
double calibrate_expected_ns(const struct calibrate_samples *samples, unsigned int probe);

/* ---- Before clients are served ---- */

/* Environment of a measurement */
struct calibrate_world {
	uint64_t (*now_ns)(void *context);
	/*
	 * Runs all parts of a task, each from submission until it is back, and adds up *ret_exec_ns
	 * and *ret_busy_ns. Return: the task's res.
	 */
	int (*run)(void *context, struct executor *executor, struct exec_task *task,
		   uint64_t *ret_exec_ns, uint64_t *ret_busy_ns);
	void *context;
};

/*
 * Return the real environment: CLOCK_MONOTONIC, and the calling thread as the reactor of @waker's
 * executors.
 */
struct calibrate_world calibrate_world_real(struct waker *waker);

/*
 * Measure one device until everything up to 2 MiB, and addition of 16 MiB, was measured or the
 * clock passes @end_ns: no probe begins after that, nor a probe that is expected to end later. A
 * probe runs once without being counted, then until its best run can be believed. Adds to @samples.
 * Return: 0; -EIO: the device fails, and its measurements mean nothing; -ENOMEM.
 */
int calibrate_measure(const struct calibrate_world *world, struct executor *executor,
		      uint64_t end_ns, struct calibrate_samples *samples);

/* ---- While clients are served ---- */

typedef void calibrate_step_fn(void *data);

/* Callbacks of a calibrator, all called on the reactor */
struct calibrate_ops {
	/*
	 * Calls run(data) on the setup thread, then done(data) on the reactor, never from within
	 * this call. Only one such call is outstanding at a time.
	 */
	void (*setup)(void *context, calibrate_step_fn *run, calibrate_step_fn *done, void *data);
	/*
	 * Sets the total charged to the broker itself for measuring a device; 0 and 0 is never
	 * refused.
	 * Return: false if the device or the memory cannot be had; the charge is then unchanged.
	 */
	bool (*charge)(void *context, struct executor *executor, uint64_t device_bytes,
		       uint64_t host_bytes);
	/*
	 * Runs one part of a task while the device is not needed otherwise, then calls done(data)
	 * on the reactor, never from within this call. The results are in @task then; -ECANCELED:
	 * it did not run, because the broker is stopping.
	 */
	void (*run)(void *context, struct executor *executor, struct exec_task *task,
		    calibrate_step_fn *done, void *data);
	/*
	 * Receives a device's measurement: @samples, borrowed; NULL: the device fails, or memory is
	 * lacking.
	 */
	void (*result)(void *context, struct executor *executor,
		       const struct calibrate_samples *samples);
	void *context;
};

struct calibrator;

/*
 * Make a calibrator. It borrows @executors, which are identified by their index.
 * Return: 0 or -ENOMEM.
 */
int calibrator_new(const struct calibrate_ops *ops, struct executor *const *executors,
		   uint32_t n_executors, struct calibrator **ret);

/*
 * Add the devices of the mask to those to be measured, one after the other; result() is called for
 * each.
 */
void calibrator_start(struct calibrator *calibrator, uint32_t devices);

/*
 * Stop after the current step; result() is not called any more. A step on the setup thread or a
 * device returns through done() first.
 */
void calibrator_stop(struct calibrator *calibrator);

/* Return true if a measurement is in progress or charged. */
bool calibrator_is_busy(const struct calibrator *calibrator);

/*
 * Free the calibrator, which must not be busy.
 * Return: NULL.
 */
struct calibrator *calibrator_free(struct calibrator *calibrator);

DEFINE_CLEANUP(struct calibrator *, calibrator_free)
