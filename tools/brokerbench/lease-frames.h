#pragma once
/* SPDX-License-Identifier: MIT */
/* The row of lease that runs an unmodified program: frames per second that ffmpeg scales */
#include "bench.h"

/*
 * Measure ffmpeg's frames per second within a lease and without, and report the row. The
 * environment must be set up so that a program that names @layer gets its lease from a running
 * broker. RINGBROKER_LEASE_VRAM is changed and restored.
 * Return: 0; BENCH_E_SKIP if there is no ffmpeg, or none with Vulkan; a negative errno.
 */
int lease_frames(struct bench_env *env, char *layer);
