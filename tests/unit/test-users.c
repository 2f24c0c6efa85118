/* SPDX-License-Identifier: MIT */
/* Users and groups by name and by number */
#include <errno.h>
#include <string.h>

#include "daemon/users.h"
#include "support/test.h"

TEST(test_group)
{
	gid_t gid = 7;

	assert_int_equal(users_find_group("root", &gid), 0);
	assert_int_equal(gid, 0);
	assert_int_equal(users_find_group("4294967294", &gid), 0);
	assert_int_equal(gid, 4294967294);
	assert_int_equal(users_find_group("no-such-group-here", &gid), -ENOENT);
	/* The kernel's value for "none". */
	assert_int_equal(users_find_group("4294967295", &gid), -ENOENT);
	assert_int_equal(users_find_group("12x", &gid), -ENOENT);
	assert_int_equal(users_find_group("-1", &gid), -ENOENT);
	assert_int_equal(users_find_group("", &gid), -ENOENT);
	assert_int_equal(gid, 4294967294);
}

TEST(test_list)
{
	struct users users;

	assert_int_equal(users_parse("root", &users), 0);
	assert_fields(users, (n, 1), (uids[0], 0));
	assert_int_equal(users_parse("1000 ,\troot, 3 ", &users), 0);
	assert_fields(users, (n, 3), (uids[0], 1000), (uids[1], 0), (uids[2], 3));
}

TEST(test_list__bad)
{
	char list[2 * USERS_MAX + 2];
	struct users users;

	assert_int_equal(users_parse("", &users), -ENOENT);
	assert_int_equal(users_parse("root,", &users), -ENOENT);
	assert_int_equal(users_parse(",root", &users), -ENOENT);
	assert_int_equal(users_parse("root,no-such-user-here", &users), -ENOENT);

	memset(list, 0, sizeof(list));
	for (unsigned int i = 0; i < USERS_MAX; i++)
		strcat(list, i ? ",1" : "1");
	assert_int_equal(users_parse(list, &users), 0);
	assert_int_equal(users.n, USERS_MAX);
	strcat(list, ",1");
	assert_int_equal(users_parse(list, &users), -E2BIG);
}
