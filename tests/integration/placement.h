#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Clients for tests of placement
 *
 * A customer is a session with a plan (a product of [count,N] and [N,N]), an arena, a ring and its
 * tenant's statistics page. Operands are small whole numbers, so that results are the same bits on
 * every device, and each task in flight writes an output of its own, which is checked. A customer
 * may connect as another user, which needs root; it stays in this process. For cmocka tests, main
 * thread only.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <ringbroker.h>
#include <ringbroker/stats.h>

#include "integration/harness.h"

struct customer_options {
	uid_t uid;            /* 0: as who runs the test */
	uint32_t width;       /* N; 0: 64 */
	uint32_t max_rows;    /* 0: 256 */
	uint32_t n_entries;   /* of the ring, a power of two; 0: 64 */
	bool is_careless;     /* looks at every 64th result only, to be faster than the broker */
	bool has_test_device; /* looks at results of the CPU only: brokerd --test-device has none */
	bool has_constant;    /* [N,N] is a constant of the plan, not an input */
	unsigned int pinned;  /* 1 + the device to which the plan is pinned; 0: it is not */
};

struct customer {
	struct customer_options options;
	struct rbk *rbk;
	struct rbk_arena *arena, *constants;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	struct rbk_stats_view stats;
	uint32_t *free_slots; /* outputs that nobody writes */
	uint32_t n_free;
	uint32_t *counts;                   /* by slot */
	uint64_t n_done, n_right, n_errors; /* completions taken */
	uint64_t exec_ns;                   /* as they say */
	uint64_t reasons[RBK_REASON_COUNT];
	uint64_t next_record; /* of the decision log */
};

/* Connects, or fails the test. @options may be NULL. */
void customer_init(struct customer *customer, const struct broker *broker,
		   const struct customer_options *options);
void customer_deinit(struct customer *customer);

/* A plan like its own, prepared once more; may be pinned otherwise. */
struct rbk_plan *customer_plan(struct customer *customer, unsigned int pinned);

/*
 * The next entry, prepared to run @count rows, with an output of its own; NULL: all are in flight.
 * To be changed and submitted by the caller; its user_data is the output's slot.
 */
struct rbk_sqe *customer_prepare(struct customer *customer, uint32_t count);

/* customer_prepare() with a strategy, submitted. Fails the test if there is no room. */
void customer_put(struct customer *customer, uint32_t count, unsigned int strategy);

/*
 * The next completion, checked with all that it wrote if it says 0. Fails the test if there is none
 * for two minutes.
 */
struct rbk_cqe customer_take(struct customer *customer);

/* Is there one? */
bool customer_has(struct customer *customer);

/* How many are in flight. */
uint32_t customer_in_flight(const struct customer *customer);

/* One task from beginning to end; must say 0. */
struct rbk_cqe customer_run(struct customer *customer, uint32_t count, unsigned int strategy);

/* Takes until nothing is in flight. */
void customer_drain(struct customer *customer);

/*
 * Keeps @n in flight, each of @count rows, taking what is done; returns at once. Return: was there
 * still something to do for the broker?
 */
bool customer_feed(struct customer *customer, uint32_t n, uint32_t count, unsigned int strategy);

/* Its tenant's totals, its plan's record; and the next record of its tenant's decision log. */
struct rbk_stats_tenant customer_totals(const struct customer *customer);
void customer_plan_stats(const struct customer *customer, struct rbk_stats_plan *ret,
			 struct rbk_stats_plan_device *ret_devices, unsigned int n_devices);
bool customer_next_decision(struct customer *customer, struct rbk_stats_decision *ret);

/* Lets other users reach a broker. */
void broker_open_to_all(const struct broker *broker);
/* Start an undisturbed broker that is open to all. Return: false without root. */
bool broker_start_for_all(struct broker *broker, const char *const *args, const char *policy);

/* ---- Devices that fail (tests/support/failing-layer.h) ------------------------------------- */

struct failing_layer;

/*
 * Brokers that are started afterwards have the layer between them and their devices. Return: what
 * they share with the test.
 */
struct failing_layer *failing_layer_begin(void);
void failing_layer_end(struct failing_layer *layer);
