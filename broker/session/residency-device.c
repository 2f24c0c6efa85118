/* SPDX-License-Identifier: MIT */
/*
 * Residency: loss and return of a device
 *
 * When a device is lost its executor hands back every task, so plans drain; then everything on it
 * is unloaded and uncharged, and the executor is reopened on the setup thread. If that fails it is
 * tried again, with twice the delay each time. Placement sees PLAN_DEVICE_FAILED until the device
 * is back, then the plans return as after any eviction.
 */
#include <errno.h>
#include <string.h>

#include "session/residency-private.h"
#include "session/session.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/log.h"

static const uint64_t first_backoff_ns = 100ull * 1000 * 1000;
static const uint64_t max_backoff_ns = 30ull * 1000 * 1000 * 1000;

bool residency_device_is_lost(const struct residency_device *device)
{
	const struct executor_ops *ops = device->executor->ops;

	return ops->is_lost && ops->is_lost(device->executor);
}

static void show_all(struct residency_device *device)
{
	list_for_each (node, &device->residency->plans) {
		struct residency_plan *plan = container_of(node, struct residency_plan, link);

		residence_show(&plan->on[device->index]);
	}
}

bool residency_device_lost(struct residency *residency, unsigned int index)
{
	struct residency_device *device = &residency->devices[index];

	if (device->state == RESIDENCY_DEVICE_NONE)
		return false;
	if (device->state != RESIDENCY_DEVICE_UP)
		return true;
	if (!residency_device_is_lost(device))
		return false;
	device->state = RESIDENCY_DEVICE_LOST;
	show_all(device);
	list_for_each_safe (node, &device->residences)
		residence_evict(container_of(node, struct residence, link));
	residency_device_settle(device);
	return true;
}

static void reopen_run(struct offload_job *job)
{
	struct residency_device *device = container_of(job, struct residency_device, job);

	device->job_result = device->executor->ops->reopen(device->executor);
}

static void reopen_done(struct offload_job *job)
{
	struct residency_device *device = container_of(job, struct residency_device, job);
	struct residency *residency = device->residency;

	device->n_jobs--;
	if (device->job_result == 0) {
		device->state = RESIDENCY_DEVICE_UP;
		device->backoff_ns = 0;
		log_info("device %u (%s) is back", device->index, device->executor->info.name);
		show_all(device);
		residency_review_in(residency, 0);
		return;
	}
	device->state = RESIDENCY_DEVICE_AWAY;
	device->backoff_ns = device->backoff_ns ? 2 * device->backoff_ns : first_backoff_ns;
	if (device->backoff_ns > max_backoff_ns)
		device->backoff_ns = max_backoff_ns;
	log_debug("device %u cannot be reopened (%s), trying again in %llu ms", device->index,
		  strerror(-device->job_result),
		  (unsigned long long)(device->backoff_ns / 1000000));
	device->reopen_ns = clock_now_ns() + device->backoff_ns;
	residency_review_in(residency, device->backoff_ns);
}

static void reopen(struct residency_device *device)
{
	device->state = RESIDENCY_DEVICE_REOPENING;
	device->n_jobs++;
	device->job = (struct offload_job){.run = reopen_run, .done = reopen_done};
	offload_submit(device->residency->options.offload, &device->job);
}

void residency_device_settle(struct residency_device *device)
{
	if (device->state == RESIDENCY_DEVICE_LOST && list_is_empty(&device->residences) &&
	    device->n_jobs == 0)
		reopen(device);
}

void residency_devices_turn(struct residency *residency)
{
	uint64_t now_ns = clock_now_ns();

	for (unsigned int i = 1; i < residency->options.n_executors; i++) {
		struct residency_device *device = &residency->devices[i];

		if (device->state != RESIDENCY_DEVICE_AWAY)
			continue;
		if (device->reopen_ns <= now_ns)
			reopen(device);
		else
			residency_review_in(residency, device->reopen_ns - now_ns);
	}
}
