/* SPDX-License-Identifier: MIT */
/* The segments of a task: its critical path in a sentence, a table, and JSON. */
#include "segments.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "output.h"
#include "records.h"

/* Shares of a device in the time of a task. */
struct share {
	double exec_ns, wait_ns;
	uint32_t n; /* segments on the critical path that ran there */
};

/* Convert a duration of a page; invalid values are 0. */
static double duration_ns(float ns)
{
	return ns > 0 && ns < 1e18f ? (double)ns : 0;
}

static bool has_run(const struct rbk_stats_segment *segment)
{
	return segment->ended_at_ns > 0 && segment->device < RBK_MAX_DEVICES;
}

/* Add up the times on the critical path. */
static void add_shares(const struct task_segments *segments, struct share shares[RBK_MAX_DEVICES])
{
	const uint64_t path = judge_path(segments->of, segments->n);

	for (uint32_t i = 0; i < segments->n; i++) {
		const struct rbk_stats_segment *segment = &segments->of[i].segment;
		struct share *share;

		if (!has_run(segment) || !(path >> i & 1))
			continue;
		share = &shares[segment->device];
		share->n++;
		share->exec_ns += duration_ns(segment->exec_ns);
		share->wait_ns += duration_ns(segment->queue_ns);
	}
}

static uint32_t count_streamed(const struct task_segments *segments)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < segments->n; i++)
		n += segments->of[i].segment.flags & RBK_DECISION_STREAMED ? 1 : 0;
	return n;
}

/*
 * Find the tenant whose tasks ran longest on a device while segments @from to @to waited for it. If
 * they are several, only those on the critical path count.
 * Return: its name; NULL: nothing is logged that ran then. *ret_ns: how long.
 */
static const char *find_ahead(const struct task_segments *segments, uint32_t from, uint32_t to,
			      uint8_t device, double *ret_ns)
{
	const uint64_t path = from < to ? judge_path(segments->of, segments->n) : UINT64_MAX;
	const unsigned int n = segments->pages->n_tenants;
	double *ahead_ns = calloc(n + 1, sizeof(*ahead_ns));
	unsigned int best = 0;

	for (uint32_t i = from; ahead_ns && i <= to; i++)
		if (segments->of[i].segment.device == device && path >> i & 1)
			judge_ahead(segments->judge, &segments->of[i].segment, ahead_ns);
	for (unsigned int i = 0; ahead_ns && i < n; i++)
		if (ahead_ns[i] > ahead_ns[best])
			best = i;
	*ret_ns = ahead_ns ? ahead_ns[best] : 0;
	free(ahead_ns);
	return *ret_ns > 0 ? segments->pages->tenants[best].name : NULL;
}

__attribute__((format(printf, 4, 5))) static void append(char *text, size_t bytes, size_t *n,
							 const char *format, ...)
{
	va_list args;
	int added;

	if (*n >= bytes)
		return;
	va_start(args, format);
	added = vsnprintf(text + *n, bytes - *n, format, args);
	va_end(args);
	if (added > 0)
		*n += (size_t)added;
}

void segments_path(const struct task_segments *segments, char *text, size_t bytes)
{
	const uint32_t n_beside = judge_n_beside(segments->of, segments->n);
	const struct rbk_stats_segment *first = segments->n > 0 ? &segments->of[0].segment : NULL;
	const uint32_t n_batches = first ? n_batches_of(first) : 1;
	const uint32_t n_all = first ? first->n_segments * n_batches : 0;
	struct share shares[RBK_MAX_DEVICES] = {{.n = 0}};
	const uint32_t n_streamed = count_streamed(segments);
	double total_ns = 0, ahead_ns;
	const char *name;
	size_t n = 0;

	text[0] = '\0';
	add_shares(segments, shares);
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		total_ns += shares[i].exec_ns + shares[i].wait_ns;
	for (unsigned int i = 0; i < RBK_MAX_DEVICES && total_ns > 0; i++)
		if (shares[i].n > 0)
			append(text, bytes, &n, "%s%s on %s (%" PRIu32 " of %" PRIu32 " %s)",
			       n ? ", " : "", text_percent(shares[i].exec_ns, total_ns),
			       device_label(i), shares[i].n, n_all,
			       n_batches > 1 ? "executions" : "segments");
	for (unsigned int i = 0; i < RBK_MAX_DEVICES && total_ns > 0; i++) {
		if (!(shares[i].wait_ns > 0))
			continue;
		append(text, bytes, &n, "%s%s waiting to run on %s", n ? ", " : "",
		       text_percent(shares[i].wait_ns, total_ns), device_label(i));
		name = find_ahead(segments, 0, segments->n - 1, (uint8_t)i, &ahead_ns);
		/* Several tasks may have run at once. */
		if (name)
			append(text, bytes, &n, ", of which %s behind tasks of tenant %s",
			       text_percent(fmin(ahead_ns, shares[i].wait_ns), total_ns),
			       text_name(name));
	}
	if (n_beside > 0)
		append(text, bytes, &n, "; %" PRIu32 " ran beside others, off the critical path",
		       n_beside);
	if (n_streamed > 0)
		append(text, bytes, &n, "; the constants of %" PRIu32 " were brought for this task",
		       n_streamed);
	if (n_batches > 1)
		append(text, bytes, &n, "; the rows streamed in %" PRIu32 " micro-batches",
		       n_batches);
}

static void nodes_cell(const struct task_segments *segments,
		       const struct rbk_stats_segment *segment)
{
	const uint32_t first = segment->first_node;
	const uint32_t last = first + segment->n_nodes - (segment->n_nodes > 0);

	if (segments->node_name && first == last)
		table_cell("%s", segments->node_name(segments->data, first));
	else if (segments->node_name)
		table_cell("%s to %s", segments->node_name(segments->data, first),
			   segments->node_name(segments->data, last));
	else if (first == last)
		table_cell("%" PRIu32, first);
	else
		table_cell("%" PRIu32 " to %" PRIu32, first, last);
}

void segments_table(const struct task_segments *segments, const char *title)
{
	static const char *const heads[] = {"SEGMENT",   "<NODES",     "<DEVICE", "WAITED",  "TOOK",
					    "PREDICTED", "9ELSEWHERE", "CROSSED", "<REASON", NULL};

	if (segments->n == 0)
		return;
	table_begin(title, heads);
	for (uint32_t i = 0; i < segments->n; i++) {
		const struct rbk_stats_segment *segment = &segments->of[i].segment;

		if (segment->n_batches > 1)
			table_cell("%u, batch %u", segment->segment, segment->batch);
		else
			table_cell("%u", segment->segment);
		nodes_cell(segments, segment);
		table_cell("%s", device_label(segment->device));
		table_cell("%s", text_ns(duration_ns(segment->queue_ns)));
		table_cell("%s", text_ns(duration_ns(segment->exec_ns)));
		table_cell("%s", text_ns(duration_ns(segment->predicted_ns)));
		table_cell("%s", text_ns(duration_ns(segment->other_ns)));
		table_cell("%s", text_bytes(segment->crossed_bytes));
		table_cell("%s%s", rbk_reason_name(segment->reason),
			   segment->flags & RBK_DECISION_STREAMED ? ", streamed" : "");
	}
	table_end();
}

void segment_members(const struct rbk_stats_segment *segment)
{
	json_unsigned("segment", segment->segment);
	json_unsigned("batch", segment->batch);
	json_unsigned("batches", n_batches_of(segment));
	json_unsigned("first_node", segment->first_node);
	json_unsigned("nodes", segment->n_nodes);
	json_string("reason", rbk_reason_name(segment->reason));
	json_number("wait_ns", duration_ns(segment->queue_ns));
	json_number("exec_ns", duration_ns(segment->exec_ns));
	json_number("predicted_ns", duration_ns(segment->predicted_ns));
	json_number("other_ns", duration_ns(segment->other_ns));
	json_array("from");
	for (unsigned int i = 0; i < segment->segment && i < 64; i++)
		if (segment->from >> i & 1)
			json_unsigned(NULL, i);
	json_array_end();
	json_unsigned("crossed_bytes", segment->crossed_bytes);
	json_boolean("moved", segment->flags & RBK_DECISION_MOVED);
	json_boolean("explored", segment->flags & RBK_DECISION_EXPLORED);
	json_boolean("partitioned", segment->flags & RBK_DECISION_PARTITIONED);
	json_boolean("streamed", segment->flags & RBK_DECISION_STREAMED);
}

void segments_json(const struct task_segments *segments)
{
	const uint64_t path = judge_path(segments->of, segments->n);

	json_array("segments");
	for (uint32_t i = 0; i < segments->n; i++) {
		const struct rbk_stats_segment *segment = &segments->of[i].segment;
		const char *behind;
		double behind_ns;

		json_item();
		json_optional("device",
			      segment->device < RBK_MAX_DEVICES ? segment->device : UINT64_MAX);
		segment_members(segment);
		json_boolean("critical", path >> i & 1);
		if (segments->judge) {
			behind = find_ahead(segments, i, i, segment->device, &behind_ns);
			json_number("behind_ns", behind_ns);
			json_string("behind", behind);
		}
		json_object_end();
	}
	json_array_end();
}
