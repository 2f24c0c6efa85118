/* SPDX-License-Identifier: MIT */
/*
 * Timeslices: see timeslice.h.
 *
 * Each restrained submission is followed by a fence of the layer's own. A thread of each VkDevice
 * waits for these fences and counts submissions down. A thread of each leased device ("rbk-slice")
 * watches the word on the lease's page, and tells the broker when nothing is under way any more.
 * Submissions before the device was restrained have no fence; the first one with a fence ends after
 * them.
 *
 * Nothing waits for ever. A submission may wait for a semaphore that a later submission of the
 * program signals, so the later one is let through after a while, and the broker is told DONE if
 * nothing ends while another thread waits for the timeslice. If the broker does not answer,
 * submissions are not restrained.
 *
 * The lock is never held during requests to the broker, or while Vulkan is called to wait.
 */
#include "libclient/layer/timeslice.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <ringbroker/lease.h>

#include "libclient/layer/dispatch.h"
#include "libclient/layer/gpu.h"
#include "libclient/layer/layer.h"
#include "libclient/layer/process.h"
#include "libclient/layer/say.h"
#include "libclient/private.h"

/* Submissions under way: as many as take this time together, or at least one or two. */
static const uint64_t depth_ns = 1000000;
/* A timeslice that others wait for ends when the program has submitted nothing for so long. */
static const uint64_t idle_ns = 200000;
/* Longest wait for a submission's end; it may itself wait for what the program submits next. */
static const uint64_t patience_ns = 50000000;
/* Time after which a request is repeated, or the broker is asked again. */
static const uint64_t retry_ns = 1000000000;
static const uint64_t failed_ns = 100000000;

static const uint32_t *word_of(const struct gpu *gpu)
{
	return &rbk_lease_page(gpu->lease)->timeslice;
}

static uint32_t load_word(const struct gpu *gpu)
{
	/* Pairs with lease_publish() of the broker. */
	return __atomic_load_n(word_of(gpu), __ATOMIC_ACQUIRE);
}

static struct timespec time_of(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
				 .tv_nsec = (long)(ns % 1000000000u)};
}

/* Wait until the word is no longer @word, or at most @most_ns. */
static void await_word(const struct gpu *gpu, uint32_t word, uint64_t most_ns)
{
	const struct timespec most = time_of(most_ns);

	syscall(SYS_futex, word_of(gpu), FUTEX_WAIT, word, &most, NULL, 0);
}

/* Wait for a change at most until @end_ns. Under the lock. */
static void await_change(struct timeslice *slice, uint64_t end_ns)
{
	const struct timespec end = time_of(end_ns);

	pthread_cond_timedwait(&slice->changed, &slice->lock, &end);
}

static int tell(struct gpu *gpu, uint32_t action, uint32_t word)
{
	int r;

	pthread_rwlock_rdlock(&layer_process->using);
	r = client_lease_timeslice(gpu->lease, action, 0, word);
	pthread_rwlock_unlock(&layer_process->using);
	return r;
}

/* ---- The thread that watches the page ---- */

/*
 * Return true if the lease's timeslice, as of @word, should end now; otherwise wait for a change,
 * or for a moment. Under the lock.
 */
static bool should_end(struct timeslice *slice, uint32_t word, uint64_t since_ns)
{
	const uint64_t now_ns = layer_now_ns();
	uint64_t end_ns;

	if (RBK_TIMESLICE_STATE(word) == RBK_TIMESLICE_CLOSED) {
		if (slice->n_under_way == 0)
			return true;
		end_ns =
			(since_ns > slice->changed_ns ? since_ns : slice->changed_ns) + patience_ns;
		if (now_ns >= end_ns) {
			if (slice->n_waiting > 0)
				return true;
			end_ns = now_ns + patience_ns;
		}
	} else {
		end_ns = slice->changed_ns + idle_ns;
		if (slice->n_under_way == 0 && slice->n_waiting == 0 && now_ns >= end_ns)
			return true;
		if (now_ns >= end_ns)
			end_ns = now_ns + depth_ns;
	}
	await_change(slice, end_ns);
	return false;
}

/* Tell DONE when the timeslice, as of @word, should end, unless the word changes before. */
static void end_slice(struct gpu *gpu, uint32_t word)
{
	struct timeslice *slice = &gpu->timeslice;
	const uint64_t since_ns = layer_now_ns();
	bool is_over = false;

	pthread_mutex_lock(&slice->lock);
	while (!is_over && load_word(gpu) == word)
		is_over = should_end(slice, word, since_ns);
	if (is_over)
		slice->given_word = word;
	pthread_mutex_unlock(&slice->lock);
	if (!is_over)
		return;
	if (tell(gpu, RBK_WIRE_TIMESLICE_DONE, word) == 0) {
		await_word(gpu, word, retry_ns);
		return;
	}
	/* The broker is gone, or has too much to answer. */
	await_word(gpu, word, failed_ns);
}

static void *watch_word(void *data)
{
	struct gpu *gpu = data;

	for (;;) {
		uint32_t word = load_word(gpu);

		if (RBK_TIMESLICE_STATE(word) == RBK_TIMESLICE_OPEN ||
		    RBK_TIMESLICE_STATE(word) == RBK_TIMESLICE_HELD)
			await_word(gpu, word, retry_ns);
		else
			end_slice(gpu, word);
	}
	return NULL;
}

/* ---- Sharing ---- */

static int serve(struct gpu *gpu)
{
	struct timeslice *slice = &gpu->timeslice;
	pthread_condattr_t attributes;
	int r;

	if (slice->is_served)
		return 0;
	pthread_mutex_init(&slice->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&slice->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	r = process_thread(NULL, "rbk-slice", watch_word, gpu);
	slice->is_served = r == 0;
	return r;
}

static int join(struct gpu *gpu)
{
	return client_lease_timeslice(gpu->lease, RBK_WIRE_TIMESLICE_JOIN,
				      layer_process->environment.priority, 0);
}

static void say_unshared(const struct gpu *gpu, int r)
{
	const char *why = r == -EOPNOTSUPP ? "the broker does not offer it"
			  : r == -EBUSY    ? "too many leases of the tenant do"
			  : r < 0          ? strerror(-r)
					   : "the broker is gone";

	say("lease %u does not share its device's time: %s", rbk_lease_number(gpu->lease), why);
}

void timeslice_share(struct gpu *gpu)
{
	int r;

	if (!layer_process->environment.has_priority || gpu->timeslice.is_sharing)
		return;
	r = serve(gpu);
	if (!r)
		r = join(gpu);
	if (r)
		say_unshared(gpu, r);
	else
		__atomic_store_n(&gpu->timeslice.is_sharing, 1, __ATOMIC_RELEASE);
}

void timeslice_restore(struct gpu *gpu)
{
	struct timeslice *slice = &gpu->timeslice;
	int r;

	if (!slice->is_sharing)
		return;
	pthread_mutex_lock(&slice->lock);
	slice->given_word = 0;
	pthread_mutex_unlock(&slice->lock);
	__atomic_store_n(&slice->open_until_ns, 0, __ATOMIC_RELAXED);
	r = join(gpu);
	if (r)
		say_unshared(gpu, r);
}

/* ---- Submissions ---- */

/* Return the leased device whose time the submissions of @device use; NULL: none that is shared. */
static struct gpu *shared_gpu(const struct device *device)
{
	struct gpu *gpu = device && device->n_gpus == 1 ? device->gpus[0] : NULL;

	/* In a fork()ed child the memory is zero. */
	return gpu && __atomic_load_n(&gpu->timeslice.is_sharing, __ATOMIC_ACQUIRE) ? gpu : NULL;
}

/* Count submissions down whose fences are signalled, or were lost. Under the lock. */
static void note_ends(struct device *device, struct timeslice *slice)
{
	struct submissions *all = &device->submissions;
	const uint64_t now_ns = layer_now_ns();
	uint32_t n = 0;

	for (uint32_t i = 0; i < all->n; i++) {
		VkFence fence = all->under_way[i].fence;
		uint64_t begin_ns = all->under_way[i].begin_ns, ns;

		if (device->fence_status(device->handle, fence) == VK_NOT_READY) {
			all->under_way[n++] = all->under_way[i];
			continue;
		}
		ns = now_ns - (begin_ns > slice->changed_ns ? begin_ns : slice->changed_ns);
		slice->typical_ns -= slice->typical_ns / 8;
		if (ns > slice->typical_ns)
			slice->typical_ns = ns;
		slice->n_under_way--;
		if (device->reset_fences(device->handle, 1, &fence) == VK_SUCCESS)
			all->free[all->n_free++] = fence;
		else
			device->destroy_fence(device->handle, fence, NULL);
	}
	if (n < all->n)
		slice->changed_ns = now_ns;
	all->n = n;
	pthread_cond_broadcast(&slice->changed);
}

static void *watch_fences(void *data)
{
	struct device *device = data;
	struct submissions *all = &device->submissions;
	struct timeslice *slice = &device->gpus[0]->timeslice;
	VkFence fences[TIMESLICE_MAX_SUBMISSIONS];
	bool is_last = false;
	uint32_t n;

	pthread_mutex_lock(&slice->lock);
	while (!is_last) {
		while (all->n == 0 && !all->must_end)
			pthread_cond_wait(&slice->changed, &slice->lock);
		/* Vulkan requires that nothing is under way when a device is destroyed. */
		is_last = all->must_end;
		if (all->n == 0)
			continue;
		n = all->n;
		for (uint32_t i = 0; i < n; i++)
			fences[i] = all->under_way[i].fence;
		pthread_mutex_unlock(&slice->lock);
		device->wait_fences(device->handle, n, fences, VK_FALSE, retry_ns);
		pthread_mutex_lock(&slice->lock);
		note_ends(device, slice);
	}
	pthread_mutex_unlock(&slice->lock);
	return NULL;
}

/* Return a fence; VK_NULL_HANDLE: none can be made. Under the lock. */
static VkFence take_fence(struct device *device)
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

/* Return true if another submission may be under way. Under the lock. */
static bool has_room(const struct timeslice *slice)
{
	bool is_background = layer_process->environment.priority == RBK_PRIORITY_LOW;
	uint32_t n = slice->n_under_way;

	if (n >= TIMESLICE_MAX_SUBMISSIONS)
		return false;
	return n < (is_background ? 1 : 2) || (n + 1) * slice->typical_ns <= depth_ns;
}

/* Wait until another submission may be under way, or for a while. Under the lock. */
static void await_room(struct timeslice *slice)
{
	const uint64_t end_ns = layer_now_ns() + patience_ns;

	while (!has_room(slice) &&
	       (slice->n_under_way >= TIMESLICE_MAX_SUBMISSIONS || layer_now_ns() < end_ns))
		await_change(slice,
			     end_ns > layer_now_ns() ? end_ns : layer_now_ns() + patience_ns);
}

/* Return true if the lease has the timeslice, and did not give it up. Under the lock. */
static bool is_held(const struct gpu *gpu)
{
	uint32_t word = load_word(gpu);
	enum rbk_timeslice state = RBK_TIMESLICE_STATE(word);

	return (state == RBK_TIMESLICE_HELD || state == RBK_TIMESLICE_WANTED) &&
	       word != gpu->timeslice.given_word;
}

static bool is_open(const struct gpu *gpu)
{
	return RBK_TIMESLICE_STATE(load_word(gpu)) == RBK_TIMESLICE_OPEN ||
	       layer_now_ns() < __atomic_load_n(&gpu->timeslice.open_until_ns, __ATOMIC_RELAXED);
}

/* Wait until the lease has the timeslice, or is not restrained. Under the lock. */
static void await_slice(struct gpu *gpu)
{
	struct timeslice *slice = &gpu->timeslice;

	slice->n_waiting++;
	while (!is_open(gpu) && !is_held(gpu)) {
		uint32_t word = load_word(gpu);
		int r;

		pthread_mutex_unlock(&slice->lock);
		r = tell(gpu, RBK_WIRE_TIMESLICE_WANT, 0);
		if (r) {
			__atomic_store_n(&slice->open_until_ns, layer_now_ns() + retry_ns,
					 __ATOMIC_RELAXED);
			say_rarely("the broker does not give timeslices (%s): the program goes on "
				   "without",
				   strerror(r < 0 ? -r : ECONNRESET));
		} else {
			await_word(gpu, word, retry_ns);
		}
		pthread_mutex_lock(&slice->lock);
	}
	slice->n_waiting--;
}

VkFence timeslice_begin(struct device *device)
{
	struct gpu *gpu = shared_gpu(device);
	VkFence fence = VK_NULL_HANDLE;
	struct timeslice *slice;

	if (!gpu || is_open(gpu))
		return VK_NULL_HANDLE;
	slice = &gpu->timeslice;
	pthread_mutex_lock(&slice->lock);
	do {
		await_slice(gpu);
		if (is_open(gpu))
			break;
		await_room(slice);
	} while (!is_held(gpu));
	if (!is_open(gpu))
		fence = take_fence(device);
	if (fence) {
		slice->n_under_way++;
		slice->changed_ns = layer_now_ns();
	}
	pthread_mutex_unlock(&slice->lock);
	return fence;
}

void timeslice_submitted(struct device *device, VkFence fence, bool is_made)
{
	struct submissions *all = &device->submissions;
	struct timeslice *slice = &device->gpus[0]->timeslice;

	pthread_mutex_lock(&slice->lock);
	if (is_made) {
		all->under_way[all->n].fence = fence;
		all->under_way[all->n++].begin_ns = layer_now_ns();
	} else {
		all->free[all->n_free++] = fence;
		slice->n_under_way--;
	}
	pthread_cond_broadcast(&slice->changed);
	pthread_mutex_unlock(&slice->lock);
}

void timeslice_forget(struct device *device)
{
	struct submissions *all = &device->submissions;
	struct gpu *gpu = shared_gpu(device);

	if (!gpu || !all->is_watched)
		return;
	pthread_mutex_lock(&gpu->timeslice.lock);
	all->must_end = true;
	pthread_cond_broadcast(&gpu->timeslice.changed);
	pthread_mutex_unlock(&gpu->timeslice.lock);
	pthread_join(all->thread, NULL);
	gpu->timeslice.n_under_way -= all->n;
	while (all->n > 0)
		device->destroy_fence(device->handle, all->under_way[--all->n].fence, NULL);
	while (all->n_free > 0)
		device->destroy_fence(device->handle, all->free[--all->n_free], NULL);
}
