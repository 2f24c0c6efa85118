#pragma once
/* SPDX-License-Identifier: MIT */
/* The tasks of a scenario on StarPU's schedulers. */
#include <stdio.h>

#include "run.h"

/*
 * Runs the first run's tasks, which must all be there at once, on StarPU with one worker per device
 * that waits as long as the device would work, scaled to a few seconds, and prints a line per
 * scheduler. Return: an exit status.
 */
int starpu_compare(FILE *file, const struct scenario *scenario, const struct run_options *options);
