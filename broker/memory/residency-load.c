/* SPDX-License-Identifier: MIT */
/*
 * Residency: loading and unloading one plan
 *
 * Loading: a draft lists the constants that are on the device already, in blocks that other plans
 * of the same owner loaded, and lays out a block for the rest. Everything is charged. Then the
 * setup thread loads the block, a part at a time, and the plan's working memory.
 *
 * Unloading: once no task is in flight, the setup thread frees the working memory and the blocks
 * that no other plan uses. Only then are the charges refunded. A block can be found from the
 * beginning of its load, and shared from the end of it, until its last user begins to be unloaded.
 *
 * So at any time the charges cover what the executor holds, and they are equal when no load or
 * unload is under way.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "memory/residency-private.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/number.h"

enum {
	MIN_STAY_NS = 2000000000,       /* an eviction after a shorter stay doubles the hold-off */
	UNLOAD_CALL_BYTES = 4 << 20,    /* approximate bytes of blocks freed in one slice */
	UNLOAD_BLOCK_BYTES = 256 << 10, /* cost of freeing a block, beside its own bytes */
};

_Static_assert(sizeof(struct resident_constant) + sizeof(struct exec_constant) +
			       sizeof(struct resident_constant *) +
			       sizeof(struct resident_block *) + sizeof(struct exec_block *) +
			       sizeof(uint64_t) <=
		       RESIDENCY_CONSTANT_BYTES,
	       "what draft_init() and the index allocate for a constant");

/* Blocks */

static struct resident_block *block_free(struct resident_block *block)
{
	if (!block)
		return NULL;
	assert(!block->exec.memory);
	assert(!block->charge.device.account);
	free(block->exec.constants);
	free(block->constants);
	free(block);
	return NULL;
}

static int block_new(struct draft *draft, uint32_t n_constants, uint64_t owner)
{
	struct resident_block *block = calloc(1, sizeof(*block));

	if (!block)
		return error_origin(-ENOMEM);
	block->owner = owner;
	block->exec.tier = draft->tier;
	block->exec.constants = calloc(n_constants, sizeof(*block->exec.constants));
	block->constants = calloc(n_constants, sizeof(*block->constants));
	draft->own = block;
	return block->exec.constants && block->constants ? 0 : error_origin(-ENOMEM);
}

/* Drafts */

/* Note each block once: a block bears the number of the last draft that noted it. */
static void draft_share(struct draft *draft, struct resident_block *block)
{
	uint64_t number = draft->residence->device->residency->n_drafts;

	if (block->draft_number == number)
		return;
	block->draft_number = number;
	draft->sharing[draft->n_sharing++] = block;
}

static void block_add(struct resident_block *block, const struct plan_constant *wanted)
{
	uint32_t i = block->exec.n_constants++;

	block->exec.constants[i] = (struct exec_constant){
		.arena = wanted->arena,
		.offset = wanted->offset,
		.bytes = wanted->bytes,
	};
	block->constants[i] = (struct resident_constant){
		.block = block,
		.dev = wanted->arena->dev,
		.ino = wanted->arena->ino,
		.offset = wanted->offset,
		.bytes = wanted->bytes,
	};
}

int draft_init(struct draft *draft, struct residence *residence, enum exec_tier tier)
{
	const struct plan *plan = residence->plan->memory->plan;
	struct residency_device *device = residence->device;
	uint32_t n = plan->n_constants;
	uint64_t owner;
	int r;

	*draft = (struct draft){.residence = residence, .tier = tier};
	device->residency->n_drafts++;
	if (n == 0)
		return 0;
	owner = plan->constants[0].arena->owner;
	draft->sharing = calloc(n, sizeof(*draft->sharing));
	draft->blocks = calloc(n, sizeof(*draft->blocks));
	draft->offsets = calloc(n, sizeof(*draft->offsets));
	if (!draft->sharing || !draft->blocks || !draft->offsets) {
		draft_deinit(draft);
		return error_origin(-ENOMEM);
	}

	for (uint32_t i = 0; i < n; i++) {
		const struct resident_constant *found = resident_index_find(
			&device->index_of_constants, owner, tier, &plan->constants[i]);

		if (found) {
			draft->blocks[i] = &found->block->exec;
			draft->offsets[i] = found->block_offset;
			draft->must_wait |= !found->block->is_loaded;
			draft_share(draft, found->block);
			continue;
		}
		r = draft->own ? 0 : block_new(draft, n - i, owner);
		if (r) {
			draft_deinit(draft);
			return error_fold(r);
		}
		block_add(draft->own, &plan->constants[i]);
	}
	if (!draft->own)
		return 0;

	r = exec_block_layout(&draft->own->exec, &device->executor->info);
	if (r) {
		draft_deinit(draft);
		return error_fold(r);
	}
	for (uint32_t i = 0, k = 0; i < n; i++) {
		if (draft->blocks[i])
			continue;
		draft->own->constants[k].block_offset = draft->own->exec.constants[k].block_offset;
		draft->blocks[i] = &draft->own->exec;
		draft->offsets[i] = draft->own->exec.constants[k].block_offset;
		k++;
	}
	draft_share(draft, draft->own);
	draft->block_bytes = draft->own->exec.bytes;
	return 0;
}

void draft_deinit(struct draft *draft)
{
	draft->own = block_free(draft->own);
	free(draft->sharing);
	free(draft->blocks);
	free(draft->offsets);
	draft->sharing = NULL;
	draft->blocks = NULL;
	draft->offsets = NULL;
}

static const struct exec_footprint *footprint_of(const struct residence *residence)
{
	return &residence->plan->memory->plan->footprint[residence->device->index];
}

uint64_t draft_device_bytes(const struct draft *draft, uint32_t n_slots)
{
	uint64_t bytes = exec_footprint_device_bytes(
		footprint_of(draft->residence), &draft->residence->device->executor->info, n_slots);

	return checked_add(bytes, draft->block_bytes, &bytes) ? bytes : UINT64_MAX;
}

/* Charging */

/* Charge @bytes of the device, and of host memory too in GTT. */
static int charge_memory(struct residence *residence, enum exec_tier tier, uint64_t bytes,
			 uint64_t n_mappings, struct memory_charge *ret)
{
	struct account *account = residence->plan->tenant->account;
	unsigned int index = residence->device->index;

	if (account_charge(account, &ret->device,
			   tier == EXEC_TIER_VRAM ? account_vram(index) : account_gtt(index),
			   bytes))
		return RESIDENCE_E_QUOTA;
	if ((tier == EXEC_TIER_GTT &&
	     account_charge(account, &ret->host, ACCOUNT_HOST_BYTES, bytes)) ||
	    account_charge(account, &ret->mappings, ACCOUNT_MAPPINGS, n_mappings)) {
		charge_deinit(&ret->device);
		charge_deinit(&ret->host);
		return RESIDENCE_E_QUOTA;
	}
	residence->device->charged_bytes[tier] += bytes;
	return 0;
}

static void uncharge_memory(struct residency_device *device, enum exec_tier tier,
			    struct memory_charge *charge)
{
	assert(device->charged_bytes[tier] >= charge->device.amount);
	device->charged_bytes[tier] -= charge->device.amount;
	charge_deinit(&charge->device);
	charge_deinit(&charge->host);
	charge_deinit(&charge->mappings);
}

static int residence_charge(struct residence *residence, struct resident_block *own,
			    uint64_t work_bytes, uint64_t host_bytes)
{
	struct residency_device *device = residence->device;
	const struct executor_info *info = &device->executor->info;
	const uint64_t n_mappings =
		exec_footprint_mappings(footprint_of(residence), info, residence->n_slots);
	enum exec_tier tier = residence->tier;

	if (account_charge(residence->plan->tenant->account, &residence->host_charge,
			   ACCOUNT_HOST_BYTES, host_bytes))
		return RESIDENCE_E_QUOTA;
	if (charge_memory(residence, tier, work_bytes, n_mappings, &residence->work_charge)) {
		charge_deinit(&residence->host_charge);
		return RESIDENCE_E_QUOTA;
	}
	if (own && charge_memory(residence, tier, own->exec.bytes, info->allocation_mappings,
				 &own->charge)) {
		uncharge_memory(device, tier, &residence->work_charge);
		charge_deinit(&residence->host_charge);
		return RESIDENCE_E_QUOTA;
	}
	return 0;
}

/* Submit a job to the setup thread, in the turn of the plan's tenant. */
static void residence_submit(struct residence *residence, enum offload_cause cause,
			     void (*run)(struct offload_job *job),
			     void (*done)(struct offload_job *job))
{
	const struct residency *residency = residence->device->residency;
	struct tenant *tenant = residence->plan->tenant;

	residence->device->n_jobs++;
	/* The result of a job that is cancelled before it runs. */
	residence->job_result = EXECUTOR_E_MORE;
	residence->job = (struct offload_job){
		.run = run,
		.done = done,
		.owner = &tenant->setup,
		.weight = tenant->weight,
		.tenant = tenant->number,
		.cause = cause,
		/*
		 * Other plans wait for the memory, so an unload precedes the tenant's other jobs.
		 */
		.goes_first = cause == OFFLOAD_UNLOAD,
	};
	offload_submit(residency->options.offload, &residence->job);
}

/* Loading */

static struct residence *residence_of_job(struct offload_job *job)
{
	return container_of(job, struct residence, job);
}

static void load_part(struct offload_job *job)
{
	struct residence *residence = residence_of_job(job);
	struct executor *executor = residence->device->executor;
	struct resident_block *own = residence->own;
	const struct exec_load load = {
		.tier = residence->tier,
		.n_slots = residence->n_slots,
		.blocks = residence->blocks,
		.offsets = residence->offsets,
	};

	if (own && !residence->is_own_filled) {
		residence->job_result = executor->ops->block_load(executor, &own->exec);
		job->has_more = residence->job_result == EXECUTOR_E_MORE;
		if (residence->job_result)
			return;
		residence->is_own_filled = true;
	}
	residence->job_result =
		executor->ops->plan_load(executor, residence->plan->memory->plan, &load);
	job->has_more = residence->job_result == EXECUTOR_E_MORE;
}

static void load_run(struct offload_job *job)
{
	const uint64_t begin_ns = clock_now_ns();

	load_part(job);
	residence_of_job(job)->load_ns += clock_now_ns() - begin_ns;
}

/* Return the bytes of a block that one eviction would free: 0 while several plans share it. */
static uint64_t block_evictable(const struct resident_block *block)
{
	return block->n_there == 1 && block->n_in == 1 ? block->exec.bytes : 0;
}

/*
 * Return the bytes of a block that all sharers are leaving: it is freed when they have left, in any
 * order.
 */
static uint64_t block_leaving(const struct resident_block *block)
{
	return block->n_there == 0 && block->n_sharers > 0 ? block->exec.bytes : 0;
}

static void count_evictable(struct residence *residence, uint64_t more_bytes)
{
	residence->plan->tenant->memory->evictable[residence->device->index] += more_bytes;
	residence->device->evictable_bytes += more_bytes;
}

static void count_leaving(struct residence *residence, uint64_t more_bytes)
{
	residence->plan->tenant->memory->leaving[residence->device->index] += more_bytes;
	residence->device->leaving_bytes += more_bytes;
}

/* Changes of a block's sharer counts. */
struct sharer_counts {
	int sharers, there, in;
};

static void block_count(struct residence *residence, struct resident_block *block,
			struct sharer_counts more)
{
	uint64_t evictable = block_evictable(block), leaving = block_leaving(block);

	block->n_sharers += (uint32_t)more.sharers;
	block->n_there += (uint32_t)more.there;
	block->n_in += (uint32_t)more.in;
	if (block->exec.tier != EXEC_TIER_VRAM)
		return;
	count_evictable(residence, block_evictable(block) - evictable);
	count_leaving(residence, block_leaving(block) - leaving);
}

static void blocks_count(struct residence *residence, struct sharer_counts more)
{
	for (uint32_t i = 0; i < residence->n_sharing; i++)
		block_count(residence, residence->sharing[i], more);
}

/* Count a residence that is IN from now on, or begins to leave. */
static void residence_count(struct residence *residence, bool is_in)
{
	uint64_t bytes = residence->work_charge.device.amount;

	if (residence->tier == EXEC_TIER_VRAM)
		count_evictable(residence, is_in ? bytes : -bytes);
	blocks_count(residence, is_in ? (struct sharer_counts){.in = 1}
				      : (struct sharer_counts){.there = -1, .in = -1});
	if (is_in)
		residence_hold(residence);
	else
		residence_release(residence);
}

/*
 * Count a load that is given up, although the device has not answered yet, or no longer. Other
 * requests see from leaving_bytes how much room there will be.
 */
static void load_count(struct residence *residence, bool is_given_up)
{
	const uint64_t bytes = residence->tier == EXEC_TIER_VRAM && is_given_up
				       ? residence->work_charge.device.amount
				       : 0;

	count_leaving(residence, bytes - residence->leaving_bytes);
	residence->leaving_bytes = bytes;
	blocks_count(residence, (struct sharer_counts){.there = is_given_up ? -1 : 1});
}

/*
 * Leave some blocks, and refund those without other sharers. A plan may share as many blocks as it
 * has constants, so this may take several turns.
 * Return: true if no block is left.
 */
static bool residence_leave_blocks(struct residence *residence)
{
	for (uint32_t n = 0; residence->n_sharing > 0; n++) {
		struct resident_block *block;

		if (n == RESIDENCY_SLICE)
			return false;
		block = residence->sharing[--residence->n_sharing];
		block_count(residence, block, (struct sharer_counts){.sharers = -1});
		if (block->n_sharers > 0)
			continue;
		uncharge_memory(residence->device, block->exec.tier, &block->charge);
		block_free(block);
	}
	return true;
}

/* Refund and free everything else that the reactor holds for the residence. */
static void residence_clear(struct residence *residence)
{
	struct residency_device *device = residence->device;

	uncharge_memory(device, residence->tier, &residence->work_charge);
	charge_deinit(&residence->host_charge);
	count_leaving(residence, -residence->leaving_bytes);
	residence->leaving_bytes = 0;
	free(residence->sharing);
	free(residence->blocks);
	free(residence->offsets);
	residence->own = NULL;
	residence->sharing = NULL;
	residence->blocks = NULL;
	residence->offsets = NULL;
	residence->state = RESIDENCE_OUT;
	residence->must_leave = false;
	if (residence->is_moving) {
		residence->is_moving = false;
		residence->must_return = true;
		list_append(&residence->plan->tenant->memory->on[device->index].returning,
			    &residence->returning);
		device->n_moving--;
	}
	if (device->evict_next == &residence->link)
		device->evict_next = residence->link.next;
	list_remove(&residence->link);
	residence_show(residence);
}

/* Unloading */

/*
 * Free a part of the working memory; once that is freed, a part of a block, or several small
 * blocks.
 */
static void unload_run(struct offload_job *job)
{
	struct residence *residence = residence_of_job(job);
	struct executor *executor = residence->device->executor;
	struct plan *plan = residence->plan->memory->plan;
	uint64_t done_bytes = 0;

	job->has_more = true;
	if (!residence->is_work_freed) {
		if (executor->ops->plan_unload_some &&
		    executor->ops->plan_unload_some(executor, plan) == EXECUTOR_E_MORE)
			return;
		executor->ops->plan_unload(executor, plan);
		residence->is_work_freed = true;
		job->has_more = residence->n_freeing > 0;
		return;
	}
	for (; residence->n_freeing > 0; residence->n_freeing--) {
		struct exec_block *block = &residence->sharing[residence->n_freeing - 1]->exec;

		if (!block->memory)
			continue;
		if (done_bytes >= UNLOAD_CALL_BYTES ||
		    (executor->ops->block_shrink &&
		     executor->ops->block_shrink(executor, block) == EXECUTOR_E_MORE))
			return;
		executor->ops->block_unload(executor, block);
		done_bytes += UNLOAD_BLOCK_BYTES + block->bytes;
	}
	job->has_more = false;
}

static void unload_done(struct offload_job *job)
{
	struct residence *residence = residence_of_job(job);
	struct residency_device *device = residence->device;
	struct residency_plan *plan = residence->plan;

	/* The setup thread has nothing left to do, and returns the job for a later turn. */
	if (!residence_leave_blocks(residence)) {
		offload_submit(device->residency->options.offload, job);
		return;
	}
	device->n_jobs--;
	residence_clear(residence);
	if (residence->load_result)
		device->residency->load_failed(residence, residence->load_result);
	/* The plan was evicted during its first load, so the wait for that load is over. */
	if (residence->state == RESIDENCE_OUT)
		residency_tell_added(plan);
	residency_tell_gone(residence);
	residency_leases_serve_later(device);
	residency_device_settle(device);
	if (!residency_plan_settle(plan))
		residency_review_in(device->residency, 0);
}

/* Unload a plan, and each block in which no other plan stays. */
static void residence_unload(struct residence *residence)
{
	struct residency_device *device = residence->device;

	residence->state = RESIDENCE_UNLOADING;
	residence->own = NULL;
	residence->n_freeing = 0;
	residence->is_work_freed = false;
	for (uint32_t i = 0; i < residence->n_sharing; i++) {
		struct resident_block *block = residence->sharing[i];

		if (--block->n_staying > 0)
			continue;
		resident_index_remove(&device->index_of_constants, block);
		residence->sharing[i] = residence->sharing[residence->n_freeing];
		residence->sharing[residence->n_freeing++] = block;
	}
	residence_submit(residence, OFFLOAD_UNLOAD, unload_run, unload_done);
}

void residence_drained(struct residence *residence)
{
	struct plan_memory *memory = residence->plan->memory;
	unsigned int index = residence->device->index;

	if (residence->state != RESIDENCE_DRAINING || memory->n_on_device[index] > 0)
		return;
	memory->leaving &= ~(1u << index);
	residence_unload(residence);
}

/* Completed and new loads */

/*
 * Return a time as far as it counts for a mean: one that is twenty times as long, because a thread
 * had no processor, would keep tasks from waiting for half a minute. If times stay long, the mean
 * follows within a few.
 */
static double at_most_twice(double ns, double mean_ns)
{
	return mean_ns > 0 && ns > 2 * mean_ns ? 2 * mean_ns : ns;
}

/*
 * Learn how long plans take to come: alone, from the time that loading took, and this one when
 * tasks wait, from the whole time.
 */
static void learn_bring(struct residence *residence)
{
	static const double part = 0.25;
	const uint64_t now_ns = clock_now_ns(),
		       own = residence->own ? residence->own->exec.bytes : 0;
	const double bytes = (double)(residence->work_charge.device.amount + own);
	const double whole_ns = (double)(now_ns - residence->sought_ns);
	struct residency_device *device = residence->device;
	double link_ns, mean_ns;

	if (residence->tier != EXEC_TIER_VRAM)
		return;
	mean_ns = residence->bring_ns > 0 ? residence->bring_ns : residence_link_ns(residence);
	link_ns = device->load_bytes > 0 ? device->load_ns / device->load_bytes * bytes : 0;
	device->load_ns +=
		at_most_twice((double)residence->load_ns, link_ns) - part * device->load_ns;
	device->load_bytes += bytes - part * device->load_bytes;
	if (residence->plan->n_held[RESIDENCY_STREAM] == 0)
		return;
	if (!(mean_ns > 0))
		mean_ns = whole_ns;
	residence->bring_ns = mean_ns + part * (at_most_twice(whole_ns, mean_ns) - mean_ns);
	residence->brought_ns = now_ns;
}

static void load_done(struct offload_job *job)
{
	struct residence *residence = residence_of_job(job);
	struct residency_device *device = residence->device;
	struct residency *residency = device->residency;
	struct residency_plan *plan = residence->plan;
	int r = residence->job_result;

	/* A cancelled load was not finished, or was refused before it saw the cancellation. */
	if (r == EXECUTOR_E_MORE || (r == EXECUTOR_E_NO_MEMORY && residence->must_leave))
		r = EXECUTOR_E_CANCELLED;
	plan->tenant->memory->n_loads[device->index]--;
	device->n_jobs--;
	residence->load_result = r;
	/* The load may have succeeded before it could be stopped: then the plan is evicted. */
	if (residence->must_leave != (r != 0))
		load_count(residence, r != 0);
	if (r) {
		/* The residence may be the last that stays in its blocks. */
		residence_unload(residence);
	} else {
		learn_bring(residence);
		if (residence->own)
			residence->own->is_loaded = true;
		residence->own = NULL;
		residence->is_retry = false;
		residence->n_lost = 0;
		residence->state = RESIDENCE_IN;
		residence_count(residence, true);
		residence->came_ns = clock_now_ns();
		if (residence->tier == EXEC_TIER_VRAM)
			residence->is_pressed = false;
		if (!residence->must_return && residence->left_ns) {
			residence->n_returns++;
			plan->memory->counts->n_returns++;
		}
		residence->must_return = false;
		list_remove(&residence->returning);
		residence_show(residence);
		if (residence->must_leave || device->state != RESIDENCY_DEVICE_UP)
			residence_evict(residence);
		else
			residency_tell(residence, 0);
	}
	residency_device_settle(device);
	if (!residency_plan_settle(plan))
		residency_review_in(residency, 0);
}

int residence_begin(struct draft *draft, uint32_t n_slots)
{
	struct residence *residence = draft->residence;
	struct residency_device *device = residence->device;
	const struct executor_info *info = &device->executor->info;
	const struct exec_footprint *footprint = footprint_of(residence);

	residence->tier = draft->tier;
	residence->n_slots = n_slots;
	if (residence_charge(residence, draft->own,
			     exec_footprint_device_bytes(footprint, info, n_slots),
			     exec_footprint_host_bytes(footprint, info, n_slots)))
		return RESIDENCE_E_QUOTA;

	residence->own = draft->own;
	residence->is_own_filled = false;
	residence->sharing = draft->sharing;
	residence->n_sharing = draft->n_sharing;
	residence->blocks = draft->blocks;
	residence->offsets = draft->offsets;
	blocks_count(residence, (struct sharer_counts){.sharers = 1, .there = 1});
	for (uint32_t i = 0; i < residence->n_sharing; i++)
		residence->sharing[i]->n_staying++;
	if (residence->own)
		resident_index_add(&device->index_of_constants, residence->own);
	*draft = (struct draft){.residence = residence};

	if (residence->state != RESIDENCE_AWAITED)
		residence->sought_ns = clock_now_ns();
	residence_forget_awaited(residence);
	residence->state = RESIDENCE_LOADING;
	residence->load_ns = 0;
	residence->must_leave = false;
	list_append(&device->residences, &residence->link);
	residence->plan->tenant->memory->n_loads[device->index]++;
	residence_submit(residence, OFFLOAD_LOAD, load_run, load_done);
	return 0;
}

/* Evictions */

static void note_eviction(struct residence *residence)
{
	uint64_t now_ns = clock_now_ns();

	residence->n_evictions++;
	residence->plan->memory->counts->n_evictions++;
	++*residence->plan->memory->n_evictions;
	residence->left_ns = now_ns;
	/* The LRU policy, for comparison, has no hold-off. */
	if (now_ns - residence->came_ns >= MIN_STAY_NS ||
	    residence->device->residency->options.policy == RESIDENCY_LRU)
		residence->holdoff_ns = 0;
	else if (residence->holdoff_ns == 0)
		residence->holdoff_ns = RESIDENCY_FIRST_HOLDOFF_NS;
	else if (residence->holdoff_ns < residency_max_holdoff_ns)
		residence->holdoff_ns *= 2;
}

void residence_stay_out(struct residence *residence)
{
	if (!residence->must_return)
		return;
	residence->must_return = false;
	list_remove(&residence->returning);
	note_eviction(residence);
}

static void residence_leave(struct residence *residence)
{
	struct residency_device *device = residence->device;

	residence->state = RESIDENCE_DRAINING;
	residence_count(residence, false);
	residence->plan->memory->leaving |= 1u << device->index;
	/* Other requests see from leaving_bytes how much room there will be. */
	if (residence->tier == EXEC_TIER_VRAM)
		residence->leaving_bytes = residence->work_charge.device.amount;
	count_leaving(residence, residence->leaving_bytes);
	residence_show(residence);
	residence_drained(residence);
}

void residence_move(struct residence *residence)
{
	residence->is_moving = true;
	residence->device->n_moving++;
	residence_leave(residence);
}

void residence_evict(struct residence *residence)
{
	switch (residence->state) {
	case RESIDENCE_AWAITED:
		residence_forget_awaited(residence);
		residency_tell_added(residence->plan);
		break;
	case RESIDENCE_LOADING:
		if (!residence->must_leave)
			load_count(residence, true);
		residence->must_leave = true;
		if (residence->own)
			atomic_store_explicit(&residence->own->exec.is_cancelled, true,
					      memory_order_relaxed);
		offload_cancel(residence->device->residency->options.offload, &residence->job);
		break;
	case RESIDENCE_IN:
		if (!residence->plan->removed)
			note_eviction(residence);
		residence_leave(residence);
		break;
	case RESIDENCE_UNLOADING:
		/* Otherwise a load that was refused is tried again once it is undone. */
		if (residence->load_result == EXECUTOR_E_NO_MEMORY)
			residence->load_result = EXECUTOR_E_CANCELLED;
		break;
	default:
		break;
	}
}

void residence_forget_awaited(struct residence *residence)
{
	if (residence->state != RESIDENCE_AWAITED)
		return;
	if (residence->device->bring_next == &residence->link)
		residence->device->bring_next = residence->link.next;
	residence->device->awaited_bytes -= residence->awaited_bytes;
	residence->plan->tenant->memory->n_awaited[residence->device->index]--;
	residence->plan->tenant->memory->awaited[residence->device->index] -=
		residence->awaited_bytes;
	residence->awaited_bytes = 0;
	residence->state = RESIDENCE_OUT;
	list_remove(&residence->link);
}

void residence_evict_by_hand(struct residence *residence)
{
	const bool is_coming = residence->state == RESIDENCE_AWAITED ||
			       residence->state == RESIDENCE_LOADING ||
			       (residence->state == RESIDENCE_UNLOADING && residence->load_result);

	residence_evict(residence);
	/* There may be room, so earlier waiters get -EINTR, not -ENOMEM. */
	if (is_coming)
		residency_tell_interrupted(residence);
}
