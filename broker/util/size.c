/* SPDX-License-Identifier: MIT */
/* Sizes as text. Fractions are allowed with a unit, and rounded down to whole bytes. */
#include "util/number.h"
#include "util/size.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
	const char *suffix;
	unsigned int shift;
} units[] = {
	{"", 0},     {"B", 0},  {"K", 10},   {"KiB", 10}, {"M", 20},
	{"MiB", 20}, {"G", 30}, {"GiB", 30}, {"T", 40},   {"TiB", 40},
};

bool size_parse(const char *text, uint64_t *ret_bytes)
{
	long double value;
	char *end;

	/* strtold() would also accept signs, spaces, "inf", "nan" and hexadecimal. */
	if (!isdigit((unsigned char)text[0]) || (text[0] == '0' && tolower(text[1]) == 'x'))
		return false;
	value = strtold(text, &end);
	for (unsigned int i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcasecmp(end, units[i].suffix) != 0)
			continue;
		value *= (long double)(1ull << units[i].shift);
		if (value >= 18446744073709551616.0L)
			return false;
		if (units[i].shift == 0 && value != (long double)(uint64_t)value)
			return false;
		*ret_bytes = (uint64_t)value;
		return true;
	}
	return false;
}

const char *size_text(uint64_t bytes, char ret[SIZE_TEXT_BYTES])
{
	static const char *const suffixes[] = {"", "KiB", "MiB", "GiB", "TiB"};
	unsigned int unit = sizeof(suffixes) / sizeof(suffixes[0]) - 1, thousandths = 0;
	uint64_t whole = bytes, rest = 0;

	for (; unit > 0; unit--) {
		whole = bytes >> 10 * unit;
		rest = bytes & ((1ull << 10 * unit) - 1);
		/* At most 2^40 * 1000: no overflow. */
		thousandths = (unsigned int)(rest * 1000 >> 10 * unit);
		if (whole > 0 && (uint64_t)thousandths << 10 * unit == rest * 1000)
			break;
	}
	if (unit == 0)
		whole = bytes, thousandths = 0;
	snprintf(ret, SIZE_TEXT_BYTES, "%llu.%03u", ull(whole), thousandths);
	/* Without needless zeros and full stop. */
	for (size_t n = strlen(ret); ret[n - 1] == '0' || ret[n - 1] == '.'; n--) {
		const bool is_stop = ret[n - 1] == '.';

		ret[n - 1] = '\0';
		if (is_stop)
			break;
	}
	strcat(ret, suffixes[unit]);
	return ret;
}

const char *size_rounded(uint64_t bytes, char text[SIZE_ROUNDED_BYTES])
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	unsigned int unit = 0;

	for (; value >= 1024 && unit + 1 < sizeof(names) / sizeof(names[0]); unit++)
		value /= 1024;
	snprintf(text, SIZE_ROUNDED_BYTES, "%.4g %s", value, names[unit]);
	return text;
}

const char *size_beside(uint64_t bytes, uint64_t other, char text[SIZE_ROUNDED_BYTES])
{
	size_t length;

	size_rounded(bytes, text);
	length = strlen(text);
	if (bytes != other && strcmp(text, SIZE_ROUNDED(other)) == 0)
		snprintf(text + length, SIZE_ROUNDED_BYTES - length, " (%llu bytes)", ull(bytes));
	return text;
}
