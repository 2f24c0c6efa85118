#pragma once
/* SPDX-License-Identifier: MIT */
/* Sizes as people write them: "4096", "64KiB", "1.5GiB", "2G" (binary, as in systemd units). */
#include <stdbool.h>
#include <stdint.h>

enum { SIZE_TEXT_BYTES = 32 };

/*
 * Write a size as people write it, in the largest unit in which it has at most three decimals:
 * "1.5GiB", "3GiB", "1001". size_parse() reads the same number of bytes from the text.
 * Return: @ret.
 */
const char *size_text(uint64_t bytes, char ret[SIZE_TEXT_BYTES]);

/* Return false, with *ret_bytes untouched, if @text is not a size or exceeds 64 bits. */
bool size_parse(const char *text, uint64_t *ret_bytes);
