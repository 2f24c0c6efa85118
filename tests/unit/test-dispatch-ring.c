/* SPDX-License-Identifier: MIT */
/*
 * The dispatcher and a ring: indices and room, inline tasks, deadlines, counts, and the turn.
 * test-dispatch-sleep.c tests bells, test-dispatch-tasks.c tasks.
 */
#include <string.h>

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/test.h"
#include "unit/dispatch-bench.h"
#include "util/checked.h"
#include "util/clock.h"

/* --- Indices --- */

/* Every way of completing, across the wrap-around of 32 bits. */
static void run_wrap(void (*round)(struct bench *bench, uint64_t user_data))
{
	BENCH(bench, 1, N_ENTRIES);
	rig_ring_set_index(&bench.ring, UINT32_MAX - 5);
	for (uint64_t i = 0; i < 3ull * N_ENTRIES; i++) {
		round(&bench, i);
		expect_none(&bench);
		assert_fields(bench.ring, (ring->n_in_flight, 0),
			      (cq->sq_head, bench.ring.sq_tail));
	}
	assert_int_equal(bench.ring.sq_tail, UINT32_MAX - 5 + 3 * N_ENTRIES);
}

static void round_inline(struct bench *bench, uint64_t user_data)
{
	put_run(bench, bench->tiny, user_data, 0);
	assert_int_equal(rig_work(&bench->rig), 1);
	assert_int_equal(expect_cqe(bench, user_data, 0).device, CPU);
	assert_int_equal(bench->cpu->n_inline, user_data + 1);
}

static void round_queued(struct bench *bench, uint64_t user_data)
{
	put_run(bench, bench->queued, user_data, 0);
	assert_int_equal(rig_work(&bench->rig), 1);
	expect_none(bench);
	finish(bench, bench->cpu, user_data, 0);
	expect_cqe(bench, user_data, 0);
}

TEST(test_wrap__inline)
{
	run_wrap(round_inline);
}

TEST(test_wrap__queued)
{
	run_wrap(round_queued);
}

/* --- Room --- */

/* An entry is consumed only if its completion has room: no completion is dropped. */
TEST(test_room__full_of_completions)
{
	BENCH(bench, 1, N_ENTRIES);
	rig_ring_set_index(&bench.ring, UINT32_MAX - 5);
	for (uint64_t i = 0; i < N_ENTRIES; i++)
		put_bare(&bench, RBK_OP_NOP, i, 0);
	assert_int_equal(rig_work(&bench.rig), N_ENTRIES);
	for (uint64_t i = 0; i < N_ENTRIES; i++)
		put_bare(&bench, RBK_OP_NOP, 100 + i, 0);
	assert_int_equal(rig_work(&bench.rig), 0);
	assert_false(dispatch_ring_has_work(rig_dispatch_ring(&bench.ring)));
	/* Each consumed completion admits one entry. */
	for (uint64_t i = 0; i < N_ENTRIES; i++) {
		expect_cqe(&bench, i, 0);
		assert_true(dispatch_ring_has_work(rig_dispatch_ring(&bench.ring)));
		assert_int_equal(rig_work(&bench.rig), 1);
	}
	for (uint64_t i = 0; i < N_ENTRIES; i++)
		expect_cqe(&bench, 100 + i, 0);
	expect_none(&bench);
}

TEST(test_room__batch_is_bounded)
{
	BENCH(bench, 1, 4 * ADMIT_BATCH);
	for (uint64_t i = 0; i < 3 * ADMIT_BATCH; i++)
		put_bare(&bench, RBK_OP_NOP, i, 0);
	assert_int_equal(dispatch_poll_ring(bench.rig.dispatch, rig_dispatch_ring(&bench.ring)),
			 ADMIT_BATCH);
	assert_int_equal(bench.ring.cq->cq_tail, ADMIT_BATCH);
	assert_int_equal(rig_work(&bench.rig), 2 * ADMIT_BATCH);
	for (uint64_t i = 0; i < 3 * ADMIT_BATCH; i++)
		expect_cqe(&bench, i, 0);
}

/*
 * The lines of a batch are fetched by stores to slots of its completions, and to no others: any
 * number of completions that the client has not consumed, and of tasks in flight, stay.
 */
static void expect_unread_stay(bool stores_fetch)
{
	enum { N = 64, N_TASKS = 2 };

	BENCH(bench, 1, N);
	bench.rig.dispatch->stores_fetch = stores_fetch;
	rig_ring_set_index(&bench.ring, UINT32_MAX - 5);
	for (uint64_t n_unread = 0; n_unread < N; n_unread++) {
		for (uint64_t i = 0; i < N; i++) {
			if (i == n_unread)
				assert_int_equal(rig_work(&bench.rig), n_unread);
			if (i < n_unread || i >= n_unread + N_TASKS)
				put_bare(&bench, RBK_OP_NOP, 1000 + i, 0);
			else
				put_run(&bench, bench.queued, 1000 + i, 0);
		}
		rig_work(&bench.rig);
		for (uint64_t i = n_unread; i < n_unread + N_TASKS && i < N; i++)
			finish(&bench, bench.cpu, 1000 + i, 0);
		for (uint64_t i = 0; i < n_unread; i++)
			expect_cqe(&bench, 1000 + i, 0);
		for (uint64_t i = n_unread + N_TASKS; i < N; i++)
			expect_cqe(&bench, 1000 + i, 0);
		for (uint64_t i = n_unread; i < n_unread + N_TASKS && i < N; i++)
			expect_cqe(&bench, 1000 + i, 0);
	}
	expect_none(&bench);
}

TEST(test_room__unread_completions_stay)
{
	expect_unread_stay(false);
}

TEST(test_room__unread_completions_stay_where_stores_fetch)
{
	expect_unread_stay(true);
}

/* --- Invalid indices --- */

static void expect_protocol(struct bench *bench)
{
	struct dispatch_ring *ring = rig_dispatch_ring(&bench->ring), *hostile = NULL;

	assert_int_equal(dispatch_poll_ring(bench->rig.dispatch, ring), ADMIT_E_PROTOCOL);
	dispatch_work(bench->rig.dispatch, &hostile);
	assert_ptr_equal(hostile, ring);
}

/* A tail before the head, or behind more entries than the ring holds. */
TEST(test_hostile__sq_tail)
{
	static const uint32_t tails[] = {N_ENTRIES + 1, 1u << 31, UINT32_MAX};
	const uint32_t start = UINT32_MAX - 5;

	BENCH(bench, 1, N_ENTRIES);
	rig_ring_set_index(&bench.ring, start);
	for (unsigned int i = 0; i < ARRAY_SIZE(tails); i++) {
		bench.ring.sq->sq_tail = start + tails[i];
		expect_protocol(&bench);
	}
	bench.ring.sq->sq_tail = start;
}

/* A head before the oldest completion or after the newest is noticed when the room is used up. */
TEST(test_hostile__cq_head)
{
	static const uint32_t starts[] = {1000, UINT32_MAX - 5};

	BENCH(bench, 1, N_ENTRIES);
	for (unsigned int i = 0; i < 2; i++) {
		const uint32_t heads[] = {starts[i] - 1, starts[i] - 100, starts[i] + N_ENTRIES + 1,
					  starts[i] + (1u << 31)};

		for (unsigned int k = 0; k < 4; k++) {
			rig_ring_set_index(&bench.ring, starts[i]);
			for (uint64_t n = 0; n < N_ENTRIES; n++)
				put_bare(&bench, RBK_OP_NOP, n, 0);
			rig_work(&bench.rig);
			put_bare(&bench, RBK_OP_NOP, 0, 0);
			bench.ring.sq->cq_head = heads[k];
			expect_protocol(&bench);
		}
	}
	rig_ring_set_index(&bench.ring, 0);
}

/* A head that goes back within the ring makes less room, not more. */
TEST(test_hostile__cq_head_goes_back)
{
	struct dispatch_ring *ring;

	BENCH(bench, 1, N_ENTRIES);
	ring = rig_dispatch_ring(&bench.ring);
	rig_ring_set_index(&bench.ring, 16);
	put_run(&bench, bench.queued, 20, 0);
	put_run(&bench, bench.queued, 21, 0);
	for (uint64_t i = 0; i < N_ENTRIES - 2; i++)
		put_bare(&bench, RBK_OP_NOP, i, 0);
	assert_int_equal(rig_work(&bench.rig), N_ENTRIES);
	put_bare(&bench, RBK_OP_NOP, 99, 0);
	/*
	 * 14 completions exist; the head now claims that 15 are unread, beside 2 tasks in flight.
	 */
	bench.ring.sq->cq_head = 15;
	assert_false(dispatch_ring_has_work(ring));
	assert_int_equal(dispatch_poll_ring(bench.rig.dispatch, ring), 0);
	assert_int_equal(dispatch_poll_ring(bench.rig.dispatch, ring), 0);
	bench.ring.sq->cq_head = 16;
	assert_int_equal(dispatch_poll_ring(bench.rig.dispatch, ring), 0);
	bench.ring.sq->cq_head = 17;
	assert_int_equal(dispatch_poll_ring(bench.rig.dispatch, ring), 1);
	/* The head claims more unread completions than the ring holds. */
	put_bare(&bench, RBK_OP_NOP, 99, 0);
	bench.ring.sq->cq_head = 14;
	assert_int_equal(dispatch_poll_ring(bench.rig.dispatch, ring), ADMIT_E_PROTOCOL);
}

/* --- Inline tasks --- */

TEST(test_inline__bounds)
{
	struct rbk_sqe sqe;

	BENCH(bench, 2, N_ENTRIES);
	bench.tiny->inline_max_count = 8;
	sqe = run_entry(&bench, bench.tiny, 1);
	sqe.count = 8;
	rig_put(&bench.ring, &sqe);
	sqe.user_data = 2;
	sqe.count = 9;
	rig_put(&bench.ring, &sqe);
	/* A tiny task that prefers the GPU runs there. */
	sqe.user_data = 3;
	sqe.count = 1;
	sqe.strategy = RBK_STRATEGY_PREFER_GPU;
	rig_put(&bench.ring, &sqe);
	assert_int_equal(rig_work(&bench.rig), 3);
	assert_int_equal(expect_cqe(&bench, 1, 0).reason, RBK_REASON_BELOW_THRESHOLD);
	expect_none(&bench);
	assert_fields(*bench.cpu, (n_inline, 1), (n_tasks, 1));
	assert_int_equal(fake_user_data(bench.cpu->tasks[0]), 2);
	assert_fields(bench, (cpu->tasks[0]->count, 9), (gpu->n_tasks, 1));
}

/* --- Series of inline tasks --- */

/* The inline tasks that read the clock: one bit each, the first one lowest */
struct readings {
	const struct dispatch *dispatch;
	uint32_t bits;
	unsigned int n_tasks;
};

static void note_reading(void *data)
{
	struct readings *readings = data;

	readings->bits |= (uint32_t)!readings->dispatch->inline_task.has_end << readings->n_tasks++;
}

/* Run a batch of @n tasks of @plan, of the counts 1 to @n_counts in turn. Return: as readings. */
static uint32_t readings_of(struct bench *bench, const struct session_plan *plan, unsigned int n,
			    unsigned int n_counts)
{
	struct readings readings = {.dispatch = bench->rig.dispatch};
	struct rbk_sqe sqe = run_entry(bench, plan, 1);

	bench->cpu->on_inline = note_reading;
	bench->cpu->on_inline_data = &readings;
	for (unsigned int i = 0; i < n; i++) {
		sqe.count = 1 + i % n_counts;
		rig_put(&bench->ring, &sqe);
	}
	assert_int_equal(rig_work(&bench->rig), n);
	for (unsigned int i = 0; i < n; i++)
		assert_in_range(expect_cqe(bench, 1, 0).exec_ns, bench->cpu->inline_ns - 2,
				bench->cpu->inline_ns + 2);
	assert_int_equal(readings.n_tasks, n);
	return readings.bits;
}

TEST(test_series__who_reads_the_clock)
{
	struct session_plan *other;

	BENCH(bench, 1, 32);
	bench.tiny->inline_max_count = 8;
	other = rig_relu(&bench.rig, false);
	/* The first one of a plan, those in each eighth slot of the ring, and the last one */
	assert_int_equal(readings_of(&bench, bench.tiny, 20, 1),
			 1u << 0 | 1u << 7 | 1u << 15 | 1u << 19);
	assert_int_equal(readings_of(&bench, bench.tiny, 20, 1), 1u << 3 | 1u << 11 | 1u << 19);
	assert_int_equal(readings_of(&bench, bench.tiny, 1, 1), 1);
	assert_int_equal(readings_of(&bench, other, 6, 1), 1u << 0 | 1u << 5);
	assert_int_equal(readings_of(&bench, bench.tiny, 6, 2), (1u << 6) - 1);
	/* Tasks that are not tiny */
	bench.cpu->inline_ns = SERIES_MOST_NS + 50;
	assert_int_equal(readings_of(&bench, other, 20, 1), (1u << 20) - 1);
}

/* Simulate a batch of @n tasks that take @ticks each. Return: the sum of what they count as. */
static uint64_t count_series(struct series *series, unsigned int n, uint64_t ticks,
			     unsigned int *ret_n_read)
{
	uint64_t now_ticks = 1000000, at_ticks = now_ticks, start_ticks;

	*ret_n_read = 0;
	series_begin(series, now_ticks, n);
	for (unsigned int i = 0; i < n; i++) {
		start_ticks = at_ticks;
		now_ticks += ticks;
		if (series_goes_on(series, series, 1, i + 1)) {
			at_ticks += series->mean_ticks;
			series->n_tasks++;
			continue;
		}
		at_ticks = now_ticks;
		series_measure(series, series, 1, start_ticks, now_ticks);
		++*ret_n_read;
	}
	return at_ticks - 1000000;
}

TEST(test_series__sum_is_exact)
{
	struct series series;
	unsigned int n_read;
	uint64_t most_ticks;

	series_init(&series);
	most_ticks = series.most_ticks;
	assert_int_equal(count_series(&series, 64, most_ticks / 4, &n_read), 64 * (most_ticks / 4));
	assert_int_equal(n_read, 9);
	assert_int_equal(series.mean_ticks, most_ticks / 4);
	/* The plan begins to take long: the first series finds that. */
	assert_int_equal(count_series(&series, 64, most_ticks * 4, &n_read), 64 * (most_ticks * 4));
	assert_int_equal(n_read, 64 - 7);
	assert_int_equal(series.mean_ticks, most_ticks * 4);
	/* It is tiny again. */
	assert_int_equal(count_series(&series, 64, most_ticks / 2, &n_read), 64 * (most_ticks / 2));
	assert_int_equal(n_read, 9);
}

static void prepare_again(struct bench *bench)
{
	const struct server_hooks hooks = dispatch_hooks(bench->rig.dispatch);

	hooks.plan_freed(hooks.context, bench->tiny);
	assert_int_equal(hooks.plan_ready(hooks.context, bench->tiny), 0);
}

/* Plans of an executor without inline execution, and plans whose time depends on data, get 0. */
TEST(test_inline__only_bounded_plans)
{
	BENCH(bench, 1, N_ENTRIES);
	assert_in_range(bench.tiny->inline_max_count, 1, 64);
	bench.tiny->plan->data_independent = false;
	prepare_again(&bench);
	assert_int_equal(bench.tiny->inline_max_count, 0);
	bench.tiny->plan->data_independent = true;
	bench.tiny->plan->device_state[CPU] = PLAN_DEVICE_NO_MEMORY;
	prepare_again(&bench);
	assert_int_equal(bench.tiny->inline_max_count, 0);
	bench.tiny->plan->device_state[CPU] = PLAN_DEVICE_READY;
	bench.tiny->plan->cost.bytes_row = 1ull << 40;
	prepare_again(&bench);
	assert_int_equal(bench.tiny->inline_max_count, 0);
	/* 32000 bytes at 16 bytes/ns take the whole budget of 2000 ns. */
	bench.tiny->plan->cost = (struct cost){.bytes_row = 3200};
	prepare_again(&bench);
	assert_int_equal(bench.tiny->inline_max_count, 10);
	bench.tiny->plan->cost = (struct cost){.bytes_fixed = 32000};
	prepare_again(&bench);
	assert_int_equal(bench.tiny->inline_max_count, 64);
	bench.tiny->plan->cost = (struct cost){.bytes_fixed = 32001};
	prepare_again(&bench);
	assert_int_equal(bench.tiny->inline_max_count, 0);
	bench.tiny->plan->cost = (struct cost){.bytes_fixed = 8};
	/* 20 steps of 100 ns also take the whole budget, however little they compute. */
	bench.tiny->plan->n_steps = 20;
	prepare_again(&bench);
	assert_int_equal(bench.tiny->inline_max_count, 64);
	bench.tiny->plan->n_steps = 21;
	prepare_again(&bench);
	assert_int_equal(bench.tiny->inline_max_count, 0);
	bench.tiny->plan->n_steps = UINT32_MAX;
	prepare_again(&bench);
	assert_int_equal(bench.tiny->inline_max_count, 0);
	bench.tiny->plan->n_steps = 0;
	/* The executor takes 20 ns for each row besides flops and bytes: 100 rows take 2 us. */
	bench.tiny->plan->max_count = 200;
	bench.tiny->plan->overhead_row_ps = 20000;
	prepare_again(&bench);
	assert_int_equal(bench.tiny->inline_max_count, 100);
	bench.tiny->plan->overhead_fixed_ps = 1000000;
	prepare_again(&bench);
	assert_int_equal(bench.tiny->inline_max_count, 50);
	bench.tiny->plan->overhead_fixed_ps = UINT64_MAX;
	prepare_again(&bench);
	assert_int_equal(bench.tiny->inline_max_count, 0);
	bench.tiny->plan->overhead_fixed_ps = bench.tiny->plan->overhead_row_ps = 0;
	bench.tiny->plan->max_count = 64;
	bench.cpu->ops.run_inline = NULL;
	prepare_again(&bench);
	assert_int_equal(bench.tiny->inline_max_count, 0);
}

static void run_plan(struct bench *bench, const struct session_plan *plan, uint64_t inline_ns)
{
	bench->cpu->inline_ns = inline_ns;
	put_run(bench, plan, 1, 0);
	rig_work(&bench->rig);
	if (bench->cpu->n_tasks > 0)
		finish(bench, bench->cpu, 1, 0);
	expect_cqe(bench, 1, 0);
}

static void run_tiny(struct bench *bench, uint64_t inline_ns)
{
	run_plan(bench, bench->tiny, inline_ns);
}

/* After eight overruns in a row, the plan does not run on the reactor any more. */
TEST(test_overrun__in_a_row)
{
	BENCH(bench, 1, N_ENTRIES);
	for (unsigned int i = 0; i < 7; i++)
		run_tiny(&bench, 30000);
	assert_int_equal(bench.cpu->n_inline, 7);
	assert_int_not_equal(bench.tiny->inline_max_count, 0);
	run_tiny(&bench, 30000);
	assert_int_equal(bench.tiny->inline_max_count, 0);
	run_tiny(&bench, 100);
	assert_fields(*bench.cpu, (n_inline, 8), (n_submitted, 1));
}

/* The bucket leaks: one overrun in a hundred runs is forgiven forever, one in thirty is not. */
TEST(test_overrun__rare_ones_are_forgiven)
{
	BENCH(bench, 1, N_ENTRIES);
	for (unsigned int i = 0; i < 2000; i++)
		run_tiny(&bench, i % 100 ? 19000 : 30000);
	assert_int_not_equal(bench.tiny->inline_max_count, 0);
	assert_int_equal(bench.cpu->n_inline, 2000);
	for (unsigned int i = 0; i < 2000; i++)
		run_tiny(&bench, i % 30 ? 19000 : 30000);
	assert_int_equal(bench.tiny->inline_max_count, 0);
}

/*
 * After eight overruns of all of a tenant's plans together, none runs on the reactor for a while.
 */
TEST(test_overrun__new_plans)
{
	struct session_plan *plans[12];
	struct flow *flow;

	BENCH(bench, 1, N_ENTRIES);
	flow = rig_dispatch_ring(&bench.ring)->flow;
	for (unsigned int i = 0; i < ARRAY_SIZE(plans); i++) {
		plans[i] = rig_relu(&bench.rig, false);
		run_plan(&bench, plans[i], 30000);
		if (i == 0)
			assert_in_range(clock_ticks_to_ns(flow->inline_again_ticks -
							  bench.rig.dispatch->now_ticks),
					OVERRUN_INLINE_PAUSE_NS, 2 * OVERRUN_INLINE_PAUSE_NS);
		flow->inline_again_ticks = UINT64_MAX;
	}
	assert_int_equal(bench.cpu->n_inline, 8);
	run_tiny(&bench, 100);
	assert_int_equal(bench.cpu->n_inline, 8);
	/* No single plan has enough overruns to be excluded. */
	for (unsigned int i = 0; i < ARRAY_SIZE(plans); i++)
		assert_int_not_equal(plans[i]->inline_max_count, 0);
	/* After the while, one more overrun is allowed. */
	flow->inline_again_ticks = 0;
	run_plan(&bench, plans[9], 30000);
	assert_int_equal(bench.cpu->n_inline, 9);
	flow->inline_again_ticks = UINT64_MAX;
	run_tiny(&bench, 100);
	assert_int_equal(bench.cpu->n_inline, 9);
	/* 64 tasks without overrun make up for one overrun. */
	flow->inline_again_ticks = 0;
	for (unsigned int i = 0; i < 64; i++)
		run_tiny(&bench, 100);
	run_plan(&bench, plans[10], 30000);
	run_tiny(&bench, 100);
	assert_int_equal(bench.cpu->n_inline, 9 + 66);
}

/* A tenant that leaves and returns meanwhile is not forgiven. */
TEST(test_overrun__survives_reconnection)
{
	struct dispatch_ring *ring;
	struct dispatch *dispatch;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	ring = rig_dispatch_ring(&bench.ring);
	run_tiny(&bench, 30000);
	ring->flow->inline_again_ticks = UINT64_MAX;
	ring_deactivate(dispatch, ring);
	flow_leave(dispatch, ring);
	assert_int_equal(flow_join(dispatch, ring), 0);
	assert_int_not_equal(ring->flow->inline_overruns, 0);
	ring->flow->inline_again_ticks = 0;
	flow_leave(dispatch, ring);
	assert_int_equal(flow_join(dispatch, ring), 0);
	assert_int_equal(ring->flow->inline_overruns, 0);
}

/* --- Deadlines --- */

TEST(test_deadline__inline)
{
	struct rbk_sqe sqe;

	BENCH(bench, 1, N_ENTRIES);
	sqe = run_entry(&bench, bench.tiny, 1);
	sqe.deadline_us = 1000;
	bench.cpu->inline_ns = 900000;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_int_equal(expect_cqe(&bench, 1, 0).flags, 0);
	bench.cpu->inline_ns = 1100000;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_int_equal(expect_cqe(&bench, 1, 0).flags, RBK_CQE_DEADLINE_MISSED);
	/* Queueing counts: the second task of a batch starts when the first ends. */
	sqe.deadline_us = 1500;
	rig_put(&bench.ring, &sqe);
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_int_equal(expect_cqe(&bench, 1, 0).flags, 0);
	assert_int_equal(expect_cqe(&bench, 1, 0).flags, RBK_CQE_DEADLINE_MISSED);
	sqe.deadline_us = 0;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_int_equal(expect_cqe(&bench, 1, 0).flags, 0);
}

TEST(test_deadline__queued)
{
	static const struct {
		uint32_t deadline_us, sleep_us;
		uint16_t flags;
	} cases[] = {
		{0, 2000, 0},
		{UINT32_MAX, 2000, 0},
		{10000000, 0, 0},
		{1000, 2000, RBK_CQE_DEADLINE_MISSED},
	};
	struct rbk_sqe sqe;
	struct rbk_cqe cqe;

	BENCH(bench, 1, N_ENTRIES);
	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		sqe = run_entry(&bench, bench.queued, i);
		sqe.deadline_us = cases[i].deadline_us;
		rig_put(&bench.ring, &sqe);
		rig_work(&bench.rig);
		usleep(cases[i].sleep_us);
		finish(&bench, bench.cpu, i, 0);
		cqe = expect_cqe(&bench, i, 0);
		assert_int_equal(cqe.flags, cases[i].flags);
		assert_true(cqe.queue_ns >= cases[i].sleep_us * 990ull);
		assert_in_range(cqe.exec_ns, 990, 1010);
	}
}

/* --- Counts --- */

TEST(test_stats__counted)
{
	struct session_stats *stats;
	struct server_stats *totals;
	struct server_hooks hooks;
	struct exec_task *task;

	BENCH(bench, 2, N_ENTRIES);
	stats = &bench.rig.session->stats;
	totals = server_stats(bench.rig.server);
	hooks = dispatch_hooks(bench.rig.dispatch);

	put_bare(&bench, RBK_OP_NOP, 1, 0);
	put_run(&bench, bench.tiny, 2, 0);
	put_bad(&bench, 3, 0);
	put_run(&bench, bench.queued, 4, 0);
	put_strategy(&bench, 5, RBK_STRATEGY_ONLY_GPU);
	rig_work(&bench.rig);
	assert_int_equal(hooks.tasks_in_flight(hooks.context), 2);
	assert_int_equal(totals->tasks_completed, 3);
	assert_fields(*stats, (tasks[CPU], 1), (tasks[GPU], 0), (errors, 1));

	task = bench.gpu->tasks[0];
	task->copied_bytes = 11;
	task->transferred_bytes = 13;
	finish(&bench, bench.gpu, 5, 0);
	task = bench.cpu->tasks[0];
	task->copied_bytes = 100;
	finish(&bench, bench.cpu, 4, 0);
	assert_int_equal(hooks.tasks_in_flight(hooks.context), 0);
	assert_fields(*stats, (tasks[CPU], 2), (tasks[GPU], 1), (reasons[RBK_REASON_NONE], 2),
		      (reasons[RBK_REASON_BELOW_THRESHOLD], 2),
		      (reasons[RBK_REASON_USER_PREFERENCE], 1), (errors, 1), (copied_bytes, 111),
		      (transferred_bytes, 13));
	assert_fields(*totals, (copied_bytes, 111), (transferred_bytes, 13), (tasks_completed, 5));
}

/* --- The turn, beside a client --- */

static unsigned int count_bells(const struct bench *bench)
{
	unsigned int n = 0;
	char byte;

	while (recv(bench->ring.bell, &byte, 1, MSG_DONTWAIT) == 1)
		n++;
	return n;
}

/*
 * Wait for at most ten seconds until *word differs from @value.
 * Return: the value of *word.
 */
static uint32_t wait_change(const uint32_t *word, uint32_t value)
{
	uint32_t now = value;

	for (unsigned int i = 0; i < 100000 && now == value; i++) {
		now = rbk_ring_observe(word);
		usleep(now == value ? 100 : 0);
	}
	return now;
}

struct client {
	struct bench bench;
	uint32_t tokens[4];
	uint32_t completed[4];
	unsigned int n_bells;
};

static uint32_t sleep_token(const struct client *client, uint32_t last)
{
	uint32_t token = last;

	do {
		token = wait_change(&client->bench.ring.cq->sq_wait, token);
	} while (token == 0);
	return token;
}

static void client_bell(struct client *client)
{
	if (send(client->bench.ring.bell, "", 1, MSG_DONTWAIT) != 1)
		abort();
}

/*
 * An idle ring sleeps. A bell without entries gives a new sleep. An entry with a bell is completed,
 * and the ring sleeps again.
 */
static void client_sleeps(void *data)
{
	struct client *client = data;
	struct bench *bench = &client->bench;

	client->tokens[0] = sleep_token(client, 0);
	client_bell(client);
	client->tokens[1] = sleep_token(client, client->tokens[0]);
	put_bare(bench, RBK_OP_NOP, 1, 0);
	client_bell(client);
	client->completed[0] = wait_change(&bench->ring.cq->cq_tail, 0);
	client->tokens[2] = sleep_token(client, client->tokens[1]);
	/* Entries that wait for room, then a bell when there is room. */
	for (uint64_t i = 0; i < N_ENTRIES; i++)
		put_bare(bench, RBK_OP_NOP, i, 0);
	client_bell(client);
	while (rbk_ring_observe(&bench->ring.cq->cq_tail) != N_ENTRIES)
		usleep(100);
	client->tokens[3] = sleep_token(client, client->tokens[2]);
	/* The client sleeps, too. */
	rbk_ring_announce_sleep(&bench->ring.sq->cq_wait, 77);
	rbk_ring_publish(&bench->ring.sq->cq_head, bench->ring.cq_head = 1);
	client_bell(client);
	client->completed[1] = wait_change(&bench->ring.cq->cq_tail, N_ENTRIES);
	poll(&(struct pollfd){.fd = bench->ring.bell, .events = POLLIN}, 1, 10000);
	client->n_bells = count_bells(bench);
}

TEST(test_turn__sleeps_and_wakes)
{
	struct client client = {.n_bells = 0};

	bench_begin(&client.bench, 1, N_ENTRIES);
	rig_run(&client.bench.rig, client_sleeps, &client);
	for (unsigned int i = 0; i < 4; i++)
		assert_int_not_equal(client.tokens[i], 0);
	assert_int_not_equal(client.tokens[1], client.tokens[0]);
	assert_int_not_equal(client.tokens[2], client.tokens[1]);
	assert_int_not_equal(client.tokens[3], client.tokens[2]);
	assert_fields(client, (completed[0], 1), (completed[1], N_ENTRIES + 1), (n_bells, 1));
	bench_end(&client.bench);
}

/* A client that waits for several completions is woken once, by the last of them. */
static void client_wants_three(void *data)
{
	struct client *client = data;
	struct bench *bench = &client->bench;

	rbk_ring_want(&bench->ring.sq->cq_wanted, 3);
	rbk_ring_announce_sleep(&bench->ring.sq->cq_wait, 5);
	for (uint64_t i = 0; i < 2; i++) {
		client->tokens[i] = sleep_token(client, i > 0 ? client->tokens[0] : 0);
		put_bare(bench, RBK_OP_NOP, i, 0);
		client_bell(client);
		wait_change(&bench->ring.cq->cq_tail, (uint32_t)i);
	}
	/* A broker that sleeps has rung all bells of its turn. */
	client->tokens[2] = sleep_token(client, client->tokens[1]);
	client->n_bells = count_bells(bench);
	put_bare(bench, RBK_OP_NOP, 2, 0);
	client_bell(client);
	poll(&(struct pollfd){.fd = bench->ring.bell, .events = POLLIN}, 1, 10000);
	client->completed[0] = rbk_ring_observe(&bench->ring.cq->cq_tail);
	client->completed[1] = count_bells(bench);
}

TEST(test_turn__wakes_a_client_for_the_last_that_it_wants)
{
	struct client client = {.n_bells = 0};

	bench_begin(&client.bench, 1, N_ENTRIES);
	rig_run(&client.bench.rig, client_wants_three, &client);
	assert_fields(client, (n_bells, 0), (completed[0], 3), (completed[1], 1));
	bench_end(&client.bench);
}

/* Each executor that got tasks in a turn is flushed once. */
static void client_submits(void *data)
{
	struct client *client = data;
	struct bench *bench = &client->bench;

	sleep_token(client, 0);
	/* Published at once, because a turn might otherwise find only some. */
	for (uint64_t i = 0; i < 5; i++)
		bench->ring.sq->sqes[i] = run_entry(bench, bench->queued, i);
	rbk_ring_publish(&bench->ring.sq->sq_tail, bench->ring.sq_tail = 5);
	client_bell(client);
	while (rbk_ring_observe(&bench->ring.cq->sq_head) != 5)
		usleep(100);
	client->tokens[0] = sleep_token(client, 0);
}

static void on_flush(struct executor *executor)
{
	struct fake *fake = container_of(executor, struct fake, executor);

	fake->n_flushed++;
	assert_int_equal(fake->n_tasks, 5);
	fake_finish_all(fake, 0);
	waker_ring(executor->waker);
}

TEST(test_turn__flushes)
{
	struct client client = {.n_bells = 0};
	struct rbk_cqe cqe;

	bench_begin(&client.bench, 2, N_ENTRIES);
	client.bench.cpu->ops.flush = on_flush;
	rig_run(&client.bench.rig, client_submits, &client);
	assert_fields(client.bench, (cpu->n_flushed, 1), (gpu->n_flushed, 0));
	for (uint64_t i = 0; i < 5; i++) {
		assert_true(rig_take(&client.bench.ring, &cqe));
		assert_int_equal(cqe.res, 0);
	}
	bench_end(&client.bench);
}

/*
 * A batch of entries that take slots ends by the clock: at the next entry that takes a new slot, or
 * at one of the next few entries.
 */
TEST(test_batch__of_tasks)
{
	struct dispatch_ring *hostile = NULL;

	BENCH(bench, 1, N_ENTRIES);
	bench.rig.dispatch->batch_ticks = 0;
	for (unsigned int round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < N_ENTRIES; i++)
			put_run(&bench, bench.queued, i, 0);
		assert_in_range(dispatch_poll(bench.rig.dispatch, &hostile), 2, round ? 8 : 2);
		rig_work(&bench.rig);
		assert_int_equal(bench.cpu->n_tasks, N_ENTRIES);
		fake_finish_all(bench.cpu, 0);
		rig_work(&bench.rig);
		for (uint64_t i = 0; i < N_ENTRIES; i++)
			expect_cqe(&bench, i, 0);
	}
}
