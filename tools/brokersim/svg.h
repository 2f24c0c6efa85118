#pragma once
/* SPDX-License-Identifier: MIT */
/* Pictures: a timeline of a run, a comparison of policies. */
#include "run.h"

enum { SVG_PATH_BYTES = 4096 };

/*
 * Writes DIRECTORY/SCENARIO-POLICY.svg. @path becomes its name, perhaps cut, for who has to say
 * what went wrong. Return: 0 or negative errno.
 */
int svg_timeline(const char *directory, const struct sim *sim, char path[SVG_PATH_BYTES]);

/* The same of DIRECTORY/SCENARIO.svg. */
int svg_comparison(const char *directory, const struct outcome *outcome, char path[SVG_PATH_BYTES]);
