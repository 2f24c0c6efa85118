#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * UTF-8 from untrusted sources
 *
 * Checks of clients' names and commands before these reach a terminal, a log or a JSON file. Any
 * thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Read the character at @text, which NUL ends, into *ret_code.
 * Return: its bytes; 0: not UTF-8.
 */
size_t utf8_decode(const char *text, uint32_t *ret_code);

/* Return true if the character steers a terminal, ends a line, or changes the text's direction. */
bool utf8_steers(uint32_t code);

/*
 * Copy a name of @bytes at most into @ret, with '?' for each byte that is not printable ASCII. The
 * rest of @ret, at least one byte, is filled with NUL.
 */
void copy_printable(const char *from, size_t bytes, char *ret, size_t ret_bytes);
