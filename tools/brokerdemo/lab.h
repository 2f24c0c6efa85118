#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A client that looks closely: runs work, one task or many, and gathers what the broker says of
 * each: the completion, and the decision in the statistics page
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ringbroker.h>
#include <ringbroker/stats.h>

#include "work.h"

enum { LAB_RING_ENTRIES = 512 };

/*
 * Functions return 0, or a negative errno with a sentence in error. What turned out otherwise than
 * it has to is said on standard error and counted in n_wrong, and the scene goes on.
 */
struct lab {
	const char *socket_path;
	struct rbk *rbk, *admin;
	struct rbk_ring *ring;
	struct rbk_device devices[RBK_MAX_DEVICES];
	unsigned int n_devices;
	struct rbk_stats_view own;   /* of the client's tenant */
	struct rbk_stats_view whole; /* of the broker */
	uint64_t next_id;            /* user_data of the next task */
	unsigned int n_wrong;
	struct rbk_error error;
};

int lab_init(struct lab *lab, const char *socket_path);
void lab_deinit(struct lab *lab);

/* Is there a device beside the CPU? */
bool lab_has_gpu(const struct lab *lab);
/* "CPU", "GPU", "software GPU", "nowhere". */
const char *lab_device(const struct lab *lab, unsigned int device);

/* Takes the last call's sentence for what is wrong. Return: @r. */
int lab_fail(struct lab *lab, int r, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* What has to hold; @format says what. Return: @holds. */
bool lab_expect(struct lab *lab, bool holds, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- Tasks ---- */

/*
 * work_init(), and waits until the GPU has what the plan needs there, if there is room for it: what
 * is shown is not how memory comes and goes.
 */
int lab_work(struct lab *lab, struct work *work, const struct work_shape *shape,
	     uint32_t n_outputs);

struct lab_task {
	struct work *work;
	uint32_t rows;
	uint32_t output;
	uint8_t strategy; /* enum rbk_strategy, RBK_STRATEGY_DEVICE() */
	uint8_t flags;    /* RBK_SQE_* */

	/* What came of it: */
	uint64_t id;
	struct rbk_cqe cqe;
	uint64_t round_trip_ns; /* from its submission to its completion; in batches from the
				   submission of all */
	bool has_decision;      /* tasks that ran on the reactor are not all logged */
	struct rbk_stats_decision decision;
};

/* Runs one task and checks its result, unless it failed (task->cqe.res). */
int lab_run(struct lab *lab, struct lab_task *task);

/*
 * Submits tasks all at once, at most LAB_RING_ENTRIES; each has an output of its own. *ret_wall_ns
 * is until the last was complete. All have to succeed; their results are checked.
 */
int lab_run_all(struct lab *lab, struct lab_task *tasks, unsigned int n, uint64_t *ret_wall_ns);

/* Starts a task without waiting for it. */
int lab_submit(struct lab *lab, struct lab_task *task);

/* Waits for the oldest completion: of one of @tasks. Checks its result if @checks. */
int lab_complete(struct lab *lab, struct lab_task *tasks, unsigned int n, bool checks,
		 struct lab_task **ret);

/* ---- Figures ---- */

uint64_t lab_now_ns(void);

/* Waits until the broker has computed figures anew, from everything up to now. */
int lab_settle(struct lab *lab);

/* What is known of a task's plan on each device, by a task that has a decision. */
int lab_plan(struct lab *lab, const struct lab_task *task,
	     struct rbk_stats_plan_device ret[RBK_MAX_DEVICES]);

/* The broker's record of a device, and of the client's tenant. */
int lab_device_stats(struct lab *lab, unsigned int device, struct rbk_stats_device *ret);
int lab_tenant_stats(struct lab *lab, struct rbk_stats_tenant *ret);

/* Begins all counts anew; the broker forgets what it learned. */
int lab_reset(struct lab *lab);

/* ---- Text ---- */

/* A number as people read it: text_time(1234567).text is "1.23 ms". */
struct text {
	char text[24];
};
struct text text_time(double ns);
struct text text_bytes(double bytes);
struct text text_flops(double flops);

/* Why a task ran where it ran, in words. */
const char *text_reason(unsigned int reason);
