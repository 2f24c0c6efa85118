/* SPDX-License-Identifier: MIT */
/*
 * Profiles as files
 *
 * inih splits lines; this file gives it lines, keeps their numbers, and refuses what inih would
 * ignore silently: lines longer than its buffer, control characters, text without a key. A file
 * that was cut off lacks a rate, or the line break at its end, and is refused either way.
 *
 * Rates are a curve over the size of a node. A line gives points of the curve, at any sizes. The
 * profile keeps the curve's values at the sizes of the classes, interpolated as predictions are, by
 * the logarithm of the size. Beyond its ends a curve is constant, and a single point without a size
 * is a curve of all sizes.
 *
 * The whole file is read, and every error is reported, not only the first.
 */
#include "calibrate/profile-file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/checked.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/number.h"
#include "util/sentences.h"
#include "util/size.h"

enum {
	LINE_BYTES = 190, /* inih's buffer has 200 */
	MAX_ERRORS = 32,
	MAX_POINTS = 24, /* more than a line has room for */
	VALUE_BYTES = 64,
	KEY_BYTES = 64,
};

enum section { NOWHERE, IGNORING, DEVICE, LINK, RATES, SECTION_COUNT };

static const char *const section_names[SECTION_COUNT] = {
	[DEVICE] = "device", [LINK] = "link", [RATES] = "rates"};

/* A unit behind a number, as a multiple of the profile's own unit */
struct unit {
	const char *name;
	double factor;
};

static const struct unit time_units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL}};
static const struct unit flops_units[] = {{"GFLOP/s", 1},   {"MFLOP/s", 1e-3}, {"TFLOP/s", 1e3},
					  {"PFLOP/s", 1e6}, {"", 1},           {NULL}};
static const struct unit bytes_units[] = {
	{"GB/s", 1}, {"MB/s", 1e-3}, {"TB/s", 1e3}, {"", 1}, {NULL}};
static const struct unit watt_units[] = {{"W", 1}, {"", 1}, {NULL}};

enum value_kind { VALUE_NAME, VALUE_COUNT, VALUE_TIME, VALUE_BYTES_RATE, VALUE_SIZE, VALUE_WATTS };

/* Keys outside [rates]. */
static const struct key {
	enum section section;
	const char *name;
	enum value_kind kind;
	size_t offset; /* in struct place_profile */
} keys[] = {
#define FIELD(name) offsetof(struct place_profile, name)
	{DEVICE, "name", VALUE_NAME, FIELD(name)},
	{DEVICE, "source", VALUE_NAME, FIELD(source)},
	{DEVICE, "servers", VALUE_COUNT, FIELD(n_servers)},
	{DEVICE, "servers-per-task", VALUE_COUNT, FIELD(n_servers_per_task)},
	{DEVICE, "share-min", VALUE_TIME, FIELD(share_min_ns)},
	{DEVICE, "task", VALUE_TIME, FIELD(task_ns)},
	{DEVICE, "node", VALUE_TIME, FIELD(node_ns)},
	{DEVICE, "memory", VALUE_SIZE, FIELD(memory_bytes)},
	{DEVICE, "active-watts", VALUE_WATTS, FIELD(active_watts)},
	{LINK, "up", VALUE_BYTES_RATE, FIELD(up_bytes_per_ns)},
	{LINK, "down", VALUE_BYTES_RATE, FIELD(down_bytes_per_ns)},
	{LINK, "latency", VALUE_TIME, FIELD(link_ns)},
#undef FIELD
};
enum { KEY_NAME = 0, KEY_SERVERS = 2, KEY_SERVERS_PER_TASK = 3, KEY_UP = 9, KEY_DOWN = 10 };

/* The two ceilings of a roofline; each family has a row, and one more row is for the others. */
enum { FLOPS, BYTES, CEILING_COUNT };
static const char *const ceiling_names[CEILING_COUNT] = {"flops", "bytes"};
enum { OTHERS = OP_FAMILY_COUNT };

/* A curve at the sizes of the classes. */
struct curve {
	unsigned int line; /* 0: not given */
	float rates[PLACE_SIZE_CLASSES];
};

struct reader {
	const char *file;
	const char *text;
	size_t n_text, at;
	unsigned int line;
	enum section section;
	bool has_complained; /* the current line has an error */

	struct place_profile profile;
	unsigned int section_lines[SECTION_COUNT];
	unsigned int key_lines[ARRAY_SIZE(keys)];
	struct curve curves[OP_FAMILY_COUNT + 1][CEILING_COUNT];

	struct sentences errors;
	int error; /* negative errno of the broker itself, sticky */
};

/* ---- Complaints ---- */

static void __attribute__((format(printf, 4, 5)))
complain(struct reader *reader, unsigned int line, const char *key, const char *format, ...)
{
	va_list args;

	reader->has_complained = true;
	if (reader->error)
		return;
	va_start(args, format);
	reader->error = sentences_add(&reader->errors, reader->file, line, key, format, args);
	va_end(args);
}

#define complain_here(reader, key, ...) complain(reader, (reader)->line, key, __VA_ARGS__)

/* ---- Values ---- */

/*
 * Parse a number in decimal notation, without sign, "inf", "nan" or hexadecimal, which strtod()
 * also accepts.
 * Return: the text behind it; NULL: no number.
 */
static const char *parse_number(const char *text, double *ret)
{
	size_t n = strspn(text, "0123456789"), exponent;

	if (n == 0)
		return NULL;
	if (text[n] == '.')
		n += 1 + strspn(text + n + 1, "0123456789");
	if (text[n] == 'e' || text[n] == 'E') {
		exponent = n + 1 + (text[n + 1] == '-' || text[n + 1] == '+');
		if (isdigit((unsigned char)text[exponent]))
			n = exponent + strspn(text + exponent, "0123456789");
	}
	*ret = strtod(text, NULL);
	return text + n;
}

static bool parse_unit(const char *text, const struct unit *units, double *ret)
{
	text += strspn(text, " \t");
	for (; units->name; units++) {
		if (strcmp(text, units->name) == 0) {
			*ret = units->factor;
			return true;
		}
	}
	return false;
}

/*
 * Parse a quantity. Ranges apply to the resulting float, so that the ends of a range can be written
 * and read.
 * Return: false if it is no such quantity, or not from @min to @max.
 */
static bool parse_quantity(const char *text, const struct unit *units, float min, float max,
			   float *ret)
{
	double value, factor;
	const char *rest = parse_number(text, &value);

	if (!rest || !parse_unit(rest, units, &factor))
		return false;
	value *= factor;
	if (!((float)value >= min && (float)value <= max))
		return false;
	*ret = (float)value;
	return true;
}

/* Parse a size. Blanks between the number and its unit are allowed, as in all other values. */
static bool parse_size(const char *text, uint64_t *ret)
{
	size_t n_digits = strspn(text, "0123456789."), n_blanks;
	char value[VALUE_BYTES];

	n_blanks = strspn(text + n_digits, " \t");
	if (n_digits == 0 || strlen(text) - n_blanks >= sizeof(value) ||
	    tolower((unsigned char)text[n_digits + n_blanks]) == 'e')
		return false;
	memcpy(value, text, n_digits);
	strcpy(value + n_digits, text + n_digits + n_blanks);
	return size_parse(value, ret);
}

static bool read_name(struct reader *reader, const struct key *key, const char *value)
{
	if (value[0] == '\0' || strlen(value) >= PLACE_NAME_BYTES) {
		complain_here(reader, key->name, "the text has %zu bytes; expected 1 to %d",
			      strlen(value), PLACE_NAME_BYTES - 1);
		return false;
	}
	strcpy((char *)&reader->profile + key->offset, value);
	return true;
}

static void read_key(struct reader *reader, const struct key *key, const char *value)
{
	void *field = (char *)&reader->profile + key->offset;
	uint64_t size;
	double count;
	const char *rest;

	switch (key->kind) {
	case VALUE_NAME:
		read_name(reader, key, value);
		break;
	case VALUE_COUNT:
		rest = parse_number(value, &count);
		if (rest && !*rest && count >= 1 && count <= PLACE_MAX_SERVERS &&
		    count == floor(count))
			*(uint32_t *)field = (uint32_t)count;
		else
			complain_here(reader, key->name, "'%s' is not a number from 1 to %d", value,
				      PLACE_MAX_SERVERS);
		break;
	case VALUE_TIME:
		if (!parse_quantity(value, time_units, 0, PLACE_MAX_LATENCY_NS, field))
			complain_here(reader, key->name,
				      "'%s' is not a time; expected 0ns to 1s, with a unit of ns, "
				      "us, ms or s, such as 12us",
				      value);
		break;
	case VALUE_BYTES_RATE:
		if (!parse_quantity(value, bytes_units, PLACE_MIN_RATE, PLACE_MAX_RATE, field))
			complain_here(reader, key->name,
				      "'%s' is not a rate; expected a number above 0 of MB/s, GB/s "
				      "(the default unit) or TB/s, such as 6.2 GB/s",
				      value);
		break;
	case VALUE_SIZE:
		if (parse_size(value, &size) && size <= PLACE_MAX_MEMORY_BYTES)
			*(uint64_t *)field = size;
		else
			complain_here(reader, key->name,
				      "'%s' is not a size; expected bytes, KiB, MiB, GiB or TiB, "
				      "such as 8GiB; 0 means that the device uses the host's "
				      "memory",
				      value);
		break;
	case VALUE_WATTS:
		if (!parse_quantity(value, watt_units, 0, PLACE_MAX_WATTS, field))
			complain_here(reader, key->name,
				      "'%s' is not a power; expected watts from 0 (unknown) to %g",
				      value, (double)PLACE_MAX_WATTS);
		break;
	}
}

/* ---- Rates ---- */

struct point {
	double log2_bytes;
	double rate;
};

/* Return the value at @log2_bytes of a curve through @points, whose sizes ascend. */
static double curve_at(const struct point *points, unsigned int n, double log2_bytes)
{
	double part;

	if (log2_bytes <= points[0].log2_bytes)
		return points[0].rate;
	for (unsigned int i = 1; i < n; i++) {
		if (log2_bytes > points[i].log2_bytes)
			continue;
		/* exact to the last bit */
		if (log2_bytes == points[i].log2_bytes)
			return points[i].rate;
		part = (log2_bytes - points[i - 1].log2_bytes) /
		       (points[i].log2_bytes - points[i - 1].log2_bytes);
		return points[i - 1].rate + part * (points[i].rate - points[i - 1].rate);
	}
	return points[n - 1].rate;
}

/*
 * Parse "900", or "2MiB: 900".
 * Return: false, with a complaint, if it is neither.
 */
static bool read_point(struct reader *reader, const char *key, char *text, struct point *ret)
{
	char *colon = strchr(text, ':'), *number = colon ? colon + 1 : text, *end;
	const char *rest;
	uint64_t bytes = 1;

	if (colon) {
		for (end = colon; end > text && isblank((unsigned char)end[-1]); end--)
			;
		*end = '\0';
		if (!parse_size(text, &bytes) || bytes == 0 || bytes > PLACE_MAX_MEMORY_BYTES) {
			complain_here(reader, key,
				      "'%s' is not a size; expected the size of a node, above 0, "
				      "such as 2MiB, before the colon",
				      text);
			return false;
		}
	}
	ret->log2_bytes = log2((double)bytes);
	number += strspn(number, " \t");
	rest = parse_number(number, &ret->rate);
	if (rest)
		rest += strspn(rest, " \t");
	if (!rest || *rest) {
		complain_here(reader, key,
			      "'%s' is not a rate; expected a number above 0, or several separated "
			      "by commas, each after its size and a colon; the unit comes last",
			      number);
		return false;
	}
	return true;
}

/*
 * Remove the unit from the end of @list.
 * Return: its factor; 1 without a unit.
 */
static double take_unit(char *list, const struct unit *units)
{
	size_t length = strlen(list), n;

	for (; units->name; units++) {
		n = strlen(units->name);
		if (n > 0 && n <= length && strcmp(list + length - n, units->name) == 0) {
			list[length - n] = '\0';
			return units->factor;
		}
	}
	return 1;
}

static void read_curve(struct reader *reader, const char *key, unsigned int ceiling, char *list,
		       struct curve *curve)
{
	struct point points[MAX_POINTS];
	double factor = take_unit(list, ceiling == FLOPS ? flops_units : bytes_units), rate;
	unsigned int n = 0;
	bool has_size = strchr(list, ':') != NULL;
	char *item;

	while ((item = strsep(&list, ","))) {
		item += strspn(item, " \t");
		if (n == MAX_POINTS || (!has_size && n > 0) || (has_size && !strchr(item, ':'))) {
			complain_here(reader, key,
				      n == MAX_POINTS
					      ? "there are too many rates; at most %d are allowed"
					      : "each of several rates needs its size; expected "
						"SIZE:RATE, at most %d of them",
				      MAX_POINTS);
			return;
		}
		if (!read_point(reader, key, item, &points[n]))
			return;
		rate = points[n].rate *= factor;
		if (!((float)rate >= PLACE_MIN_RATE && (float)rate <= PLACE_MAX_RATE)) {
			complain_here(reader, key, "%g %s/s is out of range; expected %g to %g",
				      rate, ceiling == FLOPS ? "GFLOP" : "GB",
				      (double)PLACE_MIN_RATE, (double)PLACE_MAX_RATE);
			return;
		}
		if (n > 0 && !(points[n].log2_bytes > points[n - 1].log2_bytes)) {
			complain_here(reader, key,
				      "the sizes do not ascend; each must be larger than the one "
				      "before");
			return;
		}
		n++;
	}
	for (unsigned int i = 0; i < PLACE_SIZE_CLASSES; i++)
		curve->rates[i] = (float)curve_at(
			points, n, PLACE_SIZE_FIRST_LOG2 + PLACE_SIZE_STEP_LOG2 * (double)i);
}

/*
 * Find the curve of a key such as "matmul.flops".
 * Return: false if there is no such key.
 */
static bool find_curve(const char *key, unsigned int *ret_family, unsigned int *ret_ceiling)
{
	const char *dot = strchr(key, '.'), *name;
	size_t n = dot ? (size_t)(dot - key) : 0;

	for (unsigned int i = 0; i < CEILING_COUNT && dot; i++) {
		if (strcmp(dot + 1, ceiling_names[i]) != 0)
			continue;
		for (unsigned int k = 0; k <= OTHERS; k++) {
			name = k == OTHERS ? "others" : op_family_name((enum op_family)k);
			if (strlen(name) != n || memcmp(name, key, n) != 0)
				continue;
			*ret_family = k;
			*ret_ceiling = i;
			return true;
		}
	}
	return false;
}

static void complain_of_family(struct reader *reader, const char *key)
{
	char names[256] = "";
	size_t n = 0;

	for (unsigned int i = 0; i < OP_FAMILY_COUNT && n < sizeof(names); i++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s, ",
				      op_family_name((enum op_family)i));
	complain_here(reader, key,
		      "there are no such rates; expected FAMILY.flops or FAMILY.bytes, where the "
		      "families are %sothers",
		      names);
}

static void read_rates(struct reader *reader, const char *key, const char *value)
{
	_cleanup_(freep) char *list = NULL;
	unsigned int family, ceiling;
	struct curve *curve;

	if (!find_curve(key, &family, &ceiling)) {
		complain_of_family(reader, key);
		return;
	}
	curve = &reader->curves[family][ceiling];
	if (curve->line) {
		complain_here(reader, key, "the key is in line %u already; give it once",
			      curve->line);
		return;
	}
	curve->line = reader->line;
	list = strdup(value);
	if (list)
		read_curve(reader, key, ceiling, list, curve);
	else
		reader->error = error_origin(-ENOMEM);
}

/* ---- Lines ---- */

static int on_key(void *data, const char *section, const char *name, const char *value)
{
	struct reader *reader = data;

	if (reader->error || reader->has_complained || reader->section == IGNORING)
		return 1;
	if (reader->section == NOWHERE) {
		complain_here(reader, name,
			      "the key is in no section; [device], [link] or [rates] must come "
			      "first");
		return 1;
	}
	if (reader->section == RATES) {
		read_rates(reader, name, value);
		return 1;
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(keys); i++) {
		if (keys[i].section != reader->section || strcmp(keys[i].name, name) != 0)
			continue;
		if (reader->key_lines[i])
			complain_here(reader, name, "the key is in line %u already; give it once",
				      reader->key_lines[i]);
		else
			read_key(reader, &keys[i], value);
		reader->key_lines[i] = reader->line;
		return 1;
	}
	complain_here(reader, name, "[%s] has no such key; ringbroker-profile(5) lists the keys",
		      section_names[reader->section]);
	return 1;
}

static void enter_section(struct reader *reader, const char *line, size_t length)
{
	reader->section = IGNORING;
	for (unsigned int i = DEVICE; i < SECTION_COUNT; i++) {
		size_t n = strlen(section_names[i]);

		if (length != n + 2 || memcmp(line + 1, section_names[i], n) != 0 ||
		    line[n + 1] != ']')
			continue;
		if (reader->section_lines[i]) {
			complain_here(reader, NULL,
				      "section [%s] is in line %u already; give it once",
				      section_names[i], reader->section_lines[i]);
			return;
		}
		reader->section_lines[i] = reader->line;
		reader->section = (enum section)i;
		return;
	}
	complain_here(reader, NULL, "'%.*s' is not a section; expected [device], [link] or [rates]",
		      (int)length, line);
}

static void check_line(struct reader *reader, const char *line, size_t length)
{
	const char *equals = memchr(line, '=', length);

	for (size_t i = 0; i < length; i++) {
		if (((unsigned char)line[i] >= 0x20 && line[i] != 0x7f) || line[i] == '\t')
			continue;
		complain_here(reader, NULL,
			      "the line has a control character (0x%02x); only text and tabs are "
			      "allowed",
			      (unsigned char)line[i]);
		return;
	}
	if (length > LINE_BYTES)
		complain_here(reader, NULL, "the line has %zu bytes; at most %d are allowed",
			      length, LINE_BYTES);
	else if (length == 0 || line[0] == '#' || line[0] == ';')
		return;
	else if (line[0] == '[')
		enter_section(reader, line, length);
	/* inih also takes a colon as the separator. */
	else if (!equals || equals == line || memchr(line, ':', (size_t)(equals - line)))
		complain_here(reader, NULL,
			      "the line is neither a [section] nor KEY = VALUE nor a # comment");
}

/* Read a line for inih, as fgets() does. Refused lines are returned as empty ones. */
static char *next_line(char *buffer, int buffer_bytes, void *stream)
{
	struct reader *reader = stream;
	const char *line = reader->text + reader->at, *end;
	size_t length;

	if (reader->at == reader->n_text || reader->error)
		return NULL;
	end = memchr(line, '\n', reader->n_text - reader->at);
	length = end ? (size_t)(end - line) : reader->n_text - reader->at;
	reader->at += length + (end != NULL);
	reader->line++;
	reader->has_complained = false;
	if (length > 0 && line[length - 1] == '\r')
		length--;
	while (length > 0 && isblank((unsigned char)line[0]))
		line++, length--;
	while (length > 0 && isblank((unsigned char)line[length - 1]))
		length--;
	if (!end)
		complain_here(reader, NULL,
			      "the last line has no line end; the file may be truncated");
	else
		check_line(reader, line, length);
	if (reader->has_complained || (size_t)buffer_bytes < length + 2)
		length = 0;
	snprintf(buffer, (size_t)buffer_bytes, "%.*s\n", (int)length, length ? line : "");
	return buffer;
}

/* ---- Files ---- */

/* Take over the rates after the whole file was read, and complain about missing ones. */
static void finish_rates(struct reader *reader)
{
	const struct curve *curve;
	char key[KEY_BYTES];

	for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++) {
		for (unsigned int k = 0; k < CEILING_COUNT; k++) {
			curve = &reader->curves[i][k];
			if (!curve->line)
				curve = &reader->curves[OTHERS][k];
			snprintf(key, sizeof(key), "%s.%s", op_family_name((enum op_family)i),
				 ceiling_names[k]);
			if (!curve->line)
				complain(reader, 0, key,
					 "the key is missing in [rates]; it is required, or "
					 "others.%s",
					 ceiling_names[k]);
			for (unsigned int c = 0; c < PLACE_SIZE_CLASSES; c++) {
				struct place_rate *rate = &reader->profile.rates[i][c];

				if (k == FLOPS)
					rate->flops_per_ns = curve->rates[c];
				else
					rate->bytes_per_ns = curve->rates[c];
			}
		}
	}
}

static void finish(struct reader *reader)
{
	struct place_profile *profile = &reader->profile;
	const unsigned int *lines = reader->key_lines;
	const char *refusal;

	if (!lines[KEY_NAME])
		complain(reader, 0, "name", "the key is missing in [device]; it is required");
	if (profile->n_servers_per_task > profile->n_servers)
		complain(reader, lines[KEY_SERVERS_PER_TASK], "servers-per-task",
			 "the value is more than servers, %u; at most that is allowed",
			 profile->n_servers);
	if (reader->section_lines[LINK] && (!lines[KEY_UP] || !lines[KEY_DOWN]))
		complain(reader, reader->section_lines[LINK], lines[KEY_UP] ? "down" : "up",
			 "the key is missing in [link]; give both up and down, or omit [link]");
	finish_rates(reader);
	profile->is_valid = true;
	refusal = place_profile_refusal(profile);
	if (refusal && reader->errors.n == 0)
		complain(reader, 0, NULL, "%s", refusal);
}

int place_profile_parse(const char *name, const char *text, size_t n_text,
			struct place_profile *ret, char **ret_errors)
{
	struct reader reader = {
		.file = name,
		.text = text,
		.n_text = n_text,
		.profile = {.n_servers = 1, .n_servers_per_task = 1},
		.errors = {.max = MAX_ERRORS},
	};
	int r;

	if (n_text >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		reader.at = 3;
	/* Lines that inih could not split were refused before. */
	r = ini_parse_stream(next_line, &reader, on_key, &reader);
	if (r == -2)
		reader.error = error_origin(-ENOMEM);
	if (!reader.error)
		finish(&reader);
	if (!reader.error)
		reader.error = sentences_end(&reader.errors, name);
	if (reader.error || reader.errors.n == 0) {
		free(reader.errors.text);
		if (!reader.error)
			*ret = reader.profile;
		return reader.error;
	}
	*ret_errors = reader.errors.text;
	return PLACE_PROFILE_E_INVALID;
}

static int refuse_file(const char *path, const char *what, int error, char **ret_errors)
{
	char *errors;

	if (asprintf(&errors, "%s: %s%s%s\n", path, what, error ? ": " : "",
		     error ? strerror(error) : "") < 0)
		return error_origin(-ENOMEM);
	*ret_errors = errors;
	return PLACE_PROFILE_E_INVALID;
}

int place_profile_load(const char *path, struct place_profile *ret, char **ret_errors)
{
	/* O_NONBLOCK: do not wait for the writer of a pipe. */
	_cleanup_(close_fdp) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	_cleanup_(freep) char *text = NULL;
	struct stat status;
	size_t used = 0;
	ssize_t n = 0;

	if (fd < 0 || fstat(fd, &status) < 0)
		return refuse_file(path, "cannot be opened", errno, ret_errors);
	if (!S_ISREG(status.st_mode))
		return refuse_file(path, "is not a file; expected a file or a link to a file", 0,
				   ret_errors);
	text = malloc(PLACE_PROFILE_FILE_BYTES + 1);
	if (!text)
		return error_origin(-ENOMEM);
	while (used <= PLACE_PROFILE_FILE_BYTES &&
	       (n = read(fd, text + used, PLACE_PROFILE_FILE_BYTES + 1 - used)) > 0)
		used += (size_t)n;
	if (n < 0)
		return refuse_file(path, "cannot be read", errno, ret_errors);
	if (used > PLACE_PROFILE_FILE_BYTES)
		return refuse_file(path, "is larger than 64 KiB, which is the limit", 0,
				   ret_errors);
	return place_profile_parse(path, text, used, ret, ret_errors);
}

/* ---- Writing ---- */

/* Write a text without characters that inih would misinterpret. */
static void write_text(FILE *stream, const char *key, const char *text)
{
	text += strspn(text, " \t");
	if (!*text)
		text = "unknown";
	fprintf(stream, "%s = ", key);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if ((c < 0x20 && c != '\t') || c == 0x7f || c == ';')
			c = '?';
		fputc(c, stream);
	}
	fputc('\n', stream);
}

static float get_rate(const struct place_profile *profile, unsigned int family, unsigned int class,
		      unsigned int ceiling)
{
	const struct place_rate *rate = &profile->rates[family][class];

	return ceiling == FLOPS ? rate->flops_per_ns : rate->bytes_per_ns;
}

static bool is_flat(const struct place_profile *profile, unsigned int family, unsigned int ceiling)
{
	for (unsigned int i = 1; i < PLACE_SIZE_CLASSES; i++)
		if (get_rate(profile, family, i, ceiling) != get_rate(profile, family, 0, ceiling))
			return false;
	return true;
}

/* Write a curve. Nine digits distinguish any two floats. */
static void write_curve(FILE *stream, const struct place_profile *profile, unsigned int family,
			unsigned int ceiling)
{
	unsigned int n = is_flat(profile, family, ceiling) ? 1 : PLACE_SIZE_CLASSES, shift;

	fprintf(stream, "%s.%s =", op_family_name((enum op_family)family), ceiling_names[ceiling]);
	for (unsigned int i = 0; i < n; i++) {
		shift = PLACE_SIZE_FIRST_LOG2 + PLACE_SIZE_STEP_LOG2 * i;
		fputs(i ? ", " : " ", stream);
		if (n > 1)
			fprintf(stream, "%u%s:", 1u << shift % 10, shift < 20 ? "KiB" : "MiB");
		fprintf(stream, "%.9g", (double)get_rate(profile, family, i, ceiling));
	}
	fputs(ceiling == FLOPS ? " GFLOP/s\n" : " GB/s\n", stream);
}

void place_profile_write(FILE *stream, const struct place_profile *profile)
{
	fputs("[device]\n", stream);
	write_text(stream, "name", profile->name);
	write_text(stream, "source", profile->source);
	fprintf(stream, "servers = %u\nservers-per-task = %u\n", profile->n_servers,
		profile->n_servers_per_task);
	fprintf(stream, "share-min = %.9g ns\ntask = %.9g ns\nnode = %.9g ns\n",
		(double)profile->share_min_ns, (double)profile->task_ns, (double)profile->node_ns);
	fprintf(stream, "memory = %llu\nactive-watts = %.9g W\n", ull(profile->memory_bytes),
		(double)profile->active_watts);
	if (profile->up_bytes_per_ns > 0)
		fprintf(stream, "\n[link]\nup = %.9g GB/s\ndown = %.9g GB/s\nlatency = %.9g ns\n",
			(double)profile->up_bytes_per_ns, (double)profile->down_bytes_per_ns,
			(double)profile->link_ns);
	fputs("\n[rates]\n", stream);
	for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++)
		for (unsigned int k = 0; k < CEILING_COUNT; k++)
			write_curve(stream, profile, i, k);
}
