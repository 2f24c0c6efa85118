/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing metrics_accepted(), metrics_accepts_gzip() and metrics_escape()
 *
 * The input is used as the value of an Accept header, of an Accept-Encoding header and as a
 * tenant's name. Appending an element that prefers OpenMetrics must select OpenMetrics. Escaped
 * text must not terminate a label.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/metrics-text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { MAX_BYTES = 4096 };

static void check_escape(const char *text)
{
	char to[64];
	size_t n;

	metrics_escape(to, sizeof(to), text);
	for (n = 0; to[n]; n++) {
		assert(to[n] >= ' ' && to[n] <= '~' && to[n] != '"');
		if (to[n] == '\\') {
			n++;
			assert(to[n] == '\\' || to[n] == '"');
		}
	}
	assert(n < sizeof(to));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const char best[] = ",application/openmetrics-text";
	enum metrics_format format;
	char *text;

	if (bytes > MAX_BYTES)
		return 0;
	/*
	 * The allocation has exactly the text's size, so that a sanitizer detects an overrun of one
	 * byte.
	 */
	text = malloc(bytes + 1);
	assert(text);
	if (bytes)
		memcpy(text, data, bytes);
	text[bytes] = '\0';
	format = metrics_accepted(text);
	assert(format == METRICS_PLAIN || format == METRICS_OPEN);
	metrics_accepts_gzip(text);
	check_escape(text);
	text = realloc(text, bytes + sizeof(best));
	assert(text);
	memcpy(text + strlen(text), best, sizeof(best));
	assert(metrics_accepted(text) == METRICS_OPEN);
	free(text);
	return 0;
}
