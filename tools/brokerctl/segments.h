#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The segments of a task, as brokerctl shows them
 *
 * Segments of a task run one after the other, or several at once. Those on its critical path, with
 * their waits, take as long as the task.
 */
#include <stddef.h>

#include "judge.h"
#include "logs.h"

/* The segments of one task. */
struct task_segments {
	const struct segment_entry *of; /* NULL: not cut, or overwritten */
	uint32_t n;
	const struct pages *pages;
	const struct judge *judge; /* NULL: not known */
	/* Name a node of the plan; NULL: nodes have numbers. */
	const char *(*node_name)(const void *data, uint32_t node);
	const void *data;
};

/*
 * Write "71% on GPU1 (14 of 24 segments), 20% on CPU (10 of 24 segments), 9% waiting to run on
 * GPU1, of which 4% behind tasks of tenant b".
 */
void segments_path(const struct task_segments *segments, char *text, size_t bytes);
/* Print a table of the segments; nothing if there are none. */
void segments_table(const struct task_segments *segments, const char *title);
/* Write the members of a segment, without its device, into a JSON object. */
void segment_members(const struct rbk_stats_segment *segment);
/* Write the JSON member "segments", an array; devices are numbers. */
void segments_json(const struct task_segments *segments);
