/* SPDX-License-Identifier: MIT */
/*
 * Writing text for Prometheus
 *
 * Numbers are written by hand: a hundred tenants are ten thousand lines, printf() would take longer
 * than everything else together, and its decimal point is the locale's. Counts stay whole numbers
 * and durations exact to the nanosecond, whatever a reader makes of them.
 */
#include "control/metrics-text.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *prefix_of(const struct metrics_family *family)
{
	return family->of_process ? "process_" : "ringbroker_";
}

/* Units at the end of names, which OpenMetrics requires as metadata */
static const char *const units[] = {"seconds", "bytes", "ratio", "celsius", "watts", "hertz"};

static const char *const type_names[METRICS_FORMATS][5] = {
	[METRICS_PLAIN] = {"gauge", "counter", "gauge", "histogram", "summary"},
	[METRICS_OPEN] = {"gauge", "counter", "info", "histogram", "summary"},
};

static const char *const suffixes[] = {"", "_total", "_info", "", ""};

/*
 * Make room for @bytes more.
 * Return: its begin; NULL: no memory.
 */
static char *reserve(struct metrics_text *text, size_t bytes)
{
	size_t capacity = text->capacity ? text->capacity : 4096;
	char *data;

	while (capacity < text->bytes + bytes)
		capacity *= 2;
	if (capacity != text->capacity) {
		data = text->is_out_of_memory ? NULL : realloc(text->data, capacity);
		if (!data) {
			text->is_out_of_memory = true;
			return NULL;
		}
		text->data = data;
		text->capacity = capacity;
	}
	return text->data + text->bytes;
}

static void append_bytes(struct metrics_text *text, const char *string, size_t bytes)
{
	char *at = reserve(text, bytes);

	if (!at)
		return;
	memcpy(at, string, bytes);
	text->bytes += bytes;
}

static void append(struct metrics_text *text, const char *string)
{
	append_bytes(text, string, strlen(string));
}

enum {
	DIGITS_MAX = 20,   /* of a uint64_t */
	NUMBER_BYTES = 64, /* more than any number with its separators */
};

/*
 * Write digits to the left of @end.
 * Return: the first digit.
 */
static char *write_digits(char *end, uint64_t value, unsigned int at_least)
{
	char *at = end;

	while (value > 0 || (unsigned int)(end - at) < at_least) {
		*--at = (char)('0' + value % 10);
		value /= 10;
	}
	return at;
}

/*
 * Write @value / 10^@digits, without zeros at the end.
 * Return: the place behind the last character.
 */
static char *write_decimal(char *to, uint64_t value, unsigned int digits)
{
	static const uint64_t powers[] = {1,      10,      100,      1000,      10000,
					  100000, 1000000, 10000000, 100000000, 1000000000};
	char buffer[DIGITS_MAX], *const end = buffer + sizeof(buffer), *at;
	uint64_t whole = value, part = 0;

	if (digits > 0) {
		whole = value / powers[digits];
		part = value - whole * powers[digits];
	}
	at = write_digits(end, whole, 1);
	memcpy(to, at, (size_t)(end - at));
	to += end - at;
	if (part == 0)
		return to;
	at = write_digits(end, part, digits);
	*to++ = '.';
	memcpy(to, at, digits);
	for (to += digits; to[-1] == '0';)
		to--;
	return to;
}

static bool ends_with(const char *name, const char *unit)
{
	size_t n = strlen(name), n_unit = strlen(unit);

	return n > n_unit && name[n - n_unit - 1] == '_' && strcmp(name + n - n_unit, unit) == 0;
}

/* "# WHAT PREFIX_NAME" */
static void append_about(struct metrics_text *text, const char *what)
{
	append(text, "# ");
	append(text, what);
	append(text, " ");
	append(text, prefix_of(&text->family));
	append(text, text->family.name);
	if (text->format == METRICS_PLAIN)
		append(text, suffixes[text->family.type]);
	append(text, " ");
}

void metrics_begin(struct metrics_text *text, const struct metrics_family *family)
{
	int n = snprintf(text->head, sizeof(text->head), "%s%s", prefix_of(family), family->name);

	assert(n > 0 && (size_t)n < sizeof(text->head));
	text->n_head = (size_t)n;
	text->family = *family;
	append_about(text, "HELP");
	append(text, family->help);
	append(text, ".\n");
	append_about(text, "TYPE");
	append(text, type_names[text->format][family->type]);
	append(text, "\n");
	for (size_t i = 0; text->format == METRICS_OPEN && i < sizeof(units) / sizeof(units[0]);
	     i++) {
		if (!ends_with(family->name, units[i]))
			continue;
		append_about(text, "UNIT");
		append(text, units[i]);
		append(text, "\n");
	}
}

void metrics_decimal(struct metrics_text *text, const char *suffix, const char *labels,
		     const char *more, uint64_t value, unsigned int digits)
{
	size_t n_labels = labels ? strlen(labels) : 0, n_more = more ? strlen(more) : 0, n_suffix;
	char *at;

	if (!suffix)
		suffix = suffixes[text->family.type];
	n_suffix = strlen(suffix);
	at = reserve(text, text->n_head + n_suffix + n_labels + n_more + NUMBER_BYTES);
	if (!at)
		return;
	memcpy(at, text->head, text->n_head);
	at += text->n_head;
	memcpy(at, suffix, n_suffix);
	at += n_suffix;
	if (labels || more) {
		*at++ = '{';
		memcpy(at, labels ? labels : "", n_labels);
		at += n_labels;
		if (labels && more)
			*at++ = ',';
		memcpy(at, more ? more : "", n_more);
		at += n_more;
		*at++ = '}';
	}
	*at++ = ' ';
	at = write_decimal(at, value, digits);
	*at++ = '\n';
	text->bytes = (size_t)(at - text->data);
}

void metrics_count(struct metrics_text *text, const char *suffix, const char *labels,
		   const char *more, uint64_t value)
{
	metrics_decimal(text, suffix, labels, more, value, 0);
}

void metrics_real(struct metrics_text *text, const char *suffix, const char *labels,
		  const char *more, double value)
{
	const double largest = 1e12;

	if (!isfinite(value) || value < 0 || value > largest)
		return;
	metrics_decimal(text, suffix, labels, more, (uint64_t)(value * 1e6 + 0.5), 6);
}

void metrics_created(struct metrics_text *text, const char *labels, const char *more,
		     uint64_t realtime_ns)
{
	if (text->format == METRICS_OPEN)
		metrics_decimal(text, "_created", labels, more, realtime_ns, 9);
}

void metrics_end(struct metrics_text *text)
{
	if (text->format == METRICS_OPEN)
		append(text, "# EOF\n");
}

void metrics_text_deinit(struct metrics_text *text)
{
	free(text->data);
	*text = (struct metrics_text){.format = text->format};
}

void metrics_escape(char *to, size_t bytes, const char *value)
{
	size_t n = 0;

	for (; *value; value++) {
		char c = *value < ' ' || *value > '~' ? '?' : *value;
		size_t needed = c == '\\' || c == '"' ? 2 : 1;

		if (n + needed >= bytes)
			break;
		if (needed == 2)
			to[n++] = '\\';
		to[n++] = c;
	}
	to[n] = '\0';
}

/* ---- Content negotiation ---- */

static const char open_type[] = "application/openmetrics-text";
static const char plain_type[] = "text/plain";

static const char *skip_blanks(const char *at)
{
	return at + strspn(at, " \t");
}

static bool is_word(const char *at, size_t n, const char *word)
{
	return n == strlen(word) && strncasecmp(at, word, n) == 0;
}

/* Parse "0.75" in thousandths; an invalid value is 0: not wanted. */
static unsigned int parse_quality(const char *at, size_t n)
{
	unsigned int quality = 0, scale = 1000;

	if (n == 0 || n > 5 || (at[0] != '0' && at[0] != '1') || (n > 1 && at[1] != '.'))
		return 0;
	for (size_t i = 0; i < n; i++) {
		if (i == 1)
			continue;
		if (at[i] < '0' || at[i] > '9')
			return 0;
		quality += (unsigned int)(at[i] - '0') * scale;
		scale /= 10;
	}
	return quality > 1000 ? 1000 : quality;
}

/*
 * Parse a parameter, ";NAME=VALUE".
 * Return: the text behind it.
 */
static const char *parse_parameter(const char *at, unsigned int *quality, bool *is_known)
{
	const char *name = skip_blanks(at + 1), *value;
	size_t n_name = strcspn(name, "=;, \t"), n;

	value = name + n_name;
	if (*value != '=')
		return value + strcspn(value, ";,");
	value++;
	n = strcspn(value, ";, \t");
	if (is_word(name, n_name, "q"))
		*quality = parse_quality(value, n);
	else if (is_word(name, n_name, "version"))
		*is_known = is_word(value, n, "1.0.0");
	return value + strcspn(value, ";,");
}

/* An element of a list of what a client accepts */
struct element {
	const char *name;
	size_t n;
	unsigned int quality; /* in thousandths; 0: not wanted */
	bool is_known;        /* its version is one that exists, or it has none */
};

/*
 * Parse an element, "NAME;PARAMETER;...", with the comma behind it.
 * Return: the text behind it.
 */
static const char *parse_element(const char *at, struct element *ret)
{
	ret->name = skip_blanks(at);
	ret->n = strcspn(ret->name, ";, \t");
	ret->quality = 1000;
	ret->is_known = true;
	for (at = skip_blanks(ret->name + ret->n); *at == ';';)
		at = skip_blanks(parse_parameter(at, &ret->quality, &ret->is_known));
	at += strcspn(at, ",");
	return at + (*at == ',');
}

enum metrics_format metrics_accepted(const char *accept)
{
	unsigned int best_open = 0, best_plain = 0;
	struct element type;

	while (accept && *accept) {
		accept = parse_element(accept, &type);
		if (is_word(type.name, type.n, open_type) && type.is_known &&
		    type.quality > best_open)
			best_open = type.quality;
		/* The version of plain text does not matter: there is only one. */
		if (is_word(type.name, type.n, plain_type) && type.quality > best_plain)
			best_plain = type.quality;
	}
	return best_open > 0 && best_open >= best_plain ? METRICS_OPEN : METRICS_PLAIN;
}

const char *metrics_content_type(enum metrics_format format)
{
	return format == METRICS_OPEN ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
				      : "text/plain; version=0.0.4; charset=utf-8";
}

bool metrics_accepts_gzip(const char *accept)
{
	unsigned int gzip = 0, others = 0, identity = 0;
	struct element coding;
	bool is_named = false;

	while (accept && *accept) {
		accept = parse_element(accept, &coding);
		if (is_word(coding.name, coding.n, "gzip") ||
		    is_word(coding.name, coding.n, "x-gzip")) {
			gzip = coding.quality > gzip ? coding.quality : gzip;
			is_named = true;
		} else if (is_word(coding.name, coding.n, "*")) {
			others = coding.quality;
		} else if (is_word(coding.name, coding.n, "identity")) {
			identity = coding.quality;
		}
	}
	if (!is_named)
		gzip = others;
	return gzip > 0 && gzip >= identity;
}
