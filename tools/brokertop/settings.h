#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Settings: the user's choice of columns, in a file
 *
 * The file has a line per table, such as "tenants = P50, EVICT", with the columns that are not
 * shown. Comments, other lines and unknown columns have no effect. brokertop(1) documents it.
 */
#include <stddef.h>

#include "picture.h"

/*
 * Find the user's file: brokertop.conf in the folder ringbroker of $XDG_CONFIG_HOME or ~/.config.
 * Return: 0; -ENOENT: neither is known; -ENAMETOOLONG.
 */
int settings_path(char *path, size_t bytes);

/* Read the choice of columns. A file that does not exist changes nothing. */
void settings_load(struct picture *picture, const char *path);

/*
 * Write the choice of columns, with the file's folders if they do not exist. A link
 * stays; the file to which it leads is written.
 * Return: 0; -EPERM: the link is another user's; -ELOOP; other -errno.
 */
int settings_save(const struct picture *picture, const char *path);
