/* SPDX-License-Identifier: MIT */
/*
 * What all tenants together can have of each device: see budget.h.
 *
 * A sample and what executors hold are read one after the other, and a load may come between. So
 * the overhead is the least of the last few differences: it changes slowly, and what is seen too
 * early or too late only ever adds to it.
 *
 * Host memory behind EXEC_TIER_GTT: half of what the driver offers and others do not use, since the
 * processor's side of the machine lives there as well.
 */
#include "budget.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "loop/loop.h"
#include "session/residency.h"
#include "tenant/tenant.h"
#include "util/error.h"
#include "util/log.h"
#include "util/waker.h"

enum { OVERHEAD_SAMPLES = 8 };

struct budget_device {
	struct charge overhead; /* of the broker's account */
	uint64_t overheads[OVERHEAD_SAMPLES];
	uint32_t n_overheads;
	uint32_t n_samples; /* when it was looked at last */
	bool has_warned;
	bool was_gone;
};

struct budget {
	struct budget_options options;
	struct loop_watch *watch;
	enum telemetry_pace pace;
	struct budget_device devices[RBK_MAX_DEVICES];
};

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

void budget_compute(const struct memory_reading *pool, uint64_t total_bytes,
		    uint64_t headroom_bytes, uint64_t allocated_bytes, struct budget_figures *ret)
{
	uint64_t own = pool->own.is_valid ? pool->own.value : allocated_bytes;
	uint64_t used = pool->used.is_valid ? pool->used.value : own;
	uint64_t device_bytes = pool->usable.is_valid  ? pool->usable.value
				: pool->total.is_valid ? pool->total.value
						       : total_bytes;

	ret->outside_bytes = less(used, own);
	ret->overhead_bytes = less(own, allocated_bytes);
	ret->usable_bytes =
		less(device_bytes, ret->outside_bytes + ret->overhead_bytes + headroom_bytes);
	if (ret->usable_bytes > total_bytes)
		ret->usable_bytes = total_bytes;
}

static uint64_t least_overhead(struct budget_device *device, uint64_t bytes)
{
	uint64_t least = bytes;

	device->overheads[device->n_overheads++ % OVERHEAD_SAMPLES] = bytes;
	for (uint32_t i = 0; i < OVERHEAD_SAMPLES && i < device->n_overheads; i++)
		if (device->overheads[i] < least)
			least = device->overheads[i];
	return least;
}

static void charge_overhead(struct budget *budget, unsigned int index, uint64_t bytes)
{
	struct budget_device *device = &budget->devices[index];

	account_charge_set(tenants_broker_account(budget->options.tenants), &device->overhead,
			   account_vram(index), bytes);
	if (bytes <= BUDGET_OVERHEAD_BYTES || device->has_warned)
		return;
	device->has_warned = true;
	log_warning("device %u: its driver holds %llu MiB for the broker beyond what tenants are "
		    "charged, more than the %llu MiB expected",
		    index, (unsigned long long)(bytes >> 20),
		    (unsigned long long)(BUDGET_OVERHEAD_BYTES >> 20));
}

/* Half of the host memory that the device could use and others do not. */
static uint64_t usable_gtt(const struct device_reading *reading, const struct executor_info *info)
{
	const struct memory_reading *gtt = &reading->gtt;
	uint64_t outside = 0;

	if (gtt->used.is_valid && gtt->own.is_valid)
		outside = less(gtt->used.value, gtt->own.value);
	return less(info->gtt_bytes, outside) / 2;
}

static void look(struct budget *budget, unsigned int index)
{
	struct executor *executor = budget->options.executors[index];
	const struct policy *policy = tenants_policy(budget->options.tenants);
	const struct executor_info *info = &executor->info;
	struct budget_device *device = &budget->devices[index];
	struct device_reading reading = {.state = TELEMETRY_PRESENT};
	uint64_t headroom_bytes = 0, overhead_bytes;
	struct budget_figures figures;
	struct memory_reading pool;

	if (info->memory_page_bytes == 0)
		return;
	telemetry_read(budget->options.telemetry, index, &reading);
	if (reading.state == TELEMETRY_GONE) {
		if (!device->was_gone)
			log_warning("device %u (%s) is gone", index, info->name);
		device->was_gone = true;
		residency_device_lost(budget->options.residency, index);
		return;
	}
	device->was_gone = false;

	if (!budget->options.is_capped && info->kind != EXECUTOR_SOFTWARE_GPU)
		headroom_bytes = policy_size_bytes(policy_headroom(policy), info->memory_bytes);
	pool = telemetry_pool(&reading);
	budget_compute(&pool, info->memory_bytes, headroom_bytes,
		       executor->ops->memory_used(executor, EXEC_TIER_VRAM), &figures);
	overhead_bytes = least_overhead(device, figures.overhead_bytes);
	figures.usable_bytes += figures.overhead_bytes - overhead_bytes;
	if (figures.usable_bytes > info->memory_bytes)
		figures.usable_bytes = info->memory_bytes;
	charge_overhead(budget, index, overhead_bytes);
	residency_set_usable(budget->options.residency, index, figures.usable_bytes,
			     usable_gtt(&reading, info));
}

static void on_sample(void *data, uint32_t events)
{
	struct budget *budget = data;

	waker_disarm(budget->options.waker);
	/* Before looking: what comes after it rings again. */
	waker_arm(budget->options.waker);
	for (unsigned int i = RBK_DEVICE_GPU; i < budget->options.n_executors; i++)
		look(budget, i);
}

void budget_policy_changed(struct budget *budget)
{
	for (unsigned int i = RBK_DEVICE_GPU; i < budget->options.n_executors; i++)
		look(budget, i);
}

void budget_set_pace(void *context, bool is_busy, bool has_sessions)
{
	struct budget *budget = context;
	enum telemetry_pace pace = is_busy        ? TELEMETRY_BUSY
				   : has_sessions ? TELEMETRY_SESSIONS
						  : TELEMETRY_IDLE;

	if (pace == budget->pace)
		return;
	budget->pace = pace;
	telemetry_set_pace(budget->options.telemetry, pace);
}

int budget_new(const struct budget_options *options, struct budget **ret)
{
	_cleanup_(budget_freep) struct budget *budget = calloc(1, sizeof(*budget));
	int r;

	if (!budget)
		return error_origin(-ENOMEM);
	budget->options = *options;
	r = loop_watch(options->loop, options->waker->fd, POLLIN, on_sample, budget,
		       &budget->watch);
	if (r)
		return error_fold(r);
	waker_arm(options->waker);
	budget_policy_changed(budget);
	*ret = steal_ptr(budget);
	return 0;
}

struct budget *budget_free(struct budget *budget)
{
	if (!budget)
		return NULL;
	loop_unwatch(budget->watch);
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		charge_deinit(&budget->devices[i].overhead);
	free(budget);
	return NULL;
}
