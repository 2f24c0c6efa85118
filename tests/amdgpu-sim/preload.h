#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the interposed functions of libc share
 */
#include "state.h"
#include <stddef.h>

/* For functions that are to be found before libc's. */
#define INTERPOSED __attribute__((visibility("default")))

/* Is this process over a simulator? Finds out at the first call. Any thread. */
bool sim_is_ready(void);

/*
 * The path that the system is to be asked for in place of @path, which may be NULL or relative to
 * @folder. Return: @path itself, or @buffer.
 */
const char *sim_map_path(int folder, const char *path, char buffer[SIM_PATH_MAX]);

/* @path as an absolute one, if it is relative to a folder that counts; else @path. */
const char *sim_absolute_path(int folder, const char *path, char buffer[SIM_PATH_MAX]);

/* Sets errno from -errno. Return: -1, or the value if it is no error. */
int sim_result(int result);

/* open(), whatever it was called as. Return: descriptor or -1 with errno. */
int sim_open_any(int folder, const char *path, int flags, unsigned mode);
