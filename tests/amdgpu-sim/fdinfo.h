#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * /proc/PID/fdinfo/N of a simulated card's descriptor, in any process
 */
#include "client.h"
#include <stddef.h>

/*
 * Find the client whose descriptor @path names: /proc/PID/fd/N or /proc/PID/fdinfo/N. @text
 * receives the real text of the latter.
 * Return: false if @path is neither, or not of a simulated card.
 */
bool sim_fdinfo_find(const char *path, struct sim_fd *ret, char *text, size_t size);

/*
 * Open the fdinfo that @path names, with the text that the kernel would write now.
 * Return: descriptor; -ENOENT if @path is not of a simulated card; or another negative errno.
 */
int sim_fdinfo_open(const char *path);
