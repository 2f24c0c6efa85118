/* SPDX-License-Identifier: MIT */
/* Lines in each format: names, numbers, and the formats that a client accepts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "control/metrics-gzip.h"
#include "control/metrics-text.h"
#include "fail-alloc.h"
#include "support/test.h"
#include "util/checked.h"

static void expect_text(struct metrics_text *text, const char *expected)
{
	assert_int_equal(text->bytes, strlen(expected));
	assert_memory_equal(text->data, expected, text->bytes);
	metrics_text_deinit(text);
}

TEST(test_formats)
{
	static const struct metrics_family counter = {"wait_seconds", "Waiting", METRICS_COUNTER};
	static const struct metrics_family info = {"thing", "What it is", METRICS_INFO};
	static const struct metrics_family summary = {"delay_bytes", "Odd", METRICS_SUMMARY};
	static const struct metrics_family process = {"cpu_seconds", "Time", METRICS_COUNTER, true};
	struct metrics_text text = {.format = METRICS_PLAIN};

	metrics_begin(&text, &counter);
	metrics_decimal(&text, NULL, "a=\"1\"", "b=\"2\"", 1500000000, 9);
	metrics_created(&text, "a=\"1\"", "b=\"2\"", 42);
	metrics_begin(&text, &info);
	metrics_count(&text, NULL, "a=\"1\"", NULL, 1);
	metrics_begin(&text, &summary);
	metrics_count(&text, NULL, NULL, "quantile=\"1\"", 7);
	metrics_count(&text, "_count", NULL, NULL, 8);
	metrics_begin(&text, &process);
	metrics_count(&text, NULL, NULL, NULL, 9);
	metrics_end(&text);
	expect_text(&text, "# HELP ringbroker_wait_seconds_total Waiting.\n"
			   "# TYPE ringbroker_wait_seconds_total counter\n"
			   "ringbroker_wait_seconds_total{a=\"1\",b=\"2\"} 1.5\n"
			   "# HELP ringbroker_thing_info What it is.\n"
			   "# TYPE ringbroker_thing_info gauge\n"
			   "ringbroker_thing_info{a=\"1\"} 1\n"
			   "# HELP ringbroker_delay_bytes Odd.\n"
			   "# TYPE ringbroker_delay_bytes summary\n"
			   "ringbroker_delay_bytes{quantile=\"1\"} 7\n"
			   "ringbroker_delay_bytes_count 8\n"
			   "# HELP process_cpu_seconds_total Time.\n"
			   "# TYPE process_cpu_seconds_total counter\n"
			   "process_cpu_seconds_total 9\n");

	text.format = METRICS_OPEN;
	metrics_begin(&text, &counter);
	metrics_decimal(&text, NULL, "a=\"1\"", "b=\"2\"", 1500000000, 9);
	metrics_created(&text, "a=\"1\"", "b=\"2\"", 42);
	metrics_begin(&text, &info);
	metrics_count(&text, NULL, "a=\"1\"", NULL, 1);
	metrics_end(&text);
	expect_text(&text, "# HELP ringbroker_wait_seconds Waiting.\n"
			   "# TYPE ringbroker_wait_seconds counter\n"
			   "# UNIT ringbroker_wait_seconds seconds\n"
			   "ringbroker_wait_seconds_total{a=\"1\",b=\"2\"} 1.5\n"
			   "ringbroker_wait_seconds_created{a=\"1\",b=\"2\"} 0.000000042\n"
			   "# HELP ringbroker_thing What it is.\n"
			   "# TYPE ringbroker_thing info\n"
			   "ringbroker_thing_info{a=\"1\"} 1\n"
			   "# EOF\n");
}

TEST(test_numbers)
{
	static const struct metrics_family family = {"x", "X", METRICS_GAUGE};
	static const char head[] = "# HELP ringbroker_x X.\n# TYPE ringbroker_x gauge\n";
	struct metrics_text text = {.format = METRICS_PLAIN};

	metrics_begin(&text, &family);
	text.bytes -= strlen(head);
	metrics_count(&text, NULL, NULL, NULL, 0);
	metrics_count(&text, NULL, NULL, NULL, UINT64_MAX);
	metrics_decimal(&text, NULL, NULL, NULL, 0, 9);
	metrics_decimal(&text, NULL, NULL, NULL, 1, 9);
	metrics_decimal(&text, NULL, NULL, NULL, 83, 2);
	metrics_decimal(&text, NULL, NULL, NULL, 7, 2);
	metrics_decimal(&text, NULL, NULL, NULL, 100, 2);
	metrics_decimal(&text, NULL, NULL, NULL, UINT64_MAX, 9);
	metrics_real(&text, NULL, NULL, NULL, 0);
	metrics_real(&text, NULL, NULL, NULL, 1.0 / 3);
	metrics_real(&text, NULL, NULL, NULL, 1e12);
	expect_text(&text, "ringbroker_x 0\n"
			   "ringbroker_x 18446744073709551615\n"
			   "ringbroker_x 0\n"
			   "ringbroker_x 0.000000001\n"
			   "ringbroker_x 0.83\n"
			   "ringbroker_x 0.07\n"
			   "ringbroker_x 1\n"
			   "ringbroker_x 18446744073.709551615\n"
			   "ringbroker_x 0\n"
			   "ringbroker_x 0.333333\n"
			   "ringbroker_x 1000000000000\n");
	metrics_real(&text, NULL, NULL, NULL, (double)NAN);
	metrics_real(&text, NULL, NULL, NULL, (double)INFINITY);
	metrics_real(&text, NULL, NULL, NULL, (double)-INFINITY);
	metrics_real(&text, NULL, NULL, NULL, -0.5);
	metrics_real(&text, NULL, NULL, NULL, 1e300);
	expect_text(&text, "");
}

TEST(test_escape)
{
	static const struct {
		const char *from, *to;
	} cases[] = {
		{"", ""},
		{"web", "web"},
		{"a\"b\\c", "a\\\"b\\\\c"},
		{"a\nb\rc\td", "a?b?c?d"},
		{"\x1b[2J\x7f", "?[2J?"},
		{"caf\xc3\xa9", "caf??"},
		{"} 1\nevil 2", "} 1?evil 2"},
	};
	char to[32];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		metrics_escape(to, sizeof(to), cases[i].from);
		assert_string_equal(to, cases[i].to);
	}
	/* Text is cut, but never within an escape. */
	metrics_escape(to, 4, "ab\"c");
	assert_string_equal(to, "ab");
	metrics_escape(to, 5, "ab\"c");
	assert_string_equal(to, "ab\\\"");
	metrics_escape(to, 1, "ab");
	assert_string_equal(to, "");
}

TEST(test_accepted)
{
	static const struct {
		const char *accept;
		enum metrics_format format;
	} cases[] = {
		{NULL, METRICS_PLAIN},
		{"", METRICS_PLAIN},
		{"*/*", METRICS_PLAIN},
		{"text/plain", METRICS_PLAIN},
		{"application/openmetrics-text", METRICS_OPEN},
		{"Application/OpenMetrics-Text; version=1.0.0; charset=utf-8", METRICS_OPEN},
		/* Requests of Prometheus 2.42 and 3.0, and a preference for its text format. */
		{"application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
		 "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
		 METRICS_OPEN},
		{"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
		 "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.2",
		 METRICS_OPEN},
		{"application/openmetrics-text;q=0.5,text/plain;q=0.9", METRICS_PLAIN},
		{"text/plain;q=0.2 , application/openmetrics-text ; q=0.2", METRICS_OPEN},
		{"application/openmetrics-text;q=0", METRICS_PLAIN},
		{"application/openmetrics-text;q=-1", METRICS_PLAIN},
		{"application/openmetrics-text;q=1e9", METRICS_PLAIN},
		{"application/openmetrics-text;q=0.00000000000000001", METRICS_PLAIN},
		{"application/openmetrics-text;version=9.0.0", METRICS_PLAIN},
		{"application/openmetrics-texts", METRICS_PLAIN},
		{"application/openmetrics", METRICS_PLAIN},
		{";;;,,,===;q,;", METRICS_PLAIN},
		{"application/openmetrics-text;q=", METRICS_PLAIN},
		{"application/openmetrics-text;;;", METRICS_OPEN},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(metrics_accepted(cases[i].accept), cases[i].format);
}

TEST(test_accepts_gzip)
{
	static const struct {
		const char *accept;
		bool is_gzip;
	} cases[] = {
		{NULL, false},
		{"", false},
		{"identity", false},
		{"gzip", true}, /* Prometheus */
		{"GZip", true},
		{"x-gzip", true},
		{"deflate, gzip, br, zstd", true}, /* curl --compressed */
		{"deflate", false},
		{"gzipped", false},
		{"gzip;q=0", false},
		{"gzip;q=0.001", true},
		{"gzip;q=x", false},
		{"*", true},
		{"*;q=0", false},
		{"gzip;q=0, *", false},
		{"*;q=0, gzip", true},
		{"identity;q=1, gzip;q=0.5", false},
		{"identity;q=0.5, gzip", true},
		{"identity;q=0, *;q=0.1", true},
		{";;;,,,===;q,;", false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(metrics_accepts_gzip(cases[i].accept), cases[i].is_gzip);
}

/* Without memory a text stays uncompressed. */
TEST(test_gzip_memory)
{
	static const char text[] = "ringbroker_x 1\nringbroker_x 1\nringbroker_x 1\n";
	size_t bytes = 0;
	char *data = NULL;

	if (!metrics_gzip(text, sizeof(text), &data, &bytes))
		skip();
	assert_true(bytes > 18 && bytes < sizeof(text));
	assert_memory_equal(data, "\x1f\x8b\x08", 3);
	free(data);
	data = NULL;
	fail_alloc_at(1);
	assert_false(metrics_gzip(text, sizeof(text), &data, &bytes));
	assert_true(fail_alloc_stop());
	assert_null(data);
}

TEST(test_memory)
{
	static const struct metrics_family family = {"x", "X", METRICS_GAUGE};
	struct metrics_text text = {.family = family};

	fail_alloc_at(2);
	for (unsigned int i = 0; i < 10000; i++)
		metrics_count(&text, NULL, NULL, NULL, i);
	assert_true(fail_alloc_stop());
	assert_true(text.is_out_of_memory);
	assert_true(text.bytes <= text.capacity);
	metrics_text_deinit(&text);
}
