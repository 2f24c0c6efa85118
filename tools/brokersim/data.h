#pragma once
/* SPDX-License-Identifier: MIT */
/* Where profiles and scenarios lie. */
#include <stdbool.h>
#include <stddef.h>

/*
 * The directory that holds profiles/ and scenarios/: $BROKERSIM_DATA; else that of the source tree
 * that this program was built in; else the installed one. Return: false if there is none.
 */
bool data_find(char *ret, size_t n);

/*
 * Names of the files of @directory that end with @suffix, sorted; for data_names_free().
 * Return: 0 or negative errno.
 */
int data_names(const char *directory, const char *suffix, char ***ret_names, size_t *ret_n);
void data_names_free(char **names, size_t n);
