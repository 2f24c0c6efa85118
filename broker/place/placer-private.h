#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Inside the placement engine
 *
 * What the placer's parts know of each other: estimates and decisions (placer.h) and the scheduler
 * (schedule.h), whose own state is in schedule-private.h. Nobody else includes this.
 *
 * A plan has a hot part, one cache line and one entry per bucket of count and device, which is all
 * that a decision reads; and a cold part, its history, which learning works on and which outlives
 * the plan for a while. Learning writes the entries anew, so that a decision does no more than a
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

/* Every prediction is between these, which leaves room for sums: 2^-10 ns, and 2^53 ns = 104 days.
 */
#define PLACE_MIN_NS (1.0f / 1024)
#define PLACE_MAX_NS 9007199254740992.0f

/* --- Breakers --- */

enum {
	/* Results that a device's success rate looks back at most. */
	PLACE_BREAKER_MAX_WINDOW = 1024,
	/* A breaker opens after this many failures, */
	PLACE_BREAKER_FAILURES = 3,
	/* if they are among so many results in a row, or too many of the window. */
	PLACE_BREAKER_QUICK = 8,
	/* Results by which a plan that fails is told from a device that does. */
	PLACE_BREAKER_LAST = 16,
	/* Successes in a row by which a half-open breaker closes. */
	PLACE_BREAKER_PROBES = 20,
};

#define PLACE_BACKOFF_MIN_NS 100000000ull   /* 0.1 s */
#define PLACE_BACKOFF_MAX_NS 60000000000ull /* 1 min */

/* Of a device, and of one plan on one device. All 0: closed, nothing seen. */
struct place_breaker_state {
	uint8_t state;       /* enum place_breaker */
	uint8_t n_probes;    /* successes in a row while half-open */
	uint8_t recent;      /* the last results, the newest in bit 0; 1: a failure */
	uint32_t n_good;     /* results since it closed, saturating */
	uint64_t since_ns;   /* when it opened */
	uint64_t backoff_ns; /* how long it stays open; 0: it never was */
	uint64_t probe_ns;   /* half-open: when the next probe may start */
	uint64_t n_opened;
};

/* The last results on a device, and whose they were. */
struct place_results {
	uint64_t failed[PLACE_BREAKER_MAX_WINDOW / 64]; /* a bit each */
	uint32_t next, n, n_failed;
	/* The last few, for telling a plan that fails from a device that does. */
	struct {
		const struct place_plan *plan;
		bool is_failure;
	} last[PLACE_BREAKER_LAST];
	uint32_t last_next;
};

/*
 * A result; @lost_ns: what a failure took; @is_window_bad: among those remembered elsewhere there
 * are too many failures. Return: has the state changed?
 */
bool place_breaker_result(struct place_breaker_state *breaker, bool is_failure, bool is_window_bad,
			  uint64_t lost_ns, float success_rate, uint64_t now_ns);
/*
 * May a real task show now whether what failed works again? Moves from open to half-open when its
 * time has come.
 */
bool place_breaker_may_probe(struct place_breaker_state *breaker, uint64_t now_ns);
/* A probe is on its way, predicted to take that long: none beside it. */
void place_breaker_probing(struct place_breaker_state *breaker, float predicted_ns,
			   uint64_t now_ns);

/* For the success rate. */
void place_results_count(struct place_results *results, uint32_t window, bool is_failure);
double place_results_rate(const struct place_results *results);
/* For place_results_blame(). */
void place_results_remember(struct place_results *results, const struct place_plan *plan,
			    bool is_failure);
/* Did all failures that are remembered come from @plan, while others succeeded? */
bool place_results_blame(const struct place_results *results, const struct place_plan *plan);
/* Its address may be another plan's soon. */
void place_results_forget(struct place_results *results, const struct place_plan *plan);

/* --- Memory --- */

/* Pieces of a few sizes beside each other, aligned to cache lines. All 0: none yet. */
struct place_slab {
	struct place_chunk *chunks; /* the latest first */
	char *next;                 /* what is left of it */
	size_t left_bytes, low_bytes;
	struct place_free *free[7];          /* by kind */
	_Atomic(struct place_chunk *) spare; /* the next one, made by place_slab_prepare() */
	atomic_bool is_low;                  /* a spare will be needed soon */
};

/* Makes the first chunk, which is enough for most: a mapping of its own. Return: 0; -ENOMEM. */
int place_slab_init(struct place_slab *slab);
/*
 * Make the next chunk before it is needed. Only one thread may call this, one that may wait for the
 * kernel to find and clear a huge page. The other functions are for the thread that has the slab.
 */
void place_slab_prepare(struct place_slab *slab);
/* A piece of a kind, whose size is always @bytes, a multiple of 64. Return: NULL without memory. */
void *place_slab_take(struct place_slab *slab, unsigned int kind, size_t bytes);
void place_slab_give(struct place_slab *slab, unsigned int kind, void *memory);
/* With all pieces. */
void place_slab_deinit(struct place_slab *slab);

/* --- Estimates --- */

enum {
	/* There are 2^this buckets of count in an octave. */
	PLACE_BUCKET_BITS = 1,
	PLACE_MAX_BUCKETS = 32 << PLACE_BUCKET_BITS,
	/* Observations from which on an estimate is trusted. */
	PLACE_TRUST = 3,
	/* That many that deviate to one side, one after the other: it has changed. */
	PLACE_CHANGE = 4,
	/* Histories of freed plans that are kept. */
	PLACE_MAX_HISTORIES = 64,
};

enum {
	PLACE_ENTRY_TRUSTED = 1 << 0,
	PLACE_ENTRY_KNOWN = 1 << 1, /* by profile or observation; else it is a guess */
};

/* What a decision reads of one device at the counts of one bucket. */
struct place_entry {
	/* Execution where all servers are idle: base_ns + slope_ns x how far into the bucket, 0..1.
	 */
	float base_ns, slope_ns;
	float servers;   /* that work on it at a time then: work / execution */
	uint16_t spread; /* of execution, relative, in 1/1024 */
	uint8_t flags;   /* PLACE_ENTRY_* */
};

/* One device at the counts of one bucket: what is behind its entry. */
struct place_estimate {
	/* By the profile. */
	float prior_base_ns, prior_slope_ns; /* execution where all servers are idle */
	float prior_servers;                 /* work / execution */
	/* n > 0: */
	float ratio;     /* observed work / the prior's */
	float servers;   /* as observed while nobody else was there */
	float deviation; /* mean of |observed / estimated - 1|, the larger over the smaller */
	float first[PLACE_TRUST];
	float closest;  /* the least deviation of the run */
	float shown;    /* ratio that neighbours without observations were given */
	int32_t run;    /* how many in a row deviated: above 0 slower, below faster */
	uint32_t n;     /* observations, at most the window */
	uint64_t seen;  /* history->n_done at the last */
	uint64_t began; /* history->n_done when it last began anew */
};

/* One plan on one device. */
struct place_record {
	uint64_t n_done, n_failed, n_explored;
	uint32_t n_mean; /* executions in the means, at most the window */
	double mean_ns, mean_error;
	/* Executions at any count that deviated to one side, one after the other. */
	int32_t run;
	float closest;
	uint64_t run_began;
	uint32_t run_bucket;  /* of the first */
	bool has_run_buckets; /* there were others */
	/* An exploration is on its way: how long it may take without a loss, what was set aside. */
	bool is_exploring;
	float best_ns, set_aside_ns;
	uint64_t explore_began; /* history->n_done */
	struct place_breaker_state breaker;
};

/* What is known of a plan, beside what decisions read. */
struct place_history {
	struct list_node link;   /* in placer->plans or placer->histories */
	struct place_plan *plan; /* NULL: it was freed */
	uint64_t fingerprint;    /* 0: none */
	uint32_t n_buckets, n_devices;
	uint64_t n_done;                  /* on all devices */
	uint64_t wished;                  /* n_done at the last wish */
	double budget_ns;                 /* what may be lost to exploring; below 0 is debt */
	struct place_record *records;     /* [device] */
	struct place_estimate *estimates; /* [bucket * n_devices + device] */
};

/* What decisions read of a plan now and then; a cache line, and then entries. */
struct place_rest {
	struct place_history *history;
	uint32_t broken;          /* devices that this plan's own breakers bar, as a mask */
	struct place_gate *gates; /* [device] */
	struct place_entry entries[] __attribute__((__aligned__(64))); /* as estimates */
};

/*
 * All that a decision between two devices reads at the counts at which the last one was: many plans
 * have one count. A cache line among those of other plans, see slab.c.
 */
struct place_plan {
	const struct plan *plan;
	struct place_rest *rest;
	uint32_t below_count; /* tasks of less are below a threshold */
	uint16_t near_bucket;
	uint16_t wish_bucket; /* at whose counts wish_device should be explored; UINT16_MAX: none */
	uint8_t wish_device;
	uint8_t n_buckets;
	uint8_t n_devices;
	bool is_dynamic; /* its leading dimension */
	bool is_pinned;
	bool is_plain;              /* two devices, not pinned, no breaker of its own in the way */
	struct place_entry near[2]; /* a copy of those of near_bucket, of two devices */
} __attribute__((__aligned__(64)));

_Static_assert(sizeof(struct place_plan) == 64, "a cache line");

/* A count's bucket, and how far it is into it: 0 up to 1, 1 excluded. */
struct place_spot {
	uint32_t bucket;
	float into;
};

/*
 * A float's exponent is the octave, the mantissa's first bits the bucket in it. Counts from 2^24 on
 * are rounded, which does not matter.
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

/* Writes the entry of an estimate, and those of neighbours that take after it. */
void place_estimate_show(struct place_plan *place_plan, uint32_t bucket, uint8_t device,
			 bool is_known);
/* Writes all entries of a device. */
void place_estimate_show_all(struct place_plan *place_plan, uint8_t device, bool is_known);

/* Breakers of the plan have changed: what decisions look at. */
static inline void place_plan_set_broken(struct place_plan *place_plan, uint32_t broken)
{
	place_plan->rest->broken = broken;
	place_plan->is_plain = place_plan->n_devices == 2 && !place_plan->is_pinned && !broken;
}

/* Computes what a profile predicts of a plan, and its entries anew. */
void place_plan_derive(struct placer *placer, struct place_history *history, uint8_t device);

/* --- Devices --- */

struct place_device {
	float contention; /* 1..100 */
	float inverse_contention;
	uint32_t n_servers; /* it has; queue.n_servers are in use */
	uint32_t n_in_use;  /* at most; 0: all */
	bool is_known;      /* its profile is valid */
	struct place_queue queue;
	struct place_profile profile;
	struct place_breaker_state breaker;
	struct place_results results;
	double executed_ns, explored_ns; /* in all; lost */
	uint64_t last_end_ns;            /* when its last execution ended */
};

struct placer {
	struct place_config config;
	uint32_t n_devices;
	uint32_t drained; /* devices where nothing is to be placed, as a mask */
	uint32_t closed;  /* the others whose breaker is closed */
	bool is_plain;    /* two devices, both closed, nothing configured that bends the rules */
	void (*moved)(void *context, struct place_task *task, uint8_t from);
	void *context;
	struct place_schedule schedule;
	struct list_node plans;     /* struct place_history, of plans that exist */
	struct list_node histories; /* and of those that were freed, the oldest first */
	uint32_t n_histories;
	struct place_slab lines; /* struct place_plan */
	struct place_slab rests; /* struct place_rest, by kind_of_rest() */
	struct place_device devices[RBK_MAX_DEVICES];
};

/* After a breaker has changed, or the configuration: what decisions look at first. */
void placer_update(struct placer *placer);

/* --- For the scheduler --- */

/*
 * What @count rows take of a device, the time of all its servers together, undisturbed: what tasks
 * are charged with and backlogs are made of. place_predict_ns() is shorter where several servers
 * share a task. PLACE_MIN_NS..PLACE_MAX_NS.
 */
float place_work_ns(const struct placer *placer, const struct place_plan *place_plan,
		    uint8_t device, uint32_t count);

/*
 * @count rows, part of a task that will be learned from as a whole, took so long: no execution of
 * its own, nothing to count, and nothing that exploring would be about.
 */
void place_learn_part(struct placer *placer, struct place_plan *place_plan, uint8_t device,
		      uint32_t count, uint64_t exec_ns, uint64_t busy_ns, uint64_t now_ns);

/* By how much that is wrong as a rule, relative. */
float place_spread(const struct placer *placer, const struct place_plan *place_plan, uint8_t device,
		   uint32_t count);

/* May a task of the plan be moved to @device: is it ready there, and no breaker in the way? */
bool place_can_move(const struct placer *placer, const struct place_plan *place_plan,
		    uint8_t device);

/* --- Decisions, in parts --- */

/*
 * By how much a device is disturbed as far as a flow's decisions go: what it disturbs itself is no
 * reason to go elsewhere. Where it has no part in it, exactly what everybody sees.
 */
static inline float place_contention(const struct placer *placer, const struct place_flow *flow,
				     uint8_t device)
{
	float contention = placer->devices[device].contention;

	if (device != RBK_DEVICE_CPU)
		return contention;
	return contention - (contention - 1) * flow->own_contention;
}

/* Not a number becomes the least. */
static inline float place_clamp_ns(float ns)
{
	if (!(ns >= PLACE_MIN_NS))
		return PLACE_MIN_NS;
	return ns > PLACE_MAX_NS ? PLACE_MAX_NS : ns;
}

/* Execution where all servers are idle. */
static inline float place_entry_alone_ns(const struct place_entry *entry, float into)
{
	return entry->base_ns + entry->slope_ns * into;
}

/*
 * How much longer a task takes than @alone_ns that begins on a device where others are running: not
 * longer than on the servers that are free, and not longer than until all is done. Where no server
 * is free, that is in what it waits for. And where not all servers are in use, so much longer.
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

/* Execution as it would be now, as disturbed and as crowded as the device is. */
static inline float place_entry_exec_ns(const struct placer *placer,
					const struct place_device *device,
					const struct place_entry *entry, float into,
					float contention, uint64_t now_ns)
{
	float alone_ns = place_entry_alone_ns(entry, into);

	return (alone_ns + place_crowd_ns(placer, device, entry, alone_ns, now_ns)) * contention;
}

/*
 * A task would be complete on @device after @wait_ns and @exec_ns, later than the @other_ns of
 * another device: is contention the reason, so that without it, and with all servers in use, it
 * would not be later? With fewer servers both take longer: what waits, and what uses several.
 */
static inline bool place_is_disturbed(const struct place_device *device,
				      const struct place_entry *entry, float contention,
				      float wait_ns, float exec_ns, float other_ns)
{
	const float n_in_use = (float)device->queue.n_servers;

	if (contention <= 1)
		return false;
	exec_ns /= contention;
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

/* What a flow waits for a device; most of the time nothing. */
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
 * A small task would be done on a GPU long before the CPU, which is busy with others, even began:
 * then it may go there before both estimates are trusted, and so they come to be. @flags: of both.
 */
static inline bool place_is_worth_leaving(const struct placer *placer, uint8_t flags,
					  float cpu_wait_ns, float gpu_done_ns)
{
	return (flags & PLACE_ENTRY_KNOWN) &&
	       gpu_done_ns * placer->config.speedup_threshold < cpu_wait_ns;
}

/* In registers from the start: see struct place_decision. */
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

/* Every rule for any number of devices; place_decide() knows the most frequent case by heart. */
struct place_decision place_decide_in_full(struct placer *placer, struct place_plan *place_plan,
					   struct place_flow *flow, struct place_request request,
					   uint64_t now_ns);

/*
 * Somebody should run on the wished device for once: may this task, which would be complete after
 * @best_ns on the best device? Return: @decision, or another to explore.
 */
struct place_decision place_explore(struct placer *placer, struct place_plan *place_plan,
				    struct place_flow *flow, struct place_request request,
				    struct place_decision decision, float best_ns, uint64_t now_ns);
/* After an execution: which device should be looked at again? */
void place_wish(struct placer *placer, struct place_plan *place_plan, uint32_t bucket,
		uint8_t device);

/*
 * Rows [0, @ret) on @gpu and the others on the CPU, complete together. Both are ready.
 * Return: after how long; 0: it cannot be split.
 */
float place_split(const struct placer *placer, const struct place_plan *place_plan,
		  const struct place_flow *flow, uint8_t gpu, uint32_t count, uint64_t now_ns,
		  uint32_t *ret_count);
