/* SPDX-License-Identifier: MIT */
/*
 * The administrators' socket, from outside
 *
 * Permissions are tested with processes that become another user, which needs root. Other users'
 * permissions are tested as root only.
 */
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ringbroker/admin.h>
#include <ringbroker/stats.h>

#include "integration/harness.h"
#include "integration/placement.h"
#include "integration/raw.h"
#include "shm/wire.h"
#include "support/test.h"

/* Users and a group that no user of these tests has. */
enum { STRANGER_UID = 40010, MEMBER_UID = 40011, LISTED_UID = 40012, GROUP = 40020 };

static const char *const with_group[] = {"--admin-group=40020", "--gpu=none", NULL};
static const char *const with_users[] = {"--admin-group=40020", "--admin-users=40012", "--gpu=none",
					 NULL};
static const char *const plain[] = {"--gpu=none", NULL};

/* --- Other users --- */

/* Run @as as another user in a child process. Its exit status identifies the failed check. */
static void as_user(uid_t uid, gid_t extra, int (*as)(const struct broker *broker),
		    const struct broker *broker)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (setgroups(extra ? 1 : 0, &extra) < 0 || setgid(uid) < 0 || setuid(uid) < 0)
			_exit(100);
		_exit(as(broker));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void start(struct broker *broker, const char *const *args)
{
	const struct broker_options options = {.args = args};

	broker_start(broker, &options);
	assert_int_equal(chmod(broker->dir, 0755), 0);
}

#define START(name, ...) SCOPED(broker, name, start, broker_stop, __VA_ARGS__)

static bool is_root(void)
{
	if (geteuid() == 0)
		return true;
	print_message("needs root to become another user\n");
	return false;
}

static int connect_admin(const struct broker *broker, struct rbk **ret, struct rbk_error *error)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = broker->admin_path,
		.timeout_ns = 60000000000,
	};

	return rbk_admin_connect(&options, ret, error);
}

static unsigned int mode_of(const char *path)
{
	struct stat status;

	assert_int_equal(stat(path, &status), 0);
	return status.st_mode & 0777;
}

static int expect_kept_out(const struct broker *broker)
{
	struct rbk *rbk;

	return connect_admin(broker, &rbk, NULL) == -EACCES ? 0 : 1;
}

/* Expect that the socket's mode admits the user, and that the broker rejects the session. */
static int expect_refused(const struct broker *broker)
{
	struct rbk_error error = {""};
	struct rbk *rbk;

	if (connect_admin(broker, &rbk, &error) != -EACCES)
		return 1;
	return strstr(error.text, "accepts only administrators") ? 0 : 2;
}

static int expect_looking(const struct broker *broker)
{
	struct rbk_admin_evict evict = {.device = RBK_DEVICE_NONE};
	struct rbk_error error = {""};
	struct rbk_device devices[RBK_MAX_DEVICES];
	struct rbk_stats_view root;
	struct rbk *rbk;
	unsigned int n;
	int value;

	if (connect_admin(broker, &rbk, &error))
		return 1;
	if ((rbk_features(rbk) & (RBK_FEAT_ADMIN | RBK_FEAT_ADMIN_CHANGE)) != RBK_FEAT_ADMIN)
		return 2;
	if (rbk_stats_map(rbk, RBK_STATS_ALL, 0, &root, &error))
		return 3;
	if (rbk_stats_reset(rbk, RBK_STATS_ALL, 0, &error) != -EPERM ||
	    !strstr(error.text, "may only read"))
		return 4;
	if (rbk_force_cpu(rbk, 1, NULL, &error) != -EPERM ||
	    rbk_force_cpu(rbk, RBK_ASK, &value, &error) || value != 0)
		return 5;
	if (rbk_admin_set(rbk, 1, "weight", "10", &error) != -EPERM ||
	    rbk_admin_evict(rbk, &evict, NULL, NULL, &error) != -EPERM ||
	    rbk_admin_drain_tenant(rbk, 1, RBK_DRAIN_BEGIN, NULL, &error) != -EPERM ||
	    rbk_admin_log_level(rbk, 7, NULL, &error) != -EPERM)
		return 6;
	if (rbk_admin_log_level(rbk, RBK_ASK, &value, &error) || value != 6 ||
	    rbk_admin_drain_tenant(rbk, 1, RBK_DRAIN_ASK, NULL, &error) == -EPERM)
		return 8;
	if (rbk_devices(rbk, devices, RBK_MAX_DEVICES, &n) || n != 1)
		return 7;
	rbk_stats_unmap(&root);
	rbk_disconnect(rbk);
	return 0;
}

static int expect_changing(const struct broker *broker)
{
	struct rbk *rbk;

	if (connect_admin(broker, &rbk, NULL))
		return 1;
	if (!(rbk_features(rbk) & RBK_FEAT_ADMIN_CHANGE))
		return 2;
	if (rbk_force_cpu(rbk, 1, NULL, NULL) || rbk_force_cpu(rbk, 0, NULL, NULL))
		return 3;
	if (rbk_stats_reset(rbk, RBK_STATS_ALL, 0, NULL))
		return 4;
	rbk_disconnect(rbk);
	return 0;
}

TEST(test_rights)
{
	struct broker broker;

	if (!is_root())
		skip();
	start(&broker, with_group);
	assert_int_equal(mode_of(broker.admin_path), 0660);
	as_user(STRANGER_UID, 0, expect_kept_out, &broker);
	as_user(MEMBER_UID, GROUP, expect_looking, &broker);
	/* The broker checks the user even if the socket's mode admits all users. */
	assert_int_equal(chmod(broker.admin_path, 0666), 0);
	as_user(STRANGER_UID, 0, expect_refused, &broker);
	as_user(MEMBER_UID, GROUP, expect_looking, &broker);
	assert_true(broker_log_has(&broker, "this socket accepts only administrators"));
	broker_stop(&broker);

	start(&broker, with_users);
	as_user(STRANGER_UID, 0, expect_refused, &broker);
	as_user(MEMBER_UID, GROUP, expect_looking, &broker);
	as_user(LISTED_UID, 0, expect_changing, &broker);
	assert_int_equal(expect_changing(&broker), 0);
	broker_stop(&broker);
}

/* --- Missing sockets --- */

TEST(test_socket__default_and_chosen_path)
{
	const char *const args[] = {"--admin-socket=none", "--gpu=none", NULL};
	const struct broker_options options = {.args = args};
	struct rbk_error error = {""};
	struct broker broker;
	struct rbk *rbk;

	broker_start(&broker, &options);
	assert_int_not_equal(access(broker.admin_path, F_OK), 0);
	assert_int_equal(connect_admin(&broker, &rbk, &error), -ENOENT);
	broker_stop(&broker);

	start(&broker, plain);
	assert_int_equal(access(broker.admin_path, F_OK), 0);
	/* By default the library looks for the administrators' socket beside RINGBROKER_SOCKET. */
	assert_int_equal(setenv("RINGBROKER_SOCKET", broker.socket_path, 1), 0);
	assert_int_equal(rbk_admin_connect(NULL, &rbk, &error), 0);
	rbk_disconnect(rbk);
	assert_int_equal(setenv("RINGBROKER_ADMIN_SOCKET", "/nonexistent/socket", 1), 0);
	assert_int_equal(rbk_admin_connect(NULL, &rbk, &error), -ENOENT);
	assert_int_equal(setenv("RINGBROKER_ADMIN_SOCKET", broker.admin_path, 1), 0);
	assert_int_equal(setenv("RINGBROKER_SOCKET", "/nonexistent/socket", 1), 0);
	assert_int_equal(rbk_admin_connect(NULL, &rbk, &error), 0);
	rbk_disconnect(rbk);
	unsetenv("RINGBROKER_SOCKET");
	unsetenv("RINGBROKER_ADMIN_SOCKET");
	broker_stop(&broker);
	assert_int_not_equal(access(broker.admin_path, F_OK), 0);
}

/* Return the process id of the broker behind @broker's administrators' socket. */
static uint32_t administered_pid(const struct broker *broker)
{
	struct rbk *rbk = broker_connect_admin(broker, "admin");
	struct rbk_error error = {""};
	struct rbk_stats_view root;
	uint32_t pid;

	assert_int_equal(rbk_stats_map(rbk, RBK_STATS_ALL, 0, &root, &error), 0);
	pid = root.page->pid;
	rbk_stats_unmap(&root);
	rbk_disconnect(rbk);
	return pid;
}

/* In one folder, each broker names its administrators' socket after its own socket. */
TEST(test_socket__one_folder)
{
	static const char *const names[] = {"brokerd.sock", "x.sock", "x"};
	static const char *const beside[] = {"admin.sock", "x.admin.sock", "x.admin"};
	struct broker brokers[3];
	struct broker_options options = {.args = plain};
	char folder[] = "/tmp/rbk-test-XXXXXX", path[128];

	assert_non_null(mkdtemp(folder));
	for (unsigned int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		options.socket_path = path;
		broker_start(&brokers[i], &options);
		snprintf(path, sizeof(path), "%s/%s", folder, beside[i]);
		assert_string_equal(brokers[i].admin_path, path);
		assert_false(broker_log_has(&brokers[i], "no socket for administrators"));
	}
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(administered_pid(&brokers[i]), brokers[i].pid);
	for (unsigned int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s.lock", brokers[i].admin_path);
		broker_stop(&brokers[i]);
		unlink(path);
		snprintf(path, sizeof(path), "%s/%s.lock", folder, names[i]);
		unlink(path);
	}
	assert_int_equal(rmdir(folder), 0);
}

/* Write the path of @name in @folder. Return: @path. */
static const char *path_in(const char *folder, const char *name, char path[128])
{
	snprintf(path, 128, "%s/%s", folder, name);
	return path;
}

static void unlink_in(const char *folder, const char *name)
{
	char path[128];

	unlink(path_in(folder, name, path));
}

/*
 * Beside the default folder, which containers mount, the administrators' socket has a folder of its
 * own. The earlier path in the default folder is a link that leads out of it.
 */
TEST(test_socket__own_folder)
{
	static const char link_name[] = "ringbroker/admin.sock";
	char folder[] = "/tmp/rbk-test-XXXXXX", path[128], socket_path[128], target[128] = "";
	const bool is_root = geteuid() == 0;
	struct broker_options options = {.args = plain};
	struct rbk_options old = {.size = sizeof(old), .socket_path = path};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct rbk_error error = {""};
	struct stat status;
	struct broker broker;
	struct rbk *rbk;

	assert_non_null(mkdtemp(folder));
	assert_int_equal(chmod(folder, 0755), 0);
	assert_int_equal(mkdir(path_in(folder, "ringbroker", path), 0755), 0);
	options.socket_path = path_in(folder, "ringbroker/brokerd.sock", socket_path);
	/* The socket on which another broker listens there stays, until it leaves it behind. */
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", folder, link_name);
	assert_true(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && !listen(fd, 1));
	broker_start(&broker, &options);
	broker_stop(&broker);
	assert_true(lstat(address.sun_path, &status) == 0 && S_ISSOCK(status.st_mode));
	close(fd);
	for (unsigned int i = 0; i < 2; i++) {
		if (is_root)
			options.args = i == 0 ? with_group : with_users;
		broker_start(&broker, &options);
		assert_int_equal(rbk_admin_socket_path(socket_path, broker.admin_path,
						       sizeof(broker.admin_path)),
				 0);
		assert_string_equal(broker.admin_path,
				    path_in(folder, "ringbroker-admin/admin.sock", path));
		assert_int_equal(mode_of(path_in(folder, "ringbroker-admin", path)),
				 !is_root ? 0700
				 : i == 0 ? 0750
					  : 0751);
		if (is_root) {
			as_user(STRANGER_UID, 0, i == 0 ? expect_kept_out : expect_refused,
				&broker);
			as_user(MEMBER_UID, GROUP, expect_looking, &broker);
		}
		assert_true(readlink(path_in(folder, link_name, path), target, sizeof(target) - 1) >
			    0);
		assert_string_equal(target, "../ringbroker-admin/admin.sock");
		assert_int_equal(administered_pid(&broker), broker.pid);
		assert_int_equal(rbk_admin_connect(&old, &rbk, &error), 0);
		rbk_disconnect(rbk);
		/* A killed broker leaves the link for the next one. */
		if (i == 0) {
			broker_kill(&broker);
			broker_remove(&broker);
		} else {
			broker_stop(&broker);
		}
	}
	assert_int_not_equal(lstat(path_in(folder, link_name, path), &status), 0);
	unlink_in(folder, "ringbroker-admin/admin.sock.lock");
	unlink_in(folder, "ringbroker/brokerd.sock.lock");
	assert_int_equal(rmdir(path_in(folder, "ringbroker-admin", path)), 0);
	assert_int_equal(rmdir(path_in(folder, "ringbroker", path)), 0);
	assert_int_equal(rmdir(folder), 0);
}

static void name_admin_socket_too_long(void)
{
	char path[128];

	snprintf(path, sizeof(path), "/tmp/%0120d", 0);
	setenv("RINGBROKER_ADMIN_SOCKET", path, 1);
}

/* A broker that cannot make the socket it was told to make ends; by default it runs without. */
TEST(test_socket__in_use)
{
	struct broker first, second;
	struct broker_options options = {.args = plain};
	char path[128], folder[144], option[160];
	const char *args[] = {option, "--gpu=none", NULL};
	int status = 0;

	broker_start(&first, &options);
	snprintf(path, sizeof(path), "%s/second", first.dir);
	snprintf(folder, sizeof(folder), "%s.admin", path);
	assert_int_equal(mkdir(folder, 0700), 0);
	options.socket_path = path;
	broker_start(&second, &options);
	assert_true(broker_log_has(&second, "no socket for administrators"));
	broker_stop(&second);
	rmdir(folder);

	options.socket_path = NULL;
	options.in_child = name_admin_socket_too_long;
	broker_start(&second, &options);
	assert_true(broker_log_has(&second, "would be longer than 107 bytes"));
	broker_stop(&second);
	options.in_child = NULL;

	snprintf(option, sizeof(option), "--admin-socket=%s", first.admin_path);
	options.args = args;
	assert_false(broker_try_start(&second, &options, &status));
	assert_int_equal(WEXITSTATUS(status), 2);
	assert_true(broker_log_has(&second, "its own --admin-socket"));
	broker_remove(&second);
	assert_int_equal(expect_changing(&first), 0);
	broker_stop(&first);
}

/* An administrator has none of a tenant's requests, and each rejection says so. */
TEST(test_administrator__is_no_tenant)
{
	struct rbk_error error = {""};
	struct rbk_stats_view view;
	struct rbk_tenant tenant;
	struct rbk_arena *arena;
	struct rbk_ring *ring;
	struct rbk *rbk;

	START(broker, plain);
	rbk = broker_connect_admin(&broker, "admin");
	assert_int_equal(rbk_ring_new(rbk, 8, &ring, &error), -EPERM);
	assert_non_null(strstr(error.text, "other socket"));
	assert_int_equal(rbk_arena_new(rbk, 4096, &arena, &error), -EPERM);
	assert_int_equal(rbk_stats_map(rbk, RBK_STATS_OWN, 0, &view, &error), -EPERM);
	assert_int_equal(rbk_tenant(rbk, &tenant), -EOPNOTSUPP);
	assert_int_equal(rbk_stats_map(rbk, RBK_STATS_ALL, 0, &view, &error), 0);
	rbk_stats_unmap(&view);
	rbk_disconnect(rbk);

	/* On the clients' socket, root has no administrator's requests either. */
	rbk = broker_connect(&broker, "client");
	assert_int_equal(rbk_features(rbk) & (RBK_FEAT_ADMIN | RBK_FEAT_ADMIN_CHANGE), 0);
	assert_int_equal(rbk_stats_map(rbk, RBK_STATS_ALL, 0, &view, &error), -EPERM);
	assert_int_equal(rbk_force_cpu(rbk, 1, NULL, &error), -EPERM);
	assert_non_null(strstr(error.text, "administrators' socket"));
	assert_int_equal(rbk_admin_log_level(rbk, 7, NULL, &error), -EPERM);
	assert_int_equal(rbk_admin_log_level(rbk, RBK_ASK, NULL, &error), -EPERM);
	rbk_disconnect(rbk);
}

/* --- Sessions --- */

/* Wait for the record of the client named @name. */
static struct rbk_stats_session find_session(const struct rbk_stats_view *view, const char *name)
{
	uint64_t end_ns = harness_now_ns() + harness_slow_ns(10000000000);
	struct rbk_stats_session session;

	for (;;) {
		for (uint32_t i = 0; i < rbk_stats_count(view, RBK_STATS_SECTION_SESSIONS); i++)
			if (harness_stats_copy(view, RBK_STATS_SECTION_SESSIONS, i, &session,
					       sizeof(session)) &&
			    session.number != 0 && strcmp(session.name, name) == 0)
				return session;
		assert_true(harness_now_ns() < end_ns);
		harness_sleep_ms(5);
	}
}

TEST(test_sessions__are_shown)
{
	struct rbk_stats_session session, other;
	struct rbk_stats_view root, own;
	struct rbk_error error = {""};
	struct rbk *admin, *client, *second;
	struct rbk_arena *arena;
	struct rbk_ring *ring;
	uint64_t end_ns;

	START(broker, plain);
	admin = broker_connect_admin(&broker, "admin");
	client = broker_connect(&broker, "cli\033[31ment");
	second = broker_connect(&broker, "second");
	assert_int_equal(rbk_ring_new(client, 8, &ring, &error), 0);
	assert_int_equal(rbk_arena_new(client, 65536, &arena, &error), 0);
	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &root, &error), 0);
	assert_int_equal(rbk_stats_map(client, RBK_STATS_OWN, 0, &own, &error), 0);

	session = find_session(&root, "admin");
	assert_fields(session, (flags, RBK_STATS_SESSION_ADMIN), (tenant, 0));
	/* The broker replaces the escape character in the client's name. */
	session = find_session(&root, "cli?[31ment");
	assert_fields(session, (pid, getpid()), (uid, getuid()));
	assert_string_equal(session.comm, "test-admin-sock"); /* 15 characters */
	assert_fields(session, (n_rings, 1), (n_arenas, 1), (arena_bytes, 65536));
	assert_true(session.tenant != 0);
	other = find_session(&own, "cli?[31ment");
	assert_int_equal(other.number, session.number);
	find_session(&own, "second");
	assert_int_equal(rbk_stats_count(&own, RBK_STATS_SECTION_SESSIONS), 64);

	/* The record of an ended session disappears. */
	rbk_disconnect(second);
	end_ns = harness_now_ns() + harness_slow_ns(10000000000);
	for (bool is_there = true; is_there;) {
		is_there = false;
		for (uint32_t i = 0; i < 8; i++)
			is_there |= harness_stats_copy(&root, RBK_STATS_SECTION_SESSIONS, i,
						       &session, sizeof(session)) &&
				    strcmp(session.name, "second") == 0;
		assert_true(harness_now_ns() < end_ns);
	}
	rbk_stats_unmap(&root);
	rbk_stats_unmap(&own);
	rbk_arena_free(arena);
	rbk_ring_free(ring);
	rbk_disconnect(client);
	rbk_disconnect(admin);
}

/* --- Changes --- */

/* A device that computes nothing, on which the client's tasks run. */
static const char *const with_device[] = {"--gpu=none", "--test-device=2ms", NULL};

static const struct customer_options on_test_device = {.has_test_device = true};

/* Device time and latencies are counted by session, not by tenant. */
TEST(test_sessions__what_tasks_took)
{
	struct rbk_stats_session busy = {.p50_ns = 0}, idle;
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000);
	struct rbk_error error = {""};
	struct rbk_stats_view root;
	struct rbk *admin, *client;
	struct customer customer;

	START(broker, with_device);
	admin = broker_connect_admin(&broker, "admin");
	client = broker_connect(&broker, "idle");
	customer_init(&customer, &broker, &on_test_device);
	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &root, &error), 0);
	while (busy.p50_ns == 0 || busy.gpu_ns < 16000000) {
		assert_true(harness_now_ns() < end_ns);
		for (unsigned int i = 0; i < 8; i++)
			customer_put(&customer, 8, RBK_STRATEGY_PREFER_GPU);
		customer_drain(&customer);
		busy = find_session(&root, "customer");
	}
	/* Each task takes the device 2 ms; the last tasks also wait for earlier ones. */
	assert_in_range(busy.p50_ns, 2000000, harness_slow_ns(1000000000));
	assert_in_range(busy.p99_ns, busy.p50_ns, harness_slow_ns(2000000000));
	assert_in_range(busy.gpu_ns, 16000000, busy.n_gpu_tasks * harness_slow_ns(100000000));
	idle = find_session(&root, "idle");
	assert_int_equal(idle.p50_ns | idle.p99_ns | idle.gpu_ns | idle.memory_used, 0);
	rbk_stats_unmap(&root);
	customer_deinit(&customer);
	rbk_disconnect(client);
	rbk_disconnect(admin);
}

static struct rbk_stats_device device_of(const struct rbk_stats_view *root, uint32_t index)
{
	struct rbk_stats_device device;

	assert_true(harness_stats_copy(root, RBK_STATS_SECTION_DEVICES, index, &device,
				       sizeof(device)));
	return device;
}

/* Wait until the flags of the first tenant's record, masked by @mask, equal @flags. */
static void wait_tenant(const struct rbk_stats_view *root, uint32_t mask, uint32_t flags)
{
	uint64_t end_ns = harness_now_ns() + harness_slow_ns(10000000000);

	while ((harness_tenant(root).flags & mask) != flags) {
		assert_true(harness_now_ns() < end_ns);
		harness_sleep_ms(5);
	}
}

TEST(test_set)
{
	const struct broker_options options = {
		.args = plain,
		.policy = "[tenant default]\nsessions-max = 4\nweight = 50\n",
	};
	struct rbk_stats_view root;
	struct rbk_error error = {""};
	struct rbk_admin_limit limit;
	struct rbk_tenant about;
	struct rbk *admin, *client;
	uint32_t number;

	BROKER(broker, &options);
	admin = broker_connect_admin(&broker, "admin");
	client = broker_connect(&broker, "client");
	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &root, &error), 0);
	number = harness_tenant(&root).number;

	assert_int_equal(rbk_admin_set(admin, number, "sessions-max", "7", &error), 0);
	assert_int_equal(rbk_tenant(client, &about), 0);
	assert_int_equal(about.sessions.max, 7);
	assert_int_equal(rbk_admin_set(admin, number, "\nweigh", "80", &error), -EINVAL);
	assert_non_null(strstr(error.text, "?weigh: "));
	assert_int_equal(rbk_admin_set(admin, number, "weight", "80", &error), 0);
	assert_string_equal(error.text, "");
	/* The page shows the change at once. */
	assert_int_equal(harness_tenant(&root).weight, 80);
	assert_true(harness_tenant(&root).flags & RBK_STATS_TENANT_CHANGED);
	assert_true(broker_log_has(&broker, "tenant default: sessions-max is 7, as uid"));

	/* A value above what the machine has is accepted with a note. */
	assert_int_equal(rbk_admin_set(admin, number, "host-max", "1000TiB", &error), 0);
	assert_non_null(strstr(error.text, "above the "));
	assert_int_equal(rbk_admin_set(admin, number, "host-max", "default", &error), 0);

	for (uint32_t i = 0, n = 1; i < n; i++) {
		assert_int_equal(rbk_admin_limit(admin, number, i, &limit, &error), 0);
		n = limit.n_limits;
		if (strcmp(limit.key, "weight") != 0)
			continue;
		assert_string_equal(limit.value, "80");
		assert_string_equal(limit.policy_value, "50");
		assert_int_equal(limit.is_changed, 1);
	}
	assert_true(limit.n_limits > 10);
	assert_int_equal(rbk_admin_limit(admin, number, limit.n_limits, &limit, &error), -ENOENT);
	assert_int_equal(rbk_admin_limit(admin, 4711, 0, &limit, &error), -ENOENT);
	assert_int_equal(rbk_admin_limit(client, number, 0, &limit, &error), -EPERM);

	/* The message equals that for the policy file. */
	assert_int_equal(rbk_admin_set(admin, number, "vram-max", "5x", &error), -EINVAL);
	assert_string_equal(
		error.text,
		"vram-max: '5x' is not a size; expected bytes, KiB, MiB, GiB, TiB or 0% to 100%, "
		"such as 512MiB or 25%");
	assert_int_equal(rbk_admin_set(admin, number, "match-uid", "0", &error), -EINVAL);
	assert_non_null(strstr(error.text, "cannot be changed"));
	assert_int_equal(rbk_admin_set(admin, number, "no-such-key", "0", &error), -EINVAL);
	assert_non_null(strstr(error.text, "no such key"));
	assert_int_equal(rbk_admin_set(admin, number, "no-such-key", "default", &error), -EINVAL);
	assert_int_equal(rbk_admin_set(admin, number, "weight", "0", &error), -EINVAL);
	assert_int_equal(rbk_admin_set(admin, number, "vram-high", "20%", &error), 0);
	assert_int_equal(rbk_admin_set(admin, number, "vram-reserve", "30%", &error), -EINVAL);
	assert_non_null(strstr(error.text, "vram-reserve"));
	assert_int_equal(rbk_admin_set(admin, 4711, "weight", "1", &error), -ENOENT);
	assert_int_equal(
		rbk_admin_set(admin, number, "weight-that-is-much-too-long-for-a-key", "1", &error),
		-EINVAL);

	/*
	 * A reload keeps an administrator's change unless the file's own value of that key has
	 * changed.
	 */
	broker_write_policy(&broker, "[tenant default]\nsessions-max = 4\nweight = 60\n");
	broker_reload(&broker, "again");
	assert_int_equal(rbk_tenant(client, &about), 0);
	assert_int_equal(about.sessions.max, 7);
	for (uint64_t end_ns = harness_now_ns() + harness_slow_ns(10000000000);
	     harness_tenant(&root).weight != 60;)
		assert_true(harness_now_ns() < end_ns);
	assert_int_equal(rbk_admin_set(admin, number, "sessions-max", "default", &error), 0);
	assert_int_equal(rbk_admin_set(admin, number, "vram-high", "default", &error), 0);
	assert_int_equal(rbk_tenant(client, &about), 0);
	assert_int_equal(about.sessions.max, 4);
	wait_tenant(&root, RBK_STATS_TENANT_CHANGED, 0);
	rbk_stats_unmap(&root);
	rbk_disconnect(client);
	rbk_disconnect(admin);
}

TEST(test_drain__tenant)
{
	struct rbk_admin_drained drained = {0};
	struct customer customer;
	struct rbk_stats_view root, own;
	struct rbk_error error = {""};
	struct rbk_arena *arena;
	struct rbk_ring *ring;
	struct rbk *admin, *other;
	uint32_t number;

	START(broker, with_device);
	admin = broker_connect_admin(&broker, "admin");
	customer_init(&customer, &broker, &on_test_device);
	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &root, &error), 0);
	number = harness_tenant(&root).number;
	assert_int_equal(rbk_admin_drain_tenant(admin, number, RBK_DRAIN_ASK, &drained, &error), 0);
	assert_int_equal(drained.is_drained, 0);

	/* Admitted tasks complete. Those that a busy broker has not looked at wait as new ones do.
	 */
	for (unsigned int i = 0; i < 8; i++)
		customer_put(&customer, 8, RBK_STRATEGY_PREFER_GPU);
	customer_take(&customer);
	assert_int_equal(rbk_admin_drain_tenant(admin, number, RBK_DRAIN_BEGIN, &drained, &error),
			 0);
	assert_int_equal(drained.is_drained, 1);
	do
		assert_int_equal(
			rbk_admin_drain_tenant(admin, number, RBK_DRAIN_ASK, &drained, &error), 0);
	while (drained.n_tasks > 0);
	while (customer_has(&customer))
		customer_take(&customer);
	wait_tenant(&root, RBK_STATS_TENANT_DRAINED, RBK_STATS_TENANT_DRAINED);

	/* New tasks wait, and a new session may only read; also after a reload of the policy. */
	for (unsigned int i = 0; i < 5; i++)
		customer_put(&customer, 8, RBK_STRATEGY_ONLY_CPU);
	other = broker_connect(&broker, "late");
	assert_int_equal(rbk_stats_map(other, RBK_STATS_OWN, 0, &own, &error), 0);
	assert_true(harness_tenant(&own).flags & RBK_STATS_TENANT_DRAINED);
	rbk_stats_unmap(&own);
	assert_int_equal(rbk_ring_new(other, 8, &ring, &error), -EBUSY);
	assert_non_null(strstr(error.text, "drains this tenant"));
	assert_int_equal(rbk_arena_new(other, 4096, &arena, &error), -EBUSY);
	assert_int_equal(kill(broker.pid, SIGHUP), 0);
	harness_sleep_ms(100);
	assert_false(customer_has(&customer));
	assert_int_equal(rbk_admin_drain_tenant(admin, number, RBK_DRAIN_ASK, &drained, &error), 0);
	assert_fields(drained, (is_drained, 1), (n_tasks, 0));

	assert_int_equal(rbk_admin_drain_tenant(admin, number, RBK_DRAIN_END, &drained, &error), 0);
	assert_int_equal(drained.is_drained, 0);
	customer_drain(&customer);
	assert_fields(customer, (n_errors, 0), (n_done, 13));
	assert_int_equal(rbk_ring_new(other, 8, &ring, &error), 0);
	rbk_disconnect(other);

	/* A client, and the broker, may end while the tenant is drained. */
	assert_int_equal(rbk_admin_drain_tenant(admin, number, RBK_DRAIN_BEGIN, NULL, &error), 0);
	customer_put(&customer, 8, RBK_STRATEGY_ONLY_CPU);
	harness_sleep_ms(20);
	customer_deinit(&customer);
	assert_int_equal(rbk_admin_drain_tenant(admin, 4711, RBK_DRAIN_BEGIN, NULL, &error),
			 -ENOENT);
	rbk_stats_unmap(&root);
	rbk_disconnect(admin);
}

/* While the only GPU is drained, tasks use the CPU if they may, and are rejected if not. */
TEST(test_drain__device)
{
	struct rbk_admin_drained drained = {0};
	struct customer customer;
	struct rbk_stats_view root;
	struct rbk_error error = {""};
	struct rbk_cqe cqe;
	struct rbk *admin;
	unsigned int n_moved = 0;

	START(broker, with_device);
	admin = broker_connect_admin(&broker, "admin");
	customer_init(&customer, &broker, &on_test_device);
	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &root, &error), 0);
	assert_int_equal(rbk_admin_drain_device(admin, 0, RBK_DRAIN_BEGIN, NULL, &error), -EINVAL);
	assert_int_equal(rbk_admin_drain_device(admin, 2, RBK_DRAIN_BEGIN, NULL, &error), -ENOENT);

	for (unsigned int i = 0; i < 40; i++)
		customer_put(&customer, 8, RBK_STRATEGY_PREFER_GPU);
	customer_take(&customer);
	assert_int_equal(rbk_admin_drain_device(admin, 1, RBK_DRAIN_BEGIN, &drained, &error), 0);
	assert_int_equal(drained.is_drained, 1);
	while (customer_in_flight(&customer) > 0) {
		cqe = customer_take(&customer);
		n_moved += cqe.device == RBK_DEVICE_CPU;
	}
	assert_int_equal(customer.n_errors, 0);
	assert_true(n_moved > 0);
	assert_int_equal(rbk_admin_drain_device(admin, 1, RBK_DRAIN_ASK, &drained, &error), 0);
	assert_fields(drained, (n_tasks, 0), (device_bytes, 0));

	cqe = customer_run(&customer, 8, RBK_STRATEGY_PREFER_GPU);
	assert_fields(cqe, (device, RBK_DEVICE_CPU), (reason, RBK_REASON_GPU_UNAVAILABLE));
	cqe = customer_run(&customer, 8, RBK_STRATEGY_DEVICE(1));
	assert_fields(cqe, (device, RBK_DEVICE_CPU), (reason, RBK_REASON_GPU_UNAVAILABLE));
	customer_put(&customer, 8, RBK_STRATEGY_ONLY_GPU);
	cqe = customer_take(&customer);
	assert_fields(cqe, (res, -ENODEV), (reason, RBK_REASON_GPU_UNAVAILABLE));
	for (uint64_t end_ns = harness_now_ns() + harness_slow_ns(10000000000);
	     !(device_of(&root, 1).flags & RBK_STATS_DEVICE_DRAINED);)
		assert_true(harness_now_ns() < end_ns);

	assert_int_equal(rbk_admin_drain_device(admin, 1, RBK_DRAIN_END, &drained, &error), 0);
	cqe = customer_run(&customer, 8, RBK_STRATEGY_PREFER_GPU);
	assert_int_equal(cqe.device, 1);
	/* The broker may end while the device is drained. */
	assert_int_equal(rbk_admin_drain_device(admin, 1, RBK_DRAIN_BEGIN, NULL, &error), 0);
	rbk_stats_unmap(&root);
	customer_deinit(&customer);
	rbk_disconnect(admin);
}

/* Evicted memory is freed, and the next task that needs the plan loads it again. */
TEST(test_memory__evict_and_drain)
{
	static const char *const software[] = {"--gpu=software", NULL};
	static const struct customer_options constant = {.has_constant = true};
	struct rbk_admin_evict evict = {.device = RBK_DEVICE_NONE};
	struct rbk_admin_drained drained = {0};
	uint64_t n = 7, bytes = 7, end_ns;
	struct rbk_stats_view root;
	struct rbk_error error = {""};
	struct customer customer;
	struct broker broker;
	struct rbk *admin;

	start(&broker, software);
	admin = broker_connect_admin(&broker, "admin");
	if (!broker_has_gpu(admin)) {
		print_message("no software Vulkan device here\n");
		rbk_disconnect(admin);
		broker_stop(&broker);
		skip();
	}
	customer_init(&customer, &broker, &constant);
	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &root, &error), 0);
	assert_int_equal(customer_run(&customer, 8, RBK_STRATEGY_PREFER_GPU).device, 1);
	evict.tenant = harness_tenant(&root).number;
	assert_int_equal(rbk_admin_evict(admin, &evict, &n, &bytes, &error), 0);
	assert_int_equal(n, 1);
	assert_true(bytes > 0);
	/*
	 * A second request finds nothing to evict. Tasks that prefer the GPU have the plan loaded
	 * again.
	 */
	assert_int_equal(rbk_admin_evict(admin, &evict, &n, &bytes, &error), 0);
	assert_int_equal(n, 0);
	end_ns = harness_now_ns() + harness_slow_ns(20000000000);
	while (customer_run(&customer, 8, RBK_STRATEGY_PREFER_GPU).device != 1)
		assert_true(harness_now_ns() < end_ns);

	assert_int_equal(rbk_admin_drain_device(admin, 1, RBK_DRAIN_BEGIN, &drained, &error), 0);
	end_ns = harness_now_ns() + harness_slow_ns(20000000000);
	while (drained.device_bytes > 0 || drained.n_tasks > 0) {
		assert_true(harness_now_ns() < end_ns);
		harness_sleep_ms(2);
		assert_int_equal(rbk_admin_drain_device(admin, 1, RBK_DRAIN_ASK, &drained, &error),
				 0);
	}
	assert_int_equal(customer_run(&customer, 8, RBK_STRATEGY_PREFER_GPU).reason,
			 RBK_REASON_GPU_UNAVAILABLE);
	assert_int_equal(rbk_admin_drain_device(admin, 1, RBK_DRAIN_END, NULL, &error), 0);
	end_ns = harness_now_ns() + harness_slow_ns(20000000000);
	while (customer_run(&customer, 8, RBK_STRATEGY_PREFER_GPU).device != 1)
		assert_true(harness_now_ns() < end_ns);

	evict.device = 5;
	assert_int_equal(rbk_admin_evict(admin, &evict, &n, &bytes, &error), -EINVAL);
	evict = (struct rbk_admin_evict){.tenant = 4711, .device = RBK_DEVICE_NONE};
	assert_int_equal(rbk_admin_evict(admin, &evict, &n, &bytes, &error), -ENOENT);
	evict = (struct rbk_admin_evict){
		.tenant = harness_tenant(&root).number,
		.session = 4711,
		.plan_id = 1,
		.device = RBK_DEVICE_NONE,
	};
	assert_int_equal(rbk_admin_evict(admin, &evict, &n, &bytes, &error), -ENOENT);
	rbk_stats_unmap(&root);
	customer_deinit(&customer);
	rbk_disconnect(admin);
	broker_stop(&broker);
}

TEST(test_settings)
{
	struct rbk_operator operators[256];
	struct rbk_error error = {""};
	struct rbk *admin, *client;
	unsigned int n = 0, few = 0;
	int level = 0;

	START(broker, plain);
	admin = broker_connect_admin(&broker, "admin");
	client = broker_connect(&broker, "client");
	assert_int_equal(rbk_admin_log_level(admin, RBK_ASK, &level, &error), 0);
	assert_int_equal(level, 6);
	assert_int_equal(rbk_admin_log_level(admin, 7, &level, &error), 0);
	assert_int_equal(level, 7);
	assert_int_equal(rbk_admin_log_level(admin, 5, &level, &error), -EINVAL);
	assert_int_equal(rbk_admin_log_level(admin, 99, &level, &error), -EINVAL);
	assert_int_equal(rbk_admin_log_level(admin, 4, &level, &error), 0);
	assert_true(broker_log_has(&broker, "the log level becomes debug, as uid"));
	/* The change is logged whether the level rises or falls. */
	assert_true(broker_log_has(&broker, "the log level becomes warning, as uid"));
	assert_int_equal(rbk_admin_log_level(admin, 6, &level, &error), 0);
	assert_true(broker_log_has(&broker, "the log level becomes info, as uid"));

	assert_int_equal(rbk_catalogue(admin, operators, 256, &n), 0);
	assert_true(n > 5 && n < 256);
	assert_int_equal(rbk_catalogue(client, operators, 2, &few), 0);
	assert_int_equal(few, n);
	assert_string_equal(operators[0].name, "MatMul");
	assert_fields(operators[0], (opset, 13),
		      (types[RBK_DEVICE_CPU],
		       1u << RBK_DTYPE_F32 | 1u << RBK_DTYPE_F16 | 1u << RBK_DTYPE_F64));
	assert_int_equal(rbk_catalogue(client, NULL, 0, &few), 0);
	rbk_disconnect(client);
	rbk_disconnect(admin);
}

/* --- Hostile administrators --- */

static int raw_admin(const struct broker *broker)
{
	struct broker other = *broker;
	struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.features = UINT64_MAX,
		.name = "hostile",
	};
	struct rbk_wire_welcome welcome;
	int fd;

	memcpy(other.socket_path, broker->admin_path, sizeof(other.socket_path));
	fd = raw_connect(&other);
	raw_ask(fd, &hello, sizeof(hello), NULL, 0, &welcome, sizeof(welcome));
	assert_true(welcome.features & RBK_FEAT_ADMIN_CHANGE);
	return fd;
}

static void expect_hostile(const struct broker *broker, const void *request, size_t bytes)
{
	int fd = raw_admin(broker);

	assert_true(raw_send(fd, request, bytes, NULL, 0) > 0);
	raw_expect_closed(fd);
	close(fd);
}

TEST(test_hostile__form)
{
	struct rbk_wire_admin_set set = {.request = {.type = RBK_WIRE_ADMIN_SET}, .tenant = 1};
	struct rbk_wire_admin_evict evict = {.request = {.type = RBK_WIRE_ADMIN_EVICT}};
	struct rbk_wire_admin_drain drain = {
		.request = {.type = RBK_WIRE_ADMIN_DRAIN},
		.what = RBK_WIRE_DRAIN_DEVICE,
		.number = 1,
	};
	struct rbk_wire_request catalogue = {.type = RBK_WIRE_CATALOGUE};

	START(broker, plain);
	expect_hostile(&broker, &set, sizeof(set) - 1);
	expect_hostile(&broker, &set, sizeof(set.request));
	set.reserved = 1;
	expect_hostile(&broker, &set, sizeof(set));
	set.reserved = 0;
	memset(set.key, 'k', sizeof(set.key));
	expect_hostile(&broker, &set, sizeof(set));
	set.key[1] = '\0';
	memset(set.value, 'v', sizeof(set.value));
	expect_hostile(&broker, &set, sizeof(set));
	evict.plan_id = 3;
	expect_hostile(&broker, &evict, sizeof(evict));
	evict.plan_id = 0;
	evict.session = 3;
	expect_hostile(&broker, &evict, sizeof(evict));
	drain.what = 3;
	expect_hostile(&broker, &drain, sizeof(drain));
	drain.what = RBK_WIRE_DRAIN_DEVICE;
	drain.action = 3;
	expect_hostile(&broker, &drain, sizeof(drain));
	expect_hostile(&broker, &catalogue, sizeof(catalogue) - 1);
	assert_int_equal(expect_changing(&broker), 0);
}

/* Send requests at full speed, and close the connection in the middle; other clients are served. */
TEST(test_hostile__many)
{
	/* Replies to a batch of this size fit into the socket. */
	enum { BATCH = 50 };
	struct rbk_wire_admin_drain drain = {
		.request = {.type = RBK_WIRE_ADMIN_DRAIN},
		.what = RBK_WIRE_DRAIN_TENANT,
		.number = 1,
		.action = RBK_WIRE_DRAIN_ASK,
	};
	struct rbk_wire_admin_set set = {.request = {.type = RBK_WIRE_ADMIN_SET}, .tenant = 1};
	struct rbk_wire_admin_result result;
	uint64_t n = test_scaled(10000);
	int fd;

	START(broker, plain);
	rbk_disconnect(broker_connect(&broker, "tenant"));
	fd = raw_admin(&broker);
	strcpy(set.key, "weight");
	for (uint64_t i = 0; i < n; i += BATCH) {
		for (unsigned int k = 0; k < BATCH; k++) {
			snprintf(set.value, sizeof(set.value), "%u",
				 (unsigned int)((i + k) % 10000 + 1));
			assert_true(raw_send(fd, k % 2 ? (void *)&set : (void *)&drain,
					     k % 2 ? sizeof(set) : sizeof(drain), NULL, 0) > 0);
		}
		for (unsigned int k = 0; k < BATCH; k++) {
			unsigned int n_fds = 0;

			assert_true(raw_receive(fd, &result, sizeof(result), NULL, &n_fds, 20000) >=
				    (ssize_t)sizeof(result.reply));
			assert_int_equal(result.reply.res, 0);
		}
	}
	/* Replies that the client does not read end its session, not the broker. */
	while (raw_send(fd, &drain, sizeof(drain), NULL, 0) > 0)
		;
	close(fd);
	fd = raw_admin(&broker);
	assert_true(raw_send(fd, &set, sizeof(set), NULL, 0) > 0);
	close(fd);
	assert_int_equal(expect_changing(&broker), 0);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(120))
