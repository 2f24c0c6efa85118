/* SPDX-License-Identifier: MIT */
/*
 * The reactor's turn, and everything about rings that is not hot
 *
 * A ring is active while it is polled. One that has been empty for its spin budget announces that
 * the broker sleeps on it and leaves the list of active rings, so idle sessions cost a busy one
 * nothing; its bell brings it back. When no ring is active the reactor arms the waker, looks
 * once more, and sleeps in the loop.
 *
 * Spin budgets adapt per ring between a floor, which is about what a sleep and its wake-up take,
 * and a ceiling: doubled when the bell rings soon after the last work (a longer spin would have
 * caught the entry), halved when it does not (the spin was in vain). A client that pauses for a few
 * microseconds in the middle of a stream must not find its broker asleep each time. While executors
 * compute on the processors that the reactor would spin on, it hardly spins at all.
 */
#include "dispatch/dispatch.h"

#include <errno.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "dispatch/task.h"
#include "loop/loop.h"
#include "shm/ring.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/waker.h"

enum {
	/* Polls in a row before the loop, timers and idle rings are looked at. */
	TURN_POLLS = 16,
	BELL_DRAIN_BATCH = 16,
	/* Bells without entries that are forgiven within mute_window_ns. */
	MAX_EMPTY_BELLS = 64,
};

static const uint64_t spin_crowded_ns = 2000;
static const uint64_t spin_floor_ns = 20000;
static const uint64_t spin_start_ns = 50000;
static const uint64_t spin_ceiling_ns = 200000;
static const uint64_t mute_window_ns = 10000000;
static const uint64_t drain_timeout_ns = 10000000000;

/* What may run on the reactor itself: see plan_ready(). */
static const uint64_t inline_budget_ns = 2000;

static void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* --- rings: added, activated, put to sleep, closed --- */

/* Powers of two, as entries are; lists of a few tasks each. */
static uint32_t n_buckets(uint32_t n_entries)
{
	return n_entries > 8 ? n_entries / 8 : 1;
}

static uint64_t ring_bytes(uint32_t n_entries)
{
	return sizeof(struct dispatch_ring) +
	       (uint64_t)n_entries *
		       (sizeof(struct task) + RBK_MAX_REFS * sizeof(struct exec_ref)) +
	       n_buckets(n_entries) * sizeof(struct list_node);
}

static struct dispatch_ring *dispatch_ring_free(struct dispatch_ring *ring)
{
	if (!ring)
		return NULL;
	free(ring->tasks);
	free(ring->refs);
	free(ring->buckets);
	free(ring);
	return NULL;
}

DEFINE_CLEANUP(struct dispatch_ring *, dispatch_ring_free)

static int reserve_active(struct dispatch *dispatch)
{
	uint32_t capacity = dispatch->active_capacity;
	struct dispatch_ring **active;

	if (dispatch->n_rings < capacity)
		return 0;
	capacity = capacity ? capacity * 2 : 64;
	active = realloc(dispatch->active, capacity * sizeof(*active));
	if (!active)
		return error_origin(-ENOMEM);
	dispatch->active = active;
	dispatch->active_capacity = capacity;
	return 0;
}

static int on_ring_added(void *context, struct session_ring *session_ring)
{
	_cleanup_(dispatch_ring_freep) struct dispatch_ring *ring = NULL;
	struct dispatch *dispatch = context;
	int r;

	r = reserve_active(dispatch);
	if (r)
		return error_fold(r);
	ring = calloc(1, sizeof(*ring));
	if (!ring)
		return error_origin(-ENOMEM);
	ring->ring = session_ring;
	ring->dispatch = dispatch;
	ring->spin_ticks = dispatch->options.spin_ns < 0 ? clock_ns_to_ticks(spin_start_ns)
							 : dispatch->max_spin_ticks;
	list_init(&ring->in_flight);
	list_init(&ring->link);
	list_init(&ring->muted_link);
	list_init(&ring->closing);
	/* Zeroed lazily by the kernel: slots that are never used cost no memory. */
	ring->tasks = calloc(session_ring->n_entries, sizeof(*ring->tasks));
	ring->refs = calloc((size_t)session_ring->n_entries * RBK_MAX_REFS, sizeof(*ring->refs));
	ring->bucket_mask = n_buckets(session_ring->n_entries) - 1;
	ring->buckets = calloc(ring->bucket_mask + 1, sizeof(*ring->buckets));
	if (!ring->tasks || !ring->refs || !ring->buckets)
		return error_origin(-ENOMEM);
	for (uint32_t i = 0; i <= ring->bucket_mask; i++)
		list_init(&ring->buckets[i]);

	dispatch->n_rings++;
	list_append(&dispatch->rings, &ring->link);
	session_ring->dispatch = ring;
	ring_activate(dispatch, steal_ptr(ring), clock_ticks());
	return 0;
}

static void remove_active(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	for (uint32_t i = 0; ring->is_active && i < dispatch->n_active; i++) {
		if (dispatch->active[i] != ring)
			continue;
		dispatch->active[i] = dispatch->active[--dispatch->n_active];
		ring->is_active = false;
	}
}

static void on_ring_closing(void *context, struct session_ring *session_ring)
{
	struct dispatch_ring *ring = session_ring->dispatch;
	struct dispatch *dispatch = context;

	remove_active(dispatch, ring);
	dispatch_ring_closing(dispatch, ring);
}

static void remove_from_bells(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	struct dispatch_ring **at = &dispatch->bells;

	while (*at && *at != ring)
		at = &(*at)->next_bell;
	if (*at)
		*at = ring->next_bell;
}

static void on_ring_freed(void *context, struct session_ring *session_ring)
{
	struct dispatch_ring *ring = session_ring->dispatch;
	struct dispatch *dispatch = context;

	dispatch_publish_dirty(dispatch);
	remove_from_bells(dispatch, ring);
	list_remove(&ring->link);
	list_remove(&ring->muted_link);
	list_remove(&ring->closing);
	dispatch->n_rings--;
	dispatch_ring_free(ring);
	session_ring->dispatch = NULL;
}

/* --- bells --- */

static void ring_complain(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	uint64_t now_ns = clock_now_ns();

	if (now_ns - ring->empty_bells_since_ns > mute_window_ns) {
		ring->empty_bells_since_ns = now_ns;
		ring->n_empty_bells = 0;
	}
	if (++ring->n_empty_bells < MAX_EMPTY_BELLS)
		return;
	session_ring_mute(ring->ring, true);
	/* One timer for all, never moved back: a later ring's silence is the shorter one. */
	if (list_is_empty(&dispatch->muted))
		loop_timer_arm(dispatch->mute_timer, mute_window_ns);
	list_remove(&ring->muted_link);
	list_append(&dispatch->muted, &ring->muted_link);
}

static void on_mute_over(void *data)
{
	struct dispatch *dispatch = data;

	list_for_each_safe (node, &dispatch->muted) {
		struct dispatch_ring *ring = container_of(node, struct dispatch_ring, muted_link);

		list_remove(&ring->muted_link);
		session_ring_mute(ring->ring, false);
	}
}

/* Work that came before the client could see the token is not rung for: look once more after it. */
static void ring_announce_sleep(struct dispatch_ring *ring)
{
	/* The token is not 0 and differs from the last one. */
	ring->sleep_token += ring->sleep_token == UINT32_MAX ? 2 : 1;
	rbk_ring_announce_sleep(&ring->ring->cq->sq_wait, ring->sleep_token);
}

/* A sleep is over: would a longer spin have caught the entry, or was it long enough to be worth it?
 */
static void learn_spin(const struct dispatch *dispatch, struct dispatch_ring *ring,
		       uint64_t now_ticks)
{
	uint64_t idle_ticks = now_ticks - ring->last_work_ticks;

	if (idle_ticks < dispatch->max_spin_ticks)
		ring->spin_ticks = ring->spin_ticks * 2;
	else
		ring->spin_ticks /= 2;
	if (ring->spin_ticks < dispatch->min_spin_ticks)
		ring->spin_ticks = dispatch->min_spin_ticks;
	if (ring->spin_ticks > dispatch->max_spin_ticks)
		ring->spin_ticks = dispatch->max_spin_ticks;
}

static void on_ring_bell(void *context, struct session_ring *session_ring)
{
	struct dispatch_ring *ring = session_ring->dispatch;
	struct dispatch *dispatch = context;
	uint64_t now_ticks = clock_ticks();
	char bytes[16];
	ssize_t n = 1;

	for (unsigned int i = 0; i < BELL_DRAIN_BATCH && n > 0; i++)
		n = recv(session_ring->bell_fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	if (n > 0)
		loop_rewatch(session_ring->bell_watch);

	/* The client rings once per sleep: this one's bell is spent, so another sleep begins. */
	if (!ring->is_active && !dispatch_ring_has_work(ring))
		ring_announce_sleep(ring);
	if (ring->is_active || !dispatch_ring_has_work(ring)) {
		ring_complain(dispatch, ring);
		return;
	}
	if (dispatch->options.spin_ns < 0)
		learn_spin(dispatch, ring, now_ticks);
	ring_activate(dispatch, ring, now_ticks);
}

/* One byte wakes a client that sleeps; if the bell is full it is awake already, or not reading. */
static void ring_bells(struct dispatch *dispatch)
{
	struct dispatch_ring *ring;

	while ((ring = dispatch->bells)) {
		dispatch->bells = ring->next_bell;
		ring->wants_bell = false;
		if (ring->ring->is_closing)
			continue;
		while (send(ring->ring->bell_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
		       errno == EINTR)
			;
	}
}

/* --- plans --- */

/* What the estimates below are multiples of: sixty-fourths of a nanosecond. */
enum { ESTIMATE_UNITS_PER_NS = 64 };

/*
 * How long a node takes, at the pessimistic end: 2 floating-point operations per nanosecond, or
 * what the executor promises where its kernels are blocked, and 16 bytes per nanosecond.
 */
static uint64_t node_estimate(const struct node *node, uint64_t flops, uint64_t bytes,
			      uint32_t blocked_flops_per_ns)
{
	bool is_blocked = node->op->kind == OP_MATMUL || node->op->kind == OP_GEMM ||
			  node->op->kind == OP_CONV;
	uint32_t flops_per_ns = is_blocked && blocked_flops_per_ns > 2 ? blocked_flops_per_ns : 2;

	return flops * ESTIMATE_UNITS_PER_NS / flops_per_ns + bytes * ESTIMATE_UNITS_PER_NS / 16;
}

/* The largest count whose task is predicted to fit the inline budget; 0: none. */
static uint32_t inline_limit(const struct dispatch *dispatch, const struct plan *plan)
{
	const struct executor *cpu = dispatch->executors[RBK_DEVICE_CPU];
	uint64_t fixed = 0, row = 0, budget = inline_budget_ns * ESTIMATE_UNITS_PER_NS;

	if (!cpu->ops->run_inline || !plan->data_independent ||
	    plan->device_state[RBK_DEVICE_CPU] != PLAN_DEVICE_READY)
		return 0;
	for (uint32_t i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];

		/* Beyond 2^40 neither can pass, and the sums below cannot overflow. */
		if ((node->cost.flops_fixed | node->cost.flops_row | node->cost.bytes_fixed |
		     node->cost.bytes_row) >>
		    40)
			return 0;
		fixed += node_estimate(node, node->cost.flops_fixed, node->cost.bytes_fixed,
				       cpu->info.blocked_flops_per_ns);
		row += node_estimate(node, node->cost.flops_row, node->cost.bytes_row,
				     cpu->info.blocked_flops_per_ns);
	}
	if (fixed > budget)
		return 0;
	if (row == 0 || (budget - fixed) / row >= plan->max_count)
		return plan->max_count;
	return (uint32_t)((budget - fixed) / row);
}

static void on_plan_ready(void *context, struct session_plan *plan)
{
	struct dispatch *dispatch = context;
	struct place_decision decision;

	list_init(&plan->waiting);
	list_init(&plan->ending);
	plan->inline_max_count = inline_limit(dispatch, plan->plan);
	/* Fewer rows touch fewer bytes: what holds for the largest count holds below it. */
	decision = place_task(&dispatch->placer, plan->plan, plan->inline_max_count,
			      RBK_STRATEGY_AUTO);
	plan->inline_is_below_threshold =
		decision.device == RBK_DEVICE_CPU && decision.reason == RBK_REASON_BELOW_THRESHOLD;
}

static void on_plan_removing(void *context, struct session_plan *plan)
{
	dispatch_plan_removing(context, plan);
}

/* --- the turn --- */

static uint64_t on_tasks_in_flight(void *context)
{
	struct dispatch *dispatch = context;
	uint64_t n = 0;

	list_for_each (node, &dispatch->rings)
		n += container_of(node, struct dispatch_ring, link)->ring->n_in_flight;
	return n;
}

/* Rings that stayed empty for their budget leave the list of active ones. */
static void sleep_idle_rings(struct dispatch *dispatch)
{
	uint64_t now_ticks = clock_ticks();
	bool is_crowded = dispatch->n_submitted > 0 &&
			  dispatch->executors[RBK_DEVICE_CPU]->info.n_threads + 1 >=
				  dispatch->options.n_processors;
	struct dispatch_ring *ring;
	uint64_t budget;

	for (uint32_t i = 0; i < dispatch->n_active;) {
		ring = dispatch->active[i];
		budget = ring->spin_ticks;
		if (is_crowded && budget > dispatch->crowded_spin_ticks)
			budget = dispatch->crowded_spin_ticks;
		if ((int64_t)(now_ticks - ring->last_work_ticks) < (int64_t)budget) {
			i++;
			continue;
		}

		ring_announce_sleep(ring);
		if (dispatch_ring_has_work(ring)) {
			rbk_ring_announce_awake(&ring->ring->cq->sq_wait);
			ring->last_work_ticks = now_ticks;
			i++;
			continue;
		}
		ring->is_active = false;
		dispatch->active[i] = dispatch->active[--dispatch->n_active];
	}
}

static void set_pace(const struct dispatch *dispatch, bool is_busy)
{
	const struct dispatch_options *options = &dispatch->options;

	if (options->set_pace)
		options->set_pace(options->pace_context, is_busy, dispatch->n_rings > 0);
}

static unsigned int dispatch_turn(struct dispatch *dispatch)
{
	struct dispatch_ring *hostile = NULL;
	unsigned int n;

	n = dispatch_work(dispatch, &hostile);
	if (hostile)
		session_end(hostile->ring->session, true, "its ring indices make no sense");
	if (dispatch->flush_mask & ~(1u << RBK_DEVICE_CPU)) {
		dispatch->has_used_devices = true;
		set_pace(dispatch, true);
	}
	for (uint32_t i = 0; dispatch->flush_mask; i++) {
		if (!(dispatch->flush_mask & 1u << i))
			continue;
		dispatch->flush_mask &= ~(1u << i);
		dispatch->executors[i]->ops->flush(dispatch->executors[i]);
	}
	if (dispatch->bells)
		ring_bells(dispatch);
	if (dispatch->demand->first) {
		residency_turn(dispatch->options.residency);
		n++;
	}
	return n;
}

static int dispatch_sleep(struct dispatch *dispatch)
{
	int r = 0;

	waker_arm(dispatch->options.waker);
	if (dispatch_turn(dispatch) == 0 && dispatch->n_active == 0) {
		/* Busy for as long as something that may be a device's is under way. */
		dispatch->has_used_devices &= dispatch->n_submitted > 0;
		set_pace(dispatch, dispatch->has_used_devices);
		r = loop_turn(dispatch->options.loop, true);
	}
	waker_disarm(dispatch->options.waker);
	return r;
}

/* While stopping no ring is polled, whatever rang: else a busy client would keep us. */
static void stop_polling(struct dispatch *dispatch)
{
	while (dispatch->n_active > 0)
		remove_active(dispatch, dispatch->active[0]);
}

/* What is in flight completes, then the sessions end. Return: is everything gone? */
static bool dispatch_drain(struct dispatch *dispatch)
{
	if (dispatch->n_submitted + dispatch->n_pending > 0 && !dispatch->drain_expired)
		return false;
	server_end_sessions(dispatch->server, "the broker is stopping");
	server_settle(dispatch->server);
	return server_is_empty(dispatch->server);
}

int dispatch_run(struct dispatch *dispatch, struct server *server)
{
	unsigned int n;
	int r = 0;

	dispatch->server = server;
	dispatch->stats = server_stats(server);
	while (r >= 0) {
		n = 0;
		if (dispatch->is_stopping)
			stop_polling(dispatch);
		for (unsigned int i = 0; i < TURN_POLLS && n == 0 && dispatch->n_active > 0; i++) {
			n = dispatch_turn(dispatch);
			if (n == 0)
				cpu_relax();
		}
		if (n == 0 || dispatch->n_active > 1)
			sleep_idle_rings(dispatch);
		server_settle(server);
		if (dispatch->is_stopping) {
			if (dispatch_drain(dispatch))
				break;
			stop_polling(dispatch);
		}
		if (dispatch->n_active == 0 && !server_is_settling(server))
			r = dispatch_sleep(dispatch);
		else
			r = loop_turn(dispatch->options.loop, false);
		if (dispatch->drain_expired && dispatch->n_submitted > 0)
			return error_origin(-ETIMEDOUT);
	}
	return r < 0 ? error_fold(r) : 0;
}

static void on_drain_expired(void *data)
{
	struct dispatch *dispatch = data;

	log_warning(LOG_STOPPED_BUSY, "tasks did not finish within 10 s of the request to stop");
	dispatch->drain_expired = true;
}

void dispatch_stop(struct dispatch *dispatch)
{
	if (dispatch->is_stopping)
		return;
	dispatch->is_stopping = true;
	if (dispatch->server)
		server_stop_accepting(dispatch->server);
	loop_timer_arm(dispatch->drain_timer, drain_timeout_ns);
}

static void on_waker(void *data, uint32_t events)
{
	/* Its purpose was to end the sleep; waker_disarm() empties it. */
}

struct server_hooks dispatch_hooks(struct dispatch *dispatch)
{
	return (struct server_hooks){
		.ring_bytes = ring_bytes,
		.ring_added = on_ring_added,
		.ring_closing = on_ring_closing,
		.ring_freed = on_ring_freed,
		.ring_bell = on_ring_bell,
		.plan_ready = on_plan_ready,
		.plan_removing = on_plan_removing,
		.tasks_in_flight = on_tasks_in_flight,
		.context = dispatch,
	};
}

static void set_spin(struct dispatch *dispatch)
{
	int64_t spin_ns = dispatch->options.spin_ns;

	/* On one processor whoever spins keeps the other from answering. */
	if (dispatch->options.n_processors < 2)
		spin_ns = dispatch->options.spin_ns = 0;
	dispatch->crowded_spin_ticks =
		clock_ns_to_ticks(spin_ns < 0 ? spin_crowded_ns : (uint64_t)spin_ns);
	dispatch->min_spin_ticks =
		clock_ns_to_ticks(spin_ns < 0 ? spin_floor_ns : (uint64_t)spin_ns);
	dispatch->max_spin_ticks =
		clock_ns_to_ticks(spin_ns < 0 ? spin_ceiling_ns : (uint64_t)spin_ns);
}

/* A device that was opened anew may prove itself again. */
static void on_reopened(void *context, unsigned int device)
{
	struct dispatch *dispatch = context;

	place_reset(&dispatch->placer, device);
}

int dispatch_new(const struct dispatch_options *options, struct dispatch **ret)
{
	_cleanup_(dispatch_freep) struct dispatch *dispatch = calloc(1, sizeof(*dispatch));
	int r;

	if (!dispatch)
		return error_origin(-ENOMEM);
	dispatch->options = *options;
	dispatch->executors = options->executors;
	dispatch->n_executors = options->n_executors;
	dispatch->inline_task.refs = dispatch->inline_refs;
	dispatch->demand = residency_demand(options->residency);
	dispatch->woken.end = &dispatch->woken.first;
	list_init(&dispatch->rings);
	list_init(&dispatch->muted);
	list_init(&dispatch->ending);
	list_init(&dispatch->closing);
	/* Early in a machine's life there may be none; then it is as good as another one. */
	if (getrandom(&dispatch->bucket_seed, sizeof(dispatch->bucket_seed), GRND_NONBLOCK) < 0)
		dispatch->bucket_seed = clock_now_ns();
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		dispatch->pending[i].end = &dispatch->pending[i].first;
	placer_init(&dispatch->placer, options->n_executors, options->threshold_bytes);
	set_spin(dispatch);
	residency_on_reopened(options->residency, on_reopened, dispatch);

	r = loop_timer_new(options->loop, on_mute_over, dispatch, &dispatch->mute_timer);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_drain_expired, dispatch, &dispatch->drain_timer);
	if (r)
		return error_fold(r);
	r = loop_watch(options->loop, options->waker->fd, POLLIN, on_waker, dispatch,
		       &dispatch->waker_watch);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(dispatch);
	return 0;
}

struct dispatch *dispatch_free(struct dispatch *dispatch)
{
	if (!dispatch)
		return NULL;
	residency_on_reopened(dispatch->options.residency, NULL, NULL);
	loop_unwatch(dispatch->waker_watch);
	loop_timer_free(dispatch->mute_timer);
	loop_timer_free(dispatch->drain_timer);
	free(dispatch->active);
	free(dispatch);
	return NULL;
}
