/* SPDX-License-Identifier: MIT */
/* Rows of figures: required members, and conversion to numbers, JSON and metrics. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/metrics-private.h"
#include "monitor/json-figures.h"
#include "monitor/json.h"
#include "shm/stats-figures.h"
#include "support/test.h"
#include "util/checked.h"

static const struct {
	const char *name;
	const struct figure *figures;
	bool has_top, has_head; /* shown in a table by brokertop, by brokerctl */
} tables[] = {
	{"header", header_figures, false, false},
	{"broker", broker_figures, false, false},
	{"contention", contention_figures, false, false},
	{"upkeep", upkeep_figures, false, false},
	{"slices", slices_figures, false, false},
	{"mended", mended_figures, false, false},
	{"device", device_figures, false, true},
	{"tenant", tenant_figures, true, true},
	{"tenant_device", tenant_device_figures, false, false},
	{"session", session_figures, true, true},
	{"lease", lease_figures, true, true},
	{"delay", delay_figures, false, false},
	{"plan", plan_figures, true, true},
	{"plan_device", plan_device_figures, false, false},
};

static bool ends_with(const char *text, const char *end)
{
	const size_t n = strlen(text), n_end = strlen(end);

	return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static bool is_number(const struct figure *figure)
{
	return figure->type == FIGURE_U64 || figure->type == FIGURE_U32 ||
	       figure->type == FIGURE_U8 || figure->type == FIGURE_REAL;
}

/* Return: NULL, or what is wrong with the row. */
static const char *fault_of(const struct figure *figure)
{
	static const struct {
		const char *end;
		enum figure_unit unit;
	} units[] = {{"_seconds", FIGURE_NS},
		     {"_bytes", FIGURE_BYTES},
		     {"_celsius", FIGURE_MILLI},
		     {"_watts", FIGURE_MICRO}};
	const size_t n_help = figure->help ? strlen(figure->help) : 0;

	if ((figure->top || figure->head) && !(is_number(figure) && figure->json))
		return "a column is of a number that is in JSON";
	if (figure->top && strlen(figure->top) > 8)
		return "a column of brokertop is eight wide";
	if (figure->flag && figure->type == FIGURE_REAL)
		return "flags are of whole numbers";
	if (figure->json && figure->unit != FIGURE_NS && figure->unit != FIGURE_MOMENT &&
	    ends_with(figure->json, "_ns") && !ends_with(figure->json, "_per_ns"))
		return "its name in JSON says that it is a time";
	if (figure->json && figure->unit != FIGURE_BYTES && ends_with(figure->json, "_bytes"))
		return "its name in JSON says that it is a size";
	if (!figure->metric)
		return figure->help ? "its help is of no metric" : NULL;
	if (n_help == 0 || figure->help[n_help - 1] == '.' || strchr(figure->help, '\n'))
		return "a metric has one line of help, without a full stop";
	if (!is_number(figure) && figure->type != FIGURE_REASONS)
		return "a metric is of numbers";
	if (ends_with(figure->metric, "_total"))
		return "the name of a metric is without _total";
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (ends_with(figure->metric, units[i].end) && figure->unit != units[i].unit &&
		    figure->unit != FIGURE_MOMENT)
			return "the metric's name has another unit";
	return NULL;
}

TEST(test_rows__are_whole)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		const struct figure *figure = tables[i].figures;

		for (; !figure_is_end(figure); figure++) {
			const char *fault = fault_of(figure);

			if (!fault && ((figure->top && !tables[i].has_top) ||
				       (figure->head && !tables[i].has_head)))
				fault = "no table shows this column";
			if (fault)
				fail_msg("%s of %s: %s",
					 figure->json ? figure->json : figure->metric,
					 tables[i].name, fault);
		}
	}
}

/* The byte for a factor of contention is right within a hundredth. */
TEST(test_contention__in_a_byte)
{
	for (double factor = 1; factor <= 250; factor *= 1.01)
		assert_true(fabs(stats_contention_factor(stats_contention(factor)) / factor - 1) <
			    0.011);
	assert_true(stats_contention_factor(0) == 1);
	assert_int_equal(stats_contention(0.5), 0);
	assert_int_equal(stats_contention(1), 0);
	assert_int_equal(stats_contention(NAN), 0);
	assert_int_equal(stats_contention(1e30), UINT8_MAX);
}

/* --- A record with each kind of number --- */

struct odd {
	uint64_t bytes, milli, zero;
	uint32_t ns;
	double share, real_ns;
};

#define ODD(member, ...)                                                    \
	{                                                                   \
		.offset = offsetof(struct odd, member),                     \
		.type = FIGURE_TYPE(((struct odd *)0)->member), __VA_ARGS__ \
	}

enum { ODD_BYTES, ODD_MILLI, ODD_ZERO, ODD_NS, ODD_SHARE, ODD_REAL_NS };

static const struct figure odd_figures[] = {
	ODD(bytes, .unit = FIGURE_BYTES, .json = "bytes", .metric = "odd_bytes", .help = "A"),
	ODD(milli, .unit = FIGURE_MILLI, .null = FIGURE_ABSENT, .json = "milli",
	    .metric = "odd_celsius", .help = "B"),
	ODD(zero, .null = FIGURE_ZERO, .json = "zero", .metric = "odd", .help = "C"),
	ODD(ns, .unit = FIGURE_NS, .json = "ns", .object = "times", .metric = "odd_seconds",
	    .help = "D"),
	ODD(share, .json = "share", .metric = "odd_ratio", .help = "E"),
	ODD(real_ns, .unit = FIGURE_NS, .json = "real_ns", .metric = "odd_real_seconds",
	    .help = "F"),
	{.json = NULL},
};
static const struct odd known = {1024, 45500, 7, 1500000000, 0.25, 2.5e9};
static const struct odd unknown = {RBK_STATS_ABSENT, RBK_STATS_ABSENT, 0, 0, 0, 0};

TEST(test_real__in_display_units)
{
	assert_true(figure_real(&odd_figures[ODD_BYTES], &known) == 1024);
	assert_true(figure_real(&odd_figures[ODD_MILLI], &known) == 45.5);
	assert_true(figure_real(&odd_figures[ODD_ZERO], &known) == 7);
	assert_true(figure_real(&odd_figures[ODD_NS], &known) == 1.5e9);
	assert_true(figure_real(&odd_figures[ODD_SHARE], &known) == 0.25);
	assert_true(isnan(figure_real(&odd_figures[ODD_BYTES], &unknown)));
	assert_true(isnan(figure_real(&odd_figures[ODD_MILLI], &unknown)));
	assert_true(isnan(figure_real(&odd_figures[ODD_ZERO], &unknown)));
	assert_true(figure_real(&odd_figures[ODD_SHARE], &unknown) == 0);
}

/* Metrics have all figures in base units, whatever their type; unknown figures are left out. */
TEST(test_metrics__are_in_base_units)
{
	static const struct metrics_page page;
	struct metrics_text text = {.format = METRICS_PLAIN};
	char all[4096];

	metrics_write_figures(&page, &text, odd_figures, &known);
	metrics_write_figures(&page, &text, odd_figures, &unknown);
	assert_true(text.bytes < sizeof(all));
	memcpy(all, text.data, text.bytes);
	all[text.bytes] = '\0';
	assert_non_null(strstr(all, "\nringbroker_odd_bytes 1024\n"));
	assert_non_null(strstr(all, "\nringbroker_odd_celsius 45.5\n"));
	assert_non_null(strstr(all, "\nringbroker_odd 7\n"));
	assert_non_null(strstr(all, "\nringbroker_odd_seconds 1.5\n"));
	assert_non_null(strstr(all, "\nringbroker_odd_ratio 0.25\n"));
	assert_non_null(strstr(all, "\nringbroker_odd_real_seconds 2.5\n"));
	assert_null(strstr(all, "1844674407"));
	assert_null(strstr(all, "\nringbroker_odd 0\n"));
	metrics_text_deinit(&text);
}

/*
 * Figures with equal object names form one object, even if the names are distinct strings in
 * memory.
 */
TEST(test_json__objects)
{
	static const char expected[] =
		"{\"bytes\":1024,\"times\":{\"ns\":1500000000,\"share\":0.25}}\n";
	const char one[] = "times", other[] = "times";
	struct figure figures[] = {odd_figures[ODD_BYTES],
				   odd_figures[ODD_NS],
				   odd_figures[ODD_SHARE],
				   {.json = NULL}};
	char path[] = "/tmp/rbk-figures-XXXXXX", text[200] = "";
	int fd = mkstemp(path), stdout_fd = dup(1);

	figures[1].object = one;
	figures[2].object = other;
	assert_true(fd >= 0 && stdout_fd >= 0);
	unlink(path);
	fflush(stdout);
	assert_int_equal(dup2(fd, 1), 1);
	json_begin();
	json_figures(figures, &known);
	json_end();
	fflush(stdout);
	assert_int_equal(dup2(stdout_fd, 1), 1);
	assert_true(pread(fd, text, sizeof(text) - 1, 0) > 0);
	close(fd);
	close(stdout_fd);
	assert_string_equal(text, expected);
}
