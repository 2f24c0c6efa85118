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
/*
 * Print each expected figure of policy "ours" beside its target.
 * Return: the numbers of figures met, missed and short.
 */
struct report_checks report_checks(FILE *file, const struct outcome *outcome);

/*
 * Print the @n decisions of a run that lost most time, the worst first.
 * Return: 0 or -ENOMEM.
 */
int report_misses(FILE *file, const struct sim *sim, uint32_t n);
