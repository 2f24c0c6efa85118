/* SPDX-License-Identifier: MIT */
/*
 * Admission: from the submission ring to a completion or a task
 *
 * A ring is polled in bounded batches. Each entry is copied once, and only the copy is validated
 * and used. Most entries complete at once, without a task slot: NOPs, rejected entries, tiny CPU
 * tasks that run inline. Only an entry that has to wait takes a slot.
 *
 * Chains: an entry with RBK_SQE_LINK opens a chain, or continues one; the first entry without it is
 * the last. While an entry of the open chain has not completed (chain_last) the next is held; once
 * an entry has failed (chain_broken) the rest complete with -ECANCELED. An entry that names others
 * (join-hot.c) waits for these, too.
 */
#include <errno.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/record.h"
#include "dispatch/restore.h"
#include "dispatch/validate.h"
#include "loop/loop.h"
#include "shm/ring.h"
#include "util/clock.h"
#include "util/crash.h"

/*
 * Each plan has a leaky bucket: each inline run that takes longer than inline_overrun_ns adds
 * OVERRUN_COST, each other run removes 1, and once the bucket is full the plan is no longer
 * inlined. So an occasional preemption of the reactor is forgiven, and a plan whose estimate is
 * wrong is found within a few runs.
 *
 * A tenant has another bucket for all plans of all its sessions, so that a new plan brings no new
 * tolerance. While it is full no plan of the tenant is inlined. An overrun leaves this bucket
 * OVERRUN_INLINE_PAUSE_NS after the last one was added, or OVERRUN_PAUSE_NS after one of a task
 * that the reactor could stop.
 */
static const uint64_t inline_overrun_ns = 20000;

/*
 * Every entry is handled in one function, since calls between its parts would save registers each
 * time. The compiler by itself does not inline functions that have two callers; entries whose
 * tables were copied are the second one.
 */
#define ALWAYS_INLINE inline __attribute__((__always_inline__))

/* The placer learns from one in so many inline tasks. */
enum { LEARN_EVERY = 64 };

/* Numbers of entries; see claim_lines() */
enum {
	/* Smallest batch whose lines are fetched: a single round trip would take longer. */
	CLAIM_LEAST = 8,
	/* Entries of a step, by prefetches and by stores: powers of two */
	CLAIM_STEP = 8,
	CLAIM_STORE_STEP = 16,
};

/* Entries of an earlier broker that are admitted again in one batch */
enum { RESTORE_BATCH = 8 };

enum {
	/* A flow of average weight gets 1 / ROUND_PART of a turn's budget per round. */
	ROUND_PART = 10,
	/* Rounds in one turn, if none finds an entry */
	MAX_PASSES = 4,
	/* A flow that is alone gets 1 / ALONE_PART: only the loop notices clients' bells. */
	ALONE_PART = 4,
	/* Entries get at least 1 / ENTRIES_PART of a turn. */
	ENTRIES_PART = 2,
	/* Small tasks that take as long as two switches to a worker, as reactor-run-hot.c permits
	 */
	FEW_SMALL = 2 * REACTOR_SWITCH_NS / SMALL_NS,
};

/*
 * Refused entries of a tenant whose fault is looked for, in a time. All are counted; the limit
 * keeps a client that writes nothing but invalid entries from slowing its neighbours.
 */
static const uint64_t noted_period_ns = 1000000000;
enum { NOTED_MAX = 16 };

/* Read the clock at an entry that takes long, unless it is the first such entry of its batch. */
static inline void note_costly(struct dispatch *dispatch)
{
	if (dispatch->is_costly && clock_ticks() > dispatch->batch_stop_ticks)
		dispatch->is_batch_over = true;
	dispatch->is_costly = true;
}

/* Post the completion of an entry that ran on no device. */
static void post_bare(struct dispatch *dispatch, struct dispatch_ring *ring,
		      const struct rbk_sqe *sqe, int res)
{
	const struct outcome outcome = {.res = res, .device = RBK_DEVICE_NONE};

	ring_post(dispatch, ring, sqe->user_data, &outcome);
}

/* Count an invalid entry, note its fault unless many were noted lately, and complete it. */
static __attribute__((__cold__, __noinline__)) void refuse(struct dispatch *dispatch,
							   struct dispatch_ring *ring,
							   const struct rbk_sqe *sqe, int res)
{
	struct flow *flow = ring->flow;

	stats_entry_refused(ring->ring->session->tenant_stats);
	if (dispatch->now_ticks - flow->noted_from_ticks > clock_ns_to_ticks(noted_period_ns)) {
		flow->noted_from_ticks = dispatch->now_ticks;
		flow->n_noted = 0;
	}
	if (flow->n_noted < NOTED_MAX) {
		flow->n_noted++;
		/* The flow is charged for the time that it takes. */
		dispatch->is_costly = true;
		dispatch_note_refused(dispatch, ring, sqe, res);
	}
	post_bare(dispatch, ring, sqe, res);
}

/* Return AUTO for a strategy that needs a feature which the session has not negotiated. */
static inline uint8_t effective_strategy(uint64_t features, uint8_t strategy)
{
	bool is_new = strategy >= RBK_STRATEGY_LATENCY && strategy < RBK_STRATEGY_COUNT;

	return is_new && !(features & RBK_FEAT_STRATEGIES) ? RBK_STRATEGY_AUTO : strategy;
}

static inline uint8_t request_flags(uint64_t features, uint8_t sqe_flags)
{
	uint8_t flags = 0;

	if ((sqe_flags & RBK_SQE_PARTITION) && (features & RBK_FEAT_PARTITION))
		flags |= PLACE_MAY_PARTITION;
	if ((sqe_flags & RBK_SQE_WAIT_MEMORY) && (features & RBK_FEAT_RESIDENCY))
		flags |= PLACE_MAY_WAIT;
	return flags;
}

/* Take a slot for an entry whose references, if any, are in dispatch->inline_refs. */
static struct task *task_from_entry(struct dispatch *dispatch, struct dispatch_ring *ring,
				    const struct rbk_sqe *sqe, struct session_plan *plan,
				    uint64_t now_ticks, enum task_phase phase)
{
	uint64_t features = ring->ring->session->features;
	uint64_t hash = task_hash(ring, sqe->user_data);
	struct task *task = task_take(ring);
	struct exec_ref *refs = task->run.refs;

	if (++dispatch->n_taken % LOOK_EVERY == 0)
		note_costly(dispatch);
	dispatch->is_costly = true;
	task->plan = plan;
	task->whole = NULL;
	task->set = NULL;
	task->chain_next = NULL;
	task->half = NULL;
	join_take(task);
	task->user_data = sqe->user_data;
	task->target = sqe->target;
	task->admit_ticks = now_ticks;
	task->deadline_ticks = UINT64_MAX;
	task->opcode = sqe->opcode;
	task->phase = phase;
	task->strategy = effective_strategy(features, sqe->strategy);
	task->priority = features & RBK_FEAT_PRIORITY ? sqe->priority : RBK_PRIORITY_NORMAL;
	task->device = RBK_DEVICE_NONE;
	task->reason = RBK_REASON_NONE;
	task->place_flags = request_flags(features, sqe->flags);
	task->is_cancelled = false;
	task->is_explored = false;
	task->waits_for_memory = task->place_flags & PLACE_MAY_WAIT;
	task->has_waited = false;
	task->wait_res = 0;
	task->start_ticks = 0;
	if (sqe->opcode == RBK_OP_RUN) {
		task->count = sqe->count;
		task->n_rows_done[0] = task->n_rows_done[1] = 0;
		task->n_runs = 0;
		task->res = 0;
		task->end_ticks = 0;
		task->split_count = 0;
		task->predicted_ns = task->other_ns = 0;
		task->is_moved = task->was_held_back = false;
		task->run.place.state = PLACE_IDLE;
		if (sqe->deadline_us)
			task->deadline_ticks =
				now_ticks + clock_ns_to_ticks(sqe->deadline_us * 1000ull);
		for (uint32_t i = 0; i < plan->plan->n_bindings; i++) {
			refs[i] = dispatch->inline_refs[i];
			container_of(refs[i].arena, struct session_arena, exec)->n_in_flight++;
		}
	}
	if (plan)
		plan->n_in_flight++;
	if (ring->ring->records)
		record_take(task, sqe, dispatch->inline_refs, plan ? plan->plan->n_bindings : 0);
	list_append(&ring->in_flight, &task->link);
	index_insert(task_bucket(ring, hash), &task->named, hash);
	ring->ring->n_in_flight++;
	dispatch->stats->n_in_flight++;
	return task;
}

/* Log an inline task. Not inlined, because most inline tasks are not logged. */
static __attribute__((__noinline__)) void log_inline(const struct dispatch *dispatch,
						     const struct rbk_sqe *sqe,
						     struct session_plan *plan,
						     struct outcome outcome)
{
	const struct stats_task task = {
		.user_data = sqe->user_data,
		.ended_ns = clock_ticks_to_ns(dispatch->inline_clock_ticks),
		.queue_ns = outcome.queue_ns,
		.exec_ns = outcome.exec_ns,
		.count = sqe->count,
		.flags = outcome.flags,
		.device = RBK_DEVICE_CPU,
		.reason = outcome.reason,
		.res = outcome.res,
	};

	stats_inline_begin(&plan->stats, &task);
}

/* Learn from an inline task, one in LEARN_EVERY; not inlined for the same reason. */
static __attribute__((__noinline__)) void learn_inline(const struct dispatch *dispatch,
						       const struct rbk_sqe *sqe,
						       const struct session_plan *plan,
						       uint64_t exec_ns)
{
	place_learn(dispatch->placer, plan->place, RBK_DEVICE_CPU, sqe->count, PLACE_DONE, exec_ns,
		    0, clock_ticks_to_ns(dispatch->inline_clock_ticks));
}

static __attribute__((__cold__, __noinline__)) void note_overrun(const struct dispatch *dispatch,
								 struct flow *flow,
								 struct session_plan *plan)
{
	plan->inline_overruns += OVERRUN_COST;
	if (plan->inline_overruns >= OVERRUN_LIMIT)
		plan->inline_max_count = plan->small_max_count = plan->small_bound = 0;
	overrun_note(&flow->inline_overruns, &flow->inline_again_ticks,
		     dispatch->inline_clock_ticks, OVERRUN_INLINE_PAUSE_NS);
}

static __attribute__((__noinline__)) void forgive_overruns(struct flow *flow,
							   struct session_plan *plan)
{
	plan->inline_overruns -= plan->inline_overruns > 0;
	flow->inline_overruns -= flow->inline_overruns > 0;
}

/* Inlined, so that the outcome never lies in memory: see ring_post(). */
static ALWAYS_INLINE int run_inline(struct dispatch *dispatch, struct dispatch_ring *ring,
				    const struct rbk_sqe *sqe, struct session_plan *plan,
				    uint8_t reason)
{
	struct executor *cpu = dispatch->executors[RBK_DEVICE_CPU];
	struct exec_task *task = &dispatch->inline_task;
	struct series *series = &dispatch->series;
	struct outcome outcome = {.device = RBK_DEVICE_CPU, .reason = reason};

	task->plan = plan->plan;
	task->count = sqe->count;
	/*
	 * Reading the clock costs as much as a small task: the end of one task is the start of the
	 * next.
	 */
	task->start_ticks = dispatch->inline_clock_ticks;
	task->has_end = series_goes_on(series, plan, sqe->count, ring->ring->sq_head);
	task->end_ticks = task->start_ticks + series->mean_ticks;
	cpu->ops->run_inline(cpu, task);
	dispatch->inline_clock_ticks = task->end_ticks;
	if (task->has_end)
		series->n_tasks++;
	else
		series_measure(series, plan, sqe->count, task->start_ticks, task->end_ticks);
	if (__builtin_expect(task->end_ticks > dispatch->batch_stop_ticks, 0))
		dispatch->is_batch_over = true;

	outcome.res = task->res;
	outcome.queue_ns = dispatch->inline_queue_ns;
	outcome.exec_ns = clock_elapsed_ns(task->start_ticks, task->end_ticks);
	dispatch->inline_queue_ns += outcome.exec_ns;
	if (__builtin_expect(++dispatch->n_inline % LEARN_EVERY == 0, 0) && task->res == 0)
		learn_inline(dispatch, sqe, plan, outcome.exec_ns);
	if (__builtin_expect(outcome.exec_ns > inline_overrun_ns, 0))
		note_overrun(dispatch, ring->flow, plan);
	else if (__builtin_expect((plan->inline_overruns | ring->flow->inline_overruns) > 0, 0))
		forgive_overruns(ring->flow, plan);
	if (sqe->deadline_us &&
	    outcome.queue_ns + outcome.exec_ns > (uint64_t)sqe->deadline_us * 1000)
		outcome.flags = RBK_CQE_DEADLINE_MISSED;
	if (stats_inline_is_due(&plan->stats, reason, outcome.res, outcome.flags))
		log_inline(dispatch, sqe, plan, outcome);
	stats_inline_gather(&plan->stats, outcome.exec_ns);
	ring_post(dispatch, ring, sqe->user_data, &outcome);
	return outcome.res;
}

static struct place_decision decide_inline(struct dispatch *dispatch,
					   const struct dispatch_ring *ring,
					   const struct rbk_sqe *sqe,
					   const struct session_plan *plan)
{
	uint64_t features = ring->ring->session->features;
	const struct place_request request = {
		.count = sqe->count,
		.strategy = effective_strategy(features, sqe->strategy),
		.flags = request_flags(features, sqe->flags),
		.deadline_ns = sqe->deadline_us * 1000ull,
	};

	return place_decide(dispatch->placer, plan->place, ring->flow->place, request,
			    dispatch_now_ns(dispatch));
}

/*
 * Return true if touching the tensors of a validated entry may wait for a client that takes pages
 * away.
 */
static __attribute__((__noinline__)) bool may_sleep(const struct dispatch *dispatch,
						    const struct session_plan *plan)
{
	for (uint32_t i = 0; i < plan->plan->n_bindings; i++)
		if (!dispatch->inline_refs[i].arena->is_fixed)
			return true;
	return false;
}

/*
 * Return true if the reactor runs small tasks inline. With a slot, such a task would cost the
 * reactor another microsecond. Workers get small tasks only where they may be sooner: where many
 * wait, or several clients have some, unless the reactor and the clients need all processors.
 */
static bool takes_small(const struct dispatch *dispatch)
{
	return (dispatch->n_active == 1 && dispatch->n_batch <= FEW_SMALL) ||
	       dispatch->options.n_processors <= dispatch->n_active || dispatch->is_contended;
}

/*
 * Return the reason with which a task that is not tiny runs inline; RBK_REASON_NONE: it does not.
 * The placer is not asked for a decision, which it would count as a try of a device that failed.
 */
static __attribute__((__noinline__)) uint8_t small_reason(const struct dispatch *dispatch,
							  const struct session_plan *plan,
							  const struct rbk_sqe *sqe)
{
	if (sqe->count > plan->small_bound || !takes_small(dispatch) ||
	    place_predict_ns(dispatch->placer, plan->place, RBK_DEVICE_CPU, sqe->count) > SMALL_NS)
		return RBK_REASON_NONE;
	if (sqe->strategy == RBK_STRATEGY_AUTO && sqe->count <= plan->small_max_count)
		return plan->small_reason;
	return sqe->strategy == RBK_STRATEGY_ONLY_CPU && !plan->plan->pinned
		       ? RBK_REASON_USER_PREFERENCE
		       : RBK_REASON_NONE;
}

/*
 * Start a validated entry that waits for nothing.
 * Return: the result of an entry that completed, or -ECANCELED if its task failed; 0 with *ret_task
 * set if the entry has not completed.
 */
static ALWAYS_INLINE int start_entry(struct dispatch *dispatch, struct dispatch_ring *ring,
				     const struct rbk_sqe *sqe, struct session_plan *plan,
				     uint64_t now_ticks, struct task **ret_task)
{
	struct place_decision decision;
	struct task *task;
	bool is_small, is_queued;
	uint8_t reason;
	int res = 0;

	switch (sqe->opcode) {
	case RBK_OP_RUN:
		is_small = sqe->count > plan->inline_max_count;
		reason = is_small ? small_reason(dispatch, plan, sqe) : plan->inline_reason;
		if (is_small && !reason)
			break;
		if (!overrun_permits(&ring->flow->inline_overruns, ring->flow->inline_again_ticks,
				     dispatch->now_ticks))
			break;
		if (__builtin_expect(ring->ring->session->n_unfixed > 0, 0) &&
		    may_sleep(dispatch, plan))
			break;
		/* The client is told of each small task, and other rings are polled. */
		dispatch->is_batch_over |= is_small;
		/* inline_reason: the answer of place_decide(), cached by plan_review() */
		if (is_small || (sqe->strategy == RBK_STRATEGY_AUTO && reason))
			return run_inline(dispatch, ring, sqe, plan, reason);
		decision = decide_inline(dispatch, ring, sqe, plan);
		is_queued = decision.device != RBK_DEVICE_CPU ||
			    (decision.reason == RBK_REASON_MEMORY_CONSTRAINT && decision.wanted &&
			     (sqe->flags & RBK_SQE_WAIT_MEMORY));
		if (is_queued) {
			dispatch->decided = &decision;
			break;
		}
		if (decision.reason == RBK_REASON_MEMORY_CONSTRAINT)
			note_constraint(dispatch, plan, decision, now_ticks, 0);
		return run_inline(dispatch, ring, sqe, plan, decision.reason);
	case RBK_OP_PREFETCH:
	case RBK_OP_EVICT:
		break;
	case RBK_OP_CANCEL:
		note_costly(dispatch);
		res = dispatch_cancel(ring, NULL, sqe->target);
		post_bare(dispatch, ring, sqe, res);
		return res;
	case RBK_OP_BARRIER:
		if (ring->ring->n_in_flight > 0) {
			ring->barrier =
				task_from_entry(dispatch, ring, sqe, NULL, now_ticks, TASK_BARRIER);
			dispatch->is_batch_over = true;
			return 0;
		}
		__attribute__((fallthrough));
	default:
		post_bare(dispatch, ring, sqe, 0);
		return 0;
	}

	task = task_from_entry(dispatch, ring, sqe, plan, now_ticks, TASK_HELD);
	/* The task may be rejected at once: then chain_last is reset and chain_broken set. */
	ring->chain_last = task;
	ring->chain_broken = false;
	task_start(dispatch, task);
	dispatch->decided = NULL;
	*ret_task = ring->chain_last;
	return ring->chain_broken ? -ECANCELED : 0;
}

/*
 * Hold an entry of an open chain whose earlier part has not completed, or cancel it if that part
 * has failed.
 */
static void admit_waiting(struct dispatch *dispatch, struct dispatch_ring *ring,
			  const struct rbk_sqe *sqe, struct session_plan *plan, int res,
			  const struct join *join, uint64_t now_ticks)
{
	struct task *task;

	if (res || ring->chain_broken) {
		/*
		 * A rejected entry reports its own error, and the entries after it are cancelled.
		 */
		if (res)
			refuse(dispatch, ring, sqe, res);
		else
			post_bare(dispatch, ring, sqe, -ECANCELED);
		join_note_failed(ring);
		ring->chain_last = NULL;
		ring->chain_broken = true;
	} else {
		task = task_from_entry(dispatch, ring, sqe, plan, now_ticks, TASK_HELD);
		ring->chain_last->chain_next = task;
		ring->chain_last = task;
		join_wait(task, join);
		task->join.is_chained = true;
	}
}

/*
 * Admit an entry that is in an open chain, or names predecessors: @res is the result of its
 * validation. The entry may overwrite what they have read, and may be of the same batch.
 * Return: true if the entry was admitted; false if it waits for nothing, with *ret_res set.
 */
static __attribute__((__noinline__)) bool admit_successor(struct dispatch *dispatch,
							  struct dispatch_ring *ring,
							  const struct rbk_sqe *sqe,
							  struct session_plan *plan, int res,
							  uint64_t now_ticks, int *ret_res)
{
	struct join join = {.n = 0};

	if (ring->chain_open && sqe->opcode == RBK_OP_BARRIER)
		res = -EINVAL;
	if (res == 0 && (sqe->flags & RBK_SQE_AFTER))
		res = join_find(ring, sqe, &join);
	if (ring->chain_open && (ring->chain_last || ring->chain_broken)) {
		admit_waiting(dispatch, ring, sqe, plan, res, &join, now_ticks);
		return true;
	}
	*ret_res = res;
	if (res == 0 && join.n > 0) {
		ring->chain_last = task_from_entry(dispatch, ring, sqe, plan, now_ticks, TASK_HELD);
		ring->chain_broken = false;
		join_wait(ring->chain_last, &join);
		return true;
	}
	if (res == 0 && join.is_failed) {
		post_bare(dispatch, ring, sqe, -ECANCELED);
		join_note_failed(ring);
		ring->chain_last = NULL;
		ring->chain_broken = true;
		return true;
	}
	if (ring->ring->records)
		ring_commit(ring, ring->ring->sq_head - !ring_is_restoring(ring));
	return false;
}

static ALWAYS_INLINE void admit_entry(struct dispatch *dispatch, struct dispatch_ring *ring,
				      const struct rbk_sqe *sqe, uint64_t now_ticks)
{
	struct session_plan *plan = NULL;
	struct task *task = NULL;
	int res, start_res;

	res = validate_entry(ring->ring->session, sqe, dispatch->inline_refs, &plan);
	if (__builtin_expect(res == VALIDATE_E_TABLE, 0)) {
		dispatch->is_costly = true;
		res = dispatch_table_fetch(ring, sqe);
		if (res == 0)
			return;
	}
	if (__builtin_expect(ring->chain_open | (sqe->flags & RBK_SQE_AFTER), 0)) {
		/* Were its address taken, the result of every entry would lie in memory. */
		start_res = res;
		if (admit_successor(dispatch, ring, sqe, plan, res, now_ticks, &start_res))
			goto linked;
		res = start_res;
	}

	if (__builtin_expect(res != 0, 0))
		refuse(dispatch, ring, sqe, res);
	else
		res = start_entry(dispatch, ring, sqe, plan, now_ticks, &task);
	/* Outside of chains chain_last is NULL and chain_broken false: most need no stores. */
	if (__builtin_expect((sqe->flags | ring->chain_open) == 0 && res >= 0 && !task, 1))
		return;
	ring->chain_last = task;
	ring->chain_broken = res < 0;
	/* A later entry may name this one. */
	if (__builtin_expect(res < 0, 0))
		join_note_failed(ring);
linked:
	if (__builtin_expect(sqe->flags != 0, 0)) {
		if (sqe->flags & RBK_SQE_ARG_TABLE)
			note_costly(dispatch);
		ring->chain_open = sqe->flags & RBK_SQE_LINK;
	} else {
		ring->chain_open = false;
	}
	if (!ring->chain_open) {
		ring->chain_last = NULL;
		ring->chain_broken = false;
	}
}

/* Store to the free slot of a later completion, which overwrites it before it is published. */
static inline void touch_slot(const struct session_ring *ring, uint32_t i)
{
	__atomic_store_n(&ring->cq->cqes[(ring->cq_tail + i) & ring->mask].user_data, 0,
			 __ATOMIC_RELAXED);
}

static inline uint32_t claim_step(const struct dispatch *dispatch)
{
	return dispatch->stores_fetch ? CLAIM_STORE_STEP : CLAIM_STEP;
}

/*
 * Fetch the cache lines of the entries of two steps and of their completions, of @n entries that
 * are left of a batch; those of the first @n_fetched are on their way. Otherwise each line would be
 * waited for in turn. Those of a large batch are fetched in steps: nothing else could be done while
 * all came, and stores to all would fill the store buffer.
 */
static inline void claim_lines(const struct dispatch *dispatch, const struct session_ring *ring,
			       uint32_t n_fetched, uint32_t n)
{
	const uint32_t most = 2 * claim_step(dispatch), end = n < most ? n : most;

	for (uint32_t i = n_fetched; i < end; i++)
		__builtin_prefetch(&ring->sq->sqes[(ring->sq_head + i) & ring->mask]);
	if (dispatch->stores_fetch)
		for (uint32_t i = n_fetched; i < end; i += 2)
			touch_slot(ring, i);
	else
		for (uint32_t i = n_fetched; i < end; i += 2)
			rbk_ring_claim(&ring->cq->cqes[(ring->cq_tail + i) & ring->mask]);
}

/*
 * Go on with claim_lines() after a step. Slots of the next one that were prefetched are also stored
 * to, in case the prefetch did nothing; if it did, the lines have come.
 */
static inline void claim_more(const struct dispatch *dispatch, const struct session_ring *ring,
			      uint32_t n)
{
	claim_lines(dispatch, ring, claim_step(dispatch), n);
	if (!dispatch->stores_fetch)
		for (uint32_t i = 0; i < CLAIM_STEP; i += 2)
			touch_slot(ring, i);
}

/*
 * Note the tenant of a batch that took too long, for the turn's report. Return: the ticks that the
 * flow is charged, which are limited, since the flow is not to blame for a preempted reactor.
 */
static __attribute__((__noinline__)) uint64_t note_long_batch(struct dispatch *dispatch,
							      const struct flow *flow,
							      uint64_t ticks)
{
	uint64_t charged_ticks =
		ticks > dispatch->max_batch_ticks ? dispatch->max_batch_ticks : ticks;

	dispatch->turn->entries.tenant = flow->tenant->number;
	/* The counter may have gone backwards. */
	if ((int64_t)ticks > 0)
		dispatch->turn->entry_ticks += ticks - charged_ticks;
	return charged_ticks;
}

/*
 * Charge a flow for @n entries. Reading the clock once more takes a good part of the time of one
 * NOP. So entries that complete at once are charged their usual time, on top of inline tasks, which
 * read the clock anyway.
 */
static inline void charge_batch(struct dispatch *dispatch, struct flow *flow, uint64_t start_ticks,
				uint32_t n)
{
	uint64_t ticks;

	if (dispatch->is_costly) {
		dispatch->now_ticks = clock_ticks();
		dispatch->is_now = true;
		ticks = dispatch->now_ticks - start_ticks;
	} else {
		ticks = dispatch->inline_clock_ticks - start_ticks + n * dispatch->entry_ticks;
	}
	if (__builtin_expect(ticks > dispatch->long_batch_ticks, 0))
		ticks = note_long_batch(dispatch, flow, ticks);
	dispatch->turn->entry_ticks += ticks;
	flow->owed_ticks += ticks;
	if (flow->owed_ticks >= dispatch->charge_ticks)
		flow_charge(dispatch, flow);
}

/* Note that a batch took too long and left its last @n entries, admitted at @admit_ticks. */
static __attribute__((__noinline__)) void leave_rest(const struct dispatch *dispatch,
						     struct dispatch_ring *ring,
						     uint64_t admit_ticks, uint32_t n)
{
	ring->n_left = n;
	ring->left_ticks = admit_ticks;
	ring->left_queue_ns = dispatch->inline_queue_ns;
}

/*
 * Begin a batch of the entries that the batch before left.
 * Return: the time in ticks at which they were admitted.
 */
static __attribute__((__noinline__)) uint64_t take_rest(struct dispatch *dispatch,
							struct dispatch_ring *ring,
							uint64_t now_ticks)
{
	ring->n_left = 0;
	dispatch->inline_queue_ns = clock_elapsed_ns(ring->left_ticks, now_ticks);
	if (dispatch->inline_queue_ns < ring->left_queue_ns)
		dispatch->inline_queue_ns = ring->left_queue_ns;
	return ring->left_ticks;
}

/* Admit one entry outside of a batch, as if at @admit_ticks. */
static __attribute__((__noinline__)) void admit_one(struct dispatch *dispatch,
						    struct dispatch_ring *ring,
						    const struct rbk_sqe *sqe, uint64_t admit_ticks)
{
	const uint64_t now_ticks = clock_ticks();
	const void *outer = crash_enter(ring);

	dispatch->now_ticks = now_ticks;
	dispatch->is_costly = true;
	dispatch->n_batch = 1;
	dispatch->inline_clock_ticks = now_ticks;
	dispatch->inline_queue_ns = clock_elapsed_ns(admit_ticks, now_ticks);
	series_begin(&dispatch->series, now_ticks, ring->ring->sq_head);
	admit_entry(dispatch, ring, sqe, admit_ticks);
	crash_enter(outer);
	ring->last_work_ticks = now_ticks;
	charge_batch(dispatch, ring->flow, now_ticks, 1);
}

/* Admit the next entry that an earlier broker left. */
static void admit_again(struct dispatch *dispatch, struct dispatch_ring *ring,
			const struct rbk_sqe *sqe)
{
	uint64_t admit_ticks;
	int res = restore_prepare(dispatch, ring, sqe, &admit_ticks);

	if (res)
		restore_refuse(dispatch, ring, sqe, res);
	else
		admit_one(dispatch, ring, sqe, admit_ticks);
	restore_finish(ring);
}

/* Admit a batch of the entries that an earlier broker left. Return: their number. */
static __attribute__((__cold__, __noinline__)) int poll_restored(struct dispatch *dispatch,
								 struct dispatch_ring *ring)
{
	struct rbk_sqe sqe;
	int n = 0;

	/* A throttled ring may wait for long; one behind a barrier even for a plan's removal. */
	if (ring->flow->may_throttle && ring_is_throttled(dispatch, ring)) {
		session_ring_restored(ring->ring);
		return 0;
	}
	ring->last_work_ticks = clock_ticks();
	while (ring_is_restoring(ring) && !ring->barrier && !ring->is_fetching &&
	       n < RESTORE_BATCH) {
		sqe = ring->ring->records[ring->n_readmitted].sqe;
		admit_again(dispatch, ring, &sqe);
		n++;
	}
	if (ring->barrier)
		session_ring_restored(ring->ring);
	ring_publish(dispatch, ring);
	return n;
}

int dispatch_poll_ring(struct dispatch *dispatch, struct dispatch_ring *dispatch_ring)
{
	struct session_ring *ring = dispatch_ring->ring;
	const uint32_t step = claim_step(dispatch);
	uint32_t n, unread, i;
	int32_t room;
	uint64_t now_ticks, admit_ticks;
	const void *outer;
	struct rbk_sqe sqe;

	if (__builtin_expect(ring_is_restoring(dispatch_ring), 0))
		return poll_restored(dispatch, dispatch_ring);
	/* Pairs with the client's publication: the entries before it are complete. */
	n = rbk_ring_observe(&ring->sq->sq_tail) - ring->sq_head;
	if (n == 0 || dispatch_ring->barrier || dispatch_ring->is_fetching)
		return 0;
	if (n > ring->n_entries)
		return ADMIT_E_PROTOCOL;
	if (__builtin_expect(dispatch_ring->flow->may_throttle, 0) &&
	    ring_is_throttled(dispatch, dispatch_ring))
		return 0;
	if (n > ADMIT_BATCH)
		n = ADMIT_BATCH;

	/*
	 * Completions are never dropped: an entry is admitted only if its completion has room. A
	 * task that has completed may be unread and, with a slot that is kept, in flight
	 * (join_keep_slot()).
	 */
	room = (int32_t)(ring->n_entries - (ring->cq_tail - ring->cq_head_seen) -
			 ring->n_in_flight);
	if (room < (int32_t)n) {
		unread = ring->cq_tail - rbk_ring_observe(&ring->sq->cq_head);
		if (unread > ring->n_entries)
			return ADMIT_E_PROTOCOL;
		ring->cq_head_seen = ring->cq_tail - unread;
		if (unread + ring->n_in_flight >= ring->n_entries)
			return 0;
		room = (int32_t)(ring->n_entries - unread - ring->n_in_flight);
		if ((int32_t)n > room)
			n = (uint32_t)room;
	}

	if (n >= CLAIM_LEAST)
		claim_lines(dispatch, ring, 0, n);
	now_ticks = admit_ticks = clock_ticks();
	dispatch->now_ticks = now_ticks;
	dispatch->is_now = false;
	dispatch->is_costly = false;
	dispatch->inline_clock_ticks = now_ticks;
	dispatch->inline_queue_ns = 0;
	if (__builtin_expect(dispatch_ring->n_left > 0, 0)) {
		if (n > dispatch_ring->n_left)
			n = dispatch_ring->n_left;
		admit_ticks = take_rest(dispatch, dispatch_ring, now_ticks);
	}
	series_begin(&dispatch->series, now_ticks, ring->sq_head + n);
	dispatch->is_batch_over = false;
	dispatch->n_batch = n;
	dispatch->batch_stop_ticks = now_ticks + dispatch->batch_ticks;
	outer = crash_enter(dispatch_ring);
	for (i = 0; i < n && !dispatch->is_batch_over; i++) {
		if ((i & (step - 1)) == 0 && n - i > step && i > 0)
			claim_more(dispatch, ring, n - i);
		rbk_sqe_load(&sqe, &ring->sq->sqes[ring->sq_head & ring->mask]);
		ring->sq_head++;
		admit_entry(dispatch, dispatch_ring, &sqe, admit_ticks);
	}
	crash_enter(outer);
	if (__builtin_expect(i < n, 0) && !dispatch_ring->barrier && !dispatch_ring->is_fetching)
		leave_rest(dispatch, dispatch_ring, admit_ticks, n - i);
	dispatch_ring->last_work_ticks = now_ticks;
	dispatch_ring->join.n_taken += i;
	ring_publish(dispatch, dispatch_ring);
	charge_batch(dispatch, dispatch_ring->flow, now_ticks, i);
	return (int)i;
}

void dispatch_admit_fetched(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	struct session_table *table = ring->ring->table;
	struct session *session = ring->ring->session;

	session->fetched = table->refs;
	if (ring_is_restoring(ring))
		admit_again(dispatch, ring, &table->sqe);
	else
		admit_one(dispatch, ring, &table->sqe, clock_ticks());
	session->fetched = NULL;
	ring_publish(dispatch, ring);
}

/* Compute the ticks that the turn has left for entries. */
static uint64_t entry_ticks_left(const struct dispatch *dispatch)
{
	const struct turn *turn = dispatch->turn;
	uint64_t least_ticks = turn->budget_ticks / ENTRIES_PART;

	if (dispatch->n_active_flows == 1)
		return turn->budget_ticks / ALONE_PART;
	return turn->other_ticks + least_ticks < turn->budget_ticks
		       ? turn->budget_ticks - turn->other_ticks
		       : least_ticks;
}

/*
 * Return true if the turn is to move on: the kernel has events, such as the bell of an idle tenant,
 * or clients are to be woken beyond the @n_bells before. Entries first have as much of the turn as
 * everything else, so that clients that ring or sleep continually do not end every round.
 */
static bool is_called(const struct dispatch *dispatch, uint64_t n_bells)
{
	return dispatch->turn->entry_ticks >= dispatch->turn->other_ticks &&
	       (dispatch->bells.n_jobs > n_bells || loop_has_news(dispatch->options.loop));
}

/*
 * Poll the rings of @flow in turn while it has credit, until entries have taken @stop_ticks of this
 * turn. A flow that is alone has as much credit as it needs, and each of its rings is polled at
 * most once, so that the turn ends.
 * Return: the number of entries; -1 with *ret_hostile set.
 */
static int poll_flow(struct dispatch *dispatch, struct flow *flow, uint64_t *idle_ticks,
		     uint64_t stop_ticks, struct dispatch_ring **ret_hostile)
{
	const bool is_alone = dispatch->n_active_flows == 1;
	uint32_t n_empty = 0, n_polls = 0;
	int n_total = 0, n;

	do {
		struct dispatch_ring *ring = flow->next;
		uint64_t before_ticks = dispatch->turn->entry_ticks;

		flow->next = ring->next_active;
		n = dispatch_poll_ring(dispatch, ring);
		if (n < 0) {
			*ret_hostile = ring;
			return -1;
		}
		if (n == 0) {
			n_empty++;
			*idle_ticks += dispatch->poll_ticks;
			flow->credit_ticks -= (int64_t)dispatch->poll_ticks;
		} else {
			n_empty = 0;
			flow->credit_ticks -= (int64_t)(dispatch->turn->entry_ticks - before_ticks);
		}
		n_total += n;
		n_polls++;
		if (dispatch->turn->entry_ticks + *idle_ticks >= stop_ticks ||
		    (is_alone && is_called(dispatch, UINT64_MAX)))
			break;
	} while (n_empty < flow->n_active &&
		 (is_alone ? n_polls < flow->n_active : flow->credit_ticks > 0));
	return n_total;
}

/*
 * Poll all active flows by deficit round robin: each flow has a visit, for which it gets credit by
 * its weight. A flow that took more than its credit is passed over until it has made up for it.
 * Source: Shreedhar, Varghese, Efficient Fair Queuing Using Deficit Round-Robin, 1996. The credit
 * is that of @n_rounds rounds. *ret_n_rounds is the number of further rounds until the first flow
 * that was passed over has made up; 0: none was passed over.
 */
static unsigned int poll_flows(struct dispatch *dispatch, int64_t n_rounds, int64_t *ret_n_rounds,
			       struct dispatch_ring **ret_hostile)
{
	const uint64_t left_ticks = entry_ticks_left(dispatch);
	const uint64_t flow_ticks = dispatch->turn->budget_ticks / ROUND_PART;
	const uint64_t stop_ticks = dispatch->turn->entry_ticks + left_ticks;
	uint64_t round_ticks = dispatch->n_active_flows * flow_ticks, idle_ticks = 0;
	const uint64_t n_bells = dispatch->bells.n_jobs;
	unsigned int n_total = 0;
	int64_t n_missing;
	uint32_t i;
	int n;

	*ret_n_rounds = 0;
	if (round_ticks > left_ticks)
		round_ticks = left_ticks;
	for (i = dispatch->n_active_flows; i > 0; i--) {
		struct flow *flow =
			container_of(dispatch->active_flows.next, struct flow, active_link);
		int64_t quantum_ticks =
			(int64_t)(round_ticks * flow->weight / dispatch->active_weight) + 1;

		list_remove(&flow->active_link);
		list_append(&dispatch->active_flows, &flow->active_link);
		flow->credit_ticks += n_rounds * quantum_ticks;
		if (flow->credit_ticks > quantum_ticks || dispatch->n_active_flows == 1)
			flow->credit_ticks = quantum_ticks;
		if (flow->credit_ticks <= 0) {
			n_missing = -flow->credit_ticks / quantum_ticks + 1;
			if (*ret_n_rounds == 0 || n_missing < *ret_n_rounds)
				*ret_n_rounds = n_missing;
			continue;
		}
		n = poll_flow(dispatch, flow, &idle_ticks, stop_ticks, ret_hostile);
		/* A preempted reactor is not the tenant's fault. */
		if (flow->credit_ticks < -(int64_t)dispatch->max_batch_ticks)
			flow->credit_ticks = -(int64_t)dispatch->max_batch_ticks;
		if (n < 0)
			return n_total + 1;
		n_total += (unsigned int)n;
		/* A client that is to be woken does not wait for the rest of the round. */
		if (dispatch->turn->entry_ticks + idle_ticks >= stop_ticks ||
		    is_called(dispatch, n_bells))
			break;
	}
	dispatch->is_round_cut = i > 1;
	return n_total;
}

unsigned int dispatch_poll(struct dispatch *dispatch, struct dispatch_ring **ret_hostile)
{
	unsigned int n_total = 0;
	int64_t n_rounds = 1;
	int n;

	dispatch->is_now = false;
	if (dispatch->n_active == 0)
		return 0;
	if (__builtin_expect(dispatch->n_active == 1, 1)) {
		n = dispatch_poll_ring(dispatch, dispatch->active[0]);
		if (n >= 0)
			return (unsigned int)n;
		*ret_hostile = dispatch->active[0];
		return 1;
	}
	/* If the flows that have credit have no entries, let the flows in debt catch up at once. */
	for (unsigned int i = 0; i < MAX_PASSES && n_total == 0 && n_rounds > 0; i++)
		n_total = poll_flows(dispatch, n_rounds, &n_rounds, ret_hostile);
	return n_total;
}
