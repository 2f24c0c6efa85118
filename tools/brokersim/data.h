#pragma once
/* SPDX-License-Identifier: MIT */
/* Location of the profiles and scenarios. */
#include <stdbool.h>
#include <stddef.h>

/*
 * Find the directory that holds profiles/ and scenarios/: $BROKERSIM_DATA if it is set, then the
 * source tree of the running program's build, then the installed directory.
 * Return: false if the directory found has no readable profiles/.
 */
bool data_find(char *ret, size_t n);

/*
 * List the files of @directory whose names end with @suffix, sorted by name. The caller frees the
 * list with data_names_free().
 * Return: 0, or a negative errno.
 */
int data_names(const char *directory, const char *suffix, char ***ret_names, size_t *ret_n);
void data_names_free(char **names, size_t n);
