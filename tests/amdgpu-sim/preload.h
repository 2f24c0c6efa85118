#pragma once
/* SPDX-License-Identifier: MIT */
/* Functions shared by the interposed functions of libc */
#include "state.h"
#include <stddef.h>

/* Marks a function that the linker must find before libc's. */
#define INTERPOSED __attribute__((visibility("default")))

/* Return true if this process is over a simulator; the first call finds out. Any thread. */
bool sim_is_ready(void);

/*
 * Return the path to give to the system instead of @path, which may be NULL or relative to @folder:
 * @path itself, or @buffer.
 */
const char *sim_map_path(int folder, const char *path, char buffer[SIM_PATH_MAX]);

/*
 * Return @path as an absolute path in @buffer if it is relative to a folder that the simulator
 * serves, else @path.
 */
const char *sim_absolute_path(int folder, const char *path, char buffer[SIM_PATH_MAX]);

/*
 * Set errno from a negative errno.
 * Return: -1, or the value if it is no error.
 */
int sim_result(int result);

/*
 * Serve open() and all its variants.
 * Return: descriptor, or -1 with errno.
 */
int sim_open_any(int folder, const char *path, int flags, unsigned mode);
