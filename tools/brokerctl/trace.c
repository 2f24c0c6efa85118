/* SPDX-License-Identifier: MIT */
/*
 * brokerctl trace: a time line of what tasks waited for and where they ran
 *
 * The output is a picture (trace-svg.c), or in Chrome's trace format, which the Perfetto UI opens.
 * A process of the trace is a tenant, or a device with its counters. A track of a tenant shows
 * tasks that wait for a device, or tasks that run on it, and has as many lanes as spans overlap.
 * Arrows lead from the wait to the execution of tasks that were moved to another device, between
 * the parts of split tasks, and between the segments of a task of which one read what the other
 * wrote. Below the tasks are the tenant's leases (trace-slices.c).
 *
 * The trace contains what the decision logs hold, and with --seconds what they receive meanwhile.
 * The logs are read more often than a busy tenant fills its log. Records that are overwritten
 * nevertheless are counted and reported.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "logs.h"
#include "output.h"
#include "records.h"
#include "segments.h"
#include "timeline.h"
#include "trace-events.h"
#include "trace-slices.h"
#include "trace-svg.h"
#include "util/clock.h"
#include "util/number.h"

enum {
	EVENTS_DEFAULT = 200000,
	EVENTS_MAX = 1000000,
	SAMPLES_MAX = 100000,
	/* kinds of tracks of a tenant and device */
	TRACK_KINDS = 2,
	/* Mean numbers of segments of a task, and of arrows to them, above which more are left out
	 */
	SEGMENTS_PER_TASK = 4,
	/* tids reserved for each track: one per lane, and at most one lane per event */
	LANES_MAX = EVENTS_MAX,
	/* Likewise for tracks of leases, whose spans overlap in damaged pages only */
	LEASE_LANES_MAX = 64,
};
static const double max_seconds = 3600;
/* A log of 4,096 records lasts this long at 400,000 tasks per second. */
static const long poll_ns = 10000000;
static const unsigned int polls_per_look = 50; /* interval of checks for new tenants: 0.5 s */

enum track_kind { TRACK_QUEUE = 0, TRACK_RUN = 1 };

/* A span is of a task or a segment, or of the smaller part of a split one. */
enum span_kind { SPAN_WHOLE, SPAN_PART, SPAN_SEGMENT, SPAN_SEGMENT_PART };

/* The picture has a row of each device, and of the first leases. */
enum { SVG_LEASES = 24 };

/* Counters of a device at one time. */
struct sample {
	uint64_t at_ns;
	uint8_t device;
	uint64_t charged, outside, backlog_ns; /* RBK_STATS_ABSENT: not known */
	double contention, utilization;
};

/* A tenant that was seen at any time, since pages are created and closed. */
struct traced {
	uint32_t number;
	char name[RBK_STATS_NAME_BYTES];
	uint64_t next;         /* index in its log */
	uint64_t next_segment; /* index in its segments */
	uint64_t n_lost;
	struct trace_slices_place slices;
};

struct record {
	struct rbk_stats_decision decision;
	unsigned int traced;
	char plan[RBK_NAME_BYTES];
	bool is_cut; /* its plan is cut into segments */
};

struct trace {
	struct control *control;
	struct pages pages;
	struct traced *traced;
	unsigned int n_traced;
	struct record *records;
	size_t n_records, max_records;
	struct segment_entry *segments; /* tenant: index in traced */
	size_t n_segments, max_segments;
	size_t *record_of;           /* of each segment that has a span */
	const struct span **span_of; /* of each segment's execution; NULL: none */
	struct trace_slices slices;
	struct sample *samples;
	size_t n_samples;
	uint64_t n_left_out;          /* records beyond max_records */
	uint64_t n_whole;             /* tasks of plans that are cut, without their segments */
	uint64_t n_segments_left_out; /* segments, and arrows between them, beyond their limits */
	uint32_t n_devices;
	bool is_svg; /* --svg */
};

/* --- Recording --- */

/*
 * Find the index in trace->traced of the tenant of @page, adding an entry if necessary.
 * Return: EXIT_*.
 */
static int traced_of(struct trace *trace, const struct tenant_page *page, unsigned int *ret)
{
	struct traced *grown;

	for (unsigned int i = 0; i < trace->n_traced; i++) {
		if (trace->traced[i].number == page->number) {
			*ret = i;
			return EXIT_OK;
		}
	}
	grown = realloc(trace->traced, (trace->n_traced + 1) * sizeof(*grown));
	if (!grown)
		return control_fail(EXIT_FAILED, "out of memory");
	trace->traced = grown;
	grown[trace->n_traced] = (struct traced){.number = page->number};
	memcpy(grown[trace->n_traced].name, page->name, sizeof(page->name));
	grown[trace->n_traced].next = log_oldest(page, log_head(page));
	trace_slices_begin(&grown[trace->n_traced].slices, page);
	*ret = trace->n_traced++;
	return EXIT_OK;
}

static void add_record(struct trace *trace, const struct tenant_page *page, unsigned int traced,
		       const struct rbk_stats_decision *decision)
{
	struct record *record;

	if (trace->n_records == trace->max_records) {
		trace->n_left_out++;
		return;
	}
	record = &trace->records[trace->n_records++];
	record->decision = *decision;
	record->traced = traced;
	record->is_cut = log_plan_name(page, decision, record->plan) > 1;
}

/* Return: EXIT_* */
static int add_segment(struct trace *trace, unsigned int traced,
		       const struct rbk_stats_segment *segment)
{
	const size_t max = trace->max_segments ? 2 * trace->max_segments : 1024;
	struct segment_entry *grown;

	if (trace->n_segments == trace->max_segments) {
		grown = reallocarray(trace->segments, max, sizeof(*grown));
		if (!grown)
			return control_fail(EXIT_FAILED, "out of memory");
		trace->segments = grown;
		trace->max_segments = max;
	}
	trace->segments[trace->n_segments++] = (struct segment_entry){*segment, traced};
	return EXIT_OK;
}

/*
 * Read new segments of a tenant, after its tasks: those of every task that was read are there.
 * Return: EXIT_*.
 */
static int read_segments(struct trace *trace, const struct tenant_page *page, unsigned int traced)
{
	struct traced *tenant = &trace->traced[traced];
	struct rbk_stats_segment segment;
	uint64_t oldest, head = segments_head(page, &oldest);
	int status = EXIT_OK;

	/* A new page, or one that was read too late: a task without all segments is shown whole. */
	if (tenant->next_segment > head || tenant->next_segment < oldest)
		tenant->next_segment = oldest;
	for (; tenant->next_segment < head && status == EXIT_OK; tenant->next_segment++) {
		if (!rbk_stats_segment(&page->view, tenant->next_segment, &segment))
			continue;
		if (trace->n_segments < SEGMENTS_PER_TASK * trace->max_records)
			status = add_segment(trace, traced, &segment);
		else
			trace->n_segments_left_out++;
	}
	return status;
}

/*
 * Read new records of all logs.
 * Return: EXIT_*.
 */
static int read_logs(struct trace *trace)
{
	const bool is_full = trace->n_records == trace->max_records;
	struct rbk_stats_decision decision;
	unsigned int at = 0;

	for (unsigned int i = 0; i < trace->pages.n_tenants; i++) {
		const struct tenant_page *page = &trace->pages.tenants[i];
		uint64_t head = log_head(page), oldest = log_oldest(page, head);
		uint64_t first = log_first(page);
		struct traced *traced;
		int status = traced_of(trace, page, &at);

		if (status)
			return status;
		traced = &trace->traced[at];
		/* The tenant has a new page. */
		if (traced->next > head)
			traced->next = oldest;
		/* Records removed by a reset were not lost. */
		if (traced->next < first)
			traced->next = first;
		if (traced->next < oldest) {
			traced->n_lost += oldest - traced->next;
			traced->next = oldest;
		}
		for (; traced->next < head; traced->next++) {
			if (rbk_stats_decision(&page->view, traced->next, &decision))
				add_record(trace, page, at, &decision);
			else
				traced->n_lost++;
		}
		/* None of their tasks would be in the trace. */
		status = is_full ? EXIT_OK : read_segments(trace, page, at);
		if (status)
			return status;
		if (trace_slices_read(&trace->slices, page, at, &traced->slices))
			return control_fail(EXIT_FAILED, "out of memory");
	}
	trace_slices_find_names(&trace->slices, &trace->pages);
	return EXIT_OK;
}

/* Sample the devices' counters, once per update. */
static void read_counters(struct trace *trace)
{
	const struct rbk_stats_view *root = &trace->pages.root;
	struct rbk_stats_device device;
	uint64_t at_ns;

	if (!root->page)
		return;
	at_ns = rbk_stats_load(&root->page->updated_at_ns);
	if (trace->n_samples > 0 && trace->samples[trace->n_samples - 1].at_ns == at_ns)
		return;
	for (uint32_t i = 0; i < root->n_devices && trace->n_samples < SAMPLES_MAX; i++) {
		device_copy(root, i, &device);
		trace->samples[trace->n_samples++] = (struct sample){
			.at_ns = at_ns,
			.device = (uint8_t)i,
			.charged = device.memory_charged,
			.outside = device.memory_outside,
			.backlog_ns = device.backlog_ns,
			.contention = device.contention,
			.utilization = device.utilization,
		};
	}
}

/*
 * Record for the given time. If the broker dies, keep what it wrote.
 * Return: EXIT_*.
 */
static int record_all(struct trace *trace, double seconds)
{
	const struct timespec pause = {.tv_nsec = poll_ns};
	const double end_ns = (double)clock_now_ns() + 1e9 * seconds;
	struct rbk_error error = {""};
	int status, r;

	for (unsigned int n = 1;; n++) {
		status = read_logs(trace);
		read_counters(trace);
		if (status || (double)clock_now_ns() >= end_ns)
			return status;
		nanosleep(&pause, NULL);
		if (n % polls_per_look)
			continue;
		/* Read what was written before a page was closed. */
		status = read_logs(trace);
		if (status)
			return status;
		r = pages_update(trace->control->rbk, &trace->pages, &error);
		if (r) {
			control_fail(EXIT_OK, "%s; the trace ends here", text_name(error.text));
			return read_logs(trace);
		}
	}
}

/* --- Writing --- */

/* Convert a duration of a page to nanoseconds; invalid values are 0. */
static uint64_t duration_ns(float ns)
{
	return ns > 0 && ns < 1e15f ? (uint64_t)ns : 0;
}

static uint32_t tenant_pid(unsigned int traced)
{
	return RBK_MAX_DEVICES + 1 + traced;
}

static uint32_t device_pid(uint32_t device)
{
	return device + 1;
}

/* Return the track of a tenant, device and kind. */
static uint32_t track_of(unsigned int traced, uint32_t device, enum track_kind kind)
{
	return (traced * RBK_MAX_DEVICES + device) * TRACK_KINDS + kind;
}

/* Return the number of tracks of tasks; those of leases follow. */
static uint32_t n_task_tracks(const struct trace *trace)
{
	return trace->n_traced * RBK_MAX_DEVICES * TRACK_KINDS;
}

/* Return the lease of a span; NULL: it is of a task. */
static const struct trace_lease *lease_of(const struct trace *trace, const struct span *span)
{
	const uint32_t n = n_task_tracks(trace);

	return span->track < n ? NULL : &trace->slices.leases[span->track - n];
}

static uint32_t tid_of_lease(const struct trace *trace, const struct span *span)
{
	const uint32_t lane = span->lane < LEASE_LANES_MAX ? span->lane : LEASE_LANES_MAX - 1;

	return RBK_MAX_DEVICES * TRACK_KINDS * LANES_MAX +
	       (span->track - n_task_tracks(trace)) * LEASE_LANES_MAX + lane + 1;
}

static uint32_t tid_of(const struct span *span)
{
	const uint32_t in_tenant = span->track % (RBK_MAX_DEVICES * TRACK_KINDS);

	return in_tenant * LANES_MAX + span->lane + 1;
}

static void write_processes(const struct trace *trace)
{
	const struct rbk_stats_view *view = trace->pages.root.page ? &trace->pages.root : NULL;
	struct rbk_stats_device device;
	char name[160];

	for (uint32_t i = 0; i < trace->n_devices && view; i++) {
		device_copy(view, i, &device);
		snprintf(name, sizeof(name), "%s: %s", device_label(i), text_name(device.name));
		event_name("process_name", device_pid(i), 0, name);
		event_order("process_sort_index", device_pid(i), 0, device_pid(i));
	}
	for (unsigned int i = 0; i < trace->n_traced; i++) {
		snprintf(name, sizeof(name), "tenant %s", trace->traced[i].name);
		event_name("process_name", tenant_pid(i), 0, name);
		event_order("process_sort_index", tenant_pid(i), 0, tenant_pid(i));
	}
}

/* Name each lane once, at its first span. */
static void write_threads(const struct trace *trace, const struct span *spans, size_t n_spans)
{
	const size_t n_tracks = n_task_tracks(trace) + trace->slices.n_leases;
	uint32_t *n_lanes = calloc(n_tracks + 1, sizeof(*n_lanes));
	char name[128];

	/* If memory is short, tracks have numbers instead of names. */
	for (size_t i = 0; i < n_spans && n_lanes; i++) {
		const struct span *span = &spans[i];
		const bool is_queue = span->track % TRACK_KINDS == TRACK_QUEUE;
		const char *device = device_label(span->track / TRACK_KINDS % RBK_MAX_DEVICES);
		uint32_t pid = tenant_pid(span->track / TRACK_KINDS / RBK_MAX_DEVICES);

		if (span->lane < n_lanes[span->track])
			continue;
		n_lanes[span->track] = span->lane + 1;
		if (lease_of(trace, span)) {
			trace_slices_track(lease_of(trace, span), name, sizeof(name));
			pid = tenant_pid(lease_of(trace, span)->traced);
			event_name("thread_name", pid, tid_of_lease(trace, span), name);
			event_order("thread_sort_index", pid, tid_of_lease(trace, span),
				    tid_of_lease(trace, span));
			continue;
		}
		snprintf(name, sizeof(name), "%s%s %u", is_queue ? "waits for " : "", device,
			 span->lane);
		event_name("thread_name", pid, tid_of(span), name);
		event_order("thread_sort_index", pid, tid_of(span), tid_of(span));
	}
	free(n_lanes);
}

/* @segment: NULL: the whole task */
static void write_arguments(const struct trace *trace, const struct record *record,
			    const struct rbk_stats_segment *segment)
{
	const struct rbk_stats_decision *decision = &record->decision;

	json_object("args");
	if (segment) {
		json_string("device", device_label(segment->device));
		segment_members(segment);
		json_unsigned("segments", segment->n_segments);
	}
	json_string("tenant", trace->traced[record->traced].name);
	json_unsigned("index", decision->sequence - 1);
	json_unsigned("user_data", decision->user_data);
	json_unsigned("session", decision->session);
	json_unsigned("plan_id", decision->plan_id);
	json_unsigned("count", decision->count);
	json_signed("res", decision->res);
	json_boolean("deadline_missed", decision->flags & RBK_DECISION_DEADLINE_MISSED);
	if (segment) {
		json_object_end();
		return;
	}
	json_string("device", device_label(decision->device));
	json_string("reason", rbk_reason_name(decision->reason));
	json_number("predicted_ns", (double)decision->predicted_ns);
	json_number("other_ns", (double)decision->other_ns);
	json_boolean("moved", decision->flags & RBK_DECISION_MOVED);
	json_boolean("explored", decision->flags & RBK_DECISION_EXPLORED);
	json_unsigned("split_count", decision->split_count);
	json_object_end();
}

/* Encode a span's kind, and its index in records or segments. */
static uint64_t about_of(size_t index, enum span_kind kind)
{
	return (uint64_t)index << 2 | kind;
}

static size_t index_of(const struct span *span)
{
	return (size_t)(span->about >> 2);
}

static enum span_kind kind_of(const struct span *span)
{
	return (enum span_kind)(span->about & 3);
}

/* Return true if rows of the task ran on two devices; segments that did are not known here. */
static bool is_split_task(const struct record *record)
{
	return record->decision.flags & RBK_DECISION_PARTITIONED && !record->is_cut;
}

static bool is_of_segment(const struct span *span)
{
	return kind_of(span) == SPAN_SEGMENT || kind_of(span) == SPAN_SEGMENT_PART;
}

static bool is_part(const struct span *span)
{
	return kind_of(span) == SPAN_PART || kind_of(span) == SPAN_SEGMENT_PART;
}

/* Return the record of a span's task. */
static const struct record *record_of(const struct trace *trace, const struct span *span)
{
	const size_t index = index_of(span);

	return &trace->records[is_of_segment(span) ? trace->record_of[index] : index];
}

/* Return the number of an arrow of the span: those of segments follow those of tasks. */
static uint64_t arrow_of(const struct trace *trace, const struct span *span)
{
	return index_of(span) + (is_of_segment(span) ? trace->n_records : 0);
}

/*
 * Write an end of an arrow. It begins at a span's beginning and ends in the middle of another span,
 * so never earlier.
 */
static void write_flow(const struct trace *trace, const struct span *span, const char *phase,
		       const char *name, uint64_t id)
{
	uint64_t at_ns = span->began_ns;

	if (phase[0] == 'f')
		at_ns += (span->ended_ns - span->began_ns) / 2;
	event_begin(phase, tenant_pid(record_of(trace, span)->traced), tid_of(span));
	json_string("cat", "flow");
	json_string("name", name);
	json_unsigned("id", id);
	event_time("ts", at_ns);
	if (phase[0] == 'f')
		json_string("bp", "e");
	json_end();
}

/* Return the name of a tenant of the trace, @data. */
static const char *name_of_tenant(const void *data, unsigned int traced)
{
	return ((const struct trace *)data)->traced[traced].name;
}

static void write_slice(const struct trace *trace, const struct span *span)
{
	const struct trace_lease *lease = lease_of(trace, span);

	event_begin("X", tenant_pid(lease->traced), tid_of_lease(trace, span));
	trace_slices_write(&trace->slices, lease, span, name_of_tenant, trace);
}

static void write_span(const struct trace *trace, const struct span *span)
{
	const struct record *record = record_of(trace, span);
	const bool is_queue = span->track % TRACK_KINDS == TRACK_QUEUE;
	const bool is_segment = is_of_segment(span);
	const struct rbk_stats_segment *segment =
		is_segment ? &trace->segments[index_of(span)].segment : NULL;
	const uint16_t flags = is_segment ? segment->flags : record->decision.flags;
	const bool is_split = is_segment ? flags & RBK_DECISION_PARTITIONED : is_split_task(record);
	char name[RBK_NAME_BYTES + 32];
	size_t n;

	event_begin("X", tenant_pid(record->traced), tid_of(span));
	json_string("cat", is_queue ? "queue" : "execution");
	n = (size_t)snprintf(name, sizeof(name), "%s", record->plan[0] ? record->plan : "?");
	if (segment)
		n += (size_t)snprintf(name + n, sizeof(name) - n, " %u/%u", segment->segment + 1u,
				      segment->n_segments);
	if (segment && segment->n_batches > 1)
		snprintf(name + n, sizeof(name) - n, " batch %u/%u", segment->batch + 1u,
			 segment->n_batches);
	json_string("name", name);
	event_time("ts", span->began_ns);
	event_time("dur", span->ended_ns - span->began_ns);
	write_arguments(trace, record, segment);
	json_end();
	if (is_split && !is_queue)
		write_flow(trace, span, is_part(span) ? "f" : "s", "split", arrow_of(trace, span));
	else if (!is_segment && !is_split && flags & RBK_DECISION_MOVED &&
		 duration_ns(record->decision.queue_ns) > 0)
		write_flow(trace, span, is_queue ? "s" : "f", "moved", arrow_of(trace, span));
}

/* Write an arrow to each segment from every segment that wrote what the first one read. */
static void write_crossings(struct trace *trace)
{
	const uint64_t first_id = trace->n_records + trace->n_segments;
	const uint64_t end_id = first_id + SEGMENTS_PER_TASK * trace->max_records;
	uint64_t id = first_id;

	for (size_t i = 0; i < trace->n_segments; i++) {
		const struct rbk_stats_segment *segment = &trace->segments[i].segment;

		for (uint32_t from = 0; trace->span_of[i] && from < segment->segment && from < 64;
		     from++) {
			const size_t writer = i - (segment->segment - from);

			if (!(segment->from >> from & 1) || !trace->span_of[writer])
				continue;
			if (id == end_id) {
				trace->n_segments_left_out++;
				continue;
			}
			write_flow(trace, trace->span_of[writer], "s", "crossed", id);
			write_flow(trace, trace->span_of[i], "f", "crossed", id++);
		}
	}
}

static void write_counter(const struct sample *sample, const char *name, const char *unit,
			  double value)
{
	event_begin("C", device_pid(sample->device), 0);
	json_string("name", name);
	event_time("ts", sample->at_ns);
	json_object("args");
	json_number(unit, value);
	json_object_end();
	json_end();
}

static void write_counters(const struct trace *trace)
{
	for (size_t i = 0; i < trace->n_samples; i++) {
		const struct sample *sample = &trace->samples[i];

		write_counter(sample, "utilization", "share", sample->utilization);
		write_counter(sample, "contention", "factor", sample->contention);
		write_counter(sample, "backlog", "ms", (double)sample->backlog_ns / 1e6);
		if (sample->device == RBK_DEVICE_CPU)
			continue;
		if (sample->charged != RBK_STATS_ABSENT)
			write_counter(sample, "VRAM of tenants", "bytes", (double)sample->charged);
		if (sample->outside != RBK_STATS_ABSENT)
			write_counter(sample, "VRAM of others", "bytes", (double)sample->outside);
	}
}

static void add_span(struct span *spans, size_t *n_spans, uint64_t began_ns, uint64_t ended_ns,
		     uint32_t track, uint64_t about)
{
	spans[(*n_spans)++] = (struct span){
		.began_ns = began_ns, .ended_ns = ended_ns, .track = track, .about = about};
}

/* Return the device of the smaller part: the log names the GPU only if it had the larger one. */
static uint32_t other_part(uint32_t device)
{
	return device == RBK_DEVICE_CPU ? RBK_DEVICE_GPU : RBK_DEVICE_CPU;
}

/* Make at most three spans per segment: as make_spans() for a task. */
static void add_segment_spans(const struct trace *trace, size_t i, size_t record,
			      struct span *spans, size_t *n_spans)
{
	const struct rbk_stats_segment *segment = &trace->segments[i].segment;
	const uint64_t ended_ns = segment->ended_at_ns;
	const uint64_t began_ns = saturating_sub(ended_ns, duration_ns(segment->exec_ns));
	const uint64_t ready_ns = saturating_sub(began_ns, duration_ns(segment->queue_ns));
	const unsigned int traced = trace->segments[i].tenant;

	trace->record_of[i] = record;
	if (ended_ns == 0 || segment->device >= RBK_MAX_DEVICES)
		return;
	if (ready_ns < began_ns)
		add_span(spans, n_spans, ready_ns, began_ns,
			 track_of(traced, segment->device, TRACK_QUEUE), about_of(i, SPAN_SEGMENT));
	add_span(spans, n_spans, began_ns, ended_ns, track_of(traced, segment->device, TRACK_RUN),
		 about_of(i, SPAN_SEGMENT));
	if (segment->flags & RBK_DECISION_PARTITIONED)
		add_span(spans, n_spans, began_ns, ended_ns,
			 track_of(traced, other_part(segment->device), TRACK_RUN),
			 about_of(i, SPAN_SEGMENT_PART));
}

/*
 * Make at most three spans per record: the wait, the execution, and the smaller part of a split
 * task; or the spans of its segments.
 */
static size_t make_spans(struct trace *trace, struct span *spans)
{
	size_t n = 0;

	for (size_t i = 0; i < trace->n_records; i++) {
		const struct record *record = &trace->records[i];
		const struct rbk_stats_decision *decision = &record->decision;
		uint64_t ended_ns = decision->ended_at_ns, exec_ns, queue_ns, began_ns;
		uint32_t device = decision->device < RBK_MAX_DEVICES ? decision->device : 0;
		const struct segment_entry *segments;
		uint32_t n_segments;

		segments = segments_find(trace->segments, trace->n_segments, record->traced,
					 decision, &n_segments);
		for (uint32_t k = 0; k < n_segments; k++)
			add_segment_spans(trace, (size_t)(segments - trace->segments) + k, i, spans,
					  &n);
		if (segments)
			continue;
		exec_ns = duration_ns(decision->exec_ns);
		began_ns = ended_ns > exec_ns ? ended_ns - exec_ns : 0;
		queue_ns = duration_ns(decision->queue_ns);
		if (queue_ns > began_ns)
			queue_ns = began_ns;
		if (queue_ns > 0)
			add_span(spans, &n, began_ns - queue_ns, began_ns,
				 track_of(record->traced, device, TRACK_QUEUE),
				 about_of(i, SPAN_WHOLE));
		add_span(spans, &n, began_ns, ended_ns, track_of(record->traced, device, TRACK_RUN),
			 about_of(i, SPAN_WHOLE));
		trace->n_whole += record->is_cut;
		if (!is_split_task(record))
			continue;
		add_span(spans, &n, began_ns, ended_ns,
			 track_of(record->traced, other_part(device), TRACK_RUN),
			 about_of(i, SPAN_PART));
	}
	return n;
}

static int compare_segments(const void *a, const void *b)
{
	const struct segment_entry *first = a, *second = b;

	if (first->tenant != second->tenant)
		return first->tenant < second->tenant ? -1 : 1;
	/* Records are written task by task. */
	return (first->segment.sequence > second->segment.sequence) -
	       (first->segment.sequence < second->segment.sequence);
}

/* Return: 0; -ENOMEM */
static int prepare_segments(struct trace *trace)
{
	trace->record_of = calloc(trace->n_segments + 1, sizeof(*trace->record_of));
	trace->span_of = calloc(trace->n_segments + 1, sizeof(*trace->span_of));
	if (!trace->record_of || !trace->span_of)
		return -ENOMEM;
	if (trace->n_segments > 0)
		qsort(trace->segments, trace->n_segments, sizeof(*trace->segments),
		      compare_segments);
	return 0;
}

static void note_span(struct trace *trace, const struct span *span)
{
	if (!lease_of(trace, span) && kind_of(span) == SPAN_SEGMENT &&
	    span->track % TRACK_KINDS == TRACK_RUN)
		trace->span_of[index_of(span)] = span;
}

/* Make a bar of a span, unless the picture has none. Return: the number of bars. */
static size_t make_bar(const struct trace *trace, const struct span *span, struct span *ret)
{
	static const enum trace_svg_bar slice_bars[SLICE_SPANS] = {
		[SLICE_WAIT] = TRACE_SVG_WAIT,
		[SLICE_HELD] = TRACE_SVG_SLICE,
		[SLICE_OVERDUE] = TRACE_SVG_OVERDUE,
	};
	const struct trace_lease *lease = lease_of(trace, span);
	const bool has_tenants = trace->n_traced > 1;
	const size_t row = lease ? (size_t)(lease - trace->slices.leases) : 0;
	unsigned int colour = 0;

	*ret = *span;
	if (lease) {
		ret->track = RBK_MAX_DEVICES + (uint32_t)row;
		ret->about = trace_svg_about(has_tenants ? lease->traced : (unsigned int)row,
					     slice_bars[trace_slices_kind(span)]);
		return row < SVG_LEASES;
	}
	if (has_tenants)
		colour = record_of(trace, span)->traced;
	else if (is_of_segment(span))
		colour = trace->segments[index_of(span)].segment.segment;
	ret->track = span->track / TRACK_KINDS % RBK_MAX_DEVICES;
	ret->about = trace_svg_about(colour, is_part(span) ? TRACE_SVG_PART : TRACE_SVG_EXECUTION);
	return span->track % TRACK_KINDS == TRACK_RUN;
}

/* Return: 0; a negative errno. */
static int write_svg(const struct trace *trace, const struct span *spans, size_t n_spans)
{
	struct span *bars = calloc(n_spans + 1, sizeof(*bars));
	const char **names = calloc(trace->n_traced + 1, sizeof(*names));
	struct trace_svg picture = {.names = names,
				    .n_names = trace->n_traced > 1 ? trace->n_traced : 0};
	char rows[SVG_LEASES][16];
	size_t n = 0;
	int r = bars && names ? 0 : -ENOMEM;

	for (unsigned int i = 0; i < trace->n_traced && !r; i++)
		names[i] = trace->traced[i].name;
	for (; picture.n_rows < trace->slices.n_leases && picture.n_rows < SVG_LEASES;
	     picture.n_rows++)
		snprintf(rows[picture.n_rows], sizeof(rows[0]), "lease %u",
			 trace->slices.leases[picture.n_rows].number);
	for (size_t i = 0; i < n_spans && !r; i++)
		n += make_bar(trace, &spans[i], &bars[n]);
	picture.rows = rows;
	picture.bars = bars;
	picture.n_bars = n;
	if (!r)
		r = trace_svg_write(&picture);
	free(names);
	free(bars);
	return r;
}

/* Return: EXIT_*. */
static int write_all(struct trace *trace)
{
	struct span *spans = calloc(3 * (trace->n_records + trace->n_segments) +
					    SLICE_SPANS * trace->slices.n_entries + 1,
				    sizeof(*spans));
	size_t n_spans = 0, n_tasks;
	int r = spans ? prepare_segments(trace) : -ENOMEM;

	if (!r) {
		n_tasks = make_spans(trace, spans);
		n_spans = n_tasks + trace_slices_spans(&trace->slices, spans + n_tasks);
		for (size_t i = n_tasks; i < n_spans; i++)
			spans[i].track += n_task_tracks(trace);
		r = timeline_assign(spans, n_spans);
	}
	if (!r && trace->is_svg) {
		r = write_svg(trace, spans, n_spans);
		free(spans);
		return !r ? EXIT_OK : control_fail(EXIT_FAILED, "cannot write: %s", strerror(-r));
	}
	if (r) {
		free(spans);
		return control_fail(EXIT_FAILED, "out of memory");
	}
	fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", stdout);
	write_processes(trace);
	write_threads(trace, spans, n_spans);
	for (size_t i = 0; i < n_spans; i++) {
		if (lease_of(trace, &spans[i]))
			write_slice(trace, &spans[i]);
		else
			write_span(trace, &spans[i]);
		note_span(trace, &spans[i]);
	}
	write_crossings(trace);
	write_counters(trace);
	fputs("]}\n", stdout);
	free(spans);
	return EXIT_OK;
}

static void say_lost(const struct trace *trace)
{
	const uint64_t n_slices_left_out = trace->slices.n_left_out;
	uint64_t n_lost = 0, n_slices_lost = 0;

	for (unsigned int i = 0; i < trace->n_traced; i++) {
		n_lost += trace->traced[i].n_lost;
		n_slices_lost += trace->traced[i].slices.n_lost;
	}
	if (n_lost > 0)
		control_fail(EXIT_OK,
			     "%" PRIu64 " %s missing: the log was overwritten before it was read",
			     n_lost, n_lost == 1 ? "task is" : "tasks are");
	if (trace->n_whole > 0)
		control_fail(EXIT_OK,
			     "%" PRIu64 " %s shown as a whole: the log of segments was "
			     "overwritten before it was read",
			     trace->n_whole, trace->n_whole == 1 ? "task is" : "tasks are");
	if (trace->n_segments_left_out > 0)
		control_fail(EXIT_OK, "%" PRIu64 " %s missing, beyond four times --max-events",
			     trace->n_segments_left_out,
			     trace->n_segments_left_out == 1
				     ? "segment, or arrow between segments, is"
				     : "segments, or arrows between segments, are");
	if (trace->n_left_out > 0)
		control_fail(EXIT_OK, "%" PRIu64 " %s missing, beyond --max-events",
			     trace->n_left_out, trace->n_left_out == 1 ? "task is" : "tasks are");
	if (n_slices_lost > 0)
		control_fail(EXIT_OK,
			     "%" PRIu64 " %s missing: the log was overwritten before it was read",
			     n_slices_lost, n_slices_lost == 1 ? "timeslice is" : "timeslices are");
	if (n_slices_left_out > 0)
		control_fail(EXIT_OK, "%" PRIu64 " %s missing, beyond --max-events",
			     n_slices_left_out,
			     n_slices_left_out == 1 ? "timeslice is" : "timeslices are");
}

/* --- All of it --- */

/*
 * Open the output before recording. An existing file keeps its contents until the new trace is
 * ready. *@ret_is_new: the file did not exist.
 * Return: EXIT_*.
 */
static int open_output(const struct arguments *arguments, int *ret_fd, bool *ret_is_new)
{
	const char *path = arguments->values[OPT_OUTPUT];

	*ret_fd = -1;
	*ret_is_new = false;
	if (!path && isatty(STDOUT_FILENO))
		return control_misuse(
			arguments, "a trace cannot be printed on a terminal: give --output=FILE");
	if (!path || strcmp(path, "-") == 0)
		return EXIT_OK;
	*ret_fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	*ret_is_new = *ret_fd >= 0;
	if (*ret_fd < 0 && errno == EEXIST)
		*ret_fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (*ret_fd < 0)
		return control_fail(EXIT_FAILED, "cannot write %s: %s", text_name(path),
				    strerror(errno));
	return EXIT_OK;
}

/* Return: EXIT_* */
static int trace_into(struct trace *trace, int fd, double seconds)
{
	int status;

	trace->records = calloc(trace->max_records + 1, sizeof(*trace->records));
	trace->samples = calloc(SAMPLES_MAX, sizeof(*trace->samples));
	if (!trace->records || !trace->samples)
		return control_fail(EXIT_FAILED, "out of memory");
	trace->n_devices = trace->pages.root.page ? trace->pages.root.n_devices : 0;
	status = record_all(trace, seconds);
	if (status)
		return status;
	/* Redirect standard output to the file. A pipe cannot be truncated. */
	if (fd >= 0 && ((ftruncate(fd, 0) < 0 && errno != EINVAL) || dup2(fd, STDOUT_FILENO) < 0))
		return control_fail(EXIT_FAILED, "cannot write: %s", strerror(errno));
	status = write_all(trace);
	say_lost(trace);
	return status;
}

int run_trace(struct control *control, const struct arguments *arguments)
{
	const char *events = arguments->values[OPT_MAX_EVENTS];
	const char *seconds_text = arguments->values[OPT_SECONDS];
	struct trace trace = {.control = control, .is_svg = arguments->values[OPT_SVG]};
	uint64_t max_records = EVENTS_DEFAULT;
	double seconds = 0;
	bool is_new;
	int fd, status;

	if (events && (!pages_number(events, EVENTS_MAX, &max_records) || max_records == 0))
		return control_misuse(arguments, "--max-events takes a number up to %d",
				      EVENTS_MAX);
	if (seconds_text && !control_seconds(seconds_text, max_seconds, &seconds))
		return control_misuse(arguments, "--seconds takes seconds, up to %g", max_seconds);
	trace.max_records = trace.slices.max = (size_t)max_records;
	status = open_output(arguments, &fd, &is_new);
	if (status)
		return status;
	status = control_map(control, arguments->values[OPT_TENANT], &trace.pages);
	if (status == EXIT_OK)
		status = trace_into(&trace, fd, seconds);
	if (fd >= 0)
		close(fd);
	if (status && is_new)
		unlink(arguments->values[OPT_OUTPUT]);
	free(trace.records);
	free(trace.samples);
	free(trace.segments);
	free(trace.record_of);
	free(trace.span_of);
	trace_slices_free(&trace.slices);
	free(trace.traced);
	pages_unmap(&trace.pages);
	return status;
}
