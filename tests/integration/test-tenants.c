/* SPDX-License-Identifier: MIT */
/*
 * Tenants with real brokers: matching, limits and their errors, and policies checked and reloaded
 *
 * A client learns its tenant from an error: no tenant here may have a plan, and the rejection names
 * the tenant.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "support/test.h"

enum { TEXT_BYTES = 4096 };

static int plan_new(struct rbk *rbk, struct rbk_plan **ret, struct rbk_error *error)
{
	return plan_elements(rbk, "Relu", 1, 16, 16, ret, error);
}

/* Return the name of a session's tenant, which may have no plans. */
static void tenant_of(struct rbk *rbk, char name[64])
{
	struct rbk_error error = {""};
	struct rbk_plan *plan = NULL;

	assert_int_equal(plan_new(rbk, &plan, &error), -EDQUOT);
	if (sscanf(error.text, "no room for the plan: tenant %63s may have 0 plans (plans-max)",
		   name) != 1)
		fail_msg("%s", error.text);
}

static void expect_tenant(const struct broker *broker, const char *expected)
{
	struct rbk *rbk = broker_connect(broker, "who");
	char name[64];

	tenant_of(rbk, name);
	assert_string_equal(name, expected);
	rbk_disconnect(rbk);
}

/* ---- --check-config ---- */

struct check {
	char dir[64];
	char path[96];
	char text[TEXT_BYTES];
	int status;
};

static void check_init(struct check *check)
{
	*check = (struct check){.dir = "/tmp/rbk-check-XXXXXX"};
	assert_non_null(mkdtemp(check->dir));
	assert_int_equal(chdir(check->dir), 0);
	strcpy(check->path, "b.conf");
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* Run brokerd --check-config in its folder; store its output and its exit status. */
static void check_run(struct check *check)
{
	const char *program = getenv("BROKERD");
	size_t used = 0;
	int ends[2];
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		execl(program ? program : BROKERD_PATH, "brokerd", "--config", check->path,
		      "--check-config", (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	while ((n = read(ends[0], check->text + used, sizeof(check->text) - 1 - used)) > 0)
		used += (size_t)n;
	check->text[used] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(pid, &check->status, 0), pid);
	assert_true(WIFEXITED(check->status));
	check->status = WEXITSTATUS(check->status);
}

static void expect_errors(struct check *check, const char *text)
{
	check_run(check);
	assert_string_equal(check->text, text);
	assert_int_equal(check->status, 1);
}

static void check_deinit(struct check *check)
{
	assert_int_equal(chdir("/tmp"), 0);
	rmdir(check->dir);
}

#define CHECK(name) SCOPED(check, name, check_init, check_deinit)

TEST(test_check__right)
{
	CHECK(check);
	write_file(check.path, "[broker]\nvram-headroom = 7.5%\nsocket = /nowhere/at/all/sock\n"
			       "[tenant web]\nmatch-uid = 0, 33\nvram-max = 2GiB\n"
			       "host-max = 1 GiB\narena-bytes-max = 64K\n");
	check_run(&check);
	assert_int_equal(check.status, 0);
	/* The file that was read comes first, and nothing is odd. */
	assert_ptr_equal(strstr(check.text, "file: b.conf\nbroker: "), check.text);
	assert_non_null(strstr(check.text, "broker: vram-headroom = 7.5%\n"));
	assert_non_null(strstr(check.text, "broker: socket = /nowhere/at/all/sock\n"));
	assert_non_null(strstr(check.text, "\nplacement: threshold = 1MiB; min-count = 64; "));
	assert_non_null(strstr(check.text, "\ntenant default: vram-max = 100%; "));
	assert_non_null(strstr(check.text, "\ntenant web: match-uid = 0, 33; vram-max = "
					   "2GiB; vram-reserve = 0%; vram-high = "
					   "2GiB; gtt-max = 50%; host-max = 1GiB; "
					   "weight = 100; priority-max = urgent; sessions-max = "
					   "16384; arenas-max = 65536; arena-bytes-max = 64KiB; "
					   "plans-max = 65536; tasks-max = 4194304\n"));
	unlink(check.path);
}

/* A tenant's default host-max is less than the host-max of all tenants together. */
TEST(test_check__default_host_max)
{
	CHECK(check);
	write_file(check.path, "[broker]\nhost-max = 4GiB\n[tenant batch]\nmatch-uid = 33\n"
			       "host-max = 25%\n");
	check_run(&check);
	assert_int_equal(check.status, 0);
	assert_non_null(strstr(check.text, "; host-max = 3GiB; "));
	assert_non_null(strstr(check.text, "; host-max = 1GiB; "));
	unlink(check.path);
}

/* Warnings name settings that are allowed but probably not meant; the policy is still valid. */
TEST(test_check__odd)
{
	CHECK(check);
	write_file(check.path, "[broker]\nvram-headroom = 1.5G ; a comment\ncache = /x#y\n"
			       "[tenant a]\nmatch-uid = 1, 2\n"
			       "[tenant b]\nmatch-uid = 3\nmatch-gid = 1\n"
			       "[tenant c]\nmatch-exe = /usr/bin/x # half\n"
			       "[tenant d]\nmatch-uid = 4, 2\nmatch-cgroup = /d/*\n"
			       "[tenant e]\nmatch-uid = 4, 2\n");
	check_run(&check);
	assert_int_equal(check.status, 0);
	assert_ptr_equal(
		strstr(check.text,
		       "b.conf:10: match-exe: '# half' is part of the value; a comment has "
		       "a line of its own\n"
		       "b.conf:14: tenant e has the same match as tenant a at b.conf:4; "
		       "clients that match both are the earlier one's\n"
		       "file: b.conf\n"),
		check.text);
	assert_non_null(strstr(check.text, "broker: vram-headroom = 1.5GiB\n"));
	/* A comment that makes a value wrong is named, too. */
	write_file(check.path, "[tenant a]\nmatch-uid = 1\nvram-max = 1G # half\n");
	expect_errors(&check,
		      "b.conf:3: vram-max: '1G # half' is not a size; expected bytes, KiB, MiB, "
		      "GiB, TiB or 0% to 100%, such as 512MiB or 25%\n"
		      "b.conf:3: vram-max: '# half' is part of the value; a comment has a line of "
		      "its own\n");
	unlink(check.path);
}

TEST(test_check__example)
{
	CHECK(check);
	snprintf(check.path, sizeof(check.path), "example.conf");
	assert_int_equal(symlink(EXAMPLE_PATH, check.path), 0);
	check_run(&check);
	assert_int_equal(check.status, 0);
	assert_non_null(strstr(check.text, "\ntenant llm: match-cgroup = "));
	assert_non_null(strstr(check.text, "\ntenant batch: match-cgroup = "));
	unlink(check.path);
}

TEST(test_check__wrong)
{
	CHECK(check);
	expect_errors(&check, "b.conf: cannot be opened: No such file or directory\n");
	write_file(check.path, "[broker]\ngpu = purple\nfast = 1\n\n[tenant web]\n"
			       "match-uid = no-such-user\nvram-max = much\n");
	expect_errors(&check,
		      "b.conf:2: gpu: 'purple' is not allowed; auto, software, software:2, any or "
		      "none is\n"
		      "b.conf:3: fast: [broker] has no such key; brokerd.conf(5) lists the keys\n"
		      "b.conf:6: match-uid: there is no user 'no-such-user'; expected a user of "
		      "this system, by name or number\n"
		      "b.conf:7: vram-max: 'much' is not a size; expected bytes, KiB, MiB, GiB, "
		      "TiB or 0% to 100%, such as 512MiB or 25%\n");
	/* The reserve fits no device that the broker may use, because some memory is headroom. */
	write_file(check.path, "[broker]\ndevice-memory = 1GiB\n"
			       "[tenant web]\nmatch-uid = 33\nvram-reserve = 1000MiB\n");
	expect_errors(&check, "b.conf:5: vram-reserve: with tenant web, 1 tenant reserves "
			      "1000 MiB of device 1, which has 1 GiB; at most 972.8 MiB may be "
			      "reserved, the rest is vram-headroom\n");
	unlink(check.path);
}

/* Control characters in a file, which could steer the terminal, are not printed. */
TEST(test_check__controls)
{
	CHECK(check);
	write_file(check.path, "[broker]\ngpu = \xc2\x9b"
			       "31m\n\xc2\x9d"
			       "0 = 1\n");
	expect_errors(&check,
		      "b.conf:2: gpu: '??31m' is not allowed; auto, software, software:2, any or "
		      "none is\n"
		      "b.conf:3: ??0: [broker] has no such key; brokerd.conf(5) lists the keys\n");
	write_file(check.path, "[broker]\nsocket = /\xc2\x9b"
			       "31m/\xc3\xa9\n"
			       "[tenant web]\nmatch-exe = /\xe2\x80\xae"
			       "x\n");
	check_run(&check);
	assert_int_equal(check.status, 0);
	assert_non_null(strstr(check.text, "broker: socket = /??31m/\xc3\xa9\n"));
	assert_non_null(strstr(check.text, "tenant web: match-exe = /???x; "));
	unlink(check.path);
}

TEST(test_check__drop_ins)
{
	static const char *const names[] = {"tenants.d/10-a.conf", "tenants.d/20-b.conf",
					    "tenants.d/30-c.conf", "tenants.d/ignored.txt",
					    "tenants.d/.hidden.conf"};

	CHECK(check);
	write_file(check.path, "");
	assert_int_equal(mkdir("tenants.d", 0700), 0);
	write_file(names[0], "[tenant a]\nmatch-uid = 1\n");
	write_file(names[1], "[tenant b]\nmatch-uid = 2\n");
	/* Masked by a link to /dev/null, like a systemd unit. */
	assert_int_equal(symlink("/dev/null", names[2]), 0);
	write_file(names[3], "nonsense");
	write_file(names[4], "nonsense");
	check_run(&check);
	assert_int_equal(check.status, 0);
	assert_ptr_equal(strstr(check.text, "file: b.conf\nfile: tenants.d/10-a.conf\n"
					    "file: tenants.d/20-b.conf\nbroker: "),
			 check.text);
	assert_non_null(strstr(check.text, "\ntenant a: match-uid = 1; "));
	assert_true(strstr(check.text, "\ntenant b: ") > strstr(check.text, "\ntenant a: "));

	write_file(names[0], "[tenant b]\nmatch-uid = 1\n");
	write_file(names[1], "[broker]\n[tenant b]\nmatch-uid = 2\n");
	assert_int_equal(unlink(names[2]), 0);
	assert_int_equal(symlink("nowhere", names[2]), 0);
	expect_errors(&check,
		      "tenants.d/20-b.conf:1: section [broker] belongs in the main file; this file "
		      "may only have sections [tenant NAME]\n"
		      "tenants.d/20-b.conf:2: tenant b has a section at tenants.d/10-a.conf:1 "
		      "already; each tenant has one section\n"
		      "tenants.d/30-c.conf: cannot be opened: No such file or directory\n");
	write_file(names[1], "");
	assert_int_equal(unlink(names[2]), 0);
	assert_int_equal(mkdir(names[2], 0700), 0);
	expect_errors(&check,
		      "tenants.d/30-c.conf: is not a file; expected a file or a link to a file\n");
	rmdir(names[2]);
	/* The check does not wait for a FIFO without a writer. */
	assert_int_equal(mkfifo(names[2], 0600), 0);
	expect_errors(&check,
		      "tenants.d/30-c.conf: is not a file; expected a file or a link to a file\n");
	for (unsigned int i = 0; i < sizeof(names) / sizeof(*names); i++)
		unlink(names[i]);
	rmdir("tenants.d");
	write_file("tenants.d", "");
	expect_errors(&check, "tenants.d: cannot be read: Not a directory\n");
	unlink("tenants.d");
	unlink(check.path);
}

/* The broker prints the same errors, and does not start. */
TEST(test_start__bad_policy)
{
	const struct broker_options options = {.policy = "[tenant web]\nvram-max = 1\n"};
	struct broker broker;
	int status = 0;

	assert_false(broker_try_start(&broker, &options, &status));
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 2);
	assert_true(broker_log_has(&broker, "/brokerd.conf:1: tenant web matches no client; "));
	assert_true(broker_log_has(&broker, "cannot start with this policy"));
	broker_remove(&broker);
}

/* Keys of [broker] are options; the command line overrides them. */
TEST(test_start__options_from_file)
{
	const struct broker_options options = {
		.policy = "[broker]\nworkers = 1\ngpu = none\nsocket = /nowhere/at/all\n"
			  "log-level = debug\n",
		.args = (const char *const[]){"--workers=2", NULL}};

	BROKER(broker, &options);
	assert_true(broker_log_has(&broker, "CPU, 2 workers"));
	rbk_disconnect(broker_connect(&broker, "shows up in the log"));
	assert_true(broker_log_has(&broker, "tenant default"));
}

/* ---- Matching ---- */

/* Run a client with other groups, then as another user. Return: its tenant. */
static void tenant_as(const struct broker *broker, uid_t uid, gid_t gid, gid_t extra, char name[64])
{
	int ends[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct rbk_options options = {
			.size = sizeof(options),
			.socket_path = broker->socket_path,
			.timeout_ns = 60000000000,
		};
		struct rbk_error error = {""};
		struct rbk_plan *plan;
		struct rbk *rbk;

		if (setgroups(1, &extra) < 0 || setgid(gid) < 0 || setuid(uid) < 0)
			_exit(1);
		if (rbk_connect(&options, &rbk, &error) == 0)
			plan_new(rbk, &plan, &error);
		_exit(write(ends[1], error.text, strlen(error.text)) < 0);
	}
	close(ends[1]);
	{
		char text[512] = "";

		n = read(ends[0], text, sizeof(text) - 1);
		assert_true(n > 0);
		if (sscanf(text, "no room for the plan: tenant %63s may", name) != 1)
			fail_msg("%s", text);
	}
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(test_match__users_and_groups)
{
	static const struct {
		uid_t uid;
		gid_t gid, extra;
		const char *tenant;
	} cases[] = {
		{40001, 50000, 50000, "user"},
		{40002, 50000, 50000, "user"},
		{40003, 50001, 50000, "group"},
		{40003, 50000, 50001, "group"}, /* supplementary */
		{40001, 50001, 50000, "both"},
		{40002, 50000, 50001, "user"},
		{40001, 50000, 50002, "user"}, /* a user match beats a group match */
		{40003, 50000, 50000, "default"},
	};
	const struct broker_options options = {
		.policy = "[tenant default]\nplans-max = 0\n"
			  "[tenant user]\nmatch-uid = 40001, \\\n 40002\nplans-max = 0\n"
			  "[tenant group]\nmatch-gid = 50001\nplans-max = 0\n"
			  "[tenant both]\nmatch-uid = 40001\nmatch-gid = 50001\nplans-max = 0\n"
			  "[tenant other]\nmatch-gid = 50002\nplans-max = 0\n",
		.args = (const char *const[]){"--socket-mode=0666", NULL}};
	char name[64];

	if (geteuid() != 0) {
		print_message("only root can be other users: skipped\n");
		skip();
	}
	BROKER(broker, &options);
	assert_int_equal(chmod(broker.dir, 0711), 0);
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const char *expected = cases[i].tenant;

		tenant_as(&broker, cases[i].uid, cases[i].gid, cases[i].extra, name);
		if (strcmp(name, expected) != 0)
			fail_msg("case %u: %s instead of %s", i, name, expected);
	}
}

/* Return this process's path in the unified hierarchy. */
static bool own_cgroup(char *path, size_t bytes)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[1024];
	bool is_found = false;

	while (file && !is_found && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		is_found =
			strncmp(line, "0::/", 4) == 0 && !strchr(line, ',') && strlen(line) < 100;
		if (is_found)
			snprintf(path, bytes, "%s", line + 3);
	}
	if (file)
		fclose(file);
	return is_found;
}

TEST(test_match__cgroup)
{
	struct broker_options options = {0};
	char path[1024], policy[TEXT_BYTES];

	if (!own_cgroup(path, sizeof(path))) {
		print_message("this process is in no unified cgroup hierarchy: skipped\n");
		skip();
	}
	snprintf(policy, sizeof(policy),
		 "[tenant default]\nplans-max = 0\n"
		 "[tenant elsewhere]\nmatch-cgroup = /no-such.slice/**, /**/no-such.service\n"
		 "plans-max = 0\n"
		 "[tenant any]\nmatch-cgroup = /**\nplans-max = 0\n"
		 "[tenant here]\nmatch-cgroup = /no-such.slice, %s\nplans-max = 0\n",
		 path);
	options.policy = policy;
	BROKER(broker, &options);
	/* The exact path has more literal characters, or as many and comes later. */
	expect_tenant(&broker, strlen(path) > 1 ? "here" : "any");
	broker_write_policy(&broker, "[tenant default]\nplans-max = 0\n"
				     "[tenant elsewhere]\nmatch-cgroup = /no-such.slice/**\n");
	broker_reload(&broker, "again: changed");
	expect_tenant(&broker, "default");
}

/* Move into a child cgroup, if cgroup2 is mounted and one can be made. */
TEST(test_match__moved_cgroup)
{
	const struct broker_options options = {
		.policy = "[tenant default]\nplans-max = 0\n"
			  "[tenant moved]\nmatch-cgroup = /**/rbk-test-*\nplans-max = 0\n"};
	char path[2048], procs[2200], own[1024], name[64] = "";
	struct stat status;
	int fd;
	pid_t pid;

	if (!own_cgroup(own, sizeof(own)) || stat("/sys/fs/cgroup/cgroup.procs", &status) < 0) {
		print_message("there is no cgroup2 at /sys/fs/cgroup: skipped\n");
		skip();
	}
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/rbk-test-%d", own, (int)getpid());
	if (mkdir(path, 0755) < 0) {
		print_message("no cgroup can be made: skipped\n");
		skip();
	}
	BROKER(broker, &options);
	expect_tenant(&broker, "default");
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", path);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct rbk *rbk;

		fd = open(procs, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, "0", 1) < 0)
			_exit(77);
		rbk = broker_connect(&broker, "moved");
		tenant_of(rbk, name);
		_exit(strcmp(name, "moved") != 0);
	}
	assert_int_equal(waitpid(pid, &fd, 0), pid);
	rmdir(path);
	assert_true(WIFEXITED(fd) && (WEXITSTATUS(fd) == 0 || WEXITSTATUS(fd) == 77));
}

TEST(test_match__executable)
{
	struct broker_options options = {0};
	char path[1024], policy[TEXT_BYTES];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	assert_true(n > 0);
	path[n] = '\0';
	snprintf(policy, sizeof(policy),
		 "[tenant default]\nplans-max = 0\n"
		 "[tenant other]\nmatch-exe = /bin/true, /no/such/file\nplans-max = 0\n"
		 "[tenant user]\nmatch-uid = %u\nplans-max = 0\n"
		 "[tenant program]\nmatch-exe = %s\nplans-max = 0\n",
		 (unsigned int)getuid(), path);
	options.policy = policy;
	BROKER(broker, &options);
	expect_tenant(&broker, "program");
	snprintf(policy, sizeof(policy),
		 "[tenant default]\nplans-max = 0\n"
		 "[tenant other]\nmatch-exe = /bin/true\nmatch-uid = %u\nplans-max = 0\n",
		 (unsigned int)getuid());
	broker_write_policy(&broker, policy);
	broker_reload(&broker, "again: ");
	expect_tenant(&broker, "default");
}

/* ---- Information for tenants ---- */

static void submit_nops(struct rbk *rbk, unsigned int n)
{
	struct rbk_ring *ring = NULL;
	const struct rbk_cqe *cqe;

	assert_int_equal(rbk_ring_new(rbk, 64, &ring, NULL), 0);
	for (unsigned int i = 0; i < n; i++)
		rbk_prep_nop(rbk_get_sqe(ring));
	assert_int_equal(rbk_submit(ring), n);
	for (unsigned int i = 0; i < n; i++) {
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 20000000000), 0);
		rbk_cqe_seen(ring, cqe);
	}
	rbk_ring_free(ring);
}

/* Show a tenant's memory and tasks to this tenant and to administrators, not to other tenants. */
TEST(test_statistics__only_own_tenant)
{
	const struct broker_options options = {.policy = "[tenant default]\nhost-max = 1GiB\n"};
	struct rbk_stats before, stats, all;
	struct rbk *busy, *curious, *admin;
	struct rbk_arena *arena = NULL;
	struct rbk_plan *plan = NULL;
	struct rbk_ring *ring = NULL;
	char policy[256];

	BROKER(broker, &options);
	busy = broker_connect(&broker, "busy");
	/* The existing session keeps its tenant; a later one belongs to another tenant. */
	snprintf(policy, sizeof(policy), "[tenant curious]\nmatch-uid = %u\n",
		 (unsigned int)getuid());
	broker_write_policy(&broker, policy);
	broker_reload(&broker, "again: ");
	curious = broker_connect(&broker, "curious");
	admin = broker_connect_admin(&broker, "admin");
	assert_int_equal(rbk_stats(curious, &before), 0);
	assert_fields(before, (sessions, 1), (tasks_completed, 0));

	assert_int_equal(rbk_arena_new(busy, 1 << 20, &arena, NULL), 0);
	assert_int_equal(plan_new(busy, &plan, NULL), 0);
	assert_int_equal(rbk_ring_new(busy, 64, &ring, NULL), 0);
	submit_nops(busy, 7);
	assert_int_equal(rbk_stats(curious, &stats), 0);
	assert_memory_equal(&stats, &before, sizeof(stats));
	assert_int_equal(rbk_stats(busy, &stats), 0);
	assert_fields(stats, (sessions, 1), (arenas, 1), (plans, 1), (rings, 1),
		      (tasks_completed, 7));
	assert_int_equal(rbk_stats(admin, &all), 0);
	assert_true(all.sessions >= 3);
	assert_fields(all, (arenas, 1), (plans, 1), (tasks_completed, 7));
	assert_true(all.host_bytes >= stats.host_bytes + before.host_bytes);

	/* The work of an ended session still counts for its tenant. */
	rbk_ring_free(ring);
	rbk_plan_free(plan);
	rbk_arena_free(arena);
	rbk_disconnect(busy);
	busy = broker_connect(&broker, "another");
	submit_nops(busy, 5);
	rbk_disconnect(busy);
	broker_wait_sessions(curious, 1);
	assert_int_equal(rbk_stats(curious, &stats), 0);
	assert_int_equal(stats.tasks_completed, 5);
	assert_int_equal(rbk_stats(admin, &all), 0);
	assert_int_equal(all.tasks_completed, 12);
	rbk_disconnect(curious);
	rbk_disconnect(admin);
}

/* ---- Limits ---- */

TEST(test_limit__each_is_named)
{
	const struct broker_options options = {
		.policy = "[tenant default]\narenas-max = 2\narena-bytes-max = 1MiB\n"
			  "plans-max = 1\ntasks-max = 100\n"};
	struct rbk_arena *arenas[2], *arena = NULL;
	struct rbk_plan *plan, *more_plans = NULL;
	struct rbk_ring *ring, *more_rings = NULL;
	struct rbk_error error = {""};
	struct rbk *rbk;

	BROKER(broker, &options);
	rbk = broker_connect(&broker, "limited");
	assert_int_equal(rbk_arena_new(rbk, 1 << 19, &arenas[0], &error), 0);
	assert_int_equal(rbk_arena_new(rbk, (1 << 19) + 4096, &arena, &error), -EDQUOT);
	assert_string_equal(error.text,
			    "no room for an arena of 516 KiB: tenant default may have 1 MiB of "
			    "arenas (arena-bytes-max), has 512 KiB, and asks for 516 KiB more");
	assert_int_equal(rbk_arena_new(rbk, 1 << 19, &arenas[1], &error), 0);
	assert_int_equal(rbk_arena_new(rbk, 4096, &arena, &error), -EDQUOT);
	assert_string_equal(error.text, "no room for an arena of 4 KiB: tenant default may "
					"have 2 arenas (arenas-max), has 2, and asks for 1 more");
	rbk_arena_free(arenas[1]);
	assert_int_equal(rbk_arena_new(rbk, 1 << 19, &arenas[1], &error), 0);

	assert_int_equal(plan_new(rbk, &plan, &error), 0);
	assert_int_equal(plan_new(rbk, &more_plans, &error), -EDQUOT);
	assert_string_equal(error.text, "no room for the plan: tenant default may have 1 plan "
					"(plans-max), has 1, and asks for 1 more");
	rbk_plan_free(plan);
	assert_int_equal(plan_new(rbk, &plan, &error), 0);

	assert_int_equal(rbk_ring_new(rbk, 64, &ring, &error), 0);
	assert_int_equal(rbk_ring_new(rbk, 64, &more_rings, &error), -EDQUOT);
	assert_string_equal(error.text,
			    "no room for a ring of 64 entries: tenant default may have 100 ring "
			    "entries (tasks-max), has 64, and asks for 64 more");
	assert_int_equal(rbk_ring_new(rbk, 32, &more_rings, &error), 0);
	rbk_ring_free(more_rings);
	rbk_ring_free(ring);
	assert_int_equal(rbk_ring_new(rbk, 64, &ring, &error), 0);
	rbk_ring_free(ring);
	rbk_plan_free(plan);
	rbk_arena_free(arenas[0]);
	rbk_arena_free(arenas[1]);
	rbk_disconnect(rbk);
}

/* Sessions without end: each is rejected with an error, and other clients do not notice. */
TEST(test_limit__flood_of_sessions)
{
	const struct broker_options options = {.policy = "[tenant default]\nsessions-max = 5\n"};
	struct rbk_options connect = {.size = sizeof(connect), .timeout_ns = 60000000000};
	struct neighbour *neighbour;
	struct rbk_error error;
	struct broker_usage before;
	struct rbk *mine[4], *more;
	uint64_t n = test_scaled(500);

	BROKER(broker, &options);
	connect.socket_path = broker.socket_path;
	neighbour = neighbour_start(&broker);
	mine[0] = broker_connect(&broker, "greedy");
	/* The harness's test connection was a session too. */
	broker_wait_sessions(mine[0], 2);
	for (unsigned int i = 1; i < 4; i++)
		mine[i] = broker_connect(&broker, "greedy");
	broker_usage_least(&broker, &before);
	for (uint64_t i = 0; i < n; i++) {
		error.text[0] = '\0';
		assert_int_equal(rbk_connect(&connect, &more, &error), -EDQUOT);
		assert_non_null(strstr(error.text, "(sessions-max)"));
	}
	broker_wait_fds(&broker, before.n_fds);
	/* At most one line per second. */
	assert_true(broker_log_count(&broker, "refused a connection") < (n > 100 ? n / 4 : n + 1));
	for (unsigned int i = 0; i < 4; i++)
		rbk_disconnect(mine[i]);
	assert_true(neighbour_results(neighbour) > 0);
	neighbour_stop(neighbour);
}

/* ---- Reloads ---- */

TEST(test_reload__changes_limits_of_sessions)
{
	const struct broker_options options = {.policy = "[tenant default]\narenas-max = 1\n"};
	struct rbk_arena *arenas[2], *arena = NULL;
	struct rbk_error error = {""};
	struct rbk *rbk;

	BROKER(broker, &options);
	rbk = broker_connect(&broker, "there");
	assert_int_equal(rbk_arena_new(rbk, 4096, &arenas[0], &error), 0);
	assert_int_equal(rbk_arena_new(rbk, 4096, &arenas[1], &error), -EDQUOT);
	broker_write_policy(&broker, "[tenant default]\narenas-max = 2\n");
	broker_reload(&broker, "again: changed: default; 1 tenant in all");
	assert_int_equal(rbk_arena_new(rbk, 4096, &arenas[1], &error), 0);
	/* With a limit below use, existing objects stay. */
	broker_write_policy(&broker, "[tenant default]\narenas-max = 1\n");
	broker_reload(&broker, "again: changed: default; 1 tenant in all");
	assert_int_equal(rbk_arena_new(rbk, 4096, &arena, &error), -EDQUOT);
	assert_non_null(strstr(error.text, "may have 1 arena (arenas-max), has 2,"));
	rbk_arena_free(arenas[1]);
	assert_int_equal(rbk_arena_new(rbk, 4096, &arena, &error), -EDQUOT);
	rbk_arena_free(arenas[0]);
	assert_int_equal(rbk_arena_new(rbk, 4096, &arena, &error), 0);
	rbk_arena_free(arena);
	broker_reload(&broker, "again: nothing changed; 1 tenant in all");
	rbk_disconnect(rbk);
}

/* A session stays with its tenant, even if the policy no longer names the tenant. */
TEST(test_reload__keeps_sessions_in_tenant)
{
	char with[TEXT_BYTES], without[] = "[tenant default]\nplans-max = 0\n";
	struct broker_options options = {.policy = with};
	struct rbk *rbk;
	char name[64];

	snprintf(with, sizeof(with),
		 "[tenant default]\nplans-max = 0\n[tenant mine]\nmatch-uid = %u\nplans-max = 0\n",
		 (unsigned int)getuid());
	BROKER(broker, &options);
	rbk = broker_connect(&broker, "stays");
	broker_write_policy(&broker, without);
	broker_reload(&broker, "again: gone: mine; 1 tenant in all");
	expect_tenant(&broker, "default");
	tenant_of(rbk, name);
	assert_string_equal(name, "mine");
	broker_write_policy(&broker, with);
	broker_reload(&broker, "again: new tenants: mine; 2 tenants in all");
	expect_tenant(&broker, "mine");
	tenant_of(rbk, name);
	assert_string_equal(name, "mine");
	rbk_disconnect(rbk);
}

TEST(test_reload__bad_file_changes_nothing)
{
	static const char *const bad[][2] = {
		{"[tenant default]\narenas-max = 7\nx\n", "/brokerd.conf:3: the line is neither"},
		{"[tenant default]\narenas-max = 7\n[tenant web]\n",
		 "/brokerd.conf:3: tenant web matches no client"},
		{"[broker]\nworkers = 0\n[tenant default]\narenas-max = 7\n",
		 "/brokerd.conf:2: workers: '0' is not allowed"},
		{"[tenant default]\narenas-max = 7\nvram-reserve = 99%\n",
		 "/brokerd.conf:3: vram-reserve: with tenant default, tenants reserve 99.00%"},
	};
	const struct broker_options options = {.policy = "[tenant default]\narenas-max = 0\n"};
	struct rbk_arena *arena = NULL;
	struct rbk_error error = {""};
	struct rbk *rbk;

	BROKER(broker, &options);
	rbk = broker_connect(&broker, "there");
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		broker_write_policy(&broker, bad[i][0]);
		broker_reload(&broker, "the old policy stays in force");
		assert_true(broker_log_has(&broker, bad[i][1]));
		assert_int_equal(rbk_arena_new(rbk, 4096, &arena, &error), -EDQUOT);
		assert_non_null(strstr(error.text, "may have 0 arenas"));
	}
	assert_int_equal(unlink(broker.config_path), 0);
	broker_reload(&broker, "the old policy stays in force");
	broker_write_policy(&broker, "[tenant default]\narenas-max = 7\n");
	broker_reload(&broker, "again: changed: default");
	assert_int_equal(rbk_arena_new(rbk, 4096, &arena, &error), 0);
	rbk_arena_free(arena);
	rbk_disconnect(rbk);
}

TEST(test_reload__under_load)
{
	static const char *const policies[] = {
		"[tenant default]\nweight = 10\n",
		"[tenant web]\nmatch-cgroup = /**\nsessions-max = 3\n",
		"nonsense\n",
		"[tenant web]\nmatch-uid = 0\n[tenant batch]\nmatch-gid = 7\n",
		"",
	};
	const struct broker_options options = {.policy = ""};
	struct neighbour *neighbours[2];
	uint64_t n = test_scaled(50), results;

	BROKER(broker, &options);
	neighbours[0] = neighbour_start(&broker);
	neighbours[1] = neighbour_start(&broker);
	for (uint64_t i = 0; i < n; i++) {
		broker_write_policy(&broker, policies[i % 5]);
		/* Two signals at once cause at least one more reload. */
		kill(broker.pid, SIGHUP);
		broker_reload(&broker, i % 5 == 2 ? "stays in force" : "again: ");
		rbk_disconnect(broker_connect(&broker, "comes and goes"));
	}
	results = neighbour_results(neighbours[0]);
	for (unsigned int i = 0; i < 5000 && neighbour_results(neighbours[0]) == results; i++)
		harness_sleep_ms(2);
	assert_true(neighbour_results(neighbours[0]) > results);
	neighbour_stop(neighbours[0]);
	neighbour_stop(neighbours[1]);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(55))
