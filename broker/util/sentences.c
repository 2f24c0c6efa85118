/* SPDX-License-Identifier: MIT */
/* Sentences about files. Each is allocated separately: there are never many. */
#include "util/sentences.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/error.h"

int sentences_add(struct sentences *sentences, const char *file, unsigned int line, const char *key,
		  const char *format, va_list args)
{
	_cleanup_(freep) char *what = NULL;
	char number[16] = "", *text;
	size_t n_bytes;
	int r;

	if (sentences->n++ >= sentences->max && sentences->max > 0)
		return 0;
	if (line)
		snprintf(number, sizeof(number), ":%u", line);
	r = vasprintf(&what, format, args);
	if (r < 0) {
		what = NULL;
		return error_origin(-ENOMEM);
	}
	n_bytes = strlen(file) + strlen(number) + (key ? strlen(key) + 2 : 0) + (size_t)r + 4;
	text = realloc(sentences->text, sentences->n_bytes + n_bytes);
	if (!text)
		return error_origin(-ENOMEM);
	sentences->text = text;
	sentences->n_bytes += (size_t)snprintf(text + sentences->n_bytes, n_bytes, "%s%s: %s%s%s\n",
					       file, number, key ? key : "", key ? ": " : "", what);
	return 0;
}

int sentences_end(struct sentences *sentences, const char *file)
{
	const size_t n_bytes = strlen(file) + sizeof(": and 4294967295 more\n");
	char *text;

	if (sentences->max == 0 || sentences->n <= sentences->max)
		return 0;
	text = realloc(sentences->text, sentences->n_bytes + n_bytes);
	if (!text)
		return error_origin(-ENOMEM);
	sentences->text = text;
	sentences->n_bytes +=
		(size_t)snprintf(text + sentences->n_bytes, n_bytes, "%s: and %u more\n", file,
				 sentences->n - sentences->max);
	return 0;
}
