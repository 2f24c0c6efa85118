/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing metrics_accepted() and metrics_escape()
 *
 * The input is the value of an Accept header, and a tenant's name. A header that is appended to
 * another as one more element of it never makes OpenMetrics less wanted than it is by itself; what
 * is escaped ends no label.
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
	/* Of exactly its size, so that a sanitizer sees a byte too many. */
	text = malloc(bytes + 1);
	assert(text);
	if (bytes)
		memcpy(text, data, bytes);
	text[bytes] = '\0';
	format = metrics_accepted(text);
	assert(format == METRICS_PLAIN || format == METRICS_OPEN);
	check_escape(text);
	text = realloc(text, bytes + sizeof(best));
	assert(text);
	memcpy(text + strlen(text), best, sizeof(best));
	assert(metrics_accepted(text) == METRICS_OPEN);
	free(text);
	return 0;
}
