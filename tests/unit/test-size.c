/* SPDX-License-Identifier: MIT */
/* Parsing sizes with units */
#include "support/test.h"
#include "util/checked.h"
#include "util/size.h"

TEST(test_parse__accepted)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} cases[] = {
		{"0", 0},
		{"4096", 4096},
		{"7B", 7},
		{"64KiB", 65536},
		{"64k", 65536},
		{"2m", 2097152},
		{"1MiB", 1048576},
		{"1.5GiB", 1610612736},
		{"2G", 2147483648},
		{"3TiB", 3298534883328},
		{"0.5K", 512},
		{"0.0001K", 0},
		{"18446744073709551615", UINT64_MAX},
		{"16777215T", 16777215ull << 40},
		{"1e3", 1000},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t bytes = 42;

		if (!size_parse(cases[i].text, &bytes))
			fail_msg("%s was refused", cases[i].text);
		if (bytes != cases[i].bytes)
			fail_msg("%s: %llu", cases[i].text, (unsigned long long)bytes);
	}
}

/* People write few digits, and the text is parsed to the same bytes. */
TEST(test_text)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{0, "0"},
		{1, "1"},
		{1000, "1000"},
		{1023, "1023"},
		{1024, "1KiB"},
		{1025, "1025"},
		{1536, "1.5KiB"},
		{10240, "10KiB"},
		{65536, "64KiB"},
		{100ull << 20, "100MiB"},
		{2147483648, "2GiB"},
		{1610612736, "1.5GiB"},
		{1152ull << 20, "1.125GiB"},
		{1088ull << 20, "1088MiB"},
		{3298534883328, "3TiB"},
		{(1ull << 40) + 1, "1099511627777"},
		{UINT64_MAX, "18446744073709551615"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char text[SIZE_TEXT_BYTES];
		uint64_t bytes = 42;

		assert_string_equal(size_text(cases[i].bytes, text), cases[i].text);
		assert_true(size_parse(text, &bytes));
		assert_true(bytes == cases[i].bytes);
	}
}

TEST(test_rounded)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{0, "0 B"},
		{1023, "1023 B"},
		{1024, "1 KiB"},
		{528384, "516 KiB"},
		{1536 << 20, "1.5 GiB"},
		{(100 << 20) + 1, "100 MiB"},
		{UINT64_MAX, "16 EiB"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(SIZE_ROUNDED(cases[i].bytes), cases[i].text);
}

/* Different sizes never look equal beside each other. */
TEST(test_rounded__beside)
{
	assert_string_equal(SIZE_BESIDE((100 << 20) + 1, 100 << 20), "100 MiB (104857601 bytes)");
	assert_string_equal(SIZE_BESIDE(100 << 20, 100 << 20), "100 MiB");
	assert_string_equal(SIZE_BESIDE(101 << 20, 100 << 20), "101 MiB");
}

TEST(test_parse__refused)
{
	static const char *const cases[] = {
		"",          " 1",
		"1 ",        "1 K",
		"-1",        "+1",
		"K",         ".5K",
		"1.5",       "1.5B",
		"0x10",      "0X10",
		"1Q",        "1Kb",
		"1KiBs",     "inf",
		"nan",       "1,5G",
		"1-",        "1_0",
		"1KK",       "18446744073709551616",
		"16777216T", "1e30",
		"1e999999",
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t bytes = 42;

		if (size_parse(cases[i], &bytes))
			fail_msg("'%s' was taken for %llu", cases[i], (unsigned long long)bytes);
		assert_int_equal(bytes, 42);
	}
}
