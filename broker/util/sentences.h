#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Errors in a file that people wrote: one sentence per line
 *
 *	FILE:LINE: KEY: what is wrong; what is allowed
 *
 * Zeroed: no sentences, and no limit. Any thread, one at a time.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct sentences {
	char *text; /* freed by the caller; one line per sentence; NULL: none */
	size_t n_bytes;
	uint32_t n;   /* sentences added, including those that the text lacks */
	uint32_t max; /* most sentences in the text; 0: no limit */
};

/*
 * Add a sentence about @file; @line 0: no line; @key NULL: no key. Beyond the limit, only count it.
 * Return: 0; -ENOMEM, and earlier sentences remain.
 */
int sentences_add(struct sentences *sentences, const char *file, unsigned int line, const char *key,
		  const char *format, va_list args) __attribute__((format(printf, 5, 0)));

/*
 * Add "FILE: and N more" if there were more sentences than the limit; it does not count as one.
 * Return: as sentences_add().
 */
int sentences_end(struct sentences *sentences, const char *file);
