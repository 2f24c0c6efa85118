/* SPDX-License-Identifier: MIT */
/*
 * Work of the reactor for clients besides their rings, in slices: connections, messages, ends
 *
 * Time is counted in readings of the clock, so a slice is a number of jobs instead of microseconds.
 */
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "dispatch/dispatch-private.h"
#include "fail-alloc.h"
#include "loop/loop.h"
#include "session/server-private.h"
#include "support/session-rig.h"
#include "support/test.h"
#include "util/clock.h"
#include "util/log.h"

enum {
	/* Each job takes one unit: the clock is read when the job begins and when it ends. */
	BUDGET = 16,
};

static uint64_t n_readings;

static uint64_t read_steps(void)
{
	return ++n_readings;
}

static void begin(struct rig *rig)
{
	struct turn *turn;

	rig_init(rig, 1);
	rig_settle(rig);
	turn = loop_current(rig->loop);
	turn->read_ticks = read_steps;
	turn->budget_ticks = BUDGET;
	turn_reset(turn);
}

#define BEGIN(name) SCOPED(rig, name, begin, rig_deinit)

static uint64_t count_jobs(const struct rig *rig)
{
	return rig->server->work.n_jobs;
}

/*
 * 400 connections at once: each look accepts some, all become sessions, and they end in pieces,
 * too.
 */
TEST(test_connections__in_slices)
{
	enum { N = 400 };
	unsigned int n_looks = 0, most = 0;
	uint64_t n_before;
	int fds[N];

	BEGIN(rig);
	for (unsigned int i = 0; i < N; i++)
		fds[i] = rig_connect(&rig);
	while (rig.server->n_sessions < N + 1) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		n_before = rig.server->n_sessions;
		server_settle(rig.server);
		if (rig.server->n_sessions - n_before > most)
			most = (unsigned int)(rig.server->n_sessions - n_before);
		assert_true(++n_looks < 10 * N);
	}
	/* Accepting takes only a part of the turn, even if there is time: entries may arrive. */
	assert_true(most <= BUDGET / 4);
	assert_true(n_looks >= N / BUDGET);

	for (unsigned int i = 0; i < N; i++)
		close(fds[i]);
	most = 0;
	for (n_looks = 0; rig.server->n_sessions > 1; n_looks++) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		n_before = rig.server->n_sessions;
		server_settle(rig.server);
		if (n_before - rig.server->n_sessions > most)
			most = (unsigned int)(n_before - rig.server->n_sessions);
		assert_true(n_looks < 100 * N);
	}
	assert_true(most <= BUDGET);
}

/* Check that a client that leaves without a message never becomes a session. */
TEST(test_connections__closed_without_message)
{
	enum { N = 200 };
	uint32_t number;

	BEGIN(rig);
	number = rig.server->next_number;
	for (unsigned int i = 0; i < N; i++)
		close(rig_connect(&rig));
	for (unsigned int i = 0; i < 10 * N; i++) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
	}
	assert_false(server_is_settling(rig.server));
	assert_true(list_is_empty(&rig.server->newcomers));
	assert_fields(*rig.server, (next_number, number), (n_sessions, 1));
}

/* Check that a client's message is read after the client has left: here, one that breaks a rule. */
TEST(test_connections__message_before_close)
{
	uint64_t n_hostile;
	int fd;

	BEGIN(rig);
	n_hostile = server_stats(rig.server)->sessions_ended_hostile;
	fd = rig_connect(&rig);
	assert_int_equal(send(fd, "?", 1, 0), 1);
	close(fd);
	for (unsigned int i = 0; i < 100; i++) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
	}
	assert_int_equal(server_stats(rig.server)->sessions_ended_hostile, n_hostile + 1);
	assert_int_equal(rig.server->n_sessions, 1);
}

/*
 * The client sends only a descriptor. The reactor must not close it: closing could take as long as
 * the client likes.
 */
TEST(test_connections__last_descriptor)
{
	struct rig rig;
	int fd;

	for (unsigned int n_empty = 0; n_empty < 2; n_empty++) {
		begin(&rig);
		closers_take_fds(rig.server->clients.fd, true);
		fd = rig_connect(&rig);
		if (n_empty > 0)
			assert_int_equal(send(fd, "", 0, 0), 0);
		rig_send_empty(fd, rig.fd);
		close(fd);
		for (unsigned int i = 0; i < 1000 && rig.server->next_number < 2; i++) {
			assert_true(loop_turn(rig.loop, false) >= 0);
			server_settle(rig.server);
		}
		assert_int_equal(rig.server->next_number, 2);
		while (rig.server->n_sessions > 1 || server_n_discards(rig.server) > 0) {
			assert_true(loop_turn(rig.loop, false) >= 0);
			server_settle(rig.server);
		}
		rig_deinit(&rig);
	}
}

struct busy {
	struct turn_job job;
	struct turn_owner owner;
	struct turn_queue *queue;
};

static void run_busy(struct turn_job *job)
{
	struct busy *busy = container_of(job, struct busy, job);

	turn_queue_submit(busy->queue, &busy->owner, job);
}

/*
 * The maximum of connections is held, all of clients that have left. A client of the same user is
 * still accepted.
 */
TEST(test_connections__behind_closed_ones)
{
	enum { N = 300, MAX = 16 };
	const struct rbk_wire_request request = {.type = RBK_WIRE_HELLO};
	struct rbk_wire_reply reply;
	struct busy busy;
	unsigned int n_turns = 0;
	struct owner *user;
	ssize_t n;
	int fd;

	BEGIN(rig);
	rig.server->max_newcomers = MAX;
	/* Accepting is much faster than the work that follows. */
	user = owner_of_user(rig.server, getuid());
	user->share.flow.weight = 1;
	busy.queue = &rig.server->work;
	turn_owner_init(&busy.owner, 1000, 0);
	turn_job_init(&busy.job, RBK_TURN_OTHER, run_busy);
	run_busy(&busy.job);
	for (unsigned int i = 0; i < N; i++)
		close(rig_connect(&rig));
	fd = rig_connect(&rig);
	assert_true(send(fd, &request, sizeof(request), 0) > 0);
	do {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
		if (++n_turns % 16 == 0)
			usleep(1000);
		assert_true(n_turns < 1000000);
		n = recv(fd, &reply, sizeof(reply), MSG_DONTWAIT);
	} while (n < 0);
	/*
	 * The session ends because of that hello. A refusal would give the number of waiting
	 * connections.
	 */
	assert_true(n == 0 || reply.res != -EAGAIN);
	close(fd);
	turn_queue_withdraw(&rig.server->work, &busy.job);
	owner_unref(user);
	rig_settle(&rig);
}

/*
 * One user's connections arrive faster than they are served, before another user's. The other user
 * does not wait for all of them, and the number of held connections is limited.
 */
TEST(test_connections__another_user)
{
	enum { N = 300, MAX = 16, FLOOD_UID = 40113, OTHER_UID = 40114 };
	unsigned int n_turns = 0, n_refused = 0;
	struct rbk_wire_reply reply;
	struct owner *flood;
	struct busy busy;
	bool is_in = false;
	int fds[N + 1];

	if (geteuid() != 0)
		skip();
	BEGIN(rig);
	rig.server->max_newcomers = MAX;
	flood = owner_of_user(rig.server, FLOOD_UID);
	/* The flooding user has a thousandth of the time, accepting a hundred times as much. */
	flood->share.flow.weight = 1;
	busy.queue = &rig.server->work;
	turn_owner_init(&busy.owner, 1000, 0);
	turn_job_init(&busy.job, RBK_TURN_OTHER, run_busy);
	run_busy(&busy.job);
	for (unsigned int i = 0; i < N; i++) {
		const struct rbk_wire_request request = {.type = RBK_WIRE_HELLO};

		fds[i] = rig_connect_as(&rig, FLOOD_UID);
		assert_true(send(fds[i], &request, sizeof(request), 0) > 0);
	}
	fds[N] = rig_connect_as(&rig, OTHER_UID);
	while (!is_in) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
		/* Shares apply only between users, so one user alone may hold the maximum. */
		assert_true(rig.server->n_newcomers <= MAX + 2);
		list_for_each (node, &rig.server->sessions)
			is_in |= container_of(node, struct session, link)->uid == OTHER_UID;
		if (++n_turns % 16 == 0)
			usleep(1000);
		assert_true(n_turns < 1000000);
	}
	/* Otherwise the other user's connection would come after all of them. */
	assert_true(rig.server->next_number < N / 2);
	for (unsigned int i = 0; i < N; i++)
		if (recv(fds[i], &reply, sizeof(reply), MSG_DONTWAIT) == sizeof(reply) &&
		    reply.res == -EAGAIN && strstr(reply.text, "connections that wait"))
			n_refused++;
	assert_true(n_refused > 0);
	for (unsigned int i = 0; i <= N; i++)
		close(fds[i]);
	turn_queue_withdraw(&rig.server->work, &busy.job);
	owner_unref(flood);
	rig_settle(&rig);
	assert_fields(*rig.server, (n_newcomers, 0), (n_newcomer_users, 0));
}

/* A connection for which there is no memory waits until there is. */
TEST(test_connections__no_memory)
{
	const uint64_t n_before = 1;
	int fd;

	BEGIN(rig);
	fd = rig_connect(&rig);
	while (!server_is_settling(rig.server))
		assert_true(loop_turn(rig.loop, true) >= 0);
	fail_alloc_at(1);
	server_settle(rig.server);
	assert_true(fail_alloc_stop());
	assert_int_equal(rig.server->n_sessions, n_before);
	while (rig.server->n_sessions == n_before) {
		char byte;

		assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
		assert_int_equal(errno, EAGAIN);
		assert_true(loop_turn(rig.loop, true) >= 0);
		server_settle(rig.server);
	}
	close(fd);
}

static unsigned int count_silent(const struct rig *rig)
{
	unsigned int n = 0;

	list_for_each (node, &rig->server->silent)
		n++;
	return n;
}

/*
 * A client that sends nothing is disconnected after a while; a client that has sent its hello
 * stays.
 */
TEST(test_connections__without_hello)
{
	enum { N_SILENT = 30 };
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.abi_minor = RBK_ABI_MINOR,
	};
	unsigned int n_before, n, most = 0;
	int silent[N_SILENT], greeted;
	uint32_t period;

	BEGIN(rig);
	greeted = rig_connect(&rig);
	assert_int_equal(send(greeted, &hello, sizeof(hello), 0), sizeof(hello));
	for (unsigned int i = 0; i < N_SILENT; i++)
		silent[i] = rig_connect(&rig);
	while (rig.server->n_sessions < 2 + N_SILENT || rig_count_answers(greeted) == 0) {
		assert_true(loop_turn(rig.loop, true) >= 0);
		rig_settle(&rig);
	}
	assert_false(list_is_empty(&rig.server->silent));
	rig.server->silent_period_ns = 1000000;
	loop_timer_arm(rig.server->silent_timer, 0);
	/* Few sessions end per turn: ending a session takes the reactor's time. */
	while (rig.server->n_sessions > 2) {
		n_before = count_silent(&rig);
		assert_true(loop_turn(rig.loop, true) >= 0);
		n = n_before - count_silent(&rig);
		rig_settle(&rig);
		most = n > most ? n : most;
	}
	assert_in_range(most, 1, N_SILENT / 2);
	assert_true(list_is_empty(&rig.server->silent));
	/* The sessions of the client that sent its hello and of the bench remain. */
	assert_int_equal(recv(greeted, silent, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(recv(silent[0], silent, 1, MSG_DONTWAIT), 0);
	for (unsigned int i = 0; i < N_SILENT; i++)
		close(silent[i]);

	/*
	 * Only the server arms the timer. It does not end a session before a whole period is over.
	 */
	period = rig.server->silent_period;
	silent[0] = rig_connect(&rig);
	do {
		assert_true(loop_turn(rig.loop, true) >= 0);
		rig_settle(&rig);
	} while (rig.server->n_sessions < 3 && rig.server->silent_period == period);
	while (rig.server->n_sessions > 2) {
		assert_true(loop_turn(rig.loop, true) >= 0);
		rig_settle(&rig);
	}
	assert_true(rig.server->silent_period - period >= 2);
	assert_int_equal(recv(silent[0], silent, 1, MSG_DONTWAIT), 0);
	close(silent[0]);
	close(greeted);
}

static unsigned int n_pauses_logged;

void __wrap_log_line(enum log_level level, enum log_event event, const struct log_about *about,
		     const char *format, ...);

void __wrap_log_line(enum log_level level, enum log_event event, const struct log_about *about,
		     const char *format, ...)
{
	n_pauses_logged += event == LOG_ACCEPT_PAUSED;
}

/* If no descriptor is left, a client is told so and does not wait for one. */
TEST(test_connections__no_descriptors)
{
	const struct rbk_wire_request request = {.type = RBK_WIRE_HELLO, .cookie = 4711};
	struct rlimit before, limit;
	struct rbk_wire_reply reply = {.type = 0};
	uint64_t begin_ns;
	int fds[3], least;

	BEGIN(rig);
	for (unsigned int i = 0; i < 3; i++) {
		fds[i] = rig_connect(&rig);
		assert_true(send(fds[i], &request, sizeof(request), 0) > 0);
	}
	least = dup(0);
	assert_true(least > 0);
	close(least);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	limit.rlim_cur = (rlim_t)least;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (unsigned int i = 0; i < 100; i++) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(recv(fds[i], &reply, sizeof(reply), MSG_DONTWAIT), sizeof(reply));
		assert_fields(reply, (res, -EMFILE), (cookie, 4711));
		assert_non_null(strstr(reply.text, "reached its limit of open files"));
		close(fds[i]);
	}
	assert_int_equal(rig.server->accept_limit.logged_ns, 0);
	/*
	 * Without the spare descriptor clients wait. This is logged within the limit for such
	 * lines.
	 */
	rig.server->spare_fd = close_fd(rig.server->spare_fd);
	fds[0] = rig_connect(&rig);
	n_pauses_logged = 0;
	begin_ns = clock_now_ns();
	least = dup(0);
	assert_true(least > 0);
	close(least);
	limit.rlim_cur = (rlim_t)least;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (unsigned int i = 0; i < 100; i++) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
		/* Act as if the pause were over. */
		turn_queue_submit(&rig.server->work, &rig.server->clients.owner,
				  &rig.server->clients.job);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_true(rig.server->accept_limit.n_unlogged > 0);
	assert_in_range(n_pauses_logged, 1, 1 + (clock_now_ns() - begin_ns) / 1000000000);
	assert_int_equal(rig.server->n_sessions, 1);
	close(fds[0]);
	/* Later clients are accepted. */
	fds[0] = rig_connect(&rig);
	while (rig.server->n_sessions < 2) {
		assert_true(loop_turn(rig.loop, true) >= 0);
		server_settle(rig.server);
	}
	close(fds[0]);
}

/* Without memory, too, only the closing threads do work that a client can prolong. */
TEST(test_discard__no_memory)
{
	int ends[2];

	BEGIN(rig);
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
		rig_send_empty(ends[1], rig.fd);
		fail_alloc_at(1);
		discard_connection(rig.server, rig.session->account, NULL, ends[0],
				   &(struct charge){.account = NULL});
		assert_true(fail_alloc_stop());
		assert_int_equal(server_n_discards(rig.server), 1);
		while (server_n_discards(rig.server) > 0)
			assert_true(loop_turn(rig.loop, true) >= 0);
		close(ends[1]);
	}
}

static struct session *session_for(struct rig *rig, struct tenant *tenant, int *ret_fd)
{
	struct session *session;
	int ends[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	assert_int_equal(session_new(rig->server, ends[0], false, &session, NULL), 0);
	/* Give the session to that tenant. */
	owner_unref(session->owner);
	tenant_unref(session->tenant);
	session->tenant = tenant_ref(tenant);
	session->owner = owner_of_session(session);
	*ret_fd = ends[1];
	return session;
}

/*
 * Ten sessions of one tenant send as much as they can, one session of another tenant sends a few
 * messages. The few are answered at once.
 */
TEST(test_messages__tenants_not_sessions)
{
	enum { N = 10, N_EACH = 100, N_FEW = 5 };
	/* The request is refused, because no hello preceded it. */
	const struct rbk_wire_request request = {.type = RBK_WIRE_STATS};
	struct tenant many = {.number = 1001, .weight = 100}, few = {.number = 1002, .weight = 100};
	struct session *sessions[N + 1];
	unsigned int n_answers = 0, n_looks;
	int fds[N + 1];

	BEGIN(rig);
	many.account = few.account = rig.session->account;
	many.n_refs = few.n_refs = 100;
	for (unsigned int i = 0; i <= N; i++) {
		sessions[i] = session_for(&rig, i < N ? &many : &few, &fds[i]);
		sessions[i]->is_greeted = true;
	}
	for (unsigned int i = 0; i <= N; i++)
		for (unsigned int k = 0; k < (i < N ? N_EACH : N_FEW); k++)
			if (send(fds[i], &request, sizeof(request), MSG_DONTWAIT) < 0)
				break;
	/* The busy tenant has one job per session, and as much time as the other tenant. */
	for (n_looks = 0; n_answers < N_FEW; n_looks++) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
		n_answers += rig_count_answers(fds[N]);
		assert_true(n_looks < 40);
	}
	assert_true(n_looks <= 2 * N_FEW + 2);
	for (unsigned int i = 0; i <= N; i++)
		close(fds[i]);
	while (rig.server->n_sessions > 1) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
	}
	assert_int_equal(count_jobs(&rig), 0);
}

/* The end of a session costs work for that session only: other sessions are not visited. */
TEST(test_end__visits_no_other_session)
{
	enum { N = 300 };
	uint64_t n_alone, n_beside;
	int fds[N];

	BEGIN(rig);
	close(rig_connect(&rig));
	fds[0] = rig_connect(&rig);
	while (rig.server->n_sessions < 2) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
	}
	loop_turn(rig.loop, false);
	session_end(container_of(rig.server->sessions.prev, struct session, link), false, "test");
	n_alone = n_readings;
	rig_settle(&rig);
	n_alone = n_readings - n_alone;
	close(fds[0]);

	for (unsigned int i = 0; i < N; i++)
		fds[i] = rig_connect(&rig);
	while (rig.server->n_sessions < N + 1) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
	}
	rig_settle(&rig);
	session_end(container_of(rig.server->sessions.prev, struct session, link), false, "test");
	assert_int_equal(count_jobs(&rig), 1);
	n_beside = n_readings;
	rig_settle(&rig);
	n_beside = n_readings - n_beside;
	assert_true(n_beside <= n_alone + 10);
	for (unsigned int i = 0; i < N; i++)
		close(fds[i]);
}

/* ---- Resets of statistics ---- */

enum { N_RESET = 2000, MAX_RESETS_OF_TURN = 400 };

static unsigned int n_reset;

static void count_reset(void *context, struct session_plan *plan)
{
	n_reset++;
	plan->memory.n_wanted++;
}

static void add_plan(const struct rig *rig, struct session_plan *plan, uint32_t id)
{
	static const char name[RBK_NAME_BYTES];
	const struct stats_plan_about about = {.name = name, .plan_id = id, .owner = plan};

	*plan = (struct session_plan){.id = id};
	stats_plan_init(&plan->stats, rig->session->tenant_stats, &about, 1);
}

static void ask_reset(int fd)
{
	const struct rbk_wire_stats_of request = {
		.request = {.type = RBK_WIRE_STATS_RESET, .cookie = 1},
		.whose = RBK_WIRE_STATS_OWN,
	};

	assert_int_equal(send(fd, &request, sizeof(request), 0), sizeof(request));
}

/*
 * Turn the loop until @fd is answered.
 * Return: the maximum of plans that one turn visited.
 */
static unsigned int reset_until(const struct rig *rig, int fd)
{
	unsigned int before, most = 0;

	do {
		before = n_reset;
		assert_true(loop_turn(rig->loop, false) >= 0);
		server_settle(rig->server);
		if (n_reset - before > most)
			most = n_reset - before;
	} while (rig_count_answers(fd) == 0);
	return most;
}

static void begin_resets(struct rig *rig, struct session_plan *plans)
{
	begin(rig);
	rig->session->is_greeted = true;
	rig->server->options.publisher = (struct server_publisher){.plan_reset = count_reset};
	n_reset = 0;
	for (unsigned int i = 0; i < N_RESET; i++)
		add_plan(rig, &plans[i], i);
}

static void end_resets(struct rig *rig, struct session_plan *plans)
{
	for (unsigned int i = 0; i < N_RESET; i++)
		stats_plan_deinit(&plans[i].stats);
	rig_settle(rig);
	assert_int_equal(count_jobs(rig), 0);
	rig_deinit(rig);
}

/* The answer comes after the last of many plans, and the next message is not read before. */
TEST(test_reset__in_slices)
{
	static struct session_plan plans[N_RESET];
	struct rig rig;

	begin_resets(&rig, plans);
	ask_reset(rig.fd);
	ask_reset(rig.fd);
	assert_in_range(reset_until(&rig, rig.fd), 1, MAX_RESETS_OF_TURN);
	assert_in_range(n_reset, N_RESET, N_RESET + MAX_RESETS_OF_TURN);
	for (unsigned int i = 0; i < N_RESET; i++)
		assert_true(plans[i].memory.n_wanted > 0);
	assert_in_range(reset_until(&rig, rig.fd), 1, MAX_RESETS_OF_TURN);
	assert_int_equal(n_reset, 2 * N_RESET);
	end_resets(&rig, plans);
}

/*
 * Plans are added and removed meanwhile. Other sessions of the tenant ask, too, and end in the
 * middle.
 */
TEST(test_reset__during_slices)
{
	static struct session_plan plans[N_RESET], late;
	struct session *other;
	struct rig rig;
	int fd;

	begin_resets(&rig, plans);
	other = session_for(&rig, rig.session->tenant, &fd);
	other->is_greeted = true;
	ask_reset(rig.fd);
	while (n_reset == 0) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
	}
	assert_true(n_reset < N_RESET);
	/* The plans that would be next, and the last one. */
	for (unsigned int i = n_reset; i < n_reset + 3; i++)
		stats_plan_deinit(&plans[i].stats);
	stats_plan_deinit(&plans[N_RESET - 1].stats);
	add_plan(&rig, &late, N_RESET);
	ask_reset(fd);
	reset_until(&rig, rig.fd);
	for (unsigned int i = 0; i < N_RESET; i++)
		assert_true(plans[i].memory.n_wanted > 0 || !plans[i].stats.tenant);

	reset_until(&rig, fd);
	assert_true(late.memory.n_wanted > 0);
	ask_reset(fd);
	for (n_reset = 0; n_reset == 0;) {
		assert_true(loop_turn(rig.loop, false) >= 0);
		server_settle(rig.server);
	}
	assert_true(n_reset < N_RESET / 2);
	session_end(other, false, "test");
	rig_settle(&rig);
	assert_true(n_reset < N_RESET / 2);
	close(fd);
	stats_plan_deinit(&late.stats);
	end_resets(&rig, plans);
}

/* Check that an owner is freed with its last reference, and is found until then. */
TEST(test_owner__counted)
{
	struct owner *first, *again, *other;

	BEGIN(rig);
	first = owner_of_user(rig.server, 4711);
	again = owner_of_user(rig.server, 4711);
	other = owner_of_user(rig.server, 4712);
	assert_ptr_equal(first, again);
	assert_ptr_not_equal(first, other);
	assert_int_equal(first->n_users, 2);
	owner_unref(first);
	owner_unref(again);
	owner_unref(other);
	owner_unref(NULL);
	/* The owner still exists while a reference is held. */
	assert_ptr_equal(owner_of_user(rig.server, 4711), first);
	owner_unref(first);
}
