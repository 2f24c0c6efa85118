/* SPDX-License-Identifier: MIT */
/* Copies of records, differences between two copies, and figures as text. */
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "figures.h"
#include "monitor/admin-socket.h"
#include "monitor/interval.h"
#include "monitor/json.h"
#include "monitor/pages.h"
#include "monitor/text.h"
#include "support/test.h"

/* A page with one record. Its writer continues after the reader has slept writes_after times. */
static struct {
	struct rbk_stats_header header;
	struct rbk_stats_session session;
} shown;
static unsigned int n_naps, writes_after;

enum { N_LISTED = 200 };

/* Tenants, of which each update shows n_an_update more. */
static struct {
	struct rbk_stats_header header;
	struct rbk_stats_broker broker;
	struct rbk_stats_tenant tenants[N_LISTED];
} listed;
static unsigned int n_shown, n_an_update;

/* Sessions, then leases, of which each update shows n_crowd_an_update more. */
enum { N_CROWD_SESSIONS = 21, N_CROWD_LEASES = 20 };
static struct {
	struct rbk_stats_header header;
	struct rbk_stats_broker broker;
	struct rbk_stats_session sessions[N_CROWD_SESSIONS];
	struct rbk_stats_lease leases[N_CROWD_LEASES];
} crowd;
static unsigned int n_crowd, n_crowd_an_update;

static void show_more_of_crowd(void)
{
	const unsigned int end = n_crowd + n_crowd_an_update;

	for (; n_crowd < end && n_crowd < N_CROWD_SESSIONS + N_CROWD_LEASES; n_crowd++)
		if (n_crowd < N_CROWD_SESSIONS)
			crowd.sessions[n_crowd].number = n_crowd + 1;
		else
			crowd.leases[n_crowd - N_CROWD_SESSIONS].number = n_crowd + 1;
	crowd.header.n_updates++;
}

static void show_more(void)
{
	const unsigned int end = n_shown + n_an_update;

	for (; n_shown < end && n_shown < N_LISTED; n_shown++)
		listed.tenants[n_shown].number = n_shown + 1;
	listed.header.n_updates++;
}

int __real_nanosleep(const struct timespec *time, struct timespec *rest);
int __wrap_nanosleep(const struct timespec *time, struct timespec *rest);
int __wrap_nanosleep(const struct timespec *time, struct timespec *rest)
{
	if (n_an_update > 0)
		show_more();
	if (n_crowd_an_update > 0)
		show_more_of_crowd();
	if (++n_naps == writes_after) {
		shown.session.number = 7;
		strcpy(shown.session.name, "new");
		shown.session.sequence++;
	}
	return n_naps < writes_after ? 0 : __real_nanosleep(time, rest);
}

/* Show a record in the middle of an update, by a writer whose last update was @ago_ns ago. */
static void show(struct rbk_stats_view *ret, int64_t ago_ns)
{
	struct timespec now;

	memset(&shown, 0, sizeof(shown));
	clock_gettime(CLOCK_MONOTONIC, &now);
	shown.header.updated_at_ns = 1000;
	shown.header.monotonic_offset_ns =
		(int64_t)now.tv_sec * 1000000000 + now.tv_nsec - ago_ns - 1000;
	shown.session.sequence = 3;
	shown.session.number = 7;
	strcpy(shown.session.name, "old");
	*ret = (struct rbk_stats_view){.page = &shown.header};
	ret->sections[RBK_STATS_SECTION_SESSIONS] = (struct rbk_stats_section){
		.offset = sizeof(shown.header),
		.stride = sizeof(shown.session),
		.count = 1,
	};
	n_naps = 0;
}

/* A reader waits for a broker that lost its processor in the middle of an update. */
TEST(test_copy__waits_for_the_writer)
{
	struct rbk_stats_session copy;
	struct rbk_stats_view view;

	show(&view, 0);
	writes_after = 20;
	page_copy(&view, RBK_STATS_SECTION_SESSIONS, 0, &copy, sizeof(copy));
	assert_int_equal(n_naps, 20);
	assert_int_equal(copy.number, 7);
	assert_string_equal(copy.name, "new");
}

/* Records of a broker of statistics 1.22 are smaller: members that it does not have are unknown. */
TEST(test_copy__smaller_records_of_an_older_broker)
{
	enum { LEASE_BYTES = 256, TENANT_BYTES = 4608, PAGE_BYTES = 8192 };
	static struct {
		struct rbk_stats_header header;
		uint8_t tenants[TENANT_BYTES], leases[2][LEASE_BYTES];
		uint8_t rest[PAGE_BYTES - sizeof(struct rbk_stats_header) - TENANT_BYTES -
			     2 * LEASE_BYTES];
	} page;
	_Static_assert(sizeof(page) == PAGE_BYTES, "whole");
	struct rbk_stats_lease lease, first = {.number = 4, .n_refused = 11, .slice_ns = 12};
	struct rbk_stats_section *sections = page.header.sections;
	struct rbk_stats_view view;

	page.header = (struct rbk_stats_header){.magic = RBK_STATS_MAGIC,
						.abi_major = RBK_STATS_ABI_MAJOR,
						.abi_minor = 22,
						.page_bytes = PAGE_BYTES,
						.n_sections = RBK_STATS_SECTION_COUNT};
	sections[RBK_STATS_SECTION_TENANTS] = (struct rbk_stats_section){
		.offset = sizeof(page.header), .stride = TENANT_BYTES, .count = 1};
	sections[RBK_STATS_SECTION_LEASES] = (struct rbk_stats_section){
		.offset = sizeof(page.header) + TENANT_BYTES, .stride = LEASE_BYTES, .count = 2};
	/* The bytes behind a record are no part of it. */
	memset(page.leases, 0xa5, sizeof(page.leases) + sizeof(page.rest));
	memcpy(page.leases[0], &first, LEASE_BYTES);
	page.leases[1][0] = 0;
	assert_true(rbk_stats_view(&view, &page, PAGE_BYTES));
	page_copy_lease(&view, 0, &lease);
	assert_int_equal(lease.number, 4);
	assert_int_equal(lease.slice_ns, 12);
	assert_true(lease.n_submissions == RBK_STATS_ABSENT && lease.n_parts == RBK_STATS_ABSENT &&
		    lease.n_unsliced == RBK_STATS_ABSENT);
	assert_int_equal(lease.longest_part_ns, 0);
	assert_int_equal(lease.queued_ns, 0);
	page_copy_lease(&view, 1, &lease);
	assert_int_equal(lease.number, 0xa5a5a5a5);
	assert_int_equal(lease.longest_part_ns, 0);
	assert_false(
		rbk_stats_copy_record(&view, RBK_STATS_SECTION_LEASES, 2, &lease, sizeof(lease)));

	sections[RBK_STATS_SECTION_LEASES].stride -= 8;
	assert_false(rbk_stats_view(&view, &page, PAGE_BYTES));
}

/* A reader does not wait for a stopped broker, and shows the record as it is. */
TEST(test_copy__does_not_wait_for_stopped_broker)
{
	static const int64_t agos_ns[] = {3600000000000, -3600000000000};
	struct rbk_stats_session copy;
	struct rbk_stats_view view;

	for (unsigned int i = 0; i < sizeof(agos_ns) / sizeof(agos_ns[0]); i++) {
		show(&view, agos_ns[i]);
		writes_after = UINT_MAX;
		page_copy(&view, RBK_STATS_SECTION_SESSIONS, 0, &copy, sizeof(copy));
		assert_int_equal(n_naps, 0);
		assert_int_equal(copy.number, 7);
	}
	/* The writer stops during the wait: the copy must still return. */
	show(&view, 2900000000);
	writes_after = 0;
	page_copy(&view, RBK_STATS_SECTION_SESSIONS, 0, &copy, sizeof(copy));
	assert_int_equal(copy.number, 7);
}

/* A listing waits for all tenants, however few an update adds. */
TEST(test_listing__waits_for_all)
{
	struct rbk_stats_view view = {.page = &listed.header};

	view.sections[RBK_STATS_SECTION_BROKER] = (struct rbk_stats_section){
		.offset = sizeof(listed.header),
		.stride = sizeof(listed.broker),
		.count = 1,
	};
	view.sections[RBK_STATS_SECTION_TENANTS] = (struct rbk_stats_section){
		.offset = offsetof(typeof(listed), tenants),
		.stride = sizeof(listed.tenants[0]),
		.count = N_LISTED,
	};
	for (n_an_update = 64; n_an_update <= 256; n_an_update *= 2) {
		memset(&listed, 0, sizeof(listed));
		listed.broker.n_tenants = N_LISTED;
		n_shown = n_naps = 0;
		writes_after = UINT_MAX;
		show_more();
		pages_await_listing(&view);
		assert_int_equal(n_shown, N_LISTED);
	}

	/* The page was made a moment ago for another client, and shows no tenant yet. */
	memset(&listed, 0, sizeof(listed));
	listed.broker.n_tenants = N_LISTED;
	listed.header.n_updates = 2;
	n_shown = 0;
	pages_await_listing(&view);
	assert_int_equal(n_shown, N_LISTED);
	n_an_update = 0;
}

/* Show @n_leases leases beside the sessions, of which the page lists @n records. */
static void show_crowd(unsigned int n_leases, unsigned int n, struct rbk_stats_view *ret)
{
	memset(&crowd, 0, sizeof(crowd));
	crowd.broker.n_tenants = 1;
	crowd.broker.n_sessions = N_CROWD_SESSIONS;
	crowd.broker.n_leases = n_leases;
	*ret = (struct rbk_stats_view){.page = &crowd.header, .n_devices = 2};
	ret->sections[RBK_STATS_SECTION_BROKER] = (struct rbk_stats_section){
		.offset = offsetof(typeof(crowd), broker),
		.stride = sizeof(crowd.broker),
		.count = 1,
	};
	ret->sections[RBK_STATS_SECTION_SESSIONS] = (struct rbk_stats_section){
		.offset = offsetof(typeof(crowd), sessions),
		.stride = sizeof(crowd.sessions[0]),
		.count = N_CROWD_SESSIONS,
	};
	ret->sections[RBK_STATS_SECTION_LEASES] = (struct rbk_stats_section){
		.offset = offsetof(typeof(crowd), leases),
		.stride = sizeof(crowd.leases[0]),
		.count = N_CROWD_LEASES,
	};
	n_crowd = 0;
	n_crowd_an_update = n;
	show_more_of_crowd();
	n_naps = 0;
	writes_after = UINT_MAX;
}

/* Leases share the first update with devices, tenants and sessions, few as there are of each. */
TEST(test_listing__waits_for_leases)
{
	struct rbk_stats_view view;

	/* An update lists 29 records, as the broker does beside two devices and a tenant. */
	show_crowd(N_CROWD_LEASES, 29, &view);
	pages_await_listing(&view);
	assert_int_equal(n_crowd, N_CROWD_SESSIONS + N_CROWD_LEASES);
	assert_int_equal(n_naps, 1);

	/* The reader of a broker that tells no number of leases waits for the sessions only. */
	show_crowd(0, 29, &view);
	pages_await_listing(&view);
	assert_int_equal(n_naps, 0);

	/* The first update lists so few records; those that are missing have just ended. */
	show_crowd(8, 20, &view);
	pages_await_listing(&view);
	assert_int_equal(n_naps, 0);

	/* A record that the page has no room for is not awaited for long. */
	show_crowd(N_CROWD_LEASES + 1, 29, &view);
	pages_await_listing(&view);
	assert_in_range(n_naps, 2, 4);
	n_crowd_an_update = 0;
}

TEST(test_interval__counts_after_a_reset)
{
	assert_int_equal(interval_count(12, 10), 2);
	/* A reset in between: counts since then. */
	assert_int_equal(interval_count(3, 10), 3);
	assert_int_equal(interval_count(0, UINT64_MAX), 0);
	assert_true(interval_rate(30, 10, 2000000000) == 10);
	assert_true(interval_rate(30, 10, 0) == 0);
}

TEST(test_interval__part_is_at_most_the_whole)
{
	assert_true(interval_part(15, 10, 30, 10) == 0.25);
	assert_true(interval_part(15, 10, 10, 10) < 0);
	/* Read during an update, a part never exceeds the whole. */
	assert_true(interval_part(30, 10, 12, 10) == 1);
}

TEST(test_interval__quantiles_of_new_samples)
{
	uint64_t then[RBK_STATS_BUCKETS] = {[10] = 1000}, now[RBK_STATS_BUCKETS], ret[128];

	memcpy(now, then, sizeof(now));
	now[40] += 98;
	now[60] += 2;
	assert_int_equal(interval_histogram(now, then, ret), 100);
	assert_true(histogram_quantile(ret, 0.5) == (double)rbk_stats_bucket_ns(41));
	assert_true(histogram_quantile(ret, 0.99) == (double)rbk_stats_bucket_ns(61));
	assert_int_equal(interval_histogram(then, then, ret), 0);
	assert_true(histogram_quantile(ret, 0.99) == 0);
}

static void expect(struct figure_text figure, const char *text)
{
	assert_string_equal(figure.text, text);
}

TEST(test_figures__units)
{
	expect(figure_ns(41e3), "41 µs");
	expect(figure_ns(6e6), "6.0 ms");
	expect(figure_ns(999.9), "1.0 µs");
	expect(figure_ns(0), "–");
	expect(figure_bytes(6.9 * 0x1p30), "6.9 GiB");
	expect(figure_bytes(0), "0 B");
	expect(figure_bytes_of(RBK_STATS_ABSENT), "–");
	expect(figure_count(47900), "47.9k");
	expect(figure_count(9999), "9999");
	expect(figure_count(10000), "10.0k");
	expect(figure_count(-1), "–");
	expect(figure_rate(0.4), "0.4");
	expect(figure_rate(210), "210");
	expect(figure_part(0.834), "83%");
	expect(figure_part(-1), "–");
	expect(figure_duration(274320000000000), "3d 04:12");
	expect(figure_duration(753000000000), "00:12:33");
}

TEST(test_figures__of_records)
{
	struct rbk_stats_device device = {
		.contention = 1.24,
		.launch_ns = 6e6,
		.temperature_millicelsius = 45500,
		.memory_used = RBK_STATS_ABSENT,
		.clock_hz = RBK_STATS_ABSENT,
	};

	expect(figure_of(figure_find(device_figures, "contention"), &device), "1.2");
	expect(figure_of(figure_find(device_figures, "launch_ns"), &device), "6.0 ms");
	expect(figure_of(figure_find(device_figures, "temperature_millicelsius"), &device), "46");
	expect(figure_of(figure_find(device_figures, "used"), &device), "–");
	expect(figure_of(figure_find(device_figures, "clock_hz"), &device), "–");
}

/* Columns have eight characters: no text is wider, whatever a page contains. */
TEST(test_figures__always_short)
{
	static const double odd[] = {0,        5e-324, 0.05, 9.96,     999.6, 1023.7,
				     9999.4,   99949,  1e15, 1e19,     1e30,  1e300,
				     INFINITY, NAN,    -1,   -INFINITY};

	for (unsigned int i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		assert_true(strlen(figure_ns(odd[i]).text) <= 9);
		assert_true(strlen(figure_bytes(odd[i]).text) <= 9);
		assert_true(strlen(figure_count(odd[i]).text) <= 8);
		assert_true(strlen(figure_rate(odd[i]).text) <= 8);
		assert_true(strlen(figure_part(odd[i]).text) <= 4);
	}
}

/* Assert that json_string() prints @value as @expected. */
static void expect_json(const char *value, const char *expected)
{
	char path[] = "/tmp/rbk-monitor-XXXXXX", text[200] = "";
	int fd = mkstemp(path), stdout_fd = dup(1);

	assert_true(fd >= 0 && stdout_fd >= 0);
	unlink(path);
	fflush(stdout);
	assert_int_equal(dup2(fd, 1), 1);
	json_begin();
	json_string("a", value);
	json_end();
	fflush(stdout);
	assert_int_equal(dup2(stdout_fd, 1), 1);
	assert_true(pread(fd, text, sizeof(text) - 1, 0) > 0);
	close(fd);
	close(stdout_fd);
	assert_string_equal(text, expected);
}

TEST(test_json__escapes_control_characters)
{
	expect_json("a\"b\\c", "{\"a\":\"a\\\"b\\\\c\"}\n");
	expect_json("\033[2J\177", "{\"a\":\"\\u001b[2J\\u007f\"}\n");
	/* CSI as one character, the next-line character, and characters that reverse text. */
	expect_json("\xc2\x9b"
		    "2J\xc2\x85",
		    "{\"a\":\"\\u009b2J\\u0085\"}\n");
	expect_json("\xe2\x80\xae\xe2\x80\xa8\xe2\x81\xa9", "{\"a\":\"\\u202e\\u2028\\u2069\"}\n");
	/* Invalid UTF-8, then valid and harmless UTF-8. */
	expect_json("\x9b\xff\xc2", "{\"a\":\"\\ufffd\\ufffd\\ufffd\"}\n");
	expect_json("\xc2\xa0\xe2\x82\xac", "{\"a\":\"\xc2\xa0\xe2\x82\xac\"}\n");
}

TEST(test_text__names_are_printable)
{
	assert_string_equal(text_name("a\033[2J\x9b\xff\n"), "a?[2J???");
}

/* --- The administrators' socket --- */

static void expect_explained(const struct admin_attempt *attempt, const char *expected)
{
	char text[ADMIN_TEXT_BYTES];

	admin_socket_explain(attempt, text, sizeof(text));
	if (strncmp(text, expected, strlen(expected)) != 0)
		assert_string_equal(text, expected);
}

TEST(test_admin_socket__causes)
{
	struct admin_attempt attempt = {.path = "/x/\033sock", .error = {"too many sessions"}};

	expect_explained(&attempt, "you may look, but not change anything: that is for root, ");
	attempt.r = -ENOENT;
	expect_explained(&attempt,
			 "no administrators' socket is at /x/?sock; name the path of the broker's");
	attempt.r = -ECONNREFUSED;
	expect_explained(
		&attempt,
		"no program listens at the administrators' socket (/x/?sock); name the path");
	attempt.r = -EDQUOT;
	expect_explained(&attempt, "cannot use the administrators' socket: too many sessions");
	assert_string_equal(admin_socket_remedy(&attempt), "");
}

/* The permissions of the socket say who may use it. */
TEST(test_admin_socket__users)
{
	struct admin_attempt attempt = {.r = -EACCES, .path = "/tmp/rbk-monitor-XXXXXX"};
	const struct group *group = getgrgid(getgid());
	char expected[ADMIN_TEXT_BYTES], who[128];
	int fd = mkstemp(attempt.path);

	assert_true(fd >= 0);
	assert_int_equal(fchown(fd, (uid_t)-1, getgid()), 0);
	if (group)
		snprintf(who, sizeof(who), "members of group %s", group->gr_name);
	else
		snprintf(who, sizeof(who), "members of group %u", (unsigned int)getgid());
	for (unsigned int i = 0; i < 3; i++) {
		static const mode_t modes[] = {0600, 0660, 0666};
		const char *const users[] = {"the user that brokerd runs as", who,
					     "this broker's administrators"};

		assert_int_equal(fchmod(fd, modes[i]), 0);
		snprintf(expected, sizeof(expected),
			 "only root and %s may use the administrators' socket (%s); admin-group "
			 "of brokerd.conf(5) lets others look",
			 users[i], attempt.path);
		expect_explained(&attempt, expected);
	}
	close(fd);
	unlink(attempt.path);
}
