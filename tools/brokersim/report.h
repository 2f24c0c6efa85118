#pragma once
/* SPDX-License-Identifier: MIT */
/* Output of brokersim */
#include <stdio.h>

#include "run.h"

/* Print one line per policy. */
void report_table(FILE *file, const struct outcome *outcome);

/* Print one JSON object per policy, each on its own line. */
void report_json(FILE *file, const struct outcome *outcome);

/* Numbers of policy "ours"'s figures that meet or miss the scenario's expectations. */
struct report_checks {
	unsigned int n_met, n_missed;
	unsigned int n_short; /* figures that miss an aim */
};

void report_checks_header(FILE *file);
/* Find a figure by name, as measures_find(). */
typedef bool report_find(const void *context, const struct scenario *scenario, const char *name,
			 double *ret);
/*
 * Print each expected figure beside its target; @find gives the figures of policy "ours".
 * Return: the numbers of figures met, missed and short.
 */
struct report_checks report_checks(FILE *file, const struct scenario *scenario, const char *devices,
				   report_find *find, const void *context);

/* Print a text as a JSON string, and a member after another one: null if it is not finite. */
void report_json_string(FILE *file, const char *text);
void report_json_number(FILE *file, const char *name, double value);

/*
 * Print the @n decisions of a run that lost most time, the worst first.
 * Return: 0 or -ENOMEM.
 */
int report_misses(FILE *file, const struct sim *sim, uint32_t n);
