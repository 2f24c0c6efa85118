#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Clients for tests of placement
 *
 * A customer is a session with a plan (a product of [count,N] and [N,N]), an arena, a ring and its
 * tenant's statistics page. Operands are small integers, so that every device computes the same
 * bits. Each task in flight writes an output of its own, which is checked. A customer may connect
 * as another user, which needs root; it stays in this process. For cmocka tests, main thread only.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <ringbroker.h>
#include <ringbroker/stats.h>

#include "integration/harness.h"

struct customer_options {
	uid_t uid;          /* 0: the user that runs the test */
	uint32_t width;     /* N; 0: 64 */
	uint32_t max_rows;  /* 0: 256 */
	uint32_t n_entries; /* of the ring, a power of two; 0: 64 */
	bool is_careless;   /* checks only every 64th result, to be faster than the broker */
	/* checks only the CPU's results: devices of brokerd --test-device compute none */
	bool has_test_device;
	bool has_no_stats;   /* customer_totals() and the like are not for it */
	bool has_constant;   /* [N,N] is a constant of the plan instead of an input */
	unsigned int pinned; /* 1 + the device to which the plan is pinned; 0: not pinned */
};

struct customer {
	struct customer_options options;
	struct rbk *rbk;
	struct rbk_arena *arena, *constants;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	struct rbk_stats_view stats;
	uint32_t *free_slots; /* outputs that no task in flight writes */
	uint32_t n_free;
	uint32_t *counts;                   /* rows, by slot */
	uint64_t n_done, n_right, n_errors; /* completions taken */
	uint64_t exec_ns;                   /* sum of the completions' execution times */
	uint64_t reasons[RBK_REASON_COUNT];
	uint64_t next_record; /* next position in the decision log */
};

/* Connect, or fail the test. @options may be NULL. */
void customer_init(struct customer *customer, const struct broker *broker,
		   const struct customer_options *options);
void customer_deinit(struct customer *customer);

/* Prepare the customer's plan once more; @pinned as in customer_options. */
struct rbk_plan *customer_plan(struct customer *customer, unsigned int pinned);

/*
 * Prepare the next entry to run @count rows with an output of its own. The caller may change the
 * entry, and submits it; its user_data is the output's slot.
 * Return: the entry; NULL if all outputs are in flight.
 */
struct rbk_sqe *customer_prepare(struct customer *customer, uint32_t count);

/* Prepare an entry with a strategy and submit it. Fails the test if there is no room. */
void customer_put(struct customer *customer, uint32_t count, unsigned int strategy);

/*
 * Take the next completion; check the whole output if the result is 0. Fails the test after two
 * minutes without a completion.
 */
struct rbk_cqe customer_take(struct customer *customer);

/* Return true if a completion is there. */
bool customer_has(struct customer *customer);

/* Return the number of tasks in flight. */
uint32_t customer_in_flight(const struct customer *customer);

/* Run one task, wait for its completion, and require result 0. */
struct rbk_cqe customer_run(struct customer *customer, uint32_t count, unsigned int strategy);

/* Take completions until no task is in flight. */
void customer_drain(struct customer *customer);

/*
 * Take the completions that are there and submit until @n tasks of @count rows are in flight; does
 * not wait.
 * Return: true if the broker had not yet completed all tasks at the call.
 */
bool customer_feed(struct customer *customer, uint32_t n, uint32_t count, unsigned int strategy);

/*
 * Return the totals of the customer's tenant; its plan's record; the next record of its tenant's
 * decision log.
 */
struct rbk_stats_tenant customer_totals(const struct customer *customer);
void customer_plan_stats(const struct customer *customer, struct rbk_stats_plan *ret,
			 struct rbk_stats_plan_device *ret_devices, unsigned int n_devices);
bool customer_next_decision(struct customer *customer, struct rbk_stats_decision *ret);

/* Let other users connect to a broker. */
void broker_open_to_all(const struct broker *broker);
/* Start an undisturbed broker that is open to all. Return: false without root. */
bool broker_start_for_all(struct broker *broker, const char *const *args, const char *policy);

/* ---- Devices that fail (tests/support/failing-layer.h) ------------------------------------- */

struct failing_layer;

/*
 * Put the layer between the brokers that are started from now on and their devices.
 * Return: the memory that those brokers share with the test.
 */
struct failing_layer *failing_layer_begin(void);
void failing_layer_end(struct failing_layer *layer);
