#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What is wrong with a file that people wrote: one sentence a line
 *
 *	FILE:LINE: KEY: what is wrong; what is allowed
 *
 * Zeroed: none. Any thread, one at a time.
 */
#include <stdarg.h>
#include <stddef.h>

struct sentences {
	char *text; /* to be freed; each sentence has a line break; NULL: there is none */
	size_t n_bytes;
};

/*
 * Adds one about @file; @line 0: about no line; @key NULL: about no key. Return: 0; -ENOMEM, and
 * those before it are still there.
 */
int sentences_add(struct sentences *sentences, const char *file, unsigned int line, const char *key,
		  const char *format, va_list args) __attribute__((format(printf, 5, 0)));
