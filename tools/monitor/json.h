#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * JSON lines on standard output
 *
 * Names come from clients: they are escaped, whatever would steer a terminal as well, and what is
 * not UTF-8 becomes U+FFFD.
 */
#include <stdbool.h>
#include <stdint.h>

/* One object on one line. Members come in the order of the calls; commas are taken care of. */
void json_begin(void);
void json_end(void);
void json_object(const char *name);
void json_object_end(void);
/* Its items are objects: json_item() and json_object_end(); or values without a name. */
void json_array(const char *name);
void json_array_end(void);
void json_item(void);
/* null for NULL. */
void json_string(const char *name, const char *value);
void json_unsigned(const char *name, uint64_t value);
/* null for UINT64_MAX: a limit that is none, a reading that cannot be had. */
void json_optional(const char *name, uint64_t value);
void json_signed(const char *name, int64_t value);
/* null unless it is finite. */
void json_number(const char *name, double value);
void json_boolean(const char *name, bool value);
/* A value that is JSON already. */
void json_raw(const char *name, const char *value);
