/* SPDX-License-Identifier: MIT */
/*
 * Details of one tenant, plan or lease
 *
 * Counts are since the broker's start or the last reset; rates are over the last interval. The
 * whole sheet is laid out from its first line, and lines outside the screen are clipped.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "figures.h"
#include "monitor/interval.h"
#include "monitor/text.h"
#include "picture.h"
#include "util/plural.h"

enum { REASON_BAR = 30, FULL = 0x2588, HISTOGRAM_ROWS = 4, MAX_DECISIONS = 50 };

static void line(struct sheet_lines *lines, enum style style, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void line(struct sheet_lines *lines, enum style style, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	canvas_text(lines->canvas, 1, sheet_next_line(lines), style, text);
}

static void head(struct sheet_lines *lines, const char *text)
{
	int y;

	lines->line++;
	y = sheet_next_line(lines);
	canvas_fill(lines->canvas, 0, y, lines->canvas->width, STYLE_HEAD, ' ');
	canvas_text(lines->canvas, 1, y, STYLE_HEAD, text);
}

static const char *count(uint64_t n)
{
	return text_name(figure_count((double)n).text);
}

/* Draw the figures of @record that brokertop's tables show in columns of their own. */
static void draw_top(const struct figure *figures, const void *record, struct sheet_lines *lines)
{
	bool has_head = false;

	for (const struct figure *figure = figures; !figure_is_end(figure); figure++) {
		if (!figure->top)
			continue;
		if (!has_head)
			head(lines, "Other figures");
		has_head = true;
		line(lines, STYLE_PLAIN, "%s %s", figure->json, figure_of(figure, record).text);
	}
}

/* --- What both have --- */

static void draw_reasons(struct sheet_lines *lines, const uint64_t reasons[RBK_STATS_MAX_REASONS])
{
	double sum = 0;

	for (unsigned int i = 0; i < RBK_REASON_COUNT; i++)
		sum += (double)reasons[i];
	head(lines, "Why tasks ran where they did");
	for (unsigned int i = RBK_REASON_NONE + 1; i < RBK_REASON_COUNT; i++) {
		const struct segment segment = {(double)reasons[i], FULL, STYLE_GRAPH, NULL};
		int y;

		if (reasons[i] == 0)
			continue;
		y = sheet_next_line(lines);
		canvas_text(lines->canvas, 1, y, STYLE_PLAIN, rbk_reason_name(i));
		canvas_right(lines->canvas, 28, y, STYLE_PLAIN,
			     figure_count((double)reasons[i]).text);
		canvas_right(lines->canvas, 34, y, STYLE_PLAIN,
			     figure_part((double)reasons[i] / sum).text);
		canvas_bar(lines->canvas, 36, y, REASON_BAR, sum, &segment, 1);
	}
	if (sum == 0)
		line(lines, STYLE_DIM, "no task has completed");
}

/*
 * Draw a histogram from the first to the last time that occurred; the most frequent one determines
 * the height.
 */
static void draw_histogram(struct sheet_lines *lines, const char *title,
			   const uint64_t buckets[RBK_STATS_BUCKETS])
{
	unsigned int first = RBK_STATS_BUCKETS, last = 0, n;
	double values[RBK_STATS_BUCKETS], high = 0;
	int y = 0, width;

	for (unsigned int i = 0; i < RBK_STATS_BUCKETS; i++) {
		if (buckets[i] == 0)
			continue;
		first = i < first ? i : first;
		last = i;
		high = fmax(high, (double)buckets[i]);
	}
	head(lines, title);
	if (high == 0) {
		line(lines, STYLE_DIM, "no task has completed");
		return;
	}
	n = last - first + 1;
	for (unsigned int i = 0; i < n; i++)
		values[i] = (double)buckets[first + i];
	/* A graph has two values per column. */
	width = (int)(n + 1) / 2;
	for (int i = 0; i < HISTOGRAM_ROWS; i++) {
		int row = sheet_next_line(lines);

		/* The graph is drawn whole or not at all. */
		y = i == 0 ? row : y;
		y = row < 0 ? -1 : y;
	}
	if (y >= 0)
		canvas_graph(lines->canvas, 1, y, width, HISTOGRAM_ROWS, STYLE_GRAPH, high, values,
			     n);
	line(lines, STYLE_DIM, "%s … %s   p50 %s   p90 %s   p99 %s",
	     first ? figure_ns((double)rbk_stats_bucket_ns(first)).text : "0",
	     figure_ns((double)rbk_stats_bucket_ns(last + 1)).text,
	     figure_ns(histogram_quantile(buckets, 0.5)).text,
	     figure_ns(histogram_quantile(buckets, 0.9)).text,
	     figure_ns(histogram_quantile(buckets, 0.99)).text);
}

/* --- A tenant --- */

static void draw_devices(const struct model *model, const struct model_tenant *tenant,
			 struct sheet_lines *lines)
{
	static const char *const heads[] = {"MEMORY", "MAX",    "RESERVE",  "HIGH", "GTT",
					    "TASKS",  "FAILED", "EXPLORED", "SHARE"};
	enum { FIGURES = 9, FIRST_END = 18, APART = 10 };
	int y = sheet_next_line(lines);

	canvas_fill(lines->canvas, 0, y, lines->canvas->width, STYLE_HEAD, ' ');
	canvas_text(lines->canvas, 1, y, STYLE_HEAD, "DEVICE");
	for (int k = 0; k < FIGURES; k++)
		canvas_right(lines->canvas, FIRST_END + APART * k, y, STYLE_HEAD, heads[k]);
	for (uint32_t i = 0; i < model->n_devices; i++) {
		const struct rbk_stats_tenant_device *device = &tenant->now.devices[i];
		const struct figure_text figures[FIGURES] = {
			figure_bytes((double)device->memory_used),
			figure_bytes_of(device->memory_max),
			figure_bytes((double)device->memory_reserve),
			figure_bytes_of(device->memory_high),
			figure_bytes((double)device->gtt_used),
			figure_count((double)device->n_tasks),
			figure_count((double)device->n_failed),
			figure_count((double)device->n_explored),
			figure_part(device->share),
		};

		y = sheet_next_line(lines);
		canvas_text(lines->canvas, 1, y, STYLE_PLAIN, device_label(i));
		for (int k = 0; k < FIGURES; k++)
			canvas_right(lines->canvas, FIRST_END + APART * k, y, STYLE_PLAIN,
				     figures[k].text);
	}
}

/* Name the devices that ran segments of the tenant's tasks, with their bubbles. */
static void draw_segments(const struct model *model, const struct model_tenant *tenant,
			  struct sheet_lines *lines)
{
	for (uint32_t i = 0; i < model->n_devices; i++) {
		const struct rbk_stats_tenant_device *device = &tenant->now.devices[i];

		if (device->n_segments == 0)
			continue;
		line(lines, STYLE_PLAIN,
		     "%s ran %s segments, and was idle for %s while others of their tasks ran "
		     "elsewhere",
		     device_label(i), count(device->n_segments),
		     figure_ns((double)device->bubble_ns).text);
	}
}

static void draw_delay(const struct model *model, const struct model_tenant *tenant,
		       struct sheet_lines *lines)
{
	const struct rbk_stats_delay *delay = tenant->delay;

	head(lines, "Waits of its processes for processors");
	if (!tenant->has_delay) {
		line(lines, STYLE_DIM, "not watched");
		return;
	}
	line(lines, STYLE_PLAIN, "ran %s   waited %s   p50 %s   p99 %s   longest %s",
	     figure_ns((double)delay->run_ns).text, figure_ns((double)delay->wait_ns).text,
	     figure_ns((double)delay->p50_ns).text, figure_ns((double)delay->p99_ns).text,
	     figure_ns((double)delay->max_ns).text);
	line(lines, STYLE_PLAIN, "preempted %s   moved %s   throttled %s   made the broker wait %s",
	     delay->flags & RBK_STATS_DELAY_KNOWN ? count(delay->n_preemptions) : "-",
	     count(delay->n_migrations), figure_ns((double)delay->throttled_ns).text,
	     figure_ns((double)delay->caused_ns).text);
	for (uint32_t i = 0; i < delay->n_causes; i++) {
		const struct rbk_stats_cause *cause = &delay->causes[i];
		const struct model_tenant *other =
			cause->tenant ? model_tenant(model, cause->tenant) : NULL;

		line(lines, STYLE_PLAIN, "behind %-15s %8s   %s%s%s%s", text_name(cause->comm),
		     figure_ns((double)cause->wait_ns).text,
		     cause->flags & RBK_STATS_CAUSE_BROKER ? "brokerd itself"
							   : text_name(cause->cgroup),
		     other ? " (tenant " : "", other ? text_name(other->now.name) : "",
		     other ? ")" : "");
	}
}

void detail_draw_tenant(const struct model *model, uint32_t number, struct sheet_lines *lines)
{
	const struct model_tenant *tenant = model_tenant(model, number);
	const struct rbk_stats_tenant *now = tenant ? &tenant->now : NULL;

	if (!tenant) {
		line(lines, STYLE_WARN, "this tenant is gone");
		return;
	}
	line(lines, STYLE_BOLD, "Tenant %s", text_name(now->name));
	line(lines, STYLE_PLAIN, "number %u   weight %u   %s%s%s%s", now->number, now->weight,
	     now->flags & RBK_STATS_TENANT_NAMED ? "named by the policy" : "not in the policy",
	     now->flags & RBK_STATS_TENANT_CHANGED ? ", limits changed by an administrator" : "",
	     now->flags & RBK_STATS_TENANT_DRAINED ? ", drained: gets no new work" : "",
	     now->flags & RBK_STATS_TENANT_PAGE ? "" : ", has no page: no plans are listed");
	line(lines, STYLE_PLAIN, "sessions %s   plans %s   host memory %s of %s   refused %s",
	     count(now->n_sessions), count(now->n_plans), figure_bytes((double)now->host_used).text,
	     now->host_max == UINT64_MAX ? "no limit" : figure_bytes_of(now->host_max).text,
	     count(now->n_refused));
	line(lines, STYLE_PLAIN, "evictions %s   returns %s   tasks without device memory %s",
	     count(now->n_evictions), count(now->n_returns), count(now->n_memory_constraints));
	lines->line++;
	draw_devices(model, tenant, lines);
	draw_segments(model, tenant, lines);
	head(lines, "Tasks");
	line(lines, STYLE_PLAIN, "now      %s/s   on GPUs %s   p50 %s   p99 %s   queued p99 %s",
	     figure_rate(tenant->tasks_per_s).text, figure_part(tenant->gpu_part).text,
	     figure_ns(tenant->p50_ns).text, figure_ns(tenant->p99_ns).text,
	     figure_ns(tenant->queue_p99_ns).text);
	line(lines, STYLE_PLAIN, "         copied %s/s   moved by devices %s/s   errors %s/s",
	     figure_bytes(tenant->copied_bytes_per_s).text,
	     figure_bytes(tenant->transferred_bytes_per_s).text,
	     figure_rate(tenant->errors_per_s).text);
	line(lines, STYLE_PLAIN,
	     "in all   %s   at once %s   by the reactor %s   split %s   explored %s",
	     count(now->n_tasks), count(now->n_inline), count(now->n_reactor),
	     count(now->n_partitioned), count(now->n_explored));
	line(lines, STYLE_PLAIN, "         errors %s   late %s   delayed by its quota %s",
	     count(now->n_errors), count(now->n_deadlines_missed),
	     figure_ns((double)now->throttled_ns).text);
	draw_reasons(lines, now->reasons);
	draw_histogram(lines, "Times from admission to end", now->latency_histogram);
	draw_histogram(lines, "Times in the queue", now->queue_histogram);
	draw_delay(model, tenant, lines);
	draw_top(tenant_figures, now, lines);
}

/* --- A plan --- */

static void draw_plan_times(const struct model_plan *plan, struct sheet_lines *lines)
{
	const double speedup = isfinite(plan->speedup) ? fmax(0, fmin(plan->speedup, 1e9)) : 0;
	const char *gpu = plan->gpu ? device_label(plan->gpu) : "GPU";
	const char *gpu_now = plan->gpu_now ? device_label(plan->gpu_now) : gpu;

	line(lines, STYLE_PLAIN, "now: CPU %s   %s %s      alone: CPU %s   %s %s",
	     figure_ns(plan->cpu_now_ns).text, gpu_now, figure_ns(plan->gpu_now_ns).text,
	     figure_ns(plan->cpu_ns).text, gpu, figure_ns(plan->gpu_ns).text);
	line(lines, STYLE_PLAIN, "speed-up %.*f   predictions off by %s: %s", speedup < 10 ? 2 : 0,
	     speedup, figure_part(plan->window_error).text,
	     plan->is_trusted ? "trusted" : "not trusted");
	line(lines, STYLE_PLAIN, "memory: %s%s, needs %s, of which %s are resident",
	     plan->gpu ? memory_state_name(plan->state) : "needs no GPU memory",
	     plan->state == RBK_MEMORY_RESIDENT && plan->tier == RBK_TIER_GTT
		     ? " in host memory (GTT)"
		     : "",
	     figure_bytes((double)plan->footprint_bytes).text,
	     figure_bytes((double)plan->resident_bytes).text);
}

/* Return blanks that right-align figures one below another. */
static const char *before(const struct figure_text *figure)
{
	static const char blanks[] = "       ";
	const int n = (int)sizeof(blanks) - 1, columns = canvas_columns(figure->text);

	return blanks + (columns < n ? columns : n);
}

static void draw_plan_decisions(const struct model *model, const struct model_plan *plan,
				struct sheet_lines *lines)
{
	unsigned int n = 0;

	head(lines, "Its last tasks");
	for (uint32_t i = 0; i < model->n_decisions && n < MAX_DECISIONS; i++) {
		const struct model_decision *decision = &model->decisions[i];
		struct figure_text age, predicted, took, queued;
		uint64_t age_ns;

		if (decision->tenant != plan->tenant || decision->now.plan != plan->slot)
			continue;
		age_ns = model->updated_at_ns > decision->now.ended_at_ns
				 ? model->updated_at_ns - decision->now.ended_at_ns
				 : 0;
		n++;
		age = figure_ns((double)age_ns);
		predicted = figure_ns((double)decision->now.predicted_ns);
		took = figure_ns((double)decision->now.exec_ns);
		queued = figure_ns((double)decision->now.queue_ns);
		line(lines, STYLE_PLAIN,
		     "%s%s ago   %-5s %-17s   predicted %s%s   took %s%s   queued %s%s%s",
		     before(&age), age.text, device_label(decision->now.device),
		     rbk_reason_name(decision->now.reason), before(&predicted), predicted.text,
		     before(&took), took.text, before(&queued), queued.text,
		     decision->now.res < 0 ? "   failed" : "");
	}
	if (n == 0)
		line(lines, STYLE_DIM, "no task is in the log");
}

void detail_draw_plan(const struct model *model, uint32_t tenant, uint32_t slot,
		      struct sheet_lines *lines)
{
	const struct model_plan *plan = model_plan(model, tenant, slot);
	char cut[TEXT_CUT_BYTES];
	uint64_t age_ns;

	if (!plan) {
		line(lines, STYLE_WARN, "this plan is gone");
		return;
	}
	age_ns = model->updated_at_ns > plan->now.made_at_ns
			 ? model->updated_at_ns - plan->now.made_at_ns
			 : 0;
	line(lines, STYLE_BOLD, "Plan %s%s", text_name(plan->now.name),
	     plan->now.state == RBK_STATS_PLAN_GONE ? " (gone)" : "");
	line(lines, STYLE_PLAIN, "tenant %s   session %u   plan %u   fingerprint %016llx",
	     text_name(plan->tenant_name), plan->now.session, plan->now.plan_id,
	     (unsigned long long)plan->now.fingerprint);
	line(lines, STYLE_PLAIN, "made %s ago   tasks %s   now %s/s   at once %s",
	     figure_duration(age_ns).text, count(plan->n_tasks),
	     figure_rate(plan->tasks_per_s).text, count(plan->now.n_inline));
	line(lines, STYLE_PLAIN, "last task of %u rows on %s: %s", plan->now.count,
	     device_label(plan->now.last_device), rbk_reason_name(plan->now.last_reason));
	draw_plan_times(plan, lines);
	line(lines, STYLE_PLAIN, "evictions %s   returns %s   tasks without device memory %s",
	     count(plan->now.n_evictions), count(plan->now.n_returns),
	     count(plan->now.n_memory_constraints));
	text_cut(&plan->now, cut);
	if (cut[0] && model->n_devices > 1)
		line(lines, STYLE_PLAIN, "%s", cut);
	if (plan->now.n_segments > 1)
		line(lines, STYLE_PLAIN,
		     "segments %u, of which %u are in device memory; brought just for a task %s",
		     plan->now.n_segments, plan->now.n_segments_resident,
		     count(plan->now.n_streamed));
	draw_reasons(lines, plan->now.reasons);
	draw_plan_decisions(model, plan, lines);
	draw_top(plan_figures, &plan->now, lines);
}

/* --- A lease --- */

static void draw_lease_memory(const struct model_lease *lease, struct sheet_lines *lines)
{
	const struct rbk_stats_lease *now = &lease->now;

	head(lines, "Granted memory");
	line(lines, STYLE_PLAIN, "granted %s   min %s   wish %s   max %s",
	     figure_bytes_of(now->granted_bytes).text, figure_bytes_of(now->min_bytes).text,
	     figure_bytes_of(now->wish_bytes).text, figure_bytes_of(now->max_bytes).text);
	line(lines, STYLE_PLAIN, "drawn by its programs %s   drawn for what they share %s",
	     figure_bytes_of(now->credited_bytes).text, figure_bytes_of(now->object_bytes).text);
	line(lines, now->waiting_bytes ? STYLE_WARN : STYLE_PLAIN, "waiting for %s",
	     now->waiting_bytes ? figure_bytes_of(now->waiting_bytes).text : "nothing");
	head(lines, "Memory in use");
	line(lines, STYLE_PLAIN, "used %s   of that by drivers %s   peak %s   in %s allocation%s",
	     figure_bytes(model_lease_used(lease)).text, figure_bytes_of(now->extra_bytes).text,
	     figure_bytes_of(now->peak_bytes).text, count(now->n_objects), plural(now->n_objects));
	line(lines, now->flags & RBK_STATS_LEASE_OVER ? STYLE_WARN : STYLE_PLAIN,
	     "seen by the kernel %s   refused %s", figure_bytes_of(now->seen_bytes).text,
	     count(now->n_refused));
	if (now->movable_bytes > 0 || now->flags & (RBK_STATS_LEASE_SLEEPS | RBK_STATS_LEASE_HELD))
		line(lines, STYLE_PLAIN, "in host memory %s of %s that can go there%s",
		     figure_bytes_of(now->moved_bytes).text,
		     figure_bytes_of(now->movable_bytes).text,
		     now->flags & RBK_STATS_LEASE_HELD     ? ", held until it is woken"
		     : now->flags & RBK_STATS_LEASE_SLEEPS ? ", while it sleeps"
							   : "");
}

static void draw_lease_sharing(const struct model_lease *lease, struct sheet_lines *lines)
{
	const struct rbk_stats_lease *now = &lease->now;

	line(lines, now->n_overdue ? STYLE_WARN : STYLE_PLAIN,
	     "shared with other leases: %s had   %s waited for   %s overdue",
	     figure_ns((double)now->slice_ns).text, figure_ns((double)now->slice_wait_ns).text,
	     count(now->n_overdue));
	line(lines, STYLE_PLAIN,
	     "of the last second %s had   %s waited for   longest wait lately %s",
	     figure_part(lease->had_part).text, figure_part(lease->wait_part).text,
	     figure_ns((double)now->longest_wait_ns).text);
	if (now->flags & RBK_STATS_LEASE_QUEUED)
		line(lines, STYLE_PLAIN, "waiting for the device for %s",
		     figure_ns((double)now->queued_ns).text);
}

static void draw_lease_parts(const struct model_lease *lease, struct sheet_lines *lines)
{
	const struct rbk_stats_lease *now = &lease->now;

	if (now->n_submissions == RBK_STATS_ABSENT)
		return;
	head(lines, "Parts of command buffers");
	line(lines, STYLE_PLAIN, "submissions %s   parts %s   slices of dispatches %s",
	     count(now->n_submissions), count(now->n_parts), count(now->n_slices));
	line(lines, STYLE_PLAIN, "stayed whole: %s command buffer%s   %s long dispatch%s",
	     count(now->n_whole), plural(now->n_whole), count(now->n_unsliced),
	     now->n_unsliced == 1 ? "" : "es");
	line(lines, STYLE_PLAIN, "%s parts/s   %s submissions/s   longest part lately %s",
	     figure_rate(lease->parts_per_s).text, figure_rate(lease->submissions_per_s).text,
	     figure_ns((double)now->longest_part_ns).text);
}

static void draw_lease_time(const struct model_lease *lease, struct sheet_lines *lines)
{
	const struct rbk_stats_lease *now = &lease->now;

	head(lines, "Time of the device");
	if (now->busy_ns == RBK_STATS_ABSENT)
		line(lines, STYLE_PLAIN, "not told by the kernel");
	else if (now->busy_percent == RBK_STATS_ABSENT)
		line(lines, STYLE_PLAIN, "not told of the last second   %s since it was opened",
		     figure_ns((double)now->busy_ns).text);
	else
		line(lines, STYLE_PLAIN, "%s%% of the last second   %s since it was opened",
		     count(now->busy_percent), figure_ns((double)now->busy_ns).text);
	if (now->flags & RBK_STATS_LEASE_SHARING)
		draw_lease_sharing(lease, lines);
}

void detail_draw_lease(const struct model *model, uint32_t number, struct sheet_lines *lines)
{
	const struct model_lease *lease = model_lease(model, number);
	const struct rbk_stats_lease *now = lease ? &lease->now : NULL;
	uint64_t age_ns;

	if (!lease) {
		line(lines, STYLE_WARN, "this lease is gone");
		return;
	}
	age_ns = model->updated_at_ns > now->opened_at_ns ? model->updated_at_ns - now->opened_at_ns
							  : 0;
	line(lines, STYLE_BOLD, "Lease %u %s", now->number, text_name(now->name));
	line(lines, STYLE_PLAIN, "tenant %s   on %s   opened %s ago   %s",
	     lease->tenant ? text_name(lease->tenant->now.name) : "–", device_label(now->device),
	     figure_duration(age_ns).text, text_lease_states(now));
	if (now->pid)
		line(lines, STYLE_PLAIN, "opened by process %u of user %u   member%s %u", now->pid,
		     now->uid, plural(now->n_members), now->n_members);
	else
		line(lines, STYLE_PLAIN,
		     "opened by user %u, whose process is gone or not seen   member%s %u", now->uid,
		     plural(now->n_members), now->n_members);
	draw_lease_memory(lease, lines);
	draw_lease_time(lease, lines);
	draw_lease_parts(lease, lines);
	draw_top(lease_figures, now, lines);
}
