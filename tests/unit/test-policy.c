/* SPDX-License-Identifier: MIT */
/* Policies: patterns, sizes, what there is without a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fail-alloc.h"
#include "tenant/policy-pattern.h"
#include "tenant/policy.h"
#include "util/checked.h"

static void test_pattern__matches(void **state)
{
	static const struct {
		const char *pattern, *path;
		bool is_match;
	} cases[] = {
		{"/", "/", true},
		{"/", "/a", false},
		{"/a", "/", false},
		{"/a", "/a", true},
		{"/a", "/ab", false},
		{"/ab", "/a", false},
		{"/a", "/a/b", false},
		{"/b", "/a/b", false},
		{"/a/b", "/a/b", true},
		{"/*", "/a", true},
		{"/*", "/", false},
		{"/*", "/a/b", false},
		{"/a/*", "/a/b", true},
		{"/a/*", "/a", false},
		{"/a*", "/a", true},
		{"/*a", "/bca", true},
		{"/*a", "/bcab", false},
		{"/system.slice/web-*.service", "/system.slice/web-1.service", true},
		{"/system.slice/web-*.service", "/system.slice/web-.service", true},
		{"/system.slice/web-*.service", "/system.slice/web-1.service/x", false},
		{"/system.slice/web-*.service", "/system.slice/a/web-1.service", false},
		{"/system.slice/web-*.service", "/x/system.slice/web-1.service", false},
		{"/system.slice/web-*.service", "/system.slice/web-1/x.service", false},
		{"/*a*b*c", "/xaybzc", true},
		{"/*a*b*c", "/abcabc", true},
		{"/*a*b*c", "/abcabcd", false},
		{"/*ab*ab", "/ab", false},
		{"/*ab*ab", "/abab", true},
		{"/**", "/", true},
		{"/**", "/a/b/c", true},
		{"/a/**", "/a", true},
		{"/a/**", "/a/b/c", true},
		{"/a/**", "/b/a", false},
		{"/**/a", "/a", true},
		{"/**/a", "/b/c/a", true},
		{"/**/a", "/b/c/a/d", false},
		{"/a/**/b", "/a/b", true},
		{"/a/**/b", "/a/x/y/b", true},
		{"/a/**/b", "/a/b/b", true},
		{"/a/**/b", "/a/b/c", false},
		{"/**/a/**/b/**", "/x/a/y/b/z", true},
		{"/**/a/**/b/**", "/x/b/y/a/z", false},
		{"/**/a/b/**/a/c", "/a/b/a/b/a/c", true},
		{"/**/a/b/**/a/c", "/a/a/b/a/d", false},
		{"/**/*x/y", "/ax/bx/y", true},
		{"/**/**", "/a", true},
		{"/*.scope", "/.scope", true},
		{"/a.b", "/axb", false},
		{"/[a]", "/a", false},
		{"/?", "/a", false},
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_true(policy_pattern_is_valid(cases[i].pattern));
		if (policy_pattern_matches(cases[i].pattern, cases[i].path) != cases[i].is_match)
			fail_msg("%s and %s", cases[i].pattern, cases[i].path);
	}
}

static void test_pattern__validity(void **state)
{
	static const char *const valid[] = {"/", "/a", "/*", "/**", "/a/**/b", "/a*b*"};
	static const char *const invalid[] = {"",      "a",    "*",    "**",   "//",      "/a/",
					      "/a//b", "/a**", "/**b", "/***", "/a/b**c", "/****"};

	for (unsigned int i = 0; i < ARRAY_SIZE(valid); i++)
		assert_true(policy_pattern_is_valid(valid[i]));
	for (unsigned int i = 0; i < ARRAY_SIZE(invalid); i++)
		assert_false(policy_pattern_is_valid(invalid[i]));
	assert_int_equal(policy_pattern_literals("/a*/**/bc"), 6);
}

/* Exponential matchers do not come back from these. */
static void test_pattern__hostile(void **state)
{
	char pattern[4096], path[4096];
	size_t n = 0;

	while (n + 3 < sizeof(pattern))
		n += (size_t)sprintf(pattern + n, n ? "a*" : "/*");
	strcat(pattern, "b");
	memset(path, 'a', sizeof(path) - 1);
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	assert_true(policy_pattern_is_valid(pattern));
	assert_false(policy_pattern_matches(pattern, path));

	for (n = 0; n + 8 < sizeof(pattern);)
		n += (size_t)sprintf(pattern + n, "/**/a");
	strcpy(pattern + n, "/b");
	for (n = 0; n + 5 < sizeof(path);)
		n += (size_t)sprintf(path + n, "/a");
	assert_true(policy_pattern_is_valid(pattern));
	assert_false(policy_pattern_matches(pattern, path));
	strcpy(path + n, "/b");
	assert_true(policy_pattern_matches(pattern, path));
}

static void test_size__bytes(void **state)
{
	const struct policy_size whole = {.is_percent = true, .value = 10000};
	const struct policy_size part = {.is_percent = true, .value = 2550};
	const struct policy_size bytes = {.value = 12345};

	assert_int_equal(policy_size_bytes(whole, UINT64_MAX), UINT64_MAX);
	assert_int_equal(policy_size_bytes(whole, 0), 0);
	assert_int_equal(policy_size_bytes(part, 1000), 255);
	assert_int_equal(policy_size_bytes(part, 8ull << 30), (8ull << 30) * 255 / 1000);
	assert_int_equal(policy_size_bytes(part, 3), 0);
	assert_int_equal(policy_size_bytes(bytes, 10), 12345);
}

static void test_defaults__are_there(void **state)
{
	const struct peer peer = {.pid = 1, .uid = 1000, .gid = 1000, .cgroup = "/"};
	const uint64_t devices[] = {0, 8ull << 30, 1};
	const struct tenant_policy *tenant;
	struct policy *policy = NULL;
	char *errors = NULL;
	unsigned int n;
	int r;

	for (n = 1;; n++) {
		fail_alloc_at(n);
		r = policy_defaults(&policy);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(policy);
	}
	assert_int_equal(r, 0);
	assert_int_equal(n, 3);
	assert_int_equal(policy_n_tenants(policy), 1);
	assert_int_equal(policy_match(policy, &peer), 0);
	tenant = policy_tenant(policy, 0);
	assert_string_equal(tenant->name, "default");
	assert_int_equal(policy_size_bytes(tenant->vram_max, 1000), 1000);
	assert_int_equal(policy_size_bytes(tenant->vram_reserve, 1000), 0);
	assert_int_equal(policy_size_bytes(tenant->vram_high, 1000), 1000);
	assert_int_equal(policy_size_bytes(tenant->gtt_max, 1000), 500);
	assert_int_equal(policy_size_bytes(tenant->host_max, 1000), 750);
	assert_int_equal(policy_size_bytes(policy_headroom(policy), 1000), 50);
	assert_int_equal(tenant->weight, 100);
	assert_int_equal(tenant->priority_max, RBK_PRIORITY_URGENT);
	assert_int_equal(policy_check_devices(policy, devices, 3, &errors), 0);
	assert_null(errors);
	policy_free(policy);
	assert_null(policy_free(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pattern__matches),
		cmocka_unit_test(test_pattern__validity),
		cmocka_unit_test(test_pattern__hostile),
		cmocka_unit_test(test_size__bytes),
		cmocka_unit_test(test_defaults__are_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
