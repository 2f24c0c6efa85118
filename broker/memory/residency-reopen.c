/* SPDX-License-Identifier: MIT */
/*
 * Residency: the reopening of a lost device
 *
 * Once nothing is on the device any more, its executor is reopened on the setup thread. After a
 * failure reopening is retried with back-off: the delay doubles each time, from 100 ms to 30 s.
 */
#include <string.h>

#include "memory/residency-private.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/number.h"

static const uint64_t first_backoff_ns = 100ull * 1000 * 1000;
static const uint64_t max_backoff_ns = 30ull * 1000 * 1000 * 1000;

bool residency_device_is_lost(const struct residency_device *device)
{
	const struct executor_ops *ops = device->executor->ops;

	return ops->is_lost && ops->is_lost(device->executor);
}

bool residency_is_up(const struct residency *residency, unsigned int device)
{
	return residency->devices[device].state <= RESIDENCY_DEVICE_UP;
}

uint32_t residency_n_reopened(const struct residency *residency, unsigned int device)
{
	return residency->devices[device].n_reopened;
}

void residency_on_reopened(struct residency *residency,
			   void (*reopened)(void *context, unsigned int device), void *context)
{
	residency->reopened = reopened;
	residency->reopened_context = context;
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
		device->state = device->is_drained ? RESIDENCY_DEVICE_DRAINED : RESIDENCY_DEVICE_UP;
		device->backoff_ns = 0;
		device->n_reopened++;
		log_info_of(LOG_OF_DEVICE(device->index), LOG_DEVICE_BACK, "device %u (%s) is back",
			    device->index, device->executor->info.name);
		residency->must_show = true;
		if (residency->reopened)
			residency->reopened(residency->reopened_context, device->index);
		residency_review_in(residency, 0);
		return;
	}
	device->state = RESIDENCY_DEVICE_AWAY;
	device->backoff_ns = device->backoff_ns ? 2 * device->backoff_ns : first_backoff_ns;
	if (device->backoff_ns > max_backoff_ns)
		device->backoff_ns = max_backoff_ns;
	log_debug(LOG_DETAIL, "cannot reopen device %u (%s), trying again in %llu ms",
		  device->index, strerror(-device->job_result), ull(device->backoff_ns / 1000000));
	device->reopen_ns = clock_now_ns() + device->backoff_ns;
	residency_review_in(residency, device->backoff_ns);
}

static void reopen(struct residency_device *device)
{
	device->state = RESIDENCY_DEVICE_REOPENING;
	device->n_jobs++;
	device->job = (struct offload_job){
		.run = reopen_run,
		.done = reopen_done,
		.cause = OFFLOAD_REOPEN,
	};
	offload_submit(device->residency->options.offload, &device->job);
}

void residency_device_settle(struct residency_device *device)
{
	if (device->state == RESIDENCY_DEVICE_LOST && list_is_empty(&device->residences) &&
	    device->n_jobs == 0 && device->n_guests == 0)
		reopen(device);
}

bool residency_guest_enter(struct residency *residency, unsigned int index)
{
	if (!residency_is_up(residency, index))
		return false;
	residency->devices[index].n_guests++;
	return true;
}

void residency_guest_leave(struct residency *residency, unsigned int index)
{
	struct residency_device *device = &residency->devices[index];

	device->n_guests--;
	residency_device_settle(device);
}

void residency_devices_turn(struct residency *residency)
{
	uint64_t now_ns = clock_now_ns();
	bool is_lost = false;

	for (unsigned int i = 1; i < residency->options.n_executors; i++) {
		struct residency_device *device = &residency->devices[i];

		is_lost |= device->state > RESIDENCY_DEVICE_UP;
		if (device->state != RESIDENCY_DEVICE_AWAY)
			continue;
		if (device->reopen_ns <= now_ns)
			reopen(device);
		else
			residency_review_in(residency, device->reopen_ns - now_ns);
	}
	if (is_lost)
		residency_tell_hopeless(residency);
}

void residency_device_present(struct residency *residency, unsigned int index)
{
	struct residency_device *device = &residency->devices[index];

	device->backoff_ns = 0;
	if (device->state == RESIDENCY_DEVICE_AWAY)
		reopen(device);
}
