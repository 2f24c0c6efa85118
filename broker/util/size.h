#pragma once
/* SPDX-License-Identifier: MIT */
/* Sizes as people write them: "4096", "64KiB", "1.5GiB", "2G" (binary, as in systemd units). */
#include <stdbool.h>
#include <stdint.h>

/* Return false, with *ret_bytes untouched, if @text is not a size or exceeds 64 bits. */
bool size_parse(const char *text, uint64_t *ret_bytes);
