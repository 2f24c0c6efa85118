/* SPDX-License-Identifier: MIT */
/*
 * Updates of statistics pages in rounds: a turn does its share, however many sessions there are
 *
 * Time is counted in readings of the clock; see test-session-turn.c.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "contention/contention.h"
#include "control/publish.h"
#include "loop/loop.h"
#include "memory/budget.h"
#include "support/session-rig.h"
#include "support/test.h"
#include "telemetry/telemetry.h"
#include "util/checked.h"
#include "util/clock.h"

enum { BUDGET = 8, N_SESSIONS = 300, PIECES = 32 };

static uint64_t n_readings;

static uint64_t read_steps(void)
{
	return ++n_readings;
}

/* ---- Stubs of other modules ---- */

uint64_t budget_usable_bytes(const struct budget *budget, uint32_t device)
{
	return 0;
}

void budget_look_at_leases(struct budget *budget)
{
}

uint64_t budget_leased_bytes(const struct budget *budget, uint32_t device)
{
	return 0;
}

void contention_set_watched(struct contention *contention, bool is_watched)
{
}

void contention_reset(struct contention *contention)
{
}

void contention_publish(const struct contention *contention, struct stats *stats)
{
}

uint64_t residency_vram_bytes(const struct plan_memory *memory, unsigned int device)
{
	return 0;
}

bool __wrap_telemetry_read(const struct telemetry *telemetry, uint32_t device,
			   struct device_reading *ret);

bool __wrap_telemetry_read(const struct telemetry *telemetry, uint32_t device,
			   struct device_reading *ret)
{
	return false;
}

/* ---- */

struct kit {
	struct rig rig;
	struct publish *publish;
	struct publish_self self;
	struct rbk_stats_view view; /* the root page */
	int fds[N_SESSIONS];
	unsigned int n_sessions;
};

static void kit_begin(struct kit *kit)
{
	struct turn *turn;

	rig_init(&kit->rig, 1);
	kit->n_sessions = 0;
	assert_int_equal(publish_new(
				 &(const struct publish_options){
					 .loop = kit->rig.loop,
					 .offload = kit->rig.offload,
					 .tenants = kit->rig.tenants,
					 .residency = kit->rig.residency,
					 .dispatch = kit->rig.dispatch,
					 .executors = kit->rig.executors,
					 .n_executors = 1,
					 .self = &kit->self,
				 },
				 &kit->publish),
			 0);
	kit->rig.server->options.publisher = publish_hooks(kit->publish);
	publish_start(kit->publish, kit->rig.server);
	assert_int_equal(server_watch_root(kit->rig.server, &kit->view), 0);
	turn = loop_current(kit->rig.loop);
	turn->read_ticks = read_steps;
	turn->budget_ticks = BUDGET;
	turn_reset(turn);
}

static void kit_end(struct kit *kit)
{
	for (unsigned int i = 0; i < kit->n_sessions; i++)
		close(kit->fds[i]);
	server_unwatch_root(kit->rig.server);
	kit->rig.server->options.publisher = (struct server_publisher){.update = NULL};
	kit->publish = publish_free(kit->publish);
	rig_deinit(&kit->rig);
}

static void add_sessions(struct kit *kit, unsigned int n)
{
	struct session *session;
	int ends[2];

	for (; n > 0; n--) {
		assert_int_equal(
			socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
			0);
		assert_int_equal(session_new(kit->rig.server, ends[0], false, &session, NULL), 0);
		strcpy(session->name, "crowd");
		kit->fds[kit->n_sessions++] = ends[1];
	}
}

/* Return the number of sessions whose names are in the page. */
static unsigned int count_named(const struct kit *kit)
{
	const struct rbk_stats_session *record;
	unsigned int n = 0;

	for (uint32_t i = 0; i < rbk_stats_used(&kit->view, RBK_STATS_SECTION_SESSIONS); i++) {
		record = rbk_stats_record(&kit->view, RBK_STATS_SECTION_SESSIONS, i);
		n += record && strcmp(record->name, "crowd") == 0;
	}
	return n;
}

static uint64_t shown_sessions(const struct kit *kit)
{
	return ((const struct rbk_stats_broker *)rbk_stats_record(&kit->view,
								  RBK_STATS_SECTION_BROKER, 0))
		->n_sessions;
}

static void update(struct kit *kit)
{
	const struct server_publisher *publisher = &kit->rig.server->options.publisher;

	/* Act as if the last update were long ago. */
	publisher->reset(publisher->context);
	publisher->update(publisher->context);
}

/* With few sessions the page is complete at once, whatever the turn has spent before. */
TEST(test_round__few_at_once)
{
	static struct kit kit;

	kit_begin(&kit);
	add_sessions(&kit, 20);
	loop_current(kit.rig.loop)->other_ticks = 100 * BUDGET;
	update(&kit);
	assert_int_equal(count_named(&kit), 20);
	assert_int_equal(shown_sessions(&kit), 21);
	kit_end(&kit);
}

/* With many sessions, each of several consecutive turns updates some; then the page is complete. */
TEST(test_round__many_in_slices)
{
	unsigned int n_before, n, n_turns = 0, most = 0;
	static struct kit kit;

	kit_begin(&kit);
	add_sessions(&kit, N_SESSIONS);
	update(&kit);
	most = count_named(&kit);
	assert_int_not_equal(shown_sessions(&kit), N_SESSIONS + 1);
	while (shown_sessions(&kit) != N_SESSIONS + 1) {
		n_before = count_named(&kit);
		assert_true(loop_turn(kit.rig.loop, true) >= 0);
		n = count_named(&kit) - n_before;
		most = n > most ? n : most;
		assert_true(++n_turns < N_SESSIONS);
	}
	assert_int_equal(count_named(&kit), N_SESSIONS);
	assert_in_range(most, 1, PIECES + BUDGET);
	assert_true(n_turns >= N_SESSIONS / (PIECES + BUDGET));
	kit_end(&kit);
}

/* Sessions that end during a round leave no records in the page. */
TEST(test_round__sessions_leave)
{
	static struct kit kit;

	kit_begin(&kit);
	add_sessions(&kit, N_SESSIONS);
	update(&kit);
	for (unsigned int i = 0; i < N_SESSIONS; i++)
		close(kit.fds[i]);
	kit.n_sessions = 0;
	while (kit.rig.server->n_sessions > 1 || shown_sessions(&kit) != 1) {
		rig_settle(&kit.rig);
		update(&kit);
	}
	assert_int_equal(count_named(&kit), 0);
	kit_end(&kit);
}

/* Contention that comes and goes changes the figures of a plan that runs no more tasks. */
TEST(test_round__contention_of_idle_plans)
{
	static const uint8_t bytes[] = {0, 96, 0}; /* in steps of 1/32 of an octave */
	struct session_plan *plan;
	struct placer *placer;
	static struct kit kit;

	kit_begin(&kit);
	placer = dispatch_placer(kit.rig.dispatch);
	plan = rig_relu(&kit.rig, true);
	/* The watched root page brings pages of all tenants. */
	while (!kit.rig.session->tenant_stats->page.header)
		rig_settle(&kit.rig);
	for (size_t i = 0; i < ARRAY_SIZE(bytes); i++) {
		placer_set_contention(placer, RBK_DEVICE_CPU, bytes[i] ? 8 : 1, clock_now_ns());
		update(&kit);
		assert_int_equal(plan->stats.record->devices[RBK_DEVICE_CPU].contention, bytes[i]);
	}
	kit_end(&kit);
}
