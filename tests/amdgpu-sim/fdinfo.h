#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * /proc/PID/fdinfo/N of a simulated card's descriptor, in any process
 */
#include "client.h"
#include <stddef.h>

/*
 * Whose descriptor /proc/PID/fd/N or /proc/PID/fdinfo/N is, the latter's real text in @text.
 * Return: false if @path is neither, or not of a simulated card.
 */
bool sim_fdinfo_find(const char *path, struct sim_fd *ret, char *text, size_t size);

/*
 * Opens the fdinfo that @path names, as the kernel would write it at this moment.
 * Return: descriptor; -ENOENT: @path is not of a simulated card; or -errno.
 */
int sim_fdinfo_open(const char *path);
