/* SPDX-License-Identifier: MIT */
/* Model: values that are derived from records */
#include "model-private.h"

#include <math.h>

uint64_t model_gpu_memory(const struct model *model, const struct rbk_stats_tenant *tenant)
{
	uint64_t sum = 0;

	for (uint32_t i = RBK_DEVICE_GPU; i < model->n_devices; i++)
		sum += tenant->devices[i].memory_used;
	return sum;
}

uint64_t model_gpu_limit(const struct model *model, const struct rbk_stats_tenant *tenant)
{
	uint64_t sum = 0;

	for (uint32_t i = RBK_DEVICE_GPU; i < model->n_devices; i++) {
		if (tenant->devices[i].memory_max == UINT64_MAX)
			return UINT64_MAX;
		sum += tenant->devices[i].memory_max;
	}
	return sum;
}

double model_gpu_share(const struct model *model, const struct rbk_stats_tenant *tenant)
{
	double sum = 0;
	bool is_known = false;

	for (uint32_t i = RBK_DEVICE_GPU; i < model->n_devices; i++) {
		if (!isfinite(tenant->devices[i].share))
			continue;
		sum += tenant->devices[i].share;
		is_known = true;
	}
	return is_known ? sum / (model->n_devices - RBK_DEVICE_GPU) : MODEL_UNKNOWN;
}

double model_session_gpu_share(const struct model *model, const struct model_session *session)
{
	const struct model_tenant *tenant = session->tenant;
	double share = tenant ? model_gpu_share(model, &tenant->now) : MODEL_UNKNOWN;

	if (!(tenant && tenant->gpu_ns_per_s > 0 && share >= 0))
		return share > 0 ? MODEL_UNKNOWN : share;
	return share * session->gpu_ns_per_s / tenant->gpu_ns_per_s;
}

double model_weight_part(const struct model *model, const struct rbk_stats_tenant *tenant)
{
	double sum = model->weight_of_all;

	if (tenant->n_sessions == 0)
		sum += tenant->weight;
	return sum > 0 ? tenant->weight / sum : MODEL_UNKNOWN;
}

double model_load(const struct rbk_stats_device *device)
{
	if (device->load_percent != RBK_STATS_ABSENT && model_is_gpu(device->index))
		return fmin(1, (double)device->load_percent / 100);
	return isfinite(device->utilization) ? fmax(0, fmin(1, device->utilization)) : NAN;
}

bool model_keeps_reserves(const struct model *model, uint32_t device)
{
	const struct rbk_stats_device *about = &model->devices[device].now;
	double outside =
		about->memory_outside == RBK_STATS_ABSENT ? 0 : (double)about->memory_outside;

	if (about->memory_total == RBK_STATS_ABSENT)
		return true;
	return (double)about->memory_charged + model->devices[device].reserved_bytes + outside <=
	       (double)about->memory_total;
}
