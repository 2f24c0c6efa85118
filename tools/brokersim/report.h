#pragma once
/* SPDX-License-Identifier: MIT */
/* What brokersim prints. */
#include <stdio.h>

#include "run.h"

/* A line per policy. */
void report_table(FILE *file, const struct outcome *outcome);

/* An object per policy and line. */
void report_json(FILE *file, const struct outcome *outcome);

/* How the figures that the scenario names compare with what it expects of "ours". */
struct report_checks {
	unsigned int n_met, n_missed;
	unsigned int n_short; /* of what is only aimed at */
};

void report_checks_header(FILE *file);
/* Return: how many figures are as they should be, and not. */
struct report_checks report_checks(FILE *file, const struct outcome *outcome);

/* The @n decisions of a run that lost most, the worst first. Return: 0 or -ENOMEM. */
int report_misses(FILE *file, const struct sim *sim, uint32_t n);
