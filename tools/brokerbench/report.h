#pragma once
/* SPDX-License-Identifier: MIT */
/* The report: one JSON object per line, or a table */
#include <stdbool.h>
#include <stdio.h>

struct report_row {
	const char *bench;
	const char *params;
	const char *unit;
	double p50;
	double p99;
	const char *baseline;
	double baseline_p50;
	double baseline_p99;
	double p999, baseline_p999; /* the table leaves them out */
	double target; /* target of the ratio: at most, of times; at least, of rates; 0: none */
};

/*
 * Return ours over the baseline, from p50; NAN if the baseline's is 0, which JSON writes as null.
 */
double report_ratio(const struct report_row *row);

/*
 * Write the row as one line of JSON with the fields of struct report_row, ratio before target, and
 * p999 last.
 */
void report_json(FILE *file, const struct report_row *row);

/* Write the row as one line of the table, with the heading if @is_first. */
void report_table(FILE *file, const struct report_row *row, bool is_first);
