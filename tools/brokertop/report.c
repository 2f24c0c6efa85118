/* SPDX-License-Identifier: MIT */
/*
 * JSON report: one object per update
 *
 * A value that is not known is null: a missing limit, an unavailable reading, or a rate before the
 * second update.
 */
#include "report.h"

#include <math.h>
#include <stdio.h>

#include "monitor/json-figures.h"
#include "monitor/json.h"
#include "shm/stats-names.h"

/* Write a rate; negative values are not known. */
static void rate(const char *name, double value)
{
	json_number(name, value >= 0 ? value : NAN);
}

/* Write a name; "" means none. */
static void name_of(const char *name, const char *value)
{
	if (value[0])
		json_string(name, value);
	else
		json_raw(name, "null");
}

static void device_of(const char *name, uint8_t device)
{
	json_optional(name, device == RBK_DEVICE_NONE ? RBK_STATS_ABSENT : device);
}

/* Write a time; 0 means that nothing happened. */
static void time_ns(const char *name, double ns)
{
	json_number(name, ns > 0 ? ns : NAN);
}

static void report_device(const struct model *model, uint32_t index)
{
	const struct model_device *device = &model->devices[index];
	const struct rbk_stats_device *now = &device->now;

	json_item();
	json_figures_part(device_figures, now, 0, NULL, "name");
	json_optional("memory_total", now->memory_total);
	if (model->is_root) {
		json_number("load", model_load(now));
		json_optional("memory_used", now->memory_used);
		json_optional("memory_outside", now->memory_outside);
		json_optional("memory_budget", now->memory_budget);
		json_optional("memory_charged", now->memory_charged);
		json_number("memory_reserved_unused", model->devices[index].reserved_bytes);
		json_boolean("keeps_reserves", model_keeps_reserves(model, index));
		json_optional("gtt_used", now->gtt_used);
		json_optional("gtt_total", now->gtt_total);
		json_optional("clock_hz", now->clock_hz);
		json_optional("temperature_millicelsius", now->temperature_millicelsius);
		json_optional("power_microwatts", now->power_microwatts);
		json_figures_part(device_figures, now, 0, "queued", "released");
		json_unsigned("backlog_ns", now->backlog_ns);
		rate("tasks_per_s", device->tasks_per_s);
		rate("bubble_part", model->has_rates ? device->bubble_part : -1);
		json_figures_part(device_figures, now, 0, "drained", "lost");
		json_boolean("breaker_open", now->breaker != RBK_STATS_BREAKER_CLOSED);
	}
	json_object_end();
}

/* Write the figures that have columns of their own. */
static void report_top(const struct figure *figures, const void *record)
{
	for (const struct figure *figure = figures; !figure_is_end(figure); figure++)
		if (figure->top)
			json_figures_part(figure, record, 0, NULL, figure->json);
}

static void report_tenant(const struct model *model, const struct model_tenant *tenant)
{
	const struct rbk_stats_tenant *now = &tenant->now;

	json_item();
	json_string("tenant", now->name);
	json_unsigned("number", now->number);
	json_figures_part(tenant_figures, now, 0, "sessions", "plans");
	json_unsigned("memory_used", model_gpu_memory(model, now));
	json_optional("memory_max", model_gpu_limit(model, now));
	rate("gpu_share", model_gpu_share(model, now));
	rate("weight_part", model_weight_part(model, now));
	rate("tasks_per_s", tenant->tasks_per_s);
	rate("gpu_part", tenant->gpu_part);
	time_ns("p50_ns", tenant->p50_ns);
	time_ns("p99_ns", tenant->p99_ns);
	time_ns("queue_p99_ns", tenant->queue_p99_ns);
	rate("copied_bytes_per_s", tenant->copied_bytes_per_s);
	rate("transferred_bytes_per_s", tenant->transferred_bytes_per_s);
	rate("errors_per_s", tenant->errors_per_s);
	rate("fallbacks_per_s", tenant->fallbacks_per_s);
	json_figures_part(tenant_figures, now, 0, "evictions", "returns");
	json_unsigned("fallbacks", now->reasons[RBK_REASON_CPU_FALLBACK]);
	json_unsigned("errors", now->n_errors);
	time_ns("run_queue_p99_ns", tenant->has_delay ? (double)tenant->delay->p99_ns : 0);
	name_of("run_queue_behind", model_causer(tenant));
	json_figures_part(tenant_figures, now, 0, "drained", "drained");
	report_top(tenant_figures, now);
	json_object_end();
}

static void report_session(const struct model *model, const struct model_session *session)
{
	const struct model_tenant *tenant = session->tenant;
	const struct rbk_stats_session *now = &session->now;

	json_item();
	json_unsigned("session", now->number);
	json_unsigned("tenant", now->tenant);
	json_unsigned("pid", now->pid);
	json_unsigned("uid", now->uid);
	json_figures_part(session_figures, now, 0, "name", "comm");
	rate("tasks_per_s", session->tasks_per_s);
	rate("gpu_part", session->gpu_part);
	rate("copied_bytes_per_s", session->copied_bytes_per_s);
	json_unsigned("in_flight", now->n_in_flight);
	json_figures_part(session_figures, now, 0, "plans", "memory_used");
	rate("gpu_share", model_session_gpu_share(model, session));
	time_ns("p50_ns", (double)now->p50_ns);
	time_ns("p99_ns", (double)now->p99_ns);
	json_unsigned("evictions", now->n_evictions);
	time_ns("tenant_run_queue_p99_ns",
		tenant && tenant->has_delay ? (double)tenant->delay->p99_ns : 0);
	name_of("tenant_run_queue_behind", tenant ? model_causer(tenant) : "");
	json_unsigned("arena_bytes", now->arena_bytes);
	json_unsigned("errors", now->n_errors);
	json_unsigned("fallbacks", now->n_fallbacks);
	report_top(session_figures, now);
	json_object_end();
}

static void report_plan(const struct model_plan *plan)
{
	const struct rbk_stats_plan *now = &plan->now;
	char fingerprint[24];

	/* A string, since JSON numbers above 2^53 are not exact everywhere. */
	snprintf(fingerprint, sizeof(fingerprint), "%016llx", (unsigned long long)now->fingerprint);
	json_item();
	json_unsigned("tenant", plan->tenant);
	json_unsigned("session", now->session);
	json_unsigned("plan_id", now->plan_id);
	json_string("plan", now->name);
	json_string("state", now->state == RBK_STATS_PLAN_LIVE ? "live" : "gone");
	json_string("fingerprint", fingerprint);
	rate("tasks_per_s", plan->tasks_per_s);
	json_unsigned("tasks", plan->n_tasks);
	json_unsigned("inline", now->n_inline);
	json_unsigned("count", now->count);
	device_of("last_device", now->last_device);
	json_string("last_reason", rbk_reason_name(now->last_reason));
	time_ns("cpu_ns", plan->cpu_ns);
	time_ns("gpu_ns", plan->gpu_ns);
	time_ns("cpu_now_ns", plan->cpu_now_ns);
	time_ns("gpu_now_ns", plan->gpu_now_ns);
	json_optional("gpu", plan->gpu ? plan->gpu : RBK_STATS_ABSENT);
	time_ns("speedup", plan->speedup);
	rate("error", plan->error);
	rate("window_error", plan->window_error);
	json_boolean("trusted", plan->is_trusted);
	json_string("memory", stats_memory_state_name(plan->state));
	json_string("tier", stats_memory_tier_name(plan->tier));
	json_unsigned("resident_bytes", plan->resident_bytes);
	json_unsigned("footprint_bytes", plan->footprint_bytes);
	json_figures_part(plan_figures, now, 0, "evictions", "segments_streamed");
	json_string("cut", stats_cut_name(now->cut));
	time_ns("whole_ns", (double)now->whole_ns);
	time_ns("cut_ns", (double)now->cut_ns);
	report_top(plan_figures, now);
	json_object_end();
}

static void report_decision(const struct model *model, const struct model_decision *decision)
{
	const struct rbk_stats_decision *now = &decision->now;

	json_item();
	json_unsigned("tenant", decision->tenant);
	json_unsigned("index", now->sequence - 1);
	json_unsigned("ended_ns", now->ended_at_ns + (uint64_t)model->realtime_offset_ns);
	json_unsigned("session", now->session);
	json_unsigned("plan_id", now->plan_id);
	name_of("plan", decision->plan_name);
	json_unsigned("user_data", now->user_data);
	json_unsigned("count", now->count);
	device_of("device", now->device);
	json_string("reason", rbk_reason_name(now->reason));
	time_ns("predicted_ns", (double)now->predicted_ns);
	time_ns("other_ns", (double)now->other_ns);
	json_number("queue_ns", (double)now->queue_ns);
	json_number("exec_ns", (double)now->exec_ns);
	json_unsigned("split_count", now->split_count);
	json_signed("res", now->res);
	json_object_end();
}

static void report_lease(const struct model *model, const struct model_lease *lease)
{
	const struct rbk_stats_lease *now = &lease->now;
	const struct figure *state;

	json_item();
	json_unsigned("lease", now->number);
	json_unsigned("tenant", now->tenant);
	json_string("name", now->name);
	json_figures_part(lease_figures, now, 0, "device", "members");
	json_unsigned("opened_ns", now->opened_at_ns + (uint64_t)model->realtime_offset_ns);
	json_figures_part(lease_figures, now, 0, "min_bytes", "refused");
	for (unsigned int i = 0; (state = lease_state_figure(i)); i++)
		json_figures_part(state, now, 0, NULL, state->json);
	rate("had_part", lease->had_part);
	rate("wait_part", lease->wait_part);
	rate("submissions_per_s", lease->submissions_per_s);
	rate("parts_per_s", lease->parts_per_s);
	report_top(lease_figures, now);
	json_object_end();
}

static void report_reasons(const struct model *model)
{
	json_object("reasons_per_s");
	for (unsigned int i = RBK_REASON_NONE + 1; i < RBK_REASON_COUNT; i++)
		rate(rbk_reason_name(i), model->has_rates ? model->reasons_per_s[i] : -1);
	json_object_end();
}

void report_json(const struct model *model, const struct origin *origin)
{
	const double unknown = -1;

	json_begin();
	json_unsigned("time_ns", origin->now_ns);
	json_unsigned("updated_ns", model->updated_at_ns + (uint64_t)model->realtime_offset_ns);
	json_string("warning", origin->warning);
	json_unsigned("pid", model->pid);
	json_boolean("all", model->is_root);
	rate("tasks_per_s", model->has_rates ? model->tasks_per_s : unknown);
	rate("cpu_per_s", model->has_rates ? model->cpu_per_s : unknown);
	rate("gpu_per_s", model->has_rates ? model->gpu_per_s : unknown);
	rate("split_per_s", model->has_rates ? model->split_per_s : unknown);
	time_ns("p99_ns", model->latency_p99_ns);
	rate("evictions_per_min", model_evictions(model));
	report_reasons(model);
	json_boolean("contended", model->contention.flags & RBK_STATS_CONTENDED);
	json_number("contention_factor", model->contention.factor);
	json_boolean("contention_at_cap", model->contention.factor >= RBK_STATS_MAX_FACTOR);
	name_of("contention_behind", model->worst_part > 0 ? cause_name(&model->worst) : "");
	time_ns("worker_run_queue_p99_ns", model->worker_p99_ns);
	json_optional("host_bytes", model->is_root ? model->broker.host_bytes : RBK_STATS_ABSENT);
	json_optional("host_max_bytes",
		      model->broker.host_max ? model->broker.host_max : RBK_STATS_ABSENT);
	json_array("devices");
	for (uint32_t i = 0; i < model->n_devices; i++)
		report_device(model, i);
	json_array_end();
	json_array("tenants");
	for (uint32_t i = 0; i < model->n_tenants; i++)
		if (model->tenants[i].is_used)
			report_tenant(model, &model->tenants[i]);
	json_array_end();
	json_array("sessions");
	for (uint32_t i = 0; i < model->n_sessions; i++)
		if (model_shows(model, &model->sessions[i]))
			report_session(model, &model->sessions[i]);
	json_array_end();
	json_array("plans");
	for (uint32_t i = 0; i < model->n_plans; i++)
		report_plan(&model->plans[i]);
	json_array_end();
	json_array("decisions");
	for (uint32_t i = 0; i < model->n_decisions; i++)
		report_decision(model, &model->decisions[i]);
	json_array_end();
	json_array("leases");
	for (uint32_t i = 0; i < model->n_leases; i++)
		if (model_shows_lease(model, &model->leases[i]))
			report_lease(model, &model->leases[i]);
	json_array_end();
	json_end();
}
