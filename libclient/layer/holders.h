#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Does anybody have it yet: descriptors of a file, wherever they are
 *
 * In this process and others, in messages under way, and in mappings, of whatever was made from one
 * descriptor by dup(), fork() or sending. What was opened anew by /proc is another matter. Any
 * thread; fork()ed children have none of it.
 */
#include <stdbool.h>

struct holders;

/* Of what the descriptor @fd is, which stays the caller's. NULL: it cannot be known. */
struct holders *holders_new(int fd);

/* @fd is another descriptor of the same. Return: false: who has that cannot be known. */
bool holders_add(const struct holders *holders, int fd);

/* Has anybody but us? Also if that cannot be known. */
bool holders_any(const struct holders *holders);

/* Is the descriptor @fd the one that it looks by? @holders may be NULL. */
bool holders_is_own(const struct holders *holders, int fd);

/* Return: NULL. */
struct holders *holders_free(struct holders *holders);
