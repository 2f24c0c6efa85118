/* SPDX-License-Identifier: MIT */
/*
 * Records as JSON
 *
 * Members are never renamed and never change their meaning. New members go to the end of their
 * group where that reads well.
 */
#include "objects.h"

#include <math.h>
#include <stdio.h>

#include "monitor/json-figures.h"
#include "monitor/json.h"
#include "records.h"

int64_t since_1970_ns(const struct rbk_stats_view *view, uint64_t at_ns)
{
	return (int64_t)at_ns + __atomic_load_n(&view->page->realtime_offset_ns, __ATOMIC_RELAXED);
}

void json_broker(const struct rbk_stats_view *root)
{
	struct rbk_stats_broker broker;

	broker_copy(root, &broker);
	json_begin();
	json_string("type", "broker");
	json_figures_part(header_figures, root->page, since_1970_ns(root, 0), NULL, NULL);
	json_figures_part(broker_figures, &broker, 0, NULL, "force_cpu");
	json_string("strategy", strategy_name(broker.strategy));
	json_figures_part(broker_figures, &broker, 0, "sessions", NULL);
	json_end();
}

void json_device(const struct rbk_stats_device *device)
{
	json_begin();
	json_string("type", "device");
	json_figures_part(device_figures, device, 0, NULL, "driver");
	json_string("kind", stats_device_kind_name(device->kind));
	json_figures_part(device_figures, device, 0, "paths", "success_rate");
	json_string("breaker", stats_breaker_name(device->breaker));
	json_figures_part(device_figures, device, 0, "breaker_opened", "cooperative_matrices");
	json_object("tiles");
	for (unsigned int op = 0; op < RBK_STATS_TILE_OPERATORS; op++) {
		if (device->tiles[op][0].rows == 0)
			continue;
		json_object(tiles_name(op));
		for (unsigned int class = 0; class < RBK_STATS_TILE_CLASSES; class ++)
			json_string(tile_class_name(class), text_tile(device, op, class));
		json_object_end();
	}
	json_object_end();
	json_figures_part(device_figures, device, 0, "total", NULL);
	json_end();
}

void json_tenant(const struct rbk_stats_tenant *tenant, uint32_t n_devices)
{
	json_begin();
	json_string("type", "tenant");
	json_figures(tenant_figures, tenant);
	json_array("devices");
	for (uint32_t i = 0; i < n_devices; i++) {
		json_item();
		json_unsigned("device", i);
		json_figures(tenant_device_figures, &tenant->devices[i]);
		json_object_end();
	}
	json_array_end();
	json_end();
}

void json_plan(const char *tenant, const union plan_copy *copy, uint32_t n_devices)
{
	const struct rbk_stats_plan *plan = &copy->plan;
	char fingerprint[24];
	uint64_t n_tasks = 0;

	for (uint32_t i = 0; i < n_devices; i++)
		n_tasks += copy->plan.devices[i].n_tasks;
	/* A string, since JSON numbers above 2^53 are not exact everywhere. */
	snprintf(fingerprint, sizeof(fingerprint), "%016llx",
		 (unsigned long long)plan->fingerprint);
	json_begin();
	json_string("type", "plan");
	json_string("tenant", tenant);
	json_figures_part(plan_figures, plan, 0, NULL, "plan");
	json_string("state", plan->state == RBK_STATS_PLAN_LIVE ? "live" : "gone");
	json_string("fingerprint", fingerprint);
	json_unsigned("tasks", n_tasks);
	json_figures_part(plan_figures, plan, 0, "inline", "count");
	json_optional("last_device",
		      plan->last_device == RBK_DEVICE_NONE ? UINT64_MAX : plan->last_device);
	json_string("last_reason", rbk_reason_name(plan->last_reason));
	json_figures_part(plan_figures, plan, 0, "evictions", NULL);
	json_string("cut", stats_cut_name(plan->cut));
	json_number("whole_ns", plan->whole_ns > 0 ? (double)plan->whole_ns : NAN);
	json_number("cut_ns", plan->cut_ns > 0 ? (double)plan->cut_ns : NAN);
	json_array("devices");
	for (uint32_t i = 0; i < n_devices; i++) {
		const struct rbk_stats_plan_device *device = &copy->plan.devices[i];

		json_item();
		json_unsigned("device", i);
		json_figures_part(plan_device_figures, device, 0, NULL, "exec_ns");
		json_number("mean_exec_ns", mean_of(device->exec_ns, device->n_tasks));
		json_unsigned("predicted", device->n_predicted);
		json_number("mean_predicted_ns",
			    mean_of(device->predicted_ns, device->n_predicted));
		json_number("error", mean_of(device->error_ns, device->predicted_exec_ns));
		json_figures_part(plan_device_figures, device, 0, "estimate_ns", "break_even");
		json_number("contention", stats_contention_factor(device->contention));
		json_number("now_ns", stats_now_ns(device));
		json_string("memory", stats_memory_state_name(device->state));
		json_string("tier", stats_memory_tier_name(device->tier));
		json_figures_part(plan_device_figures, device, 0, "resident_bytes", NULL);
		json_object_end();
	}
	json_array_end();
	json_end();
}

void json_session(const struct rbk_stats_view *view, const struct rbk_stats_session *session)
{
	json_begin();
	json_string("type", "session");
	json_figures_part(session_figures, session, 0, NULL, "session");
	json_string("tenant", tenant_name(view, session->tenant));
	json_figures_part(session_figures, session, since_1970_ns(view, 0), "name", NULL);
	json_end();
}

void json_lease(const struct rbk_stats_view *view, const struct rbk_stats_lease *lease)
{
	json_begin();
	json_string("type", "lease");
	json_figures_part(lease_figures, lease, 0, NULL, "lease");
	json_string("tenant", tenant_name(view, lease->tenant));
	json_figures_part(lease_figures, lease, since_1970_ns(view, 0), "name", NULL);
	json_end();
}
