/* SPDX-License-Identifier: MIT */
/* Figures of devices */
#include "control/publish-private.h"

#include <stdio.h>

#include "dispatch/dispatch.h"
#include "memory/budget.h"
#include "memory/residency.h"
#include "place/placer.h"
#include "stats/stats.h"
#include "telemetry/telemetry.h"
#include "tenant/tenant.h"
#include "util/clock.h"

static uint64_t or_absent(struct reading reading)
{
	return reading.is_valid ? reading.value : RBK_STATS_ABSENT;
}

static void describe_sensors(const struct publish *publish, uint32_t index,
			     struct rbk_stats_device *ret)
{
	struct device_reading reading = {.state = TELEMETRY_PRESENT};
	struct memory_reading pool;

	/* Readings that failed are absent. */
	telemetry_read(publish->options.telemetry, index, &reading);
	pool = telemetry_pool(&reading);
	if (pool.total.is_valid)
		ret->memory_total = pool.total.value;
	ret->memory_used = or_absent(pool.used);
	ret->memory_outside = RBK_STATS_ABSENT;
	if (pool.used.is_valid && pool.own.is_valid) {
		uint64_t leased = index == RBK_DEVICE_CPU
					  ? 0
					  : budget_leased_bytes(publish->options.budget, index);
		uint64_t ours = pool.own.value + leased;

		ret->memory_outside = pool.used.value > ours ? pool.used.value - ours : 0;
	}
	ret->gtt_total = or_absent(reading.gtt.total);
	ret->gtt_used = or_absent(reading.gtt.used);
	ret->load_percent = or_absent(reading.load_percent);
	ret->memory_load_percent = or_absent(reading.memory_load_percent);
	ret->clock_hz = or_absent(reading.gpu_hz);
	ret->memory_clock_hz = or_absent(reading.memory_hz);
	ret->temperature_millicelsius = or_absent(reading.temperature_millicelsius);
	ret->power_microwatts = or_absent(reading.power_microwatts);
	ret->n_driver_evictions = or_absent(reading.n_evictions);
}

/* Describe a profile by its best rates of any family at any size. */
static void describe_profile(const struct place_profile *profile, struct rbk_stats_device *ret)
{
	if (!profile || !profile->is_valid)
		return;
	for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++)
		for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++) {
			const struct place_rate *rate = &profile->rates[i][k];

			if (ret->flops_per_ns < (double)rate->flops_per_ns)
				ret->flops_per_ns = (double)rate->flops_per_ns;
			if (ret->bytes_per_ns < (double)rate->bytes_per_ns)
				ret->bytes_per_ns = (double)rate->bytes_per_ns;
		}
	ret->n_servers = profile->n_servers;
	ret->up_bytes_per_ns = (double)profile->up_bytes_per_ns;
	ret->down_bytes_per_ns = (double)profile->down_bytes_per_ns;
	ret->launch_ns = (double)profile->task_ns;
	ret->active_watts = (double)profile->active_watts;
}

static uint32_t breaker_of(enum place_breaker breaker)
{
	return breaker == PLACE_OPEN        ? RBK_STATS_BREAKER_OPEN
	       : breaker == PLACE_HALF_OPEN ? RBK_STATS_BREAKER_PROBING
					    : RBK_STATS_BREAKER_CLOSED;
}

static void describe_placement(const struct publish *publish, uint32_t index,
			       struct rbk_stats_device *ret)
{
	const struct placer *placer = dispatch_placer(publish->options.dispatch);
	struct place_device_report report;

	describe_profile(placer_profile(placer, (uint8_t)index), ret);
	placer_device_report(placer, (uint8_t)index, publish->updated_ns, &report);
	ret->breaker = breaker_of(report.breaker);
	ret->backlog_ns = report.backlog_ns;
	ret->n_queued = report.n_queued;
	ret->n_released = report.n_released;
	ret->n_opened = report.n_opened;
	ret->n_stalls = dispatch_n_stalls(publish->options.dispatch, (uint8_t)index);
	ret->success_rate = report.success_rate;
	ret->contention = report.contention;
	ret->explored_share = report.explored_share;
}

_Static_assert((int)RBK_STATS_TILE_MATMUL == EXEC_TILE_MATMUL &&
		       (int)RBK_STATS_TILE_CONV == EXEC_TILE_CONV &&
		       (int)RBK_STATS_TILE_MATMUL_F16 == EXEC_TILE_MATMUL_HALF &&
		       (int)RBK_STATS_TILE_OPERATORS == EXEC_TILE_OPS &&
		       (int)RBK_STATS_TILE_CLASSES == EXEC_TILE_CLASSES,
	       "the page's");

static void put_tile(struct rbk_stats_device *ret, enum exec_tile_op op, enum exec_tile_class class,
		     const struct exec_tile *tile)
{
	ret->tiles[op][class] = (struct rbk_stats_tile){tile->rows, tile->cols};
	if (tile->of_matrices)
		ret->flags |= RBK_STATS_DEVICE_TILES_OF_MATRICES << class;
}

static void describe_tiles(struct executor *executor, struct rbk_stats_device *ret)
{
	struct exec_tiles tiles;
	struct exec_tile tile;

	executor_get_tiles(executor, &tiles);
	for (unsigned int op = 0; op < EXEC_TILE_OPS; op++)
		for (unsigned int class = 0; class < EXEC_TILE_CLASSES; class ++)
			if (executor->ops->tile &&
			    executor->ops->tile(executor, op, tiles.of[op][class], &tile))
				put_tile(ret, op, class, &tile);
}

void publish_device(struct publish *publish, uint32_t index, uint64_t elapsed_ns, uint64_t used_ns)
{
	const struct executor_info *info = &publish->options.executors[index]->info;
	const struct account_book *book = tenants_book(publish->options.tenants);
	const struct account *broker = tenants_broker_account(publish->options.tenants);
	struct rbk_stats_device figures = {
		.kind = (uint32_t)info->kind,
		.n_servers = info->n_threads ? info->n_threads : 1,
		.memory_total = info->memory_bytes,
	};

	snprintf(figures.name, sizeof(figures.name), "%s", info->name);
	snprintf(figures.driver, sizeof(figures.driver), "%s", info->driver);
	snprintf(figures.paths, sizeof(figures.paths), "%s", info->paths);
	if (placer_is_drained(dispatch_placer(publish->options.dispatch), (uint8_t)index))
		figures.flags |= RBK_STATS_DEVICE_DRAINED;
	else if (!residency_is_up(publish->options.residency, index))
		figures.flags |= RBK_STATS_DEVICE_LOST;
	if (info->matrices && info->matrices[0])
		figures.flags |= RBK_STATS_DEVICE_MATRICES;
	describe_sensors(publish, index, &figures);
	describe_tiles(publish->options.executors[index], &figures);
	describe_placement(publish, index, &figures);
	if (index == RBK_DEVICE_CPU) {
		figures.memory_budget = RBK_STATS_ABSENT;
		figures.memory_charged = account_book_total(book, ACCOUNT_HOST_BYTES);
	} else {
		figures.memory_budget = budget_usable_bytes(publish->options.budget, index);
		figures.memory_charged = account_book_total(book, account_vram(index)) -
					 account_used(broker, account_vram(index));
	}
	if (elapsed_ns > 0)
		figures.utilization = (double)used_ns / ((double)elapsed_ns * figures.n_servers);
	if (figures.utilization > 1)
		figures.utilization = 1;
	stats_set_device(publish->stats, index, &figures);
}
