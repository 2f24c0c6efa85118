#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * UTF-8 that others wrote
 *
 * What names and commands of clients have to be looked at for before they reach a terminal, a log
 * or a file of JSON. Any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Reads the character at @text, which NUL ends. Return: how many bytes it has, and *ret_code; 0:
 * they are no UTF-8.
 */
size_t utf8_decode(const char *text, uint32_t *ret_code);

/* Does it steer a terminal, end a line, or turn a text around? */
bool utf8_steers(uint32_t code);

/*
 * Copies a name of @bytes at most, with '?' for each byte that is no printable ASCII, into @ret,
 * which is filled up with NUL, one at least.
 */
void copy_printable(const char *from, size_t bytes, char *ret, size_t ret_bytes);
