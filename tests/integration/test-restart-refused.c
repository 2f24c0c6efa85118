/* SPDX-License-Identifier: MIT */
/* Restarts that are refused, given up, or stopped; and who may restart a broker. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "integration/plans.h"
#include "integration/raw.h"
#include "integration/restart-rig.h"
#include "support/lingering.h"
#include "support/test.h"

enum { OTHER_ID = 65534 /* a user and a group without rights */ };

/* --- Restarts that fail --- */

/* Check that the broker refuses to restart, with @text, and serves @clients as before. */
static void expect_refused(const struct broker *broker, struct checker *clients, int r,
			   const char *text)
{
	struct rbk_error error = {""};

	assert_int_equal(restart_begin(broker, 5000, NULL, &error), r);
	if (!strstr(error.text, text))
		fail_msg("\"%s\" does not contain \"%s\"", error.text, text);
	checkers_await_work(clients, RESTART_CLIENTS);
}

TEST(test_restart__what_cannot_start_is_refused)
{
	static const char *const args[] = {"--gpu=none", NULL};
	const struct broker_options options = {
		.args = args, .is_undisturbed = true, .policy = "[tenant a]\nmatch-uid = 12345\n"};
	char folder[] = "/tmp/rbk-program-XXXXXX", path[64];
	struct rbk_admin_restart before, after;
	struct rbk_error error = {""};
	struct checker *clients;
	struct broker broker;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/brokerd", folder);
	restart_copy_program(path);
	assert_int_equal(setenv("BROKERD", path, 1), 0);
	broker_start(&broker, &options);
	unsetenv("BROKERD");
	clients = restart_clients(&broker);
	assert_int_equal(restart_ask(&broker, &before, &error), 0);

	broker_write_policy(&broker, "[tenant a]\nmatch-uid = 12345\nvram-max = many\n");
	expect_refused(&broker, clients, -EINVAL, "vram-max");
	broker_write_policy(&broker, options.policy);
	restart_write_script(path, "#!/bin/sh\necho 'no such option' >&2\nexit 2\n");
	expect_refused(&broker, clients, -EINVAL, "no such option");
	restart_write_script(path, "#!/bin/sh\nkill -ABRT $$\n");
	expect_refused(&broker, clients, -EINVAL, "signal 6");
	unlink(path);
	expect_refused(&broker, clients, -EINVAL, "No such file");
	/* It passes the check, and is gone when it is needed. */
	restart_write_script(path, "#!/bin/sh\nrm $0\n");
	assert_int_equal(restart_begin(&broker, 5000, NULL, &error), 0);
	do
		assert_int_equal(restart_ask(&broker, &after, &error), 0);
	while (!error.text[0]);
	assert_non_null(strstr(error.text, "No such file"));
	checkers_await_work(clients, RESTART_CLIENTS);

	assert_int_equal(restart_ask(&broker, &after, &error), 0);
	assert_true(after.ready_ns == before.ready_ns);
	/* A program that was replaced is executed. */
	restart_copy_program(path);
	assert_int_equal(restart_begin(&broker, 5000, NULL, &error), 0);
	after = restart_await(&broker, &before, RESTART_CLIENTS);
	checkers_end(clients, RESTART_CLIENTS);
	for (unsigned int i = 0; i < RESTART_CLIENTS; i++)
		assert_int_equal(clients[i].n_reattached, 1);
	assert_int_equal(broker_log_count(&broker, "cannot restart: "), 5);
	broker_stop(&broker);
	unlink(path);
	rmdir(folder);
	free(clients);
}

static void ignore_children(void)
{
	signal(SIGCHLD, SIG_IGN);
}

/* A program that ignores the ends of its children, and executes brokerd, has brokerd do so, too. */
TEST(test_restart__is_refused_where_children_are_ignored)
{
	static const char *const args[] = {"--gpu=none", NULL};
	struct rbk_error error = {""};
	struct broker broker;

	broker_start(&broker, &(struct broker_options){
				      .args = args, .policy = "", .in_child = ignore_children});
	broker_write_policy(&broker, "[tenant a]\nvram-max = many\n");
	assert_int_equal(restart_begin(&broker, 5000, NULL, &error), -EINVAL);
	assert_non_null(strstr(error.text, "vram-max"));
	broker_stop(&broker);
}

/* --- What the next broker would find --- */

/* Start a broker that is executed by @path. */
static void start_at(struct broker *broker, const char *path, const struct broker_options *options)
{
	assert_int_equal(setenv("BROKERD", path, 1), 0);
	broker_start(broker, options);
	unsetenv("BROKERD");
}

static void expect_no_restart(const struct broker *broker, const char *text)
{
	struct rbk_error error = {""};

	assert_int_equal(restart_begin(broker, 5000, NULL, &error), -EINVAL);
	if (!strstr(error.text, text))
		fail_msg("\"%s\" does not contain \"%s\"", error.text, text);
}

static void expect_restart_within(const struct broker *broker, uint32_t drain_ms)
{
	struct rbk_admin_restart before;
	struct rbk_error error = {""};

	assert_int_equal(restart_ask(broker, &before, &error), 0);
	if (restart_begin(broker, drain_ms, NULL, &error))
		fail_msg("%s", error.text);
	restart_await(broker, &before, 0);
}

static void expect_restart(const struct broker *broker)
{
	expect_restart_within(broker, 5000);
}

/* Listen at a port of this machine that no program uses. Return: the socket. */
static int take_port(unsigned int *ret_port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t bytes = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)&address, bytes), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
	*ret_port = ntohs(address.sin_port);
	return fd;
}

/* The configuration is valid, but a broker with it would not start. */
TEST(test_refused__what_only_a_start_would_show)
{
	static const char *const args[] = {"--gpu=software", NULL};
	const struct broker_options options = {.args = args, .is_undisturbed = true, .policy = ""};
	char policy[256], path[128];
	struct broker broker;
	unsigned int port;
	int fd = take_port(&port);

	rbk_disconnect(broker_start_gpu(&broker, &options, "look"));
	snprintf(policy, sizeof(policy), "[broker]\nmetrics = 127.0.0.1:%u\n", port);
	broker_write_policy(&broker, policy);
	expect_no_restart(&broker, ":2: metrics: another program listens on 127.0.0.1");
	broker_write_policy(&broker, "[tenant a]\nmatch-uid = 12345\nvram-reserve = 9999999GiB\n");
	expect_no_restart(&broker, ":3: vram-reserve: ");
	close(fd);
	broker_write_policy(&broker, policy);
	expect_restart(&broker);
	broker_wait_log(&broker, "serving metrics for Prometheus on 127.0.0.1");
	/* The port is in use: by the broker that gives it up. */
	expect_restart(&broker);
	assert_int_equal(broker_log_count(&broker, "serving metrics for Prometheus"), 2);

	/* A socket in the file system: the check leaves nothing behind. */
	snprintf(path, sizeof(path), "%s/metrics", broker.dir);
	snprintf(policy, sizeof(policy), "[broker]\nmetrics = unix:%s\n", path);
	broker_write_policy(&broker, policy);
	expect_restart(&broker);
	assert_int_equal(broker_log_count(&broker, "serving metrics for Prometheus"), 3);
	/* No check could know this. The clients matter more than the metrics. */
	assert_int_equal(unlink(path), 0);
	restart_write_script(path, "");
	expect_restart(&broker);
	broker_wait_log(&broker, "this broker goes on without metrics");
	assert_int_equal(unlink(path), 0);
	broker_stop(&broker);
}

/* An upgrade moves a link to another program. */
TEST(test_refused__not_by_a_link_that_has_moved)
{
	static const char *const args[] = {"--gpu=none", NULL};
	const struct broker_options options = {.args = args, .is_undisturbed = true};
	char folder[] = "/tmp/rbk-program-XXXXXX", link[64], programs[2][64], exe[32], target[64];
	struct broker broker;
	ssize_t n;

	assert_non_null(mkdtemp(folder));
	snprintf(link, sizeof(link), "%s/brokerd", folder);
	for (unsigned int i = 0; i < 2; i++) {
		snprintf(programs[i], sizeof(programs[i]), "%s/brokerd-1.%u", folder, i);
		restart_copy_program(programs[i]);
	}
	assert_int_equal(symlink("brokerd-1.0", link), 0);
	start_at(&broker, link, &options);
	assert_int_equal(unlink(link), 0);
	assert_int_equal(symlink("brokerd-1.1", link), 0);
	expect_restart(&broker);
	snprintf(exe, sizeof(exe), "/proc/%d/exe", (int)broker.pid);
	n = readlink(exe, target, sizeof(target) - 1);
	assert_true(n > 0);
	target[n] = '\0';
	assert_string_equal(target, programs[1]);
	broker_stop(&broker);
	unlink(link);
	unlink(programs[0]);
	unlink(programs[1]);
	rmdir(folder);
}

/* --- Descriptors --- */

enum { INHERITED_FD = 77, LINGER_S = 60 };

static void leave_descriptor(void)
{
	if (dup2(STDIN_FILENO, INHERITED_FD) < 0)
		_exit(126);
}

/* A descriptor that a driver has opened without O_CLOEXEC does not outlive the program. */
TEST(test_descriptors__of_drivers)
{
	static const char *const args[] = {"--gpu=none", NULL};
	const struct broker_options options = {
		.args = args, .is_undisturbed = true, .in_child = leave_descriptor};
	struct broker broker;
	char path[64];

	broker_start(&broker, &options);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)broker.pid, INHERITED_FD);
	assert_int_equal(access(path, F_OK), 0);
	expect_restart(&broker);
	assert_int_not_equal(access(path, F_OK), 0);
	broker_stop(&broker);
}

/*
 * Send a socket whose close() takes LINGER_S, because an unread message in it holds the last
 * reference to a socket that lingers. The broker stands still until it has the only references.
 */
static void send_lingering(const struct broker *broker)
{
	static const struct rbk_wire_request nonsense = {.type = 4711};
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	const int bytes = 4096;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), lingering, fd, status;
	int pair[2];

	assert_true(listener >= 0);
	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 1), 0);
	lingering = lingering_socket(listener, LINGER_S);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	fd = raw_connect(broker);
	raw_hello(fd);
	assert_int_equal(kill(broker->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(broker->pid, &status, WUNTRACED), broker->pid);
	assert_true(raw_send(pair[0], &nonsense, sizeof(nonsense), &lingering, 1) > 0);
	assert_true(raw_send(fd, &nonsense, sizeof(nonsense), &pair[1], 1) > 0);
	close(lingering);
	close(pair[1]);
	close(pair[0]);
	assert_int_equal(kill(broker->pid, SIGCONT), 0);
	raw_expect_closed(fd);
	close(fd);
}

/* A thread that waits for a client would keep the process from becoming another program. */
TEST(test_refused__while_a_descriptor_is_being_closed)
{
	static const char *const args[] = {"--gpu=none", NULL};
	const struct broker_options options = {.args = args, .is_undisturbed = true};
	struct broker broker;

	broker_start(&broker, &options);
	send_lingering(&broker);
	/* The thread has just begun, or has not: the broker waits for it, and gives up. */
	expect_no_restart(&broker, "waits for a client's descriptor");
	/* It is known to be stuck. */
	expect_no_restart(&broker, "waits for a client's descriptor");
	rbk_disconnect(broker_connect(&broker, "client"));
	broker_kill(&broker);
	broker_remove(&broker);
}

/* A broker that does not wait for such a thread at its end removes its sockets before. */
TEST(test_stop__while_a_descriptor_is_being_closed)
{
	char folder[] = "/tmp/rbk-metrics-XXXXXX", path[48], option[64];
	const char *const args[] = {"--gpu=none", option, NULL};
	const struct broker_options options = {.args = args, .is_undisturbed = true};
	struct broker broker;
	int status;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/metrics", folder);
	snprintf(option, sizeof(option), "--metrics=unix:%s", path);
	broker_start(&broker, &options);
	broker_wait_log(&broker, "serving metrics");
	assert_int_equal(access(path, F_OK), 0);
	send_lingering(&broker);
	assert_int_equal(kill(broker.pid, SIGTERM), 0);
	status = broker_wait(&broker);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(broker_log_has(&broker, "does not wait for a client's descriptor"));
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_not_equal(access(broker.socket_path, F_OK), 0);
	broker_remove(&broker);
	rmdir(folder);
}

static void send_begin(int fd, uint32_t drain_ms)
{
	const struct rbk_wire_admin_restart request = {
		.request = {.type = RBK_WIRE_ADMIN_RESTART},
		.action = RBK_WIRE_RESTART_BEGIN,
		.drain_ms = drain_ms,
	};

	assert_true(raw_send(fd, &request, sizeof(request), NULL, 0) > 0);
}

/* Wait until SIGIO, which is blocked, says that another process waits for the lease of a file. */
static void await_lease_break(void)
{
	const struct timespec patience = {
		.tv_sec = (time_t)(harness_slow_ns(20000000000u) / 1000000000u)};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	assert_int_equal(sigtimedwait(&set, NULL, &patience), SIGIO);
}

/*
 * The next program is on a disk that does not answer: a lease of its file lets execve() wait. The
 * broker serves clients meanwhile, begins to stop, and ends at a second signal.
 */
TEST(test_stop__while_the_check_is_not_executed)
{
	static const char *const args[] = {"--gpu=none", NULL};
	const struct broker_options options = {.args = args, .is_undisturbed = true};
	char folder[] = "/tmp/rbk-program-XXXXXX", path[64];
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000u);
	struct broker broker;
	int fd, file_fd, status;
	sigset_t set, old;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/brokerd", folder);
	restart_copy_program(path);
	start_at(&broker, path, &options);
	unlink(path);
	restart_write_script(path, "#!/bin/sh\nexit 0\n");
	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	assert_int_equal(sigprocmask(SIG_BLOCK, &set, &old), 0);
	file_fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(file_fd >= 0);
	fd = restart_raw_admin(&broker);
	if (fcntl(file_fd, F_SETLEASE, F_WRLCK) == 0) {
		send_begin(fd, 5000);
		await_lease_break();
		rbk_disconnect(broker_connect(&broker, "client"));
		assert_int_equal(kill(broker.pid, SIGTERM), 0);
		while (access(broker.socket_path, F_OK) == 0 && harness_now_ns() < end_ns)
			harness_sleep_ms(2);
		assert_int_not_equal(access(broker.socket_path, F_OK), 0);
		assert_int_equal(kill(broker.pid, SIGTERM), 0);
		status = broker_wait(&broker);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	} else {
		broker_stop(&broker);
	}
	close(file_fd);
	sigprocmask(SIG_SETMASK, &old, NULL);
	close(fd);
	broker_remove(&broker);
	unlink(path);
	rmdir(folder);
}

/* --- Administrators who do not wait --- */

/* The check is another process: brokerd goes on preparing plans, and gives the check up. */
TEST(test_given_up__during_the_check)
{
	static const char *const args[] = {"--gpu=none", NULL};
	const struct broker_options options = {.args = args, .is_undisturbed = true};
	char folder[] = "/tmp/rbk-program-XXXXXX", path[64], done_path[80], script[160];
	struct rbk_error error = {""};
	struct rbk_plan *plan;
	struct broker broker;
	struct rbk *rbk;
	int fd;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/brokerd", folder);
	snprintf(done_path, sizeof(done_path), "%s/begun", folder);
	restart_copy_program(path);
	start_at(&broker, path, &options);
	snprintf(script, sizeof(script), "#!/bin/sh\ntouch %s\nexec sleep 100\n", done_path);
	restart_write_script(path, script);
	rbk = broker_connect(&broker, "client");
	fd = restart_raw_admin(&broker);
	send_begin(fd, 0);
	while (access(done_path, F_OK))
		harness_sleep_ms(1);
	assert_int_equal(plan_elements(rbk, "Neg", 1, 4, 4, &plan, &error), 0);
	assert_false(broker_log_has(&broker, "cannot restart"));
	close(fd);
	broker_wait_log(&broker,
			"cannot restart: the administrator who asked for it has not waited");
	rbk_plan_free(plan);
	rbk_disconnect(rbk);
	restart_copy_program(path);
	expect_restart(&broker);
	broker_stop(&broker);
	unlink(path);
	unlink(done_path);
	rmdir(folder);
}

TEST(test_given_up__while_tasks_complete)
{
	enum { N_TASKS = 60 /* of a second each */ };
	static const char *const args[] = {"--gpu=none", "--test-device=1000", NULL};
	const struct broker_options options = {.args = args, .is_undisturbed = true};
	struct rbk_admin_restart before, after;
	struct rbk_error error = {""};
	struct rbk_ring *ring, *other;
	const struct rbk_cqe *cqe;
	struct rbk_arena *arena;
	struct broker broker;
	struct rbk_plan *plan;
	struct rbk_sqe *sqe;
	struct rbk *rbk;
	float *data;
	int fd;

	broker_start(&broker, &options);
	assert_int_equal(restart_ask(&broker, &before, &error), 0);
	rbk = broker_connect(&broker, "client");
	assert_int_equal(rbk_arena_new(rbk, 1 << 20, &arena, &error), 0);
	data = rbk_arena_alloc(arena, 1 << 13);
	assert_int_equal(plan_elements(rbk, "Neg", 1, 4, 4, &plan, &error), 0);
	assert_int_equal(rbk_ring_new(rbk, 64, &ring, &error), 0);
	assert_int_equal(rbk_ring_new(rbk, 8, &other, &error), 0);
	for (unsigned int i = 0; i < N_TASKS; i++) {
		sqe = rbk_get_sqe(ring);
		rbk_prep_run(sqe, rbk_plan_id(plan), 4,
			     (const uint64_t[]){rbk_ref(arena, data),
						rbk_ref(arena, data + 16 * (i + 1))},
			     2);
		rbk_sqe_set_strategy(sqe, RBK_STRATEGY_DEVICE(1));
	}
	assert_int_equal(rbk_submit(ring), N_TASKS);
	fd = restart_raw_admin(&broker);
	send_begin(fd, 100000);
	/* When the check is done, the broker admits nothing more, until the restart is given up. */
	broker_wait_log(&broker, "restarting within 100 s: ");
	rbk_prep_nop(rbk_get_sqe(other));
	assert_int_equal(rbk_submit(other), 1);
	assert_int_equal(rbk_wait_cqe_timeout(other, &cqe, 20000000), -ETIME);
	/* Other administrators may look on, and may not restart it. */
	assert_int_equal(restart_ask(&broker, &after, &error), 0);
	assert_int_equal(restart_begin(&broker, 0, NULL, &error), -EBUSY);
	close(fd);
	broker_wait_log(&broker,
			"cannot restart: the administrator who asked for it has not waited");
	assert_int_equal(rbk_wait_cqe(other, &cqe), 0);
	rbk_cqe_seen(other, cqe);
	assert_int_equal(restart_ask(&broker, &after, &error), 0);
	assert_true(after.ready_ns == before.ready_ns);
	expect_restart_within(&broker, 0);
	rbk_ring_free(other);
	rbk_ring_free(ring);
	rbk_plan_free(plan);
	rbk_arena_free(arena);
	rbk_disconnect(rbk);
	broker_stop(&broker);
}

/* --- Who may, and how --- */

static void expect_hostile(const struct broker *broker, uint32_t action, uint32_t drain_ms,
			   size_t bytes)
{
	const struct rbk_wire_admin_restart request = {
		.request = {.type = RBK_WIRE_ADMIN_RESTART},
		.action = action,
		.drain_ms = drain_ms,
	};
	int fd = restart_raw_admin(broker);

	assert_true(raw_send(fd, &request, bytes, NULL, 0) > 0);
	raw_expect_closed(fd);
	close(fd);
}

/* Runs as a user who may look at the broker. */
static int look_only(const struct broker *broker)
{
	int fd = restart_raw_admin(broker);

	if (restart_raw(fd, RBK_WIRE_RESTART_ASK).reply.res != 0)
		return 1;
	if (restart_raw(fd, RBK_WIRE_RESTART_BEGIN).reply.res != -EPERM)
		return 2;
	close(fd);
	return 0;
}

TEST(test_restart__rights_and_form)
{
	char group[32];
	const char *const args[] = {"--gpu=none", "--admin-group", group, NULL};
	const struct broker_options options = {.args = args, .is_undisturbed = true};
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
	};
	const size_t bytes = sizeof(struct rbk_wire_admin_restart);
	struct rbk_admin_restart before, after;
	struct rbk_error error = {""};
	struct rbk_wire_welcome welcome;
	struct broker broker;
	int fd, status;
	pid_t pid;

	snprintf(group, sizeof(group), "%u", OTHER_ID);
	broker_start(&broker, &options);
	assert_int_equal(restart_ask(&broker, &before, &error), 0);
	expect_hostile(&broker, 2, 0, bytes);
	expect_hostile(&broker, RBK_WIRE_RESTART_BEGIN, 0, bytes - 1);
	expect_hostile(&broker, RBK_WIRE_RESTART_BEGIN, RBK_WIRE_RESTART_MOST_MS + 1, bytes);
	expect_hostile(&broker, RBK_WIRE_RESTART_ASK, 1, bytes);
	/* Not on the clients' socket. */
	fd = raw_connect(&broker);
	raw_ask(fd, &hello, sizeof(hello), NULL, 0, &welcome, sizeof(welcome));
	assert_int_equal(restart_raw(fd, RBK_WIRE_RESTART_BEGIN).reply.res, -EPERM);
	close(fd);
	if (geteuid() == 0) {
		/* The folder is root's. */
		assert_int_equal(chmod(broker.dir, 0711), 0);
		pid = fork();
		if (pid == 0)
			_exit(setgid(OTHER_ID) || setuid(OTHER_ID) ? 3 : look_only(&broker));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	assert_int_equal(restart_ask(&broker, &after, &error), 0);
	assert_true(after.ready_ns == before.ready_ns);
	/* The second of two requests is refused. */
	fd = restart_raw_admin(&broker);
	{
		const struct rbk_wire_admin_restart twice[2] = {
			{.request = {.type = RBK_WIRE_ADMIN_RESTART, .cookie = 1}, .action = 1},
			{.request = {.type = RBK_WIRE_ADMIN_RESTART, .cookie = 2}, .action = 1},
		};
		struct rbk_wire_restart answer;
		unsigned int n_fds = 0;

		assert_true(raw_send(fd, &twice[0], bytes, NULL, 0) > 0);
		assert_true(raw_send(fd, &twice[1], bytes, NULL, 0) > 0);
		assert_true(raw_receive(fd, &answer, sizeof(answer), NULL, &n_fds, 20000) > 0);
		assert_int_equal(answer.reply.cookie, 2);
		assert_int_equal(answer.reply.res, -EBUSY);
	}
	restart_await(&broker, &before, 0);
	close(fd);
	broker_stop(&broker);
}

/* A stop has precedence, and does not take the sockets' files with it twice. */
TEST(test_restart__stopped_meanwhile)
{
	static const char *const args[] = {"--gpu=none", "--test-device=300", NULL};
	const struct broker_options options = {.args = args, .is_undisturbed = true};
	struct rbk_admin_restart before;
	struct rbk_error error = {""};
	struct broker broker;

	broker_start(&broker, &options);
	assert_int_equal(restart_ask(&broker, &before, &error), 0);
	assert_int_equal(restart_begin(&broker, 100, NULL, &error), 0);
	restart_await(&broker, &before, 0);
	broker_stop(&broker);
	assert_int_not_equal(access(broker.socket_path, F_OK), 0);
	assert_int_not_equal(access(broker.admin_path, F_OK), 0);
}

/* A check that hangs ends with the broker, whose sessions, the one that asked included, are gone.
 */
static void stop_during(const char *script)
{
	static const char *const args[] = {"--gpu=none", NULL};
	const struct broker_options options = {.args = args, .is_undisturbed = true};
	char folder[] = "/tmp/rbk-program-XXXXXX", path[64];
	struct broker broker;
	int fd;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/brokerd", folder);
	restart_copy_program(path);
	assert_int_equal(setenv("BROKERD", path, 1), 0);
	broker_start(&broker, &options);
	unsetenv("BROKERD");
	restart_write_script(path, script);
	fd = restart_raw_admin(&broker);
	send_begin(fd, 0);
	broker_wait_log(&broker, "checking whether the next broker would start");
	broker_stop(&broker);
	close(fd);
	unlink(path);
	rmdir(folder);
}

TEST(test_restart__stopped_during_the_check)
{
	stop_during("#!/bin/sh\nexec sleep 100\n");
	/* Without its standard error, it seems to have ended. */
	stop_during("#!/bin/sh\nexec 2>&-\nexec sleep 100\n");
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(60))
