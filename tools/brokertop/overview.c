/* SPDX-License-Identifier: MIT */
/*
 * Overview: devices, processors, reasons for placement, and graphs
 *
 * If space is short the least important parts are omitted first: graphs, then sensors at the ends
 * of lines, then devices, with a line that tells the number of omitted devices.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "figures.h"
#include "monitor/text.h"
#include "picture.h"

enum {
	FULL = 0x2588,
	DARK = 0x2593,
	MEDIUM = 0x2592,
	LIGHT = 0x2591,
	LEASED = '=',
	MAX_USERS = 16,
	MAX_SEGMENTS = 2 * MAX_USERS + 4,
	NAME_BYTES = RBK_STATS_NAME_BYTES + 16,
	BAR_TEXT = 20,    /* columns after a bar */
	GRAPH_WIDTH = 60, /* columns of the narrowest canvas with graphs */
	GRAPH_LINES = 5,  /* lines of the lowest graph */
	TOTAL_BYTES = 64,
};

/* The least part of an interval that is shown */
static const double shown_bubbles = 0.005;

/* --- Lines of parts, of which those are left out that do not fit --- */

struct part {
	int x;
};

static void add(struct canvas *canvas, struct part *part, int y, enum style style, const char *text)
{
	if (part->x + canvas_columns(text) <= canvas->width)
		part->x = canvas_text(canvas, part->x, y, style, text);
}

static void add_format(struct canvas *canvas, struct part *part, int y, enum style style,
		       const char *format, ...) __attribute__((format(printf, 5, 6)));

static void add_format(struct canvas *canvas, struct part *part, int y, enum style style,
		       const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	add(canvas, part, y, style, text);
}

/* --- Memory --- */

struct user {
	const struct model_tenant *tenant;
	double bytes;
};

static int compare_users(const void *a, const void *b)
{
	const struct user *left = a, *right = b;

	return (left->bytes < right->bytes) - (left->bytes > right->bytes);
}

/*
 * Find the largest users of a device's memory, at most @max.
 * Return: their number.
 */
static unsigned int largest(const struct model *model, uint32_t device, struct user *users,
			    unsigned int max, double *ret_others)
{
	unsigned int n = 0;

	*ret_others = 0;
	for (uint32_t i = 0; i < model->n_tenants; i++) {
		const struct model_tenant *tenant = &model->tenants[i];
		struct user user = {tenant, (double)tenant->now.devices[device].memory_used};

		if (!tenant->is_used || !(user.bytes > 0))
			continue;
		if (n < max) {
			users[n++] = user;
		} else {
			/* The last user is the smallest. */
			qsort(users, n, sizeof(*users), compare_users);
			if (user.bytes > users[n - 1].bytes) {
				*ret_others += users[n - 1].bytes;
				users[n - 1] = user;
			} else {
				*ret_others += user.bytes;
			}
		}
	}
	qsort(users, n, sizeof(*users), compare_users);
	return n;
}

/* Write "6.9 / 8.0 GiB", with the unit once if both values share it. */
static void used_of(char text[TOTAL_BYTES], double used, double total)
{
	struct figure_text of = figure_bytes(total), is = figure_bytes(used);
	const char *unit = strchr(of.text, ' '), *other = strchr(is.text, ' ');

	if (unit && other && strcmp(unit, other) == 0)
		snprintf(text, TOTAL_BYTES, "%.*s / %s", (int)(other - is.text), is.text, of.text);
	else
		snprintf(text, TOTAL_BYTES, "%s / %s", is.text, of.text);
}

static double known(uint64_t bytes)
{
	return bytes == RBK_STATS_ABSENT ? 0 : (double)bytes;
}

/*
 * Make segments of a tenant's memory on a device: plans, then memory granted to leases. @names:
 * room for two.
 * Return: the number of segments.
 */
static unsigned int split(const struct model_tenant *tenant, uint32_t device, uint16_t fill,
			  struct segment *segments, char (*names)[NAME_BYTES])
{
	double used = (double)tenant->now.devices[device].memory_used;
	double leased = fmin((double)tenant->leased_bytes[device], used);
	enum style style = tenant_style(tenant->now.number);
	unsigned int n = 0;

	if (used > leased) {
		snprintf(names[n], NAME_BYTES, "%s", text_name(tenant->now.name));
		segments[n] = (struct segment){used - leased, fill, style, names[n]};
		n++;
	}
	if (leased > 0) {
		snprintf(names[n], NAME_BYTES, "%s leased", text_name(tenant->now.name));
		segments[n] = (struct segment){leased, LEASED, style, names[n]};
		n++;
	}
	return n;
}

static void draw_ends(struct canvas *canvas, int x, int y, int width)
{
	canvas_text(canvas, x, y, STYLE_DIM, "▕");
	canvas_text(canvas, x + width + 1, y, STYLE_DIM, "▏");
}

/*
 * Draw a device's memory: tenants, largest first, with their leased parts; unused reserves; memory
 * used outside the broker; available memory, labelled "free"; and, after that gap, the headroom,
 * which is kept free.
 */
static void draw_vram(const struct model *model, struct canvas *canvas, int y, uint32_t device)
{
	static const uint16_t fills[] = {FULL, MEDIUM, DARK};
	const struct rbk_stats_device *about = &model->devices[device].now;
	const int width = canvas->width - 8 - BAR_TEXT;
	struct segment segments[MAX_SEGMENTS];
	char names[MAX_SEGMENTS][NAME_BYTES], text[TOTAL_BYTES];
	struct user users[MAX_USERS];
	double total = known(about->memory_total), others, outside = known(about->memory_outside);
	double reserved = model->devices[device].reserved_bytes, charged = 0, used, budget;
	unsigned int n_users, n = 0;

	canvas_text(canvas, 1, y, STYLE_BOLD, "VRAM");
	n_users = largest(model, device, users, MAX_USERS, &others);
	for (unsigned int i = 0; i < n_users; i++) {
		n += split(users[i].tenant, device, fills[i % 3], &segments[n], &names[n]);
		charged += users[i].bytes;
	}
	/*
	 * Include tenants that the model does not have, for example because only one tenant is
	 * shown.
	 */
	others = fmax(others, known(about->memory_charged) - charged);
	if (others > 0)
		segments[n++] = (struct segment){others, DARK, STYLE_PLAIN, "others"};
	if (reserved > 0)
		segments[n++] = (struct segment){reserved, 0xb7, STYLE_DIM, "reserved"};
	if (outside > 0)
		segments[n++] = (struct segment){outside, LIGHT, STYLE_OUTSIDE, "outside"};
	charged += fmax(others, 0);
	/* Memory above the budget is the headroom. */
	budget = about->memory_budget == RBK_STATS_ABSENT ? total : (double)about->memory_budget;
	used = fmax(charged + outside, known(about->memory_used));
	if (budget > charged + reserved)
		segments[n++] =
			(struct segment){budget - charged - reserved, ' ', STYLE_DIM, "free"};
	if (total > budget + outside)
		segments[n++] =
			(struct segment){total - budget - outside, '/', STYLE_DIM, "headroom"};
	if (!(total > 0)) {
		canvas_format(canvas, 6, y, STYLE_PLAIN,
			      "%s used by tenants; the total is not known",
			      figure_bytes(charged).text);
		return;
	}
	draw_ends(canvas, 6, y, width);
	canvas_bar(canvas, 7, y, width, total, segments, n);
	used_of(text, used, total);
	canvas_format(canvas, 9 + width, y, used >= 0.95 * total ? STYLE_WARN : STYLE_PLAIN,
		      "%s %s", text, figure_part(used / total).text);
}

static void draw_gtt(const struct model *model, struct canvas *canvas, int y, uint32_t device)
{
	const struct rbk_stats_device *about = &model->devices[device].now;
	const int width = (canvas->width - 8 - BAR_TEXT) / 3;
	const double total = known(about->gtt_total), used = known(about->gtt_used);
	const struct segment segment = {used, FULL, STYLE_PLAIN, NULL};
	const double evictions = model_evictions(model);
	char text[TOTAL_BYTES];
	struct part part;

	canvas_text(canvas, 1, y, STYLE_BOLD, "GTT");
	draw_ends(canvas, 6, y, width);
	canvas_bar(canvas, 7, y, width, total, &segment, 1);
	used_of(text, used, total);
	part.x = canvas_text(canvas, 9 + width, y, STYLE_PLAIN, text);
	add_format(canvas, &part, y, evictions > 0 ? STYLE_WARN : STYLE_PLAIN,
		   "   evictions %s/min", figure_count(evictions).text);
	if (about->n_driver_evictions != RBK_STATS_ABSENT && about->n_driver_evictions > 0)
		add_format(canvas, &part, y, STYLE_PLAIN, "   by the driver %s",
			   figure_count((double)about->n_driver_evictions).text);
}

/* Draw a tenant's use and limit, from its own page. */
static void draw_own_vram(const struct model *model, struct canvas *canvas, int y, uint32_t device)
{
	const struct rbk_stats_tenant *tenant = &model->tenants[0].now;
	const struct rbk_stats_tenant_device *memory = &tenant->devices[device];
	const int width = canvas->width - 8 - BAR_TEXT;
	double used = (double)memory->memory_used, reserve = (double)memory->memory_reserve;
	double total = memory->memory_max == UINT64_MAX
			       ? known(model->devices[device].now.memory_total)
			       : (double)memory->memory_max;
	char names[2][NAME_BYTES], text[TOTAL_BYTES];
	struct segment segments[3];
	unsigned int n = split(&model->tenants[0], device, FULL, segments, names);

	segments[n++] = (struct segment){fmax(0, reserve - used), 0xb7, STYLE_DIM, "reserved"};
	canvas_text(canvas, 1, y, STYLE_BOLD, "VRAM");
	draw_ends(canvas, 6, y, width);
	canvas_bar(canvas, 7, y, width, total, segments, n);
	used_of(text, used, total);
	canvas_text(canvas, 9 + width, y, STYLE_PLAIN, text);
}

/* --- Devices --- */

/* Draw the part of the last second that a device was idle between segments of one task. */
static void draw_bubbles(const struct model *model, struct canvas *canvas, struct part *part, int y,
			 uint32_t device)
{
	const double bubbles = model->devices[device].bubble_part;

	if (model->has_rates && bubbles >= shown_bubbles)
		add_format(canvas, part, y, STYLE_PLAIN, "  bubbles %4s",
			   figure_part(bubbles).text);
}

static void draw_device(const struct model *model, struct canvas *canvas, int y, uint32_t device)
{
	const struct rbk_stats_device *about = &model->devices[device].now;
	struct part part = {.x = 1};

	add_format(canvas, &part, y, STYLE_BOLD, "%s ", device_label(device));
	add_format(canvas, &part, y, STYLE_PLAIN, "%.32s", text_name(about->name));
	if (!model->is_root)
		return;
	if (about->flags & RBK_STATS_DEVICE_LOST)
		add(canvas, &part, y, STYLE_BAD, "  ▲ lost, being reopened");
	if (about->flags & RBK_STATS_DEVICE_DRAINED)
		add(canvas, &part, y, STYLE_WARN, "  drained");
	if (about->breaker != RBK_STATS_BREAKER_CLOSED)
		add_format(canvas, &part, y, STYLE_BAD, "  ▲ failed too often: %s",
			   about->breaker == RBK_STATS_BREAKER_PROBING ? "probing" : "not used");
	add_format(canvas, &part, y, STYLE_PLAIN, "  load %4s",
		   figure_part(model_load(about)).text);
	draw_bubbles(model, canvas, &part, y, device);
	if (about->clock_hz != RBK_STATS_ABSENT)
		add_format(canvas, &part, y, STYLE_PLAIN, "  %.0f MHz",
			   fmin((double)about->clock_hz / 1e6, 99999));
	if (about->temperature_millicelsius != RBK_STATS_ABSENT)
		add_format(canvas, &part, y,
			   about->temperature_millicelsius >= 90000 ? STYLE_WARN : STYLE_PLAIN,
			   "  %.0f °C", fmin((double)about->temperature_millicelsius / 1e3, 9999));
	if (about->power_microwatts != RBK_STATS_ABSENT)
		add_format(canvas, &part, y, STYLE_PLAIN, "  %.0f W",
			   fmin((double)about->power_microwatts / 1e6, 99999));
	add_format(canvas, &part, y, STYLE_PLAIN, "  queue %s (%s)",
		   figure_count((double)about->n_queued + (double)about->n_released).text,
		   figure_ns((double)about->backlog_ns).text);
	if (about->paths[0])
		add_format(canvas, &part, y, STYLE_DIM, "  paths %s", text_name(about->paths));
}

/* Return: the line after all devices. */
static int draw_devices(const struct model *model, struct canvas *canvas, int y, int end)
{
	for (uint32_t i = RBK_DEVICE_GPU; i < model->n_devices; i++) {
		const struct rbk_stats_device *about = &model->devices[i].now;
		bool has_gtt = model->is_root && known(about->gtt_total) > 0;
		int lines = 2 + has_gtt;

		if (y + lines > end) {
			canvas_format(canvas, 1, y, STYLE_DIM, "and %u more: enlarge the terminal",
				      model->n_devices - i);
			return y + 1;
		}
		draw_device(model, canvas, y, i);
		if (model->is_root)
			draw_vram(model, canvas, y + 1, i);
		else if (model->n_tenants > 0)
			draw_own_vram(model, canvas, y + 1, i);
		if (has_gtt)
			draw_gtt(model, canvas, y + 2, i);
		y += lines;
	}
	return y;
}

/* --- Processors --- */

/* Return the end of a path, which identifies it better than its beginning. */
static const char *end_of(const char *path, size_t max)
{
	size_t n = strlen(path);

	return n > max ? path + n - max : path;
}

/* Draw the main cause of the waits: in full, or shorter if space is short. */
static void draw_worst(const struct model *model, struct canvas *canvas, struct part *part, int y)
{
	const struct rbk_stats_cause *worst = &model->worst;
	const bool is_own = worst->flags & RBK_STATS_CAUSE_BROKER;
	const enum style style =
		model->contention.flags & RBK_STATS_CONTENDED ? STYLE_WARN : STYLE_PLAIN;
	const char *comm = is_own ? "brokerd itself" : text_name(worst->comm);
	const int x = part->x;

	/* The root cgroup identifies nothing. */
	if (!is_own && worst->cgroup[0] && strcmp(worst->cgroup, "/") != 0)
		add_format(canvas, part, y, style, "  by %s (%s) %s",
			   text_name(end_of(worst->cgroup, 40)), comm,
			   figure_part(model->worst_part).text);
	if (part->x == x)
		add_format(canvas, part, y, style, "  by %s %s", comm,
			   figure_part(model->worst_part).text);
}

/*
 * Draw the host memory of all tenants together as a part of its limit. @is_short selects the place:
 * before other parts if the memory nearly reaches the limit.
 */
static void draw_host(const struct model *model, struct canvas *canvas, struct part *part, int y,
		      bool is_short)
{
	const double used = (double)model->broker.host_bytes, max = (double)model->broker.host_max;
	char text[TOTAL_BYTES];

	/* Not known, or no limit. */
	if (model->broker.host_max == 0 || model->broker.host_max == UINT64_MAX ||
	    is_short != (used >= 0.95 * max))
		return;
	used_of(text, used, max);
	add_format(canvas, part, y, is_short ? STYLE_BAD : STYLE_PLAIN, "  %shost memory %s %s",
		   is_short ? "▲ " : "", text, figure_part(used / max).text);
}

static void draw_cpu(const struct model *model, struct canvas *canvas, int y)
{
	const struct rbk_stats_device *cpu = &model->devices[RBK_DEVICE_CPU].now;
	const struct rbk_stats_contention *about = &model->contention;
	const bool is_contended = about->flags & RBK_STATS_CONTENDED;
	struct part part = {.x = 1};

	add(canvas, &part, y, STYLE_BOLD, "CPU ");
	if (about->n_workers_total)
		add_format(canvas, &part, y, STYLE_PLAIN, " workers %u/%u", about->n_workers,
			   about->n_workers_total);
	add_format(canvas, &part, y, STYLE_PLAIN, "  busy %4s", figure_part(model_load(cpu)).text);
	draw_bubbles(model, canvas, &part, y, RBK_DEVICE_CPU);
	add_format(canvas, &part, y, STYLE_PLAIN, "  queue %s (%s)",
		   figure_count((double)cpu->n_queued + (double)cpu->n_released).text,
		   figure_ns((double)cpu->backlog_ns).text);
	if (model->broker.flags & RBK_STATS_BROKER_FORCE_CPU)
		add(canvas, &part, y, STYLE_WARN, "  force-cpu is on");
	if (is_contended)
		add_format(canvas, &part, y, STYLE_BAD, "  ▲ contended %.1fx",
			   isfinite(about->factor) ? fmax(0, fmin(about->factor, 9999)) : 0);
	if (is_contended && about->factor >= RBK_STATS_MAX_FACTOR)
		add(canvas, &part, y, STYLE_BAD, " or more, at the cap");
	draw_host(model, canvas, &part, y, true);
	if (model->worker_p99_ns > 0)
		add_format(canvas, &part, y, STYLE_PLAIN, "  run-queue p99 %s",
			   figure_ns(model->worker_p99_ns).text);
	if (model->worst_part > 0)
		draw_worst(model, canvas, &part, y);
	else if (is_contended)
		add(canvas, &part, y, STYLE_WARN, "  cause unknown");
	draw_host(model, canvas, &part, y, false);
}

/* --- Tasks --- */

struct reason {
	unsigned int reason;
	double per_s;
};

static int compare_reasons(const void *a, const void *b)
{
	const struct reason *left = a, *right = b;

	return (left->per_s < right->per_s) - (left->per_s > right->per_s);
}

static void draw_tasks(const struct model *model, struct canvas *canvas, int y)
{
	struct reason reasons[RBK_REASON_COUNT];
	struct part part = {.x = 1};
	double sum = 0;

	add(canvas, &part, y, STYLE_BOLD, "TASK ");
	if (!model->has_rates) {
		add(canvas, &part, y, STYLE_DIM, "rates follow with the broker's next update");
		return;
	}
	add_format(canvas, &part, y, STYLE_PLAIN, "%s/s  cpu %s  gpu %s  split %s",
		   figure_rate(model->tasks_per_s).text, figure_rate(model->cpu_per_s).text,
		   figure_rate(model->gpu_per_s).text, figure_rate(model->split_per_s).text);
	for (unsigned int i = 0; i < RBK_REASON_COUNT; i++) {
		reasons[i] = (struct reason){i, model->reasons_per_s[i]};
		sum += reasons[i].per_s;
	}
	if (!(sum > 0))
		return;
	qsort(reasons, RBK_REASON_COUNT, sizeof(reasons[0]), compare_reasons);
	add(canvas, &part, y, STYLE_DIM, "   why:");
	for (unsigned int i = 0; i < RBK_REASON_COUNT && reasons[i].per_s > 0; i++)
		add_format(canvas, &part, y,
			   reasons[i].reason == RBK_REASON_CPU_FALLBACK ? STYLE_WARN : STYLE_PLAIN,
			   "  %s %s", rbk_reason_name(reasons[i].reason),
			   figure_part(reasons[i].per_s / sum).text);
}

/* --- All of it --- */

int overview_draw(const struct model *model, struct canvas *canvas, int y, int height,
		  int table_lines)
{
	/* The table gets what it needs, from 5 lines to half of the height. */
	const int most = height / 2 > 5 ? height / 2 : 5;
	const int wanted = table_lines > 5 ? table_lines : 5;
	const int end = y + height - (wanted < most ? wanted : most);

	y = draw_devices(model, canvas, y, end - 2);
	if (model->is_root)
		draw_cpu(model, canvas, y++);
	draw_tasks(model, canvas, y++);
	/* The graphs get the rest, without an empty line above the table. */
	if (canvas->width >= GRAPH_WIDTH && end - 1 - y >= GRAPH_LINES) {
		graphs_draw(model, canvas, y, end - 1 - y);
		return end;
	}
	/* Leave an empty line if there is room. */
	return y < end ? y + 1 : y;
}

/*
 * Name the row of outside programs, with the one without a lease that used a device which leases
 * share for longest, if there is one and @width has room.
 */
static const char *outside_name(const struct model *model, int width)
{
	static char name[64];
	const struct rbk_stats_outside *outside = model->broker.outside;
	unsigned int best = 0;
	char comm[sizeof(outside->comm) + 1];

	for (unsigned int i = 1; i < RBK_STATS_MAX_OUTSIDE && outside[i].pid > 0; i++)
		if (outside[i].busy_percent > outside[best].busy_percent)
			best = i;
	snprintf(comm, sizeof(comm), "%.*s", (int)sizeof(outside->comm), outside[best].comm);
	snprintf(name, sizeof(name), "  outside: %s %u%%", text_name(comm),
		 outside[best].busy_percent);
	return outside[best].pid > 0 && (int)strlen(name) <= width ? name : "  outside";
}

void overview_draw_outside(const struct model *model, const struct table *table,
			   struct canvas *canvas, int y)
{
	double outside = 0;

	for (uint32_t i = RBK_DEVICE_GPU; i < model->n_devices; i++)
		outside += known(model->devices[i].now.memory_outside);
	for (unsigned int i = 0; i < table->n_columns; i++) {
		if (table->column_x[i] == table->column_end[i])
			continue;
		if (i == 0)
			canvas_text(canvas, table->column_x[i], y, STYLE_OUTSIDE,
				    outside_name(model, table->column_end[i] - table->column_x[i]));
		else if (strcmp(table->columns[i].name, "VRAM") == 0)
			canvas_right(canvas, table->column_end[i], y, STYLE_OUTSIDE,
				     figure_bytes(outside).text);
		else
			canvas_right(canvas, table->column_end[i], y, STYLE_OUTSIDE, "–");
	}
}
