/* SPDX-License-Identifier: MIT */
/* brokerbench's arithmetic and its report, through which every figure passes. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "samples.h"
#include "fail-alloc.h"
#include "support/test.h"

TEST(test_samples__percentiles_by_nearest_rank)
{
	struct samples samples = SAMPLES_INIT;

	assert_int_equal(samples_reserve(&samples, 100), 0);
	for (int i = 100; i >= 1; i--)
		samples_add(&samples, i);
	assert_int_equal(samples_room(&samples), 0);
	assert_float_equal(samples_percentile(&samples, 50.0), 50.0, 0.0);
	assert_float_equal(samples_percentile(&samples, 99.0), 99.0, 0.0);
	assert_float_equal(samples_percentile(&samples, 1.0), 1.0, 0.0);
	assert_float_equal(samples_percentile(&samples, 100.0), 100.0, 0.0);
	assert_float_equal(samples_percentile(&samples, 0.0), 1.0, 0.0);

	samples_clear(&samples);
	samples_add(&samples, 7.0);
	assert_float_equal(samples_percentile(&samples, 50.0), 7.0, 0.0);
	assert_float_equal(samples_percentile(&samples, 99.0), 7.0, 0.0);
	samples_deinit(&samples);
	assert_null(samples.values);
}

TEST(test_samples__growing_keeps_what_was_there)
{
	struct samples samples = SAMPLES_INIT;

	for (int i = 0; i < 1000; i++) {
		assert_int_equal(samples_reserve(&samples, 1), 0);
		samples_add(&samples, i);
	}
	assert_int_equal(samples.n, 1000);
	for (int i = 0; i < 1000; i++)
		assert_float_equal(samples.values[i], i, 0.0);
	samples_deinit(&samples);
}

TEST(test_samples__no_memory)
{
	struct samples samples = SAMPLES_INIT;

	assert_int_equal(samples_reserve(&samples, 1), 0);
	samples_add(&samples, 3.0);
	fail_alloc_at(1);
	assert_int_equal(samples_reserve(&samples, 1000), -ENOMEM);
	assert_true(fail_alloc_stop());
	assert_float_equal(samples_percentile(&samples, 50.0), 3.0, 0.0);
	samples_deinit(&samples);
}

static char *json_of(const struct report_row *row)
{
	char *text = NULL;
	size_t n;
	FILE *file = open_memstream(&text, &n);

	assert_non_null(file);
	report_json(file, row);
	fclose(file);
	return text;
}

TEST(test_report__json_has_the_fields)
{
	const struct report_row row = {
		.bench = "nop-throughput",
		.params = "batch=64",
		.unit = "M/s",
		.p50 = 75.5,
		.p99 = 70,
		.baseline = "bare-ring",
		.baseline_p50 = 151,
		.baseline_p99 = 140.25,
		.p999 = 60,
		.baseline_p999 = 130,
		.target = 0.9,
	};
	char *text = json_of(&row);

	assert_string_equal(text,
			    "{\"bench\":\"nop-throughput\",\"params\":\"batch=64\","
			    "\"unit\":\"M/s\",\"p50\":75.5,\"p99\":70,"
			    "\"baseline\":\"bare-ring\",\"baseline_p50\":151,"
			    "\"baseline_p99\":140.25,\"ratio\":0.5,\"target\":0.9,\"p999\":60,"
			    "\"baseline_p999\":130}\n");
	free(text);
}

TEST(test_report__json_escapes)
{
	const struct report_row row = {
		.bench = "a\"b",
		.params = "c\\d\n\t\x01",
		.unit = "\xc2\xb5s",
		.baseline = "",
		.baseline_p50 = 1,
	};
	char *text = json_of(&row);

	assert_non_null(strstr(text, "\"bench\":\"a\\\"b\","));
	assert_non_null(strstr(text, "\"params\":\"c\\\\d\\u000a\\u0009\\u0001\","));
	assert_non_null(strstr(text, "\"unit\":\"\xc2\xb5s\","));
	assert_non_null(strstr(text, "\"baseline\":\"\","));
	/* The only line end is the last character. */
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	free(text);
}

TEST(test_report__no_ratio_to_nothing)
{
	const struct report_row row = {
		.bench = "b",
		.params = "p",
		.unit = "u",
		.p50 = 1,
		.p99 = HUGE_VAL,
		.baseline = "none",
	};
	char *text = json_of(&row);

	assert_true(isnan(report_ratio(&row)));
	assert_non_null(strstr(text, "\"p99\":null,"));
	assert_non_null(strstr(text, "\"ratio\":null,\"target\":null,"));
	free(text);
}

TEST(test_report__table_has_one_heading)
{
	const struct report_row row = {
		.bench = "wake-latency",
		.params = "asleep",
		.unit = "us",
		.p50 = 60.25,
		.p99 = 131,
		.baseline = "eventfd-ping-pong",
		.baseline_p50 = 50,
		.baseline_p99 = 120,
	};
	char *text = NULL, *second;
	size_t n;
	FILE *file = open_memstream(&text, &n);

	assert_non_null(file);
	report_table(file, &row, true);
	report_table(file, &row, false);
	fclose(file);
	assert_int_equal(strncmp(text, "bench ", 6), 0);
	second = strchr(text, '\n') + 1;
	assert_int_equal(strncmp(second, "wake-latency ", 13), 0);
	assert_non_null(strstr(second, " 60.25 "));
	assert_non_null(strstr(second, " 1.205       -\n"));
	assert_null(strstr(second, "bench "));
	free(text);
}
