/* SPDX-License-Identifier: MIT */
/*
 * Rings, as far as they are not hot
 *
 * A ring is active while it is polled. A ring that has been empty for its spin budget announces
 * that the broker sleeps on it, and leaves the list of active rings. So idle sessions cost a busy
 * one nothing. The ring's bell activates it again.
 *
 * Spin budgets adapt per ring. A budget is doubled, up to a ceiling, when the bell rings soon after
 * the last work: a longer spin would have caught the entry. Then it is at least the floor, about
 * the time of a sleep and a wake-up. It is halved when the bell rings later: the spin was in vain.
 * A client that pauses for a few microseconds in the middle of a stream must not find its broker
 * asleep each time. While executors compute on the processors on which the reactor would spin, or
 * the processors are contended, it hardly spins at all; nor does it under a quota: a broker that
 * has spun its quota away is stopped for tens of milliseconds.
 *
 * While many other rings keep it awake there, an empty ring stays active for longer instead: a
 * poll costs a load, and a bell costs both sides system calls.
 */
#include <errno.h>
#include <sched.h>
#include <sys/socket.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/ending.h"
#include "dispatch/restore.h"
#include "loop/loop.h"
#include "shm/ring.h"
#include "util/error.h"
#include "util/thread.h"

enum {
	/* Waking clients gets 1 / BELLS_PART of a turn's budget. */
	BELLS_PART = 4,
	/* Active rings checked for sleep in one turn */
	SLEEP_BATCH = 64,
	/* Answering clients' bells gets 1 / ANSWERS_PART of a turn's budget. */
	ANSWERS_PART = 4,
	/* Bells without entries that mute a ring, if they come within mute_window_ns */
	MAX_EMPTY_BELLS = 64,
	/* Each further mute lasts twice as long, and takes half as many empty bells. */
	MAX_MUTE_LEVEL = 5,
	/* For clients on its processor, the reactor sleeps for at most 1 / WAY_PART of the time. */
	WAY_PART = 4,
	/* Rings unmuted in one turn */
	UNMUTE_BATCH = 64,
};

static const uint64_t spin_crowded_ns = 2000;
/* About the processor time of a sleep and a wake-up */
static const uint64_t spin_quota_ns = 8000;
static const uint64_t spin_floor_ns = 20000;
static const uint64_t spin_start_ns = 50000;
static const uint64_t spin_ceiling_ns = 200000;
/* Time for which an empty ring stays active where the reactor hardly spins, but is awake */
static const uint64_t keep_ns = 1000000;
/* Time between two moves of the reactor off clients' processors, each of which takes some 10 us */
static const uint64_t move_interval_ns = 1000000;
/* Predicted time of a move. Virtual machines whose other processor is halted take longer. */
static const uint64_t move_ns = 40000;
/* Least predicted time of a task for which a move pays that keeps its client from waiting */
static const uint64_t move_for_ns = 500000;
/* Time in which a client that was woken runs, also in a virtual machine */
static const uint64_t late_ns = 60000;
/*
 * Time in which a client takes its completion, beside the timer slack of 50 us. In a virtual
 * machine, a nap of 20 us in all ended before the client ran.
 */
static const uint32_t give_way_ns = 5000;
static const uint64_t mute_window_ns = 10000000;
/* A ring that was not muted for so long starts at level 0 again. */
static const uint64_t mute_forgiven_ns = 1000000000;

static void run_bell(struct turn_job *job);
static void run_wake(struct turn_job *job);

static bool is_heard_before(const struct heap_node *a, const struct heap_node *b)
{
	return container_of(a, const struct dispatch_ring, muted_node)->muted_until_ns <
	       container_of(b, const struct dispatch_ring, muted_node)->muted_until_ns;
}

/* Return a power of two, as the number of entries is. A bucket has a task or two. */
static uint32_t n_buckets(uint32_t n_entries)
{
	return n_entries > 2 ? n_entries / 2 : 1;
}

static uint64_t piece_bytes(uint32_t n_entries)
{
	return (uint64_t)n_entries * (sizeof(struct task) + RBK_MAX_REFS * sizeof(struct exec_ref) +
				      2 * sizeof(uint64_t) + RBK_SQE_AFTER_MAX * sizeof(uint32_t) +
				      sizeof(uint16_t)) +
	       n_buckets(n_entries) * sizeof(struct index_node *);
}

uint64_t dispatch_ring_bytes(uint32_t n_entries)
{
	return sizeof(struct dispatch_ring) + (piece_bytes(n_entries) + 4095) / 4096 * 4096;
}

static struct dispatch_ring *ring_free(struct dispatch_ring *ring)
{
	if (!ring)
		return NULL;
	chunks_unmap(&ring->dispatch->ring_chunks, ring->tasks, ring->map_bytes);
	free(ring);
	return NULL;
}

DEFINE_CLEANUP(struct dispatch_ring *, ring_free)

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

int dispatch_ring_make(void *context, struct session_ring *session_ring)
{
	_cleanup_(ring_freep) struct dispatch_ring *ring = calloc(1, sizeof(*ring));
	const uint32_t n_entries = session_ring->n_entries;

	if (!ring)
		return error_origin(-ENOMEM);
	ring->ring = session_ring;
	ring->dispatch = context;
	list_init(&ring->in_flight);
	list_init(&ring->link);
	turn_job_init(&ring->bell_job, RBK_TURN_BELLS, run_bell);
	turn_job_init(&ring->wake_job, RBK_TURN_BELLS, run_wake);
	list_init(&ring->throttled_link);
	list_init(&ring->late_link);
	list_init(&ring->closing);
	/* Zeroed lazily by the kernel: slots that are never used cost no memory. */
	ring->tasks =
		chunks_map(&ring->dispatch->ring_chunks, piece_bytes(n_entries), &ring->map_bytes);
	if (!ring->tasks)
		return error_origin(-ENOMEM);
	ring->refs = (struct exec_ref *)(ring->tasks + n_entries);
	ring->buckets = (struct index_node **)(ring->refs + (size_t)n_entries * RBK_MAX_REFS);
	ring->bucket_mask = n_buckets(n_entries) - 1;
	list_init(&ring->join.link);
	ring->join.failed = (uint64_t *)(ring->buckets + n_buckets(n_entries));
	ring->join.edges = (uint32_t *)(ring->join.failed + 2 * (size_t)n_entries);
	ring->join.slots = (uint16_t *)(ring->join.edges + (size_t)n_entries * RBK_SQE_AFTER_MAX);
	session_ring->dispatch = steal_ptr(ring);
	return 0;
}

void dispatch_ring_unmake(void *context, struct session_ring *session_ring)
{
	session_ring->dispatch = ring_free(session_ring->dispatch);
}

int dispatch_ring_added(void *context, struct session_ring *session_ring)
{
	struct dispatch_ring *ring = session_ring->dispatch;
	struct dispatch *dispatch = context;
	int r;

	r = reserve_active(dispatch);
	if (r)
		return error_fold(r);
	r = flow_join(dispatch, ring);
	if (r)
		return error_fold(r);
	ring->spin_ticks = dispatch->options.spin_ns < 0 ? clock_ns_to_ticks(spin_start_ns)
							 : dispatch->max_spin_ticks;
	if (session_ring->failed)
		ring->join.failed = session_ring->failed;
	dispatch->n_rings++;
	list_append(&dispatch->rings, &ring->link);
	restore_begin(ring);
	ring_activate(dispatch, ring, clock_ticks());
	return 0;
}

void ring_deactivate(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	struct flow *flow = ring->flow;
	struct dispatch_ring *last;

	if (!ring->is_active)
		return;
	ring->is_active = false;
	last = dispatch->active[--dispatch->n_active];
	dispatch->active[ring->active_index] = last;
	last->active_index = ring->active_index;
	if (--flow->n_active == 0) {
		flow->idle_ticks = dispatch->now_ticks;
		flow->next = NULL;
		flow_idled(dispatch, flow);
		list_remove(&flow->active_link);
		dispatch->n_active_flows--;
		dispatch->active_weight -= flow->weight;
		return;
	}
	ring->prev_active->next_active = ring->next_active;
	ring->next_active->prev_active = ring->prev_active;
	if (flow->next == ring)
		flow->next = ring->next_active;
}

void dispatch_ring_ended(void *context, struct session_ring *session_ring)
{
	struct dispatch_ring *ring = session_ring->dispatch;
	struct dispatch *dispatch = context;

	ring_deactivate(dispatch, ring);
	turn_queue_withdraw(&dispatch->rung, &ring->bell_job);
	list_remove(&ring->late_link);
	list_remove(&ring->throttled_link);
	waits_ring_closing(dispatch, ring);
}

void dispatch_ring_freed(void *context, struct session_ring *session_ring)
{
	struct dispatch_ring *ring = session_ring->dispatch;
	struct dispatch *dispatch = context;

	dispatch_publish_dirty(dispatch);
	turn_queue_withdraw(&dispatch->bells, &ring->wake_job);
	walks_ring_freed(dispatch, ring);
	list_remove(&ring->link);
	if (ring->is_muted)
		heap_remove(&dispatch->muted, &ring->muted_node, is_heard_before);
	list_remove(&ring->throttled_link);
	list_remove(&ring->closing);
	flow_leave(dispatch, ring);
	dispatch->n_rings--;
}

/* --- bells --- */

static struct dispatch_ring *first_muted(const struct dispatch *dispatch)
{
	return dispatch->muted ? container_of(dispatch->muted, struct dispatch_ring, muted_node)
			       : NULL;
}

/* Listen to the bell of a ring on which the broker sleeps, unless the ring is muted. */
static void ring_listen(struct dispatch_ring *ring)
{
	if (!ring->is_muted)
		session_ring_listen(ring->ring);
}

static void ring_mute(struct dispatch *dispatch, struct dispatch_ring *ring, uint64_t now_ns)
{
	const uint64_t mute_ns = mute_window_ns << ring->mute_level;

	ring->n_empty_bells = 0;
	ring->muted_until_ns = now_ns + mute_ns;
	if (ring->mute_level < MAX_MUTE_LEVEL)
		ring->mute_level++;
	ring->is_muted = true;
	heap_insert(&dispatch->muted, &ring->muted_node, is_heard_before);
	if (first_muted(dispatch) == ring)
		loop_timer_arm(dispatch->mute_timer, mute_ns);
}

static void ring_complain(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	uint64_t now_ns = clock_now_ns();

	if (ring->is_muted)
		return;
	if (now_ns - ring->empty_bells_since_ns > mute_window_ns) {
		ring->empty_bells_since_ns = now_ns;
		ring->n_empty_bells = 0;
	}
	if (now_ns - ring->muted_until_ns > mute_forgiven_ns)
		ring->mute_level = 0;
	if (++ring->n_empty_bells >= (uint32_t)MAX_EMPTY_BELLS >> ring->mute_level)
		ring_mute(dispatch, ring, now_ns);
}

/*
 * Unmute rings whose time is over, as far as the turn allows: a client may have had any number of
 * rings muted at once.
 */
static void on_mute_over(void *data)
{
	struct dispatch *dispatch = data;
	const uint64_t now_ns = clock_now_ns();
	struct dispatch_ring *ring;

	for (unsigned int n = 0; n < UNMUTE_BATCH; n++) {
		ring = first_muted(dispatch);
		if (!ring || ring->muted_until_ns > now_ns ||
		    (n > 0 && turn_is_over(dispatch->turn)))
			break;
		heap_remove(&dispatch->muted, &ring->muted_node, is_heard_before);
		ring->is_muted = false;
		/* The bell of a polled ring is listened to when the ring sleeps. */
		if (!ring->is_active && !ring->ring->is_closing)
			ring_listen(ring);
	}
	ring = first_muted(dispatch);
	if (ring)
		loop_timer_arm(dispatch->mute_timer,
			       ring->muted_until_ns > now_ns ? ring->muted_until_ns - now_ns : 0);
}

/*
 * Announce a sleep. The caller must look for work once more: a client that could not yet see the
 * token does not ring. Return: true if it must execute the client's fence before.
 */
static bool ring_announce_sleep(struct dispatch_ring *ring)
{
	const struct session_ring *shared = ring->ring;

	/* The token is not 0 and differs from the last one. */
	ring->sleep_token += ring->sleep_token == UINT32_MAX ? 2 : 1;
	rbk_ring_announce_sleep(&shared->cq->sq_wait, ring->sleep_token);
	return shared->has_barriers && !rbk_ring_has_fences(&shared->sq->unfenced);
}

/*
 * Look for work after the announcement; @is_fenced: the client cannot miss it. Return: true if the
 * ring may sleep.
 */
static bool ring_may_sleep(struct dispatch_ring *ring, bool is_fenced)
{
	if (is_fenced && !dispatch_ring_has_work(ring))
		return true;
	ring->was_called_off = true;
	return false;
}

/* Announce a sleep, and look for work. Return: true if the ring may sleep. */
static bool ring_would_sleep(struct dispatch_ring *ring)
{
	return ring_may_sleep(ring, !ring_announce_sleep(ring) || !thread_fence_others());
}

/*
 * Adapt the spin budget after a sleep: double it if a longer spin would have caught the entry,
 * otherwise halve it. A client whose entries are rare gets a budget below the floor, but not one
 * that goes on soon after its tasks: ring_go_on() spins for it.
 */
static void learn_spin(const struct dispatch *dispatch, struct dispatch_ring *ring,
		       uint64_t now_ticks)
{
	const uint64_t idle_ticks = now_ticks - ring->last_work_ticks;
	const bool is_soon = idle_ticks < dispatch->max_spin_ticks;
	const uint64_t least_ticks =
		is_soon || ring->goes_on ? dispatch->min_spin_ticks : dispatch->crowded_spin_ticks;

	if (is_soon)
		ring->spin_ticks = ring->spin_ticks * 2;
	else
		ring->spin_ticks /= 2;
	if (ring->spin_ticks < least_ticks)
		ring->spin_ticks = least_ticks;
	if (ring->spin_ticks > dispatch->max_spin_ticks)
		ring->spin_ticks = dispatch->max_spin_ticks;
}

/*
 * Charge the flow for work on its rings beside their entries, and deduct the time from its credit
 * for entries where other flows have active rings. A flow that is alone incurs no debt. A client
 * that is woken often takes the reactor's processor for a while, which costs the flow nothing; and
 * as for a batch, the time is capped.
 */
static void charge_bell(struct dispatch *dispatch, struct flow *flow, struct turn_span span)
{
	const uint32_t n_others = dispatch->n_active_flows - (flow->n_active > 0);
	const int64_t most_ticks = (int64_t)dispatch->max_batch_ticks;
	uint64_t ticks = turn_span_cost(dispatch->turn, span, clock_ticks());

	if (ticks > dispatch->max_batch_ticks)
		ticks = dispatch->max_batch_ticks;
	flow->owed_ticks += ticks;
	if (flow->n_active == 0)
		flow_forgive(dispatch, flow, span.begin_ticks);
	if (n_others > 0)
		flow->credit_ticks -= (int64_t)ticks;
	if (flow->credit_ticks < -most_ticks)
		flow->credit_ticks = -most_ticks;
	if (flow->owed_ticks >= dispatch->charge_ticks)
		flow_charge(dispatch, flow);
}

/* Return true if the ring's client was last seen on the reactor's processor. */
static bool shares_processor(const struct dispatch_ring *ring)
{
	const uint32_t processor = __atomic_load_n(&ring->ring->sq->processor, __ATOMIC_RELAXED);

	return processor != 0 && processor == (uint32_t)sched_getcpu() + 1;
}

/* Return true if the reactor is on the processor of @ring's client, and may move to another. */
static bool may_move(const struct dispatch *dispatch, const struct dispatch_ring *ring,
		     uint64_t now_ticks)
{
	return !dispatch->is_contended && dispatch->options.n_processors >= 2 &&
	       dispatch->options.spin_ns != 0 && shares_processor(ring) &&
	       now_ticks - dispatch->moved_ticks >= clock_ns_to_ticks(move_interval_ns);
}

/*
 * Leave the processor of a client that has rung. The kernel often wakes the reactor there, although
 * another processor is idle: then neither the reactor nor the client may spin. A move pays only if
 * more entries follow, as they did before this bell: it takes longer than two switches of threads.
 * A move that fails changes nothing.
 */
static void leave_client(struct dispatch *dispatch, struct dispatch_ring *ring, uint64_t now_ticks)
{
	if (now_ticks - ring->last_work_ticks >= dispatch->max_spin_ticks ||
	    !may_move(dispatch, ring, now_ticks))
		return;
	dispatch->moved_ticks = now_ticks;
	/*
	 * A client that fell asleep meanwhile would be woken on the new processor. The prediction
	 * is shorter than any client's limit of spinning, so that it does not sleep first.
	 */
	if (!ring->is_due)
		__atomic_store_n(&ring->ring->cq->due_ns, clock_now_ns() + move_ns,
				 __ATOMIC_RELAXED);
	session_ring_tell_processor(ring->ring, -1);
	(void)thread_leave_processor();
	if (!ring->is_due)
		__atomic_store_n(&ring->ring->cq->due_ns, 0, __ATOMIC_RELAXED);
}

static void ring_was_rung(struct dispatch *dispatch, struct dispatch_ring *ring, uint64_t now_ticks)
{
	const bool was_called_off = ring->was_called_off;

	/* A throttled ring has not announced a sleep, and is resumed without a bell. */
	if (ring->is_throttled || ring->ring->is_closing)
		return;
	/* A stopping broker admits no entries. */
	if (dispatch->is_holding)
		return;
	ring->was_called_off = false;
	/* The client rings once per sleep, and has done so: announce another sleep. */
	if (ring->is_active || (!dispatch_ring_has_work(ring) && ring_would_sleep(ring))) {
		/*
		 * A client may ring for entries that come behind a barrier or a table, or that the
		 * reactor has seen before it slept.
		 */
		if (!ring->barrier && !ring->is_fetching && !was_called_off)
			ring_complain(dispatch, ring);
		/* The bell of a polled ring is listened to when the ring sleeps. */
		if (!ring->is_active)
			ring_listen(ring);
		return;
	}
	ring->goes_on = now_ticks - ring->done_ticks < dispatch->max_spin_ticks;
	/* Without a spin of full length, nothing can be learned of its worth. */
	if (dispatch->options.spin_ns < 0 && !dispatch->is_contended)
		learn_spin(dispatch, ring, now_ticks);
	leave_client(dispatch, ring, now_ticks);
	session_ring_tell_processor(ring->ring, sched_getcpu());
	ring_activate(dispatch, ring, now_ticks);
}

/* --- tables --- */

int dispatch_table_fetch(struct dispatch_ring *ring, const struct rbk_sqe *sqe)
{
	/* validate_entry() has found the table to be in range. */
	struct session_arena *arena = ring->ring->session->arenas[RBK_REF_ARENA(sqe->table)];
	const void *from = arena->exec.base + RBK_REF_OFFSET(sqe->table);

	if (session_table_fetch(ring->ring, arena, from, sqe->n_refs, sqe))
		return -ENOMEM;
	ring->is_fetching = true;
	ring->dispatch->is_batch_over = true;
	return 0;
}

void dispatch_ring_bell(void *context, struct session_ring *session_ring)
{
	struct dispatch_ring *ring = session_ring->dispatch;
	struct dispatch *dispatch = context;

	/* A muted ring's bell is read when the ring is unmuted. */
	if (!ring->is_muted)
		turn_queue_submit(&dispatch->rung, &ring->flow->bells, &ring->bell_job);
}

void dispatch_ring_drained(void *context, struct session_ring *session_ring)
{
	struct dispatch_ring *ring = session_ring->dispatch;
	const struct turn_span span = turn_span(ring->dispatch->turn, clock_ticks());

	ring_was_rung(ring->dispatch, ring, span.begin_ticks);
	charge_bell(ring->dispatch, ring->flow, span);
}

/*
 * Poll a ring that has rung for entries before its bell is drained, so that they do not wait for
 * the system call. Return: true if the bell is to be drained later.
 */
static bool ring_answers_first(struct dispatch *dispatch, struct dispatch_ring *ring,
			       uint64_t now_ticks)
{
	if (ring->is_bell_late || ring->is_active || !dispatch_ring_has_work(ring) ||
	    !session_ring_drains_itself(ring->ring))
		return false;
	ring_was_rung(dispatch, ring, now_ticks);
	return ring->is_active;
}

static void run_bell(struct turn_job *job)
{
	struct dispatch_ring *ring = container_of(job, struct dispatch_ring, bell_job);
	const bool was_late = ring->is_bell_late;
	struct dispatch *dispatch = ring->dispatch;
	const struct turn_span span = turn_span(dispatch->turn, clock_ticks());

	if (ring_answers_first(dispatch, ring, span.begin_ticks)) {
		ring->is_bell_late = true;
		list_append(&dispatch->late_bells, &ring->late_link);
	} else {
		ring->is_bell_late = false;
		if (session_ring_drain_bell(ring->ring) && !(was_late && ring->is_active))
			ring_was_rung(dispatch, ring, span.begin_ticks);
	}
	charge_bell(dispatch, ring->flow, span);
}

unsigned int dispatch_drain_late(struct dispatch *dispatch)
{
	unsigned int n = 0;

	for (; !list_is_empty(&dispatch->late_bells); n++) {
		struct dispatch_ring *ring =
			container_of(dispatch->late_bells.next, struct dispatch_ring, late_link);

		list_remove(&ring->late_link);
		turn_queue_submit(&dispatch->rung, &ring->flow->bells, &ring->bell_job);
	}
	return n;
}

unsigned int dispatch_answer_bells(struct dispatch *dispatch)
{
	const struct turn *turn = dispatch->turn;

	if (turn_queue_is_empty(&dispatch->rung))
		return 0;
	return turn_queue_run(&dispatch->rung,
			      turn_used_ticks(turn) + turn->budget_ticks / ANSWERS_PART);
}

static void run_wake(struct turn_job *job)
{
	struct dispatch_ring *ring = container_of(job, struct dispatch_ring, wake_job);
	const struct turn_span span = turn_span(ring->dispatch->turn, clock_ticks());

	if (ring->ring->is_closing)
		return;
	ring->rung_ticks = span.begin_ticks;
	/* A client that is not told of its completion would sleep for ever. */
	if (!session_ring_wake(ring->ring))
		turn_queue_submit(&ring->dispatch->bells, &ring->flow->wakes, job);
	charge_bell(ring->dispatch, ring->flow, span);
}

void dispatch_ring_bells(struct dispatch *dispatch)
{
	const struct turn *turn = dispatch->turn;

	/* A thread that wakes others is often preempted: the queue counts processor time. */
	turn_queue_run(&dispatch->bells, turn_used_ticks(turn) + turn->budget_ticks / BELLS_PART);
}

/*
 * Return true if @ring was at work since the last call, and its client was last seen on the
 * reactor's processor and does not sleep. The client says both itself.
 */
static bool waits_here(const struct dispatch *dispatch, const struct dispatch_ring *ring)
{
	uint32_t token;

	if ((int64_t)(ring->last_work_ticks - dispatch->reactor_run.way_ticks) <= 0 ||
	    !shares_processor(ring))
		return false;
	token = __atomic_load_n(&ring->ring->sq->cq_wait, __ATOMIC_RELAXED);
	return token == 0 || token == ring->rung_token;
}

/*
 * Leave the processor of a client that is awake there, before the reactor computes for it. A client
 * that polls would wait for its processor until its task has ended, or the task for a tick of the
 * scheduler, 4 ms, in which the client polls in vain.
 */
static void leave_awake_client(struct dispatch *dispatch, struct dispatch_ring *client)
{
	const uint64_t now_ticks = clock_ticks();

	if (dispatch->reactor_run.work_ns < move_for_ns || !may_move(dispatch, client, now_ticks) ||
	    __atomic_load_n(&client->ring->sq->cq_wait, __ATOMIC_RELAXED) != 0)
		return;
	dispatch->moved_ticks = now_ticks;
	(void)thread_leave_processor();
	session_ring_tell_processor(client->ring, sched_getcpu());
}

void dispatch_give_way(struct dispatch *dispatch, struct dispatch_ring *client)
{
	struct reactor_run *own = &dispatch->reactor_run;
	bool is_awaited = false;
	uint64_t now_ticks;

	/* Tasks that are shorter than a switch end soon. */
	if (own->work_ns < REACTOR_SWITCH_NS)
		return;
	leave_awake_client(dispatch, client);
	now_ticks = clock_ticks();
	/*
	 * The reactor often runs where the client was that woke it. That client would have its
	 * answer, and wait for its processor until a task of milliseconds has ended: its priority
	 * is lower than the reactor's, and the kernel moves it away late.
	 */
	for (uint32_t i = 0; i < dispatch->n_active && i < REACTOR_RUN_RINGS && !is_awaited; i++)
		is_awaited =
			dispatch->active[i] != client && waits_here(dispatch, dispatch->active[i]);
	if (is_awaited) {
		/* Not all the time, nor before others are answered: the next look comes soon. */
		if ((int64_t)(now_ticks - own->next_way_ticks) < 0 ||
		    !turn_queue_is_empty(&dispatch->rung) || loop_has_news(dispatch->options.loop))
			return;
		thread_nap(give_way_ns);
		own->next_way_ticks = clock_ticks() + (clock_ticks() - now_ticks) * (WAY_PART - 1);
	}
	own->way_ticks = now_ticks;
}

/* Return the number of runs that executors compute on processors, or will as soon as they can. */
static uint32_t n_computing(const struct dispatch *dispatch)
{
	uint32_t n = dispatch->n_submitted;

	for (uint32_t i = RBK_DEVICE_GPU; i < dispatch->n_executors; i++)
		if (dispatch->executors[i]->info.kind == EXECUTOR_GPU)
			n -= dispatch->loads[i].n_held;
	return n;
}

/*
 * Return true if the client of @ring was woken some time ago and does not run yet. It may wait for
 * the very processor on which the reactor spins for it: the kernel wakes a thread on the processor
 * of the one that wakes it, if no other is idle.
 */
static bool is_late(const struct dispatch *dispatch, const struct dispatch_ring *ring,
		    uint64_t now_ticks)
{
	uint32_t token;

	if (now_ticks - ring->rung_ticks < dispatch->late_ticks)
		return false;
	token = __atomic_load_n(&ring->ring->sq->cq_wait, __ATOMIC_RELAXED);
	return token != 0 && token == ring->rung_token;
}

/*
 * Return the time for which @ring stays active while it is empty. It does so for longer only beside
 * more rings than processors: a few clients that poll, and the reactor, would only take the
 * processors from each other.
 */
static uint64_t empty_ticks(const struct dispatch *dispatch, const struct dispatch_ring *ring,
			    bool is_busy, bool is_crowded, uint64_t now_ticks)
{
	/* In this order: the client has written the line that the second one reads. */
	const bool is_scarce = is_crowded || shares_processor(ring);
	const uint64_t ticks = ring->spin_ticks;
	uint64_t most_ticks = dispatch->crowded_spin_ticks;

	is_busy = is_busy && dispatch->n_active > dispatch->options.n_processors;
	if (is_busy && is_scarce)
		return ticks > dispatch->keep_ticks ? ticks : dispatch->keep_ticks;
	if (!is_scarce && !is_late(dispatch, ring, now_ticks))
		most_ticks = dispatch->options.has_quota ? dispatch->quota_spin_ticks : ticks;
	return ticks < most_ticks ? ticks : most_ticks;
}

/* End or begin an announced sleep of an active ring. Return: @may_sleep. */
static bool ring_sleep(struct dispatch *dispatch, struct dispatch_ring *ring, bool may_sleep,
		       uint64_t now_ticks)
{
	if (!may_sleep) {
		rbk_ring_announce_awake(&ring->ring->cq->sq_wait);
		ring->last_work_ticks = now_ticks;
		return false;
	}
	/* No entry came after the last completion. */
	if (ring->last_work_ticks == ring->done_ticks) {
		ring->last_work_ticks = ring->worked_ticks;
		ring->goes_on = false;
	}
	ring_listen(ring);
	ring_deactivate(dispatch, ring);
	return true;
}

/*
 * End or begin announced sleeps of rings whose clients execute no fences. One fence serves them
 * all. A tenant with many rings makes the reactor spend its time on it: each time one of the flows
 * is charged.
 */
static void sleep_unfenced(struct dispatch *dispatch, struct dispatch_ring *const *rings,
			   uint32_t n)
{
	const struct turn_span span = turn_span(dispatch->turn, clock_ticks());
	const bool is_fenced = !thread_fence_others();

	charge_bell(dispatch, rings[n - 1]->flow, span);
	for (uint32_t i = 0; i < n; i++) {
		rings[i]->is_dozing = false;
		ring_sleep(dispatch, rings[i], ring_may_sleep(rings[i], is_fenced),
			   span.begin_ticks);
	}
}

void dispatch_sleep_rings(struct dispatch *dispatch, bool has_worked)
{
	uint64_t now_ticks = clock_ticks();
	const bool is_busy =
		has_worked || now_ticks - dispatch->busy_ticks < dispatch->crowded_spin_ticks;
	bool is_crowded = dispatch->is_contended ||
			  (n_computing(dispatch) > 0 &&
			   dispatch->executors[RBK_DEVICE_CPU]->info.n_threads + 1 >=
				   dispatch->options.n_processors);
	uint32_t n = dispatch->n_active < SLEEP_BATCH ? dispatch->n_active : SLEEP_BATCH;
	struct dispatch_ring *ring, *unfenced[SLEEP_BATCH];
	uint32_t n_unfenced = 0;

	for (uint32_t i = dispatch->sleep_at; n > 0 && dispatch->n_active > 0; n--) {
		i = i < dispatch->n_active ? i : 0;
		dispatch->sleep_at = i + 1;
		ring = dispatch->active[i];
		/* It has taken the place of one that sleeps. */
		if (ring->is_dozing) {
			i++;
			continue;
		}
		if (ring->is_throttled) {
			ring_deactivate(dispatch, ring);
			dispatch->sleep_at = i;
			flow_park(dispatch, ring);
			continue;
		}
		session_ring_tell_processor(ring->ring, sched_getcpu());
		/* A bell that is not drained yet would wake the loop at once. */
		if (ring->is_bell_late ||
		    (int64_t)(now_ticks - ring->last_work_ticks) <
			    (int64_t)empty_ticks(dispatch, ring, is_busy, is_crowded, now_ticks)) {
			i++;
			continue;
		}

		if (ring_announce_sleep(ring)) {
			unfenced[n_unfenced++] = ring;
			ring->is_dozing = true;
			i++;
			continue;
		}
		/* The last active ring takes the place of this one, and is checked next. */
		i += !ring_sleep(dispatch, ring, ring_may_sleep(ring, true), now_ticks);
		dispatch->sleep_at = i;
	}
	if (n_unfenced > 0)
		sleep_unfenced(dispatch, unfenced, n_unfenced);
}

void dispatch_set_contended(struct dispatch *dispatch, bool is_contended)
{
	/* A GPU's thread polls beside the client and the reactor, which do so, too. */
	const bool may_poll = !is_contended && dispatch->options.spin_ns < 0 &&
			      dispatch->options.n_processors > 2;

	dispatch->is_contended = is_contended;
	for (uint32_t i = RBK_DEVICE_GPU; i < dispatch->n_executors; i++)
		atomic_store_explicit(&dispatch->executors[i]->may_poll, may_poll,
				      memory_order_relaxed);
}

void dispatch_log_contention(struct dispatch *dispatch, float factor)
{
	/*
	 * 2 to the power of 1/18, then steps of 1/9: round to the nearest ninth of the logarithm.
	 */
	float limit = 1.0392592f;
	uint32_t level = 0;

	for (; factor > limit && level < RBK_DECISION_CONTENTION_MAX; limit *= 1.0800597f)
		level++;
	dispatch->contention_flags = (uint16_t)(level << RBK_DECISION_CONTENTION_SHIFT);
}

/*
 * While stopping, no ring is polled even if it rang: a busy client could otherwise delay the end.
 */
void dispatch_stop_polling(struct dispatch *dispatch)
{
	while (dispatch->n_active > 0)
		ring_deactivate(dispatch, dispatch->active[0]);
}

void dispatch_poll_again(struct dispatch *dispatch)
{
	const uint64_t now_ticks = clock_ticks();

	list_for_each (node, &dispatch->rings) {
		struct dispatch_ring *ring = container_of(node, struct dispatch_ring, link);

		if (!ring->is_active && !ring->is_throttled && !ring->ring->is_closing)
			ring_activate(dispatch, ring, now_ticks);
	}
}

static void set_spin(struct dispatch *dispatch)
{
	int64_t spin_ns = dispatch->options.spin_ns;

	/* On a single processor, a spinning reactor keeps the client from running. */
	if (dispatch->options.n_processors < 2)
		spin_ns = dispatch->options.spin_ns = 0;
	dispatch->crowded_spin_ticks =
		clock_ns_to_ticks(spin_ns < 0 ? spin_crowded_ns : (uint64_t)spin_ns);
	dispatch->quota_spin_ticks =
		clock_ns_to_ticks(spin_ns < 0 ? spin_quota_ns : (uint64_t)spin_ns);
	dispatch->min_spin_ticks =
		clock_ns_to_ticks(spin_ns < 0 ? spin_floor_ns : (uint64_t)spin_ns);
	dispatch->max_spin_ticks =
		clock_ns_to_ticks(spin_ns < 0 ? spin_ceiling_ns : (uint64_t)spin_ns);
}

int rings_init(struct dispatch *dispatch)
{
	int r;

	set_spin(dispatch);
	dispatch->keep_ticks = clock_ns_to_ticks(keep_ns);
	dispatch->late_ticks = clock_ns_to_ticks(late_ns);
	r = loop_timer_new(dispatch->options.loop, on_mute_over, dispatch, &dispatch->mute_timer);
	return r ? error_fold(r) : 0;
}

void rings_deinit(struct dispatch *dispatch)
{
	loop_timer_free(dispatch->mute_timer);
	free(dispatch->active);
}
