/* SPDX-License-Identifier: MIT */
/*
 * Parser of fdinfo
 *
 * A line is "KEY:", white space, "VALUE" and, after a space, a unit. Kernels differ in the keys
 * that they print. Up to 6.12, amdgpu had drm-memory-vram alone; later kernels print drm-total-,
 * drm-shared- and drm-resident-vram, some of them beside the old key. These keys report the same
 * memory and must not be added up. So each is kept apart, and the best one is used at the end:
 * resident, then memory, then total (which includes evicted memory). A device with several tiles
 * has several regions of one kind, "vram0" and "vram1", and these are added.
 *
 * The text is the kernel's, but our buffer may cut it anywhere, and a driver may be out of tree. So
 * the parser assumes nothing and bounds everything.
 */
#include "telemetry/fdinfo.h"

#include <ctype.h>
#include <string.h>

#include "util/checked.h"

enum measure { MEASURE_RESIDENT, MEASURE_MEMORY, MEASURE_TOTAL, MEASURE_COUNT };
enum kind { KIND_VRAM, KIND_GTT, KIND_COUNT };
enum { MAX_REGIONS = 9 }; /* regions of a kind: without a number, then 0 to 7 */

struct scan {
	struct reading regions[MEASURE_COUNT][KIND_COUNT][MAX_REGIONS];
	bool has_client_id;
};

/* A part of the text; never ends with NUL. */
struct span {
	const char *at;
	size_t bytes;
};

static bool span_is(struct span span, const char *text)
{
	return span.bytes == strlen(text) && memcmp(span.at, text, span.bytes) == 0;
}

/* Remove @prefix from the front. Return false if the span does not begin with it. */
static bool span_skip(struct span *span, const char *prefix)
{
	size_t bytes = strlen(prefix);

	if (span->bytes < bytes || memcmp(span->at, prefix, bytes) != 0)
		return false;
	span->at += bytes;
	span->bytes -= bytes;
	return true;
}

static struct span span_trim(struct span span)
{
	while (span.bytes > 0 && isblank((unsigned char)span.at[0])) {
		span.at++;
		span.bytes--;
	}
	while (span.bytes > 0 && isblank((unsigned char)span.at[span.bytes - 1]))
		span.bytes--;
	return span;
}

/*
 * Remove decimal digits from the front. Return false if there are none, or if they exceed 64 bits.
 */
static bool span_number(struct span *span, uint64_t *ret)
{
	uint64_t value = 0;
	size_t n = 0;

	for (; n < span->bytes && span->at[n] >= '0' && span->at[n] <= '9'; n++)
		if (!checked_mul(value, 10, &value) ||
		    !checked_add(value, (uint64_t)(span->at[n] - '0'), &value))
			return false;
	if (n == 0)
		return false;
	span->at += n;
	span->bytes -= n;
	*ret = value;
	return true;
}

/* Parse a size: "12", "12 KiB", "12 MiB". */
static bool parse_size(struct span value, uint64_t *ret)
{
	uint64_t number, unit;

	if (!span_number(&value, &number))
		return false;
	if (value.bytes > 0 && !isblank((unsigned char)value.at[0]))
		return false;
	value = span_trim(value);
	if (value.bytes == 0 || span_is(value, "B"))
		unit = 1;
	else if (span_is(value, "KiB"))
		unit = 1ull << 10;
	else if (span_is(value, "MiB"))
		unit = 1ull << 20;
	else if (span_is(value, "GiB"))
		unit = 1ull << 30;
	else
		return false;
	return checked_mul(number, unit, ret);
}

/* Parse a region: "vram", "vram1" (xe), "local0" (i915); "gtt", "system0". */
static bool parse_region(struct span name, enum kind *ret_kind, unsigned int *ret_region)
{
	if (span_skip(&name, "vram") || span_skip(&name, "local"))
		*ret_kind = KIND_VRAM;
	else if (span_skip(&name, "gtt") || span_skip(&name, "system"))
		*ret_kind = KIND_GTT;
	else
		return false;

	if (name.bytes == 0) {
		*ret_region = 0;
		return true;
	}
	if (name.bytes != 1 || name.at[0] < '0' || name.at[0] > '7')
		return false;
	*ret_region = 1 + (unsigned int)(name.at[0] - '0');
	return true;
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Parse DOMAIN:BUS:DEVICE.FUNCTION, of 4 to 8, 2, 2 and 1 hexadecimal digits. */
static bool parse_pdev(struct span value, char ret[static TELEMETRY_PCI_BYTES])
{
	size_t domain = 0, i;

	while (domain < value.bytes && is_hex(value.at[domain]))
		domain++;
	if (domain < 4 || domain > 8 || value.bytes != domain + 8 ||
	    value.bytes >= TELEMETRY_PCI_BYTES + 0u)
		return false;
	for (i = 0; i < 8; i++) {
		char c = value.at[domain + i];

		if (i == 0 || i == 3 ? c != ':' : i == 6 ? c != '.' : !is_hex(c))
			return false;
	}
	for (i = 0; i < value.bytes; i++) {
		char c = value.at[i];

		ret[i] = c >= 'A' && c <= 'F' ? (char)(c - 'A' + 'a') : c;
	}
	ret[value.bytes] = '\0';
	return true;
}

/* Add @value to @sum; saturate at 64 bits. */
static void add(struct reading *sum, uint64_t value)
{
	if (!checked_add(sum->value, value, &sum->value))
		sum->value = UINT64_MAX;
	sum->is_valid = true;
}

static void parse_line(struct span key, struct span value, struct scan *scan, struct fdinfo *ret)
{
	static const char *const measures[MEASURE_COUNT] = {"resident-", "memory-", "total-"};
	unsigned int region;
	uint64_t number;
	enum kind kind;

	if (!span_skip(&key, "drm-"))
		return;
	if (span_is(key, "pdev")) {
		parse_pdev(value, ret->pdev);
		return;
	}
	if (span_is(key, "client-id")) {
		if (span_number(&value, &number) && value.bytes == 0) {
			ret->client_id = number;
			scan->has_client_id = true;
		}
		return;
	}
	/* drm-engine-capacity-NAME is a number of engines, without "ns". */
	if (span_skip(&key, "engine-")) {
		if (span_number(&value, &number) && span_is(value, " ns"))
			add(&ret->busy_ns, number);
		return;
	}
	for (unsigned int i = 0; i < MEASURE_COUNT; i++) {
		if (!span_skip(&key, measures[i]))
			continue;
		if (parse_region(key, &kind, &region) && parse_size(value, &number))
			scan->regions[i][kind][region] = (struct reading){number, true};
		return;
	}
}

static struct reading best(const struct scan *scan, enum kind kind)
{
	struct reading sum = {0, false};

	for (unsigned int i = 0; i < MEASURE_COUNT && !sum.is_valid; i++)
		for (unsigned int j = 0; j < MAX_REGIONS; j++)
			if (scan->regions[i][kind][j].is_valid)
				add(&sum, scan->regions[i][kind][j].value);
	return sum;
}

int fdinfo_parse(const char *text, size_t bytes, struct fdinfo *ret)
{
	const char *end = text + bytes, *colon, *line_end;
	struct fdinfo found = {.client_id = 0};
	struct scan scan = {.has_client_id = false};

	for (const char *line = text; line < end; line = line_end + 1) {
		line_end = memchr(line, '\n', (size_t)(end - line));
		if (!line_end)
			break;
		colon = memchr(line, ':', (size_t)(line_end - line));
		if (!colon)
			continue;
		parse_line((struct span){line, (size_t)(colon - line)},
			   span_trim((struct span){colon + 1, (size_t)(line_end - colon - 1)}),
			   &scan, &found);
	}
	if (!found.pdev[0] || !scan.has_client_id)
		return FDINFO_E_NOT_DRM;
	found.vram_bytes = best(&scan, KIND_VRAM);
	found.gtt_bytes = best(&scan, KIND_GTT);
	*ret = found;
	return 0;
}
