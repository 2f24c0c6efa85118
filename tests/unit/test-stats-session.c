/* SPDX-License-Identifier: MIT */
/*
 * Sessions and leases in statistics pages: assignment of records as sessions and pages come and go
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "stats/stats.h"
#include "support/test.h"
#include "tenant-page.h"

enum { N_DEVICES = 2 };

struct kit {
	struct stats *stats;
	struct stats_tenant *tenant, *other;
	struct rbk_stats_view root, own;
};

static struct rbk_stats_view view_of(const struct stats_page *page)
{
	struct rbk_stats_view view;

	assert_true(rbk_stats_view(&view, page->header, page->header->page_bytes));
	return view;
}

/* calls that take the lock which a reader's write to its descriptor may hold for long */
static unsigned int n_allocations;

int __real_fallocate64(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t bytes)
{
	n_allocations++;
	return __real_fallocate64(fd, mode, offset, bytes);
}

static int setup(void **state)
{
	struct kit *kit = calloc(1, sizeof(*kit));

	assert_non_null(kit);
	assert_int_equal(stats_new(N_DEVICES, 1, &kit->stats), 0);
	assert_int_equal(stats_tenant_new(kit->stats, 7, "one", &kit->tenant), 0);
	assert_int_equal(stats_tenant_new(kit->stats, 8, "other", &kit->other), 0);
	assert_int_equal(tenant_page_map(kit->tenant, 1), 0);
	assert_int_equal(stats_root_map(kit->stats, 1), 0);
	kit->own = view_of(&kit->tenant->page);
	kit->root = view_of(stats_root(kit->stats));
	*state = kit;
	return 0;
}

static int teardown(void **state)
{
	struct kit *kit = *state;

	stats_free(kit->stats);
	free(kit);
	return 0;
}

static struct rbk_stats_session record(const struct rbk_stats_view *view, uint32_t index)
{
	struct rbk_stats_session session;

	assert_true(rbk_stats_copy(&session,
				   rbk_stats_record(view, RBK_STATS_SECTION_SESSIONS, index),
				   sizeof(session)));
	return session;
}

static void show(struct stats_shown *session, uint32_t number)
{
	const struct rbk_stats_session figures = {
		.number = number, .name = "client", .n_tasks = number * 10};

	stats_shown_set(session, &figures);
}

TEST(test_session__in_both_pages, setup, teardown)
{
	struct kit *kit = *state;
	struct stats_shown first, second, admin;

	assert_int_equal(rbk_stats_count(&kit->root, RBK_STATS_SECTION_SESSIONS),
			 STATS_MAX_SESSIONS);
	assert_int_equal(rbk_stats_count(&kit->own, RBK_STATS_SECTION_SESSIONS),
			 STATS_OWN_SESSIONS);
	stats_shown_init(&first, STATS_SESSIONS, kit->stats, kit->other, NULL);
	stats_shown_init(&second, STATS_SESSIONS, kit->stats, kit->tenant, NULL);
	stats_shown_init(&admin, STATS_SESSIONS, kit->stats, NULL, NULL);
	assert_int_equal(stats_n_shown(kit->stats, STATS_SESSIONS), 3);
	show(&first, 1);
	show(&second, 2);
	show(&admin, 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(record(&kit->root, i).number, i + 1);
	assert_int_equal(record(&kit->root, 1).n_tasks, 20);
	assert_string_equal(record(&kit->root, 1).name, "client");
	/* The tenant's page has its own session only. */
	assert_int_equal(record(&kit->own, 0).number, 2);
	assert_int_equal(record(&kit->own, 1).number, 0);

	/* The record of an ended session is used for the next one. */
	stats_shown_deinit(&first);
	stats_shown_deinit(&first);
	assert_int_equal(record(&kit->root, 0).number, 0);
	assert_int_equal(record(&kit->root, 0).name[0], 0);
	stats_shown_init(&first, STATS_SESSIONS, kit->stats, kit->tenant, NULL);
	show(&first, 4);
	assert_int_equal(record(&kit->root, 0).number, 4);
	assert_int_equal(record(&kit->own, 1).number, 4);
	stats_shown_deinit(&second);
	assert_int_equal(record(&kit->own, 0).number, 0);
	assert_int_equal(record(&kit->own, 1).number, 4);
	stats_shown_deinit(&first);
	stats_shown_deinit(&admin);
	assert_int_equal(stats_n_shown(kit->stats, STATS_SESSIONS), 0);
	assert_null(stats_first_shown(kit->stats, STATS_SESSIONS));
}

/* A record gets its memory without a lock that a reader of the page can hold. */
TEST(test_session__memory, setup, teardown)
{
	struct stats_shown *sessions = calloc(STATS_MAX_SESSIONS, sizeof(*sessions));
	struct kit *kit = *state;
	struct stat before, after;

	assert_non_null(sessions);
	assert_int_equal(fstat(stats_root(kit->stats)->fd, &before), 0);
	n_allocations = 0;
	for (uint32_t i = 0; i < STATS_MAX_SESSIONS; i++) {
		stats_shown_init(&sessions[i], STATS_SESSIONS, kit->stats, kit->tenant, NULL);
		show(&sessions[i], i + 1);
	}
	assert_int_equal(n_allocations, 0);
	assert_int_equal(fstat(stats_root(kit->stats)->fd, &after), 0);
	assert_true(after.st_blocks > before.st_blocks);
	for (uint32_t i = 0; i < STATS_MAX_SESSIONS; i++)
		stats_shown_deinit(&sessions[i]);
	free(sessions);
}

TEST(test_session__pages_come_and_go, setup, teardown)
{
	struct kit *kit = *state;
	struct stats_shown first, second;

	stats_shown_init(&first, STATS_SESSIONS, kit->stats, kit->tenant, NULL);
	stats_shown_init(&second, STATS_SESSIONS, kit->stats, kit->tenant, NULL);
	show(&first, 1);
	tenant_page_unmap(kit->tenant, 2);
	stats_root_unmap(kit->stats, 2);
	show(&second, 2);
	stats_shown_deinit(&first);

	assert_int_equal(tenant_page_map(kit->tenant, 3), 0);
	assert_int_equal(stats_root_map(kit->stats, 3), 0);
	kit->own = view_of(&kit->tenant->page);
	kit->root = view_of(stats_root(kit->stats));
	assert_int_equal(record(&kit->own, 0).number, 0);
	show(&second, 3);
	assert_int_equal(record(&kit->own, 0).number, 3);
	assert_int_equal(record(&kit->root, 1).number, 3);
	stats_shown_deinit(&second);
}

/* The page says after which record all are free, as sessions come and go. */
TEST(test_session__used_records, setup, teardown)
{
	struct kit *kit = *state;
	struct stats_shown sessions[3];

	assert_int_equal(rbk_stats_used(&kit->root, RBK_STATS_SECTION_SESSIONS), 0);
	for (uint32_t i = 0; i < 3; i++) {
		stats_shown_init(&sessions[i], STATS_SESSIONS, kit->stats, kit->tenant, NULL);
		show(&sessions[i], i + 1);
		assert_int_equal(rbk_stats_used(&kit->root, RBK_STATS_SECTION_SESSIONS), i + 1);
	}
	stats_shown_deinit(&sessions[1]);
	assert_int_equal(rbk_stats_used(&kit->root, RBK_STATS_SECTION_SESSIONS), 3);
	/* The same for a page that is mapped later. */
	stats_root_unmap(kit->stats, 2);
	assert_int_equal(stats_root_map(kit->stats, 3), 0);
	kit->root = view_of(stats_root(kit->stats));
	assert_int_equal(rbk_stats_used(&kit->root, RBK_STATS_SECTION_SESSIONS), 3);
	stats_shown_deinit(&sessions[2]);
	assert_int_equal(rbk_stats_used(&kit->root, RBK_STATS_SECTION_SESSIONS), 1);
	stats_shown_deinit(&sessions[0]);
	assert_int_equal(rbk_stats_used(&kit->root, RBK_STATS_SECTION_SESSIONS), 0);
	/* Short or absent sections have no such limit. */
	assert_int_equal(rbk_stats_used(&kit->own, RBK_STATS_SECTION_SESSIONS), STATS_OWN_SESSIONS);
	assert_int_equal(rbk_stats_used(&kit->root, RBK_STATS_SECTION_DEVICES), N_DEVICES);
	assert_int_equal(rbk_stats_used(&kit->root, RBK_STATS_SECTION_PLANS), 0);
}

/* Sessions beyond the number of records are not shown; they get records when other sessions end. */
TEST(test_session__too_many, setup, teardown)
{
	enum { N = STATS_MAX_SESSIONS + 2 };
	struct stats_shown *sessions = calloc(N, sizeof(*sessions));
	struct kit *kit = *state;

	assert_non_null(sessions);
	for (uint32_t i = 0; i < N; i++) {
		stats_shown_init(&sessions[i], STATS_SESSIONS, kit->stats, kit->tenant, NULL);
		show(&sessions[i], i + 1);
	}
	for (uint32_t i = 0; i < STATS_OWN_SESSIONS; i++)
		assert_int_equal(record(&kit->own, i).number, i + 1);
	assert_int_equal(record(&kit->root, STATS_MAX_SESSIONS - 1).number, STATS_MAX_SESSIONS);
	stats_shown_deinit(&sessions[100]);
	stats_shown_init(&sessions[100], STATS_SESSIONS, kit->stats, kit->tenant, NULL);
	show(&sessions[100], 77777);
	assert_int_equal(record(&kit->root, 100).number, 77777);
	for (uint32_t i = 0; i < N; i++)
		stats_shown_deinit(&sessions[i]);
	for (uint32_t i = 0; i < STATS_MAX_SESSIONS; i++)
		assert_int_equal(record(&kit->root, i).number, 0);
	free(sessions);
}

/* The root page takes only the memory that it uses, not its full size. */
TEST(test_root__is_sparse, setup, teardown)
{
	struct kit *kit = *state;
	struct stats_shown session;
	struct stat before, after;

	assert_int_equal(fstat(stats_root(kit->stats)->fd, &before), 0);
	assert_true((uint64_t)before.st_blocks * 512 < (uint64_t)before.st_size / 4);
	stats_shown_init(&session, STATS_SESSIONS, kit->stats, NULL, NULL);
	show(&session, 1);
	assert_int_equal(fstat(stats_root(kit->stats)->fd, &after), 0);
	assert_true(after.st_blocks - before.st_blocks <= 128 * 2);
	assert_int_equal(after.st_size, before.st_size);
	stats_shown_deinit(&session);
}

static struct rbk_stats_lease lease_record(const struct rbk_stats_view *view, uint32_t index)
{
	struct rbk_stats_lease lease;

	assert_true(rbk_stats_copy(&lease, rbk_stats_record(view, RBK_STATS_SECTION_LEASES, index),
				   sizeof(lease)));
	return lease;
}

static void show_lease(struct stats_shown *lease, uint32_t number)
{
	const struct rbk_stats_lease figures = {
		.number = number, .name = "program", .granted_bytes = number * 10};

	stats_shown_set(lease, &figures);
}

TEST(test_lease__in_both_pages, setup, teardown)
{
	struct kit *kit = *state;
	struct stats_shown first, second;

	assert_int_equal(rbk_stats_count(&kit->root, RBK_STATS_SECTION_LEASES), STATS_MAX_LEASES);
	assert_int_equal(rbk_stats_count(&kit->own, RBK_STATS_SECTION_LEASES), STATS_OWN_LEASES);
	stats_shown_init(&first, STATS_LEASES, kit->stats, kit->other, NULL);
	stats_shown_init(&second, STATS_LEASES, kit->stats, kit->tenant, NULL);
	assert_int_equal(stats_n_shown(kit->stats, STATS_LEASES), 2);
	show_lease(&first, 1);
	show_lease(&second, 2);
	assert_int_equal(lease_record(&kit->root, 0).number, 1);
	assert_int_equal(lease_record(&kit->root, 1).granted_bytes, 20);
	assert_string_equal(lease_record(&kit->root, 1).name, "program");
	assert_int_equal(lease_record(&kit->own, 0).number, 2);
	assert_int_equal(lease_record(&kit->own, 1).number, 0);

	tenant_page_unmap(kit->tenant, 2);
	show_lease(&second, 3);
	assert_int_equal(tenant_page_map(kit->tenant, 3), 0);
	kit->own = view_of(&kit->tenant->page);
	show_lease(&second, 4);
	assert_int_equal(lease_record(&kit->own, 0).number, 4);
	stats_shown_deinit(&first);
	stats_shown_deinit(&first);
	assert_int_equal(lease_record(&kit->root, 0).number, 0);
	stats_shown_deinit(&second);
	assert_int_equal(lease_record(&kit->own, 0).number, 0);
	assert_null(stats_first_shown(kit->stats, STATS_LEASES));
}

TEST(test_lease__too_many, setup, teardown)
{
	enum { N = STATS_MAX_LEASES + 2 };
	struct stats_shown *leases = calloc(N, sizeof(*leases));
	struct kit *kit = *state;

	assert_non_null(leases);
	for (uint32_t i = 0; i < N; i++) {
		stats_shown_init(&leases[i], STATS_LEASES, kit->stats, kit->tenant, NULL);
		show_lease(&leases[i], i + 1);
	}
	assert_int_equal(lease_record(&kit->root, STATS_MAX_LEASES - 1).number, STATS_MAX_LEASES);
	assert_int_equal(rbk_stats_used(&kit->root, RBK_STATS_SECTION_LEASES), STATS_MAX_LEASES);
	for (uint32_t i = 0; i < N; i++)
		stats_shown_deinit(&leases[i]);
	assert_int_equal(rbk_stats_used(&kit->root, RBK_STATS_SECTION_LEASES), 0);
	for (uint32_t i = 0; i < STATS_MAX_LEASES; i++)
		assert_int_equal(lease_record(&kit->root, i).number, 0);
	free(leases);
}
