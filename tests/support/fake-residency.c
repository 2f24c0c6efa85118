/* SPDX-License-Identifier: MIT */
/*
 * Scripted residency
 *
 * Calls that must complete later pass through the setup thread, as the real ones do, with an empty
 * job.
 */
#include "support/fake-residency.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loop/offload.h"
#include "util/checked.h"

struct residency_plan {
	struct plan_memory *memory;
	struct offload_job job;
	void (*done)(struct plan_memory *memory);
};

uint64_t fake_residency_bring_ns;
bool fake_residency_loads;

static void check(bool is_fine, const char *what, int line)
{
	if (is_fine)
		return;
	fprintf(stderr, "fake-residency.c:%d: %s\n", line, what);
	abort();
}

#define CHECK(condition) check(condition, #condition, __LINE__)

int residency_new(const struct residency_options *options, struct residency **ret)
{
	struct residency *residency = calloc(1, sizeof(*residency));

	if (!residency)
		return -ENOMEM;
	residency->options = *options;
	list_init(&residency->waiters);
	if (leases_init(&residency->leases)) {
		free(residency);
		return -ENOMEM;
	}
	*ret = residency;
	return 0;
}

struct residency *residency_free(struct residency *residency)
{
	if (!residency)
		return NULL;
	CHECK(residency->n_waiters == 0 && residency->n_plans == 0);
	leases_deinit(&residency->leases);
	free(residency);
	return NULL;
}

/* --- plans --- */

static void run_nothing(struct offload_job *job)
{
}

static void removed(struct offload_job *job)
{
	struct residency_plan *plan = container_of(job, struct residency_plan, job);
	struct plan_memory *memory = plan->memory;
	void (*done)(struct plan_memory * memory) = plan->done;

	memory->residency = NULL;
	free(plan);
	done(memory);
}

static void loaded(struct offload_job *job)
{
	struct residency_plan *plan = container_of(job, struct residency_plan, job);

	plan->done(plan->memory);
}

int residency_add(struct residency *residency, struct plan_memory *memory,
		  void (*done)(struct plan_memory *memory))
{
	struct residency_plan *plan = calloc(1, sizeof(*plan));

	if (!plan)
		return -ENOMEM;
	CHECK(!memory->residency);
	plan->memory = memory;
	memory->residency = plan;
	memory->counts = &residency->counts;
	residency->n_plans++;
	if (!fake_residency_loads)
		return RESIDENCY_E_SETTLED;
	plan->done = done;
	plan->job = (struct offload_job){.run = run_nothing, .done = loaded};
	offload_submit(residency->options.offload, &plan->job);
	return 0;
}

static void forget_demand(struct residency *residency, struct plan_memory *memory)
{
	struct plan_memory **at = &residency->demand.first;

	while (*at && *at != memory)
		at = &(*at)->next_wanted;
	if (*at)
		*at = memory->next_wanted;
	memory->is_wanted = false;
	for (unsigned int i = 0; i < residency->n_wanted; i++)
		if (residency->wanted[i] == memory)
			residency->wanted[i] = NULL;
}

void residency_remove(struct residency *residency, struct plan_memory *memory,
		      void (*done)(struct plan_memory *memory))
{
	struct residency_plan *plan = memory->residency;

	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		CHECK(memory->n_on_device[i] == 0);
	list_for_each (node, &residency->waiters)
		CHECK(container_of(node, struct residency_waiter, link)->memory != memory);
	forget_demand(residency, memory);
	if (plan) {
		residency->n_plans--;
	} else {
		plan = calloc(1, sizeof(*plan));
		CHECK(plan != NULL);
		plan->memory = memory;
	}
	plan->done = done;
	plan->job = (struct offload_job){.run = run_nothing, .done = removed};
	offload_submit(residency->options.offload, &plan->job);
}

uint64_t residency_bring_ns(const struct plan_memory *memory, unsigned int device)
{
	return fake_residency_bring_ns;
}

bool residency_waits_for_device(const struct plan_memory *memory, unsigned int device)
{
	CHECK(memory->residency != NULL);
	return false;
}

void residency_about(const struct residency *residency, const struct plan_memory *memory,
		     unsigned int device, struct residency_about *ret)
{
	*ret = residency->about;
	ret->device_state = memory->plan->device_state[device];
}

uint64_t residency_room(const struct residency *residency, unsigned int device,
			const struct tenant *tenant)
{
	return residency->about.available_bytes;
}

const struct residency_counts *residency_counts(const struct residency *residency,
						const struct tenant *tenant)
{
	return &residency->counts;
}

/* --- tasks --- */

struct residency_demand *residency_demand(struct residency *residency)
{
	return &residency->demand;
}

void residency_turn(struct residency *residency)
{
	struct plan_memory *memory;

	CHECK(residency->demand.first != NULL);
	residency->n_turns++;
	residency->n_wanted = 0;
	while ((memory = residency->demand.first)) {
		residency->demand.first = memory->next_wanted;
		memory->is_wanted = false;
		CHECK(residency->n_wanted < ARRAY_SIZE(residency->wanted));
		residency->wanted[residency->n_wanted++] = memory;
	}
}

void residency_ask(struct residency *residency, struct plan_memory *memory,
		   struct residency_waiter *waiter, enum residency_wish wish, uint8_t device)
{
	CHECK(waiter->done != NULL && device != RBK_DEVICE_CPU);
	CHECK(container_of(memory, struct session_plan, memory)->state == SLOT_READY);
	waiter->memory = memory;
	waiter->wish = (uint8_t)wish;
	waiter->device = device;
	list_append(&residency->waiters, &waiter->link);
	residency->n_waiters++;
	residency->n_asked++;
}

static void take_out(struct residency *residency, struct residency_waiter *waiter)
{
	bool is_there = false;

	/* Check membership only in short lists: some tests have thousands of waiters. */
	list_for_each (node, &residency->waiters) {
		is_there |= node == &waiter->link;
		if (is_there || residency->n_waiters > 100)
			break;
	}
	CHECK(is_there || residency->n_waiters > 100);
	list_remove(&waiter->link);
	residency->n_waiters--;
}

void residency_withdraw(struct residency *residency, struct residency_waiter *waiter)
{
	take_out(residency, waiter);
	residency->n_withdrawn++;
}

void residency_plan_idle(struct residency *residency, struct plan_memory *memory,
			 unsigned int device)
{
	CHECK(memory->n_on_device[device] == 0 && (memory->leaving & 1u << device));
	residency->n_idle++;
	residency->idle_plan = memory;
	residency->idle_device = device;
}

void residency_set_usable(struct residency *residency, unsigned int device, uint64_t vram_bytes,
			  uint64_t gtt_bytes)
{
}

void residency_set_reserved(struct residency *residency, unsigned int device, uint64_t vram_bytes)
{
}

void residency_set_outside(struct residency *residency, unsigned int device, uint64_t vram_bytes)
{
}

bool residency_device_lost(struct residency *residency, unsigned int device)
{
	return residency->is_lost;
}

uint32_t residency_n_reopened(const struct residency *residency, unsigned int device)
{
	return residency->n_reopened;
}

void residency_on_reopened(struct residency *residency,
			   void (*reopened)(void *context, unsigned int device), void *context)
{
	residency->reopened = reopened;
	residency->reopened_context = context;
}

void residency_limits_changed(struct residency *residency)
{
}

/* --- leases: none --- */

struct leases *residency_leases(struct residency *residency)
{
	return &residency->leases;
}

int residency_lease_new(struct residency *residency, const struct lease_about *about,
			struct lease **ret)
{
	return lease_new(&residency->leases, about, ret);
}

bool residency_has_memory(const struct residency *residency, unsigned int device)
{
	return false;
}

bool residency_is_up(const struct residency *residency, unsigned int device)
{
	return !residency->is_lost;
}

void residency_lease_ask(struct residency *residency, struct lease_wait *wait, uint64_t patience_ns)
{
	CHECK(!"there is no device for it");
}

void residency_lease_withdraw(struct residency *residency, struct lease_wait *wait)
{
	CHECK(!"it was never asked");
}

uint64_t residency_lease_believed(struct residency *residency, unsigned int device,
				  struct tenant *tenant)
{
	return INT64_MAX;
}

void residency_leases_return(struct residency *residency)
{
	(void)residency;
}

void residency_lease_believe(struct residency *residency, unsigned int device,
			     struct tenant *tenant, uint64_t bytes)
{
}

void residency_lease_grow(struct residency *residency, struct lease *lease)
{
}

void residency_leases_changed(struct residency *residency, unsigned int device)
{
}

void residency_lease_look(struct residency *residency, struct lease_wait *wait)
{
}

/* --- the script --- */

struct residency_waiter *fake_residency_oldest(struct residency *residency)
{
	if (list_is_empty(&residency->waiters))
		return NULL;
	return container_of(residency->waiters.next, struct residency_waiter, link);
}

void fake_residency_answer(struct residency *residency, struct residency_waiter *waiter, int res)
{
	take_out(residency, waiter);
	waiter->done(waiter, res);
}

void fake_residency_answer_all(struct residency *residency, int res)
{
	unsigned int n = residency->n_waiters;

	while (n-- > 0)
		fake_residency_answer(residency, fake_residency_oldest(residency), res);
}

bool residency_evict(struct residency *residency, const struct residency_victims *victims,
		     uint64_t *ret_n, uint64_t *ret_bytes)
{
	*ret_n = *ret_bytes = 0;
	return false;
}
