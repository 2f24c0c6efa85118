/* SPDX-License-Identifier: MIT */
/* Events of a trace in Chrome's format. */
#include "trace-events.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "output.h"

void event_begin(const char *phase, uint32_t pid, uint32_t tid)
{
	static bool needs_comma;

	if (needs_comma)
		fputs(",", stdout);
	needs_comma = true;
	json_begin();
	json_string("ph", phase);
	json_unsigned("pid", pid);
	json_unsigned("tid", tid);
}

void event_time(const char *name, uint64_t ns)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64 ".%03u", ns / 1000, (unsigned int)(ns % 1000));
	json_raw(name, text);
}

void event_name(const char *kind, uint32_t pid, uint32_t tid, const char *name)
{
	event_begin("M", pid, tid);
	json_string("name", kind);
	json_object("args");
	json_string("name", name);
	json_object_end();
	json_end();
}

void event_order(const char *kind, uint32_t pid, uint32_t tid, uint32_t order)
{
	event_begin("M", pid, tid);
	json_string("name", kind);
	json_object("args");
	json_unsigned("sort_index", order);
	json_object_end();
	json_end();
}
