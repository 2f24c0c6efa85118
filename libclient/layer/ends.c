/* SPDX-License-Identifier: MIT */
/*
 * Ends of submissions: see ends.h.
 *
 * Drivers and simulated cards may take a while for any call, so the thread calls them without the
 * lock, for which the threads that submit wait. No other thread removes submissions from the list,
 * or touches fences that are in it.
 */
#include "libclient/layer/ends.h"

#include <time.h>

#include "libclient/layer/cut.h"
#include "libclient/layer/dispatch.h"
#include "libclient/layer/gpu.h"
#include "libclient/layer/layer.h"
#include "libclient/layer/process.h"

/* Longest wait for an end: others may have begun since. */
static const uint64_t moment_ns = 1000000;
/* Longest wait for all ends before the device is destroyed, and before the process ends. */
static const uint64_t last_ns = 1000000000, exit_ns = 100000000;

void ends_exit(void)
{
	const struct timespec pause = {.tv_nsec = (long)moment_ns};
	const uint64_t end_ns = layer_now_ns() + exit_ns;

	__atomic_store_n(&layer_process->is_exiting, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&layer_process->n_in_driver, __ATOMIC_SEQ_CST) > 0 &&
	       layer_now_ns() < end_ns)
		nanosleep(&pause, NULL);
}

/*
 * Move submissions that have ended, by the bits of their places in the device's list, to @ended.
 * Return: their number. Under the lock.
 */
static uint32_t take_ended(struct submissions *all, uint64_t bits, struct under_way *ended)
{
	uint32_t n = 0, n_ended = 0;

	for (uint32_t i = 0; i < all->n; i++)
		if (bits >> i & 1)
			ended[n_ended++] = all->under_way[i];
		else if (n++ != i)
			all->under_way[n - 1] = all->under_way[i];
	all->n = n;
	return n_ended;
}

static void destroy_signalled(struct device *device)
{
	struct submissions *all = &device->submissions;

	while (all->n_signalled > 0)
		device->destroy_fence(device->handle, all->signalled[--all->n_signalled], NULL);
}

/* Reset the fences of submissions that have ended. Without the lock: it calls the driver. */
static void reset_signalled(struct device *device)
{
	struct submissions *all = &device->submissions;

	if (all->n_signalled > 0 &&
	    device->reset_fences(device->handle, all->n_signalled, all->signalled) != VK_SUCCESS)
		destroy_signalled(device);
}

/* Let new submissions have the fences that were reset. Under the lock. */
static void give_back(struct device *device)
{
	struct submissions *all = &device->submissions;

	while (all->n_signalled > 0 && all->n_free < TIMESLICE_MAX_SUBMISSIONS)
		all->free[all->n_free++] = all->signalled[--all->n_signalled];
	/* Meanwhile the submitting threads have made as many others. */
	destroy_signalled(device);
}

/*
 * Return as bits which of @n submissions have ended, or were lost. The first one has if @is_known.
 * With @is_one_queue they end in order. Without the lock: no other thread takes their fences.
 */
static uint64_t find_ended(const struct device *device, uint32_t n, const VkFence *fences,
			   bool is_known, bool is_one_queue)
{
	uint64_t bits = is_known;

	for (uint32_t i = is_known; i < n; i++)
		if (device->fence_status(device->handle, fences[i]) != VK_NOT_READY)
			bits |= UINT64_C(1) << i;
		else if (is_one_queue)
			break;
	return bits;
}

/*
 * Count submissions down that have ended, by the bits of their places in the device's list, and
 * learn how long they took. Under the lock.
 */
static void note_ends(struct device *device, struct timeslice *slice, uint64_t bits)
{
	struct under_way ended[TIMESLICE_MAX_SUBMISSIONS];
	struct submissions *all = &device->submissions;
	const uint32_t n = take_ended(all, bits, ended);
	const uint64_t now_ns = layer_now_ns();
	uint64_t sum_ns = 0, took_ns;
	bool is_exact;

	if (n == 0)
		return;
	/*
	 * This thread may see an end late. The time between two ends is that of the work only if
	 * all of the work was there at the first one, and more is there at the second one.
	 */
	is_exact = ended[n - 1].begin_ns < slice->end_ns && all->n > 0;
	for (uint32_t i = 0; i < n; i++)
		is_exact &= !ended[i].is_behind;
	/* Several may have ended since the thread ran last: they share the time. */
	took_ns = now_ns - (ended[0].begin_ns > slice->end_ns ? ended[0].begin_ns : slice->end_ns);
	for (uint32_t i = 0; i < n; i++)
		sum_ns += ended[i].predicted_ns;
	for (uint32_t i = 0; i < n; i++) {
		double part = sum_ns > 0 ? (double)ended[i].predicted_ns / (double)sum_ns : 1;
		/* A device that began to share late has no cutter. */
		const struct series *series =
			device->cutter ? &device->cutter->series[ended[i].series] : NULL;
		uint64_t ns = (uint64_t)((double)took_ns * part);
		/* An upper limit: the earlier end may have been seen late. */
		uint64_t most_ns = now_ns - ended[i].begin_ns;

		if (series && series->n > 0)
			duration_learn(&device->cutter->durations, series, is_exact ? ns : most_ns,
				       is_exact);
		if (series && series->n > 0 && is_exact && ns > slice->longest_ns)
			slice->longest_ns = ns;
		all->used_series &= ~(1ull << ended[i].series);
		slice->typical_ns -= slice->typical_ns / 8;
		if (ns > slice->typical_ns)
			slice->typical_ns = ns;
		slice->n_under_way--;
		slice->n_vague -= ended[i].is_vague;
		slice->under_way_ns -= ended[i].predicted_ns;
		all->signalled[all->n_signalled++] = ended[i].fence;
	}
	slice->end_ns = slice->changed_ns = now_ns;
	slice->has_ended = true;
	/* The end was a moment ago: a prediction that fits is better than the time of now. */
	if (slice->ends_ns > now_ns + slice->under_way_ns)
		slice->ends_ns = now_ns + slice->under_way_ns;
	if (slice->ends_ns < now_ns + slice->under_way_ns - ENDS_DOUBT_NS)
		slice->ends_ns = now_ns + slice->under_way_ns - ENDS_DOUBT_NS;
	pthread_cond_broadcast(&slice->changed);
}

/*
 * Wait until a submission has ended, for a moment: others may have begun since. With @is_last, wait
 * for all of them. Under the lock, which is released meanwhile. Return: false: the process ends.
 */
static bool await_ends(struct device *device, struct timeslice *slice, bool is_last)
{
	struct submissions *all = &device->submissions;
	VkFence fences[TIMESLICE_MAX_SUBMISSIONS];
	const uint32_t n = all->n;
	bool is_one_queue = true, is_first;
	VkResult result;
	uint64_t bits;

	for (uint32_t i = 0; i < n; i++) {
		fences[i] = all->under_way[i].fence;
		is_one_queue &= all->under_way[i].queue == all->under_way[0].queue;
	}
	/* A queue's first one ends first; some drivers do not sleep while they wait for any. */
	is_first = is_one_queue && !is_last;
	if (!process_enter_driver())
		return false;
	/* Drivers may take a while even for what does not wait. */
	pthread_mutex_unlock(&slice->lock);
	reset_signalled(device);
	result = device->wait_fences(device->handle, is_first ? 1 : n, fences, is_last,
				     is_last ? last_ns : moment_ns);
	bits = find_ended(device, n, fences, is_first && result == VK_SUCCESS, is_one_queue);
	pthread_mutex_lock(&slice->lock);
	give_back(device);
	note_ends(device, slice, bits);
	process_leave_driver();
	return true;
}

static void *watch_fences(void *data)
{
	struct device *device = data;
	struct submissions *all = &device->submissions;
	struct timeslice *slice = &device->gpus[0]->timeslice;
	bool is_last = false;

	pthread_mutex_lock(&slice->lock);
	while (!is_last) {
		while (all->n == 0 && !all->must_end)
			pthread_cond_wait(&slice->changed, &slice->lock);
		/* Vulkan requires that nothing is under way when a device is destroyed. */
		is_last = all->must_end;
		if (all->n > 0 && !await_ends(device, slice, is_last))
			break;
	}
	pthread_mutex_unlock(&slice->lock);
	return NULL;
}

VkFence ends_take_fence(struct device *device)
{
	const VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
	struct submissions *all = &device->submissions;
	VkFence fence;

	if (!all->is_watched) {
		if (process_thread(&all->thread, "rbk-fences", watch_fences, device))
			return VK_NULL_HANDLE;
		all->is_watched = true;
	}
	if (all->n_free > 0)
		return all->free[--all->n_free];
	if (device->create_fence(device->handle, &info, NULL, &fence) != VK_SUCCESS)
		return VK_NULL_HANDLE;
	return fence;
}

void ends_forget(struct device *device)
{
	struct submissions *all = &device->submissions;
	struct timeslice *slice = &device->gpus[0]->timeslice;

	pthread_mutex_lock(&slice->lock);
	all->must_end = true;
	pthread_cond_broadcast(&slice->changed);
	pthread_mutex_unlock(&slice->lock);
	pthread_join(all->thread, NULL);
	pthread_mutex_lock(&slice->lock);
	slice->n_under_way -= all->n;
	while (all->n > 0) {
		slice->under_way_ns -= all->under_way[--all->n].predicted_ns;
		slice->n_vague -= all->under_way[all->n].is_vague;
		device->destroy_fence(device->handle, all->under_way[all->n].fence, NULL);
	}
	while (all->n_free > 0)
		device->destroy_fence(device->handle, all->free[--all->n_free], NULL);
	destroy_signalled(device);
	pthread_cond_broadcast(&slice->changed);
	pthread_mutex_unlock(&slice->lock);
}
