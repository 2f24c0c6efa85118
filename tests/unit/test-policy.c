/* SPDX-License-Identifier: MIT */
/*
 * Policies: patterns, sizes, defaults, every complaint about a file, matching of peers, limits that
 * fit
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fail-alloc.h"
#include "support/test.h"
#include "tenant/policy-pattern.h"
#include "tenant/policy-private.h"
#include "util/checked.h"

TEST(test_pattern__matches)
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

TEST(test_pattern__validity)
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

/* A matcher of exponential complexity would not return. */
TEST(test_pattern__hostile)
{
	char pattern[4096], path[4096];
	size_t n = 0;

	while (n + 3 < sizeof(pattern))
		n += (size_t)snprintf(pattern + n, 3, n ? "a*" : "/*");
	strcat(pattern, "b");
	memset(path, 'a', sizeof(path) - 1);
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	assert_true(policy_pattern_is_valid(pattern));
	assert_false(policy_pattern_matches(pattern, path));

	for (n = 0; n + 8 < sizeof(pattern);)
		n += (size_t)snprintf(pattern + n, 6, "/**/a");
	strcpy(pattern + n, "/b");
	for (n = 0; n + 5 < sizeof(path);)
		n += (size_t)snprintf(path + n, 3, "/a");
	assert_true(policy_pattern_is_valid(pattern));
	assert_false(policy_pattern_matches(pattern, path));
	strcpy(path + n, "/b");
	assert_true(policy_pattern_matches(pattern, path));
}

TEST(test_size__bytes)
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

TEST(test_defaults__are_there)
{
	const struct peer peer = {.pid = 1, .uid = 1000, .gid = 1000, .cgroup = "/"};
	const uint64_t devices[] = {0, 8ull << 30, 1};
	const struct tenant_policy *tenant;
	struct policy *policy = NULL;
	struct policy_errors errors = {.n = 0};
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
	assert_int_equal(policy_match_kinds(policy), 0);
	tenant = policy_tenant(policy, 0);
	assert_string_equal(tenant->name, "default");
	assert_int_equal(policy_size_bytes(tenant->vram_max, 1000), 1000);
	assert_int_equal(policy_size_bytes(tenant->vram_reserve, 1000), 0);
	assert_int_equal(policy_size_bytes(tenant->vram_high, 1000), 1000);
	assert_int_equal(policy_size_bytes(tenant->gtt_max, 1000), 500);
	assert_int_equal(policy_size_bytes(tenant->host_max, 1000), 750);
	assert_int_equal(policy_size_bytes(policy_headroom(policy), 1000), 50);
	assert_fields(*tenant, (weight, 100), (priority_max, RBK_PRIORITY_URGENT));
	assert_int_equal(policy_check_devices(policy, devices, 3, &errors), 0);
	assert_null(errors.text);
	policy_free(policy);
	assert_null(policy_free(NULL));
}

/* ---- Files ---- */

static struct policy *load(const char *text)
{
	struct policy *policy = NULL;
	struct policy_errors errors = {.n = 0};
	int r = policy_load_text("f", text, strlen(text), NULL, &policy, &errors);

	if (r)
		fail_msg("%s: %s", text, errors.text ? errors.text : strerror(-r));
	assert_null(errors.text);
	return policy;
}

static uint32_t count_lines(const char *text)
{
	uint32_t n = 0;

	while ((text = strchr(text, '\n')))
		text++, n++;
	return n;
}

static void expect_errors_of(const char *text, size_t bytes, const char *expected)
{
	struct policy *policy = NULL;
	struct policy_errors errors = {.n = 0};

	assert_int_equal(policy_load_text("f", text, bytes, NULL, &policy, &errors),
			 POLICY_E_INVALID);
	assert_null(policy);
	assert_string_equal(errors.text, expected);
	assert_int_equal(errors.n, count_lines(expected));
	assert_null(errors.warnings);
	policy_errors_deinit(&errors);
}

#define expect_errors(text, expected) expect_errors_of(text, strlen(text), expected)

TEST(test_load__everything)
{
	struct policy *policy = load("\xef\xbb\xbf# A comment\r\n"
				     "[broker]\r\n"
				     "vram-headroom = 256 MiB\r\n"
				     "; another\n"
				     "\n"
				     "  [tenant web]\n"
				     "\tmatch-uid = root, \\\n"
				     "    1001, \\\n"
				     "    1002,\n"
				     "  match-uid=4294967294\n"
				     "match-gid = 7,8 ; why\n"
				     "match-cgroup = /a/*, /b/**\n"
				     "match-exe = /usr/bin/a b\n"
				     "vram-max = 25.5%\n"
				     "vram-reserve = 10 %\n"
				     "vram-high = 20.05%\n"
				     "gtt-max = 1.5GiB\n"
				     "host-max = 4096\n"
				     "weight = 10000\n"
				     "cpu-max = 150 %\n"
				     "priority-max = low\n"
				     "sessions-max = 0\n"
				     "arenas-max = 1\n"
				     "arena-bytes-max = 64K\n"
				     "plans-max = 3\n"
				     "tasks-max = 1000000000\n"
				     "lease-audit = stop\n"
				     "lease-required = yes\n"
				     "lease-tolerance = 1 MiB\n"
				     "exec-priority = background\n"
				     "exec-max-part = 1.5 ms\n"
				     "[tenant default]\n"
				     "weight = 1");
	const struct tenant_policy *web = policy_tenant(policy, 1);
	const struct policy_section *section = &policy->sections[1];
	char *text;

	assert_int_equal(policy_n_tenants(policy), 2);
	assert_int_equal(policy_tenant(policy, 0)->weight, 1);
	assert_int_equal(policy_size_bytes(policy_headroom(policy), 1), 256 << 20);
	assert_string_equal(web->name, "web");
	assert_fields(*section, (n_uids, 4), (uids[0], 0), (uids[2], 1002), (uids[3], 4294967294),
		      (n_gids, 2), (n_cgroups, 2), (n_exes, 1));
	assert_string_equal(section->exes[0], "/usr/bin/a b");
	assert_int_equal(policy_size_bytes(web->vram_max, 1000), 255);
	assert_int_equal(policy_size_bytes(web->vram_reserve, 1000), 100);
	assert_int_equal(policy_size_bytes(web->vram_high, 10000), 2005);
	assert_int_equal(policy_size_bytes(web->gtt_max, 0), 3 << 29);
	assert_int_equal(policy_size_bytes(web->host_max, 0), 4096);
	assert_int_equal(web->weight, 10000);
	assert_float_equal(web->cpu_max, 1.5, 0);
	assert_float_equal(policy_tenant(policy, 0)->cpu_max, 0, 0);
	assert_fields(*web, (priority_max, RBK_PRIORITY_LOW), (sessions_max, 0), (arenas_max, 1),
		      (arena_bytes_max, 65536), (plans_max, 3), (tasks_max, 1000000000));

	text = policy_describe(policy, 1, 1 << 20);
	assert_string_equal(
		text, "tenant web: match-uid = 0, 1001, 1002, 4294967294; match-gid = 7, 8; "
		      "match-cgroup = /a/*, /b/**; match-exe = /usr/bin/a b; vram-max = 25.50%; "
		      "vram-reserve = 10%; vram-high = 20.05%; gtt-max = 1.5GiB; "
		      "host-max = 4KiB; weight = 10000; cpu-max = 150%; priority-max = low; "
		      "sessions-max = 0; arenas-max = 1; arena-bytes-max = 64KiB; plans-max = 3; "
		      "tasks-max = 1000000000; lease-audit = stop; lease-required = yes; "
		      "lease-tolerance = 1MiB; exec-priority = background; exec-max-part = 1.5ms");
	assert_fields(*web, (exec_priority, 1 + RBK_PRIORITY_LOW), (exec_max_part_ns, 1500000));
	assert_fields(*policy_tenant(policy, 0), (exec_priority, 0), (exec_max_part_ns, 0));
	assert_int_equal(policy_tenant(policy, 0)->lease_audit, POLICY_AUDIT_WARN);
	assert_int_equal(policy_tenant(policy, 0)->lease_required, 0);
	free(text);
	policy_free(policy);
	/* An empty file is a policy, too. */
	policy_free(load(""));
	policy_free(load("\xef\xbb\xbf"));
	policy_free(load("\n\r\n  \n\t"));
}

TEST(test_load__cpu_max)
{
	static const struct {
		const char *value;
		float processors; /* below 0: refused */
	} cases[] = {
		{"150%", 1.5f},      {"50%", 0.5f},      {"1%", 0.01f},
		{"102400%", 1024},   {"2", 2},           {"1.5", 1.5f},
		{"0.25", 0.25f},     {"1024", 1024},     {"0", 0},
		{"0%", 0},           {"12.5 %", 0.125f}, {"-1", -1},
		{"0.5%", -1},        {"0.001", -1},      {"102401%", -1},
		{"1025", -1},        {"nan", -1},        {"inf", -1},
		{"infinity", -1},    {"", -1},           {"%", -1},
		{"1e3%", -1},        {"0x10", -1},       {"1%%", -1},
		{"1 processor", -1}, {".5", -1},         {"1,5", -1},
		{"+1", -1},
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		struct policy *policy = NULL;
		char text[128], wanted[256], *line;

		snprintf(text, sizeof(text), "[tenant default]\ncpu-max = %s\n", cases[i].value);
		if (cases[i].processors >= 0) {
			policy = load(text);
			assert_float_equal(policy_tenant(policy, 0)->cpu_max, cases[i].processors,
					   0);
			line = policy_describe(policy, 0, 1);
			assert_int_equal(strstr(line, "cpu-max") != NULL, cases[i].processors > 0);
			free(line);
			policy_free(policy);
			continue;
		}
		snprintf(wanted, sizeof(wanted),
			 "f:2: cpu-max: '%s' is not a quota; expected 1%% to 102400%% of one "
			 "processor, such as 150%%, or a number of processors up to 1024, such as "
			 "1.5, or 0 for no quota\n",
			 cases[i].value);
		expect_errors(text, wanted);
	}
}

TEST(test_load__lines)
{
	char text[512];

	expect_errors("x = 1\n",
		      "f:1: x: the key is in no section; [broker] or [tenant NAME] must come "
		      "first\n");
	expect_errors("[tenant a]\nmatch-uid = 1\n\njunk\n[x]\n[tenant]\n[tenant a\n"
		      "[tenant b] c\n[broker]\n[broker]\n",
		      "f:4: the line is neither a [section] nor KEY = VALUE nor a # comment\n"
		      "f:5: there is no section [x]; expected [broker] or [tenant NAME]\n"
		      "f:6: there is no section [tenant]; expected [broker] or [tenant NAME]\n"
		      "f:7: the section's ']' is missing\n"
		      "f:8: text follows the section's ']'; put a comment on a line of its own\n"
		      "f:10: section [broker] is in line 9 already; give it once\n");
	expect_errors_of("[tenant a]\nmatch-uid = \0001\n", 26,
			 "f:2: the line has a control character (0x00); only text and tabs are "
			 "allowed\n"
			 "f:1: tenant a matches no client; it needs at least one of match-uid, "
			 "match-gid, match-cgroup and match-exe\n");
	expect_errors("[broker]\nvram-headroom = 5%\x7f\nvram-headroom = 5\033%\n",
		      "f:2: the line has a control character (0x7f); only text and tabs are "
		      "allowed\n"
		      "f:3: the line has a control character (0x1b); only text and tabs are "
		      "allowed\n");
	/* A carriage return is accepted only at the end of a line. */
	expect_errors("[broker]\nvram-\rheadroom = 5%\n",
		      "f:2: the line has a control character (0x0d); only text and tabs are "
		      "allowed\n");
	/* The '=' is in a comment. */
	expect_errors("[broker]\nvram-headroom ; = 5%\n",
		      "f:2: the line is neither a [section] nor KEY = VALUE nor a # comment\n");

	/* The longest allowed line, and one byte more. */
	strcpy(text, "[tenant a]\nmatch-exe = /");
	memset(text + strlen(text), 'x', 190 - 13);
	text[11 + 190] = '\0';
	policy_free(load(text));
	strcat(text, "y\nvram-max = 1x");
	expect_errors(text,
		      "f:2: the line has 191 bytes; at most 190 are allowed; a backslash at the "
		      "end continues a line in the next one\n"
		      "f:3: vram-max: '1x' is not a size; expected bytes, KiB, MiB, GiB, TiB or 0% "
		      "to 100%, such as 512MiB or 25%\n"
		      "f:1: tenant a matches no client; it needs at least one of match-uid, "
		      "match-gid, match-cgroup and match-exe\n");
}

TEST(test_load__names)
{
	char text[128] = "[tenant ";

	expect_errors(
		"[tenant broker]\n[tenant a/b]\n[tenant \xc3\xa4]\n[tenant a b]\n"
		"[tenant  ]\n",
		"f:1: a tenant cannot be called broker: the broker's own use is charged under that "
		"name\n"
		"f:2: 'a/b' is not a valid name for a tenant; names have 1 to 63 letters, digits, "
		"'-', '_' and '.'\n"
		"f:3: '\xc3\xa4' is not a valid name for a tenant; names have 1 to 63 letters, "
		"digits, '-', '_' and '.'\n"
		"f:4: 'a b' is not a valid name for a tenant; names have 1 to 63 letters, digits, "
		"'-', '_' and '.'\n"
		"f:5: '' is not a valid name for a tenant; names have 1 to 63 letters, digits, "
		"'-', '_' and '.'\n");
	expect_errors("[tenant a]\nmatch-uid = 1\n[tenant a]\nvram-max = x\n",
		      "f:3: tenant a has a section at f:1 already; each tenant has one section\n");
	memset(text + 8, 'n', 63);
	strcpy(text + 71, "]\nmatch-uid=1");
	policy_free(load(text));
	memset(text + 8, 'n', 64);
	strcpy(text + 72, "]\n");
	expect_errors(text,
		      "f:1: 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn' is "
		      "not a valid name for a tenant; names have 1 to 63 letters, digits, '-', '_' "
		      "and '.'\n");
}

TEST(test_load__values)
{
	static const char *const bad_sizes[] = {"",
						"-1",
						"1e3",
						"1E3",
						"0x10",
						"12 apples",
						"1GB",
						"1.2.3GiB",
						".5GiB",
						"101%",
						"100.01%",
						"1.234%",
						"%",
						"5.%",
						"-5%",
						"16777216TiB",
						"nan",
						"inf",
						"+1",
						"1 2",
						"18446744073709551616",
						"1.5",
						"1%%",
						"KiB"};
	static const char *const good_sizes[] = {"0",       "0%",      "100%",
						 "100.00%", "99.99 %", "18446744073709551615",
						 "1G",      "1 gib",   "2T"};
	char text[256], expected[512];

	for (unsigned int i = 0; i < ARRAY_SIZE(bad_sizes); i++) {
		snprintf(text, sizeof(text), "[tenant default]\ngtt-max = %s\n", bad_sizes[i]);
		snprintf(expected, sizeof(expected),
			 "f:2: gtt-max: '%s' is not a size; expected bytes, KiB, MiB, GiB, TiB or "
			 "0%% to 100%%, such as 512MiB or 25%%\n",
			 bad_sizes[i]);
		expect_errors(text, expected);
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(good_sizes); i++) {
		snprintf(text, sizeof(text), "[tenant default]\ngtt-max = %s\n", good_sizes[i]);
		policy_free(load(text));
	}
	expect_errors(
		"[tenant default]\narena-bytes-max = 5%\nweight = 0\nsessions-max = "
		"1000001\nplans-max = -1\ntasks-max = 1 2\narenas-max =\n"
		"priority-max = High\nvram = 1\nweight = 10001\nplans-max = 1\n"
		"lease-audit = kill\nlease-required = maybe\nlease-tolerance = 5%\n"
		"exec-priority = low\nexec-max-part = 5\n",
		"f:2: arena-bytes-max: '5%' is not a size; expected bytes, KiB, MiB, GiB or "
		"TiB, such as 512MiB\n"
		"f:3: weight: '0' is not a number from 1 to 10000\n"
		"f:4: sessions-max: '1000001' is not a number from 0 to 1000000\n"
		"f:5: plans-max: '-1' is not a number from 0 to 1000000\n"
		"f:6: tasks-max: '1 2' is not a number from 0 to 1000000000\n"
		"f:7: arenas-max: '' is not a number from 0 to 1000000\n"
		"f:8: priority-max: 'High' is not a priority; expected low, normal, high or "
		"urgent\n"
		"f:9: vram: a tenant has no such key; brokerd.conf(5) lists the keys\n"
		"f:10: weight: the key is in line 3 already; give it once\n"
		"f:11: plans-max: the key is in line 5 already; give it once\n"
		"f:12: lease-audit: 'kill' is not an action; expected off, warn, priority or "
		"stop\n"
		"f:13: lease-required: 'maybe' is neither yes nor no; expected one of them\n"
		"f:14: lease-tolerance: '5%' is not a size; expected bytes, KiB, MiB, GiB or "
		"TiB, such as 512MiB\n"
		"f:15: exec-priority: 'low' is not a priority of programs; expected "
		"background, normal, urgent or no\n"
		"f:16: exec-max-part: '5' is not a time; expected one from 1us to 2s, such as "
		"500us, or no\n");
	expect_errors("[broker]\nvram-headroom = lots\nvram-headroom = 1%\nworkers = 1\n",
		      "f:2: vram-headroom: 'lots' is not a size; expected bytes, KiB, MiB, GiB, "
		      "TiB or 0% to 100%, such as 512MiB or 25%\n"
		      "f:3: vram-headroom: the key is in line 2 already; give it once\n"
		      "f:4: workers: [broker] has no such key; brokerd.conf(5) lists the keys\n");
}

TEST(test_load__of_programs)
{
	static const struct {
		const char *value;
		uint64_t ns; /* UINT64_MAX: it is refused */
	} times[] = {{"no", 0},
		     {"1us", 1000},
		     {"500us", 500000},
		     {"1.5 ms", 1500000},
		     {"2s", 2000000000},
		     {"2.1s", UINT64_MAX},
		     {"0.9us", UINT64_MAX},
		     {"0", UINT64_MAX},
		     {"1e3us", UINT64_MAX},
		     {"-1s", UINT64_MAX},
		     {"1.2.3s", UINT64_MAX},
		     {".s", UINT64_MAX},
		     {"us", UINT64_MAX},
		     {"1 us s", UINT64_MAX}};
	static const char *const priorities[] = {"no", "background", "normal", "urgent"};
	char text[128];
	struct policy *policy;

	for (unsigned int i = 0; i < ARRAY_SIZE(times); i++) {
		snprintf(text, sizeof(text), "[tenant default]\nexec-max-part = %s\n",
			 times[i].value);
		if (times[i].ns == UINT64_MAX) {
			char expected[192];

			snprintf(expected, sizeof(expected),
				 "f:2: exec-max-part: '%s' is not a time; expected one from 1us to "
				 "2s, such as 500us, or no\n",
				 times[i].value);
			expect_errors(text, expected);
			continue;
		}
		policy = load(text);
		assert_int_equal(policy_tenant(policy, 0)->exec_max_part_ns, times[i].ns);
		policy_free(policy);
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(priorities); i++) {
		char *described, expected[64];

		snprintf(text, sizeof(text), "[tenant a]\nmatch-uid = 1\nexec-priority = %s\n",
			 priorities[i]);
		snprintf(expected, sizeof(expected), "exec-priority = %s", priorities[i]);
		policy = load(text);
		described = policy_describe(policy, 1, 1 << 20);
		/* The default is not shown. */
		assert_int_equal(strstr(described, expected) != NULL, i > 0);
		free(described);
		policy_free(policy);
	}
}

TEST(test_load__matches)
{
	expect_errors("[tenant a]\n"
		      "match-uid = no-such-user, 4294967295, 1x, ,5\n"
		      "match-gid = no-such-group\n"
		      "match-cgroup = web, /a**, /ok\n"
		      "match-exe = bin/x\n"
		      "match-uid =\n",
		      "f:2: match-uid: there is no user 'no-such-user'; expected a user of this "
		      "system, by name or number\n"
		      "f:2: match-uid: '4294967295' is neither a number from 0 to 4294967294 nor "
		      "the name of a user\n"
		      "f:2: match-uid: '1x' is neither a number from 0 to 4294967294 nor the name "
		      "of a user\n"
		      "f:2: match-uid: a value is empty; separate values by single commas\n"
		      "f:3: match-gid: there is no group 'no-such-group'; expected a group of this "
		      "system, by name or number\n"
		      "f:4: match-cgroup: 'web' is not a pattern of cgroups; a pattern begins with "
		      "'/', '*' matches any text within a component, '**' matches any components\n"
		      "f:4: match-cgroup: '/a**' is not a pattern of cgroups; a pattern begins "
		      "with '/', '*' matches any text within a component, '**' matches any "
		      "components\n"
		      "f:5: match-exe: 'bin/x' is not an absolute path; it must begin with '/'\n"
		      "f:6: match-uid: a value is empty; separate values by single commas\n");
	expect_errors("[tenant default]\nmatch-uid = 1\nmatch-gid = 1\n[tenant a]\nweight = 1\n",
		      "f:2: match-uid: tenant default takes clients that match no other tenant; it "
		      "cannot have match keys\n"
		      "f:3: match-gid: tenant default takes clients that match no other tenant; it "
		      "cannot have match keys\n"
		      "f:4: tenant a matches no client; it needs at least one of match-uid, "
		      "match-gid, match-cgroup and match-exe\n");
}

TEST(test_load__sizes_together)
{
	expect_errors(
		"[tenant a]\nmatch-uid = 1\nvram-max = 1GiB\nvram-reserve = 1025MiB\n"
		"[tenant b]\nmatch-uid = 1\nvram-max = 1GiB\nvram-high = 2GiB\n"
		"[tenant c]\nmatch-uid = 1\nvram-reserve = 2GiB\nvram-high = 1GiB\n"
		"[tenant d]\nmatch-exe = /bin/true\nvram-reserve = 1\n",
		"f:4: vram-reserve: the value is more than vram-max; expected at most vram-max\n"
		"f:8: vram-high: the value is more than vram-max; expected a value from "
		"vram-reserve to vram-max\n"
		"f:12: vram-high: the value is less than vram-reserve; expected a value from "
		"vram-reserve to vram-max\n"
		"f:15: vram-reserve: match-exe alone cannot grant a reserve, because any user can "
		"start the program; add match-uid, match-gid or match-cgroup\n");
	expect_errors("[broker]\nvram-headroom = 5.5%\n"
		      "[tenant a]\nmatch-uid = 1\nvram-reserve = 50%\n"
		      "[tenant b]\nmatch-uid = 1\nvram-reserve = 44.51%\n",
		      "f:8: vram-reserve: with tenant b, tenants reserve 94.51% of each device; at "
		      "most 94.50% may be reserved, because vram-headroom is the rest\n");
	policy_free(load("[broker]\nvram-headroom = 5.5%\n"
			 "[tenant a]\nmatch-uid = 1\nvram-reserve = 50%\n"
			 "[tenant b]\nmatch-uid = 1\nmatch-exe = /x\nvram-reserve = 44.5%\n"
			 "[tenant c]\nmatch-exe = /x\nvram-reserve = 0\n"));
}

TEST(test_load__too_much)
{
	enum { N = 1100 };
	char *text = malloc(N * 64), *at = text;
	struct policy_errors errors = {.n = 0};
	struct policy *policy = NULL;

	assert_non_null(text);
	for (unsigned int i = 0; i < N; i++)
		at += snprintf(at, 64, "[tenant t%u]\nmatch-uid = %u\n", i, i);
	assert_int_equal(policy_load_text("f", text, strlen(text), NULL, &policy, &errors),
			 POLICY_E_INVALID);
	assert_int_equal(strncmp(errors.text,
				 "f:2047: there are too many tenants; at most 1024 are allowed, "
				 "including the default tenant\n",
				 59),
			 0);
	policy_errors_deinit(&errors);
	/* A limited number of errors, and the number of further errors. */
	for (at = text; at < text + 200 * 2;)
		at += snprintf(at, 3, "x\n");
	assert_int_equal(policy_load_text("f", text, 400, NULL, &policy, &errors),
			 POLICY_E_INVALID);
	assert_int_equal(errors.n, 200);
	assert_non_null(strstr(errors.text, "f:64: "));
	assert_null(strstr(errors.text, "f:65: "));
	assert_non_null(strstr(errors.text, "f: and 136 more\n"));
	policy_errors_deinit(&errors);
	free(text);
}

/* Warnings of a refused file are not errors. */
TEST(test_load__warnings_are_no_errors)
{
	static const char text[] = "[tenant a]\nmatch-uid = 1\nvram-max = 50% # half\n"
				   "match-exe = /x # why\nweigth = 3\n";
	struct policy_errors errors = {.n = 0};
	struct policy *policy = NULL;

	assert_int_equal(policy_load_text("f", text, strlen(text), NULL, &policy, &errors),
			 POLICY_E_INVALID);
	assert_int_equal(errors.n, 2);
	assert_int_equal(count_lines(errors.text), 2);
	assert_null(strstr(errors.text, "is part of the value"));
	assert_string_equal(errors.warnings,
			    "f:3: vram-max: '# half' is part of the value; a comment has a line of "
			    "its own\n"
			    "f:4: match-exe: '# why' is part of the value; a comment has a line of "
			    "its own\n");
	policy_errors_deinit(&errors);
	assert_null(errors.warnings);
}

/* Fail every allocation of a load that succeeds, and of one that reports errors. */
TEST(test_load__allocation)
{
	static const char *const texts[] = {
		"[broker]\nvram-headroom = 1\n[tenant a]\nmatch-uid = root, 1\nmatch-gid = "
		"root\nmatch-cgroup = /a, /b\nmatch-exe = /x\nvram-reserve = 1\n[tenant b]\n"
		"match-uid = 1\n",
		"[tenant a]\nmatch-uid = no-such-user\nx = 1\nvram-reserve = 1\n[tenant b]\n",
	};
	struct policy *policy;
	struct policy_errors errors;
	unsigned int n;
	int r;

	for (unsigned int i = 0; i < ARRAY_SIZE(texts); i++) {
		for (n = 1;; n++) {
			policy = NULL;
			errors = (struct policy_errors){.n = 0};
			fail_alloc_at(n);
			r = policy_load_text("f", texts[i], strlen(texts[i]), NULL, &policy,
					     &errors);
			if (!fail_alloc_stop())
				break;
			assert_int_equal(r, -ENOMEM);
			assert_null(policy);
			assert_null(errors.text);
		}
		assert_int_equal(r, i == 0 ? 0 : POLICY_E_INVALID);
		assert_true(n > 8);
		policy_free(policy);
		policy_errors_deinit(&errors);
	}
}

/* The same for files and a folder. test-tenants tests their refusals. */
TEST(test_load__files)
{
	char folder[] = "/tmp/test-policy-XXXXXX", path[64], drop_ins[64], drop_in[96];
	struct policy *policy = NULL;
	struct policy_errors errors = {.n = 0};
	FILE *file;
	unsigned int n;
	int r;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/b.conf", folder);
	snprintf(drop_ins, sizeof(drop_ins), "%s/tenants.d", folder);
	snprintf(drop_in, sizeof(drop_in), "%s/a.conf", drop_ins);

	/* A missing file counts as empty, unless it is required. */
	assert_int_equal(policy_load(path, false, NULL, &policy, &errors), 0);
	assert_int_equal(policy_n_tenants(policy), 1);
	policy_free(policy);
	assert_int_equal(policy_load(path, true, NULL, &policy, &errors), POLICY_E_INVALID);
	assert_non_null(strstr(errors.text, "/b.conf: cannot be opened: No such file"));
	policy_errors_deinit(&errors);

	file = fopen(path, "we");
	assert_non_null(file);
	fputs("[tenant a]\nmatch-uid = 1\n", file);
	fclose(file);
	assert_int_equal(mkdir(drop_ins, 0700), 0);
	file = fopen(drop_in, "we");
	assert_non_null(file);
	fputs("[tenant b]\nmatch-uid = 1\n", file);
	fclose(file);
	for (n = 1;; n++) {
		policy = NULL;
		fail_alloc_at(n);
		r = policy_load(path, true, NULL, &policy, &errors);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(policy);
		assert_null(errors.text);
	}
	assert_int_equal(r, 0);
	assert_int_equal(policy_n_tenants(policy), 3);
	assert_string_equal(policy_tenant(policy, 2)->name, "b");
	policy_free(policy);

	/* One byte more than 1 MiB. */
	assert_int_equal(truncate(path, (1 << 20) + 1), 0);
	assert_int_equal(policy_load(path, true, NULL, &policy, &errors), POLICY_E_INVALID);
	assert_non_null(strstr(errors.text, "/b.conf: is larger than 1 MiB, which is the limit"));
	policy_errors_deinit(&errors);
	unlink(drop_in);
	rmdir(drop_ins);
	unlink(path);
	rmdir(folder);
}

/* ---- Matching ---- */

static void expect_match(const struct policy *policy, const struct peer *peer, const char *name)
{
	assert_string_equal(policy_tenant(policy, policy_match(policy, peer))->name, name);
}

TEST(test_match__most_specific)
{
	struct policy *policy = load("[tenant gid]\nmatch-gid = 10\n"
				     "[tenant uid]\nmatch-uid = 1\n"
				     "[tenant cgroup]\nmatch-cgroup = /s/*\n"
				     "[tenant cgroup-longer]\nmatch-cgroup = /**, /s/web*\n"
				     "[tenant cgroup-as-long]\nmatch-cgroup = /s/*web\n"
				     "[tenant uid-gid]\nmatch-uid = 2\nmatch-gid = 10\n"
				     "[tenant uid-cgroup]\nmatch-uid = 2\nmatch-cgroup = /s/*\n"
				     "[tenant three]\nmatch-uid = 3\nmatch-gid = 10\n"
				     "match-cgroup = /s/a\n");
	const gid_t groups[] = {9, 10};
	struct peer peer = {.uid = 5, .gid = 5};

	expect_match(policy, &peer, "default");
	peer.gid = 10;
	expect_match(policy, &peer, "gid");
	peer.gid = 5;
	peer.groups = groups;
	peer.n_groups = 1;
	expect_match(policy, &peer, "default");
	peer.n_groups = 2;
	expect_match(policy, &peer, "gid");
	peer.uid = 1;
	expect_match(policy, &peer, "uid");
	peer.cgroup = "/s/x";
	expect_match(policy, &peer, "cgroup");
	peer.cgroup = "/s/web";
	expect_match(policy, &peer, "cgroup-longer");
	peer.cgroup = "/elsewhere";
	expect_match(policy, &peer, "cgroup-longer");
	peer.cgroup = "/s/xweb";
	expect_match(policy, &peer, "cgroup-as-long");
	peer.uid = 2;
	expect_match(policy, &peer, "uid-cgroup");
	peer.cgroup = NULL;
	expect_match(policy, &peer, "uid-gid");
	peer.n_groups = 0;
	expect_match(policy, &peer, "default");
	peer.uid = 3;
	peer.gid = 10;
	peer.cgroup = "/s/a";
	expect_match(policy, &peer, "three");
	peer.cgroup = "/s/b";
	expect_match(policy, &peer, "cgroup");
	policy_free(policy);
}

TEST(test_match__executable)
{
	struct policy *policy =
		load("[tenant uid-cgroup]\nmatch-uid = 1\nmatch-cgroup = /**\n"
		     "[tenant exe]\nmatch-exe = /no/such/file, /proc/self/exe\n"
		     "[tenant exe-gid]\nmatch-exe = /proc/self/exe\nmatch-gid = 1\n");
	struct peer peer = {.uid = 1, .gid = 2, .cgroup = "/"};
	struct stat status;

	assert_int_equal(stat("/proc/self/exe", &status), 0);
	expect_match(policy, &peer, "uid-cgroup");
	assert_int_equal(policy_match_kinds(policy), POLICY_MATCH_UID | POLICY_MATCH_GID |
							     POLICY_MATCH_CGROUP |
							     POLICY_MATCH_EXE);
	peer.has_exe = true;
	peer.exe_dev = status.st_dev;
	peer.exe_ino = status.st_ino;
	/* A match of two kinds takes precedence over one kind. */
	expect_match(policy, &peer, "uid-cgroup");
	peer.uid = 2;
	expect_match(policy, &peer, "exe");
	peer.uid = 1;
	peer.gid = 1;
	expect_match(policy, &peer, "exe-gid");
	peer.uid = 2;
	peer.exe_ino++;
	expect_match(policy, &peer, "default");
	peer.exe_ino--;
	peer.exe_dev++;
	expect_match(policy, &peer, "default");
	policy_free(policy);
}

/* ---- Devices ---- */

TEST(test_devices__reserves_fit)
{
	static const uint64_t devices[] = {0, 1000, 2000};
	struct policy *policy = load("[tenant a]\nmatch-uid = 1\nvram-reserve = 500\n"
				     "[tenant b]\nmatch-uid = 1\nvram-reserve = 45%\n");
	struct policy_errors errors = {.n = 0};

	assert_int_equal(policy_check_devices(policy, devices, 3, &errors), 0);
	policy_free(policy);

	policy = load("[tenant a]\nmatch-uid = 1\nvram-reserve = 501\n"
		      "[tenant b]\nmatch-uid = 1\nvram-reserve = 45%\n");
	assert_int_equal(policy_check_devices(policy, devices, 3, &errors), POLICY_E_INVALID);
	assert_string_equal(errors.text,
			    "f:6: vram-reserve: with tenant b, 2 tenants reserve 951 B of "
			    "device 1, which has 1000 B; at most 950 B may be reserved, "
			    "the rest is vram-headroom\n");
	policy_errors_deinit(&errors);
	assert_int_equal(policy_check_devices(policy, devices, 1, &errors), 0);
	policy_free(policy);

	policy = load("[tenant a]\nmatch-uid = 1\nvram-reserve = 300\nvram-max = 25%\n");
	assert_int_equal(policy_check_devices(policy, devices, 3, &errors), POLICY_E_INVALID);
	assert_string_equal(errors.text,
			    "f:3: vram-reserve: tenant a reserves 300 B of device 1, more "
			    "than its vram-max of 250 B on that device\n");
	policy_errors_deinit(&errors);
	for (unsigned int n = 1;; n++) {
		int r;

		fail_alloc_at(n);
		r = policy_check_devices(policy, devices, 3, &errors);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(errors.text);
	}
	policy_errors_deinit(&errors);
	policy_free(policy);

	policy = load("[tenant a]\nmatch-uid = 1\nvram-reserve = 18446744073709551615\n"
		      "vram-max = 18446744073709551615\n"
		      "[tenant b]\nmatch-uid = 1\nvram-reserve = 1\n");
	assert_int_equal(policy_check_devices(policy, devices, 3, &errors), POLICY_E_INVALID);
	policy_errors_deinit(&errors);
	policy_free(policy);
}

/* Every device and every tenant is checked, but a sum is complained about once for a device. */
TEST(test_devices__all_are_checked)
{
	static const uint64_t devices[] = {0, 1000, 0, 2000, 1 << 20};
	enum { N = 100 };
	struct policy *policy = load("[tenant a]\nmatch-uid = 1\nvram-reserve = 300\n"
				     "vram-max = 12%\n"
				     "[tenant b]\nmatch-uid = 1\nvram-reserve = 70%\n"
				     "[tenant c]\nmatch-uid = 1\nvram-reserve = 20%\n");
	struct policy_errors errors = {.n = 0};
	char *text, *at;

	assert_int_equal(policy_check_devices(policy, devices, 5, &errors), POLICY_E_INVALID);
	assert_string_equal(
		errors.text,
		"f:3: vram-reserve: tenant a reserves 300 B of device 1, more than its "
		"vram-max of 120 B on that device\n"
		"f:7: vram-reserve: with tenant b, 2 tenants reserve 1000 B of device 1, "
		"which has 1000 B; at most 950 B may be reserved, the rest is "
		"vram-headroom\n"
		"f:3: vram-reserve: tenant a reserves 300 B of device 3, more than its "
		"vram-max of 240 B on that device\n"
		"f:10: vram-reserve: with tenant c, 3 tenants reserve 2.051 KiB of device 3, "
		"which has 1.953 KiB; at most 1.855 KiB may be reserved, the rest is "
		"vram-headroom\n");
	assert_int_equal(errors.n, 4);
	policy_errors_deinit(&errors);
	policy_free(policy);

	/* More errors than the text has. */
	at = text = malloc(N * 80);
	assert_non_null(text);
	for (unsigned int i = 0; i < N; i++)
		at += snprintf(at, 80,
			       "[tenant t%u]\nmatch-uid = %u\nvram-max = 1\n"
			       "vram-reserve = 0.25%%\n",
			       i, i);
	policy = load(text);
	free(text);
	assert_int_equal(policy_check_devices(policy, devices, 2, &errors), POLICY_E_INVALID);
	assert_int_equal(errors.n, N);
	assert_int_equal(count_lines(errors.text), 65);
	assert_non_null(strstr(errors.text, "\nf: and 36 more\n"));
	policy_errors_deinit(&errors);
	policy_free(policy);
}
