/* SPDX-License-Identifier: MIT */
/*
 * Administrators: which clients are, by the kernel's credentials; and how many sessions they get.
 */
#include <unistd.h>

#include "session/server-private.h"
#include "support/test.h"

enum { LOOK = RBK_FEAT_ADMIN, CHANGE = RBK_FEAT_ADMIN | RBK_FEAT_ADMIN_CHANGE };

/* Users that never run the tests. */
static const uid_t listed[] = {40101, 40102};
static const struct server_admin_options with_all = {
	.has_group = true,
	.gid = 40200,
	.users = listed,
	.n_users = 2,
};

static uint64_t rights_of(const struct server_admin_options *options, uid_t uid, gid_t gid,
			  const gid_t *groups, uint32_t n_groups)
{
	const struct peer peer = {
		.pid = 1, .uid = uid, .gid = gid, .groups = groups, .n_groups = n_groups};

	return admin_rights(options, &peer);
}

TEST(test_rights__root_and_own)
{
	const struct server_admin_options none = {.has_group = false};

	assert_int_equal(rights_of(&none, 0, 40300, NULL, 0), CHANGE);
	assert_int_equal(rights_of(&none, geteuid(), 40300, NULL, 0), CHANGE);
	assert_int_equal(rights_of(&none, 40103, 40300, NULL, 0), 0);
	/* Membership of root's group grants nothing. */
	assert_int_equal(rights_of(&none, 40103, 0, NULL, 0), 0);
}

TEST(test_rights__group)
{
	const gid_t groups[] = {40199, 40200, 40201}, others[] = {40199, 40201};
	const struct server_admin_options root_group = {.has_group = true, .gid = 0};

	assert_int_equal(rights_of(&with_all, 40103, 40200, NULL, 0), LOOK);
	assert_int_equal(rights_of(&with_all, 40103, 40300, groups, 3), LOOK);
	assert_int_equal(rights_of(&with_all, 40103, 40300, others, 2), 0);
	assert_int_equal(rights_of(&with_all, 40103, 40300, NULL, 0), 0);
	assert_int_equal(rights_of(&root_group, 40103, 0, NULL, 0), LOOK);
}

TEST(test_rights__users)
{
	const gid_t groups[] = {40200};

	assert_int_equal(rights_of(&with_all, 40101, 40300, NULL, 0), CHANGE);
	assert_int_equal(rights_of(&with_all, 40102, 40300, groups, 1), CHANGE);
	/* A number in the list of users is not taken for a group. */
	assert_int_equal(rights_of(&with_all, 40200, 40101, NULL, 0), 0);
}

TEST(test_sessions__readers_leave_room)
{
	struct server server = {.options.admin = with_all};

	for (unsigned int i = 0; i < SERVER_ADMIN_LOOKING_SESSIONS; i++)
		assert_true(admin_session_begin(&server, LOOK));
	assert_false(admin_session_begin(&server, LOOK));
	for (unsigned int i = SERVER_ADMIN_LOOKING_SESSIONS; i < SERVER_ADMIN_SESSIONS; i++)
		assert_true(admin_session_begin(&server, CHANGE));
	assert_false(admin_session_begin(&server, CHANGE));
	admin_session_end(&server);
	assert_false(admin_session_begin(&server, LOOK));
	assert_true(admin_session_begin(&server, CHANGE));
}
