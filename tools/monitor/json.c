/* SPDX-License-Identifier: MIT */
/* JSON lines on standard output: a comma is owed by what comes next, never by what came. */
#include "monitor/json.h"

#include <math.h>
#include <stdio.h>

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

/* Return: bytes of the UTF-8 sequence at @text, and *ret_code; 0: it is none. */
static unsigned int utf8_decode(const unsigned char *text, uint32_t *ret_code)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned int n = text[0] < 0x80   ? 1
			 : text[0] < 0xc2 ? 0
			 : text[0] < 0xe0 ? 2
			 : text[0] < 0xf0 ? 3
			 : text[0] < 0xf5 ? 4
					  : 0;
	uint32_t code = n > 1 ? text[0] & (0x7fu >> n) : text[0];

	for (unsigned int i = 1; i < n; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (text[i] & 0x3f);
	}
	if (n > 1 && (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)))
		return 0;
	*ret_code = code;
	return n;
}

/* C0 and C1 controls steer terminals; directions and line ends make a text look like another. */
static bool steers(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
	       (code >= 0x2066 && code <= 0x2069);
}

void json_string(const char *name, const char *value)
{
	const unsigned char *c = (const unsigned char *)value;
	unsigned int n;
	uint32_t code;

	json_name(name);
	putchar('"');
	for (; *c; c += n ? n : 1) {
		n = utf8_decode(c, &code);
		if (n == 0)
			fputs("\\ufffd", stdout);
		else if (steers(code))
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
