/* SPDX-License-Identifier: MIT */
/*
 * Moving memory: see mover.h.
 *
 * A look at a program takes three steps, each only if nothing was submitted since the one before:
 * it notes the number of submissions, has a fence signalled behind all that the program's queues
 * were given, and, once all these fences are signalled, moves memory away or back. So memory leaves
 * about a second after the program's last work. A program whose queues wait for something is not
 * idle, and a call that needs memory waits for a moment at most until fences are signalled.
 *
 * Memory is copied as a whole, through two buffers of the layer's own, whatever the program's
 * buffers in it are. Each copy is complete before the buffers are bound to the copy, and that is
 * complete before the former memory is freed. If a step fails, the memory stays where it is.
 */
#include "libclient/layer/mover.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libclient/layer/dispatch.h"
#include "libclient/layer/layer.h"
#include "libclient/layer/process.h"
#include "libclient/layer/say.h"

enum { LOOK_MS = 500, SOON_MS = 100 };

static const uint64_t retry_ns = 1000000000u;  /* between attempts to get memory back */
static const uint64_t busy_ns = 50000000u;     /* the same, while the program's work is under way */
static const uint64_t settle_ns = 1000000u;    /* longest wait for the end of that work */
static const uint64_t stuck_ns = 30000000000u; /* a copy that takes longer has failed */

static uint64_t load(const uint64_t *from)
{
	return __atomic_load_n(from, __ATOMIC_RELAXED);
}

static struct gpu *gpu_of(const struct mover *mover)
{
	return mover->device->gpus[0];
}

static const struct rbk_lease_page *page_of(const struct gpu *gpu)
{
	return __atomic_load_n(&gpu->account.page, __ATOMIC_ACQUIRE);
}

static uint32_t sleep_of(const struct gpu *gpu)
{
	return __atomic_load_n(&page_of(gpu)->sleep, __ATOMIC_RELAXED);
}

/* ---- Copying ---- */

/* Submit to the layer's own queue, and wait until that is complete. */
static VkResult wait_for_fence(struct mover *mover)
{
	struct device *device = mover->device;
	VkResult result = device->wait_fences(device->handle, 1, &mover->fence, VK_TRUE, stuck_ns);

	if (result == VK_SUCCESS)
		result = device->reset_fences(device->handle, 1, &mover->fence);
	if (result == VK_SUCCESS)
		return VK_SUCCESS;
	/* Without an end of this work the fence cannot be used again, nor the memory be freed. */
	__atomic_store_n(&mover->is_dead, true, __ATOMIC_RELAXED);
	return VK_ERROR_DEVICE_LOST;
}

static VkResult bind(struct mover *mover, struct sparse_buffer *const *buffers, uint32_t n,
		     VkDeviceMemory here)
{
	VkSparseMemoryBind *binds = calloc(n, sizeof(*binds));
	VkSparseBufferMemoryBindInfo *infos = calloc(n, sizeof(*infos));
	VkBindSparseInfo info = {
		.sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO,
		.bufferBindCount = n,
		.pBufferBinds = infos,
	};
	VkResult result = VK_ERROR_OUT_OF_HOST_MEMORY;

	if (binds && infos) {
		for (uint32_t i = 0; i < n; i++) {
			binds[i] = (VkSparseMemoryBind){
				.size = buffers[i]->bytes,
				.memory = here,
				.memoryOffset = here ? buffers[i]->offset : 0,
			};
			infos[i] = (VkSparseBufferMemoryBindInfo){buffers[i]->handle, 1, &binds[i]};
		}
		result = mover->next.bind_sparse(mover->queue, 1, &info, mover->fence);
		if (result == VK_SUCCESS)
			result = wait_for_fence(mover);
	}
	free(binds);
	free(infos);
	return result;
}

VkResult mover_bind(struct mover *mover, struct sparse_buffer *const *buffers, uint32_t n,
		    VkDeviceMemory here)
{
	VkResult result;
	int before;

	if (__atomic_load_n(&mover->is_dead, __ATOMIC_RELAXED))
		return VK_ERROR_DEVICE_LOST;
	/* The program's thread holds locks of the layer. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	result = bind(mover, buffers, n, here);
	pthread_setcancelstate(before, NULL);
	return result;
}

static VkResult make_buffer(struct mover *mover, uint64_t bytes, VkDeviceMemory memory,
			    uint32_t type, VkBuffer *ret)
{
	const VkBufferCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
		.size = bytes,
		.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
	};
	VkDevice device = mover->device->handle;
	VkMemoryRequirements needs;
	VkResult result = mover->next.create_buffer(device, &info, NULL, ret);

	if (result != VK_SUCCESS) {
		*ret = VK_NULL_HANDLE;
		return result;
	}
	/* Drivers bind only what has asked for its needs. */
	mover->next.buffer_needs(device, *ret, &needs);
	if (needs.size > bytes || !(needs.memoryTypeBits >> type & 1))
		return VK_ERROR_OUT_OF_DEVICE_MEMORY;
	return mover->next.bind_buffer(device, *ret, memory, 0);
}

static VkResult copy_between(struct mover *mover, VkBuffer from, VkBuffer to, uint64_t bytes)
{
	const VkCommandBufferBeginInfo begin = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
		.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
	};
	const VkBufferCopy region = {0, 0, bytes};
	const VkSubmitInfo info = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.commandBufferCount = 1,
		.pCommandBuffers = &mover->commands,
	};
	VkResult result = mover->next.begin(mover->commands, &begin);

	if (result != VK_SUCCESS)
		return result;
	mover->next.copy(mover->commands, from, to, 1, &region);
	result = mover->next.end(mover->commands);
	if (result == VK_SUCCESS)
		result = mover->device->submit(mover->queue, 1, &info, mover->fence);
	return result == VK_SUCCESS ? wait_for_fence(mover) : result;
}

/* Return the memory type where the memory is. */
static uint32_t type_of(const struct mover *mover, const struct movable *movable)
{
	return movable->is_away ? mover->host_type : movable->info.memoryTypeIndex;
}

static VkResult copy_memory(struct mover *mover, const struct movable *movable, VkDeviceMemory to,
			    uint32_t to_type)
{
	const uint64_t bytes = movable->info.allocationSize;
	VkBuffer source = VK_NULL_HANDLE, target = VK_NULL_HANDLE;
	VkResult result =
		make_buffer(mover, bytes, movable->here, type_of(mover, movable), &source);

	if (result == VK_SUCCESS)
		result = make_buffer(mover, bytes, to, to_type, &target);
	if (result == VK_SUCCESS)
		result = copy_between(mover, source, target, bytes);
	/* The device may still use them. */
	if (mover->is_dead)
		return result;
	mover->next.destroy_buffer(mover->device->handle, source, NULL);
	mover->next.destroy_buffer(mover->device->handle, target, NULL);
	return result;
}

/* Bind all buffers of the memory to @here. */
static VkResult bind_all(struct mover *mover, const struct movable *movable, VkDeviceMemory here)
{
	struct sparse_buffer **buffers;
	uint32_t n = 0, i = 0;
	VkResult result;

	for (struct sparse_buffer *each = movable->buffers; each; each = each->next)
		n++;
	if (n == 0)
		return VK_SUCCESS;
	buffers = calloc(n, sizeof(struct sparse_buffer *));
	if (!buffers)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	for (struct sparse_buffer *each = movable->buffers; each; each = each->next)
		buffers[i++] = each;
	result = mover_bind(mover, buffers, n, here);
	free(buffers);
	return result;
}

enum moving {
	MOVED,
	STAYED, /* nothing has changed */
	LOST,   /* the same, but the layer's work has no end: new memory is not freed */
};

static uint64_t *live_bytes_of(struct mover *mover, uint32_t type)
{
	return &gpu_of(mover)
			->live_bytes[mover->device->physical->memory.memoryTypes[type].heapIndex];
}

/*
 * Copy memory to new memory of type @type, which takes its place. As in memory.c, it is counted as
 * live before it is allocated and until it was freed. Under mover.using, written, and mover.lock.
 */
static enum moving move(struct mover *mover, struct movable *movable, uint32_t type)
{
	struct device *device = mover->device;
	VkMemoryAllocateInfo info = movable->info;
	VkDeviceMemory there;
	VkResult result;

	info.memoryTypeIndex = type;
	__atomic_fetch_add(live_bytes_of(mover, type), movable->bytes, __ATOMIC_RELAXED);
	result = device->allocate(device->handle, &info, NULL, &there);
	if (result == VK_SUCCESS) {
		result = copy_memory(mover, movable, there, type);
		if (result == VK_SUCCESS)
			result = bind_all(mover, movable, there);
		if (result == VK_SUCCESS) {
			device->free(device->handle, movable->here, NULL);
			movable->here = there;
			gpu_note_peak(gpu_of(mover));
			__atomic_fetch_sub(live_bytes_of(mover, type_of(mover, movable)),
					   movable->bytes, __ATOMIC_RELAXED);
			return MOVED;
		}
		/* Some of its buffers may be bound to the new memory. */
		if (!mover->is_dead && bind_all(mover, movable, movable->here) != VK_SUCCESS)
			__atomic_store_n(&mover->is_dead, true, __ATOMIC_RELAXED);
		if (mover->is_dead) {
			say_error(
				"memory of this program is not moved any more: Vulkan returned %d",
				(int)result);
			return LOST;
		}
		say_rarely("memory cannot be moved: Vulkan returned %d", (int)result);
		device->free(device->handle, there, NULL);
	}
	__atomic_fetch_sub(live_bytes_of(mover, type), movable->bytes, __ATOMIC_RELAXED);
	return STAYED;
}

/* ---- Idleness ---- */

static bool are_signalled(struct mover *mover)
{
	const struct device *device = mover->device;

	for (uint32_t i = 0; i < mover->n_queues; i++)
		if (device->fence_status(device->handle, mover->probes[i]) != VK_SUCCESS)
			return false;
	return true;
}

/* Have a fence signalled behind all that each queue was given. Return: false: that failed. */
static bool probe(struct mover *mover)
{
	const struct device *device = mover->device;

	for (uint32_t i = 0; i < mover->n_queues; i++)
		if (device->submit(mover->queues[i], 0, NULL, mover->probes[i]) != VK_SUCCESS) {
			__atomic_store_n(&mover->is_dead, true, __ATOMIC_RELAXED);
			return false;
		}
	mover->has_probes = true;
	mover->probed_at = load(&mover->n_submits);
	return true;
}

/* Return true if memory can be moved when the program is idle. */
static bool can_move(const struct mover *mover)
{
	return !__atomic_load_n(&mover->is_dead, __ATOMIC_RELAXED) &&
	       !__atomic_load_n(&mover->has_unknown_queue, __ATOMIC_RELAXED);
}

/*
 * Return true if nothing of the program is under way. Waits for @wait_ns at most for the end of
 * earlier work. Under mover.using, written, so that nothing is submitted meanwhile.
 */
static bool is_idle(struct mover *mover, uint64_t wait_ns)
{
	const struct device *device = mover->device;
	const uint64_t n_submits = load(&mover->n_submits);

	if (!can_move(mover))
		return false;
	if (n_submits == mover->idle_at)
		return true;
	for (;;) {
		/* A fence that was submitted can be used again only once it is signalled. */
		if (!mover->has_probes && !probe(mover))
			return false;
		if (wait_ns > 0)
			(void)device->wait_fences(device->handle, mover->n_queues, mover->probes,
						  VK_TRUE, wait_ns);
		if (!are_signalled(mover))
			return false;
		(void)device->reset_fences(device->handle, mover->n_queues, mover->probes);
		mover->has_probes = false;
		if (mover->probed_at == n_submits)
			break;
	}
	mover->idle_at = n_submits;
	return true;
}

/* ---- Away and back ---- */

/* Note where an allocation is now; its charge is the caller's. */
static void note_moved(struct mover *mover, struct movable *movable, bool is_away)
{
	const uint32_t host_heap =
		mover->device->physical->memory.memoryTypes[mover->host_type].heapIndex;
	const uint64_t change_bytes = is_away ? movable->bytes : 0 - movable->bytes;
	struct allocation allocation;

	movable->is_away = is_away;
	__atomic_fetch_add(&mover->away_bytes, change_bytes, __ATOMIC_RELAXED);
	__atomic_fetch_add(&gpu_of(mover)->moved_bytes, change_bytes, __ATOMIC_RELAXED);
	if (!table_find(&mover->device->table, (uint64_t)(uintptr_t)movable, &allocation))
		return;
	allocation.heap = (uint8_t)(is_away ? host_heap : movable->heap);
	allocation.is_charged = !is_away;
	table_replace(&mover->device->table, &allocation);
}

/* Return the bytes that should be moved away, if the program is idle. */
static uint64_t wanted(const struct gpu *gpu)
{
	const struct rbk_lease_page *page = page_of(gpu);
	const uint64_t granted_bytes = load(&page->granted_bytes);
	const uint64_t wish_bytes = load(&page->wish_bytes);

	/* A broker that has ended wants nothing. */
	if (__atomic_load_n(&gpu->is_cut, __ATOMIC_RELAXED))
		return 0;
	if (sleep_of(gpu) != RBK_LEASE_AWAKE)
		return UINT64_MAX;
	return granted_bytes > wish_bytes ? granted_bytes - wish_bytes : 0;
}

/*
 * Move memory away, until the lease has no more than it should have, or the program goes on. Under
 * mover.using, written.
 */
static void move_away(struct mover *mover)
{
	struct gpu *gpu = gpu_of(mover);
	const uint64_t begin_ns = layer_now_ns();
	const uint64_t wanted_bytes = wanted(gpu);
	uint64_t moved_bytes = 0, kept_bytes = 0;

	pthread_mutex_lock(&mover->lock);
	for (struct movable *movable = mover->movables; movable && moved_bytes < wanted_bytes;
	     movable = movable->next) {
		if (movable->is_away)
			continue;
		if (__atomic_load_n(&mover->n_entering, __ATOMIC_RELAXED) > 0 ||
		    __atomic_load_n(&layer_process->is_exiting, __ATOMIC_RELAXED))
			break;
		if (movable->n_pins > 0 || move(mover, movable, mover->host_type) != MOVED) {
			kept_bytes += movable->bytes;
			continue;
		}
		note_moved(mover, movable, true);
		account_release(&gpu->account, movable->bytes);
		moved_bytes += movable->bytes;
	}
	pthread_mutex_unlock(&mover->lock);
	if (moved_bytes == 0)
		return;
	mover->away_at = load(&mover->n_submits);
	mover->has_waited = false;
	__atomic_store_n(&mover->return_at_ns, 0, __ATOMIC_RELAXED);
	account_trim_all(&gpu->account);
	gpu_report(gpu);
	gpu_report_moved(gpu);
	say("%llu bytes of an idle program have moved to host memory in %llu us, %llu bytes cannot "
	    "be moved",
	    (unsigned long long)moved_bytes, (unsigned long long)(layer_now_ns() - begin_ns) / 1000,
	    (unsigned long long)kept_bytes);
}

/* Return the bytes that can come back: memory that is mapped there stays until it is unmapped. */
static uint64_t returning_bytes(struct mover *mover)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&mover->lock);
	for (struct movable *movable = mover->movables; movable; movable = movable->next)
		if (movable->is_away && movable->n_pins == 0)
			bytes += movable->bytes;
	pthread_mutex_unlock(&mover->lock);
	return bytes;
}

/*
 * Move memory back that has room: @charged_bytes were charged for it. Under mover.using, written,
 * and while nothing is under way. Return: the bytes that were charged and not used.
 */
static uint64_t move_back(struct mover *mover, uint64_t charged_bytes)
{
	struct gpu *gpu = gpu_of(mover);
	const uint64_t begin_ns = layer_now_ns();
	uint64_t moved_bytes = 0;
	enum moving moving;

	pthread_mutex_lock(&mover->lock);
	for (struct movable *movable = mover->movables; movable; movable = movable->next) {
		if (!movable->is_away || movable->n_pins > 0)
			continue;
		if (charged_bytes < movable->bytes) {
			if (account_charge(&gpu->account, movable->bytes, 0))
				break;
			charged_bytes += movable->bytes;
		}
		moving = move(mover, movable, movable->info.memoryTypeIndex);
		/* Memory that was lost stays charged. */
		if (moving != STAYED)
			charged_bytes -= movable->bytes;
		if (moving != MOVED)
			break;
		note_moved(mover, movable, false);
		moved_bytes += movable->bytes;
	}
	pthread_mutex_unlock(&mover->lock);
	if (moved_bytes > 0)
		say("%llu bytes have moved back in %llu us; %llu bytes stay in host memory",
		    (unsigned long long)moved_bytes,
		    (unsigned long long)(layer_now_ns() - begin_ns) / 1000,
		    (unsigned long long)load(&mover->away_bytes));
	else
		say_rarely("%llu bytes stay in host memory, for which there is no room",
			   (unsigned long long)load(&mover->away_bytes));
	return charged_bytes;
}

static void end_return(struct mover *mover, uint64_t left_bytes, uint64_t pause_ns)
{
	struct gpu *gpu = gpu_of(mover);

	__atomic_store_n(&mover->return_at_ns,
			 load(&mover->away_bytes) > 0 ? layer_now_ns() + pause_ns : 0,
			 __ATOMIC_RELAXED);
	if (left_bytes > 0)
		account_release(&gpu->account, left_bytes);
	gpu_report(gpu);
	gpu_report_moved(gpu);
}

/*
 * Bring memory back for a call of the program, unless its work is under way, or other calls are:
 * some of it may wait for this call. The first time the call waits for room as allocations do.
 */
static void bring_back(struct mover *mover)
{
	struct gpu *gpu = gpu_of(mover);
	uint64_t bytes, pause_ns = busy_ns;

	/* Another thread does so. */
	if (pthread_mutex_trylock(&mover->returning))
		return;
	bytes = returning_bytes(mover);
	if (bytes > 0 &&
	    account_charge(&gpu->account, bytes, mover->has_waited ? 0 : process_wait_ns()))
		bytes = 0;
	mover->has_waited = true;
	if (pthread_rwlock_trywrlock(&mover->using) == 0) {
		if (is_idle(mover, settle_ns)) {
			bytes = move_back(mover, bytes);
			pause_ns = retry_ns;
		}
		pthread_rwlock_unlock(&mover->using);
	}
	end_return(mover, bytes, pause_ns);
	pthread_mutex_unlock(&mover->returning);
}

/* ---- Looking ---- */

/* Return true if memory could be moved away. */
static bool has_movable(struct mover *mover)
{
	const struct movable *movable;

	pthread_mutex_lock(&mover->lock);
	movable = mover->movables;
	while (movable && (movable->is_away || movable->n_pins > 0))
		movable = movable->next;
	pthread_mutex_unlock(&mover->lock);
	return movable != NULL;
}

/* Return true if the next look should be soon. */
static bool look(struct mover *mover)
{
	const uint64_t n_submits = load(&mover->n_submits);
	const bool is_still = n_submits == mover->seen_submits;
	const bool goes = wanted(gpu_of(mover)) > 0 && has_movable(mover);
	/* The program has worked with memory that was away. */
	const bool comes = wanted(gpu_of(mover)) == 0 && load(&mover->away_bytes) > 0 &&
			   n_submits != mover->away_at &&
			   layer_now_ns() >= load(&mover->return_at_ns);
	bool was_idle;

	mover->seen_submits = n_submits;
	if (!is_still || (!goes && !comes) || !can_move(mover) ||
	    pthread_rwlock_trywrlock(&mover->using))
		return false;
	was_idle = load(&mover->n_submits) == n_submits && is_idle(mover, 0);
	if (was_idle && goes)
		move_away(mover);
	else if (was_idle)
		end_return(mover, move_back(mover, 0), retry_ns);
	pthread_rwlock_unlock(&mover->using);
	return !was_idle;
}

static void *run(void *unused)
{
	bool is_soon = false;

	(void)unused;
	for (;;) {
		poll(NULL, 0, is_soon ? SOON_MS : LOOK_MS);
		is_soon = false;
		pthread_mutex_lock(&layer_process->movers_lock);
		if (process_enter_driver()) {
			for (struct mover *mover = layer_process->movers; mover;
			     mover = mover->following)
				is_soon |= look(mover);
			process_leave_driver();
		}
		pthread_mutex_unlock(&layer_process->movers_lock);
	}
	return NULL;
}

void mover_start(struct mover *mover)
{
	pthread_mutex_lock(&layer_process->movers_lock);
	mover->following = layer_process->movers;
	layer_process->movers = mover;
	if (!layer_process->has_mover_thread && process_thread(NULL, "rbk-mover", run, NULL))
		say_error("device memory stays where it is while the program is idle: no thread");
	else
		layer_process->has_mover_thread = true;
	pthread_mutex_unlock(&layer_process->movers_lock);
}

void mover_stop(struct mover *mover)
{
	struct mover **link = &layer_process->movers;

	pthread_mutex_lock(&layer_process->movers_lock);
	while (*link && *link != mover)
		link = &(*link)->following;
	if (*link)
		*link = mover->following;
	pthread_mutex_unlock(&layer_process->movers_lock);
}

/* ---- The program's calls ---- */

/* A broker that has ended holds nothing, nor is a child held that has inherited the device. */
static bool is_held(const struct gpu *gpu)
{
	return gpu_is_ours(gpu) && sleep_of(gpu) == RBK_LEASE_HELD &&
	       !__atomic_load_n(&gpu->is_cut, __ATOMIC_RELAXED);
}

static void wait_while_held(const struct gpu *gpu)
{
	const struct timespec second = {.tv_sec = 1};
	int before;

	if (!is_held(gpu))
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	while (is_held(gpu)) {
		say_rarely("the program is held: brokerctl lease wake %u lets it go on",
			   page_of(gpu)->lease);
		syscall(SYS_futex, &page_of(gpu)->sleep, FUTEX_WAIT, RBK_LEASE_HELD, &second, NULL,
			0);
	}
	pthread_setcancelstate(before, NULL);
}

static void enter(struct mover *mover)
{
	if (pthread_rwlock_tryrdlock(&mover->using) == 0)
		return;
	__atomic_fetch_add(&mover->n_entering, 1, __ATOMIC_RELAXED);
	pthread_rwlock_rdlock(&mover->using);
	__atomic_fetch_sub(&mover->n_entering, 1, __ATOMIC_RELAXED);
}

void mover_enter(struct mover *mover, bool comes_back)
{
	int before;

	if (!mover)
		return;
	if (comes_back && load(&mover->away_bytes) > 0 &&
	    layer_now_ns() >= load(&mover->return_at_ns) && gpu_is_ours(gpu_of(mover)) &&
	    !is_held(gpu_of(mover))) {
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
		bring_back(mover);
		pthread_setcancelstate(before, NULL);
	}
	enter(mover);
}

void mover_leave(struct mover *mover)
{
	if (mover)
		pthread_rwlock_unlock(&mover->using);
}

/* Note that the program uses a queue. Under mover.using. */
static void note_queue(struct mover *mover, VkQueue queue)
{
	const VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
	struct device *device = mover->device;
	uint32_t n = __atomic_load_n(&mover->n_queues, __ATOMIC_ACQUIRE), at = 0;

	while (at < n && mover->queues[at] != queue)
		at++;
	if (at < n)
		return;
	pthread_mutex_lock(&mover->lock);
	n = mover->n_queues;
	for (at = 0; at < n && mover->queues[at] != queue;)
		at++;
	if (at == n) {
		/* The work of a queue without a fence is never known to have ended. */
		if (n == MOVER_MAX_QUEUES ||
		    device->create_fence(device->handle, &info, NULL, &mover->probes[n]) !=
			    VK_SUCCESS) {
			__atomic_store_n(&mover->has_unknown_queue, true, __ATOMIC_RELAXED);
		} else {
			mover->queues[n] = queue;
			__atomic_store_n(&mover->n_queues, n + 1, __ATOMIC_RELEASE);
		}
	}
	pthread_mutex_unlock(&mover->lock);
}

void mover_enter_submit(struct device *device, VkQueue queue)
{
	struct mover *mover = device->mover;
	struct gpu *gpu = device->n_gpus > 0 ? device->gpus[0] : NULL;

	if (gpu)
		wait_while_held(gpu);
	if (!mover)
		return;
	for (;;) {
		mover_enter(mover, true);
		if (!is_held(gpu))
			break;
		mover_leave(mover);
		wait_while_held(gpu);
	}
	note_queue(mover, queue);
	__atomic_fetch_add(&mover->n_submits, 1, __ATOMIC_RELAXED);
}
