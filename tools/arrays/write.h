#pragma once
/* SPDX-License-Identifier: MIT */
/* What both kinds of array files share: refusals, and writing a header and elements. */
#include "arrays/array.h"

/* A sentence that begins with @name, into @why. Return: @error. */
int array_refuse(char why[ARRAY_WHY_BYTES], int error, const char *name, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/*
 * Writes both parts to @path. A regular file appears whole or not at all: it is written beside, and
 * renamed; anything else that is there is written to. Return: 0 or a negative errno, with @why.
 */
int array_write_file(const char *path, const void *header, size_t header_bytes, const void *data,
		     size_t data_bytes, char why[ARRAY_WHY_BYTES]);
