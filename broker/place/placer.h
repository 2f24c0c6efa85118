#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Placement: where a task runs, and why
 *
 * The placer predicts for each device when a task would be complete there, and chooses; it learns
 * from what tasks really took; it takes a failing device out of use and lets it back in. It is a
 * pure machine: it never reads a clock, allocates or logs while it decides, and everything it does
 * is repeatable. brokerd drives it with real devices, brokersim with simulated ones in virtual
 * time. Who waits for whom is schedule.h's.
 *
 * For a task and a device:
 *
 *	completion = wait for the device, as the task's tenant would wait (place_flow_wait_ns())
 *	           + transfer of what is not there + execution, by estimate, x contention
 *
 * An estimate is a plan's time on a device as a function of count. It starts as the sum of the
 * profile's predictions for the plan's nodes, and is corrected, bucket of count by bucket of count,
 * by what was observed: a mean over about the last executions (place_config.window), robust against
 * outliers, with its spread. It is trusted once enough of them were seen.
 *
 * Decision, the first rule that applies (enum rbk_reason says which did):
 *  1. the plan is pinned, or the entry names a device or ONLY_*: that one (USER_PREFERENCE); what
 *     may fall back does, with the reason why the device was not to be had. Where force-CPU is set
 *     no other device is to be had by anybody
 *  2. force-CPU: the CPU (GPU_UNAVAILABLE)
 *  3. fewer bytes than threshold_bytes, or a dynamic count below min_count: the CPU
 *     (BELOW_THRESHOLD), unless both estimates are trusted and say otherwise, or a GPU is predicted
 *     to be done, speedup_threshold times over, before the CPU has time to begin
 *  4. no device but the CPU can run the plan (GPU_UNAVAILABLE), or only its breaker is in the way
 *     (BREAKER_OPEN); the plan never fits (MEMORY_CONSTRAINT)
 *  5. until both estimates are trusted, a GPU needs a speed-up of speedup_threshold, of execution
 *     or of completion (GPU_AVAILABLE), or else the CPU has it (COST_MODEL); without a profile of
 *     the GPU nothing is known of its speed, and it has the task (GPU_AVAILABLE)
 *  6. the earliest completion (COST_MODEL; CONTENTION if it is on a GPU only because of the CPU's
 *     contention factor)
 *  7. a deadline that the chosen device would miss and another would meet moves the task there
 *     (COST_MODEL)
 *  8. where the chosen GPU lacks the plan's memory now (PLAN_DEVICE_EVICTED), the CPU
 *     (MEMORY_CONSTRAINT, wanted = the GPU). A GPU that has it comes before one that lacks it
 * Strategies change 5 and 6: PREFER_* (USER_PREFERENCE, whatever the size), LATENCY (completion
 * with twice the estimate's spread on top), ENERGY (the least energy among devices that complete
 * within energy_slack x the earliest completion, where what all of them draw is known), PARTITION
 * (on request: whatever the size and the gain; USER_PREFERENCE).
 *
 * Two breakers guard each device: its own, and one for each plan on it, so that one bad plan does
 * not take a device from everybody. Where a device is barred by one, a task that would be placed
 * there may be the probe that shows whether it works again.
 *
 * Every estimate is finite and above 0 whatever was observed, whatever a clock says.
 * Reactor thread only.
 */
#include <stdbool.h>
#include <stdint.h>
#include <ringbroker/abi.h>

#include "place/profile.h"
#include "plan/plan.h"
#include "util/cleanup.h"

struct placer;
struct place_flow;
struct place_plan;
struct place_task;

/* What administrators may set; brokerd.conf(5) has the keys. */
struct place_config {
	uint64_t threshold_bytes;     /* tasks that touch less stay on the CPU */
	uint32_t min_count;           /* so do those with a dynamic count below */
	uint32_t window;              /* executions that an estimate and a success rate look back */
	float speedup_threshold;      /* for the GPU, until both estimates are trusted */
	float success_rate;           /* of a device; below it the breaker opens */
	float exploration;            /* share of execution time that may be lost to exploring */
	uint64_t partition_min_bytes; /* smaller tasks are not split */
	float partition_min_gain;     /* nor are those not faster by that: 0.2 is 1.2 times */
	float balance_high, balance_low; /* ratio of backlogs beyond which queued work moves */
	uint64_t submission_max_ns;      /* predicted; longer tasks are run in parts */
	float energy_slack;              /* see above */
	uint8_t strategy;                /* what RBK_STRATEGY_AUTO means: AUTO, LATENCY, ENERGY */
	bool force_cpu;
};

#define PLACE_CONFIG_DEFAULT                        \
	((struct place_config){                     \
		.threshold_bytes = 1ull << 20,      \
		.min_count = 64,                    \
		.window = 100,                      \
		.speedup_threshold = 1.5f,          \
		.success_rate = 0.95f,              \
		.exploration = 0.01f,               \
		.partition_min_bytes = 10ull << 20, \
		.partition_min_gain = 0.2f,         \
		.balance_high = 1.2f,               \
		.balance_low = 0.8f,                \
		.submission_max_ns = 10000000,      \
		.energy_slack = 2.0f,               \
		.strategy = RBK_STRATEGY_AUTO,      \
	})

struct placer_options {
	struct place_config config;
	uint32_t n_devices; /* device 0 is the CPU */
	/* Copied; NULL or not valid: nothing is known of the device but n_servers, if above 0. */
	const struct place_profile *profiles[RBK_MAX_DEVICES];
	/*
	 * A queued task has been moved by place_rebalance(); its decision already says where to,
	 * and that the reason is RBK_REASON_COST_MODEL. NULL: nobody is told.
	 */
	void (*moved)(void *context, struct place_task *task, uint8_t from);
	void *context;
};

/* Return: 0 or -ENOMEM. */
int placer_new(const struct placer_options *options, struct placer **ret);
/* No plan, flow or task may be left. Return: NULL. */
struct placer *placer_free(struct placer *placer);

/*
 * Takes effect for the next decision; what was learned stays. Since there may be many plans, each
 * keeps its thresholds until place_plan_configure().
 */
void placer_configure(struct placer *placer, const struct place_config *config);
const struct place_config *placer_config(const struct placer *placer);

/* A better profile of a device: for plans prepared from now on, and estimates without history. */
void placer_set_profile(struct placer *placer, uint8_t device, const struct place_profile *profile);
const struct place_profile *placer_profile(const struct placer *placer, uint8_t device);

/* How many times longer execution on a device takes than it would undisturbed; clamped to 1..100.
 */
void placer_set_contention(struct placer *placer, uint8_t device, float factor);

/*
 * So many of a device's servers are in use from now on; 0, or more than it has: all. What waits for
 * it, and what would be shared by more of them, is predicted to take longer by that; what is
 * learned is not: it is of work.
 */
void placer_limit_servers(struct placer *placer, uint8_t device, uint32_t n_servers);

/*
 * Does @device have a task that no other could do, or has it begun one since this was asked last?
 * Because there is no other device, or none that is ready for the plan, or by its client's wish.
 */
bool placer_is_needed(struct placer *placer, uint8_t device);

/* Nothing is placed on @device any more, as if it were not there, or is again. Not the CPU. */
void placer_set_drained(struct placer *placer, uint8_t device, bool is_drained);
bool placer_is_drained(const struct placer *placer, uint8_t device);

/* The device was opened anew: what it failed before does not count, what it took does. */
void placer_reset_device(struct placer *placer, uint8_t device);

/* --- Plans --- */

/*
 * What is known of a plan; borrows @plan. Where a plan of the same fingerprint was freed before (a
 * client came back), it begins with what that one had learned. Return: 0 or -ENOMEM.
 */
int place_plan_new(struct placer *placer, const struct plan *plan, struct place_plan **ret);
/*
 * Allocate memory for plans that are to be added, so that place_plan_new() need not wait for the
 * kernel. Only one thread may call this, also one other than the reactor.
 */
void placer_prepare(struct placer *placer);
/* Find out which counts of a plan are below the thresholds of the configuration. */
void place_plan_configure(const struct placer *placer, struct place_plan *place_plan);
/* No task of it may be queued. Return: NULL. */
struct place_plan *place_plan_free(struct placer *placer, struct place_plan *place_plan);

/* Host memory that place_plan_new() takes at most, to be charged first. */
uint64_t place_plan_bytes(const struct placer *placer, const struct plan *plan);

/* Forgets what was learned and counted, for everybody who asks for statistics to begin anew. */
void place_plan_reset(struct placer *placer, struct place_plan *place_plan);

/* What is known of a plan on one device, for people. */
struct place_report {
	uint64_t n_done; /* observed since the plan was made, or reset */
	uint64_t n_failed;
	uint64_t n_explored;
	double exec_ns; /* estimate for @count, undisturbed */
	double spread;  /* of it, relative: 0.1 is 10% */
	bool is_trusted;
	double mean_ns;      /* over the window */
	double mean_error;   /* |predicted - observed| / observed over the window */
	double speedup;      /* of this device over the CPU at @count */
	uint32_t break_even; /* least count at which it beats the CPU; 0: at none */
};
void place_plan_report(const struct placer *placer, const struct place_plan *place_plan,
		       uint8_t device, uint32_t count, struct place_report *ret);

/* --- Decisions --- */

enum {
	PLACE_MAY_PARTITION = 1 << 0, /* RBK_SQE_PARTITION */
	PLACE_MAY_WAIT = 1 << 1,      /* RBK_SQE_WAIT_MEMORY */
};

struct place_request {
	uint32_t count;
	uint8_t strategy;     /* validated */
	uint8_t flags;        /* PLACE_MAY_* */
	uint64_t deadline_ns; /* from now; 0: none */
};

enum {
	PLACE_EXPLORES = 1 << 0, /* not the best by estimate, but to learn */
	PLACE_PROBES = 1 << 1,   /* shows whether a device that failed works again */
	PLACE_BOUND = 1 << 2,    /* must not be moved to another device */
};

/* Fits two registers: a decision that went through memory would be read before it was written. */
struct place_decision {
	/*
	 * RBK_DEVICE_NONE: no device; the task is refused with -ENOMEM if the reason is
	 * RBK_REASON_MEMORY_CONSTRAINT, else with -ENODEV.
	 */
	uint8_t device;
	uint8_t reason; /* enum rbk_reason */
	/*
	 * Where it would have run, had the plan's memory been there (PLAN_DEVICE_EVICTED); a device
	 * with memory of its own, or RBK_DEVICE_NONE: any of several. 0: nothing is missing, or it
	 * will never be there. Set only with RBK_REASON_MEMORY_CONSTRAINT.
	 */
	uint8_t wanted;
	uint8_t flags; /* PLACE_EXPLORES and so on */
	/*
	 * Rows [0, split_count) run on device, the others on the CPU at the same time; 0: all of
	 * them on device. A multiple of plan->row_grain.
	 */
	uint32_t split_count;
	/*
	 * Execution there, of all rows or of split_count, as disturbed as the device is now and
	 * with as many servers as would be free.
	 */
	float predicted_ns;
	/*
	 * The same on the best of the other devices; 0: there is none. Of a task that is split: of
	 * the other rows on the CPU.
	 */
	float other_ns;
};

/*
 * @flow is whose task it is, for how long it would wait. Counts nothing, and changes nothing but
 * what may be explored next and when the next probe may start. Some twenty nanoseconds.
 */
struct place_decision place_decide(struct placer *placer, struct place_plan *place_plan,
				   struct place_flow *flow, struct place_request request,
				   uint64_t now_ns);

/* Predicted execution of @count rows on a device, undisturbed; what decisions are made of. */
float place_predict_ns(const struct placer *placer, const struct place_plan *place_plan,
		       uint8_t device, uint32_t count);

/*
 * How many rows of @count to give to @device at once, so that it is predicted to be busy for at
 * most submission_max_ns; a multiple of plan->row_grain, or @count: all, or the plan cannot be
 * split. More rows where the whole would take a quarter longer in such parts, because each pays
 * anew for what all of them need. On the CPU, undisturbed: for each part the reactor and a worker
 * wait for a processor, so that more of them would take longer still.
 */
uint32_t place_rows_per_submission(const struct placer *placer, const struct place_plan *place_plan,
				   uint8_t device, uint32_t count);

/* --- Learning --- */

enum place_result {
	PLACE_DONE,    /* with a result */
	PLACE_FAILED,  /* the device did: counts for its success rate */
	PLACE_SKIPPED, /* did not run, and says nothing about the device */
};

/*
 * What became of @count rows of a plan on a device. @exec_ns is from begin to end, @busy_ns what
 * all servers together worked on it (0: as exec_ns). Called by place_done(); by itself for tasks
 * that were never queued, such as a sample of those that run inline.
 */
void place_learn(struct placer *placer, struct place_plan *place_plan, uint8_t device,
		 uint32_t count, enum place_result result, uint64_t exec_ns, uint64_t busy_ns,
		 uint64_t now_ns);

enum place_breaker { PLACE_CLOSED, PLACE_OPEN, PLACE_HALF_OPEN };

/* For people: how a device fares. */
struct place_device_report {
	enum place_breaker breaker;
	double success_rate; /* over the window; 1 if nothing was seen */
	uint64_t n_opened;   /* how often the breaker has opened */
	uint64_t backlog_ns; /* predicted time until it is idle */
	uint64_t n_queued, n_released;
	double contention;
	double explored_share; /* of execution time, lost to exploring */
};
void placer_device_report(const struct placer *placer, uint8_t device, uint64_t now_ns,
			  struct place_device_report *ret);

DEFINE_CLEANUP(struct placer *, placer_free)
