#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The broker's overhead per task
 */
#include <stdint.h>

#include <ringbroker.h>

/*
 * Run small tasks on the CPU, one after another. ret_ns has two percentiles, p10 and p50, of the
 * time from a task's submission to its completion, minus the time of its computation. On a busy
 * machine both include waits for a processor.
 * Return: 0; a negative errno, with a sentence in @error.
 */
int overhead_measure(const char *socket_path, uint64_t ret_ns[static 2], struct rbk_error *error);
