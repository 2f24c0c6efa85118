/* SPDX-License-Identifier: MIT */
/*
 * Model: rates over an interval
 *
 * An interval ends with the first update at least a second after its beginning, or a period of the
 * broker after it as long as there are no rates at all. Each record has a beginning of its own: the
 * update at which it was first read. A record that appears within an interval, or whose counts went
 * back because they were reset, is without rates for the rest of it. Otherwise all that it did
 * before, or in a part of the interval, would count as the interval's.
 */
#include "model-private.h"

#include <math.h>
#include <string.h>

#include "monitor/interval.h"

static const uint64_t interval_ns = 1000000000;

/* --- Beginnings --- */

static struct model_counts counts_of(const struct rbk_stats_tenant *tenant)
{
	struct model_counts counts = {
		.n_tasks = tenant->n_tasks,
		.n_partitioned = tenant->n_partitioned,
		.n_errors = tenant->n_errors,
		.n_evictions = tenant->n_evictions,
		.copied_bytes = tenant->copied_bytes,
		.transferred_bytes = tenant->transferred_bytes,
	};

	for (uint32_t i = RBK_DEVICE_GPU; i < RBK_MAX_DEVICES; i++)
		counts.n_gpu_tasks += tenant->devices[i].n_tasks;
	for (uint32_t i = 0; i < RBK_MAX_DEVICES; i++)
		counts.bubble_ns[i] = tenant->devices[i].bubble_ns;
	memcpy(counts.reasons, tenant->reasons, sizeof(counts.reasons));
	return counts;
}

static void begin_tenant(struct model_tenant *tenant, uint64_t now_ns)
{
	tenant->then = counts_of(&tenant->now);
	tenant->then_ns = now_ns;
}

static uint64_t session_bytes(const struct rbk_stats_session *session)
{
	return session->copied_bytes + session->transferred_bytes;
}

static void begin_session(struct model_session *session, uint64_t now_ns)
{
	session->then_tasks = session->now.n_tasks;
	session->then_gpu_tasks = session->now.n_gpu_tasks;
	session->then_bytes = session_bytes(&session->now);
	session->then_gpu_ns = session->now.gpu_ns;
	session->then_sequence = session->now.sequence;
	session->then_ns = now_ns;
}

static void begin_lease(struct model_lease *lease, uint64_t now_ns)
{
	lease->then_slice_ns = lease->now.slice_ns;
	lease->then_wait_ns = lease->now.slice_wait_ns;
	lease->then_submissions = lease->now.n_submissions;
	lease->then_parts = lease->now.n_parts;
	lease->then_sequence = lease->now.sequence;
	lease->then_ns = now_ns;
}

static void begin_plan(struct model_plan *plan, uint64_t now_ns)
{
	plan->then_tasks = plan->n_tasks;
	plan->then_ns = now_ns;
}

static void begin_device(struct model_device *device, uint64_t now_ns)
{
	device->then_tasks = device->now.n_tasks;
	device->then_ns = now_ns;
}

void rates_forget_tenant(struct model_tenant *tenant)
{
	tenant->then_ns = 0;
	tenant->tasks_per_s = tenant->copied_bytes_per_s = tenant->transferred_bytes_per_s =
		MODEL_UNKNOWN;
	tenant->gpu_part = tenant->fallbacks_per_s = tenant->errors_per_s = MODEL_UNKNOWN;
	tenant->p50_ns = tenant->p99_ns = tenant->queue_p99_ns = 0;
	tenant->has_new_evictions = false;
}

void rates_forget_session(struct model_session *session)
{
	session->then_ns = 0;
	session->tasks_per_s = session->gpu_part = session->copied_bytes_per_s = MODEL_UNKNOWN;
	session->gpu_ns_per_s = 0;
}

void rates_forget_lease(struct model_lease *lease)
{
	lease->then_ns = 0;
	lease->had_part = lease->wait_part = MODEL_UNKNOWN;
	lease->submissions_per_s = lease->parts_per_s = MODEL_UNKNOWN;
}

void rates_forget_plan(struct model_plan *plan)
{
	plan->then_ns = 0;
	plan->tasks_per_s = MODEL_UNKNOWN;
}

void rates_forget_device(struct model_device *device)
{
	device->then_ns = 0;
	device->tasks_per_s = device->bubble_part = MODEL_UNKNOWN;
}

/* --- Ends --- */

static void tenant_rates(struct model_tenant *tenant, uint64_t ns)
{
	const struct model_counts counts = counts_of(&tenant->now);
	const struct model_counts *now = &counts, *then = &tenant->then;
	const unsigned int fallback = RBK_REASON_CPU_FALLBACK;

	tenant->tasks_per_s = interval_rate(now->n_tasks, then->n_tasks, ns);
	tenant->gpu_part =
		interval_part(now->n_gpu_tasks, then->n_gpu_tasks, now->n_tasks, then->n_tasks);
	tenant->copied_bytes_per_s = interval_rate(now->copied_bytes, then->copied_bytes, ns);
	tenant->transferred_bytes_per_s =
		interval_rate(now->transferred_bytes, then->transferred_bytes, ns);
	tenant->errors_per_s = interval_rate(now->n_errors, then->n_errors, ns);
	tenant->fallbacks_per_s =
		interval_rate(now->reasons[fallback], then->reasons[fallback], ns);
	tenant->has_new_evictions = now->n_evictions > then->n_evictions;
}

/* Compute the latencies of a tenant, and add its histogram to that of all tenants. */
static void tenant_latencies(struct model *model, struct model_tenant *tenant,
			     const struct rbk_stats_view *view)
{
	const uint32_t index = (uint32_t)(tenant - model->tenants);
	uint64_t between[RBK_STATS_BUCKETS];
	struct rbk_stats_tenant now;

	page_copy(view, RBK_STATS_SECTION_TENANTS, index, &now, sizeof(now));
	/* The record has a new owner, without known latencies. */
	if (now.number != tenant->now.number)
		return;
	interval_histogram(now.queue_histogram, tenant->now.queue_histogram, between);
	tenant->queue_p99_ns = histogram_quantile(between, 0.99);
	interval_histogram(now.latency_histogram, tenant->now.latency_histogram, between);
	tenant->p50_ns = histogram_quantile(between, 0.5);
	tenant->p99_ns = histogram_quantile(between, 0.99);
	for (unsigned int i = 0; i < RBK_STATS_BUCKETS; i++)
		model->latency_now[i] += between[i];
	memcpy(tenant->now.queue_histogram, now.queue_histogram, sizeof(now.queue_histogram));
	memcpy(tenant->now.latency_histogram, now.latency_histogram, sizeof(now.latency_histogram));
}

/* Add a tenant's rates to those of all tenants. */
static void add_to_totals(struct model *model, const struct model_tenant *tenant, uint64_t ns)
{
	for (unsigned int i = 0; i < RBK_STATS_MAX_REASONS; i++)
		model->reasons_per_s[i] +=
			interval_rate(tenant->now.reasons[i], tenant->then.reasons[i], ns);
	model->split_per_s +=
		interval_rate(tenant->now.n_partitioned, tenant->then.n_partitioned, ns);
	model->tasks_per_s += tenant->tasks_per_s;
	if (tenant->gpu_part > 0)
		model->gpu_per_s += tenant->tasks_per_s * tenant->gpu_part;
	for (uint32_t i = 0; i < model->n_devices; i++)
		model->devices[i].bubble_part += interval_rate(tenant->now.devices[i].bubble_ns,
							       tenant->then.bubble_ns[i], ns) /
						 1e9;
}

/* Return: true unless there are tenants and none of them has rates. */
static bool all_tenants(struct model *model, const struct rbk_stats_view *view, uint64_t least_ns)
{
	const uint64_t now_ns = model->updated_at_ns;
	uint32_t n_used = 0, n_known = 0;

	model->tasks_per_s = model->gpu_per_s = model->split_per_s = model->latency_p99_ns = 0;
	memset(model->reasons_per_s, 0, sizeof(model->reasons_per_s));
	memset(model->latency_now, 0, sizeof(model->latency_now));
	for (uint32_t i = 0; i < model->n_devices; i++)
		model->devices[i].bubble_part = 0;
	for (uint32_t i = 0; i < model->n_tenants; i++) {
		struct model_tenant *tenant = &model->tenants[i];
		const uint64_t ns = now_ns - tenant->then_ns;

		tenant->gpu_ns_per_s = 0;
		if (!tenant->is_used)
			continue;
		n_used++;
		if (ns < least_ns)
			continue;
		n_known++;
		tenant_rates(tenant, ns);
		add_to_totals(model, tenant, ns);
		tenant_latencies(model, tenant, view);
		begin_tenant(tenant, now_ns);
	}
	model->cpu_per_s = fmax(0, model->tasks_per_s - model->gpu_per_s);
	model->latency_p99_ns = histogram_quantile(model->latency_now, 0.99);
	return n_known > 0 || n_used == 0;
}

static void session_rates(struct model_session *session, uint64_t ns)
{
	const struct rbk_stats_session *now = &session->now;

	session->tasks_per_s = interval_rate(now->n_tasks, session->then_tasks, ns);
	session->gpu_part = interval_part(now->n_gpu_tasks, session->then_gpu_tasks, now->n_tasks,
					  session->then_tasks);
	session->copied_bytes_per_s = interval_rate(session_bytes(now), session->then_bytes, ns);
	session->gpu_ns_per_s = interval_rate(now->gpu_ns, session->then_gpu_ns, ns);
}

/* Return the rate of a count that may be unknown, as it was before the first report. */
static double reported_rate(uint64_t now, uint64_t then, uint64_t ns)
{
	if (now == RBK_STATS_ABSENT || then == RBK_STATS_ABSENT)
		return MODEL_UNKNOWN;
	return interval_rate(now, then, ns);
}

static void lease_rates(struct model_lease *lease, uint64_t ns)
{
	const struct rbk_stats_lease *now = &lease->now;

	lease->had_part = lease->wait_part = MODEL_UNKNOWN;
	if (now->flags & RBK_STATS_LEASE_SHARING) {
		lease->had_part =
			fmin(1, interval_rate(now->slice_ns, lease->then_slice_ns, ns) / 1e9);
		lease->wait_part =
			fmin(1, interval_rate(now->slice_wait_ns, lease->then_wait_ns, ns) / 1e9);
	}
	lease->submissions_per_s = reported_rate(now->n_submissions, lease->then_submissions, ns);
	lease->parts_per_s = reported_rate(now->n_parts, lease->then_parts, ns);
}

/* The model owns the tenant; it is not const. */
static struct model_tenant *tenant_of(const struct model_session *session)
{
	return (struct model_tenant *)session->tenant;
}

/* End the interval of every record for which it was at least @least_ns long. */
static void end_interval(struct model *model, const struct rbk_stats_view *view, uint64_t least_ns)
{
	const uint64_t now_ns = model->updated_at_ns;

	model->has_rates = all_tenants(model, view, least_ns);
	for (uint32_t i = 0; i < model->n_devices; i++) {
		struct model_device *device = &model->devices[i];
		const uint64_t ns = now_ns - device->then_ns;

		if (ns < least_ns)
			continue;
		device->tasks_per_s = interval_rate(device->now.n_tasks, device->then_tasks, ns);
		begin_device(device, now_ns);
	}
	for (uint32_t i = 0; i < model->n_sessions; i++) {
		struct model_session *session = &model->sessions[i];
		const uint64_t ns = now_ns - session->then_ns;

		/* With thousands of sessions the broker does not write each at every update. */
		if (session->now.number && ns >= least_ns &&
		    session->now.sequence != session->then_sequence) {
			session_rates(session, ns);
			begin_session(session, now_ns);
		}
		if (session->now.number && session->tenant)
			tenant_of(session)->gpu_ns_per_s += session->gpu_ns_per_s;
	}
	for (uint32_t i = 0; i < model->n_leases; i++) {
		struct model_lease *lease = &model->leases[i];
		const uint64_t ns = now_ns - lease->then_ns;

		if (lease->now.number && ns >= least_ns &&
		    lease->now.sequence != lease->then_sequence) {
			lease_rates(lease, ns);
			begin_lease(lease, now_ns);
		}
	}
	for (uint32_t i = 0; i < model->n_plans; i++) {
		struct model_plan *plan = &model->plans[i];
		const uint64_t ns = now_ns - plan->then_ns;

		if (ns < least_ns)
			continue;
		plan->tasks_per_s = interval_rate(plan->n_tasks, plan->then_tasks, ns);
		begin_plan(plan, now_ns);
	}
}

/* Begin the intervals of records that have no beginning yet. */
static void begin_new(struct model *model)
{
	const uint64_t now_ns = model->updated_at_ns;

	for (uint32_t i = 0; i < model->n_tenants; i++)
		if (model->tenants[i].is_used && model->tenants[i].then_ns == 0)
			begin_tenant(&model->tenants[i], now_ns);
	for (uint32_t i = 0; i < model->n_devices; i++)
		if (model->devices[i].then_ns == 0)
			begin_device(&model->devices[i], now_ns);
	for (uint32_t i = 0; i < model->n_sessions; i++)
		if (model->sessions[i].now.number && model->sessions[i].then_ns == 0)
			begin_session(&model->sessions[i], now_ns);
	for (uint32_t i = 0; i < model->n_leases; i++)
		if (model->leases[i].now.number && model->leases[i].then_ns == 0)
			begin_lease(&model->leases[i], now_ns);
	for (uint32_t i = 0; i < model->n_plans; i++)
		if (model->plans[i].then_ns == 0)
			begin_plan(&model->plans[i], now_ns);
}

void rates_update(struct model *model, const struct rbk_stats_view *view)
{
	const uint64_t period_ns = model->period_ns;
	/* The first rates are shown early. */
	const uint64_t first_ns =
		period_ns > 0 && period_ns < interval_ns ? period_ns : interval_ns;
	uint64_t ns;

	begin_new(model);
	if (model->then_ns == 0)
		model->then_ns = model->updated_at_ns;
	ns = model->updated_at_ns - model->then_ns;
	if (ns < interval_ns && (model->has_rates || ns < first_ns))
		return;
	end_interval(model, view, model->has_rates ? interval_ns / 2 : first_ns);
	model->then_ns = model->updated_at_ns;
}
