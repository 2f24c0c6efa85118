#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Scenarios: descriptions of a simulation
 *
 * A scenario has two devices with their true behaviour beside their profiles, plans, tenants with
 * their arrivals, events and expected figures. Or it has graphs, which bring devices and times of
 * their own. brokersim(1) describes the file.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ringbroker/abi.h>

#include "place/placer.h"
#include "place/profile.h"
#include "shm/operators/op.h"
#include "util/cleanup.h"

enum {
	SCENARIO_E_INVALID = 1, /* the message says what is wrong, with file and line */

	SCENARIO_DEVICES = 2, /* RBK_DEVICE_CPU, and RBK_DEVICE_GPU for any other kind of device */
	SCENARIO_NAME_BYTES = 48,
	SCENARIO_MESSAGE_BYTES = 1024,
	SCENARIO_MAX_PLANS = 256,
	SCENARIO_MAX_TENANTS = 64,
	SCENARIO_MAX_EVENTS = 64,
	SCENARIO_MAX_EXPECTED = 32,
	SCENARIO_MAX_PAIRS = 32,
	SCENARIO_MAX_RATIOS = 8,
	SCENARIO_MAX_MODELS = 16,
	SCENARIO_MAX_PROFILES = RBK_MAX_DEVICES, /* of devices for models */
	SCENARIO_MAX_TASKS = 1000000,
};

/* Behaviour of a device beyond its profile, unknown to policies. */
struct scenario_truth {
	double noise; /* standard deviation of the logarithm of a task's time */
	/* standard deviation of the logarithm of a constant factor by plan and device */
	double efficiency;
	double jitter_ns; /* mean extra start time of a submission */
	double drift;     /* amplitude of a slow wave of the device's clock, relative */
	double drift_period_ns;
	double cache_bytes; /* nodes that touch more bytes take cache_factor as long; 0: no cliff */
	double cache_factor;
	uint32_t tile_rows; /* rows are rounded up to tiles of tile_rows; 0: no tiles */
};

enum scenario_dims { ROWS, INNER, COLUMNS, CHANNELS, HEIGHT, WIDTH, FILTERS, KERNEL, N_DIMS };

struct scenario_plan {
	char name[SCENARIO_NAME_BYTES];
	enum op_kind op;
	uint32_t dims[N_DIMS]; /* 0: not given */
	bool is_constant;      /* weights are constants, resident on the device that needs them */
	uint32_t count_min, count_max; /* rows of a task, log-uniform */
	double share;                  /* share of the tasks of tenants without a plan list */
	unsigned int line;
};

enum scenario_arrivals {
	ARRIVALS_ALL,     /* all at once */
	ARRIVALS_POISSON, /* Poisson with rate_per_s */
	ARRIVALS_BURSTY,  /* Poisson with rate_per_s in bursts of on_ns, pauses of off_ns between */
	ARRIVALS_CLOSED,  /* n_outstanding tasks; each completion is followed by an arrival */
};

struct scenario_tenant {
	char name[SCENARIO_NAME_BYTES];
	uint32_t weight;
	uint8_t priority; /* enum rbk_priority */
	float cpu_max;
	enum scenario_arrivals arrivals;
	double rate_per_s, on_ns, off_ns;
	uint32_t n_outstanding;
	uint32_t n_tasks;
	double start_ns;
	double deadline_ns; /* relative to arrival; 0: none */
	bool may_partition;
	uint8_t strategy;
	double shares[SCENARIO_MAX_PLANS]; /* by plan: weight of the plan in the tenant's tasks */
	bool has_shares;
	unsigned int line;
};

enum scenario_event_kind {
	EVENT_SLOW,       /* tasks take value times as long; the engine is not told */
	EVENT_CONTENTION, /* the same, and the engine is told by telemetry */
	EVENT_HOGS,       /* value hogs share the CPU with its workers and show in run queues */
	EVENT_FAIL_EVERY, /* every value-th submission fails after half its time; 0: none */
	EVENT_LOST,
	EVENT_BACK,
};

struct scenario_event {
	double at_ns;
	uint8_t device;
	enum scenario_event_kind kind;
	double value;
};

enum scenario_relation { AT_LEAST, AT_MOST };

struct scenario_expected {
	char figure[SCENARIO_NAME_BYTES * 2];
	enum scenario_relation relation;
	bool is_aim; /* a miss is reported, but is no failure */
	double value;
	unsigned int line;
};

/* one line of a trace */
struct scenario_arrival {
	double at_ns;
	uint16_t tenant, plan;
	uint32_t count;
};

/* [graphs]: tasks that are graphs of nodes, in place of plans and tenants */
struct scenario_graphs {
	uint32_t n;        /* of each family and communication ratio; 0: no such section */
	uint64_t families; /* bit i: graph_families[i]; 0: all */
	/* Models in place of families, on devices of which the first is the CPU; none: families */
	char models[SCENARIO_MAX_MODELS][SCENARIO_NAME_BYTES];
	char profile_names[SCENARIO_MAX_PROFILES][SCENARIO_NAME_BYTES];
	struct place_profile profiles[SCENARIO_MAX_PROFILES];
	uint32_t n_models, n_profiles;
	unsigned int models_line;
	uint32_t n_nodes;
	uint32_t devices_min, devices_max; /* in turn */
	double ratios[SCENARIO_MAX_RATIOS];
	uint32_t n_ratios;
	uint32_t n_steps; /* of the search before the graph runs */
	double noise;
	bool is_contended;
	uint32_t n_tasks, n_in_flight; /* of each graph */
};

/* Return true if nothing disturbs one task of each graph, so that it has an optimum. */
static inline bool graph_times_are_known(const struct scenario_graphs *graphs)
{
	return !(graphs->noise > 0) && !graphs->is_contended && graphs->n_tasks == 1;
}

struct scenario {
	char name[SCENARIO_NAME_BYTES];
	char about[256];
	char path[512];
	uint64_t seed;
	uint32_t n_runs;  /* run i uses seed + i */
	uint32_t warm_up; /* first tasks of each plan that accuracy and regret exclude */
	bool is_exact;    /* find the optimum, not only a bound */
	bool is_quick;    /* part of the quick check */
	bool has_alone;   /* run the latency-critical tenant alone, too */
	bool has_hogs;
	uint64_t memory_bytes; /* memory of the GPU instead of its profile's; 0: the profile's */
	struct place_config config;
	struct place_profile profiles[SCENARIO_DEVICES];
	char profile_names[SCENARIO_DEVICES][SCENARIO_NAME_BYTES];
	/* pairs of device profiles, each run as a scenario of its own; none: cpu and gpu */
	char pairs[SCENARIO_MAX_PAIRS][SCENARIO_DEVICES][SCENARIO_NAME_BYTES];
	uint32_t n_pairs;
	struct scenario_truth truth[SCENARIO_DEVICES];
	struct scenario_plan *plans;
	struct scenario_tenant *tenants;
	struct scenario_arrival *trace;
	struct scenario_graphs graphs;
	uint32_t n_plans, n_tenants, n_events, n_expected, n_trace;
	struct scenario_event events[SCENARIO_MAX_EVENTS]; /* by time */
	struct scenario_expected expected[SCENARIO_MAX_EXPECTED];
};

/*
 * Load a scenario and the profiles that it names. @cpu and @gpu replace the scenario's own profiles
 * unless NULL. A profile's name without a slash is a file of @profiles_dir.
 * Return: 0; SCENARIO_E_INVALID with a sentence "FILE:LINE: what" in @message; -ENOMEM.
 */
int scenario_load(const char *path, const char *profiles_dir, const char *cpu, const char *gpu,
		  char message[SCENARIO_MESSAGE_BYTES], struct scenario **ret);
struct scenario *scenario_free(struct scenario *scenario);

/*
 * Append @n plans to @scenario->plans, of the operators set in @ops, which is indexed by kind. Each
 * plan touches between @bytes_min and @bytes_max bytes.
 */
void scenario_generate(struct scenario *scenario, uint32_t n, const bool ops[OP_KIND_COUNT],
		       double bytes_min, double bytes_max, uint64_t seed);

DEFINE_CLEANUP(struct scenario *, scenario_free)
