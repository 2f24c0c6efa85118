#pragma once
/* SPDX-License-Identifier: MIT */
/* Sizes as people write them: "4096", "64KiB", "1.5GiB", "2G" (binary, as in systemd units). */
#include <stdbool.h>
#include <stdint.h>

enum { SIZE_TEXT_BYTES = 32, SIZE_ROUNDED_BYTES = 48 };

/*
 * Write a size as people write it, in the largest unit in which it has at most three decimals:
 * "1.5GiB", "3GiB", "1001". size_parse() reads the same number of bytes from the text.
 * Return: @ret.
 */
const char *size_text(uint64_t bytes, char ret[SIZE_TEXT_BYTES]);

/* Return false, with *ret_bytes untouched, if @text is not a size or exceeds 64 bits. */
bool size_parse(const char *text, uint64_t *ret_bytes);

/* Write a size rounded to at most four digits: "1.5 GiB", "999 B". Return: @text. */
const char *size_rounded(uint64_t bytes, char text[SIZE_ROUNDED_BYTES]);

/* The same in memory that is valid until the end of the enclosing block. */
#define SIZE_ROUNDED(bytes) size_rounded(bytes, (char[SIZE_ROUNDED_BYTES]){""})

/*
 * As size_rounded(), with the exact bytes added where the text alone would equal that of the
 * different size @other, which stands beside it: "100 MiB (104857601 bytes)".
 */
const char *size_beside(uint64_t bytes, uint64_t other, char text[SIZE_ROUNDED_BYTES]);

#define SIZE_BESIDE(bytes, other) size_beside(bytes, other, (char[SIZE_ROUNDED_BYTES]){""})
