/* SPDX-License-Identifier: MIT */
/* Connections without a session: closing their descriptors, and telling clients the reason */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loop/loop.h"
#include "session/server-private.h"
#include "support/session-rig.h"
#include "support/test.h"
#include "tenant/policy-private.h"
#include "util/clock.h"
#include "util/log.h"

/* Time in ns at which the clock is stopped, or 0 if it runs; other threads read it, too. */
static _Atomic uint64_t stopped_ns;

uint64_t __wrap_clock_now_ns(void);
uint64_t __real_clock_now_ns(void);

uint64_t __wrap_clock_now_ns(void)
{
	const uint64_t ns = stopped_ns;

	return ns ? ns : __real_clock_now_ns();
}

static void begin(struct rig *rig)
{
	rig_init(rig, 1);
	rig_settle(rig);
}

static void limit(struct account *account, uint64_t n_sessions, uint64_t n_fds)
{
	struct account_limits limits;

	for (unsigned int i = 0; i < ACCOUNT_SLOT_COUNT; i++)
		limits.max[i] = account_limit(account, (enum account_slot)i);
	limits.max[ACCOUNT_SESSIONS] = n_sessions;
	limits.max[ACCOUNT_FDS] = n_fds;
	account_set_limits(account, &limits);
}

/*
 * Refused clients leave descriptors behind while closing is stuck. Some descriptors are charged to
 * their tenant; of the others, at most a fixed number is held.
 */
TEST(test_refused__bounded)
{
	enum { N = 60, MAX = 8, N_CHARGED = 3 };
	struct rig_stuck stuck;
	struct account *account;
	struct rig rig;
	uint64_t n_fds;

	begin(&rig);
	closers_take_fds(rig.server->clients.fd, true);
	rig.server->max_newcomers = MAX;
	account = rig.session->account;
	n_fds = account_used(account, ACCOUNT_FDS);
	limit(account, 1, n_fds + N_CHARGED);
	rig_stick(&rig, account, &stuck);
	for (unsigned int i = 0; i < N; i++) {
		int fd = rig_connect(&rig);

		rig_send_empty(fd, rig.fd);
		close(fd);
	}
	for (unsigned int i = 0; i < 100 * N; i++) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
	}
	assert_in_range(server_n_discards(rig.server), 1 + N_CHARGED, 1 + N_CHARGED + 2 * MAX);
	assert_int_equal(account_used(account, ACCOUNT_FDS), n_fds + N_CHARGED);
	/* All are closed when closing is no longer stuck. */
	rig_unstick(&stuck);
	while (rig.server->next_number < 1 + N || server_n_discards(rig.server) > 0) {
		assert_true(loop_turn(rig.loop, true) >= 0);
		server_settle(rig.server);
	}
	assert_int_equal(account_used(account, ACCOUNT_FDS), n_fds);
	assert_int_equal(rig.server->n_uncharged, 0);
	rig_deinit(&rig);
}

/*
 * Clients cannot send descriptors before their hello. So refused connections are closed at once and
 * do not delay other users, even while closing is stuck for their tenant.
 */
TEST(test_refused__without_descriptors)
{
	enum { N = 60, MAX = 8 };
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.abi_minor = RBK_ABI_MINOR,
	};
	struct rig_stuck stuck;
	struct account *account;
	struct rig rig;
	uint64_t n_fds;
	int fd, value;
	socklen_t bytes = sizeof(value);

	begin(&rig);
	if (getsockopt(rig.fd, SOL_SOCKET, SO_PASSRIGHTS, &value, &bytes) < 0) {
		rig_deinit(&rig);
		skip();
	}
	rig.server->max_newcomers = MAX;
	account = rig.session->account;
	n_fds = account_used(account, ACCOUNT_FDS);
	limit(account, 1, n_fds);
	rig_stick(&rig, account, &stuck);
	for (unsigned int i = 0; i < N; i++) {
		fd = rig_connect(&rig);
		assert_int_equal(rig_try_send_empty(fd, rig.fd), -1);
		assert_int_equal(errno, EPERM);
		assert_int_equal(send(fd, "", 0, 0), 0);
		close(fd);
	}
	for (unsigned int i = 0; i < 100 * N; i++) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
	}
	assert_int_equal(rig.server->n_newcomers, 0);
	assert_int_equal(server_n_discards(rig.server), 1);
	assert_int_equal(rig.server->n_uncharged, 0);
	assert_int_equal(account_used(account, ACCOUNT_FDS), n_fds);

	/* After its hello, a client can send descriptors. */
	limit(account, 2, n_fds + 10);
	fd = rig_connect(&rig);
	assert_int_equal(send(fd, &hello, sizeof(hello), 0), sizeof(hello));
	for (unsigned int i = 0; i < 1000 && rig_count_answers(fd) == 0; i++) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
	}
	rig_send_empty(fd, rig.fd);
	close(fd);
	rig_unstick(&stuck);
	while (rig.server->n_sessions > 1 || server_n_discards(rig.server) > 0) {
		assert_true(loop_turn(rig.loop, !server_is_settling(rig.server)) >= 0);
		server_settle(rig.server);
	}
	assert_int_equal(account_used(account, ACCOUNT_FDS), n_fds);
	rig_deinit(&rig);
}

/* Listen for administrators at @path until the rig ends. */
static void listen_for_admins(struct rig *rig, char *path, size_t bytes, unsigned int mode)
{
	snprintf(path, bytes, "%s/admin", rig->directory);
	rig->server->options.admin.socket_path = path;
	rig->server->options.admin.socket_mode = mode;
	assert_int_equal(listener_init(&rig->server->admins, rig->server, true), 0);
}

static void end_with_admins(struct rig *rig, const char *path)
{
	char lock_path[80];

	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	rig_deinit(rig);
	unlink(lock_path);
	rmdir(rig->directory);
}

/* An administrator can connect while clients leave behind descriptors that are slow to close. */
TEST(test_refused__administrator)
{
	enum { MAX = 8 };
	struct rig rig;
	char path[64];
	int fd;

	begin(&rig);
	rig.server->max_newcomers = rig.server->n_uncharged = MAX;
	listen_for_admins(&rig, path, sizeof(path), 0600);
	close(rig_connect(&rig));
	fd = rig_connect_path(path);
	for (unsigned int i = 0; i < 1000 && rig.server->n_admin_sessions == 0; i++) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
	}
	assert_int_equal(rig.server->n_admin_sessions, 1);
	assert_true(rig.server->clients.is_paused);
	rig.server->n_uncharged = 0;
	close(fd);
	rig_settle(&rig);
	end_with_admins(&rig, path);
}

/*
 * Strangers leave descriptors that are slow to close on the administrators' socket. The descriptors
 * are charged to the strangers' tenant, as on the clients' socket. Clients can connect meanwhile.
 */
TEST(test_refused__strangers_pay_for_descriptors)
{
	enum { N = 30, MAX = 8, STRANGER_UID = 40115 };
	struct rig_stuck stuck[2];
	struct account *account;
	struct rig rig;
	uint64_t n_fds;
	char path[64];
	int fd;

	if (geteuid() != 0)
		skip();
	begin(&rig);
	rig.server->max_newcomers = MAX;
	listen_for_admins(&rig, path, sizeof(path), 0666);
	closers_take_fds(rig.server->admins.fd, true);
	assert_int_equal(chmod(rig.directory, 0711), 0);
	account = rig.session->account;
	n_fds = account_used(account, ACCOUNT_FDS);
	rig_stick(&rig, account, &stuck[0]);
	rig_stick(&rig, tenants_broker_account(rig.server->options.tenants), &stuck[1]);
	for (unsigned int i = 0; i < N; i++) {
		assert_int_equal(seteuid(STRANGER_UID), 0);
		fd = rig_connect_path(path);
		assert_int_equal(seteuid(0), 0);
		rig_send_empty(fd, rig.fd);
		close(fd);
	}
	while (rig.server->next_number < 1 + N) {
		assert_true(loop_turn(rig.loop, !server_is_settling(rig.server)) >= 0);
		server_settle(rig.server);
	}
	assert_int_equal(server_n_discards(rig.server), ARRAY_SIZE(stuck) + N);
	assert_int_equal(account_used(account, ACCOUNT_FDS), n_fds + N);
	assert_int_equal(rig.server->n_uncharged, 0);
	fd = rig_connect(&rig);
	for (unsigned int i = 0; i < 1000 && rig.server->n_sessions < 2; i++) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
	}
	assert_int_equal(rig.server->n_sessions, 2);
	close(fd);
	for (unsigned int i = 0; i < ARRAY_SIZE(stuck); i++)
		rig_unstick(&stuck[i]);
	while (rig.server->n_sessions > 1 || server_n_discards(rig.server) > 0) {
		assert_true(loop_turn(rig.loop, !server_is_settling(rig.server)) >= 0);
		server_settle(rig.server);
	}
	assert_int_equal(account_used(account, ACCOUNT_FDS), n_fds);
	end_with_admins(&rig, path);
}

static void settle(struct rig *rig)
{
	for (unsigned int i = 0; i < 1000; i++) {
		assert_true(loop_turn(rig->loop, false) >= 0);
		server_settle(rig->server);
	}
}

/* Return true if the client gets the sentence before its connection ends. */
static bool is_told_why(struct rig *rig, int fd)
{
	const struct rbk_wire_hello hello = {.request = {.type = RBK_WIRE_HELLO}};
	unsigned int n;

	if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) < 0) {
		close(fd);
		return false;
	}
	settle(rig);
	n = rig_count_answers(fd);
	close(fd);
	return n == 1;
}

/*
 * A user keeps the maximum of refused connections waiting and sends nothing. Other users still
 * learn why they are refused, each up to its share.
 */
TEST(test_refused__shares)
{
	enum { N = SERVER_REFUSALS + 6, N_USERS = 4, FIRST_UID = 40117 };
	int fds[N_USERS][N];
	unsigned int n_told;
	struct rig rig;

	if (geteuid() != 0)
		skip();
	begin(&rig);
	limit(rig.session->account, 1, account_limit(rig.session->account, ACCOUNT_FDS));
	for (unsigned int u = 0; u < N_USERS; u++) {
		for (unsigned int i = 0; i < N; i++) {
			fds[u][i] = rig_connect_as(&rig, FIRST_UID + u);
			settle(&rig);
		}
		assert_int_equal(rig.server->n_refusals, SERVER_REFUSALS);
	}
	for (unsigned int u = 0; u < N_USERS; u++) {
		n_told = 0;
		for (unsigned int i = 0; i < N; i++)
			n_told += is_told_why(&rig, fds[u][i]);
		assert_int_equal(n_told, SERVER_REFUSALS / N_USERS);
	}
	assert_int_equal(rig.server->n_refusals, 0);
	assert_int_equal(rig.server->n_refused_users, 0);
	rig_deinit(&rig);
}

/* --- Connections that wait for ends of sessions --- */

/* Send HELLO to @fd. Return: @fd. */
static int say_hello_to(int fd)
{
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.abi_minor = RBK_ABI_MINOR,
	};

	assert_int_equal(send(fd, &hello, sizeof(hello), 0), sizeof(hello));
	return fd;
}

/* Connect and send HELLO. */
static int say_hello(const struct rig *rig)
{
	return say_hello_to(rig_connect(rig));
}

/* Expect the answer to HELLO: 0, or a refusal whose sentence says that sessions are ending or not.
 */
static void expect_hello(struct rig *rig, int fd, int res, bool is_ending)
{
	union {
		struct rbk_wire_reply reply;
		char bytes[8192];
	} answer;

	settle(rig);
	assert_true(recv(fd, &answer, sizeof(answer), MSG_DONTWAIT) >=
		    (ssize_t)sizeof(answer.reply));
	assert_int_equal(answer.reply.res, res);
	assert_int_equal(strstr(answer.reply.text, "still ending") != NULL, is_ending);
}

/* Make a session of @fd that does not end before lingering_end(). */
static struct session *lingering_of(struct rig *rig, int fd)
{
	struct session *session;

	expect_hello(rig, fd, 0, false);
	session = container_of(rig->server->sessions.prev, struct session, link);
	session_job_started(session);
	close(fd);
	settle(rig);
	assert_true(session->is_ending);
	return session;
}

static struct session *lingering_new(struct rig *rig)
{
	return lingering_of(rig, say_hello(rig));
}

static void lingering_end(struct rig *rig, struct session *session)
{
	session_job_done(session);
	settle(rig);
}

/* Let the timer of those that wait fire, @ns from now for them. */
static void pass(struct rig *rig, uint64_t ns)
{
	usleep(6000);
	stopped_ns = __real_clock_now_ns() + ns;
	settle(rig);
	stopped_ns = 0;
}

/* A client does not find its own last session in the way. */
TEST(test_await__own_session)
{
	struct session *lingering;
	struct rig rig;
	int fd;

	begin(&rig);
	limit(rig.session->account, 2, account_limit(rig.session->account, ACCOUNT_FDS));
	lingering = lingering_new(&rig);
	fd = say_hello(&rig);
	settle(&rig);
	assert_int_equal(rig_count_answers(fd), 0);
	assert_int_equal(rig.server->clients.n_awaiting, 1);
	lingering_end(&rig, lingering);
	pass(&rig, 0);
	expect_hello(&rig, fd, 0, false);
	assert_int_equal(rig.server->clients.n_awaiting, 0);
	assert_int_equal(account_n_refused(rig.session->account), 0);
	close(fd);
	rig_deinit(&rig);
}

/* Without sessions that end, there is nothing to wait for. */
TEST(test_await__in_vain)
{
	struct session *lingering;
	struct rig rig;
	int fds[2];

	begin(&rig);
	limit(rig.session->account, 1, account_limit(rig.session->account, ACCOUNT_FDS));
	fds[0] = say_hello(&rig);
	expect_hello(&rig, fds[0], -EDQUOT, false);
	limit(rig.session->account, 2, account_limit(rig.session->account, ACCOUNT_FDS));
	lingering = lingering_new(&rig);
	limit(rig.session->account, 1, account_limit(rig.session->account, ACCOUNT_FDS));
	fds[1] = say_hello(&rig);
	settle(&rig);
	assert_int_equal(rig_count_answers(fds[1]), 0);
	lingering_end(&rig, lingering);
	pass(&rig, 0);
	expect_hello(&rig, fds[1], -EDQUOT, false);
	close(fds[0]);
	close(fds[1]);
	rig_deinit(&rig);
}

/* The wait is limited in time, and so is the number of those that wait. */
TEST(test_await__bounded)
{
	enum { MOST = 4, N = MOST + 1 };
	struct session *lingering;
	struct rig rig;
	int fds[N];

	begin(&rig);
	rig.server->max_newcomers = 16 * MOST;
	limit(rig.session->account, 2, account_limit(rig.session->account, ACCOUNT_FDS));
	lingering = lingering_new(&rig);
	for (unsigned int i = 0; i < N; i++) {
		fds[i] = say_hello(&rig);
		settle(&rig);
	}
	assert_int_equal(rig.server->clients.n_awaiting, MOST);
	expect_hello(&rig, fds[MOST], -EDQUOT, true);
	/* A client that leaves is forgotten when its time is over. */
	close(fds[0]);
	pass(&rig, 0);
	assert_int_equal(rig.server->clients.n_awaiting, MOST);
	pass(&rig, 2000000000);
	assert_int_equal(rig.server->clients.n_awaiting, 0);
	for (unsigned int i = 1; i < MOST; i++)
		expect_hello(&rig, fds[i], -EDQUOT, true);
	assert_int_equal(rig.server->n_newcomers, 0);
	lingering_end(&rig, lingering);
	for (unsigned int i = 1; i < N; i++)
		close(fds[i]);
	rig_deinit(&rig);
}

/* One user's connections leave another user a place to wait. */
TEST(test_await__users)
{
	enum { MOST = 2, N = MOST + 2, NEIGHBOUR_UID = 54321 };
	struct session *lingering;
	struct rig rig;
	int fds[N];

	if (geteuid() != 0)
		skip();
	begin(&rig);
	rig.server->max_newcomers = 16 * MOST;
	limit(rig.session->account, 2, account_limit(rig.session->account, ACCOUNT_FDS));
	lingering = lingering_new(&rig);
	for (unsigned int i = 0; i < N; i++) {
		fds[i] = i < MOST ? say_hello(&rig)
				  : say_hello_to(rig_connect_as(&rig, NEIGHBOUR_UID));
		settle(&rig);
	}
	assert_int_equal(rig.server->clients.n_awaiting, MOST + 1);
	expect_hello(&rig, fds[N - 1], -EDQUOT, true);
	lingering_end(&rig, lingering);
	/* There is room for one. */
	for (unsigned int i = 0; i < MOST + 1; i++) {
		pass(&rig, 0);
		expect_hello(&rig, fds[i], i == 0 ? 0 : -EDQUOT, false);
	}
	assert_int_equal(rig.server->clients.n_awaiting, 0);
	assert_int_equal(rig.server->n_newcomers, 0);
	for (unsigned int i = 0; i < N; i++)
		close(fds[i]);
	rig_deinit(&rig);
}

/* A group whose members another tenant has */
enum { NEIGHBOUR_GID = 54321 };

/* Connect as this user, with another group. */
static int connect_in_group(const struct rig *rig, gid_t gid)
{
	int fd;

	assert_int_equal(setegid(gid), 0);
	fd = rig_connect(rig);
	assert_int_equal(setegid(0), 0);
	return fd;
}

/* The same, and send HELLO. */
static int say_hello_in_group(const struct rig *rig, gid_t gid)
{
	return say_hello_to(connect_in_group(rig, gid));
}

/* One tenant's connections leave another tenant of the same user a place to wait. */
TEST(test_await__tenants)
{
	enum { MOST = 2, N = MOST + 2 };
	static const char text[] = "[tenant neighbour]\n"
				   "match-gid = 54321\n"
				   "sessions-max = 1\n";
	struct session *lingering, *of_neighbour;
	struct policy_errors errors = {.n = 0};
	struct policy *policy;
	struct rig rig;
	int fds[N];

	if (geteuid() != 0)
		skip();
	begin(&rig);
	assert_int_equal(policy_load_text("f", text, strlen(text), NULL, &policy, &errors), 0);
	assert_int_equal(tenants_reload(rig.tenants, policy, &errors), 0);
	rig.server->max_newcomers = 16 * MOST;
	limit(rig.session->account, 2, account_limit(rig.session->account, ACCOUNT_FDS));
	/* The second time finds the places free again. */
	for (unsigned int round = 0; round < 2; round++) {
		lingering = lingering_new(&rig);
		of_neighbour = lingering_of(&rig, say_hello_in_group(&rig, NEIGHBOUR_GID));
		assert_ptr_not_equal(of_neighbour->tenant, lingering->tenant);
		for (unsigned int i = 0; i < N; i++) {
			fds[i] = i < MOST ? say_hello(&rig)
					  : say_hello_in_group(&rig, NEIGHBOUR_GID);
			settle(&rig);
		}
		assert_int_equal(rig.server->clients.n_awaiting, MOST + 1);
		expect_hello(&rig, fds[N - 1], -EDQUOT, true);
		lingering_end(&rig, lingering);
		lingering_end(&rig, of_neighbour);
		/* There is room for one of each tenant. */
		for (unsigned int i = 0; i < MOST + 1; i++) {
			pass(&rig, 0);
			expect_hello(&rig, fds[i], i == 1 ? -EDQUOT : 0, false);
		}
		assert_int_equal(rig.server->clients.n_awaiting, 0);
		for (unsigned int i = 0; i < N; i++)
			close(fds[i]);
		settle(&rig);
	}
	rig_deinit(&rig);
}

/* Descriptors that are being closed are waited for like sessions; the end of the broker is not. */
TEST(test_await__descriptors)
{
	struct rig_stuck stuck;
	struct account *account;
	struct rig rig;
	int fds[2];

	begin(&rig);
	account = rig.session->account;
	limit(account, 10, account_used(account, ACCOUNT_FDS));
	rig_stick(&rig, account, &stuck);
	for (unsigned int i = 0; i < 2; i++) {
		fds[i] = say_hello(&rig);
		settle(&rig);
	}
	assert_int_equal(rig.server->clients.n_awaiting, 2);
	limit(account, 10, account_used(account, ACCOUNT_FDS) + 1);
	pass(&rig, 0);
	expect_hello(&rig, fds[0], 0, false);
	assert_int_equal(rig.server->clients.n_awaiting, 1);
	rig_unstick(&stuck);
	close(fds[0]);
	close(fds[1]);
	rig_deinit(&rig);
}

/* Work for sessions that go on makes no room, however long it takes. */
TEST(test_await__not_for_live_sessions)
{
	struct rig_stuck stuck;
	struct rig rig;
	int fd;

	begin(&rig);
	limit(rig.session->account, 1, account_limit(rig.session->account, ACCOUNT_FDS));
	/* A job that closed something and is done is no reason to wait, either. */
	rig_stick(&rig, rig.session->account, &stuck);
	rig_unstick(&stuck);
	while (closers_n_jobs(rig.server->closers) > 0)
		settle(&rig);
	rig_stick_live(&rig, rig.session->account, &stuck);
	fd = say_hello(&rig);
	expect_hello(&rig, fd, -EDQUOT, false);
	assert_int_equal(rig.server->clients.n_awaiting, 0);
	rig_unstick(&stuck);
	close(fd);
	rig_deinit(&rig);
}

/* Newcomers also wait for an arena that its session has removed: the charges end with it. */
TEST(test_await__removed_arena)
{
	struct session_arena *arena;
	struct rig_stuck stuck;
	struct rig rig;
	int fd;

	begin(&rig);
	arena = rig_arena_new(&rig, 1 << 16, false);
	limit(rig.session->account, 1, account_limit(rig.session->account, ACCOUNT_FDS));
	rig_stick_live(&rig, rig.session->account, &stuck);
	assert_int_equal(session_arena_remove(rig.session, 2, arena->id), 0);
	while (closers_n_jobs(rig.server->closers) < 2)
		settle(&rig);
	fd = say_hello(&rig);
	settle(&rig);
	assert_int_equal(rig.server->clients.n_awaiting, 1);
	rig_unstick(&stuck);
	while (closers_n_jobs(rig.server->closers) > 0)
		settle(&rig);
	pass(&rig, 0);
	expect_hello(&rig, fd, -EDQUOT, false);
	close(fd);
	rig_deinit(&rig);
}

/* Newcomers also wait for a page of a session that ended before the page was made. */
TEST(test_await__half_made)
{
	static const char text[] = "[tenant neighbour]\n"
				   "match-gid = 54321\n";
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.abi_minor = RBK_ABI_MINOR,
		.features = RBK_FEAT_STATS,
	};
	struct policy_errors errors = {.n = 0};
	struct rig_stuck stuck;
	struct account *account;
	struct policy *policy;
	struct rig rig;
	int fd;

	if (geteuid() != 0)
		skip();
	begin(&rig);
	assert_int_equal(policy_load_text("f", text, strlen(text), NULL, &policy, &errors), 0);
	assert_int_equal(tenants_reload(rig.tenants, policy, &errors), 0);
	fd = connect_in_group(&rig, NEIGHBOUR_GID);
	settle(&rig);
	account = container_of(rig.server->sessions.prev, struct session, link)->account;
	rig_stick_live(&rig, account, &stuck);
	/* The session's statistics page waits behind the stuck job. */
	assert_int_equal(send(fd, &hello, sizeof(hello), 0), sizeof(hello));
	expect_hello(&rig, fd, 0, false);
	close(fd);
	settle(&rig);
	assert_int_equal(account_used(account, ACCOUNT_SESSIONS), 0);
	assert_int_equal(account_used(account, ACCOUNT_FDS), 1);
	limit(account, 1, 1);
	fd = say_hello_in_group(&rig, NEIGHBOUR_GID);
	settle(&rig);
	assert_int_equal(rig.server->clients.n_awaiting, 1);
	rig_unstick(&stuck);
	while (closers_n_jobs(rig.server->closers) > 0)
		settle(&rig);
	pass(&rig, 0);
	expect_hello(&rig, fd, 0, false);
	close(fd);
	rig_deinit(&rig);
}

/* log lines about refused connections of logged_uid */
static unsigned int n_logged;
static uid_t logged_uid;

void __wrap_log_line(enum log_level level, enum log_event event, const struct log_about *about,
		     const char *format, ...);

void __wrap_log_line(enum log_level level, enum log_event event, const struct log_about *about,
		     const char *format, ...)
{
	n_logged += event == LOG_SESSION_REFUSED && about->uid == logged_uid;
}

/*
 * Have @n connections of a user refused.
 * Return: the number of log lines about them.
 */
static unsigned int refuse(struct rig *rig, uid_t uid, unsigned int n)
{
	n_logged = 0;
	logged_uid = uid;
	for (unsigned int i = 0; i < n; i++)
		is_told_why(rig, rig_connect_as(rig, uid));
	return n_logged;
}

/*
 * A user that is refused in a loop gets one line per second, and suppresses no line of another
 * user.
 */
TEST(test_refused__log)
{
	enum { N = 10, LOOPING_UID = 40123, OTHER_UID };
	struct rig rig;

	if (geteuid() != 0)
		skip();
	begin(&rig);
	limit(rig.session->account, 1, account_limit(rig.session->account, ACCOUNT_FDS));
	stopped_ns = clock_now_ns();
	for (unsigned int second = 0; second < 3; second++) {
		assert_int_equal(refuse(&rig, LOOPING_UID, N), 1);
		assert_int_equal(refuse(&rig, OTHER_UID, 1), 1);
		assert_int_equal(refuse(&rig, LOOPING_UID, N), 0);
		stopped_ns += 1000000000;
	}
	stopped_ns = 0;
	rig_deinit(&rig);
}
