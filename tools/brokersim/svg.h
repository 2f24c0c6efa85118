#pragma once
/* SPDX-License-Identifier: MIT */
/* Pictures: a timeline of a run, a comparison of policies */
#include "run.h"

enum { SVG_PATH_BYTES = 4096 };

/*
 * Write DIRECTORY/SCENARIO-POLICY.svg. Its name is written to @path, truncated if it is too long,
 * for error messages.
 * Return: 0 or a negative errno.
 */
int svg_timeline(const char *directory, const struct sim *sim, char path[SVG_PATH_BYTES]);

/* Write DIRECTORY/SCENARIO.svg in the same way. */
int svg_comparison(const char *directory, const struct outcome *outcome, char path[SVG_PATH_BYTES]);
