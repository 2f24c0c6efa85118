#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Placement: where a task runs, and why
 *
 * The placer predicts for each device when a task would be complete there, and chooses a device. It
 * learns from measured times. It takes a failing device out of use, and readmits it. It is
 * deterministic: while it decides it reads no clock, allocates nothing and logs nothing, so every
 * result is repeatable. brokerd drives it with real devices, brokersim with simulated devices in
 * virtual time. schedule.h decides in which order tasks wait.
 *
 * For a task and a device:
 *
 *	completion = wait for the device, as the task's tenant would wait (place_flow_wait_ns())
 *	           + transfer of tensors to the device + execution, by estimate, x contention
 *
 * Contention of a device is a factor that is measured over all its workers. Estimates are times
 * without it. A prediction multiplies an estimate by the share of the factor that tasks of this
 * plan were observed to feel there.
 *
 * An estimate is a plan's time on a device as a function of count. It starts as the sum of the
 * profile's predictions for the plan's nodes. Observations correct it, bucket of count by bucket of
 * count: a mean over about the last executions (place_config.window), robust against outliers, with
 * its spread. It is trusted after enough observations, unless predictions for the plan on the
 * device were wrong by more than half on average (place_report.mean_error).
 *
 * The first rule that applies decides (enum rbk_reason says which did):
 *  1. the plan is pinned, or the entry names a device or ONLY_*: that device (USER_PREFERENCE). A
 *     task that may fall back does, with the reason why the device was not available. With
 *     force-CPU set no other device is available to any task
 *  2. force-CPU: the CPU (GPU_UNAVAILABLE)
 *  3. fewer bytes than threshold_bytes, or a dynamic count below min_count: the CPU
 *     (BELOW_THRESHOLD), unless both estimates are trusted and say otherwise, or a GPU is predicted
 *     to be done, speedup_threshold times over, before the CPU has time to begin
 *  4. no device but the CPU can run the plan (GPU_UNAVAILABLE), or only a breaker prevents it
 *     (BREAKER_OPEN); the plan never fits (MEMORY_CONSTRAINT)
 *  5. until both estimates are trusted, a GPU needs a speed-up of speedup_threshold, of execution
 *     or of completion (GPU_AVAILABLE), otherwise the CPU gets the task (COST_MODEL). Without a
 *     profile of the GPU its speed is unknown, and it gets the task (GPU_AVAILABLE)
 *  6. the earliest completion, plus what place_plan_advise() adds (COST_MODEL; CONTENTION if it is
 *     on a GPU only because of the CPU's contention factor)
 *  7. a deadline that the chosen device would miss and another would meet moves the task there
 *     (COST_MODEL)
 *  8. where the plan is not resident on the chosen GPU now (PLAN_DEVICE_EVICTED), the CPU
 *     (MEMORY_CONSTRAINT, wanted = the GPU). A GPU with the plan resident comes before others
 * Strategies change 5 and 6: PREFER_* (USER_PREFERENCE, whatever the size), LATENCY (completion
 * with twice the estimate's spread on top), ENERGY (the least energy among devices that complete
 * within energy_slack x the earliest completion, if the power of all of them is known), PARTITION
 * (on request: whatever the size and the gain; USER_PREFERENCE).
 *
 * Two kinds of breaker guard each device: its own, and one for each plan on it, so that one bad
 * plan does not take a device from all tenants. While a breaker bars a device, a task that would be
 * placed there may be the probe that shows whether the device works again.
 *
 * Every estimate is finite and above 0, whatever was observed and whatever a clock says. Reactor
 * thread only.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <ringbroker/abi.h>

#include "place/profile.h"
#include "plan/plan.h"
#include "util/cleanup.h"

struct placer;
struct place_flow;
struct place_plan;
struct place_task;

/* Settings that administrators may change; brokerd.conf(5) has the keys. */
struct place_config {
	uint64_t threshold_bytes; /* tasks that touch fewer bytes stay on the CPU */
	uint32_t min_count;       /* tasks with a smaller dynamic count stay on the CPU */
	uint32_t window;          /* executions over which estimates and success rates look back */
	float speedup_threshold;  /* of the GPU, until both estimates are trusted */
	float success_rate;       /* of a device; the breaker opens below it */
	float exploration;        /* share of execution time that may be lost to exploring */
	uint64_t partition_min_bytes;    /* smaller tasks are not split */
	float partition_min_gain;        /* least gain of a split: 0.2 is 1.2 times as fast */
	float balance_high, balance_low; /* ratio of backlogs beyond which queued work moves */
	uint64_t submission_max_ns;      /* predicted; longer tasks are run in parts */
	float energy_slack;              /* see ENERGY above */
	uint8_t strategy;                /* meaning of RBK_STRATEGY_AUTO: AUTO, LATENCY, ENERGY */
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
	/* Copied. NULL or not valid: the device is unknown except for n_servers, if above 0. */
	const struct place_profile *profiles[RBK_MAX_DEVICES];
	/*
	 * Called for each queued task that place_rebalance() has moved. The task's decision already
	 * has the new device, and the reason RBK_REASON_COST_MODEL. May be NULL.
	 */
	void (*moved)(void *context, struct place_task *task, uint8_t from);
	void *context;
};

/*
 * Make a placer.
 * Return: 0 or -ENOMEM.
 */
int placer_new(const struct placer_options *options, struct placer **ret);

/*
 * Append what was learned about plans, at most @max, to @stream, for placer_restore(). @keys tells
 * devices apart, across restarts. Errors are those of the stream.
 */
enum { PLACER_SAVE_ALL = 1024 };
void placer_save(const struct placer *placer, const uint64_t *keys, uint64_t now_s, uint32_t max,
		 FILE *stream);
/*
 * Have plans that are made from now on begin with what a placer has saved about them, at most a
 * month ago. The bytes are copied.
 * Return: 0; PLACER_E_IMPOSSIBLE: the bytes are none that placer_save() writes, and nothing has
 * changed; -ENOMEM.
 */
enum { PLACER_E_IMPOSSIBLE = 1 };
int placer_restore(struct placer *placer, const uint64_t *keys, uint64_t now_s, const void *bytes,
		   size_t n_bytes);
/*
 * Free the placer. No plan, flow or task may be left.
 * Return: NULL.
 */
struct placer *placer_free(struct placer *placer);

/*
 * Set the configuration, from the next decision on. Learned estimates stay. Since there may be many
 * plans, each keeps its thresholds until place_plan_configure().
 */
void placer_configure(struct placer *placer, const struct place_config *config);
const struct place_config *placer_config(const struct placer *placer);

/*
 * Set a better profile of a device. It serves plans prepared from now on, and estimates without
 * history.
 */
void placer_set_profile(struct placer *placer, uint8_t device, const struct place_profile *profile);
const struct place_profile *placer_profile(const struct placer *placer, uint8_t device);

/*
 * Set how many times longer execution on a device takes than it would undisturbed, as measured over
 * its workers; clamped to 1..100. Tasks that began to take longer just before @now_ns, when this
 * was not known, change no estimate.
 */
void placer_set_contention(struct placer *placer, uint8_t device, float factor, uint64_t now_ns);

/*
 * Use only @n_servers of a device's servers from now on; 0, or more than it has: all. Waits, and
 * tasks that more servers would share, are predicted to take longer accordingly. Learned estimates
 * stay, since they are of work.
 */
void placer_limit_servers(struct placer *placer, uint8_t device, uint32_t n_servers);

/*
 * Return true if @device has a task that no other device could do, or has begun such a task since
 * the last call. There are two causes: no other device exists or is ready for the plan, or the
 * client asked for this one.
 */
bool placer_is_needed(struct placer *placer, uint8_t device);

/* Drain @device: place nothing on it, as if it did not exist; or end that. Not for the CPU. */
void placer_set_drained(struct placer *placer, uint8_t device, bool is_drained);
bool placer_is_drained(const struct placer *placer, uint8_t device);

/*
 * Reset the breakers of a device that was reopened: its failures do not count any more. Learned
 * times stay.
 */
void placer_reset_device(struct placer *placer, uint8_t device);

/* --- Plans --- */

/*
 * Make the placer's record of a plan; borrows @plan. If a plan of the same fingerprint was freed
 * before (a client came back), the record begins with that plan's history.
 * Return: 0 or -ENOMEM.
 */
int place_plan_new(struct placer *placer, const struct plan *plan, struct place_plan **ret);
/*
 * Allocate memory for plans that are to be added, so that place_plan_new() need not wait for the
 * kernel. Only one thread may call this; it may be another one than the reactor.
 */
void placer_prepare(struct placer *placer);
/* Find out which counts of a plan are below the thresholds of the configuration. */
void place_plan_configure(const struct placer *placer, struct place_plan *place_plan);
/*
 * Have decisions for the plan compare completion plus @bias_ns of each device from now on, unless
 * it is INFINITY; with PLACE_IN_STREAM instead plus @reduced_ns, PLACE_STREAM_WEIGHT times for each
 * task in flight. NULL: completion alone. Borrowed until the record is freed: their owner may
 * change the elements, one for each device. See place/graph.h.
 */
#define PLACE_STREAM_WEIGHT 4.0f
void place_plan_advise(struct place_plan *place_plan, const float *bias_ns,
		       const float *reduced_ns);
/*
 * Free a plan's record. No task of the plan may be queued.
 * Return: NULL.
 */
struct place_plan *place_plan_free(struct placer *placer, struct place_plan *place_plan);

/* Return the bytes of host memory that place_plan_new() takes at most, to be charged first. */
uint64_t place_plan_bytes(const struct placer *placer, const struct plan *plan);

/* Forget what was learned and counted of a plan; its statistics begin anew for all readers. */
void place_plan_reset(struct placer *placer, struct place_plan *place_plan);

/* A plan on one device, for reports */
struct place_report {
	uint64_t n_done; /* executions since the plan was made, or reset */
	uint64_t n_failed;
	uint64_t n_explored;
	double exec_ns;    /* learned time for the report's count, undisturbed */
	double contention; /* how many times longer tasks take now; predicted: exec_ns x this */
	double spread;     /* of exec_ns, relative: 0.1 is 10% */
	bool is_trusted;
	double mean_ns; /* over the window */
	/*
	 * |predicted - observed| / observed, each at most 1, over the window; without the first
	 * PLACE_TRUST executions at any count
	 */
	double mean_error;
	double speedup;      /* of this device over the CPU at @count */
	uint32_t break_even; /* least count at which it beats the CPU; 0: none */
};
void place_plan_report(const struct placer *placer, const struct place_plan *place_plan,
		       uint8_t device, uint32_t count, struct place_report *ret);

/* --- Decisions --- */

enum {
	PLACE_MAY_PARTITION = 1 << 0, /* RBK_SQE_PARTITION */
	PLACE_MAY_WAIT = 1 << 1,      /* RBK_SQE_WAIT_MEMORY */
	/*
	 * Answer for undisturbed devices without work, whatever they do now. No task follows:
	 * nothing is explored or probed.
	 */
	PLACE_AS_IF_IDLE = 1 << 2,
	PLACE_UNADVISED = 1 << 3, /* leave place_plan_advise() out */
	PLACE_IN_STREAM = 1 << 4, /* n_in_flight tasks are to be done soon, not this one */
};

struct place_request {
	uint32_t count;
	uint8_t strategy;     /* validated */
	uint8_t flags;        /* PLACE_MAY_* */
	uint16_t n_in_flight; /* PLACE_IN_STREAM: like tasks in flight, with this one */
	uint64_t deadline_ns; /* from now; 0: none */
};

enum {
	PLACE_EXPLORES = 1 << 0, /* not the best by estimate, chosen to learn */
	PLACE_PROBES = 1 << 1,   /* shows whether a failed device works again */
	PLACE_BOUND = 1 << 2,    /* must not be moved to another device */
	PLACE_ADVISED = 1 << 3,  /* place_plan_advise() had a part in it */
	/* likewise, for a stream: until it is late it moves only to a device that is idle */
	PLACE_STREAMED = 1 << 4,
};

/* Fits two registers: in memory, a decision would be read before its stores have completed. */
struct place_decision {
	/*
	 * RBK_DEVICE_NONE: no device; the task is rejected with -ENOMEM if the reason is
	 * RBK_REASON_MEMORY_CONSTRAINT, otherwise with -ENODEV.
	 */
	uint8_t device;
	uint8_t reason; /* enum rbk_reason */
	/*
	 * The device on which the task would have run if the plan were resident
	 * (PLAN_DEVICE_EVICTED): a device with memory of its own, or RBK_DEVICE_NONE: any of
	 * several. 0: no memory is missing, or the plan will never fit. Set only with
	 * RBK_REASON_MEMORY_CONSTRAINT.
	 */
	uint8_t wanted;
	uint8_t flags; /* PLACE_EXPLORES and so on */
	/*
	 * Rows [0, split_count) run on device, the other rows on the CPU at the same time; 0: all
	 * rows run on device. A multiple of plan->row_grain.
	 */
	uint32_t split_count;
	/*
	 * Predicted execution on device, of all rows or of split_count, with the device's present
	 * contention and as many servers as would be free
	 */
	float predicted_ns;
	/*
	 * The same prediction for the best of the other devices; 0: there is none. For a split
	 * task: of the other rows on the CPU.
	 */
	float other_ns;
};

/*
 * Decide where a task of @flow runs; the flow determines how long the task would wait. Counts
 * nothing, and changes nothing except what may be explored next and when the next probe may start.
 * Takes some twenty nanoseconds.
 */
struct place_decision place_decide(struct placer *placer, struct place_plan *place_plan,
				   struct place_flow *flow, struct place_request request,
				   uint64_t now_ns);

/*
 * Return the predicted execution of @count rows on a device, undisturbed. Decisions are based on
 * it.
 */
float place_predict_ns(const struct placer *placer, const struct place_plan *place_plan,
		       uint8_t device, uint32_t count);

/*
 * Return what @count rows take of a device's time, undisturbed: less than place_predict_ns() where
 * they leave servers to other tasks.
 */
float place_share_ns(const struct placer *placer, const struct place_plan *place_plan,
		     uint8_t device, uint32_t count);

/*
 * Return the same as place_predict_ns(), or INFINITY if no task of the plan is placed on the device
 * at the moment.
 */
float place_offer_ns(const struct placer *placer, const struct place_plan *place_plan,
		     uint8_t device, uint32_t count);

/* Return how long a new task of @flow would wait for a device. */
float place_queue_ns(const struct placer *placer, const struct place_flow *flow, uint8_t device,
		     uint64_t now_ns);

/*
 * Return the share by which a task that touches @bytes must become faster for it to be computed by
 * several devices in parts; 0: it asked for that; INFINITY: it must not be. @strategy and @flags
 * are those of a request.
 */
float place_partition_gain(const struct placer *placer, uint8_t strategy, uint8_t flags,
			   uint64_t bytes);

/*
 * Return the number of rows of @count to submit to @device at once, so that the device is predicted
 * to be busy for at most submission_max_ns. The result is a multiple of plan->row_grain, or @count:
 * all rows fit, or the plan cannot be split. The result has more rows if the whole would otherwise
 * take a quarter longer, because each submission repeats what all rows need. On the CPU the
 * prediction is undisturbed: the reactor and a worker wait for a processor for each submission, so
 * more of them would take longer still.
 */
uint32_t place_rows_per_submission(const struct placer *placer, const struct place_plan *place_plan,
				   uint8_t device, uint32_t count);

/* --- Learning --- */

enum place_result {
	PLACE_DONE,    /* executed, with a result */
	PLACE_FAILED,  /* the device failed: counts for its success rate */
	PLACE_SKIPPED, /* not executed: says nothing about the device */
};

/*
 * Learn from @count rows of a plan on a device. @exec_ns is from begin to end, @busy_ns the sum of
 * all servers' work (0: as exec_ns). place_done() calls it. Call it directly for tasks that were
 * never queued, such as a sample of the inline tasks.
 */
void place_learn(struct placer *placer, struct place_plan *place_plan, uint8_t device,
		 uint32_t count, enum place_result result, uint64_t exec_ns, uint64_t busy_ns,
		 uint64_t now_ns);

enum place_breaker { PLACE_CLOSED, PLACE_OPEN, PLACE_HALF_OPEN };

/* A device's state, for reports */
struct place_device_report {
	enum place_breaker breaker;
	double success_rate; /* over the window; 1 without results */
	uint64_t n_opened;   /* times that the breaker has opened */
	uint64_t backlog_ns; /* predicted time until the device is idle */
	uint64_t n_queued, n_released;
	double contention;
	double explored_share; /* of execution time, lost to exploring */
};
void placer_device_report(const struct placer *placer, uint8_t device, uint64_t now_ns,
			  struct place_device_report *ret);

DEFINE_CLEANUP(struct placer *, placer_free)
