/* SPDX-License-Identifier: MIT */
/*
 * Publishing figures
 *
 * Counts are in the pages already; this file computes the rest. While no client watches, nothing is
 * computed, and the timer does not run. The work of an update is bounded: at most so many tenants
 * and plans, least recently updated first, which is why both lists are rotated. Of the plans only
 * those are computed that completed tasks, were loaded or were evicted since. A request for pages
 * within update_min_ns gets the figures of the last update.
 *
 * A tenant's share of a device is its part of the device time that all tenants used since the last
 * update: what people mean by "who is using it now".
 *
 * Sessions are updated in the same way, each in its turn.
 *
 * Clients decide how much there is to compute. So an update is a round in steps, each of them one
 * device, tenant, session or lease. A round stops when the turn's budget is used up, and continues
 * in the next turn; the figures of the whole page come with the last step.
 */
#include "control/publish-private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "contention/contention.h"
#include "dispatch/dispatch.h"
#include "loop/loop.h"
#include "loop/offload.h"
#include "loop/turn.h"
#include "memory/budget.h"
#include "place/placer.h"
#include "session/closers.h"
#include "session/session.h"
#include "stats/stats.h"
#include "tenant/tenant.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/number.h"
#include "util/utf8.h"

enum {
	/*
	 * A round gets at least 1 / PUBLISH_PART of a turn's budget, and PUBLISH_PIECES pieces, in
	 * one go.
	 */
	PUBLISH_PART = 4,
	PUBLISH_PIECES = 32,
	/* Most records per update; tools/monitor/pages.c waits for the others. */
	MAX_TENANTS = 64,
	MAX_SESSIONS = 1024,
	MAX_LEASES = 512,
};
static const uint64_t period_ns = 250000000;
static const uint64_t update_min_ns = 10000000;

/* --- The whole --- */

static void heartbeat(struct publish *publish, uint64_t now_ns)
{
	const uint64_t realtime_ns = clock_read_ns(CLOCK_REALTIME);

	stats_heartbeat(publish->stats, now_ns, (int64_t)(clock_now_ns() - now_ns),
			(int64_t)(realtime_ns - now_ns));
}

_Static_assert(ARRAY_SIZE(((struct rbk_stats_broker *)0)->n_turn_overruns) == RBK_TURN_CAUSES,
	       "each cause has its count");

static void describe_turns(const struct publish *publish, struct rbk_stats_broker *ret)
{
	const struct turn_report *report = &loop_current(publish->options.loop)->report;

	ret->longest_turn_ns = clock_ticks_to_ns(report->longest_ticks);
	ret->longest_turn_cause = report->longest.cause;
	ret->longest_turn_tenant = report->longest.tenant;
	memcpy(ret->n_turn_overruns, report->n_overruns, sizeof(ret->n_turn_overruns));
}

_Static_assert((int)RBK_SETUP_CAUSES == OFFLOAD_CAUSES &&
		       (int)RBK_SETUP_PLAN_VERIFY == OFFLOAD_PLAN_VERIFY &&
		       (int)RBK_SETUP_PLAN_MEASURE == OFFLOAD_PLAN_MEASURE &&
		       (int)RBK_SETUP_PLAN_PREPARE == OFFLOAD_PLAN_PREPARE &&
		       (int)RBK_SETUP_PLAN_RELEASE == OFFLOAD_PLAN_RELEASE &&
		       (int)RBK_SETUP_ARENA_MAP == OFFLOAD_ARENA_MAP &&
		       (int)RBK_SETUP_ARENA_UNMAP == OFFLOAD_ARENA_UNMAP &&
		       (int)RBK_SETUP_RING == OFFLOAD_RING && (int)RBK_SETUP_LOAD == OFFLOAD_LOAD &&
		       (int)RBK_SETUP_UNLOAD == OFFLOAD_UNLOAD &&
		       (int)RBK_SETUP_REOPEN == OFFLOAD_REOPEN &&
		       (int)RBK_SETUP_CALIBRATION == OFFLOAD_CALIBRATION &&
		       (int)RBK_SETUP_FILE == OFFLOAD_FILE,
	       "the page's");
_Static_assert(RBK_SETUP_CAUSES <= RBK_STATS_MAX_SETUP_CAUSES, "each has its place");

static struct rbk_stats_setup_time setup_time(const struct offload_time *time)
{
	return (struct rbk_stats_setup_time){
		.ns = time->ns,
		.cause = time->cause,
		.tenant = time->tenant,
	};
}

static void describe_setup(const struct publish *publish, struct rbk_stats_upkeep *ret)
{
	struct offload_report report;

	offload_describe(publish->options.offload, &report);
	ret->n_setup_waiting = report.n_waiting;
	ret->setup_running = setup_time(&report.running);
	ret->longest_wait = setup_time(&report.longest_wait);
	for (unsigned int i = 0; i < OFFLOAD_CAUSES; i++)
		ret->setup[i] = (struct rbk_stats_setup_slices){
			.n_slices = report.causes[i].n_slices,
			.total_ns = report.causes[i].total_ns,
			.longest_ns = report.causes[i].longest_ns,
			.longest_tenant = report.causes[i].longest_tenant,
		};
}

static void publish_upkeep(struct publish *publish)
{
	const struct turn_report *turns = &loop_current(publish->options.loop)->report;
	const struct publish_self *self = publish->options.self;
	struct rbk_stats_upkeep figures = {.flags = 0};
	struct closers_report closers;
	struct dispatch_mended mended;

	describe_setup(publish, &figures);
	server_describe_closers(publish->server, &closers);
	figures.n_closers = closers.n_threads;
	figures.n_closers_max = closers.n_threads_max;
	figures.n_closers_stuck = closers.n_stuck;
	figures.n_closings_waiting = closers.n_waiting;
	figures.n_closers_ever_stuck = closers.n_ever_stuck;
	for (uint32_t i = 0; i < publish->options.n_executors; i++) {
		dispatch_describe_mended(publish->options.dispatch, (uint8_t)i, &mended);
		figures.mended[i] = (struct rbk_stats_mended){
			.n_slots = mended.n_slots,
			.n_recalled = mended.n_recalled,
			.n_moved = mended.n_moved,
			.n_lost = mended.n_lost,
		};
	}
	figures.longest_turn_cpu_ns = clock_ticks_to_ns(turns->longest_cpu_ticks);
	figures.sandbox = self->sandbox;
	figures.n_calls_refused = self->n_calls_refused;
	figures.restart_at_ns = self->restart_at_ns;
	figures.restart_until_ns = self->restart_until_ns;
	stats_set_upkeep(publish->stats, &figures);
}

static void publish_whole(struct publish *publish)
{
	struct rbk_stats_broker broker = {.flags = 0};
	const struct place_config *config;

	for (const struct tenant *tenant = tenants_first(publish->options.tenants); tenant;
	     tenant = tenants_next(publish->options.tenants, tenant))
		broker.n_tenants++;
	broker.n_leases = stats_n_shown(publish->stats, STATS_LEASES);
	server_describe(publish->server, &broker);
	config = placer_config(dispatch_placer(publish->options.dispatch));
	broker.strategy = config->strategy;
	if (config->force_cpu)
		broker.flags |= RBK_STATS_BROKER_FORCE_CPU;
	describe_turns(publish, &broker);
	stats_set_broker(publish->stats, &broker);
	publish_upkeep(publish);
	stats_set_reload(publish->stats, &publish->reload);
	stats_set_waiting(publish->stats, &publish->waiting);
	stats_update_root(publish->stats);
	contention_publish(publish->options.contention, publish->stats);
	heartbeat(publish, publish->updated_ns);
}

/* --- Rounds --- */

/* Return true if the root page was just made, and has only counts yet. */
static bool is_root_new(const struct publish *publish)
{
	const struct rbk_stats_header *header = stats_root(publish->stats)->header;

	return header && header->n_updates == 1;
}

/* Return the number of pieces that a step has at its beginning. */
static uint32_t count_pieces(const struct publish *publish, enum publish_step step)
{
	switch (step) {
	case PUBLISH_DEVICES:
		return publish->options.n_executors;
	case PUBLISH_TENANTS:
		return min_u32(stats_n_tenants(publish->stats), MAX_TENANTS);
	case PUBLISH_SESSIONS:
		return min_u32(stats_n_shown(publish->stats, STATS_SESSIONS), MAX_SESSIONS);
	case PUBLISH_LEASES:
		return min_u32(stats_n_shown(publish->stats, STATS_LEASES), MAX_LEASES);
	case PUBLISH_WHOLE:
		return 1;
	case PUBLISH_NOTHING:
		break;
	}
	return 0;
}

static void publish_piece(struct publish *publish)
{
	const uint32_t device = publish->options.n_executors - publish->n_left;

	switch (publish->step) {
	case PUBLISH_DEVICES:
		publish_device(publish, device, publish->elapsed_ns, publish->used_ns[device]);
		break;
	case PUBLISH_TENANTS:
		publish_next_tenant(publish);
		break;
	case PUBLISH_SESSIONS:
		publish_next_session(publish);
		break;
	case PUBLISH_LEASES:
		publish_next_lease(publish);
		break;
	case PUBLISH_WHOLE:
		publish_whole(publish);
		break;
	case PUBLISH_NOTHING:
		break;
	}
}

static void begin_round(struct publish *publish, uint64_t now_ns)
{
	publish->elapsed_ns = now_ns - publish->updated_ns;
	publish->updated_ns = now_ns;
	publish->n_looked = publish->n_changed = publish->n_asked = 0;
	stats_flush(publish->stats);
	server_count_timeslices(publish->server);
	for (uint32_t i = 0; i < publish->options.n_executors; i++) {
		uint64_t device_ns = stats_device_counts(publish->stats, i)->device_ns;

		publish->used_ns[i] = counter_growth(device_ns, publish->seen_ns[i]);
		publish->seen_ns[i] = device_ns;
	}
	publish->step = PUBLISH_DEVICES;
	publish->n_left = count_pieces(publish, publish->step);
	/* The rest may come in a later turn. */
	if (is_root_new(publish))
		publish_whole(publish);
}

static void next_step(struct publish *publish)
{
	publish->step = publish->step == PUBLISH_WHOLE ? PUBLISH_NOTHING : publish->step + 1;
	publish->n_left = count_pieces(publish, publish->step);
	if (publish->step == PUBLISH_LEASES)
		budget_look_at_leases(publish->options.budget);
}

/* Continue the round as far as the turn allows. A short round ends at once. */
static void go_on(struct publish *publish)
{
	const struct turn *turn = loop_current(publish->options.loop);
	const uint64_t stop_ticks = turn_stop_ticks(turn, PUBLISH_PART);

	for (unsigned int n = 0; publish->step != PUBLISH_NOTHING;) {
		if (publish->n_left == 0) {
			next_step(publish);
			continue;
		}
		if (n >= PUBLISH_PIECES && turn_used_ticks(turn) >= stop_ticks) {
			loop_timer_arm(publish->round_timer, 0);
			return;
		}
		publish_piece(publish);
		publish->n_left--;
		n++;
	}
}

static void on_round(void *data)
{
	struct publish *publish = data;
	struct turn *turn = loop_current(publish->options.loop);
	struct turn_source outer = turn_enter(turn, RBK_TURN_STATISTICS, 0);

	go_on(publish);
	turn_leave(turn, outer);
}

/* --- Updates --- */

static void update(struct publish *publish)
{
	uint64_t now_ns = clock_ticks_to_ns(clock_ticks());

	if (publish->step == PUBLISH_NOTHING && (publish->is_stale || is_root_new(publish) ||
						 now_ns - publish->updated_ns >= update_min_ns)) {
		publish->is_stale = false;
		begin_round(publish, now_ns);
		go_on(publish);
		return;
	}
	/* A round is in progress, but a page that was just made should not be read empty. */
	if (publish->step != PUBLISH_NOTHING && is_root_new(publish))
		publish_whole(publish);
	/* Updating the counts costs little. */
	stats_flush(publish->stats);
	stats_update_root(publish->stats);
}

static void on_update(void *context)
{
	struct publish *publish = context;
	struct turn *turn = loop_current(publish->options.loop);
	struct turn_source outer;

	if (!publish->server)
		return;
	outer = turn_enter(turn, RBK_TURN_STATISTICS, 0);
	update(publish);
	turn_leave(turn, outer);
}

static void on_timer(void *data)
{
	struct publish *publish = data;

	on_update(publish);
	if (publish->is_watched)
		loop_timer_arm(publish->timer, period_ns);
}

static void on_watched(void *context, bool is_watched)
{
	struct publish *publish = context;

	publish->is_watched = is_watched;
	contention_set_watched(publish->options.contention, is_watched);
	if (is_watched)
		loop_timer_arm(publish->timer, period_ns);
	else
		loop_timer_disarm(publish->timer);
}

static void on_plan_leaving(void *context, struct session_plan *plan)
{
	publish_plan(context, plan);
}

/* --- Changes by administrators --- */

static void on_plan_reset(void *context, struct session_plan *plan)
{
	struct publish *publish = context;

	publish->is_stale = true;
	if (plan->place)
		place_plan_reset(dispatch_placer(publish->options.dispatch), plan->place);
}

void publish_configure(struct publish *publish, const struct place_config *config)
{
	struct place_config wanted = *config;

	if (publish->force_cpu >= 0)
		wanted.force_cpu = publish->force_cpu;
	dispatch_configure(publish->options.dispatch, &wanted);
}

static void on_reset(void *context)
{
	struct publish *publish = context;

	publish->is_stale = true;
	turn_reset(loop_current(publish->options.loop));
	offload_reset(publish->options.offload);
	contention_reset(publish->options.contention);
}

void publish_reloaded(struct publish *publish, const char *keys, uint32_t n_keys)
{
	struct rbk_stats_waiting *waiting = &publish->waiting;

	publish->is_stale = true;
	waiting->n_keys = n_keys;
	copy_printable(keys, strlen(keys), waiting->keys, sizeof(waiting->keys));
	publish->reload.n_accepted++;
	publish->reload.accepted_at_ns = clock_ticks_to_ns(clock_ticks());
}

void publish_reload_refused(struct publish *publish, const char *errors, uint32_t n_errors)
{
	struct rbk_stats_reload *reload = &publish->reload;

	publish->is_stale = true;
	reload->n_refused++;
	reload->refused_at_ns = clock_ticks_to_ns(clock_ticks());
	reload->n_errors = n_errors;
	copy_printable(errors, strcspn(errors, "\n"), reload->reason, sizeof(reload->reason));
}

static int on_force_cpu(void *context, int value)
{
	struct publish *publish = context;
	const struct place_config *config =
		placer_config(dispatch_placer(publish->options.dispatch));
	struct place_config wanted = *config;

	if (value >= 0) {
		publish->force_cpu = value;
		publish_configure(publish, &wanted);
		/* The next update shows it. */
		publish->is_stale = true;
	}
	return config->force_cpu;
}

struct server_publisher publish_hooks(struct publish *publish)
{
	return (struct server_publisher){
		.update = on_update,
		.plan_leaving = on_plan_leaving,
		.set_watched = on_watched,
		.plan_reset = on_plan_reset,
		.force_cpu = on_force_cpu,
		.reset = on_reset,
		.context = publish,
	};
}

void publish_start(struct publish *publish, struct server *server)
{
	publish->server = server;
	publish->stats = server_stats_pages(server);
	stats_set_period(publish->stats, period_ns);
	begin_round(publish, clock_ticks_to_ns(clock_ticks()));
	go_on(publish);
}

int publish_new(const struct publish_options *options, struct publish **ret)
{
	_cleanup_(publish_freep) struct publish *publish = calloc(1, sizeof(*publish));
	int r;

	if (!publish)
		return error_origin(-ENOMEM);
	publish->options = *options;
	publish->force_cpu = -1;
	r = loop_timer_new(options->loop, on_timer, publish, &publish->timer);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_round, publish, &publish->round_timer);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(publish);
	return 0;
}

struct publish *publish_free(struct publish *publish)
{
	if (!publish)
		return NULL;
	loop_timer_free(publish->timer);
	loop_timer_free(publish->round_timer);
	free(publish);
	return NULL;
}
