#pragma once
/* SPDX-License-Identifier: MIT */
/* The row of lease that runs a program of others: how many frames a second ffmpeg scales. */
#include "bench.h"

/*
 * Measures ffmpeg's frames per second within a lease and without, and reports the row. The
 * environment is set up for a program that names @layer to get its lease from a running broker,
 * RINGBROKER_LEASE_VRAM included, which is as before on return.
 * Return: 0; BENCH_E_SKIP: there is no ffmpeg, or none with Vulkan; negative errno.
 */
int lease_frames(struct bench_env *env, char *layer);
