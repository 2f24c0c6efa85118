/* SPDX-License-Identifier: MIT */
/*
 * Restraint of tenants that make requests without end
 *
 * The clock moves only when the test looks or says so, and each reading of the turn's clock takes a
 * fixed time. So a request costs the same each time.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/loop.h"
#include "session/server-private.h"
#include "support/session-rig.h"
#include "support/test.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/clock.h"

enum {
	READING_US = 100, /* time from one reading of the turn's clock to the next */
	BURST_MS = 20,
	PART = 40, /* requests may take 1 / PART of a processor */
	TICK_MS = 4,
	LOOKS = 20,
	LOOK_US = 150,       /* time between two looks, of which some go by from tick to tick */
	ALLOWANCE_MS = 5000, /* time that clients may use that come back */
};

/* Time after the start during which no tenant is restrained */
#define START_NS 2000000000u

/* Other threads read it, too. */
static _Atomic uint64_t stopped_ns; /* time in ns at which the clock stands still; 0: it runs */

uint64_t __wrap_clock_now_ns(void);
uint64_t __real_clock_now_ns(void);

uint64_t __wrap_clock_now_ns(void)
{
	const uint64_t ns = stopped_ns;

	return ns ? ns : __real_clock_now_ns();
}

/* The timers of the rig; that of restraint runs when the test's clock says so. */
static struct timer {
	struct loop_timer **timer;
	loop_timer_fn fn;
	void *data;
	uint64_t due_ns; /* 0: not armed */
} timers[64];
static unsigned int n_timers;

int __wrap_loop_timer_new(struct loop *loop, loop_timer_fn fn, void *data, struct loop_timer **ret);
int __real_loop_timer_new(struct loop *loop, loop_timer_fn fn, void *data, struct loop_timer **ret);
void __wrap_loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns);
void __real_loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns);

int __wrap_loop_timer_new(struct loop *loop, loop_timer_fn fn, void *data, struct loop_timer **ret)
{
	assert_true(n_timers < ARRAY_SIZE(timers));
	timers[n_timers++] = (struct timer){.timer = ret, .fn = fn, .data = data};
	return __real_loop_timer_new(loop, fn, data, ret);
}

static struct timer *tick; /* NULL: not found yet */
static uint64_t n_ticks;

void __wrap_loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns)
{
	if (tick && *tick->timer == timer)
		tick->due_ns = stopped_ns + delay_ns;
	else
		__real_loop_timer_arm(timer, delay_ns);
}

static void find_tick(const struct rig *rig)
{
	for (unsigned int i = 0; i < n_timers; i++)
		if (timers[i].timer == &rig->server->restraint_timer)
			tick = &timers[i];
	assert_non_null(tick);
}

static uint64_t n_readings;

static uint64_t read_steps(void)
{
	return ++n_readings * clock_ns_to_ticks(READING_US * 1000);
}

static uint64_t read_cpu_steps(void)
{
	return n_readings * READING_US * 1000;
}

static bool are_others_busy;

static bool others_work(void *context, const struct tenant *tenant)
{
	return are_others_busy;
}

static void begin(struct rig *rig)
{
	struct turn *turn;

	stopped_ns = 0;
	n_timers = 0;
	tick = NULL;
	rig_init(rig, 1);
	rig_settle(rig);
	rig->session->is_greeted = true;
	rig->server->options.hooks.others_work = others_work;
	are_others_busy = true;
	turn = loop_current(rig->loop);
	turn->read_ticks = read_steps;
	turn->read_cpu_ns = read_cpu_steps;
	turn_reset(turn);
	stopped_ns = __real_clock_now_ns() + START_NS;
	find_tick(rig);
}

static void end(struct rig *rig)
{
	stopped_ns = 0;
	rig_deinit(rig);
}

#define BEGIN(name) SCOPED(rig, name, begin, end)

static void look_once(struct rig *rig)
{
	assert_true(loop_turn(rig->loop, false) >= 0);
	server_settle(rig->server);
	stopped_ns += LOOK_US * 1000;
	if (tick->due_ns > 0 && stopped_ns >= tick->due_ns) {
		tick->due_ns = 0;
		n_ticks++;
		tick->fn(tick->data);
	}
}

static void look(struct rig *rig)
{
	for (unsigned int i = 0; i < LOOKS; i++)
		look_once(rig);
}

static void ask(int fd)
{
	const struct rbk_wire_request request = {.type = RBK_WIRE_STATS};

	assert_int_equal(send(fd, &request, sizeof(request), 0), sizeof(request));
}

/* Ask one question after the other until one is not answered. Return: the number of answers. */
static unsigned int ask_on(struct rig *rig, unsigned int most)
{
	unsigned int n = 0;

	do {
		ask(rig->fd);
		look(rig);
		if (rig_count_answers(rig->fd) == 0)
			return n;
	} while (++n < most);
	return n;
}

static struct restraint *restraint_of(const struct rig *rig)
{
	return &rig->session->owner->restraint;
}

/* Use up the credit. The last question waits. */
static void use_up(struct rig *rig)
{
	enum { MOST = 10 * BURST_MS * 1000 / READING_US };

	assert_true(ask_on(rig, MOST) < MOST);
	assert_false(list_is_empty(&restraint_of(rig)->held));
}

/* The credit suffices for the beginning, and then for a part of the elapsed time. */
TEST(test_restraint__part_of_time)
{
	enum { STEP_MS = 10, STEPS = 400 };
	unsigned int n_first, n = 0;
	uint64_t spent_us, begin_ns, part_us;

	BEGIN(rig);
	n_first = ask_on(&rig, 100000);
	begin_ns = stopped_ns;
	spent_us = clock_ticks_to_ns(rig.session->owner->share.flow.spent) / 1000;
	assert_in_range(spent_us, BURST_MS * 1000, BURST_MS * 1000 * 6 / 5);
	assert_true(n_first > 10);

	for (unsigned int i = 0; i < STEPS; i++) {
		stopped_ns += STEP_MS * 1000000;
		look(&rig);
		if (rig_count_answers(rig.fd) == 0)
			continue;
		n++;
		ask(rig.fd);
	}
	spent_us = clock_ticks_to_ns(rig.session->owner->share.flow.spent) / 1000 - spent_us;
	part_us = (stopped_ns - begin_ns) / 1000 / PART;
	assert_in_range(spent_us, part_us - 10 * READING_US, part_us + 10 * READING_US);
	assert_true(n > 10);
}

/* Nothing waits while others are idle, and what waits goes on as soon as they are. */
TEST(test_restraint__others_idle)
{
	BEGIN(rig);
	use_up(&rig);
	look(&rig);
	assert_int_equal(rig_count_answers(rig.fd), 0);
	are_others_busy = false;
	stopped_ns += TICK_MS * 1000000;
	look(&rig);
	assert_int_equal(rig_count_answers(rig.fd), 1);
	assert_int_equal(ask_on(&rig, 1000), 1000);
}

/* After a pause the tenant may begin again, also if it had a debt. */
TEST(test_restraint__forgotten)
{
	BEGIN(rig);
	use_up(&rig);
	stopped_ns += (uint64_t)3 * PART * BURST_MS * 1000000;
	look(&rig);
	assert_int_equal(rig_count_answers(rig.fd), 1);
	assert_false(restraint_of(&rig)->is_restrained);
	assert_true(ask_on(&rig, 20) == 20);
}

/* Time of other threads counts: in full with two processors, and less with more of them. */
TEST(test_restraint__other_threads)
{
	for (unsigned int i = 0; i < 4; i++) {
		const bool is_closing = i % 2, is_large = i / 2;
		const uint64_t ns = (uint64_t)(is_large ? 4 : 1) * BURST_MS * 1000000;
		struct rig rig;

		begin(&rig);
		rig.server->options.n_processors = is_large ? 8 : 2;
		assert_int_equal(ask_on(&rig, 1), 1);
		if (is_closing)
			account_add_closing(rig.session->account, ns / 2);
		else
			rig.session->tenant->setup.spent += ns / 2;
		assert_int_equal(ask_on(&rig, 1), 1);
		if (is_closing)
			account_add_closing(rig.session->account, ns / 2);
		else
			rig.session->tenant->setup.spent += ns / 2;
		assert_int_equal(ask_on(&rig, 1), 0);
		end(&rig);
	}
}

/* Time that the tenant spent before it has been looked at does not count, whoever looks first. */
TEST(test_restraint__time_before)
{
	int fds[2];

	BEGIN(rig);
	rig.session->tenant->setup.spent += 100000000000;
	/* The second connection looks at the tenant of the user's last session. */
	for (unsigned int i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = rig_connect(&rig);
		look(&rig);
	}
	assert_true(restraint_of(&rig)->looked_ns > 0);
	assert_int_equal(ask_on(&rig, 1), 1);
	for (unsigned int i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	look(&rig);
}

/* Time that was spent while the credit filled counts against what filled it. */
TEST(test_restraint__time_between_looks)
{
	const uint64_t pause_ns = 100000000000;

	BEGIN(rig);
	assert_int_equal(ask_on(&rig, 1), 1);
	stopped_ns += pause_ns;
	rig.session->tenant->setup.spent += pause_ns / PART * 9 / 10;
	assert_int_equal(ask_on(&rig, 1), 1);
	assert_false(restraint_of(&rig)->is_restrained);
}

/* A single long job delays the next request by a limited time. */
TEST(test_restraint__debt_is_limited)
{
	BEGIN(rig);
	assert_int_equal(ask_on(&rig, 1), 1);
	rig.session->tenant->setup.spent += 100000000000;
	assert_int_equal(ask_on(&rig, 1), 0);
	stopped_ns += (uint64_t)(PART * BURST_MS - 10) * 1000000;
	look(&rig);
	assert_int_equal(rig_count_answers(rig.fd), 0);
	stopped_ns += 10000000;
	look(&rig);
	assert_int_equal(rig_count_answers(rig.fd), 1);
}

/*
 * A tenant whose other work, for example reloading of evicted plans, takes more than its part all
 * the time is not held for ever.
 */
TEST(test_restraint__other_work_goes_on)
{
	const uint64_t step_ns = 10000000;
	unsigned int n = 0;

	BEGIN(rig);
	use_up(&rig);
	for (unsigned int i = 0; i < 300; i++) {
		stopped_ns += step_ns;
		rig.session->tenant->setup.spent += step_ns / 10;
		look(&rig);
		if (rig_count_answers(rig.fd) == 0)
			continue;
		n++;
		ask(rig.fd);
	}
	assert_in_range(n, 2, 10);
}

/* A tick serves one request of a session, however many wait behind it. */
TEST(test_restraint__one_in_a_tick)
{
	uint64_t n;

	BEGIN(rig);
	use_up(&rig);
	ask(rig.fd);
	ask(rig.fd);
	/* Enough credit for all of them, but not to be free again. */
	stopped_ns += (uint64_t)PART * BURST_MS * 1000000 / 4;
	for (unsigned int i = 0; i < 3; i++) {
		n = n_ticks;
		while (n_ticks == n)
			look_once(&rig);
		look_once(&rig);
		look_once(&rig);
		assert_int_equal(rig_count_answers(rig.fd), 1);
	}
	assert_true(restraint_of(&rig)->is_restrained);
	look(&rig);
	assert_int_equal(rig_count_answers(rig.fd), 0);
}

/* However small its requests, a restrained tenant interrupts others once in a tick. */
TEST(test_restraint__ticks_are_rare)
{
	enum { TICKS = 50 };
	unsigned int n = 0;
	uint64_t end_ns;

	BEGIN(rig);
	use_up(&rig);
	end_ns = stopped_ns + TICKS * TICK_MS * 1000000;
	while (stopped_ns < end_ns) {
		/* It owes nothing. */
		restraint_of(&rig)->credit_ns = READING_US * 10000;
		look_once(&rig);
		if (rig_count_answers(rig.fd) == 0)
			continue;
		n++;
		ask(rig.fd);
	}
	assert_true(restraint_of(&rig)->is_restrained);
	assert_in_range(n, TICKS * 3 / 4, TICKS);
}

/* An end does not wait, whatever waits before it. */
TEST(test_restraint__end)
{
	BEGIN(rig);
	use_up(&rig);
	close(rig.fd);
	rig.fd = -1;
	look(&rig);
	assert_true(rig.server->n_sessions == 0);
}

/* The broker ends a session of which a request waits. */
TEST(test_restraint__ended_by_broker)
{
	BEGIN(rig);
	use_up(&rig);
	session_end(rig.session, false, "for the test");
	assert_true(list_is_empty(&rig.session->owner->restraint.held));
	look(&rig);
	assert_true(rig.server->n_sessions == 0);
	assert_true(list_is_empty(&rig.server->restrained));
}

/* A broker that restarts keeps no client waiting, nor does one that stops. */
TEST(test_restraint__restart)
{
	BEGIN(rig);
	use_up(&rig);
	server_hold_connections(rig.server, true);
	look(&rig);
	assert_int_equal(rig_count_answers(rig.fd), 1);
	assert_int_equal(ask_on(&rig, 100), 100);
	server_hold_connections(rig.server, false);
	assert_int_equal(ask_on(&rig, 1), 0);
}

/* Clients that come back to a broker that has just started do not wait. */
TEST(test_restraint__after_start)
{
	BEGIN(rig);
	stopped_ns = rig.server->started_ns;
	assert_int_equal(ask_on(&rig, 300), 300);
	assert_true(stopped_ns < rig.server->started_ns + START_NS);
	stopped_ns = rig.server->started_ns + START_NS;
	use_up(&rig);
}

/* Make a request as a client does that comes back. */
static void want(const struct rig *rig)
{
	const struct rbk_wire_id request = {
		.request = {.type = RBK_WIRE_WANT_ID},
		.id = 1,
	};

	assert_int_equal(send(rig->fd, &request, sizeof(request), 0), sizeof(request));
}

/*
 * Come back with one object after the other, each of which takes @ns of the setup thread, until a
 * request waits. Return: the number of objects.
 */
static unsigned int come_back(struct rig *rig, uint64_t ns, unsigned int most)
{
	unsigned int n = 0;

	rig->session->features |= RBK_FEAT_REATTACH;
	do {
		want(rig);
		look(rig);
		if (rig_count_answers(rig->fd) == 0)
			return n;
		rig->session->tenant->setup.spent += ns;
	} while (++n < most);
	return n;
}

/* A client that comes back long after the broker's start does not wait either. */
TEST(test_restraint__return)
{
	BEGIN(rig);
	stopped_ns += 3600000000000;
	assert_int_equal(come_back(&rig, 1000000, 1000), 1000);
	/* It has its credit as before. */
	assert_int_equal(restraint_of(&rig)->credit_ns, BURST_MS * 1000000);
	stopped_ns += 1000000000;
	use_up(&rig);
}

/* It does not wait for a debt of its tenant, beyond a request that waits already. */
TEST(test_restraint__return_in_debt)
{
	uint64_t returned_ns;

	BEGIN(rig);
	rig.session->features |= RBK_FEAT_REATTACH;
	use_up(&rig);
	want(&rig);
	returned_ns = restraint_of(&rig)->returned_ns;
	while (restraint_of(&rig)->returned_ns == returned_ns) {
		rig.session->tenant->setup.spent += 1000000;
		look(&rig);
	}
	rig_count_answers(rig.fd);
	assert_true(restraint_of(&rig)->credit_ns < -BURST_MS * 1000000 / 2);
	assert_int_equal(come_back(&rig, 1000000, 100), 100);
}

/* Nor does its first request wait, or its HELLO: the broker looks at what would wait. */
TEST(test_restraint__return_at_once)
{
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.abi_minor = RBK_ABI_MINOR,
		.features = RBK_FEAT_REATTACH | RBK_FEAT_LEASES | RBK_FEAT_RESTORE,
	};
	const struct rbk_wire_lease_open restore = {.request = {.type = RBK_WIRE_LEASE_OPEN},
						    .flags = RBK_WIRE_LEASE_RESTORE,
						    .number = 1};
	const struct rbk_wire_lease_open open = {.request = {.type = RBK_WIRE_LEASE_OPEN}};
	const struct rbk_wire_id id = {.request = {.type = RBK_WIRE_WANT_ID}, .id = 1};
	const struct rbk_wire_request stats = {.type = RBK_WIRE_STATS};
	const struct {
		const void *request;
		size_t n_bytes;
		bool waits;
	} rows[] = {
		{&hello, sizeof(hello), false},     {&stats, sizeof(stats), true},
		{&id, sizeof(id), false},           {&open, sizeof(open), true},
		{&restore, sizeof(restore), false},
	};
	struct session *session;
	int ends[2];

	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		BEGIN(rig);
		assert_int_equal(
			socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends),
			0);
		assert_int_equal(session_new(rig.server, ends[0], false, &session, NULL), 0);
		session->is_greeted = i > 0;
		session->features = hello.features;
		use_up(&rig);
		rig.session->tenant->setup.spent += BURST_MS * 1000000;
		assert_true(send(ends[1], rows[i].request, rows[i].n_bytes, 0) > 0);
		look(&rig);
		assert_int_equal(rig_count_answers(ends[1]), rows[i].waits ? 0 : 1);
		close(ends[1]);
	}
}

/* A client that comes back without end gains a part of a processor that hardly counts. */
TEST(test_restraint__return_without_end)
{
	enum { STEPS = 600, OBJECT_MS = 5 };
	const uint64_t step_ns = 10000000;
	uint64_t spent_ns, begin_ns;
	unsigned int n;

	BEGIN(rig);
	n = come_back(&rig, OBJECT_MS * 1000000, 10000);
	/* The requests themselves take time, too. */
	assert_in_range(n * OBJECT_MS, ALLOWANCE_MS / 5 * 4, ALLOWANCE_MS + 10 * OBJECT_MS);
	begin_ns = stopped_ns;
	spent_ns = rig.session->tenant->setup.spent;
	for (unsigned int i = 0; i < STEPS; i++) {
		stopped_ns += step_ns;
		look(&rig);
		if (rig_count_answers(rig.fd) == 0)
			continue;
		rig.session->tenant->setup.spent += OBJECT_MS * 1000000;
		want(&rig);
	}
	spent_ns = rig.session->tenant->setup.spent - spent_ns;
	assert_true(spent_ns <= (stopped_ns - begin_ns) / PART + 4 * OBJECT_MS * 1000000);
	/* The next broker dies some time. */
	stopped_ns += 2000000000000;
	look(&rig);
	rig_count_answers(rig.fd);
	assert_true(come_back(&rig, OBJECT_MS * 1000000, 10000) >= n - 10);
}

/* Connect and say hello. */
static int hello(const struct rig *rig)
{
	const struct rbk_wire_hello request = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
	};
	int fd = rig_connect(rig);

	assert_true(send(fd, &request, sizeof(request), 0) > 0);
	return fd;
}

/*
 * A user whose tenant has used up its credit cannot connect either, and a connection alone uses up
 * the user's. What waits is freed with its connection.
 */
TEST(test_restraint__connections)
{
	enum { MOST = 100000 };
	unsigned int n = 0;
	uint32_t number;
	int fd;

	BEGIN(rig);
	/* The user's first session shows to which tenant it belongs. */
	fd = rig_connect(&rig);
	look(&rig);
	assert_int_equal(rig.server->n_sessions, 2);
	use_up(&rig);
	close(fd);
	look(&rig);
	assert_int_equal(rig.server->n_sessions, 1);
	fd = hello(&rig);
	look(&rig);
	assert_int_equal(rig.server->n_sessions, 1);
	assert_int_equal(rig.server->n_newcomers, 1);
	close(fd);

	stopped_ns += (uint64_t)3 * PART * BURST_MS * 1000000;
	look(&rig);
	assert_int_equal(rig.server->n_newcomers, 0);
	number = rig.server->next_number;
	do {
		fd = hello(&rig);
		look(&rig);
		close(fd);
		look(&rig);
	} while (rig.server->next_number > number + n && ++n < MOST);
	assert_true(n > 10 && n < MOST);
}

/* An owner with a debt is kept, or a client could come back without it. */
TEST(test_restraint__debt_is_kept)
{
	struct owner *owner, *again;

	BEGIN(rig);
	are_others_busy = false;
	owner = owner_of_user(rig.server, 4711);
	owner->share.flow.spent += clock_ns_to_ticks(BURST_MS * 1000000);
	owner_unref(owner);
	/* In the same list */
	owner_unref(owner_of_user(rig.server, 4711 + SERVER_OWNERS));
	again = owner_of_user(rig.server, 4711);
	assert_true(again->share.flow.spent > 0);
	owner_unref(again);
	stopped_ns += (uint64_t)2 * PART * BURST_MS * 1000000;
	owner_unref(owner_of_user(rig.server, 4711 + 2 * SERVER_OWNERS));
	again = owner_of_user(rig.server, 4711);
	assert_int_equal(again->share.flow.spent, 0);
	/* It is kept as well until it could come back with all that it had. */
	again->restraint.allowance_ns -= 1000000000;
	owner_unref(again);
	stopped_ns += (uint64_t)2 * PART * BURST_MS * 1000000;
	owner_unref(owner_of_user(rig.server, 4711 + 3 * SERVER_OWNERS));
	again = owner_of_user(rig.server, 4711);
	assert_true(again->restraint.allowance_ns < (uint64_t)ALLOWANCE_MS * 1000000);
	owner_unref(again);
}
