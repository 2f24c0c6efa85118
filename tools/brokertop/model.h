#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the pages said last, and what follows from it
 *
 * Plain copies of records, in the order of the page, with rates over the last interval (two updates
 * of the broker that lie a second apart, or as far as it has come at first) and histories of the
 * last five minutes. Strings end, and numbers may be anything. Nothing here knows a terminal.
 */
#include <stdbool.h>
#include <stdint.h>

#include "monitor/pages.h"

enum {
	MODEL_SECONDS = 300, /* of a history */
	MODEL_MAX_DECISIONS = 1024,
};

/* A value a second; NaN: nobody looked. Oldest first: model_series(). */
struct series {
	double values[MODEL_SECONDS];
};

struct model_device {
	struct rbk_stats_device now;
	uint64_t then_tasks;
	double tasks_per_s;
	double reserved_bytes;      /* that tenants were promised and do not use */
	struct series load, memory; /* 0 to 1 */
};

/* A tenant's counts when the interval began. */
struct model_counts {
	uint64_t n_tasks, n_gpu_tasks, n_partitioned, n_errors, n_evictions;
	uint64_t copied_bytes, transferred_bytes;
	uint64_t reasons[RBK_STATS_MAX_REASONS];
};

struct model_tenant {
	struct rbk_stats_tenant now; /* but histograms, of when the interval began */
	struct model_counts then;
	struct rbk_stats_delay *delay; /* NULL: it is not watched, and was not */
	double gpu_ns_per_s;           /* of its sessions, together */
	bool is_used;
	bool has_delay;
	uint64_t leased_bytes[RBK_MAX_DEVICES]; /* of its memory, granted to programs */

	/* Over the last interval; negative: not known. */
	double tasks_per_s, copied_bytes_per_s, transferred_bytes_per_s;
	double gpu_part; /* of the tasks, on a GPU */
	double fallbacks_per_s, errors_per_s;
	double p50_ns, p99_ns, queue_p99_ns; /* 0: nothing completed */
	bool has_new_evictions;
};

struct model_session {
	struct rbk_stats_session now;
	uint64_t then_tasks, then_gpu_tasks, then_bytes, then_gpu_ns;
	uint32_t then_number;
	double tasks_per_s, gpu_part, copied_bytes_per_s;
	double gpu_ns_per_s;               /* that GPUs worked on its tasks */
	const struct model_tenant *tenant; /* NULL: of none that is shown */
};

struct model_lease {
	struct rbk_stats_lease now;        /* number 0: there is none */
	const struct model_tenant *tenant; /* NULL: of none that is shown */
};

struct model_plan {
	uint32_t tenant, slot; /* the tenant's number */
	char tenant_name[RBK_STATS_NAME_BYTES];
	uint64_t n_tasks, then_tasks;
	uint64_t then_made_at_ns;
	double tasks_per_s;
	/* Of the CPU, and of the GPU that it was best on. */
	double cpu_ns, gpu_ns, speedup, error;
	uint32_t gpu; /* RBK_DEVICE_*; 0: none */
	uint8_t state, tier;
	uint64_t resident_bytes, footprint_bytes;
	struct rbk_stats_plan now; /* without devices; so at the end */
};

struct model_decision {
	struct rbk_stats_decision now;
	uint32_t tenant; /* its number */
	char tenant_name[RBK_STATS_NAME_BYTES];
	char plan_name[RBK_NAME_BYTES];
};

struct model {
	/* Of the page that is shown first. */
	bool has_page;
	bool is_root;
	uint32_t pid;
	uint64_t started_at_ns, updated_at_ns, period_ns, n_updates;
	int64_t realtime_offset_ns;
	uint64_t n_resets;
	bool is_closed;

	struct rbk_stats_broker broker;
	struct rbk_stats_contention contention;
	struct model_device *devices; /* RBK_MAX_DEVICES */
	uint32_t n_devices;
	struct model_tenant *tenants;
	uint32_t n_tenants;
	struct model_session *sessions;
	uint32_t n_sessions;
	struct model_lease *leases;
	uint32_t n_leases;
	uint32_t n_connected;    /* of the sessions, not free */
	uint64_t n_resident;     /* plans of theirs */
	bool is_one;             /* of several tenants one is shown, */
	double weight_of_others; /* beside these */
	double weight_of_all;    /* that have sessions, these among them */
	struct model_plan *plans;
	uint32_t n_plans;
	struct model_decision *decisions; /* newest first */
	uint32_t n_decisions;

	/* The broker's workers together, of the last ten seconds. */
	double worker_p99_ns; /* 0: not known */
	struct rbk_stats_cause worst;
	double worst_part; /* of what they waited; 0: nobody */

	/* The interval. */
	bool has_rates;
	uint64_t then_ns;
	double reasons_per_s[RBK_STATS_MAX_REASONS];
	double split_per_s, tasks_per_s, cpu_per_s, gpu_per_s;

	/* Histories. */
	uint64_t newest_second; /* of the broker's clock; 0: none */
	struct series tasks, latency, evictions;
	uint64_t n_evictions;  /* of all tenants, when it was looked last */
	double latency_p99_ns; /* of all tenants, over the last interval; 0: nothing completed */

	/* Private. */
	bool has_seen;
	uint64_t seen_updates;
	unsigned int seen_what, seen_pages;
	uint32_t *index; /* of tenants by number */
	uint32_t index_mask;
	uint64_t latency_now[RBK_STATS_BUCKETS];
};

/* What else is to be read from tenants' pages. */
enum {
	MODEL_PLANS = 1,
	MODEL_DECISIONS = 2,
};

/* Return: 0; -ENOMEM. */
int model_init(struct model *model);
void model_deinit(struct model *model);

/*
 * Reads the pages; but for decisions, which are logged at any time, only if the broker has updated
 * them since, or something else is asked for. @only: of the tenant of that number alone; 0: of all.
 * @what is MODEL_*. Return: 0; -ENOMEM: what there was before stays.
 */
int model_update(struct model *model, const struct pages *pages, uint32_t only, unsigned int what);

/* NULL: there is none. */
const struct model_tenant *model_tenant(const struct model *model, uint32_t number);
/* Is this session shown? */
static inline bool model_shows(const struct model *model, const struct model_session *session)
{
	return session->now.number && (!model->is_one || session->tenant);
}

static inline bool model_shows_lease(const struct model *model, const struct model_lease *lease)
{
	return lease->now.number && (!model->is_one || lease->tenant);
}
/* NULL: it is gone. */
const struct model_lease *model_lease(const struct model *model, uint32_t number);
/* What its members use, and drivers take beside it. */
static inline double model_lease_used(const struct model_lease *lease)
{
	return (double)lease->now.used_bytes + (double)lease->now.extra_bytes;
}

static inline const char *cause_name(const struct rbk_stats_cause *cause)
{
	return cause->flags & RBK_STATS_CAUSE_BROKER ? "brokerd" : cause->comm;
}
/* Behind whom a tenant's processes waited for processors most; empty: nobody that is known. */
const char *model_causer(const struct model_tenant *tenant);

/* The plan of the tenant of that number in that place; NULL: it is gone. */
const struct model_plan *model_plan(const struct model *model, uint32_t tenant, uint32_t slot);

/* A history, oldest first. */
void model_series(const struct model *model, const struct series *series,
		  double ret[MODEL_SECONDS]);
/* How many evictions there were in the last minute. */
double model_evictions(const struct model *model);

/* Does @device have memory of its own? */
static inline bool model_is_gpu(uint32_t device)
{
	return device != RBK_DEVICE_CPU;
}
/* A tenant's memory on all GPUs. */
uint64_t model_gpu_memory(const struct model *model, const struct rbk_stats_tenant *tenant);
uint64_t model_gpu_limit(const struct model *model, const struct rbk_stats_tenant *tenant);
/* Its part of the device time of all, on all GPUs, and what its weight entitles it to; 0 to 1. */
double model_gpu_share(const struct model *model, const struct rbk_stats_tenant *tenant);
double model_weight_part(const struct model *model, const struct rbk_stats_tenant *tenant);
/* A session's part of that, by what GPUs worked on its tasks and on all of its tenant's. */
double model_session_gpu_share(const struct model *model, const struct model_session *session);
/* What a device's driver, or else the broker, says of its load; 0 to 1. */
double model_load(const struct rbk_stats_device *device);
/* Is what tenants were promised of a device's memory, and do not use, there? */
bool model_keeps_reserves(const struct model *model, uint32_t device);
