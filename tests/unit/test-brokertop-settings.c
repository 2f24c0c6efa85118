/* SPDX-License-Identifier: MIT */
/* The file of brokertop's settings: its place, and the way in which it is replaced. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "picture.h"
#include "settings.h"
#include "support/test.h"

static void expect_link(const char *path, const char *wanted)
{
	char target[64] = "";

	assert_true(readlink(path, target, sizeof(target) - 1) > 0);
	assert_string_equal(target, wanted);
}

/* A file that is kept elsewhere, as with other settings of the user, stays there. */
TEST(test_settings__link)
{
	char folder[] = "/tmp/brokertop-XXXXXX", path[64], hop[64], target[64];
	struct picture picture;

	picture_init(&picture);
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/brokertop.conf", folder);
	snprintf(hop, sizeof(hop), "%s/hop", folder);
	snprintf(target, sizeof(target), "%s/kept/file", folder);
	assert_int_equal(symlink(hop, path), 0);
	assert_int_equal(symlink("kept/file", hop), 0);
	/* The target does not exist yet, and then it does. */
	for (unsigned int i = 1; i <= 2; i++) {
		picture.tables[TABLE_TENANTS].hidden = 1u << i;
		assert_int_equal(settings_save(&picture, path), 0);
		expect_link(path, hop);
		expect_link(hop, "kept/file");
		picture_deinit(&picture);
		picture_init(&picture);
		settings_load(&picture, target);
		assert_int_equal(picture.tables[TABLE_TENANTS].hidden, 1u << i);
	}
	/* Root does not write where another user's link leads. */
	if (geteuid() == 0) {
		assert_int_equal(lchown(hop, 1, 1), 0);
		assert_int_equal(settings_save(&picture, path), -EPERM);
	}
	/* Links that lead nowhere are an error, and stay. */
	assert_int_equal(unlink(hop), 0);
	assert_int_equal(symlink(path, hop), 0);
	assert_int_equal(settings_save(&picture, path), -ELOOP);
	expect_link(path, hop);
	assert_int_equal(unlink(hop), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(unlink(target), 0);
	picture_deinit(&picture);
	*strrchr(target, '/') = '\0';
	assert_int_equal(rmdir(target), 0);
	assert_int_equal(rmdir(folder), 0);
}

TEST(test_settings__path)
{
	char path[64];

	setenv("XDG_CONFIG_HOME", "/x", 1);
	assert_int_equal(settings_path(path, sizeof(path)), 0);
	assert_string_equal(path, "/x/ringbroker/brokertop.conf");
	setenv("XDG_CONFIG_HOME", "relative", 1);
	setenv("HOME", "/home/a", 1);
	assert_int_equal(settings_path(path, sizeof(path)), 0);
	assert_string_equal(path, "/home/a/.config/ringbroker/brokertop.conf");
	assert_int_equal(settings_path(path, 10), -ENAMETOOLONG);
	unsetenv("HOME");
	assert_int_equal(settings_path(path, sizeof(path)), -ENOENT);
}
