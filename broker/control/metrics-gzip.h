#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Compressing a text with gzip
 *
 * Level 1, so that a text of a hundred tenants takes milliseconds. Any thread.
 */
#include <stdbool.h>
#include <stddef.h>

/*
 * Compress @bytes of @data. *ret_data is the caller's to free(). Beside it this takes 256 KiB while
 * it runs.
 * Return: false if there is no memory, or if brokerd was built without zlib.
 */
bool metrics_gzip(const char *data, size_t bytes, char **ret_data, size_t *ret_bytes);
