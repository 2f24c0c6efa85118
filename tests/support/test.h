#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Tests that register themselves
 *
 * TEST(test_ring__full) { ... } defines and registers a cmocka test; the test's set-up and
 * tear-down may follow its name: TEST(test_ring__full, begin, end). Tests run in the order of the
 * source.
 *
 * A program without preparations needs no main(). TEST_MAIN(begin, end, clock_init()) defines a
 * main() with preparations, and with set-up and tear-down of all tests together. A program with
 * arguments has its own main(), which calls test_run(). Tests of a program that must not run
 * together are in groups: TEST_IN("old-kernel", test_ring__full) and test_run_group("old-kernel",
 * NULL, NULL).
 *
 * $RBK_TEST_FILTER names the tests to run, with * and ?; a filter that matches no test is a
 * failure. Include this header, not cmocka.h: the latter needs four other headers before it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define TEST(test_name, ...) TEST_IN("", test_name, ##__VA_ARGS__)

#define TEST_IN(group, test_name, ...)                                                    \
	static void test_name(void **state);                                              \
	static void run_##test_name(void **state)                                         \
	{                                                                                 \
		test_was_left = true;                                                     \
		test_name(state);                                                         \
		test_was_left = false;                                                    \
	}                                                                                 \
	__attribute__((constructor)) static void register_##test_name(void)               \
	{                                                                                 \
		const struct CMUnitTest test = {                                          \
			.name = #test_name, .test_func = run_##test_name, ##__VA_ARGS__}; \
                                                                                          \
		test_register(group, __LINE__, &test);                                    \
	}                                                                                 \
	static void test_name(void **state)

/* Define a main() that calls the functions after @tear_down, then runs all tests. */
#define TEST_MAIN(set_up, tear_down, ...)           \
	int main(void)                              \
	{                                           \
		__VA_ARGS__;                        \
		return test_run(set_up, tear_down); \
	}

/*
 * Have failed assertions outside of a test print where they are and what failed, and abort. Without
 * this, cmocka ends the process with status 255, and prints nothing. For processes that a test
 * starts; call it before they start threads.
 */
void test_abort_outside(void);

/*
 * True in the tear-down of a test that failed or was skipped. Its objects may still be in use;
 * an assertion of a destructor would end the program before the test's own message is printed.
 */
extern bool test_was_left;

/*
 * Define a local of struct @type; call @begin(&name, ...) here, and @end(&name) where its scope
 * ends.
 */
#define SCOPED(type, name, begin, end, ...)             \
	struct type name __attribute__((cleanup(end))); \
	begin(&name, ##__VA_ARGS__)

/* Compare integer members of @record: assert_fields(totals, (n_tasks, 5), (n_errors, 2)) */
#define assert_fields(record, ...) TEST_EXPAND(TEST_EACH(record, __VA_ARGS__))

/* Expand each pair in its own scan; there are 64 scans. */
#define TEST_EACH(record, pair, ...)            \
	TEST_FIELD_OF(record, TEST_UNPACK pair) \
	__VA_OPT__(TEST_AGAIN TEST_PARENS(record, __VA_ARGS__))
#define TEST_AGAIN()              TEST_EACH
#define TEST_PARENS               ()
#define TEST_EXPAND(...)          TEST_SCAN16(TEST_SCAN16(TEST_SCAN16(TEST_SCAN16(__VA_ARGS__))))
#define TEST_SCAN16(...)          TEST_SCAN4(TEST_SCAN4(TEST_SCAN4(TEST_SCAN4(__VA_ARGS__))))
#define TEST_SCAN4(...)           TEST_SCAN(TEST_SCAN(TEST_SCAN(TEST_SCAN(__VA_ARGS__))))
#define TEST_SCAN(...)            __VA_ARGS__
#define TEST_UNPACK(field, value) field, value
#define TEST_FIELD_OF(...)        TEST_FIELD(__VA_ARGS__)
#define TEST_FIELD(record, field, value)                                           \
	test_field(#record, #field, cast_to_largest_integral_type((record).field), \
		   cast_to_largest_integral_type(value), __FILE__, __LINE__);

/* Fail the test unless @is equals @expected. */
void test_field(const char *record, const char *field, uintmax_t is, uintmax_t expected,
		const char *file, int line);

/* Register a test that the source file defines in @line. Copies @test, borrows @group. */
void test_register(const char *group, unsigned int line, const struct CMUnitTest *test);

/*
 * Run all tests of TEST(), or those of a group, between @set_up and @tear_down, each of which may
 * be NULL.
 * Return: the number of failed tests, or another nonzero status for main().
 */
int test_run(CMFixtureFunction set_up, CMFixtureFunction tear_down);
int test_run_group(const char *group, CMFixtureFunction set_up, CMFixtureFunction tear_down);
