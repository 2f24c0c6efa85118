#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Residency that does as it is told
 *
 * Stands in for memory/residency.c in tests of the dispatcher: moves nothing, keeps what it is
 * asked for, and answers when and how the test says. Plans stay in the state that the executors
 * gave them, until the test changes it. What goes against residency.h aborts.
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

	/* Ever. */
	unsigned int n_asked, n_withdrawn, n_turns, n_idle;
	struct plan_memory *idle_plan; /* of the last residency_plan_idle() */
	unsigned int idle_device;
	/* Plans that a turn found wanted, the last ones; NULL beyond. */
	struct plan_memory *wanted[8];
	unsigned int n_wanted;

	/* What it says of every device. */
	bool is_lost;
	uint32_t n_reopened;

	/* Called by the test. */
	void (*reopened)(void *context, unsigned int device);
	void *reopened_context;

	/* Of all tenants. */
	struct residency_counts counts;

	/* What residency_about() says, of any plan. */
	struct residency_about about;
};

/* The oldest that waits; NULL: nobody does. */
struct residency_waiter *fake_residency_oldest(struct residency *residency);

/* Answers one, or all that wait now, oldest first. */
void fake_residency_answer(struct residency *residency, struct residency_waiter *waiter, int res);
void fake_residency_answer_all(struct residency *residency, int res);
