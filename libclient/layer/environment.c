/* SPDX-License-Identifier: MIT */
/*
 * Settings of a lease in a program's environment
 *
 * An unreadable value is an error, because the user asked for a limit and would not get it. The
 * error becomes the sentence with which devices are refused. Numbers are parsed by hand, because
 * strtod() depends on the program's locale, which may use a decimal comma.
 */
#include "libclient/layer/environment.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <ringbroker.h>
#include <ringbroker/lease.h>

static const uint64_t default_max_part_ns = 500000, min_part_ns = 1000,
		      longest_part_ns = 2000000000u, longest_wait_ns = 3600000000000u;

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit size_units[] = {
	{"", 1},           {"B", 1},
	{"K", 1ull << 10}, {"KiB", 1ull << 10},
	{"M", 1ull << 20}, {"MiB", 1ull << 20},
	{"G", 1ull << 30}, {"GiB", 1ull << 30},
	{"T", 1ull << 40}, {"TiB", 1ull << 40},
	{NULL, 0},
};

static const struct unit duration_units[] = {
	{"", 1000000000u},     {"s", 1000000000u},    {"ms", 1000000u}, {"us", 1000u},
	{"min", 60000000000u}, {"h", 3600000000000u}, {NULL, 0},
};

/* Parse digits, an optional point with more digits, and a unit. Rounds down. */
static bool parse(const char *text, const struct unit *units, uint64_t *ret)
{
	uint64_t whole = 0, fraction = 0, scale = 1, value;

	if (!isdigit((unsigned char)*text))
		return false;
	for (; isdigit((unsigned char)*text); text++)
		if (__builtin_mul_overflow(whole, 10u, &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(*text - '0'), &whole))
			return false;
	if (*text == '.') {
		if (!isdigit((unsigned char)*++text))
			return false;
		for (; isdigit((unsigned char)*text); text++)
			if (scale < 1000000) {
				fraction = fraction * 10 + (uint64_t)(*text - '0');
				scale *= 10;
			}
	}
	while (units->name && strcasecmp(text, units->name) != 0)
		units++;
	if (!units->name || (scale > 1 && units->factor == 1) ||
	    __builtin_mul_overflow(whole, units->factor, &value))
		return false;
	/*
	 * Units are at most 2^40 and 3.6 * 10^12, fractions have six digits: 128 bits do not
	 * overflow.
	 */
	fraction = (uint64_t)((unsigned __int128)fraction * units->factor / scale);
	return !__builtin_add_overflow(value, fraction, ret);
}

bool environment_parse_size(const char *text, uint64_t *ret_bytes)
{
	uint64_t value;

	if (!parse(text, size_units, &value))
		return false;
	*ret_bytes = value;
	return true;
}

bool environment_parse_duration(const char *text, uint64_t *ret_ns)
{
	uint64_t value;

	if (!parse(text, duration_units, &value))
		return false;
	*ret_ns = value;
	return true;
}

bool environment_parse_priority(const char *text, uint32_t *ret_priority)
{
	static const char *const names[RBK_PRIORITY_COUNT] = {
		[RBK_PRIORITY_URGENT] = "urgent",
		[RBK_PRIORITY_NORMAL] = "normal",
		[RBK_PRIORITY_LOW] = "background",
	};

	for (uint32_t i = 0; i < RBK_PRIORITY_COUNT; i++)
		if (names[i] && strcmp(text, names[i]) == 0) {
			*ret_priority = i;
			return true;
		}
	return false;
}

/* Return the value of a variable; NULL if it is not set or empty. */
static const char *variable(const char *name)
{
	const char *text = getenv(name);

	return text && text[0] ? text : NULL;
}

static void read_size(struct environment *environment, const char *name, uint64_t *ret_bytes)
{
	const char *text = variable(name);

	if (!text || environment->error[0])
		return;
	if (!environment_parse_size(text, ret_bytes) || *ret_bytes == 0)
		snprintf(environment->error, sizeof(environment->error),
			 "%s=%.64s is not a size, expected one such as 4GiB", name, text);
}

/* Parse a number from 1 to @most. Return: 0: @text is none. */
static uint32_t parse_number(const char *text, uint64_t most)
{
	uint64_t number = 0;

	for (const char *digit = text; *digit && number <= most; digit++)
		number = isdigit((unsigned char)*digit) ? number * 10 + (uint64_t)(*digit - '0')
							: most + 1;
	return number <= most ? (uint32_t)number : 0;
}

static void read_number(struct environment *environment)
{
	const char *text = variable("RINGBROKER_LEASE");

	if (!text)
		return;
	environment->lease = parse_number(text, UINT32_MAX);
	if (environment->lease == 0)
		snprintf(environment->error, sizeof(environment->error),
			 "RINGBROKER_LEASE=%.64s is not a lease's number", text);
}

static void read_own(struct environment *environment)
{
	read_size(environment, "RINGBROKER_LEASE_VRAM", &environment->wish_bytes);
	read_size(environment, "RINGBROKER_LEASE_MIN", &environment->min_bytes);
	read_size(environment, "RINGBROKER_LEASE_MAX", &environment->max_bytes);
	if (environment->error[0])
		return;
	if (environment->wish_bytes == 0 && environment->max_bytes == 0)
		snprintf(environment->error, sizeof(environment->error),
			 "set RINGBROKER_LEASE_VRAM to the memory that the program should have, or "
			 "RINGBROKER_LEASE to the number of a lease to join");
	if (environment->max_bytes == 0)
		environment->max_bytes = environment->wish_bytes;
	if (environment->wish_bytes == 0)
		environment->wish_bytes = environment->max_bytes;
	if (environment->wish_bytes > environment->max_bytes)
		snprintf(environment->error, sizeof(environment->error),
			 "RINGBROKER_LEASE_VRAM is larger than RINGBROKER_LEASE_MAX");
	else if (environment->min_bytes > environment->wish_bytes)
		snprintf(environment->error, sizeof(environment->error),
			 "RINGBROKER_LEASE_MIN is larger than %s",
			 variable("RINGBROKER_LEASE_VRAM") ? "RINGBROKER_LEASE_VRAM"
							   : "RINGBROKER_LEASE_MAX");
}

static void read_sharing(struct environment *environment)
{
	const char *text = variable("RINGBROKER_LEASE_PRIORITY");

	environment->priority = RBK_PRIORITY_NORMAL;
	environment->has_priority =
		text && environment_parse_priority(text, &environment->priority);
	if (text && !environment->has_priority && !environment->error[0])
		snprintf(environment->error, sizeof(environment->error),
			 "RINGBROKER_LEASE_PRIORITY=%.64s is not urgent, normal or background",
			 text);
	text = variable("RINGBROKER_LEASE_SHARE");
	environment->share = text ? parse_number(text, RBK_LEASE_MAX_SHARE) : 0;
	environment->is_sharing = environment->has_priority || environment->share > 0;
	if (text && environment->share == 0 && !environment->error[0])
		snprintf(environment->error, sizeof(environment->error),
			 "RINGBROKER_LEASE_SHARE=%.64s is not a number from 1 to %d", text,
			 RBK_LEASE_MAX_SHARE);
	environment->max_part_ns = default_max_part_ns;
	text = variable("RINGBROKER_LEASE_MAX_PART");
	if (!text)
		return;
	environment->is_sharing = environment->has_max_part = true;
	if (!environment->error[0] &&
	    (!environment_parse_duration(text, &environment->max_part_ns) ||
	     environment->max_part_ns < min_part_ns || environment->max_part_ns > longest_part_ns))
		snprintf(environment->error, sizeof(environment->error),
			 "RINGBROKER_LEASE_MAX_PART=%.64s is not a duration from 1us to 2s, "
			 "expected one such as 500us",
			 text);
}

void environment_read(struct environment *ret)
{
	const char *text;

	memset(ret, 0, sizeof(*ret));
	/* The program would write the file with its own rights. */
	text = secure_getenv("RINGBROKER_LEASE_LOG");
	ret->log_path = text && text[0] ? text : NULL;
	read_number(ret);
	if (ret->lease == 0 && !ret->error[0])
		read_own(ret);
	read_sharing(ret);
	text = variable("RINGBROKER_LEASE_SLEEP");
	ret->is_movable = text && strcmp(text, "0") != 0;
	if (text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0 && !ret->error[0])
		snprintf(ret->error, sizeof(ret->error),
			 "RINGBROKER_LEASE_SLEEP=%.64s is not 0 or 1", text);
	text = variable("RINGBROKER_LEASE_WAIT");
	if (text && !ret->error[0] &&
	    (!environment_parse_duration(text, &ret->wait_ns) || ret->wait_ns > longest_wait_ns))
		snprintf(ret->error, sizeof(ret->error),
			 "RINGBROKER_LEASE_WAIT=%.64s is not a duration of an hour at most, "
			 "expected one such as 30s",
			 text);
}
