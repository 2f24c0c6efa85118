/* SPDX-License-Identifier: MIT */
/* Names of cgroups by number: in a tree of folders, and in the machine's hierarchy. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contention/cgroup-name.h"
#include "fail-alloc.h"
#include "fake-proc.h"
#include "support/test.h"
#include "util/proc.h"

static struct cgroup_names *start(const char *root)
{
	struct cgroup_names *names;

	assert_int_equal(cgroup_names_new(root, &names), 0);
	return names;
}

TEST(test_find, fake_proc_set_up, fake_proc_tear_down)
{
	struct cgroup_names *names;
	char path[RUN_QUEUE_PATH_BYTES];
	uint64_t id;

	fake_put("", "cgroup/a/b/cpu.stat");
	fake_put("", "cgroup/services/one\033.service/cpu.stat");
	names = start(fake_cgroup);
	id = cgroup_names_id(names, "/a/b");
	assert_int_not_equal(id, 0);
	assert_int_equal(cgroup_names_id(names, "a/b"), id);
	assert_int_equal(cgroup_names_id(names, "/a/c"), 0);
	assert_int_equal(cgroup_names_id(names, "/a/b/cpu.stat"), 0);
	assert_true(cgroup_names_find(names, id, path));
	assert_string_equal(path, "/a/b");
	assert_true(cgroup_names_find(names, cgroup_names_id(names, "/"), path));
	assert_string_equal(path, "/");
	cgroup_names_free(names);

	names = start(fake_cgroup);
	assert_true(cgroup_names_find(names, cgroup_names_id(names, "/services/one\033.service"),
				      path));
	assert_string_equal(path, "/services/one?.service");
	cgroup_names_free(names);
}

/* A removed cgroup keeps its name if it was found before; otherwise it is not found. */
TEST(test_find__gone, fake_proc_set_up, fake_proc_tear_down)
{
	struct cgroup_names *names;
	char path[RUN_QUEUE_PATH_BYTES] = "as it was";
	uint64_t id, other;

	fake_put("", "cgroup/a/x");
	fake_put("", "cgroup/b/x");
	names = start(fake_cgroup);
	id = cgroup_names_id(names, "/a");
	other = cgroup_names_id(names, "/b");
	assert_true(cgroup_names_find(names, id, path));
	fake_remove("cgroup/a");
	fake_remove("cgroup/b");
	assert_true(cgroup_names_find(names, id, path));
	assert_string_equal(path, "/a");
	assert_false(cgroup_names_find(names, other, path));
	assert_false(cgroup_names_find(names, 0, path));
	assert_string_equal(path, "/a");
	cgroup_names_free(names);
}

TEST(test_find__long, fake_proc_set_up, fake_proc_tear_down)
{
	struct cgroup_names *names;
	char path[RUN_QUEUE_PATH_BYTES], whole[400] = "";

	for (unsigned int i = 0; i < 20; i++)
		snprintf(whole + strlen(whole), sizeof(whole) - strlen(whole), "/folder-%02u", i);
	fake_put("", "cgroup%s/x", whole);
	names = start(fake_cgroup);
	assert_true(cgroup_names_find(names, cgroup_names_id(names, whole), path));
	assert_int_equal(strlen(path), RUN_QUEUE_PATH_BYTES - 1);
	assert_memory_equal(path, "...", 3);
	assert_string_equal(path + 3, whole + strlen(whole) - (RUN_QUEUE_PATH_BYTES - 4));
	cgroup_names_free(names);
}

/* More cgroups than the table remembers: bounded, and right. */
TEST(test_find__machine, fake_proc_set_up, fake_proc_tear_down)
{
	char root[256], folder[300], text[65536], path[RUN_QUEUE_PATH_BYTES];
	struct cgroup_names *names;
	uint64_t ids[100];
	bool is_made = true;

	if (!proc_parse_mounts(text, proc_read(text, sizeof(text), "/proc/self/mounts"), NULL, root,
			       sizeof(root)))
		skip();
	names = start(root);
	for (unsigned int i = 0; i < 100; i++) {
		snprintf(folder, sizeof(folder), "%s/rb-test-%d-%u", root, getpid(), i);
		is_made = is_made && mkdir(folder, 0755) == 0;
		ids[i] = cgroup_names_id(names, folder + strlen(root));
	}
	for (unsigned int round = 0; is_made && round < 2; round++)
		for (unsigned int i = 0; i < 100; i++) {
			bool is_found = cgroup_names_find(names, ids[i], path);

			snprintf(folder, sizeof(folder), "/rb-test-%d-%u", getpid(), i);
			/* Without privilege the tree is searched, but at a limited rate. */
			assert_true(is_found || geteuid() != 0);
			assert_true(!is_found || strcmp(path, folder) == 0);
		}
	for (unsigned int i = 0; i < 100; i++) {
		snprintf(folder, sizeof(folder), "%s/rb-test-%d-%u", root, getpid(), i);
		rmdir(folder);
	}
	if (is_made) {
		/* The last one is remembered, the first one is not. */
		assert_false(cgroup_names_find(names, ids[0], path));
		assert_true(cgroup_names_find(names, ids[99], path) || geteuid() != 0);
	}
	cgroup_names_free(names);
	if (!is_made)
		skip();
}

TEST(test_new, fake_proc_set_up, fake_proc_tear_down)
{
	struct cgroup_names *names;
	char path[RUN_QUEUE_PATH_BYTES];

	fail_alloc_at(1);
	assert_int_equal(cgroup_names_new(fake_cgroup, &names), -ENOMEM);
	assert_true(fail_alloc_stop());
	names = start("/nonexistent");
	assert_false(cgroup_names_find(names, 1, path));
	assert_int_equal(cgroup_names_id(names, "/"), 0);
	cgroup_names_free(names);
	assert_null(cgroup_names_free(NULL));
}
