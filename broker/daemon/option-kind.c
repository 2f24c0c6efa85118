/* SPDX-License-Identifier: MIT */
/*
 * Values of brokerd's options: reading them, saying which are right, and printing them
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/options-private.h"
#include "util/number.h"
#include "util/size.h"

/* Return: the status to exit with. */
static int refuse(const struct option_source *source, const char *value, const char *wanted)
{
	if (source->ret_wanted)
		snprintf(source->ret_wanted, POLICY_WANTED_BYTES, "%s", wanted);
	else
		fprintf(stderr, "brokerd: --%s wants %s, not '%s'\n", source->name, wanted, value);
	return OPTIONS_EXIT_USAGE;
}

/* Store into a member, an unsigned integer of 1, 4 or 8 bytes. */
static void store(const struct option_row *row, void *at, uint64_t number)
{
	const uint8_t byte = (uint8_t)number;
	const uint32_t word = (uint32_t)number;

	if (row->bytes == sizeof(byte))
		memcpy(at, &byte, sizeof(byte));
	else if (row->bytes == sizeof(word))
		memcpy(at, &word, sizeof(word));
	else
		memcpy(at, &number, sizeof(number));
}

static uint64_t load(const struct option_row *row, const void *at)
{
	uint64_t number = 0;
	uint32_t word;

	if (row->bytes == sizeof(uint8_t))
		return *(const uint8_t *)at;
	if (row->bytes == sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		return word;
	}
	memcpy(&number, at, sizeof(number));
	return number;
}

/* --- flags and choices --- */

static int parse_flag(const struct option_row *row, const struct option_source *source,
		      const char *value, void *at)
{
	store(row, at, true);
	return -1;
}

static int parse_choice(const struct option_row *row, const struct option_source *source,
			const char *value, void *at)
{
	char wanted[128] = "";
	size_t n = 0;

	if (!value)
		value = row->otherwise;
	for (const struct option_choice *choice = row->choices; choice->word; choice++) {
		if (strcmp(value, choice->word) == 0) {
			store(row, at, (uint64_t)choice->value);
			return -1;
		}
		n += (size_t)snprintf(wanted + n, sizeof(wanted) - n, "%s%s",
				      choice == row->choices ? ""
				      : choice[1].word       ? ", "
							     : " or ",
				      choice->word);
	}
	return refuse(source, value, wanted);
}

static void print_choice(const struct option_row *row, FILE *stream, const void *at)
{
	const struct option_choice *choice = row->choices;

	while (choice->word && (uint64_t)choice->value != load(row, at))
		choice++;
	fputs(choice->word, stream);
}

bool option_has_value(const struct option_row *row)
{
	return row->value || row->choices;
}

void option_name_value(const struct option_row *row, char *ret, size_t bytes)
{
	snprintf(ret, bytes, "%s", row->value ? row->value : "");
	if (row->value || !row->choices)
		return;
	for (const struct option_choice *choice = row->choices; choice->word; choice++)
		snprintf(ret + strlen(ret), bytes - strlen(ret), "%s%s",
			 choice == row->choices ? "" : "|", choice->word);
}

/* --- numbers --- */

static int parse_integer(const struct option_row *row, const struct option_source *source,
			 const char *value, int base, uint64_t *ret)
{
	unsigned long long number;
	char wanted[64], *end;

	errno = 0;
	number = strtoull(value, &end, base);
	if (errno || end == value || *end || value[0] == '-' || (double)number < row->least ||
	    (double)number > row->most) {
		snprintf(wanted, sizeof(wanted),
			 base == 8 ? "an octal number from %llo to %llo"
				   : "a number from %llu to %llu",
			 ull(row->least), ull(row->most));
		return refuse(source, value, wanted);
	}
	*ret = number;
	return -1;
}

static int parse_number(const struct option_row *row, const struct option_source *source,
			const char *value, void *at)
{
	uint64_t number;
	int r = parse_integer(row, source, value, 10, &number);

	if (r < 0)
		store(row, at, number * (row->unit ? row->unit : 1));
	return r;
}

static void print_number(const struct option_row *row, FILE *stream, const void *at)
{
	fprintf(stream, "%llu", ull(load(row, at) / (row->unit ? row->unit : 1)));
}

static void print_size(const struct option_row *row, FILE *stream, const void *at)
{
	char text[SIZE_TEXT_BYTES];

	fputs(size_text(load(row, at), text), stream);
}

static int parse_octal(const struct option_row *row, const struct option_source *source,
		       const char *value, void *at)
{
	uint64_t number;
	int r = parse_integer(row, source, value, 8, &number);

	if (r < 0)
		store(row, at, number);
	return r;
}

static int parse_size(const struct option_row *row, const struct option_source *source,
		      const char *value, void *at)
{
	uint64_t bytes;

	if (!size_parse(value, &bytes))
		return refuse(source, value, "a size such as 64MiB");
	store(row, at, bytes);
	return -1;
}

/* Parse microseconds into nanoseconds; "auto" is -1. */
static int parse_spin(const struct option_row *row, const struct option_source *source,
		      const char *value, void *at)
{
	const struct option_row us = {
		.bytes = row->bytes, .least = 0, .most = 1000000, .unit = 1000};

	if (strcmp(value, "auto") != 0)
		return parse_number(&us, source, value, at);
	store(row, at, UINT64_MAX);
	return -1;
}

static int parse_nice(const struct option_row *row, const struct option_source *source,
		      const char *value, void *at)
{
	char *end;
	long nice;

	errno = 0;
	nice = strtol(value, &end, 10);
	if (errno || end == value || *end || value[0] == ' ' || nice < -20 || nice > 19)
		return refuse(source, value, "a nice level from -20 to 19");
	store(row, at, (uint64_t)nice);
	return -1;
}

/*
 * Parse "1.5", "0.2" or "20%": digits and a point, nothing else that strtod() accepts.
 * Return: the text behind the number; NULL if there is no number.
 */
static const char *parse_decimal(const char *text, double *ret)
{
	size_t n = strspn(text, "0123456789");

	if (n == 0)
		return NULL;
	if (text[n] == '.')
		n += 1 + strspn(text + n + 1, "0123456789");
	if (n > 30 || text[n] == 'e' || text[n] == 'E')
		return NULL;
	*ret = strtod(text, NULL);
	return text + n;
}

static int parse_factor(const struct option_row *row, const struct option_source *source,
			const char *value, void *at)
{
	float *ret = at;
	char wanted[64];
	double number;
	const char *rest = parse_decimal(value, &number);

	if (!rest || *rest || number < row->least || number > row->most) {
		snprintf(wanted, sizeof(wanted), "a factor from %g to %g", row->least, row->most);
		return refuse(source, value, wanted);
	}
	*ret = (float)number;
	return -1;
}

static void print_factor(const struct option_row *row, FILE *stream, const void *at)
{
	fprintf(stream, "%g", (double)*(const float *)at);
}

static int parse_watts(const struct option_row *row, const struct option_source *source,
		       const char *value, void *at)
{
	float *ret = at;
	double number;
	const char *rest = parse_decimal(value, &number);

	if (!rest || (*rest && strcmp(rest, "W") != 0) || number > 100000)
		return refuse(source, value, "a number of watts from 0 to 100000");
	*ret = (float)number;
	return -1;
}

/* Parse a part of the whole, as a percentage or as a fraction; the row's bounds are in percent. */
static int parse_share(const struct option_row *row, const struct option_source *source,
		       const char *value, void *at)
{
	float *ret = at;
	char wanted[POLICY_WANTED_BYTES];
	double number;
	const char *rest = parse_decimal(value, &number);
	double percent = rest && strcmp(rest, "%") == 0 ? number : number * 100;

	if (!rest || (*rest && strcmp(rest, "%") != 0) || percent < row->least ||
	    percent > row->most) {
		snprintf(wanted, sizeof(wanted), "a share from %g%% to %g%%, such as %g%%",
			 row->least, row->most, row->most / 2);
		return refuse(source, value, wanted);
	}
	*ret = (float)(percent / 100);
	return -1;
}

static void print_share(const struct option_row *row, FILE *stream, const void *at)
{
	fprintf(stream, "%g%%", (double)*(const float *)at * 100);
}

/* Parse "10ms", "500us"; milliseconds without a unit. */
static int parse_time(const struct option_row *row, const struct option_source *source,
		      const char *value, void *at)
{
	static const struct {
		const char *name;
		double ms;
	} units[] = {{"ms", 1}, {"us", 1e-3}, {"s", 1e3}, {"", 1}};
	char wanted[64];
	double number, ms;
	const char *rest = parse_decimal(value, &number);

	for (unsigned int i = 0; rest && i < ARRAY_SIZE(units); i++) {
		ms = number * units[i].ms;
		if (strcmp(rest, units[i].name) != 0 || ms < row->least || ms > row->most)
			continue;
		store(row, at, (uint64_t)(ms * 1e6));
		return -1;
	}
	snprintf(wanted, sizeof(wanted), "a time from %gms to %gms, such as %gms", row->least,
		 row->most, 10.0);
	return refuse(source, value, wanted);
}

static void print_time(const struct option_row *row, FILE *stream, const void *at)
{
	fprintf(stream, "%gms", (double)load(row, at) / 1e6);
}

/* --- names --- */

static int parse_path(const struct option_row *row, const struct option_source *source,
		      const char *value, void *at)
{
	/* A socket's address has less room than some members. */
	size_t bytes = row->bytes;
	char wanted[64];

	if (row->most > 0 && (double)bytes > row->most)
		bytes = (size_t)row->most;
	if (strlen(value) >= bytes || value[0] == '\0') {
		snprintf(wanted, sizeof(wanted), "a path of 1 to %zu characters", bytes - 1);
		return refuse(source, value, wanted);
	}
	strcpy(at, value);
	return -1;
}

static int parse_metrics(const struct option_row *row, const struct option_source *source,
			 const char *value, void *at)
{
	struct options_metrics *ret = at;
	int r = strlen(value) < sizeof(ret->text) ? metrics_address_parse(value, &ret->address)
						  : METRICS_E_ADDRESS;

	if (r == METRICS_E_ADDRESS)
		return refuse(source, value,
			      "unix:/PATH, 127.0.0.1:PORT, [::1]:PORT or none, such as "
			      "unix:/run/ringbroker/metrics.sock");
	if (r == METRICS_E_ELSEWHERE)
		return refuse(source, value,
			      "an address that only this machine can reach, because metrics are "
			      "served without encryption or a password: unix:/PATH, 127.0.0.1:PORT "
			      "or [::1]:PORT");
	strcpy(ret->text, value);
	return -1;
}

static int parse_group(const struct option_row *row, const struct option_source *source,
		       const char *value, void *at)
{
	return users_find_group(value, at)
		       ? refuse(source, value, "a group of this system, by name or number")
		       : -1;
}

static int parse_users(const struct option_row *row, const struct option_source *source,
		       const char *value, void *at)
{
	char wanted[96];

	if (users_parse(value, at) == 0)
		return -1;
	snprintf(wanted, sizeof(wanted),
		 "users of this system, by name or number, at most %d, separated by commas",
		 USERS_MAX);
	return refuse(source, value, wanted);
}

const struct option_kind option_kind_flag = {parse_flag, NULL};
const struct option_kind option_kind_choice = {parse_choice, print_choice};
const struct option_kind option_kind_number = {parse_number, print_number};
const struct option_kind option_kind_octal = {parse_octal, NULL};
const struct option_kind option_kind_size = {parse_size, print_size};
const struct option_kind option_kind_spin = {parse_spin, NULL};
const struct option_kind option_kind_nice = {parse_nice, NULL};
const struct option_kind option_kind_factor = {parse_factor, print_factor};
const struct option_kind option_kind_watts = {parse_watts, NULL};
const struct option_kind option_kind_share = {parse_share, print_share};
const struct option_kind option_kind_time = {parse_time, print_time};
const struct option_kind option_kind_path = {parse_path, NULL};
const struct option_kind option_kind_metrics = {parse_metrics, NULL};
const struct option_kind option_kind_group = {parse_group, NULL};
const struct option_kind option_kind_users = {parse_users, NULL};
