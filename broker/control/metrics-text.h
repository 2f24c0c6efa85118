#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Writing what Prometheus reads
 *
 * Two formats of lines, alike but for details that are all in here: Prometheus's own text format
 * (0.0.4), and OpenMetrics (1.0.0), which also carries units and when a count began. Any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum metrics_format {
	METRICS_PLAIN = 0,
	METRICS_OPEN = 1,
};
#define METRICS_FORMATS 2

/* Of a family, without what belongs to the format or the type. */
enum metrics_type {
	METRICS_GAUGE = 0,
	METRICS_COUNTER, /* samples end in _total */
	METRICS_INFO,    /* in _info; always 1 */
	METRICS_HISTOGRAM,
	METRICS_SUMMARY,
};

struct metrics_family {
	const char *name; /* with its unit, but without ringbroker_, _total and _info */
	const char *help; /* one line, without a full stop */
	enum metrics_type type;
};

enum { METRICS_HEAD_BYTES = 128 };

/* A text that grows. Zeroed but for its format; metrics_text_deinit() frees it. */
struct metrics_text {
	enum metrics_format format;
	char *data; /* not NUL-terminated */
	size_t bytes, capacity;
	bool is_out_of_memory; /* what is here is cut */
	struct metrics_family family;

	char head[METRICS_HEAD_BYTES]; /* all samples of the family begin so */
	size_t n_head;
};

/* Begins a family; its samples follow, those of one set of labels together. */
void metrics_begin(struct metrics_text *text, const struct metrics_family *family);

/*
 * A sample of it: @suffix is what is special to this one (_bucket, _sum, _count), or NULL for what
 * every sample of its type has. @labels and @more are label="value", separated by commas, or NULL.
 */
void metrics_count(struct metrics_text *text, const char *suffix, const char *labels,
		   const char *more, uint64_t value);
/* @value / 10^@digits, exactly; @digits is 9 at most. */
void metrics_decimal(struct metrics_text *text, const char *suffix, const char *labels,
		     const char *more, uint64_t value, unsigned int digits);
/* To six digits behind the point; nothing if it is not a number, negative, or absurdly large. */
void metrics_real(struct metrics_text *text, const char *suffix, const char *labels,
		  const char *more, double value);
/* When what was just written began to be counted, on CLOCK_REALTIME. OpenMetrics only. */
void metrics_created(struct metrics_text *text, const char *labels, const char *more,
		     uint64_t realtime_ns);

/* What has to come last. */
void metrics_end(struct metrics_text *text);

void metrics_text_deinit(struct metrics_text *text);

/*
 * @value as it stands between the quotes of a label. What is not printable ASCII is '?'. Cut at
 * @bytes, never within an escape.
 */
void metrics_escape(char *to, size_t bytes, const char *value);

/* The format that a request's Accept header likes best; NULL: it has none. */
enum metrics_format metrics_accepted(const char *accept);
const char *metrics_content_type(enum metrics_format format);
