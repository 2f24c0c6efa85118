/* SPDX-License-Identifier: MIT */
/* The layer's environment variables, and messages about invalid values. */
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include <ringbroker/abi.h>

#include "libclient/layer/environment.h"
#include "support/test.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

static void clear(void)
{
	unsetenv("RINGBROKER_LEASE");
	unsetenv("RINGBROKER_LEASE_VRAM");
	unsetenv("RINGBROKER_LEASE_MIN");
	unsetenv("RINGBROKER_LEASE_MAX");
	unsetenv("RINGBROKER_LEASE_WAIT");
	unsetenv("RINGBROKER_LEASE_PRIORITY");
	unsetenv("RINGBROKER_LEASE_MAX_PART");
	unsetenv("RINGBROKER_LEASE_SHARE");
	unsetenv("RINGBROKER_LEASE_LOG");
}

TEST(test_sizes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} right[] = {
		{"0", 0},
		{"4096", 4096},
		{"4GiB", 4 * GIB},
		{"4gib", 4 * GIB},
		{"1.5G", 3 * GIB / 2},
		{"0.25M", MIB / 4},
		{"18446744073709551615", UINT64_MAX},
		{"1.0000000000001K", 1024},
		{"64KiB", 65536},
		{"1TiB", 1024 * GIB},
		{"12B", 12},
	};
	static const char *const wrong[] = {
		"",
		"GiB",
		"-1",
		"+1",
		" 1",
		"1 GiB",
		"4GB",
		"1.5",
		"1.G",
		"0x10",
		"1e9",
		"4GiBx",
		"inf",
		"nan",
		"18446744073709551616",
		"16777216TiB",
		".5G",
		"1,5G",
	};
	uint64_t bytes;

	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
		assert_true(environment_parse_size(right[i].text, &bytes));
		assert_int_equal(bytes, right[i].bytes);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		bytes = 77;
		if (environment_parse_size(wrong[i], &bytes))
			fail_msg("\"%s\" is taken for %llu", wrong[i], (unsigned long long)bytes);
		assert_int_equal(bytes, 77);
	}
}

TEST(test_durations)
{
	uint64_t ns;

	assert_true(environment_parse_duration("30s", &ns));
	assert_int_equal(ns, 30000000000u);
	assert_true(environment_parse_duration("1.5", &ns));
	assert_int_equal(ns, 1500000000u);
	assert_true(environment_parse_duration("500ms", &ns));
	assert_int_equal(ns, 500000000u);
	assert_true(environment_parse_duration("2min", &ns));
	assert_int_equal(ns, 120000000000u);
	assert_true(environment_parse_duration("1h", &ns));
	assert_true(environment_parse_duration("0", &ns));
	assert_int_equal(ns, 0);
	assert_false(environment_parse_duration("30 s", &ns));
	assert_false(environment_parse_duration("forever", &ns));
	assert_false(environment_parse_duration("5d", &ns));
	assert_false(environment_parse_duration("99999999999999999h", &ns));
}

TEST(test_own)
{
	struct environment environment;

	clear();
	setenv("RINGBROKER_LEASE_VRAM", "4GiB", 1);
	setenv("RINGBROKER_LEASE_WAIT", "2s", 1);
	setenv("RINGBROKER_LEASE_LOG", "-", 1);
	environment_read(&environment);
	assert_string_equal(environment.error, "");
	assert_fields(environment, (lease, 0), (min_bytes, 0), (wish_bytes, 4 * GIB),
		      (max_bytes, 4 * GIB), (wait_ns, 2000000000u));
	assert_string_equal(environment.log_path, "-");
	assert_fields(environment, (has_priority, false), (has_max_part, false));

	/* Parts are for programs that share the device. */
	setenv("RINGBROKER_LEASE_MAX_PART", "2ms", 1);
	environment_read(&environment);
	assert_string_equal(environment.error, "");
	assert_fields(environment, (is_sharing, true), (has_priority, false), (has_max_part, true),
		      (max_part_ns, 2000000));
	unsetenv("RINGBROKER_LEASE_MAX_PART");

	/* Memory that moves has nothing to do with that. */
	assert_false(environment.is_movable);
	setenv("RINGBROKER_LEASE_SLEEP", "1", 1);
	environment_read(&environment);
	assert_string_equal(environment.error, "");
	assert_fields(environment, (is_movable, true), (is_sharing, false));
	setenv("RINGBROKER_LEASE_SLEEP", "0", 1);
	environment_read(&environment);
	assert_false(environment.is_movable);
	unsetenv("RINGBROKER_LEASE_SLEEP");

	/* So are shares. */
	setenv("RINGBROKER_LEASE_SHARE", "25", 1);
	environment_read(&environment);
	assert_string_equal(environment.error, "");
	assert_fields(environment, (is_sharing, true), (has_priority, false), (has_max_part, false),
		      (share, 25));
	unsetenv("RINGBROKER_LEASE_SHARE");

	setenv("RINGBROKER_LEASE_PRIORITY", "background", 1);
	setenv("RINGBROKER_LEASE_MIN", "1GiB", 1);
	setenv("RINGBROKER_LEASE_MAX", "6GiB", 1);
	environment_read(&environment);
	assert_string_equal(environment.error, "");
	assert_fields(environment, (min_bytes, GIB), (max_bytes, 6 * GIB), (has_priority, true),
		      (priority, RBK_PRIORITY_LOW), (has_max_part, false), (max_part_ns, 500000));

	unsetenv("RINGBROKER_LEASE_VRAM");
	environment_read(&environment);
	assert_string_equal(environment.error, "");
	assert_int_equal(environment.wish_bytes, 6 * GIB);
}

TEST(test_joining)
{
	struct environment environment;

	clear();
	setenv("RINGBROKER_LEASE", "4294967295", 1);
	/* The size is ignored when joining a lease, even if invalid. */
	setenv("RINGBROKER_LEASE_VRAM", "much", 1);
	environment_read(&environment);
	assert_string_equal(environment.error, "");
	assert_int_equal(environment.lease, UINT32_MAX);
}

static void check_error(const char *variable, const char *value, const char *sentence)
{
	struct environment environment;

	setenv(variable, value, 1);
	environment_read(&environment);
	if (!strstr(environment.error, sentence))
		fail_msg("%s=%s: \"%s\" has no \"%s\"", variable, value, environment.error,
			 sentence);
	assert_true(strlen(environment.error) < sizeof(environment.error) - 1);
}

TEST(test_errors)
{
	char long_text[2000];

	clear();
	check_error("RINGBROKER_LEASE_LOG", "", "set RINGBROKER_LEASE_VRAM");
	memset(long_text, '9', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	check_error("RINGBROKER_LEASE", long_text, "not a lease's number");
	check_error("RINGBROKER_LEASE", "0", "not a lease's number");
	check_error("RINGBROKER_LEASE", "4294967296", "not a lease's number");
	check_error("RINGBROKER_LEASE", "-1", "not a lease's number");
	check_error("RINGBROKER_LEASE", "7x", "RINGBROKER_LEASE=7x is not a lease");
	unsetenv("RINGBROKER_LEASE");
	check_error("RINGBROKER_LEASE_VRAM", long_text, "is not a size");
	check_error("RINGBROKER_LEASE_VRAM", "4GB", "RINGBROKER_LEASE_VRAM=4GB is not a size");
	check_error("RINGBROKER_LEASE_VRAM", "0", "is not a size");
	setenv("RINGBROKER_LEASE_VRAM", "4GiB", 1);
	check_error("RINGBROKER_LEASE_MAX", "3GiB", "VRAM is larger than RINGBROKER_LEASE_MAX");
	check_error("RINGBROKER_LEASE_MAX", "3Gi", "RINGBROKER_LEASE_MAX=3Gi");
	unsetenv("RINGBROKER_LEASE_MAX");
	check_error("RINGBROKER_LEASE_MIN", "5GiB", "MIN is larger than RINGBROKER_LEASE_VRAM");
	unsetenv("RINGBROKER_LEASE_MIN");
	check_error("RINGBROKER_LEASE_WAIT", "soon",
		    "RINGBROKER_LEASE_WAIT=soon is not a duration");
	check_error("RINGBROKER_LEASE_WAIT", "61min",
		    "RINGBROKER_LEASE_WAIT=61min is not a duration of an hour at most");
	unsetenv("RINGBROKER_LEASE_WAIT");
	check_error("RINGBROKER_LEASE_PRIORITY", "low",
		    "RINGBROKER_LEASE_PRIORITY=low is not urgent, normal or background");
	unsetenv("RINGBROKER_LEASE_PRIORITY");
	check_error("RINGBROKER_LEASE_SLEEP", "yes", "RINGBROKER_LEASE_SLEEP=yes is not 0 or 1");
	unsetenv("RINGBROKER_LEASE_SLEEP");
	check_error("RINGBROKER_LEASE_SHARE", "0",
		    "RINGBROKER_LEASE_SHARE=0 is not a number from 1 to 10000");
	check_error("RINGBROKER_LEASE_SHARE", "10001", "from 1 to 10000");
	check_error("RINGBROKER_LEASE_SHARE", "25%", "from 1 to 10000");
	unsetenv("RINGBROKER_LEASE_SHARE");
	check_error("RINGBROKER_LEASE_MAX_PART", "500", "RINGBROKER_LEASE_MAX_PART=500 is not");
	check_error("RINGBROKER_LEASE_MAX_PART", "0us", "from 1us to 2s");
	check_error("RINGBROKER_LEASE_MAX_PART", "soon", "from 1us to 2s");
}

/* A locale in which the decimal separator is a comma. */
TEST(test_locale)
{
	uint64_t bytes;

	if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8"))
		skip();
	assert_true(environment_parse_size("1.5G", &bytes));
	assert_int_equal(bytes, 3 * GIB / 2);
	setlocale(LC_ALL, "C");
}
