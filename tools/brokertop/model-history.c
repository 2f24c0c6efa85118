/* SPDX-License-Identifier: MIT */
/*
 * Model: the last five minutes
 *
 * A history has one value per second of the broker's clock. Tenants that use a GPU's memory or
 * complete tasks have histories of their own, the first MODEL_MAX_HISTORIES of them; the others are
 * the difference from the total.
 */
#include "model-private.h"

#include <math.h>
#include <stdlib.h>

enum { EVICTION_SECONDS = 60 };

static void series_clear(struct series *series)
{
	for (unsigned int i = 0; i < MODEL_SECONDS; i++)
		series->values[i] = NAN;
}

/* --- Tenants --- */

void history_forget(struct model *model, struct model_tenant *tenant)
{
	if (!tenant->history)
		return;
	free(tenant->history);
	tenant->history = NULL;
	model->n_histories--;
}

/* Begin a history. The graphs are without the tenant if there is no memory. */
static void begin_history(struct model *model, struct model_tenant *tenant)
{
	struct model_history *history;

	if (model->n_histories == MODEL_MAX_HISTORIES)
		return;
	history = malloc(sizeof(*history));
	if (!history)
		return;
	for (unsigned int i = 0; i < MODEL_SECONDS; i++)
		history->tasks[i] = history->memory[i] = NAN;
	tenant->history = history;
	model->n_histories++;
}

/* --- Seconds --- */

static void clear_second(struct model *model, uint64_t second)
{
	unsigned int at = (unsigned int)(second % MODEL_SECONDS);

	model->tasks.values[at] = model->latency.values[at] = model->evictions.values[at] = NAN;
	model->memory.values[at] = NAN;
	for (uint32_t i = 0; i < RBK_MAX_DEVICES; i++)
		model->devices[i].load.values[at] = NAN;
	for (uint32_t i = 0; i < model->n_tenants; i++)
		if (model->tenants[i].history)
			model->tenants[i].history->tasks[at] =
				model->tenants[i].history->memory[at] = NAN;
}

void history_clear(struct model *model)
{
	series_clear(&model->tasks);
	series_clear(&model->latency);
	series_clear(&model->evictions);
	series_clear(&model->memory);
	for (uint32_t i = 0; i < RBK_MAX_DEVICES; i++)
		series_clear(&model->devices[i].load);
	for (uint32_t i = 0; i < model->n_tenants; i++)
		history_forget(model, &model->tenants[i]);
	model->newest_second = 0;
}

/* Keep the maximum of several values within a second, so that no peak is lost. */
static void keep_high(struct series *series, uint64_t second, double value)
{
	double *kept = &series->values[second % MODEL_SECONDS];

	if (isfinite(value) && !(value <= *kept))
		*kept = value;
}

static void keep_high_float(float values[MODEL_SECONDS], uint64_t second, double value)
{
	float *kept = &values[second % MODEL_SECONDS];

	if (!(value <= (double)*kept))
		*kept = (float)value;
}

static void sample_tenant(struct model *model, struct model_tenant *tenant, uint64_t second)
{
	const double bytes = (double)model_gpu_memory(model, &tenant->now);

	if (!tenant->history && (bytes > 0 || tenant->tasks_per_s > 0))
		begin_history(model, tenant);
	if (!tenant->history)
		return;
	keep_high_float(tenant->history->memory, second, bytes);
	if (tenant->tasks_per_s >= 0)
		keep_high_float(tenant->history->tasks, second, tenant->tasks_per_s);
}

/* Return the bytes that are used of all GPUs' memory; NaN: not known. */
static double used_bytes(const struct model *model)
{
	double sum = NAN;

	for (uint32_t i = RBK_DEVICE_GPU; i < model->n_devices; i++) {
		const struct rbk_stats_device *device = &model->devices[i].now;

		if (device->memory_total == RBK_STATS_ABSENT || device->memory_total == 0)
			continue;
		sum = (isnan(sum) ? 0 : sum) + (double)(device->memory_used != RBK_STATS_ABSENT
								? device->memory_used
								: device->memory_charged);
	}
	return sum;
}

void history_sample(struct model *model)
{
	uint64_t second = model->updated_at_ns / 1000000000u + 1;

	/* The clock went back, or jumped beyond a history's length: start new histories. */
	if (second < model->newest_second || second - model->newest_second > MODEL_SECONDS)
		history_clear(model);
	if (model->newest_second == 0)
		model->newest_second = second - 1;
	while (model->newest_second < second)
		clear_second(model, ++model->newest_second);
	for (uint32_t i = 0; i < model->n_devices; i++)
		keep_high(&model->devices[i].load, second, model_load(&model->devices[i].now));
	/* Tenants may not see the memory of other programs. */
	if (model->is_root)
		keep_high(&model->memory, second, used_bytes(model));
	for (uint32_t i = 0; i < model->n_tenants; i++)
		if (model->tenants[i].is_used)
			sample_tenant(model, &model->tenants[i], second);
	if (model->new_evictions > 0) {
		double *sum = &model->evictions.values[second % MODEL_SECONDS];

		*sum = (isfinite(*sum) ? *sum : 0) + model->new_evictions;
	}
	if (model->has_rates) {
		keep_high(&model->tasks, second, model->tasks_per_s);
		if (model->latency_p99_ns > 0)
			keep_high(&model->latency, second, model->latency_p99_ns);
	}
}

/* --- Reading --- */

/* Return the index of the @i-th oldest value. */
static unsigned int place_of(const struct model *model, unsigned int i)
{
	return (unsigned int)((model->newest_second + 1 + i) % MODEL_SECONDS);
}

void model_series(const struct model *model, const struct series *series, double ret[MODEL_SECONDS])
{
	for (unsigned int i = 0; i < MODEL_SECONDS; i++)
		ret[i] = model->newest_second ? series->values[place_of(model, i)] : NAN;
}

void model_tenant_series(const struct model *model, const float values[MODEL_SECONDS],
			 double ret[MODEL_SECONDS])
{
	for (unsigned int i = 0; i < MODEL_SECONDS; i++)
		ret[i] = model->newest_second ? (double)values[place_of(model, i)] : NAN;
}

double model_evictions(const struct model *model)
{
	double ordered[MODEL_SECONDS], sum = 0;

	if (!model->knows_evictions)
		return MODEL_UNKNOWN;
	model_series(model, &model->evictions, ordered);
	for (unsigned int i = MODEL_SECONDS - EVICTION_SECONDS; i < MODEL_SECONDS; i++)
		sum += isfinite(ordered[i]) ? ordered[i] : 0;
	return sum;
}
