#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Scenarios: what is simulated
 *
 * Two devices, what they really do beside what their profiles say, plans, tenants with their
 * arrivals, what happens when, and which figures must come out. brokersim(1) describes the file.
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
	SCENARIO_E_INVALID = 1, /* the sentence says what is wrong where */

	SCENARIO_DEVICES = 2, /* RBK_DEVICE_CPU, RBK_DEVICE_GPU: whatever is not the CPU */
	SCENARIO_NAME_BYTES = 48,
	SCENARIO_MESSAGE_BYTES = 1024,
	SCENARIO_MAX_PLANS = 256,
	SCENARIO_MAX_TENANTS = 64,
	SCENARIO_MAX_EVENTS = 64,
	SCENARIO_MAX_EXPECTED = 32,
	SCENARIO_MAX_PAIRS = 32,
	SCENARIO_MAX_TASKS = 1000000,
};

/* What a device does beyond its profile; nothing here is known to a policy. */
struct scenario_truth {
	double noise;      /* standard deviation of the logarithm of a task's time */
	double efficiency; /* the same of a factor that a plan has on a device, always */
	double jitter_ns;  /* mean of what each submission takes longer to start */
	double drift;      /* amplitude of a slow wave in the device's clock */
	double drift_period_ns;
	double cache_bytes; /* nodes that touch more take cache_factor as long; 0: no cliff */
	double cache_factor;
	uint32_t tile_rows; /* rows are worked upon in tiles of that many; 0: no tiles */
};

enum scenario_dims { ROWS, INNER, COLUMNS, CHANNELS, HEIGHT, WIDTH, FILTERS, KERNEL, N_DIMS };

struct scenario_plan {
	char name[SCENARIO_NAME_BYTES];
	enum op_kind op;
	uint32_t dims[N_DIMS];         /* 0: not given */
	bool is_constant;              /* the weights are, so they are where they are needed */
	uint32_t count_min, count_max; /* rows of a task, log-uniform */
	double share;                  /* of the tasks of a tenant that names no plans */
	unsigned int line;
};

enum scenario_arrivals {
	ARRIVALS_ALL,     /* at once */
	ARRIVALS_POISSON, /* rate per second */
	ARRIVALS_BURSTY,  /* Poisson in bursts of on_ns, nothing for off_ns; rate within bursts */
	ARRIVALS_CLOSED,  /* so many outstanding, a new one for each that completes */
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
	double deadline_ns; /* relative; 0: none */
	bool may_partition;
	uint8_t strategy;
	double shares[SCENARIO_MAX_PLANS]; /* by plan */
	bool has_shares;
	unsigned int line;
};

enum scenario_event_kind {
	EVENT_SLOW,       /* every task takes value as long; nobody is told */
	EVENT_CONTENTION, /* the same, and telemetry tells */
	EVENT_HOGS,       /* so many share the CPU with its workers, and it shows in run queues */
	EVENT_FAIL_EVERY, /* every value-th task fails after half its time; 0: none */
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
	bool is_aim; /* told, but no reason to fail */
	double value;
	unsigned int line;
};

/* A line of a trace. */
struct scenario_arrival {
	double at_ns;
	uint16_t tenant, plan;
	uint32_t count;
};

struct scenario {
	char name[SCENARIO_NAME_BYTES];
	char about[256];
	char path[512];
	uint64_t seed;
	uint32_t n_runs;  /* with seeds one after the other */
	uint32_t warm_up; /* tasks of a plan that accuracy and regret leave out */
	bool is_exact;    /* the optimum is to be found, not only a bound */
	bool is_quick;    /* part of the quick check */
	bool has_alone;   /* also run each tenant by itself */
	bool has_hogs;
	uint64_t memory_bytes; /* of the other device, rather than its profile's; 0: as that says */
	struct place_config config;
	struct place_profile profiles[SCENARIO_DEVICES];
	char profile_names[SCENARIO_DEVICES][SCENARIO_NAME_BYTES];
	/* Pairs of devices that it is to be run with, each by itself; none: cpu and gpu. */
	char pairs[SCENARIO_MAX_PAIRS][SCENARIO_DEVICES][SCENARIO_NAME_BYTES];
	uint32_t n_pairs;
	struct scenario_truth truth[SCENARIO_DEVICES];
	struct scenario_plan *plans;
	struct scenario_tenant *tenants;
	struct scenario_arrival *trace;
	uint32_t n_plans, n_tenants, n_events, n_expected, n_trace;
	struct scenario_event events[SCENARIO_MAX_EVENTS]; /* by time */
	struct scenario_expected expected[SCENARIO_MAX_EXPECTED];
};

/*
 * Reads a scenario and the profiles that it names: @cpu and @gpu rather than its own, unless NULL.
 * A profile's name without a slash is a file of @profiles_dir.
 * Return: 0; SCENARIO_E_INVALID with a sentence "FILE:LINE: what" in @message; -ENOMEM.
 */
int scenario_load(const char *path, const char *profiles_dir, const char *cpu, const char *gpu,
		  char message[SCENARIO_MESSAGE_BYTES], struct scenario **ret);
struct scenario *scenario_free(struct scenario *scenario);

/*
 * Fills @scenario->plans with @n plans of the operators of @ops, by kind, that touch
 * between @bytes_min and @bytes_max.
 */
void scenario_generate(struct scenario *scenario, uint32_t n, const bool ops[OP_KIND_COUNT],
		       double bytes_min, double bytes_max, uint64_t seed);

DEFINE_CLEANUP(struct scenario *, scenario_free)
