#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Writing text for Prometheus
 *
 * Two formats of lines, alike except for details that only this file knows: Prometheus's own text
 * format (0.0.4), and OpenMetrics (1.0.0), which also has units and times of creation. Any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum metrics_format {
	METRICS_PLAIN = 0,
	METRICS_OPEN = 1,
};
#define METRICS_FORMATS 2

/* Type of a family, independent of the format */
enum metrics_type {
	METRICS_GAUGE = 0,
	METRICS_COUNTER, /* samples end in _total */
	METRICS_INFO,    /* samples end in _info; always 1 */
	METRICS_HISTOGRAM,
	METRICS_SUMMARY,
};

struct metrics_family {
	const char *name; /* with its unit, but without the prefix, _total and _info */
	const char *help; /* one line, without a full stop */
	enum metrics_type type;
	bool of_process; /* the prefix is process_, not ringbroker_ */
};

enum { METRICS_HEAD_BYTES = 128 };

/* A growing text. Zeroed except for its format; freed by metrics_text_deinit(). */
struct metrics_text {
	enum metrics_format format;
	char *data; /* not NUL-terminated */
	size_t bytes, capacity;
	bool is_out_of_memory; /* the text is cut */
	struct metrics_family family;

	char head[METRICS_HEAD_BYTES]; /* begin of all samples of the family */
	size_t n_head;
};

/* Begin a family; its samples follow, those of one set of labels together. */
void metrics_begin(struct metrics_text *text, const struct metrics_family *family);

/*
 * Write a sample of the family. @suffix is the sample's own (_bucket, _sum, _count), or NULL for
 * that of its type. @labels and @more are label="value", separated by commas, or NULL.
 */
void metrics_count(struct metrics_text *text, const char *suffix, const char *labels,
		   const char *more, uint64_t value);
/* Write @value / 10^@digits, exactly; @digits is 9 at most. */
void metrics_decimal(struct metrics_text *text, const char *suffix, const char *labels,
		     const char *more, uint64_t value, unsigned int digits);
/* Write @value to six decimal places; nothing if it is NaN, infinite, negative, or above 1e12. */
void metrics_real(struct metrics_text *text, const char *suffix, const char *labels,
		  const char *more, double value);
/* Write when the last sample began to be counted, on CLOCK_REALTIME. OpenMetrics only. */
void metrics_created(struct metrics_text *text, const char *labels, const char *more,
		     uint64_t realtime_ns);

/* Write the end of the text. */
void metrics_end(struct metrics_text *text);

void metrics_text_deinit(struct metrics_text *text);

/*
 * Escape @value for the quotes of a label. Characters other than printable ASCII become '?'. The
 * result is cut at @bytes, never within an escape.
 */
void metrics_escape(char *to, size_t bytes, const char *value);

/* Return the format that a request's Accept header prefers; NULL: no header. */
enum metrics_format metrics_accepted(const char *accept);
const char *metrics_content_type(enum metrics_format format);

/* Return true if a request's Accept-Encoding header prefers gzip; NULL: no header. */
bool metrics_accepts_gzip(const char *accept);
