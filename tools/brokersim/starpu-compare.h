#pragma once
/* SPDX-License-Identifier: MIT */
/* The tasks of a scenario on StarPU's schedulers */
#include <stdio.h>

#include "run.h"

/*
 * Run the first run's tasks on StarPU and print one line per scheduler. All tasks must arrive at
 * once. Each device is played by one worker that sleeps for the device's time, scaled to a total of
 * a few seconds.
 * Return: an exit status.
 */
int starpu_compare(FILE *file, const struct scenario *scenario, const struct run_options *options);
