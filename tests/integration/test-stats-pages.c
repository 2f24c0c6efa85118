/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages of a real broker: counts, permissions, protection against writes, and the end of
 * sessions, tenants and brokers
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <ringbroker/stats.h>

#include "integration/harness.h"
#include "integration/raw.h"
#include "integration/stats-load.h"
#include "support/test.h"

enum { OTHER_UID = 40010, N_SMALL = 150, N_LARGE = 20 };

static const char two_tenants[] = "[tenant default]\nweight = 100\n"
				  "[tenant other]\nmatch-uid = 40010\nweight = 300\n";

static void map(struct rbk *rbk, unsigned int whose, uint32_t tenant, struct rbk_stats_view *ret)
{
	struct rbk_error error = {""};
	int r = rbk_stats_map(rbk, whose, tenant, ret, &error);

	if (r)
		fail_msg("%s", error.text);
}

/* Wait until the page has counted @n_tasks tasks; inline tasks are counted later. */
static void wait_tasks(const struct rbk_stats_view *view, uint64_t n_tasks)
{
	uint64_t end_ns = harness_now_ns() + harness_slow_ns(10000000000);

	while (harness_tenant(view).n_tasks < n_tasks) {
		if (harness_now_ns() > end_ns)
			fail_msg("%llu tasks were counted, not %llu",
				 (unsigned long long)harness_tenant(view).n_tasks,
				 (unsigned long long)n_tasks);
		harness_sleep_ms(5);
	}
	assert_int_equal(harness_tenant(view).n_tasks, n_tasks);
}

/* Wait until the page shows @n_plans plans: it does so at its next update, tasks are counted
 * before. */
static void wait_plans(const struct rbk_stats_view *view, uint64_t n_plans)
{
	uint64_t end_ns = harness_now_ns() + harness_slow_ns(10000000000);

	while (harness_tenant(view).n_plans != n_plans && harness_now_ns() < end_ns)
		harness_sleep_ms(5);
}

union plan_copy {
	struct rbk_stats_plan plan;
	uint64_t words[(sizeof(struct rbk_stats_plan) +
			RBK_MAX_DEVICES * sizeof(struct rbk_stats_plan_device)) /
		       sizeof(uint64_t)];
};

static uint64_t plan_tasks(const struct rbk_stats_view *view, const union plan_copy *copy)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < view->n_devices; i++)
		n += copy->plan.devices[i].n_tasks;
	return n;
}

/* Copy the record of the plan named @name. */
static void find_plan(const struct rbk_stats_view *view, const char *name, union plan_copy *ret)
{
	size_t bytes = sizeof(struct rbk_stats_plan) +
		       view->n_devices * sizeof(struct rbk_stats_plan_device);

	for (uint32_t i = 0; i < rbk_stats_count(view, RBK_STATS_SECTION_PLANS); i++) {
		assert_true(
			harness_stats_copy(view, RBK_STATS_SECTION_PLANS, i, ret->words, bytes));
		if (ret->plan.state == RBK_STATS_PLAN_LIVE && strcmp(ret->plan.name, name) == 0)
			return;
	}
	fail_msg("there is no plan %s", name);
}

/* --- Counts --- */

TEST(test_own__counts)
{
	struct rbk_stats_decision decision = {.sequence = 0};
	struct rbk_stats_tenant totals;
	struct rbk_stats_view view;
	struct rbk_stats_device device;
	struct stats_load load;
	union plan_copy plan;
	uint64_t n_logged = 0, n_large = 0, exec_ns = 0, in_histogram = 0;

	BROKER(broker, NULL);
	stats_load_init(&load, broker.socket_path, "small");
	map(load.rbk, RBK_STATS_OWN, 0, &view);
	assert_fields(*view.page, (kind, RBK_STATS_TENANT), (pid, broker.pid));
	stats_load_run(&load, N_SMALL, N_LARGE);
	wait_tasks(&view, N_SMALL + N_LARGE);

	wait_plans(&view, 2);
	totals = harness_tenant(&view);
	assert_string_equal(totals.name, "default");
	assert_int_equal(totals.n_errors, 0);
	assert_true(totals.n_sessions == 1 && totals.n_plans == 2);
	assert_true(totals.n_inline <= N_SMALL);
	assert_true(totals.exec_ns > 0);
	for (unsigned int i = 0; i < RBK_STATS_BUCKETS; i++)
		in_histogram += totals.latency_histogram[i];
	assert_int_equal(in_histogram, N_SMALL + N_LARGE - totals.n_inline);

	find_plan(&view, "small", &plan);
	assert_int_equal(plan_tasks(&view, &plan), N_SMALL);
	assert_fields(plan.plan, (plan_id, rbk_plan_id(load.small)), (n_inline, totals.n_inline));
	find_plan(&view, "large", &plan);
	assert_int_equal(plan_tasks(&view, &plan), N_LARGE);
	assert_fields(plan.plan, (n_inline, 0), (count, 256));
	assert_true(plan.plan.last_device < view.n_devices);

	/* Each large task is in the log, in the order of execution. */
	for (uint64_t i = totals.log_first; i < totals.log_head; i++) {
		assert_true(rbk_stats_decision(&view, i, &decision));
		n_logged++;
		assert_true(decision.user_data > 0 && decision.user_data <= load.n_sent);
		if (decision.plan_id != rbk_plan_id(load.large))
			continue;
		n_large++;
		assert_fields(decision, (user_data, N_SMALL + n_large), (count, 256), (res, 0));
		assert_true(decision.device < view.n_devices);
		assert_int_not_equal(decision.reason, RBK_REASON_NONE);
		assert_true(decision.exec_ns > 0);
		exec_ns += (uint64_t)decision.exec_ns;
	}
	assert_int_equal(n_large, N_LARGE);
	assert_true(n_logged > N_LARGE);
	assert_true(exec_ns <= totals.exec_ns);

	/* A tenant's page shows the devices' names, but no counts. */
	assert_true(
		harness_stats_copy(&view, RBK_STATS_SECTION_DEVICES, 0, &device, sizeof(device)));
	assert_true(device.name[0] != '\0');
	assert_int_equal(device.n_tasks, 0);
	rbk_stats_unmap(&view);
	assert_null(view.page);
	rbk_stats_unmap(&view);
	stats_load_deinit(&load);
}

TEST(test_reset)
{
	struct rbk_stats_tenant totals;
	struct rbk_stats_view view, root;
	struct rbk_error error = {""};
	struct stats_load load;
	union plan_copy plan;
	struct rbk *admin;

	BROKER(broker, NULL);
	stats_load_init(&load, broker.socket_path, "small");
	map(load.rbk, RBK_STATS_OWN, 0, &view);
	admin = broker_connect_admin(&broker, "admin");
	map(admin, RBK_STATS_ALL, 0, &root);
	stats_load_run(&load, 10, 5);
	wait_tasks(&view, 15);
	assert_int_equal(view.page->n_resets, 0);
	assert_int_equal(rbk_stats_reset(load.rbk, RBK_STATS_OWN, 0, &error), 0);
	totals = harness_tenant(&view);
	assert_fields(totals, (n_tasks, 0), (exec_ns, 0));
	assert_true(totals.log_head > 0);
	assert_int_equal(totals.log_first, totals.log_head);
	assert_int_equal(view.page->n_resets, 1);
	assert_true(view.page->reset_at_ns > view.page->started_at_ns);
	find_plan(&view, "large", &plan);
	assert_int_equal(plan_tasks(&view, &plan), 0);

	stats_load_run(&load, 1, 1);
	wait_tasks(&view, 2);
	assert_int_equal(rbk_stats_reset(admin, RBK_STATS_ALL, 0, &error), 0);
	assert_int_equal(harness_tenant(&view).n_tasks, 0);
	assert_int_equal(root.page->n_resets, 1);
	wait_tasks(&root, 0);
	assert_int_equal(rbk_stats_reset(admin, RBK_STATS_OF_TENANT, 999, &error), -ENOENT);
	assert_int_equal(rbk_stats_reset(load.rbk, RBK_STATS_OWN, 1, &error), -EINVAL);
	assert_int_equal(rbk_stats_reset(load.rbk, 3, 0, &error), -EINVAL);
	rbk_stats_unmap(&view);
	rbk_stats_unmap(&root);
	rbk_disconnect(admin);
	stats_load_deinit(&load);
}

/* While the page is mapped, the heartbeat advances, and gauges are updated. */
TEST(test_heartbeat)
{
	struct rbk_stats_view view, root;
	struct rbk_stats_broker about;
	struct rbk *rbk, *second, *admin;
	uint64_t n_updates, end_ns;

	BROKER(broker, NULL);
	rbk = broker_connect(&broker, "watcher");
	map(rbk, RBK_STATS_OWN, 0, &view);
	admin = broker_connect_admin(&broker, "admin");
	map(admin, RBK_STATS_ALL, 0, &root);
	n_updates = rbk_stats_load(&view.page->n_updates);
	second = broker_connect(&broker, "second");
	end_ns = harness_now_ns() + harness_slow_ns(10000000000);
	do {
		harness_sleep_ms(5);
		assert_true(harness_stats_copy(&root, RBK_STATS_SECTION_BROKER, 0, &about,
					       sizeof(about)));
		assert_true(harness_now_ns() < end_ns);
	} while (about.n_sessions != 3 || harness_tenant(&view).n_sessions != 2 ||
		 rbk_stats_load(&view.page->n_updates) < n_updates + 3);
	/* The page's clock agrees with the test's. */
	assert_true(rbk_stats_load(&view.page->updated_at_ns) +
			    (uint64_t)view.page->monotonic_offset_ns <=
		    harness_now_ns());
	rbk_disconnect(second);
	rbk_disconnect(rbk);
	rbk_disconnect(admin);
	rbk_stats_unmap(&view);
	rbk_stats_unmap(&root);
}

/* --- Permissions --- */

/* Run @as as another user in a child process. Its exit status identifies the failed check. */
static void as_other(int (*as)(const struct broker *broker, uint32_t number),
		     const struct broker *broker, uint32_t number)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (setgroups(0, NULL) < 0 || setgid(OTHER_UID) < 0 || setuid(OTHER_UID) < 0)
			_exit(100);
		_exit(as(broker, number));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static int try_everything(const struct broker *broker, uint32_t number)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = broker->socket_path,
		.timeout_ns = 60000000000,
	};
	struct rbk_error error = {""};
	struct rbk_stats_view view;
	struct rbk_stats_tenant totals;
	struct rbk *rbk;
	int value = 7;

	if (rbk_connect(&options, &rbk, NULL))
		return 1;
	if (rbk_stats_map(rbk, RBK_STATS_ALL, 0, &view, &error) != -EPERM ||
	    !strstr(error.text, "other"))
		return 2;
	if (rbk_stats_map(rbk, RBK_STATS_OF_TENANT, number, &view, &error) != -EPERM)
		return 3;
	/* The error does not reveal which tenant numbers exist. */
	if (rbk_stats_map(rbk, RBK_STATS_OF_TENANT, 12345, &view, &error) != -EPERM)
		return 4;
	if (rbk_stats_reset(rbk, RBK_STATS_ALL, 0, &error) != -EPERM ||
	    rbk_stats_reset(rbk, RBK_STATS_OF_TENANT, number, &error) != -EPERM)
		return 5;
	if (rbk_force_cpu(rbk, 1, NULL, &error) != -EPERM)
		return 6;
	if (rbk_force_cpu(rbk, RBK_ASK, &value, &error) || value != 0)
		return 7;
	if (rbk_stats_map(rbk, RBK_STATS_OWN, 0, &view, &error))
		return 8;
	if (!harness_stats_copy(&view, RBK_STATS_SECTION_TENANTS, 0, &totals, sizeof(totals)) ||
	    strcmp(totals.name, "other") != 0 || totals.n_tasks != 0)
		return 9;
	if (rbk_stats_count(&view, RBK_STATS_SECTION_BROKER) != 0 ||
	    rbk_stats_reset(rbk, RBK_STATS_OWN, 0, &error) || totals.number == number)
		return 10;
	/* A tenant may name its own number. */
	if (rbk_stats_reset(rbk, RBK_STATS_OF_TENANT, totals.number, &error))
		return 11;
	rbk_disconnect(rbk);
	return 0;
}

TEST(test_tenants__see_their_own)
{
	const struct broker_options options = {.policy = two_tenants};
	struct rbk_stats_view view, root;
	struct stats_load load;
	bool has_other = false;
	struct rbk *admin;

	if (geteuid() != 0) {
		print_message("needs root to become another user\n");
		skip();
	}
	BROKER(broker, &options);
	assert_int_equal(chmod(broker.dir, 0755), 0);
	assert_int_equal(chmod(broker.socket_path, 0777), 0);
	stats_load_init(&load, broker.socket_path, "small");
	map(load.rbk, RBK_STATS_OWN, 0, &view);
	admin = broker_connect_admin(&broker, "admin");
	map(admin, RBK_STATS_ALL, 0, &root);
	stats_load_run(&load, 3, 3);
	wait_tasks(&view, 6);
	as_other(try_everything, &broker, harness_tenant(&view).number);
	/* The first tenant's figures have not changed. */
	assert_int_equal(view.page->n_resets, 0);
	wait_tasks(&view, 6);

	/* The root page has both tenants, with the policy's limits. */
	for (uint64_t end_ns = harness_now_ns() + harness_slow_ns(10000000000); !has_other;) {
		struct rbk_stats_tenant tenant;

		for (uint32_t i = 0; i < rbk_stats_count(&root, RBK_STATS_SECTION_TENANTS); i++) {
			assert_true(harness_stats_copy(&root, RBK_STATS_SECTION_TENANTS, i, &tenant,
						       sizeof(tenant)));
			has_other |= (tenant.flags & RBK_STATS_TENANT_USED) &&
				     strcmp(tenant.name, "other") == 0 && tenant.weight == 300;
		}
		assert_true(harness_now_ns() < end_ns);
		harness_sleep_ms(5);
	}
	rbk_stats_unmap(&view);
	rbk_stats_unmap(&root);
	rbk_disconnect(admin);
	stats_load_deinit(&load);
}

/* A client's page descriptor allows reading only. */
TEST(test_page__hostile_client)
{
	struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.features = RBK_FEAT_STATS,
		.name = "hostile",
	};
	struct rbk_wire_stats_of of = {
		.request = {.type = RBK_WIRE_STATS_PAGE, .cookie = 1},
	};
	struct rbk_wire_welcome welcome;
	struct rbk_wire_stats_page reply;
	unsigned int n_fds = 1;
	int fd, page = -1;
	void *memory;

	BROKER(broker, NULL);
	fd = raw_connect(&broker);
	raw_ask(fd, &hello, sizeof(hello), NULL, 0, &welcome, sizeof(welcome));
	assert_int_equal(welcome.features, RBK_FEAT_STATS);
	assert_true(raw_send(fd, &of, sizeof(of), NULL, 0) > 0);
	assert_int_equal(raw_receive(fd, &reply, sizeof(reply), &page, &n_fds, 10000),
			 sizeof(reply));
	assert_int_equal(reply.reply.res, 0);
	assert_int_equal(n_fds, 1);
	assert_int_equal(reply.kind, RBK_STATS_TENANT);

	memory = mmap(NULL, reply.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
	assert_ptr_equal(memory, MAP_FAILED);
	assert_int_equal(ftruncate(page, 0), -1);
	assert_int_equal(fallocate(page, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	assert_int_equal(pwrite(page, "x", 1, 0), -1);
	memory = mmap(NULL, reply.bytes, PROT_READ, MAP_SHARED, page, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	assert_int_equal(mprotect(memory, reply.bytes, PROT_READ | PROT_WRITE), -1);
	munmap(memory, reply.bytes);

	/* Repeated requests return the same page. */
	for (unsigned int i = 0; i < 1000; i++) {
		int again = -1;

		n_fds = 1;
		assert_true(raw_send(fd, &of, sizeof(of), NULL, 0) > 0);
		assert_int_equal(raw_receive(fd, &reply, sizeof(reply), &again, &n_fds, 10000),
				 sizeof(reply));
		assert_int_equal(reply.reply.res, 0);
		close(again);
	}
	/* A request with an undefined "whose" breaks the rules. */
	of.whose = 3;
	assert_true(raw_send(fd, &of, sizeof(of), NULL, 0) > 0);
	raw_expect_closed(fd);
	close(fd);
	close(page);
}

/* --- Memory limits, and the end --- */

/* A tenant without room for a page can still compute. */
TEST(test_page__no_room)
{
	const struct broker_options options = {
		.policy = "[tenant default]\nhost-max = 5000KiB\n",
	};
	struct rbk_error error = {""};
	struct rbk_stats_view view;
	struct stats_load load;
	struct rbk_stats stats;
	struct rbk *admin;

	BROKER(broker, &options);
	stats_load_init(&load, broker.socket_path, "small");
	stats_load_run(&load, 10, 5);
	assert_int_equal(rbk_stats_map(load.rbk, RBK_STATS_OWN, 0, &view, &error), -EDQUOT);
	assert_non_null(strstr(error.text, "no room for a statistics page"));
	stats_load_run(&load, 10, 5);
	assert_int_equal(rbk_stats(load.rbk, &stats), 0);
	assert_int_equal(stats.tasks_completed, 30);
	/* Its tasks are counted all the same. */
	admin = broker_connect_admin(&broker, "admin");
	map(admin, RBK_STATS_ALL, 0, &view);
	wait_tasks(&view, 30);
	assert_int_equal(harness_tenant(&view).flags & RBK_STATS_TENANT_PAGE, 0);
	rbk_stats_unmap(&view);
	rbk_disconnect(admin);
	stats_load_deinit(&load);
}

TEST(test_page__outlives_broker)
{
	struct rbk_stats_view view;
	struct stats_load load;
	struct broker broker;
	union plan_copy plan;

	broker_start(&broker, NULL);
	stats_load_init(&load, broker.socket_path, "small");
	map(load.rbk, RBK_STATS_OWN, 0, &view);
	stats_load_run(&load, 0, 7);
	broker_kill(&broker);
	assert_int_equal(harness_tenant(&view).n_tasks, 7);
	find_plan(&view, "large", &plan);
	assert_int_equal(plan_tasks(&view, &plan), 7);
	assert_false(view.page->flags & RBK_STATS_CLOSED);
	stats_load_deinit(&load);
	assert_int_equal(harness_tenant(&view).n_tasks, 7);
	rbk_stats_unmap(&view);
	broker_remove(&broker);
}

static int run_and_leave(const struct broker *broker, uint32_t number)
{
	struct stats_load load;

	stats_load_init(&load, broker->socket_path, "theirs");
	stats_load_run(&load, 0, 4);
	stats_load_deinit(&load);
	return 0;
}

/* A tenant's totals outlive its sessions; its charges do not. */
TEST(test_tenants__come_and_go)
{
	const struct broker_options options = {.policy = two_tenants};
	struct rbk_stats before, after;
	struct rbk_stats_view root, page;
	struct rbk_stats_tenant tenant;
	struct rbk_error error = {""};
	struct rbk *rbk;
	uint32_t number = 0;
	uint64_t end_ns;

	if (geteuid() != 0) {
		print_message("needs root to become another user\n");
		skip();
	}
	BROKER(broker, &options);
	assert_int_equal(chmod(broker.dir, 0755), 0);
	assert_int_equal(chmod(broker.socket_path, 0777), 0);
	rbk = broker_connect_admin(&broker, "watcher");
	map(rbk, RBK_STATS_ALL, 0, &root);
	/* The harness's test connection may still be open. */
	broker_wait_sessions(rbk, 1);
	assert_int_equal(rbk_stats(rbk, &before), 0);
	for (unsigned int round = 1; round <= 2; round++) {
		as_other(run_and_leave, &broker, 0);
		broker_wait_sessions(rbk, 1);
		end_ns = harness_now_ns() + harness_slow_ns(10000000000);
		do {
			harness_sleep_ms(5);
			assert_true(harness_now_ns() < end_ns);
			assert_true(harness_stats_copy(&root, RBK_STATS_SECTION_TENANTS, 1, &tenant,
						       sizeof(tenant)));
		} while (tenant.n_tasks != 4 * round || (tenant.flags & RBK_STATS_TENANT_PAGE) ||
			 tenant.n_sessions != 0);
		assert_string_equal(tenant.name, "other");
		if (number)
			assert_int_equal(tenant.number, number);
		number = tenant.number;
		assert_int_equal(rbk_stats(rbk, &after), 0);
		assert_int_equal(after.host_bytes, before.host_bytes);
	}
	assert_int_equal(rbk_stats_map(rbk, RBK_STATS_OF_TENANT, number, &page, &error), -ENOENT);
	assert_non_null(strstr(error.text, "has no statistics page"));

	/* A tenant that the policy no longer names disappears. */
	broker_write_policy(&broker, "[tenant default]\nweight = 100\n");
	broker_reload(&broker, "again");
	end_ns = harness_now_ns() + harness_slow_ns(10000000000);
	do {
		harness_sleep_ms(5);
		assert_true(harness_now_ns() < end_ns);
		assert_true(harness_stats_copy(&root, RBK_STATS_SECTION_TENANTS, 1, &tenant,
					       sizeof(tenant)));
	} while (tenant.flags & RBK_STATS_TENANT_USED);
	assert_int_equal(rbk_stats_map(rbk, RBK_STATS_OF_TENANT, number, &page, &error), -ENOENT);
	rbk_stats_unmap(&root);
	rbk_disconnect(rbk);
}

/* An administrator sets and reads force-CPU. */
TEST(test_force_cpu)
{
	struct rbk_error error = {""};
	struct rbk *rbk;
	int value = -1;

	BROKER(broker, NULL);
	rbk = broker_connect_admin(&broker, "admin");
	assert_int_equal(rbk_force_cpu(rbk, RBK_ASK, &value, &error), 0);
	assert_int_equal(value, 0);
	assert_int_equal(rbk_force_cpu(rbk, 1, &value, &error), 0);
	assert_int_equal(value, 1);
	value = 0;
	assert_int_equal(rbk_force_cpu(rbk, RBK_ASK, &value, &error), 0);
	assert_int_equal(value, 1);
	assert_int_equal(rbk_force_cpu(rbk, 0, NULL, &error), 0);
	assert_int_equal(rbk_force_cpu(rbk, RBK_ASK, &value, &error), 0);
	assert_int_equal(value, 0);
	assert_int_equal(rbk_force_cpu(rbk, 2, NULL, &error), -EINVAL);
	rbk_disconnect(rbk);
}

TEST_MAIN(NULL, NULL, broker_watch_all(), harness_limit_seconds(60))
