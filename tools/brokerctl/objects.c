/* SPDX-License-Identifier: MIT */
/*
 * Records as JSON
 *
 * Members are never renamed and never change their meaning; new ones come at the end of what they
 * belong to, as far as that reads well.
 */
#include "objects.h"

#include <stdio.h>

#include "monitor/json-figures.h"
#include "monitor/json.h"
#include "records.h"

int64_t since_1970_ns(const struct rbk_stats_view *view, uint64_t at_ns)
{
	return (int64_t)at_ns + __atomic_load_n(&view->page->realtime_offset_ns, __ATOMIC_RELAXED);
}

static void json_reasons(const uint64_t reasons[RBK_STATS_MAX_REASONS])
{
	json_object("reasons");
	for (unsigned int i = RBK_REASON_NONE + 1; i < RBK_REASON_COUNT; i++)
		json_unsigned(rbk_reason_name(i), reasons[i]);
	json_object_end();
}

void json_broker(const struct rbk_stats_view *root)
{
	const struct rbk_stats_header *page = root->page;
	struct rbk_stats_broker broker;

	broker_copy(root, &broker);
	json_begin();
	json_string("type", "broker");
	json_unsigned("pid", page->pid);
	json_signed("started_ns", since_1970_ns(root, page->started_at_ns));
	json_signed("updated_ns", since_1970_ns(root, rbk_stats_load(&page->updated_at_ns)));
	json_unsigned("resets", rbk_stats_load(&page->n_resets));
	json_boolean("force_cpu", broker.flags & RBK_STATS_BROKER_FORCE_CPU);
	json_string("strategy", strategy_name(broker.strategy));
	json_unsigned("sessions", broker.n_sessions);
	json_unsigned("rings", broker.n_rings);
	json_unsigned("arenas", broker.n_arenas);
	json_unsigned("plans", broker.n_plans);
	json_unsigned("tenants", broker.n_tenants);
	json_unsigned("tenants_unlisted", broker.n_tenants_unlisted);
	json_unsigned("in_flight", broker.n_in_flight);
	json_unsigned("completed", broker.n_completed);
	json_unsigned("host_bytes", broker.host_bytes);
	json_unsigned("device_bytes", broker.device_bytes);
	json_unsigned("copied_bytes", broker.copied_bytes);
	json_unsigned("transferred_bytes", broker.transferred_bytes);
	json_unsigned("ended_hostile", broker.n_ended_hostile);
	json_optional("host_max_bytes", broker.host_max ? broker.host_max : UINT64_MAX);
	json_end();
}

void json_device(const struct rbk_stats_device *device)
{
	json_begin();
	json_string("type", "device");
	json_unsigned("device", device->index);
	json_string("name", device->name);
	json_string("driver", device->driver);
	json_string("kind", device_kind_name(device->kind));
	json_string("paths", device->paths);
	json_boolean("drained", device->flags & RBK_STATS_DEVICE_DRAINED);
	json_boolean("lost", device->flags & RBK_STATS_DEVICE_LOST);
	json_optional("driver_evictions", device->n_driver_evictions);
	json_unsigned("tasks", device->n_tasks);
	json_unsigned("failed", device->n_failed);
	json_unsigned("explored", device->n_explored);
	json_unsigned("exec_ns", device->exec_ns);
	json_unsigned("device_ns", device->device_ns);
	json_reasons(device->reasons);
	json_unsigned("backlog_ns", device->backlog_ns);
	json_unsigned("queued", device->n_queued);
	json_unsigned("released", device->n_released);
	json_number("success_rate", device->success_rate);
	json_string("breaker", breaker_name(device->breaker));
	json_unsigned("breaker_opened", device->n_opened);
	json_unsigned("stalls", device->n_stalls);
	json_number("contention", device->contention);
	json_number("explored_share", device->explored_share);
	json_number("utilization", device->utilization);
	json_object("profile");
	json_unsigned("servers", device->n_servers);
	json_number("flops_per_ns", device->flops_per_ns);
	json_number("bytes_per_ns", device->bytes_per_ns);
	json_number("up_bytes_per_ns", device->up_bytes_per_ns);
	json_number("down_bytes_per_ns", device->down_bytes_per_ns);
	json_number("launch_ns", device->launch_ns);
	json_number("active_watts", device->active_watts);
	json_object_end();
	json_boolean("cooperative_matrices", device->flags & RBK_STATS_DEVICE_MATRICES);
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
	json_object("memory");
	json_optional("total", device->memory_total);
	json_optional("used", device->memory_used);
	json_optional("outside", device->memory_outside);
	json_optional("budget", device->memory_budget);
	json_optional("charged", device->memory_charged);
	json_optional("gtt_total", device->gtt_total);
	json_optional("gtt_used", device->gtt_used);
	json_object_end();
	json_object("sensors");
	json_optional("load_percent", device->load_percent);
	json_optional("memory_load_percent", device->memory_load_percent);
	json_optional("clock_hz", device->clock_hz);
	json_optional("memory_clock_hz", device->memory_clock_hz);
	json_optional("temperature_millicelsius", device->temperature_millicelsius);
	json_optional("power_microwatts", device->power_microwatts);
	json_object_end();
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
	/* Above 2^53 numbers of JSON are not exact everywhere. */
	snprintf(fingerprint, sizeof(fingerprint), "%016llx",
		 (unsigned long long)plan->fingerprint);
	json_begin();
	json_string("type", "plan");
	json_string("tenant", tenant);
	json_unsigned("session", plan->session);
	json_unsigned("plan_id", plan->plan_id);
	json_string("plan", plan->name);
	json_string("state", plan->state == RBK_STATS_PLAN_LIVE ? "live" : "gone");
	json_string("fingerprint", fingerprint);
	json_unsigned("tasks", n_tasks);
	json_unsigned("inline", plan->n_inline);
	json_unsigned("count", plan->count);
	json_optional("last_device",
		      plan->last_device == RBK_DEVICE_NONE ? UINT64_MAX : plan->last_device);
	json_string("last_reason", rbk_reason_name(plan->last_reason));
	json_unsigned("evictions", plan->n_evictions);
	json_unsigned("returns", plan->n_returns);
	json_unsigned("memory_constraints", plan->n_memory_constraints);
	json_reasons(plan->reasons);
	json_array("devices");
	for (uint32_t i = 0; i < n_devices; i++) {
		const struct rbk_stats_plan_device *device = &copy->plan.devices[i];

		json_item();
		json_unsigned("device", i);
		json_unsigned("tasks", device->n_tasks);
		json_unsigned("failed", device->n_failed);
		json_unsigned("explored", device->n_explored);
		json_unsigned("exec_ns", device->exec_ns);
		json_number("mean_exec_ns", mean_of(device->exec_ns, device->n_tasks));
		json_unsigned("predicted", device->n_predicted);
		json_number("mean_predicted_ns",
			    mean_of(device->predicted_ns, device->n_predicted));
		json_number("error", mean_of(device->error_ns, device->predicted_exec_ns));
		json_number("estimate_ns", device->estimate_ns);
		json_number("spread", device->spread);
		json_number("window_mean_ns", device->mean_ns);
		json_number("window_error", device->mean_error);
		json_boolean("trusted", device->is_trusted);
		json_number("speedup", device->speedup);
		json_unsigned("break_even", device->break_even);
		json_string("memory", memory_state_name(device->state));
		json_string("tier", memory_tier_name(device->tier));
		json_unsigned("resident_bytes", device->resident_bytes);
		json_unsigned("footprint_bytes", device->footprint_bytes);
		json_object_end();
	}
	json_array_end();
	json_end();
}

void json_session(const struct rbk_stats_view *view, const struct rbk_stats_session *session)
{
	json_begin();
	json_string("type", "session");
	json_unsigned("session", session->number);
	json_string("tenant", tenant_name(view, session->tenant));
	json_string("name", session->name);
	json_string("comm", session->comm);
	json_optional("pid", session->pid ? session->pid : UINT64_MAX);
	json_unsigned("uid", session->uid);
	json_boolean("admin", session->flags & RBK_STATS_SESSION_ADMIN);
	json_boolean("ending", session->flags & RBK_STATS_SESSION_ENDING);
	json_signed("began_ns", since_1970_ns(view, session->began_at_ns));
	json_unsigned("tasks", session->n_tasks);
	json_unsigned("gpu_tasks", session->n_gpu_tasks);
	json_unsigned("errors", session->n_errors);
	json_unsigned("fallbacks", session->n_fallbacks);
	json_unsigned("copied_bytes", session->copied_bytes);
	json_unsigned("transferred_bytes", session->transferred_bytes);
	json_unsigned("in_flight", session->n_in_flight);
	json_unsigned("rings", session->n_rings);
	json_unsigned("arenas", session->n_arenas);
	json_unsigned("arena_bytes", session->arena_bytes);
	json_unsigned("plans", session->n_plans);
	json_unsigned("plans_resident", session->n_plans_resident);
	json_unsigned("memory_used", session->memory_used);
	json_unsigned("evictions", session->n_evictions);
	json_unsigned("gpu_ns", session->gpu_ns);
	json_optional("p50_ns", session->p50_ns ? session->p50_ns : UINT64_MAX);
	json_optional("p99_ns", session->p99_ns ? session->p99_ns : UINT64_MAX);
	json_end();
}

void json_lease(const struct rbk_stats_view *view, const struct rbk_stats_lease *lease)
{
	json_begin();
	json_string("type", "lease");
	json_unsigned("lease", lease->number);
	json_string("tenant", tenant_name(view, lease->tenant));
	json_string("name", lease->name);
	json_unsigned("device", lease->device);
	json_optional("pid", lease->pid ? lease->pid : UINT64_MAX);
	json_unsigned("uid", lease->uid);
	json_unsigned("members", lease->n_members);
	json_signed("opened_ns", since_1970_ns(view, lease->opened_at_ns));
	json_unsigned("min_bytes", lease->min_bytes);
	json_unsigned("wish_bytes", lease->wish_bytes);
	json_unsigned("max_bytes", lease->max_bytes);
	json_unsigned("granted_bytes", lease->granted_bytes);
	json_unsigned("credited_bytes", lease->credited_bytes);
	json_unsigned("object_bytes", lease->object_bytes);
	json_unsigned("used_bytes", lease->used_bytes);
	json_unsigned("extra_bytes", lease->extra_bytes);
	json_unsigned("peak_bytes", lease->peak_bytes);
	json_optional("seen_bytes", lease->seen_bytes);
	json_unsigned("waiting_bytes", lease->waiting_bytes);
	json_unsigned("objects", lease->n_objects);
	json_unsigned("refused", lease->n_refused);
	json_boolean("waiting", lease->flags & RBK_STATS_LEASE_WAITING);
	json_boolean("shrinking", lease->flags & RBK_STATS_LEASE_SHRINKING);
	json_boolean("restored", lease->flags & RBK_STATS_LEASE_RESTORED);
	json_boolean("over", lease->flags & RBK_STATS_LEASE_OVER);
	json_boolean("capped", lease->flags & RBK_STATS_LEASE_CAPPED);
	json_end();
}
