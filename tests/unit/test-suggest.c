/* SPDX-License-Identifier: MIT */
/* Suggestions for mistyped names */
#include <stdlib.h>
#include <string.h>

#include "support/test.h"
#include "util/suggest.h"

static const char *const names[] = {"status", "devices", "tenants", "sessions", "set",
				    "drain",  "stats",   "trace",   "watch",    NULL};

TEST(test_suggest__slips)
{
	static const char *const slips[][2] = {
		{"devcies", "devices"},   {"device", "devices"},   {"tennants", "tenants"},
		{"tenats", "tenants"},    {"sesions", "sessions"}, {"drian", "drain"},
		{"trac", "trace"},        {"statsu", "status"},    {"whatch", "watch"},
		{"sessoins", "sessions"},
	};

	for (unsigned int i = 0; i < sizeof(slips) / sizeof(slips[0]); i++)
		assert_string_equal(suggest(slips[i][0], names), slips[i][1]);
}

/* A prefix of exactly one name. */
TEST(test_suggest__beginnings)
{
	assert_string_equal(suggest("dev", names), "devices");
	assert_string_equal(suggest("te", names), "tenants");
	assert_string_equal(suggest("w", names), "watch");
	assert_null(suggest("s", names));
}

TEST(test_suggest__nothing_near)
{
	char long_word[400];

	assert_null(suggest("", names));
	assert_null(suggest("x", names));
	assert_null(suggest("elephant", names));
	assert_null(suggest("no", names));
	memset(long_word, 's', sizeof(long_word) - 1);
	long_word[sizeof(long_word) - 1] = '\0';
	assert_null(suggest(long_word, names));
	assert_null(suggest("status", (const char *const[]){NULL}));
}
