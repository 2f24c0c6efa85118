/* SPDX-License-Identifier: MIT */
/*
 * JSON lines on standard output: each member writes the comma that separates it from its
 * predecessor.
 */
#include "monitor/json.h"

#include <math.h>
#include <stdio.h>

#include "util/utf8.h"

static bool needs_comma;

static void json_name(const char *name)
{
	if (needs_comma)
		putchar(',');
	needs_comma = true;
	if (name)
		printf("\"%s\":", name);
}

void json_begin(void)
{
	needs_comma = false;
	putchar('{');
}

void json_end(void)
{
	puts("}");
}

void json_object(const char *name)
{
	json_name(name);
	putchar('{');
	needs_comma = false;
}

void json_object_end(void)
{
	putchar('}');
	needs_comma = true;
}

void json_array(const char *name)
{
	json_name(name);
	putchar('[');
	needs_comma = false;
}

void json_array_end(void)
{
	putchar(']');
	needs_comma = true;
}

void json_item(void)
{
	json_object(NULL);
}

void json_string(const char *name, const char *value)
{
	uint32_t code;
	size_t n;

	json_name(name);
	if (!value) {
		fputs("null", stdout);
		return;
	}
	putchar('"');
	for (const char *c = value; *c; c += n ? n : 1) {
		n = utf8_decode(c, &code);
		if (n == 0)
			fputs("\\ufffd", stdout);
		else if (utf8_steers(code))
			printf("\\u%04x", (unsigned int)code);
		else if (code == '"' || code == '\\')
			printf("\\%c", (int)code);
		else
			fwrite(c, 1, n, stdout);
	}
	putchar('"');
}

void json_unsigned(const char *name, uint64_t value)
{
	json_name(name);
	printf("%llu", (unsigned long long)value);
}

void json_optional(const char *name, uint64_t value)
{
	if (value != UINT64_MAX) {
		json_unsigned(name, value);
		return;
	}
	json_name(name);
	fputs("null", stdout);
}

void json_signed(const char *name, int64_t value)
{
	json_name(name);
	printf("%lld", (long long)value);
}

void json_number(const char *name, double value)
{
	json_name(name);
	if (isfinite(value))
		printf("%.9g", value);
	else
		fputs("null", stdout);
}

void json_boolean(const char *name, bool value)
{
	json_name(name);
	fputs(value ? "true" : "false", stdout);
}

void json_raw(const char *name, const char *value)
{
	json_name(name);
	fputs(value, stdout);
}
