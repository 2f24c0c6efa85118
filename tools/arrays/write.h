#pragma once
/* SPDX-License-Identifier: MIT */
/* Shared by both formats of array files: error messages, and writing a header and elements. */
#include "arrays/array.h"

/*
 * Write to @why a sentence that begins with @name.
 * Return: @error.
 */
int array_refuse(char why[ARRAY_WHY_BYTES], int error, const char *name, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/*
 * Write both parts to @path. A regular file appears whole or not at all: it is written under
 * another name and renamed. An existing object of another kind, such as a pipe, is written
 * directly.
 * Return: 0, or a negative errno with @why.
 */
int array_write_file(const char *path, const void *header, size_t header_bytes, const void *data,
		     size_t data_bytes, char why[ARRAY_WHY_BYTES]);
