/* SPDX-License-Identifier: MIT */
/* Parsing sizes. Fractions are allowed with a unit, and rounded down to whole bytes. */
#include "util/size.h"

#include <ctype.h>
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
