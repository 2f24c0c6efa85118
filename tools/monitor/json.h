#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * JSON lines on standard output
 *
 * Names come from clients, so strings are escaped, including control characters that would affect a
 * terminal. Bytes that are not UTF-8 become U+FFFD.
 */
#include <stdbool.h>
#include <stdint.h>

/*
 * Write one object on one line. Members are written in the order of the calls, with commas added.
 */
void json_begin(void);
void json_end(void);
void json_object(const char *name);
void json_object_end(void);
/* Items are objects, from json_item() to json_object_end(), or values without a name. */
void json_array(const char *name);
void json_array_end(void);
void json_item(void);
/* NULL is written as null. */
void json_string(const char *name, const char *value);
void json_unsigned(const char *name, uint64_t value);
/* UINT64_MAX is written as null: no limit, or a reading that is not available. */
void json_optional(const char *name, uint64_t value);
void json_signed(const char *name, int64_t value);
/* Values that are not finite are written as null. */
void json_number(const char *name, double value);
void json_boolean(const char *name, bool value);
/* Write a value that is JSON already. */
void json_raw(const char *name, const char *value);
