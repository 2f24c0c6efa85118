#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Detection of the last descriptor of a file in any process
 *
 * Holders are descriptors in this process and others, descriptors in messages in flight, and
 * mappings, as far as they come from one descriptor by dup(), fork() or sending. A file opened anew
 * through /proc is not detected. Any thread; fork()ed children inherit no holders.
 */
#include <stdbool.h>

struct holders;

/*
 * Watch the file of descriptor @fd, which stays the caller's. Return: NULL if its holders cannot be
 * detected.
 */
struct holders *holders_new(int fd);

/* Add @fd, another descriptor of the same file. Return: false if its holders cannot be detected. */
bool holders_add(const struct holders *holders, int fd);

/*
 * Return true if the file has a holder other than @holders itself, or if that cannot be detected.
 */
bool holders_any(const struct holders *holders);

/* Return true if @fd is the descriptor by which @holders watches. @holders may be NULL. */
bool holders_is_own(const struct holders *holders, int fd);

/* Stop watching. Return: NULL. */
struct holders *holders_free(struct holders *holders);
