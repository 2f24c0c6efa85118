#pragma once
/* SPDX-License-Identifier: MIT */
/* Pictures: a timeline of a run, a comparison of policies. */
#include "run.h"

/* Writes DIRECTORY/SCENARIO-POLICY.svg. Return: 0 or negative errno. */
int svg_timeline(const char *directory, const struct sim *sim);

/* Writes DIRECTORY/SCENARIO.svg. Return: 0 or negative errno. */
int svg_comparison(const char *directory, const struct outcome *outcome);
