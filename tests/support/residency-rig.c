/* SPDX-License-Identifier: MIT */
/* A test bench for residency: see residency-rig.h. */
#include "support/residency-rig.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "loop/loop.h"
#include "loop/offload.h"
#include "memory/residency-private.h"
#include "util/clock.h"

#define CHECK(condition)                                                                \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                        \
		}                                                                       \
	} while (0)

struct rig_memory {
	struct plan_memory memory;
	struct list_node link; /* in residency_rig.plans */
};

/* The device */

static struct counting *counting_of(struct executor *executor)
{
	return container_of(executor, struct counting, executor);
}

static void wait_while_held(struct counting *device)
{
	while (atomic_load(&device->is_held)) {
		atomic_store(&device->has_held, true);
		usleep(100);
	}
}

static int take(struct counting *device, enum exec_tier tier, uint64_t bytes)
{
	if (device->n_refused > 0) {
		device->n_refused--;
		return EXECUTOR_E_NO_MEMORY;
	}
	device->allocated[tier] += bytes;
	if (tier == EXEC_TIER_VRAM && device->allocated[tier] > device->most_allocated)
		device->most_allocated = device->allocated[tier];
	return 0;
}

static int count_block_load(struct executor *executor, struct exec_block *block)
{
	struct counting *device = counting_of(executor);
	int r = 0;

	wait_while_held(device);
	if (device->lost_part && block->loaded_bytes == device->lost_part) {
		device->lost_part = 0;
		atomic_store(&device->is_lost, true);
	}
	if (block->bytes / RIG_PAGE == atomic_load(&device->fatal_pages))
		atomic_store(&device->is_lost, true);
	if (atomic_load(&device->is_lost))
		r = -EIO;
	else if (atomic_load(&block->is_cancelled))
		r = EXECUTOR_E_CANCELLED;
	else if (!block->memory)
		r = take(device, block->tier, block->bytes);
	if (r)
		return r;
	block->memory = device;
	/* The engine must not load a complete block again. */
	CHECK(block->loaded_bytes < device->n_parts);
	if (++block->loaded_bytes < device->n_parts)
		return EXECUTOR_E_MORE;
	device->n_block_loads++;
	return 0;
}

static int count_block_shrink(struct executor *executor, struct exec_block *block)
{
	CHECK(block->memory == counting_of(executor));
	counting_of(executor)->n_shrink_slices++;
	block->loaded_bytes -= block->loaded_bytes > 0;
	return block->loaded_bytes > 0 ? EXECUTOR_E_MORE : 0;
}

static void count_block_unload(struct executor *executor, struct exec_block *block)
{
	struct counting *device = counting_of(executor);

	CHECK(block->memory == device && block->loaded_bytes == 0);
	device->allocated[block->tier] -= block->bytes;
	block->memory = NULL;
}

/* Memory that plan_load() took; plan->exec points to it. */
struct counted {
	enum exec_tier tier;
	uint64_t bytes;
};

static int count_plan_load(struct executor *executor, struct plan *plan,
			   const struct exec_load *load)
{
	struct counting *device = counting_of(executor);
	struct counted *counted;
	uint64_t bytes;
	int r;

	wait_while_held(device);
	CHECK(!plan->exec[executor->index]);
	for (uint16_t i = 0; i < plan->n_constants; i++) {
		const struct exec_block *block = load->blocks[i];

		CHECK(block->memory == device && block->tier == load->tier);
		CHECK(load->offsets[i] + plan->constants[i].bytes <= block->bytes);
	}
	if (atomic_load(&device->is_lost))
		return -EIO;
	if (++device->n_load_calls < device->n_load_parts)
		return EXECUTOR_E_MORE;
	device->n_load_calls = 0;
	bytes = exec_footprint_device_bytes(&plan->footprint[executor->index], &executor->info,
					    load->n_slots);
	r = take(device, load->tier, bytes);
	if (r)
		return r;
	counted = calloc(1, sizeof(*counted));
	CHECK(counted);
	*counted = (struct counted){load->tier, bytes};
	plan->exec[executor->index] = counted;
	device->n_plan_loads++;
	return 0;
}

static int count_plan_unload_some(struct executor *executor, struct plan *plan)
{
	struct counting *device = counting_of(executor);

	device->n_unload_slices++;
	if (++device->n_unload_calls < device->n_unload_parts)
		return EXECUTOR_E_MORE;
	device->n_unload_calls = 0;
	return 0;
}

static void count_plan_unload(struct executor *executor, struct plan *plan)
{
	struct counted *counted = plan->exec[executor->index];

	if (!counted)
		return;
	counting_of(executor)->allocated[counted->tier] -= counted->bytes;
	free(counted);
	plan->exec[executor->index] = NULL;
}

static int count_reopen(struct executor *executor)
{
	struct counting *device = counting_of(executor);

	CHECK(device->allocated[EXEC_TIER_VRAM] == 0 && device->allocated[EXEC_TIER_GTT] == 0);
	if (device->n_failed_reopens > 0) {
		device->n_failed_reopens--;
		return -EIO;
	}
	atomic_store(&device->is_lost, false);
	return 0;
}

static void count_lose(struct executor *executor, const char *why)
{
	atomic_store(&counting_of(executor)->is_lost, true);
}

static bool count_is_lost(struct executor *executor)
{
	return atomic_load(&counting_of(executor)->is_lost);
}

static uint64_t count_memory_used(struct executor *executor, enum exec_tier tier)
{
	return counting_of(executor)->allocated[tier];
}

/* The rig */

void residency_rig_init(struct residency_rig *rig, uint32_t n_devices, uint64_t vram_bytes,
			uint64_t gtt_bytes, enum residency_policy policy)
{
	struct account_limits limits;

	*rig = (struct residency_rig){.n_devices = n_devices + 1};
	list_init(&rig->plans);
	CHECK(rig->n_devices <= RIG_MAX_DEVICES);
	clock_init();
	CHECK(loop_new(&rig->loop) == 0);
	CHECK(offload_new(rig->loop, &rig->offload) == 0);
	CHECK(account_book_new(&rig->book) == 0);
	rig->executors[0] = &rig->cpu;
	for (uint32_t i = 1; i < rig->n_devices; i++) {
		struct counting *device = &rig->devices[i];

		device->ops = (struct executor_ops){
			.block_load = count_block_load,
			.block_shrink = count_block_shrink,
			.block_unload = count_block_unload,
			.plan_load = count_plan_load,
			.plan_unload_some = count_plan_unload_some,
			.plan_unload = count_plan_unload,
			.reopen = count_reopen,
			.lose = count_lose,
			.is_lost = count_is_lost,
			.memory_used = count_memory_used,
		};
		device->n_parts = 1;
		device->executor = (struct executor){
			.ops = &device->ops,
			.index = (uint8_t)i,
			.info = {.kind = EXECUTOR_GPU,
				 .name = "counting",
				 .memory_bytes = vram_bytes,
				 .memory_page_bytes = RIG_PAGE,
				 .memory_align_bytes = RIG_ALIGN,
				 .gtt_bytes = gtt_bytes},
		};
		rig->executors[i] = &device->executor;
	}
	for (int slot = 0; slot < ACCOUNT_SLOT_COUNT; slot++)
		limits.max[slot] = UINT64_MAX;
	for (unsigned int i = 0; i < RIG_MAX_TENANTS; i++) {
		char name[8];

		snprintf(name, sizeof(name), "t%u", i);
		CHECK(account_new(rig->book, name, &limits, &rig->tenants[i].account) == 0);
		list_init(&rig->tenants[i].link);
		fair_flow_init(&rig->tenants[i].setup);
		rig->tenants[i].number = i + 1;
		rig->tenants[i].n_refs = 1;
		rig->tenants[i].is_named = true;
		rig_share(rig, i, vram_bytes, vram_bytes, 0);
	}
	CHECK(residency_new(
		      &(struct residency_options){
			      .policy = policy,
			      .loop = rig->loop,
			      .offload = rig->offload,
			      .executors = rig->executors,
			      .n_executors = rig->n_devices,
		      },
		      &rig->residency) == 0);
	for (uint32_t i = 1; i < rig->n_devices; i++)
		residency_set_usable(rig->residency, i, vram_bytes, gtt_bytes);
}

static void on_removed(struct plan_memory *memory)
{
	free(memory->plan->constants);
	free(memory->plan);
	memory->plan = NULL;
}

static void plan_free_removed(struct residency_rig *rig, struct plan_memory *memory)
{
	struct rig_memory *rig_memory = container_of(memory, struct rig_memory, memory);

	while (memory->plan)
		rig_turn(rig);
	list_remove(&rig_memory->link);
	free(rig_memory);
}

void residency_rig_begin(struct residency_rig *rig)
{
	residency_rig_init(rig, 1, 100 << 20, 0, RESIDENCY_WANTED);
}

void residency_rig_deinit(struct residency_rig *rig)
{
	rig_check(rig);
	list_for_each (node, &rig->plans)
		residency_remove(rig->residency,
				 &container_of(node, struct rig_memory, link)->memory, on_removed);
	list_for_each_safe (node, &rig->plans)
		plan_free_removed(rig, &container_of(node, struct rig_memory, link)->memory);
	rig_settle(rig);
	for (uint32_t i = 1; i < rig->n_devices; i++)
		for (int tier = 0; tier < EXEC_TIER_COUNT; tier++)
			CHECK(rig->devices[i].allocated[tier] == 0);
	residency_free(rig->residency);
	for (unsigned int i = 0; i < RIG_MAX_TENANTS; i++) {
		CHECK(rig->tenants[i].n_refs == 1);
		account_unref(rig->tenants[i].account);
		free(rig->tenants[i].memory);
		free(rig->tenants[i].leases);
	}
	account_book_free(rig->book);
	offload_free(rig->offload);
	loop_free(rig->loop);
}

static void tell_reserves(struct residency_rig *rig)
{
	for (uint32_t i = 1; i < rig->n_devices; i++) {
		uint64_t bytes = 0;

		for (unsigned int tenant = 0; tenant < RIG_MAX_TENANTS; tenant++)
			bytes += rig->tenants[tenant].shares[i].reserve;
		residency_set_reserved(rig->residency, i, bytes);
	}
}

void rig_share(struct residency_rig *rig, unsigned int tenant, uint64_t max, uint64_t high,
	       uint64_t reserve)
{
	struct account_limits limits;

	for (int slot = 0; slot < ACCOUNT_SLOT_COUNT; slot++)
		limits.max[slot] = UINT64_MAX;
	for (uint32_t i = 1; i < rig->n_devices; i++) {
		rig->tenants[tenant].shares[i] = (struct tenant_share){max, reserve, high};
		limits.max[account_vram(i)] = max;
	}
	account_set_limits(rig->tenants[tenant].account, &limits);
	if (rig->residency)
		tell_reserves(rig);
}

/* Plans */

/* One arena per tenant stands for all of the tenant's memory: offsets distinguish its constants. */
static struct exec_arena arenas[RIG_MAX_TENANTS];

struct plan_memory *rig_plan(struct residency_rig *rig, unsigned int tenant, uint64_t bytes,
			     const uint32_t *constants)
{
	struct rig_memory *rig_memory = calloc(1, sizeof(*rig_memory));
	struct plan *plan = calloc(1, sizeof(*plan));
	struct plan_memory *memory;

	CHECK(rig_memory && plan);
	memory = &rig_memory->memory;
	list_append(&rig->plans, &rig_memory->link);
	/* All arenas have the same file and user; they differ only in the tenant. */
	arenas[tenant] = (struct exec_arena){
		.owner = (uint64_t)(tenant + 1) << 32 | 1000, .dev = 1, .ino = 1};
	while (constants[plan->n_constants])
		plan->n_constants++;
	plan->constants = calloc(plan->n_constants + 1u, sizeof(*plan->constants));
	CHECK(plan->constants);
	for (uint16_t i = 0; i < plan->n_constants; i++)
		plan->constants[i] = (struct plan_constant){
			.arena = &arenas[tenant],
			.offset = (uint64_t)constants[i] << 32,
			.bytes = bytes,
		};
	for (uint32_t i = 1; i < rig->n_devices; i++) {
		plan->device_state[i] = PLAN_DEVICE_EVICTED;
		plan->footprint[i] = (struct exec_footprint){.max_slots = 1};
		plan->block_bytes[i] = exec_constants_bytes(plan, &rig->executors[i]->info);
	}
	snprintf(plan->name, sizeof(plan->name), "p%u", constants[0]);
	memory->plan = plan;
	memory->tenant = &rig->tenants[tenant];
	memory->n_evictions = &rig->n_evictions[tenant];
	return memory;
}

struct plan_memory *rig_plan_of(struct residency_rig *rig, unsigned int tenant, uint64_t bytes)
{
	static uint32_t last = 1000;

	return rig_plan(rig, tenant, bytes, (const uint32_t[]){++last, 0});
}

static void on_added(struct plan_memory *memory)
{
}

void rig_add(struct residency_rig *rig, struct plan_memory *memory)
{
	int r = residency_add(rig->residency, memory, on_added);

	CHECK(r == 0 || r == RESIDENCY_E_SETTLED);
}

struct plan_memory *rig_settled(struct residency_rig *rig, unsigned int tenant, uint64_t bytes)
{
	struct plan_memory *memory = rig_plan_of(rig, tenant, bytes);

	rig_add(rig, memory);
	rig_settle(rig);
	rig_check(rig);
	return memory;
}

void rig_idle(struct residency_rig *rig, struct plan_memory *memory)
{
	memory->n_on_device[RIG_DEVICE] = 0;
	if (memory->leaving)
		residency_plan_idle(rig->residency, memory, RIG_DEVICE);
}

uint64_t rig_used(const struct residency_rig *rig, unsigned int tenant)
{
	return account_used(rig->tenants[tenant].account, account_vram(RIG_DEVICE));
}

void rig_remove(struct residency_rig *rig, struct plan_memory *memory)
{
	residency_remove(rig->residency, memory, on_removed);
	plan_free_removed(rig, memory);
}

bool rig_is_ready(const struct plan_memory *memory)
{
	return memory->plan->device_state[RIG_DEVICE] == PLAN_DEVICE_READY;
}

void rig_want(struct residency_rig *rig, struct plan_memory *memory, uint32_t n)
{
	memory->n_wanted += n;
	memory->wanted_ticks = clock_ticks();
	if (!rig_is_ready(memory)) {
		residency_want(residency_demand(rig->residency), memory);
		residency_turn(rig->residency);
	}
}

void rig_on_done(struct residency_waiter *waiter, int res)
{
	struct rig_wish *wish = container_of(waiter, struct rig_wish, waiter);

	wish->n_done++;
	wish->res = res;
}

void rig_ask(struct residency_rig *rig, struct plan_memory *memory, struct rig_wish *wish,
	     enum residency_wish what)
{
	*wish = (struct rig_wish){.waiter.done = rig_on_done, .res = 1};
	residency_ask(rig->residency, memory, &wish->waiter, what, RBK_DEVICE_NONE);
	CHECK(wish->n_done == 0);
	rig_settle(rig);
}

/* Time */

void rig_turn(struct residency_rig *rig)
{
	CHECK(loop_turn(rig->loop, false) >= 0);
	usleep(50);
}

bool rig_review_is_due(const struct residency_rig *rig)
{
	const struct residency *residency = rig->residency;
	/* A review that is due now is delayed by up to this pause after a review that took long. */
	uint64_t paused_until_ns = residency->reviewed_ns +
				   RESIDENCY_PAUSE * (residency->review_ns + residency->asked_ns);
	uint64_t soon_ns = clock_now_ns() + 5000000;

	if (residency_goes_on(residency))
		return true;
	return residency->timer_ns &&
	       (residency->timer_ns < soon_ns || residency->timer_ns <= paused_until_ns);
}

/* Return the sum of the bytes that evicting each of the tenant's plans alone would release. */
static uint64_t evictable(const struct residency_device *device, const struct tenant *tenant)
{
	uint64_t bytes = 0;

	list_for_each (node, &device->residences) {
		const struct residence *residence = container_of(node, struct residence, link);

		if (residence->state == RESIDENCE_IN && residence->tier == EXEC_TIER_VRAM &&
		    residence->plan->tenant == tenant)
			bytes += residence_bytes(residence);
	}
	return bytes;
}

static bool is_busy(const struct residency_rig *rig)
{
	const struct residency *residency = rig->residency;

	if (rig_review_is_due(rig))
		return true;
	if (!list_is_empty(&residency->asking))
		return true;
	for (uint32_t i = 1; i < rig->n_devices; i++)
		if (residency->devices[i].n_jobs > 0 || residency->devices[i].must_serve)
			return true;
	return false;
}

void rig_settle(struct residency_rig *rig)
{
	do
		rig_turn(rig);
	while (is_busy(rig));
}

void rig_check(const struct residency_rig *rig)
{
	for (uint32_t i = 1; i < rig->n_devices; i++) {
		const struct residency_device *device = &rig->residency->devices[i];
		uint64_t sum = 0, vram_leased = rig->residency->leases.granted_bytes[i];

		for (int tier = 0; tier < EXEC_TIER_COUNT; tier++) {
			uint64_t charged = device->charged_bytes[tier], leased = 0;

			if (tier == EXEC_TIER_VRAM)
				leased = rig->residency->leases.granted_bytes[i];
			CHECK(charged + leased ==
			      account_book_total(rig->book, tier == EXEC_TIER_VRAM
								    ? account_vram(i)
								    : account_gtt(i)));
			if (device->n_jobs == 0)
				CHECK(charged == rig->devices[i].allocated[tier]);
		}
		for (unsigned int t = 0; t < RIG_MAX_TENANTS; t++) {
			const struct tenant *tenant = &rig->tenants[t];
			uint64_t used = account_used(tenant->account, account_vram(i));

			CHECK(used <= tenant->shares[i].max);
			CHECK(memory_of(tenant)->leaving[i] <= used);
			CHECK(memory_of(tenant)->evictable[i] == evictable(device, tenant));
			sum += used;
		}
		CHECK(sum == device->charged_bytes[EXEC_TIER_VRAM] + vram_leased);
	}
}
