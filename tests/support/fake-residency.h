#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Scripted residency
 *
 * Stands in for memory/residency.c in tests of the dispatcher. It moves nothing, keeps the
 * requests, and answers them when and as the test says. Plans stay in the state that the executors
 * gave them until the test changes it. Calls that break the rules of residency.h abort.
 */
#include <stdbool.h>
#include <stdint.h>

#include "memory/residency.h"
#include "session/session.h"

struct residency {
	struct residency_options options;
	struct residency_demand demand;
	struct leases leases;
	struct list_node waiters; /* oldest first */
	unsigned int n_waiters;
	unsigned int n_plans;

	/* Calls since the beginning. */
	unsigned int n_asked, n_withdrawn, n_turns, n_idle;
	struct plan_memory *idle_plan; /* of the last residency_plan_idle() */
	unsigned int idle_device;
	/* Plans that the last turn found wanted; NULL: removed since. */
	struct plan_memory *wanted[8];
	unsigned int n_wanted;

	/* Answers for every device. */
	bool is_lost;
	uint32_t n_reopened;

	/* Set by residency's user, called by the test. */
	void (*reopened)(void *context, unsigned int device);
	void *reopened_context;

	/* Sums over all tenants. */
	struct residency_counts counts;

	/* Answer of residency_about() for any plan, and of residency_room(). */
	struct residency_about about;
};

/* Answer of residency_bring_ns() for any plan. */
extern uint64_t fake_residency_bring_ns;
/* Plans that are added are loaded by the setup thread, not settled at once. */
extern bool fake_residency_loads;

/* Return the oldest waiter, or NULL. */
struct residency_waiter *fake_residency_oldest(struct residency *residency);

/* Answer @waiter, or all present waiters, oldest first. */
void fake_residency_answer(struct residency *residency, struct residency_waiter *waiter, int res);
void fake_residency_answer_all(struct residency *residency, int res);
