#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Figures and names as people read them
 *
 * Of static storage: a result stays for the next fifteen calls. For one thread.
 */
#include <stdint.h>

/* "1.5 ms", "12 GiB", "3.4%"; "-" for what is not known. */
const char *text_ns(double ns);
const char *text_bytes(uint64_t bytes);
const char *text_percent(double part, double whole);
/* Whatever is not printable ASCII becomes "?", so that nobody sends a terminal commands. */
const char *text_name(const char *name);
