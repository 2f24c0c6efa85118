#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A client that inspects decisions: it runs tasks, and collects their completions and their
 * decisions in the statistics page
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ringbroker.h>
#include <ringbroker/stats.h>

#include "work.h"

enum { LAB_RING_ENTRIES = 512 };

/*
 * State of a scene. Functions return 0, or a negative errno with a sentence in error. A condition
 * that does not hold is reported on standard error and counted in n_wrong, and the scene continues.
 */
struct lab {
	const char *socket_path;
	struct rbk *rbk, *admin;
	struct rbk_ring *ring;
	struct rbk_device devices[RBK_MAX_DEVICES];
	unsigned int n_devices;
	struct rbk_stats_view own;   /* page of the client's tenant */
	struct rbk_stats_view whole; /* page of the whole broker */
	uint64_t next_id;            /* user_data of the next task */
	unsigned int n_wrong;
	struct rbk_error error;
};

int lab_init(struct lab *lab, const char *socket_path);
void lab_deinit(struct lab *lab);

/* Return true if the broker has a device besides the CPU. */
bool lab_has_gpu(const struct lab *lab);
/* Return "CPU", "GPU", "software GPU", "other device", or "nowhere" for an unknown index. */
const char *lab_device(const struct lab *lab, unsigned int device);

/*
 * Write a sentence to lab->error.
 * Return: @r.
 */
int lab_fail(struct lab *lab, int r, const char *format, ...) __attribute__((format(printf, 3, 4)));

/*
 * Check a condition; @format describes its violation.
 * Return: @holds.
 */
bool lab_expect(struct lab *lab, bool holds, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- Tasks ---- */

/*
 * Initialize @work by work_init(), and wait until its plan is resident on the GPU if there is room
 * for it. Loading would otherwise influence the figures that are shown.
 */
int lab_work(struct lab *lab, struct work *work, const struct work_shape *shape,
	     uint32_t n_outputs);

struct lab_task {
	struct work *work;
	uint32_t rows;
	uint32_t output;
	uint8_t strategy; /* enum rbk_strategy, RBK_STRATEGY_DEVICE() */
	uint8_t flags;    /* RBK_SQE_* */

	/* set by lab_run() and lab_run_all(): */
	uint64_t id;
	struct rbk_cqe cqe;
	/* time from submission to completion; in batches from the submission of all tasks */
	uint64_t round_trip_ns;
	bool has_decision; /* not all tasks computed by the reactor are logged */
	struct rbk_stats_decision decision;
};

/* Run one task and check its result unless it failed (task->cqe.res). */
int lab_run(struct lab *lab, struct lab_task *task);

/*
 * Submit at most LAB_RING_ENTRIES tasks at once, each with its own output. *ret_wall_ns is the time
 * until the last completion. All tasks must succeed; their results are checked.
 */
int lab_run_all(struct lab *lab, struct lab_task *tasks, unsigned int n, uint64_t *ret_wall_ns);

/* ---- Figures ---- */

/* Wait until the broker has updated its figures with everything up to now. */
int lab_settle(struct lab *lab);

/*
 * Read what the broker has learned about a task's plan on each device. The task must have a
 * decision.
 */
int lab_plan(struct lab *lab, const struct lab_task *task,
	     struct rbk_stats_plan_device ret[RBK_MAX_DEVICES]);

/* Read the broker's record of a device or of the client's tenant. */
int lab_device_stats(struct lab *lab, unsigned int device, struct rbk_stats_device *ret);
int lab_tenant_stats(struct lab *lab, struct rbk_stats_tenant *ret);

/* Reset all counters; the broker forgets what it has learned. */
int lab_reset(struct lab *lab);

/* ---- Text ---- */

/* A number in readable form: text_time(1234567).text is "1.23 ms". */
struct text {
	char text[24];
};
struct text text_time(double ns);
struct text text_bytes(double bytes);
struct text text_flops(double flops);

/* Return a reason in words. */
const char *text_reason(unsigned int reason);
