#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Errors in a file that people wrote: one sentence per line
 *
 *	FILE:LINE: KEY: what is wrong; what is allowed
 *
 * Zeroed: no sentences. Any thread, one at a time.
 */
#include <stdarg.h>
#include <stddef.h>

struct sentences {
	char *text; /* freed by the caller; one line per sentence; NULL: none */
	size_t n_bytes;
};

/*
 * Add a sentence about @file; @line 0: no line; @key NULL: no key.
 * Return: 0; -ENOMEM, and earlier sentences remain.
 */
int sentences_add(struct sentences *sentences, const char *file, unsigned int line, const char *key,
		  const char *format, va_list args) __attribute__((format(printf, 5, 0)));
