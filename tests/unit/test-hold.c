/* SPDX-License-Identifier: MIT */
/*
 * Bounds on memory and descriptors that clients keep, and on the time that others wait for clients
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/loop.h"
#include "session/server-private.h"
#include "support/session-rig.h"
#include "support/test.h"
#include "util/clock.h"

enum { N_ENTRIES = 64 };

/* The timer that was armed last, among timers armed for @only_ns if that is not 0. */
static struct {
	struct loop_timer *timer;
	uint64_t delay_ns, only_ns;
	unsigned int n;
} armed;

void __real_loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns);
void __wrap_loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns);
void __wrap_loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns)
{
	__real_loop_timer_arm(timer, delay_ns);
	if (armed.only_ns && delay_ns != armed.only_ns)
		return;
	armed.timer = timer;
	armed.delay_ns = delay_ns;
	armed.n++;
}

/* The stopped clock, in ns; 0: time passes. Other threads read it. */
static _Atomic uint64_t stopped_ns;

uint64_t __real_clock_now_ns(void);
uint64_t __wrap_clock_now_ns(void);
uint64_t __wrap_clock_now_ns(void)
{
	uint64_t ns = stopped_ns;

	return ns ? ns : __real_clock_now_ns();
}

static struct account *account_of(const struct rig *rig)
{
	return rig->session->tenant->account;
}

static uint64_t used(const struct rig *rig, enum account_slot slot)
{
	return account_used(account_of(rig), slot);
}

/* Limit the tenant to its present use plus @more. */
static void limit(const struct rig *rig, enum account_slot slot, uint64_t more)
{
	struct account_limits limits;

	memset(&limits, 0xff, sizeof(limits));
	limits.max[slot] = used(rig, slot) + more;
	account_set_limits(account_of(rig), &limits);
}

static void make_pair(int ends[2])
{
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
}

/* Read all answers. */
static void read_all(int fd)
{
	char bytes[8192];

	while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

/*
 * End a connection with unread answers.
 * Return: the client's end.
 */
static int leave_unread(const struct rig *rig, unsigned int n_answers)
{
	static const char bytes[4096];
	struct charge fd_charge = {.account = NULL};
	struct hold *hold;
	int ends[2];

	make_pair(ends);
	for (unsigned int i = 0; i < n_answers; i++)
		assert_int_equal(send(ends[0], bytes, sizeof(bytes), 0), sizeof(bytes));
	assert_int_equal(account_charge(account_of(rig), &fd_charge, ACCOUNT_FDS, 1), 0);
	assert_int_equal(hold_new(rig->server, 0, &hold), 0);
	hold_leave_connection(hold, ends[0], rig->session->user, account_of(rig),
			      (struct charge *[]){&fd_charge, NULL, NULL}, false);
	return ends[1];
}

/* Kernel memory for unread answers of an ended connection stays charged. */
TEST(test_connection__unread)
{
	uint64_t host, fds;
	int fd;

	RIG(rig, 1);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	fds = used(&rig, ACCOUNT_FDS);
	fd = leave_unread(&rig, 5);
	assert_true(used(&rig, ACCOUNT_HOST_BYTES) >= host + 5 * 4096);
	assert_int_equal(used(&rig, ACCOUNT_FDS), fds + 1);
	assert_false(holds_look(rig.server, account_of(&rig)));
	read_all(fd);
	assert_true(holds_look(rig.server, account_of(&rig)));
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host);
	assert_int_equal(used(&rig, ACCOUNT_FDS), fds);
	close(fd);
}

static int send_shared(const struct rig *rig)
{
	struct rbk_wire_reply reply = {.type = RBK_WIRE_STATS_PAGE};

	return session_reply_fd(rig->session, &reply, sizeof(reply), rig->fd, true);
}

/* At most HOLD_SENT_MAX shared descriptors are in flight to a session. */
TEST(test_sent__bounded)
{
	uint64_t fds;

	RIG(rig, 1);
	fds = used(&rig, ACCOUNT_FDS);
	for (unsigned int i = 1; i <= HOLD_SENT_MAX; i++) {
		assert_int_equal(send_shared(&rig), 0);
		assert_int_equal(used(&rig, ACCOUNT_FDS), fds + i);
	}
	assert_int_equal(send_shared(&rig), SESSION_E_REFUSED);
	assert_int_equal(used(&rig, ACCOUNT_FDS), fds + HOLD_SENT_MAX);
	for (unsigned int i = 0; i < HOLD_SENT_MAX; i++)
		assert_int_equal(rig_answer(&rig, RBK_WIRE_STATS_PAGE, NULL, 0), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_STATS_PAGE, NULL, 0), -EBUSY);
	assert_int_equal(send_shared(&rig), 0);
	assert_int_equal(used(&rig, ACCOUNT_FDS), fds + 1);
}

/* Room that a client has just made counts for the next session. */
TEST(test_unread__freed_room_admits_session)
{
	struct session *session;
	int fd, ends[2];

	RIG(rig, 1);
	fd = leave_unread(&rig, 1);
	limit(&rig, ACCOUNT_FDS, 0);
	make_pair(ends);
	assert_int_equal(session_new(rig.server, ends[0], false, &session, NULL),
			 SESSION_E_REFUSED);
	close(ends[1]);
	read_all(fd);
	make_pair(ends);
	assert_int_equal(session_new(rig.server, ends[0], false, &session, NULL), 0);
	close(ends[1]);
	close(fd);
}

TEST(test_unread__freed_room_admits_ring)
{
	struct rig_ring ring;
	int fd;

	RIG(rig, 1);
	/* The room is enough for a small ring. */
	rig.session->features &= ~(RBK_FEAT_UNDO | RBK_FEAT_AFTER);
	fd = leave_unread(&rig, 20);
	limit(&rig, ACCOUNT_HOST_BYTES, 1000);
	assert_int_equal(session_ring_add(rig.session, 1, N_ENTRIES), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_ADD, NULL, 0), -EDQUOT);
	read_all(fd);
	rig_ring_new(&rig, N_ENTRIES, &ring);
	rig_ring_deinit(&ring);
	close(fd);
}

TEST(test_unread__freed_room_admits_page)
{
	int fds[2];

	RIG(rig, 1);
	for (unsigned int i = 0; i < 2; i++)
		fds[i] = leave_unread(&rig, 1);
	limit(&rig, ACCOUNT_FDS, 0);
	assert_int_equal(session_stats_want(rig.session), ACCOUNT_E_QUOTA);
	for (unsigned int i = 0; i < 2; i++)
		read_all(fds[i]);
	assert_int_equal(session_stats_want(rig.session), 0);
	for (unsigned int i = 0; i < 2; i++)
		close(fds[i]);
}

/* A session does not end for unread answers if reading others has made room. */
TEST(test_unread__freed_room_keeps_session)
{
	struct rbk_wire_stats reply = {.reply = {.type = RBK_WIRE_STATS}};
	int fd;

	RIG(rig, 1);
	/* The room is enough for a small ring. */
	rig.session->features &= ~(RBK_FEAT_UNDO | RBK_FEAT_AFTER);
	fd = leave_unread(&rig, 20);
	limit(&rig, ACCOUNT_HOST_BYTES, 0);
	read_all(fd);
	while (hold_unread_bytes(rig.session->fd) < 32768 && !rig.session->is_ending)
		session_reply(rig.session, &reply.reply, sizeof(reply));
	assert_false(rig.session->is_ending);
	close(fd);
}

/*
 * Let the timer of holds fire.
 * Return: the delay until it fires again.
 */
static uint64_t fire(struct rig *rig, struct loop_timer *timer)
{
	const unsigned int n_before = armed.n;

	__real_loop_timer_arm(timer, 0);
	while (armed.n == n_before || armed.timer != timer)
		assert_true(loop_turn(rig->loop, true) >= 0);
	return armed.delay_ns;
}

/* The timer checks ever more rarely while nothing changes, and soon again after a change. */
TEST(test_timer__shorter_after_a_change)
{
	struct loop_timer *timer;
	uint64_t first_ns, delay_ns, last_ns;
	int fds[3];

	RIG(rig, 1);
	rig_settle(&rig);
	for (unsigned int i = 0; i < 3; i++)
		fds[i] = leave_unread(&rig, 1);
	timer = armed.timer;
	first_ns = armed.delay_ns;
	for (delay_ns = first_ns, last_ns = 0; delay_ns != last_ns;) {
		last_ns = delay_ns;
		delay_ns = fire(&rig, timer);
		assert_true(delay_ns >= last_ns && delay_ns <= 2 * last_ns);
	}
	assert_true(last_ns >= 50 * first_ns);
	read_all(fds[1]);
	assert_int_equal(fire(&rig, timer), first_ns);
	assert_int_equal(fire(&rig, timer), 2 * first_ns);
	for (unsigned int i = 0; i < 3; i++)
		close(fds[i]);
}

/* Let the stuck thread end its job, and wait until all closings are done. */
static void end_stuck(struct rig *rig, struct rig_stuck *stuck)
{
	rig_unstick(stuck);
	while (server_n_discards(rig->server) > 0)
		assert_true(loop_turn(rig->loop, true) >= 0);
}

/* An administrator who asks for a page is answered, however long the tenant's thread is busy. */
TEST(test_page__administrator_beside_busy_tenant)
{
	enum { PATIENCE_NS = 500000000 };
	struct rbk_wire_stats_of of = {
		.request = {.type = RBK_WIRE_STATS_PAGE},
		.whose = RBK_WIRE_STATS_TENANT,
	};
	struct session *admin;
	struct rig_stuck stuck;
	struct rbk_wire_reply reply = {.res = 0};
	int ends[2];

	RIG(rig, 1);
	of.tenant = rig.session->tenant->number;
	rig_stick(&rig, account_of(&rig), &stuck);
	assert_int_equal(session_stats_want(rig.session), 0);
	make_pair(ends);
	assert_int_equal(session_new(rig.server, ends[0], true, &admin, NULL), 0);
	armed.timer = NULL;
	armed.only_ns = PATIENCE_NS;
	assert_int_equal(session_stats_page(admin, &of), 0);
	armed.only_ns = 0;
	assert_non_null(armed.timer);
	assert_true(admin->is_suspended);
	__real_loop_timer_arm(armed.timer, 0);
	while (recv(ends[1], &reply, sizeof(reply), 0) < 0) {
		assert_true(loop_turn(rig.loop, !server_is_settling(rig.server)) >= 0);
		server_settle(rig.server);
	}
	assert_int_equal(reply.res, -ENOENT);
	assert_false(admin->is_suspended);
	end_stuck(&rig, &stuck);
	close(ends[1]);
}

/* The broker's shutdown waits two seconds for busy threads, also if none is stuck. */
TEST(test_end__bounded)
{
	const uint64_t patience_ns = 2000000000;
	struct rig_stuck stuck;

	RIG(rig, 1);
	session_end(rig.session, false, "it is over");
	rig_settle(&rig);
	rig.session = NULL;
	assert_int_equal(rig.server->n_sessions, 0);
	assert_true(server_is_empty(rig.server));
	stopped_ns = __real_clock_now_ns();
	rig_stick(&rig, tenants_broker_account(rig.tenants), &stuck);
	assert_false(server_is_empty(rig.server));
	rig.server->end_ns = stopped_ns - patience_ns + 1;
	assert_false(server_is_empty(rig.server));
	rig.server->end_ns--;
	assert_true(server_is_empty(rig.server));
	stopped_ns = 0;
	end_stuck(&rig, &stuck);
}
