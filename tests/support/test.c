/* SPDX-License-Identifier: MIT */
/*
 * The table of a program's tests
 *
 * Compilers promise no order of constructors, so tests are sorted by the line of their definition.
 */
#include "support/test.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TESTS = 256 };

static struct {
	const char *group;
	unsigned int line;
	struct CMUnitTest test;
} tests[MAX_TESTS];
static size_t n_tests;

bool test_was_left;

void test_register(const char *group, unsigned int line, const struct CMUnitTest *test)
{
	size_t i;

	if (n_tests == MAX_TESTS) {
		fputs("more tests than MAX_TESTS of support/test.c\n", stderr);
		abort();
	}
	for (i = n_tests++; i > 0 && tests[i - 1].line > line; i--)
		tests[i] = tests[i - 1];
	tests[i].group = group;
	tests[i].line = line;
	tests[i].test = *test;
}

static bool is_any_named(const char *filter)
{
	for (size_t i = 0; i < n_tests; i++)
		if (fnmatch(filter, tests[i].test.name, 0) == 0)
			return true;
	return false;
}

int test_run_group(const char *group, CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
	const char *filter = getenv("RBK_TEST_FILTER");
	struct CMUnitTest run[MAX_TESTS];
	size_t n = 0;

	for (size_t i = 0; i < n_tests; i++)
		if (strcmp(tests[i].group, group) == 0)
			run[n++] = tests[i].test;
	if (n == 0) {
		fprintf(stderr, "no test in group \"%s\"\n", group);
		return EXIT_FAILURE;
	}
	if (filter && !is_any_named(filter)) {
		fprintf(stderr, "no test is named \"%s\"\n", filter);
		return EXIT_FAILURE;
	}
	if (filter)
		cmocka_set_test_filter(filter);
	return _cmocka_run_group_tests("tests", run, n, set_up, tear_down);
}

int test_run(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
	return test_run_group("", set_up, tear_down);
}

void test_abort_outside(void)
{
	setenv("CMOCKA_TEST_ABORT", "1", 1);
}

void test_field(const char *record, const char *field, uintmax_t is, uintmax_t expected,
		const char *file, int line)
{
	if (is == expected)
		return;
	print_error("%s of %s: %#jx != %#jx\n", field, record, is, expected);
	_fail(file, line);
}
