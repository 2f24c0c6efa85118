#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Inside the placement engine
 *
 * Shared by the placer's parts: estimates and decisions (placer.h) and the scheduler (schedule.h),
 * whose own state is in schedule-private.h. Private to place/.
 *
 * A plan has a hot part, one cache line and one entry per bucket of count and device, which is all
 * that a decision reads. Its cold part is its history, which learning works on and which outlives
 * the plan for a while. Learning rewrites the entries, so that a decision does no more than a
 * multiplication and an addition per device. Reactor thread only.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "place/placer.h"
#include "place/schedule-private.h"
#include "util/list.h"

/* Bounds of every prediction, which leave room for sums: 2^-10 ns, and 2^53 ns = 104 days */
#define PLACE_MIN_NS (1.0f / 1024)
#define PLACE_MAX_NS 9007199254740992.0f

/* --- Breakers --- */

enum {
	/* Results that a device's success rate looks back on at most */
	PLACE_BREAKER_MAX_WINDOW = 1024,
	/* Failures that open a breaker: so many of the last few results, or of a bad window */
	PLACE_BREAKER_FAILURES = 3,
	/* The last few results of a breaker */
	PLACE_BREAKER_QUICK = 8,
	/* Results that tell a failing plan from a failing device */
	PLACE_BREAKER_LAST = 16,
	/* Successes in a row that close a half-open breaker */
	PLACE_BREAKER_PROBES = 20,
};

#define PLACE_BACKOFF_MIN_NS 100000000ull   /* 0.1 s */
#define PLACE_BACKOFF_MAX_NS 60000000000ull /* 1 min */

/* Breaker of a device, or of one plan on one device. All 0: closed, no results. */
struct place_breaker_state {
	uint8_t state;       /* enum place_breaker */
	uint8_t n_probes;    /* successes in a row while half-open */
	uint8_t recent;      /* last results, the newest in bit 0; 1: a failure */
	uint32_t n_good;     /* results since it closed, saturating */
	uint64_t since_ns;   /* when it opened */
	uint64_t backoff_ns; /* time that it stays open; 0: never opened */
	uint64_t probe_ns;   /* half-open: earliest time of the next probe */
	uint64_t n_opened;
};

/* The last results on a device, and their plans */
struct place_results {
	uint64_t failed[PLACE_BREAKER_MAX_WINDOW / 64]; /* a bit each */
	uint32_t next, n, n_failed;
	/* The newest results, which tell a failing plan from a failing device */
	struct {
		const struct place_plan *place_plan;
		bool is_failure;
	} last[PLACE_BREAKER_LAST];
	uint32_t last_next;
};

/*
 * Count a result. @lost_ns: time that a failure took; @is_window_bad: too many results of the
 * window are failures.
 * Return: true if the state has changed.
 */
bool place_breaker_result(struct place_breaker_state *breaker, bool is_failure, bool is_window_bad,
			  uint64_t lost_ns, float success_rate, uint64_t now_ns);
/*
 * Return true if a real task may probe now whether the device works again. Change from open to
 * half-open when the back-off is over.
 */
bool place_breaker_may_probe(struct place_breaker_state *breaker, uint64_t now_ns);
/* Note a probe that is predicted to take that long: no other probe starts meanwhile. */
void place_breaker_probing(struct place_breaker_state *breaker, float predicted_ns,
			   uint64_t now_ns);

/* Results for the success rate */
void place_results_count(struct place_results *results, uint32_t window, bool is_failure);
double place_results_rate(const struct place_results *results);
/* Remember a result for place_results_blame(). */
void place_results_remember(struct place_results *results, const struct place_plan *place_plan,
			    bool is_failure);
/* Return true if all remembered failures are @place_plan's, and other plans succeeded. */
bool place_results_blame(const struct place_results *results, const struct place_plan *place_plan);
/* Forget a plan: its address may soon be another plan's. */
void place_results_forget(struct place_results *results, const struct place_plan *place_plan);

/* --- Memory --- */

/* Allocator of pieces of a few sizes, side by side, aligned to cache lines. All 0: empty. */
struct place_slab {
	struct place_chunk *chunks; /* newest first */
	char *next;                 /* unused rest of the newest chunk */
	size_t left_bytes, low_bytes;
	struct place_free *free[7];          /* by kind */
	_Atomic(struct place_chunk *) spare; /* next chunk, made by place_slab_prepare() */
	atomic_bool is_low;                  /* a spare will be needed soon */
};

/*
 * Make the first chunk, which suffices for most machines: a mapping of its own.
 * Return: 0; -ENOMEM.
 */
int place_slab_init(struct place_slab *slab);
/*
 * Make the next chunk before it is needed. Only one thread may call this, one that may wait for the
 * kernel to find and clear a huge page. The other functions are for the slab's own thread.
 */
void place_slab_prepare(struct place_slab *slab);
/*
 * Take a piece of a kind, whose size is always @bytes, a multiple of 64.
 * Return: NULL without memory.
 */
void *place_slab_take(struct place_slab *slab, unsigned int kind, size_t bytes);
void place_slab_give(struct place_slab *slab, unsigned int kind, void *memory);
/* Free the slab with all its pieces. */
void place_slab_deinit(struct place_slab *slab);

/* --- Estimates --- */

enum {
	/* log2 of the buckets of count per octave */
	PLACE_BUCKET_BITS = 1,
	PLACE_MAX_BUCKETS = 32 << PLACE_BUCKET_BITS,
	/* Observations after which an estimate is trusted */
	PLACE_TRUST = 3,
	/* Deviations to one side in a row that show a change */
	PLACE_CHANGE = 4,
	/* place_entry.felt of tasks that feel all of the contention */
	PLACE_FELT_ONE = 64,
	/* Changes to longer times that are remembered, in case contention explains them */
	PLACE_SLOWED = 64,
	/* Histories kept of freed plans */
	PLACE_MAX_HISTORIES = 64,
};

enum {
	PLACE_ENTRY_TRUSTED = 1 << 0,
	PLACE_ENTRY_KNOWN = 1 << 1, /* by profile or observation, not a guess */
};

/* A decision's view of one device at the counts of one bucket */
struct place_entry {
	/*
	 * Execution while all servers are idle: base_ns + slope_ns x position in the bucket, 0..1
	 */
	float base_ns, slope_ns;
	float servers;   /* mean number of servers then: work / execution */
	uint16_t spread; /* of execution, relative, in 1/1024 */
	uint8_t flags;   /* PLACE_ENTRY_* */
	/* Root of the share of the device's contention that tasks feel, in 1/PLACE_FELT_ONE */
	uint8_t felt;
};

/* The data behind an entry: one device at the counts of one bucket */
struct place_estimate {
	/* By the profile. */
	float prior_base_ns, prior_slope_ns; /* execution while all servers are idle */
	float prior_servers;                 /* work / execution */
	/* Valid if n > 0 */
	float ratio;     /* observed work / the prior's */
	float servers;   /* as observed while no other task ran */
	float deviation; /* mean of |observed / estimated - 1|, or of the inverse ratio if larger */
	float first[PLACE_TRUST];
	float closest;  /* least deviation of the run */
	float shown;    /* ratio given to neighbours without observations */
	int32_t run;    /* deviations in a row: above 0 slower, below 0 faster */
	uint32_t n;     /* observations, at most the window */
	uint64_t seen;  /* history->n_done at the last observation */
	uint64_t began; /* history->n_done when it last began anew */
	/* Share of the device's contention that tasks feel, and the last two observed; less 1 */
	float felt, felt_before[2];
};

/* One plan on one device. */
struct place_record {
	uint64_t n_done, n_failed, n_explored;
	uint32_t n_mean, n_errors; /* executions in the means, at most the window */
	double mean_ns, mean_error;
	bool is_wrong; /* mean_error is too large for trust */
	/* Executions in a row, at any count, that deviated to one side */
	int32_t run;
	float closest;
	uint64_t run_began;
	uint32_t run_bucket;  /* of the run's first execution */
	bool has_run_buckets; /* the run has executions of other buckets */
	/* A running exploration: time that it may take without a loss, and the budget set aside */
	bool is_exploring;
	float best_ns, set_aside_ns;
	uint64_t explore_began; /* history->n_done */
	struct place_breaker_state breaker;
};

/* Knowledge about a plan that decisions do not read */
struct place_history {
	struct list_node link;         /* in placer->plans or placer->histories */
	struct place_plan *place_plan; /* NULL: the plan was freed */
	uint64_t fingerprint;          /* 0: none */
	uint32_t n_buckets, n_devices;
	uint64_t n_done;                  /* on all devices */
	uint64_t wished;                  /* n_done at the last wish */
	double budget_ns;                 /* time that exploring may lose; below 0: debt */
	struct place_record *records;     /* [device] */
	struct place_estimate *estimates; /* [bucket * n_devices + device] */
};

/* saved.c: fill a new history with one that was saved for @fingerprint, if there is one. */
void place_saved_take(struct placer *placer, uint64_t fingerprint, struct place_history *history);

/* The part of a plan that decisions read now and then; a cache line, then entries */
struct place_rest {
	struct place_history *history;
	uint32_t broken; /* devices barred by this plan's own breakers, as a mask */
	/* place_plan_advise(), by device; NULL: none */
	const float *bias_ns, *reduced_ns;
	struct place_gate *gates; /* [device] */
	/* [bucket * n_devices + device] */
	struct place_entry entries[] __attribute__((__aligned__(64)));
};

/*
 * All that a decision between two devices reads if the count is in the same bucket as the last one:
 * many plans have one count. A cache line beside those of other plans, see slab.c.
 */
struct place_plan {
	const struct plan *plan;
	struct place_rest *rest;
	uint32_t below_count; /* tasks of a smaller count are below a threshold */
	uint16_t near_bucket;
	uint16_t wish_bucket; /* bucket to explore on wish_device; UINT16_MAX: none */
	uint8_t wish_device;
	uint8_t n_buckets;
	uint8_t n_devices;
	bool is_dynamic; /* the leading dimension is dynamic */
	bool is_pinned;
	bool is_plain;              /* two devices, not pinned, no breaker of its own open */
	struct place_entry near[2]; /* copy of near_bucket's entries for two devices */
} __attribute__((__aligned__(64)));

_Static_assert(sizeof(struct place_plan) == 64, "a cache line");

/* A count's bucket, and the position in it: 0 up to 1, 1 excluded */
struct place_spot {
	uint32_t bucket;
	float into;
};

/*
 * Find the bucket of a count: a float's exponent is the octave, the mantissa's first bits are the
 * bucket in it. Counts from 2^24 on are rounded, which does not matter.
 */
static inline struct place_spot place_spot(const struct place_plan *place_plan, uint32_t count)
{
	const uint32_t shift = 23 - PLACE_BUCKET_BITS, mask = (1u << shift) - 1;
	float value = (float)(count ? count : 1);
	struct place_spot spot;
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	spot.bucket = (bits >> shift) - (127u << PLACE_BUCKET_BITS);
	spot.into = (float)(int32_t)(bits & mask) * (1.0f / (float)(1u << shift));
	if (__builtin_expect(spot.bucket >= place_plan->n_buckets, 0)) {
		spot.bucket = place_plan->n_buckets - 1u;
		spot.into = 1;
	}
	return spot;
}

/* Write the entry of an estimate, and the entries of neighbours that are derived from it. */
void place_estimate_show(struct place_plan *place_plan, uint32_t bucket, uint8_t device,
			 bool is_known);
/* Write all entries of a device. */
void place_estimate_show_all(struct place_plan *place_plan, uint8_t device, bool is_known);

/* Set which breakers of the plan are open, as decisions read it. */
static inline void place_plan_set_broken(struct place_plan *place_plan, uint32_t broken)
{
	place_plan->rest->broken = broken;
	place_plan->is_plain = place_plan->n_devices == 2 && !place_plan->is_pinned && !broken &&
			       !place_plan->rest->bias_ns;
}

/* Compute a profile's predictions for a plan, and the plan's entries anew. */
void place_plan_derive(struct placer *placer, struct place_history *history, uint8_t device);

/* --- Devices --- */

struct place_device {
	float contention;   /* as it was set, 1..100 */
	float slowdown;     /* how many times longer its tasks take, on average */
	uint32_t n_servers; /* that it has; queue.n_servers are in use */
	uint32_t n_in_use;  /* upper limit; 0: all */
	bool is_known;      /* its profile is valid */
	struct place_queue queue;
	struct place_profile profile;
	struct place_breaker_state breaker;
	struct place_results results;
	double executed_ns, explored_ns; /* executed in all; lost to exploring */
	uint64_t last_end_ns;            /* end of its last execution */
	/* Time that contention cost its last tasks, and that it would have cost at its factor */
	double felt_ns, told_ns;
	/*
	 * The most contention that a task may have met that ends now. It counts until a task ends
	 * that began after fell_ns, when the fall to fallen_to was noticed; fell_ns is 0: no fall.
	 */
	float most_contention, fallen_to;
	uint64_t fell_ns;
};

/* An estimate that began anew with a longer time, to be restored if contention was the cause */
struct place_slowed {
	struct place_history *history; /* NULL: it was freed or reset */
	uint64_t at_ns;
	uint32_t bucket;
	float ratio; /* before */
	uint8_t device;
};

struct placer {
	struct place_config config;
	uint32_t n_devices;
	uint32_t drained;  /* drained devices, as a mask */
	uint32_t closed;   /* other devices whose breaker is closed */
	bool is_plain;     /* two devices, both closed, no setting that changes the rules */
	bool is_contended; /* some device has contention */
	void (*moved)(void *context, struct place_task *task, uint8_t from);
	void *context;
	struct place_schedule schedule;
	struct list_node plans;     /* struct place_history of existing plans */
	struct list_node histories; /* those of freed plans, oldest first */
	uint32_t n_histories;
	struct place_saved *saved; /* those that an earlier broker has saved; NULL: none */
	struct place_slab lines;   /* struct place_plan */
	struct place_slab rests;   /* struct place_rest, by kind_of_rest() */
	struct place_device devices[RBK_MAX_DEVICES];
	/* Decisions do not read these. */
	struct place_slowed slowed[PLACE_SLOWED]; /* the latest at n_slowed - 1, as a ring */
	uint32_t n_slowed;
	uint64_t learned_ns; /* end of the last execution that was learned from */
};

/* --- Contention and learned times; see felt-hot.c --- */

/* Up to this contention observed times are divided by it; more makes them uncertain. */
#define PLACE_MILD_CONTENTION 1.25f

/* Update a device's slowdown after its contention, or the share of it that tasks feel, changed. */
void place_device_update(struct place_device *device);
/* Return the most contention that a task may have met that began at @began_ns and ends now. */
float place_most_contention(struct place_device *device, uint64_t began_ns, uint64_t now_ns);
/*
 * Replace *@ratio, observed under @contention, by what it shows of the undisturbed ratio. @known:
 * the ratio known before.
 * Return: false if that is the known ratio, because the observation shows nothing new.
 */
bool place_narrow(const struct place_estimate *estimate, float known, float contention,
		  float *ratio);
/*
 * Learn which share of the device's contention a task felt that would have taken @alone_ns of work
 * and took @took_ns.
 */
void place_feel(struct place_device *device, struct place_estimate *estimate, float alone_ns,
		float took_ns);
/* Return place_entry.felt of an estimate. */
uint8_t place_felt_byte(const struct place_estimate *estimate);
/* Remember the ratio of an estimate that begins anew with a longer time. */
void place_estimate_slowed(struct placer *placer, struct place_history *history, uint32_t bucket,
			   uint8_t device, float ratio);
/*
 * Contention of a device has begun: restore the estimates that began anew with longer times just
 * before @now_ns, because it was not known yet.
 */
void place_estimate_undo(struct placer *placer, uint8_t device, uint64_t now_ns);
/* Forget the changes of a history's estimates; NULL: of all. */
void place_estimate_forget(struct placer *placer, const struct place_history *history);

/*
 * Update placer->closed and is_plain after a breaker, the drained devices or the configuration
 * changed.
 */
void placer_update(struct placer *placer);

/* --- For the scheduler --- */

/*
 * Return the time of all servers of a device together for @count rows, undisturbed. Tasks are
 * charged with it, and backlogs are made of it. place_predict_ns() is shorter where several servers
 * share a task. PLACE_MIN_NS..PLACE_MAX_NS.
 */
float place_work_ns(const struct placer *placer, const struct place_plan *place_plan,
		    uint8_t device, uint32_t count);

/*
 * Learn from @count rows, part of a task that will be learned from as a whole. A part is no
 * execution of its own: it is not counted, and does not concern exploring.
 */
void place_learn_part(struct placer *placer, struct place_plan *place_plan, uint8_t device,
		      uint32_t count, uint64_t exec_ns, uint64_t busy_ns, uint64_t now_ns);

/*
 * Return the execution of @count rows as it would be now alone on a device with @contention; see
 * place_predict_ns().
 */
float place_predict_now_ns(const struct placer *placer, const struct place_plan *place_plan,
			   uint8_t device, uint32_t count, float contention);

/* Return the usual error of place_work_ns(), relative. */
float place_spread(const struct placer *placer, const struct place_plan *place_plan, uint8_t device,
		   uint32_t count);

/*
 * Return true if a task of the plan may be moved to @device: the plan is ready there, and no
 * breaker is open.
 */
bool place_can_move(const struct placer *placer, const struct place_plan *place_plan,
		    uint8_t device);

/* --- Decisions, in parts --- */

/* Return @contention of a device less the share that the flow causes itself. */
static inline float place_of_others(const struct place_flow *flow, uint8_t device, float contention)
{
	if (device != RBK_DEVICE_CPU)
		return contention;
	return contention - (contention - 1) * flow->own_contention;
}

/*
 * Return the contention of a device for a flow's decisions: the flow's own share of it is no reason
 * to avoid the device. For a flow without a share, this is exactly device.contention.
 */
static inline float place_contention(const struct placer *placer, const struct place_flow *flow,
				     uint8_t device)
{
	return place_of_others(flow, device, placer->devices[device].contention);
}

/*
 * Return the factor by which a task takes longer if its device has @contention. Contention is
 * measured over all workers, and a task may feel less of it, or more: a short task waits for one
 * turn or for none, and a task that runs on the reactor waits for no worker.
 */
static inline float place_felt(const struct place_entry *entry, float contention)
{
	const float root = (float)entry->felt * (1.0f / PLACE_FELT_ONE);

	return 1 + (contention - 1) * root * root;
}

/* Clamp to @min..@max; NaN becomes @min. */
static inline float place_clamp(float value, float min, float max)
{
	if (!(value >= min))
		return min;
	return value > max ? max : value;
}

static inline float place_clamp_ns(float ns)
{
	return place_clamp(ns, PLACE_MIN_NS, PLACE_MAX_NS);
}

/* Return the execution while all servers are idle. */
static inline float place_entry_alone_ns(const struct place_entry *entry, float into)
{
	return entry->base_ns + entry->slope_ns * into;
}

/*
 * Return the time by which a task takes longer than @alone_ns if it begins while others run on the
 * device. It is at most the delay of using only the free servers, and at most the time until all
 * other tasks are done. If no server is free, it includes the wait for one. If only some servers
 * are in use, the task takes accordingly longer.
 */
static inline float place_crowd_ns(const struct placer *placer, const struct place_device *device,
				   const struct place_entry *entry, float alone_ns, uint64_t now_ns)
{
	const struct place_queue *queue = &device->queue;
	float n_free, longer_ns, others_ns, limited_ns = 0;

	if (device->n_servers == 1 || (queue->n_released | device->n_in_use) == 0)
		return 0;
	if (entry->servers > (float)queue->n_servers)
		limited_ns = alone_ns * (entry->servers * queue->inverse_servers - 1);
	if (queue->n_released == 0 || queue->running_slots >= queue->n_servers)
		return limited_ns;
	n_free = (float)(queue->n_servers - queue->running_slots);
	if (n_free >= entry->servers)
		return 0;
	longer_ns = alone_ns * (entry->servers / n_free - 1);
	others_ns = limited_ns + queue_running_ns(queue, schedule_peek(&placer->schedule, now_ns)) *
					 queue->inverse_servers;
	return longer_ns < others_ns ? longer_ns : others_ns;
}

static inline const struct place_entry *place_entry(const struct place_plan *place_plan,
						    uint32_t bucket, uint8_t device)
{
	return &place_plan->rest->entries[bucket * place_plan->n_devices + device];
}

/* Return the execution among the device's other tasks, without contention. */
static inline float place_entry_crowded_ns(const struct placer *placer,
					   const struct place_device *device,
					   const struct place_entry *entry, float into,
					   uint64_t now_ns)
{
	float alone_ns = place_entry_alone_ns(entry, into);

	return alone_ns + place_crowd_ns(placer, device, entry, alone_ns, now_ns);
}

/* Return the execution as it would be now, with the device's contention and its other tasks. */
static inline float place_entry_exec_ns(const struct placer *placer,
					const struct place_device *device,
					const struct place_entry *entry, float into,
					float contention, uint64_t now_ns)
{
	return place_entry_crowded_ns(placer, device, entry, into, now_ns) *
	       place_felt(entry, contention);
}

/*
 * Return true if contention is the reason why a task would be complete on @device later than the
 * @other_ns of another device: undisturbed, and with all servers in use, it would not be later
 * there, after @wait_ns and @exec_ns. With fewer servers both the wait, and a task that uses
 * several, take longer.
 */
static inline bool place_is_disturbed(const struct place_device *device,
				      const struct place_entry *entry, float contention,
				      float wait_ns, float exec_ns, float other_ns)
{
	const float n_in_use = (float)device->queue.n_servers;

	if (contention <= 1)
		return false;
	exec_ns /= place_felt(entry, contention);
	if (entry->servers > n_in_use)
		exec_ns *= n_in_use / entry->servers;
	wait_ns *= n_in_use / (float)device->n_servers;
	return wait_ns + exec_ns <= other_ns;
}

static inline float place_exec_ns(const struct placer *placer, const struct place_plan *place_plan,
				  const struct place_flow *flow, uint8_t device, uint32_t count,
				  uint64_t now_ns)
{
	struct place_spot spot = place_spot(place_plan, count);

	return place_entry_exec_ns(placer, &placer->devices[device],
				   place_entry(place_plan, spot.bucket, device), spot.into,
				   place_contention(placer, flow, device), now_ns);
}

/* Return the time that a flow waits for a device; usually 0. */
static inline float place_wait_ns(const struct placer *placer, const struct place_flow *flow,
				  uint8_t device, uint64_t now_ns)
{
	const struct place_queue *queue = &placer->devices[device].queue;

	if (queue->n_queued + queue->n_released == 0 &&
	    (device != RBK_DEVICE_CPU || flow->cpu_max == 0))
		return 0;
	return (float)place_flow_wait_ns(placer, flow, device, now_ns);
}

static inline bool place_is_below(const struct place_plan *place_plan, uint32_t count)
{
	return count < place_plan->below_count;
}

/*
 * Return true if a small task would be done on a GPU long before the CPU, which is busy with other
 * tasks, even began. The task may then run on the GPU before both estimates are trusted, which is
 * how they become trusted. @flags: set for both devices.
 */
static inline bool place_is_worth_leaving(const struct placer *placer, uint8_t flags,
					  float cpu_wait_ns, float gpu_done_ns)
{
	return (flags & PLACE_ENTRY_KNOWN) &&
	       gpu_done_ns * placer->config.speedup_threshold < cpu_wait_ns;
}

/* Build a decision in registers: see struct place_decision. */
static inline struct place_decision place_decision(uint8_t device, uint8_t reason, uint8_t wanted,
						   uint8_t flags, uint32_t split_count,
						   float predicted_ns, float other_ns)
{
	struct place_decision decision;
	uint32_t words[4] = {(uint32_t)device | (uint32_t)reason << 8 | (uint32_t)wanted << 16 |
				     (uint32_t)flags << 24,
			     split_count};
	_Static_assert(sizeof(words) == sizeof(decision), "two registers");

	memcpy(&words[2], &predicted_ns, sizeof(float));
	memcpy(&words[3], &other_ns, sizeof(float));
	memcpy(&decision, words, sizeof(decision));
	return decision;
}

/*
 * Decide by every rule, for any number of devices; place_decide() handles the most frequent case.
 */
struct place_decision place_decide_in_full(struct placer *placer, struct place_plan *place_plan,
					   struct place_flow *flow, struct place_request request,
					   uint64_t now_ns);

/*
 * If this task, which would be complete after @best_ns on the best device, may explore the wished
 * device, let it.
 * Return: @decision, or another decision to explore.
 */
struct place_decision place_explore(struct placer *placer, struct place_plan *place_plan,
				    struct place_flow *flow, struct place_request request,
				    struct place_decision decision, float best_ns, uint64_t now_ns);
/* After an execution, choose a device that should be explored again. */
void place_wish(struct placer *placer, struct place_plan *place_plan, uint32_t bucket,
		uint8_t device);

/*
 * Split a task: rows [0, *ret_count) on @gpu and the others on the CPU, so that both complete
 * together. Both devices must be ready.
 * Return: the time until completion; 0: it cannot be split.
 */
float place_split(const struct placer *placer, const struct place_plan *place_plan,
		  const struct place_flow *flow, uint8_t gpu, uint32_t count, uint64_t now_ns,
		  uint32_t *ret_count);
