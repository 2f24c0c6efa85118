#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Model: the latest figures of the pages, and values derived from them
 *
 * The model contains copies of records, in the order of the page. It adds rates over the last
 * interval, and histories of the last five minutes. An interval lies between two broker updates a
 * second apart, or shorter at first. A record has rates once it was read at both ends of an
 * interval; until then, and after its counts went back, its rates are negative. Strings are
 * terminated; numbers may have any value. The model does not depend on a terminal.
 */
#include <stdbool.h>
#include <stdint.h>

#include "monitor/pages.h"

enum {
	MODEL_SECONDS = 300, /* length of a history */
	MODEL_MAX_DECISIONS = 1024,
	MODEL_MAX_HISTORIES = 32, /* tenants with histories of their own */
};

/* One value per second; NaN: not observed. A ring; model_series() returns it oldest first. */
struct series {
	double values[MODEL_SECONDS];
};

/* A tenant's part of the histories, in the order of struct series. */
struct model_history {
	float tasks[MODEL_SECONDS];  /* tasks per second */
	float memory[MODEL_SECONDS]; /* bytes of all GPUs */
};

struct model_device {
	struct rbk_stats_device now;
	uint64_t then_ns; /* time of then_tasks; 0: none */
	uint64_t then_tasks;
	double tasks_per_s;
	/* fraction of the last interval in bubbles of tasks in segments; negative: not known */
	double bubble_part;
	double reserved_bytes; /* bytes reserved for tenants but not used */
	struct series load;    /* fractions from 0 to 1 */
};

/* A tenant's counts at the beginning of the interval. */
struct model_counts {
	uint64_t n_tasks, n_gpu_tasks, n_partitioned, n_errors, n_evictions;
	uint64_t copied_bytes, transferred_bytes;
	uint64_t reasons[RBK_STATS_MAX_REASONS];
	uint64_t bubble_ns[RBK_MAX_DEVICES];
};

struct model_tenant {
	/* current record; its histograms are those of the interval's beginning */
	struct rbk_stats_tenant now;
	uint64_t then_ns; /* time of @then, on the broker's clock; 0: none */
	struct model_counts then;
	struct rbk_stats_delay *delay; /* NULL: the tenant was never watched */
	struct model_history *history; /* NULL: not kept */
	double gpu_ns_per_s;           /* GPU nanoseconds per second of all its sessions */
	bool is_used;
	bool has_delay;
	uint64_t leased_bytes[RBK_MAX_DEVICES]; /* memory granted to leases, by device */

	/* over the last interval; negative: not known */
	double tasks_per_s, copied_bytes_per_s, transferred_bytes_per_s;
	double gpu_part; /* fraction of tasks that ran on a GPU */
	double fallbacks_per_s, errors_per_s;
	double p50_ns, p99_ns, queue_p99_ns; /* 0: no task completed */
	bool has_new_evictions;
};

struct model_session {
	struct rbk_stats_session now;
	uint64_t then_ns; /* time of the counts below; 0: none */
	uint64_t then_tasks, then_gpu_tasks, then_bytes, then_gpu_ns;
	uint32_t then_number, then_sequence;
	double tasks_per_s, gpu_part, copied_bytes_per_s;
	double gpu_ns_per_s;               /* GPU nanoseconds per second for its tasks */
	const struct model_tenant *tenant; /* NULL: the tenant is not shown */
};

struct model_lease {
	struct rbk_stats_lease now;        /* number 0: no lease */
	const struct model_tenant *tenant; /* NULL: the tenant is not shown */
	uint64_t then_ns;                  /* time of the counts below; 0: none */
	uint64_t then_slice_ns, then_wait_ns, then_submissions, then_parts;
	uint32_t then_number, then_sequence;
	/* over the last interval; negative: not known */
	double had_part, wait_part; /* fractions of the time: had the device, waited for it */
	double submissions_per_s, parts_per_s;
};

struct model_plan {
	uint32_t tenant, slot; /* tenant's number; slot in its page */
	char tenant_name[RBK_STATS_NAME_BYTES];
	uint64_t n_tasks;
	uint64_t then_ns; /* time of then_tasks; 0: none */
	uint64_t then_tasks, then_made_at_ns;
	double tasks_per_s;
	/* times of a task: learned, and predicted now, of the CPU, and the least of all GPUs */
	double cpu_ns, gpu_ns, cpu_now_ns, gpu_now_ns;
	double speedup;      /* of the GPU with the least learned time */
	double error;        /* of all predictions; -1: not known */
	double window_error; /* of the latest predictions for the device of the last task, or -1 */
	bool is_trusted;     /* times of that device are */
	uint32_t gpu;        /* GPU of gpu_ns, RBK_DEVICE_*, or the first if none has it; 0: none */
	uint32_t gpu_now;    /* GPU of gpu_now_ns; 0: none */
	uint8_t state, tier;
	uint64_t resident_bytes, footprint_bytes;
	struct rbk_stats_plan now; /* without devices, so the last member */
};

struct model_decision {
	struct rbk_stats_decision now;
	uint32_t tenant; /* tenant's number */
	char tenant_name[RBK_STATS_NAME_BYTES];
	char plan_name[RBK_NAME_BYTES];
};

struct model {
	/* header of the page that is shown first */
	bool has_page;
	bool is_root;
	uint32_t pid;
	uint64_t started_at_ns, updated_at_ns, period_ns, n_updates;
	int64_t realtime_offset_ns;
	uint64_t n_resets;
	bool is_closed;

	struct rbk_stats_broker broker;
	struct rbk_stats_upkeep upkeep; /* 0 of brokers that do not report it */
	struct rbk_stats_contention contention;
	struct model_device *devices; /* RBK_MAX_DEVICES */
	uint32_t n_devices;
	struct model_tenant *tenants;
	uint32_t n_tenants;
	struct model_session *sessions;
	uint32_t n_sessions;
	struct model_lease *leases;
	uint32_t n_leases;
	uint32_t n_connected; /* sessions in use */
	uint64_t n_resident;  /* resident plans of the sessions */
	bool is_one;          /* only one of several tenants is shown */
	/* sum of the weights of tenants with sessions that are not shown */
	double weight_of_others;
	double weight_of_all; /* sum of the weights of all tenants with sessions */
	struct model_plan *plans;
	uint32_t n_plans;
	struct model_decision *decisions; /* newest first */
	uint32_t n_decisions;

	/* all worker threads of the broker together, over the last ten seconds */
	double worker_p99_ns; /* 0: not known */
	struct rbk_stats_cause worst;
	double worst_part; /* fraction of the wait that worst caused; 0: none */

	/* the interval */
	bool has_rates;
	uint64_t then_ns;
	double reasons_per_s[RBK_STATS_MAX_REASONS];
	double split_per_s, tasks_per_s, cpu_per_s, gpu_per_s;

	/* histories */
	uint64_t newest_second; /* second of the broker's clock; 0: none */
	struct series tasks, latency, evictions;
	struct series memory; /* used bytes of all GPUs */
	double new_evictions; /* of all tenants since the update before */
	bool knows_evictions; /* evictions were counted over some time */
	unsigned int n_histories;
	double latency_p99_ns; /* of all tenants over the last interval; 0: no task completed */

	/* private */
	bool has_seen;
	bool is_settled; /* not MODEL_UNSETTLED */
	bool is_resumed; /* model_resume() was called since the last update */
	uint64_t seen_updates;
	unsigned int seen_what, seen_pages;
	uint32_t *index; /* hash table of tenants by number */
	uint32_t index_mask;
	uint64_t latency_now[RBK_STATS_BUCKETS];
};

/* Additional data that model_update() reads from tenants' pages, and a property of the pages. */
enum {
	MODEL_PLANS = 1,
	MODEL_DECISIONS = 2,
	/*
	 * The broker has not updated the pages since they were mapped. Counts may be those of an
	 * earlier reader, and shares and loads are averages since then: neither is shown.
	 */
	MODEL_UNSETTLED = 4,
};

/* Return: 0, or -ENOMEM. */
int model_init(struct model *model);
void model_deinit(struct model *model);

/*
 * Read the pages. Decisions are read every time, since the broker logs them at any time; everything
 * else only if the broker has updated the pages since, or if @what or the number of pages has
 * changed. @only: number of the only tenant to read; 0: all. @what: MODEL_*; without MODEL_PLANS,
 * the model has no plans.
 * Return: 0, or -ENOMEM with the previous contents kept.
 */
int model_update(struct model *model, const struct pages *pages, uint32_t only, unsigned int what);

/*
 * Begin a new interval with the next update, after a pause in which the pages were not read: rates
 * are unknown until the update after that one.
 */
void model_resume(struct model *model);

/* Return: the tenant, or NULL if there is none with that number. */
const struct model_tenant *model_tenant(const struct model *model, uint32_t number);
/* Return true if this session is shown. */
static inline bool model_shows(const struct model *model, const struct model_session *session)
{
	return session->now.number && (!model->is_one || session->tenant);
}

static inline bool model_shows_lease(const struct model *model, const struct model_lease *lease)
{
	return lease->now.number && (!model->is_one || lease->tenant);
}
/* Return: the lease, or NULL if it no longer exists. */
const struct model_lease *model_lease(const struct model *model, uint32_t number);
/* Return the bytes that members use, including driver overhead. */
static inline double model_lease_used(const struct model_lease *lease)
{
	return (double)lease->now.used_bytes + (double)lease->now.extra_bytes;
}

static inline const char *cause_name(const struct rbk_stats_cause *cause)
{
	return cause->flags & RBK_STATS_CAUSE_BROKER ? "brokerd" : cause->comm;
}
/* Return the main cause of the processor waits of a tenant's processes; "" if none is known. */
const char *model_causer(const struct model_tenant *tenant);

/* Return the plan in a slot of a tenant, or NULL if it no longer exists. */
const struct model_plan *model_plan(const struct model *model, uint32_t tenant, uint32_t slot);

/* Copy a history, oldest value first. */
void model_series(const struct model *model, const struct series *series,
		  double ret[MODEL_SECONDS]);
/* Copy an array of struct model_history, oldest value first. */
void model_tenant_series(const struct model *model, const float values[MODEL_SECONDS],
			 double ret[MODEL_SECONDS]);
/* Return the number of evictions in the last minute; negative: not known. */
double model_evictions(const struct model *model);

/* Return true if @device has memory of its own. */
static inline bool model_is_gpu(uint32_t device)
{
	return device != RBK_DEVICE_CPU;
}
/* Return a tenant's memory, or its limit, summed over all GPUs, in bytes. */
uint64_t model_gpu_memory(const struct model *model, const struct rbk_stats_tenant *tenant);
uint64_t model_gpu_limit(const struct model *model, const struct rbk_stats_tenant *tenant);
/*
 * Return a tenant's share of device time, averaged over all GPUs, or the share that its weight
 * entitles it to; from 0 to 1, negative: not known.
 */
double model_gpu_share(const struct model *model, const struct rbk_stats_tenant *tenant);
double model_weight_part(const struct model *model, const struct rbk_stats_tenant *tenant);
/* Return a session's part of its tenant's share, in proportion to the GPU time of its tasks. */
double model_session_gpu_share(const struct model *model, const struct model_session *session);
/* Return a device's load as reported by its driver, or else by the broker; from 0 to 1. */
double model_load(const struct rbk_stats_device *device);
/* Return true if the device has enough memory for the unused reserves of all tenants. */
bool model_keeps_reserves(const struct model *model, uint32_t device);
