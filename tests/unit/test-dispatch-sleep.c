/* SPDX-License-Identifier: MIT */
/* The dispatcher's sleep: bells, how long rings spin, the client's processor, floods of bells. */
#include <errno.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/loop.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"
#include "util/checked.h"
#include "util/clock.h"

/* Remove the ring from the list of active rings, as the end of a turn does. */
static struct dispatch_ring *put_to_sleep(struct bench *bench, uint32_t token)
{
	struct dispatch_ring *ring = rig_dispatch_ring(&bench->ring);

	assert_int_equal(bench->rig.dispatch->n_active, 1);
	ring_deactivate(bench->rig.dispatch, ring);
	ring->sleep_token = token;
	rbk_ring_announce_sleep(&ring->ring->cq->sq_wait, token);
	return ring;
}

static void ring_the_bell(struct bench *bench)
{
	struct server_hooks hooks = dispatch_hooks(bench->rig.dispatch);

	assert_int_equal(send(bench->ring.bell, "", 1, MSG_DONTWAIT), 1);
	hooks.ring_bell(hooks.context, bench->ring.ring);
	dispatch_answer_bells(bench->rig.dispatch);
}

TEST(test_sleep__bell_wakes)
{
	struct dispatch_ring *ring;

	BENCH(bench, 1, N_ENTRIES);
	ring = put_to_sleep(&bench, 7);
	put_bare(&bench, RBK_OP_NOP, 1, 0);
	assert_int_equal(rig_work(&bench.rig), 0);
	ring_the_bell(&bench);
	assert_true(ring->is_active);
	assert_int_equal(bench.ring.cq->sq_wait, 0);
	assert_int_equal(rig_work(&bench.rig), 1);
	expect_cqe(&bench, 1, 0);
	/* A ring is activated once, however often its bell rings. */
	ring_the_bell(&bench);
	assert_int_equal(bench.rig.dispatch->n_active, 1);
}

static bool bell_is_full(const struct bench *bench)
{
	char byte;

	return recv(rig_dispatch_ring(&bench->ring)->ring->bell_fd, &byte, 1,
		    MSG_DONTWAIT | MSG_PEEK) == 1;
}

/*
 * Entries do not wait until their bell is drained. A ring does not sleep before: the bell would
 * wake the loop at once.
 */
TEST(test_bell__drained_after_entries)
{
	struct dispatch_ring *ring;
	struct dispatch *dispatch;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	dispatch->options.spin_ns = 0;
	ring = put_to_sleep(&bench, 7);
	put_bare(&bench, RBK_OP_NOP, 1, 0);
	ring_the_bell(&bench);
	assert_true(bell_is_full(&bench));
	assert_int_equal(rig_work(&bench.rig), 1);
	expect_cqe(&bench, 1, 0);
	ring->last_work_ticks = 1;
	ring->spin_ticks = 0;
	dispatch_sleep_rings(dispatch, false);
	assert_true(ring->is_active);

	assert_int_equal(dispatch_drain_late(dispatch), 1);
	assert_int_equal(dispatch_drain_late(dispatch), 0);
	dispatch_answer_bells(dispatch);
	assert_false(bell_is_full(&bench));
	assert_int_equal(ring->n_empty_bells, 0);
	dispatch_sleep_rings(dispatch, false);
	assert_false(ring->is_active);
	assert_int_not_equal(bench.ring.cq->sq_wait, 0);
	/* The next bell is answered like the first one. */
	put_bare(&bench, RBK_OP_NOP, 2, 0);
	ring_the_bell(&bench);
	assert_true(bell_is_full(&bench));
	assert_int_equal(rig_work(&bench.rig), 1);
	expect_cqe(&bench, 2, 0);
}

/* The bells of a slow user, which another thread drains, wake and are charged for as well. */
TEST(test_bell__drained_slowly)
{
	struct dispatch_ring *ring;

	BENCH(bench, 1, N_ENTRIES);
	ring = put_to_sleep(&bench, 7);
	put_bare(&bench, RBK_OP_NOP, 1, 0);
	ring->flow->owed_ticks = 0;
	bench.rig.dispatch->charge_ticks = UINT64_MAX;
	dispatch_ring_drained(bench.rig.dispatch, ring->ring);
	assert_true(ring->is_active);
	assert_int_not_equal(ring->flow->owed_ticks, 0);
	assert_int_equal(rig_work(&bench.rig), 1);
	expect_cqe(&bench, 1, 0);
}

/*
 * The client rings once per token. If a bell finds no work, the next entry must find another token,
 * or it would wait forever.
 */
TEST(test_bell__without_work)
{
	struct dispatch_ring *ring;
	uint32_t token;

	BENCH(bench, 1, N_ENTRIES);
	ring = put_to_sleep(&bench, UINT32_MAX - 1);
	for (unsigned int i = 0; i < 4; i++) {
		token = bench.ring.cq->sq_wait;
		ring_the_bell(&bench);
		assert_false(ring->is_active);
		assert_int_not_equal(bench.ring.cq->sq_wait, token);
		assert_int_not_equal(bench.ring.cq->sq_wait, 0);
	}
}

/*
 * A bell soon after the last work doubles the spin time, a later one halves it, within limits. The
 * lower limit is another one for rare bells, unless they come soon after a completion.
 */
TEST(test_bell__adapts_spin)
{
	const uint64_t hour_ticks = clock_ns_to_ticks(3600000000000);
	const struct {
		uint64_t before_ticks, idle_ticks, after_ticks, done_ticks;
	} cases[] = {
		{hour_ticks / 4, 0, hour_ticks / 4 * 2, 2 * hour_ticks},
		{hour_ticks, 0, hour_ticks, 2 * hour_ticks},
		{5000, 2 * hour_ticks, 2500, 2 * hour_ticks},
		{1000, 2 * hour_ticks, 500, 2 * hour_ticks},
		{100, 2 * hour_ticks, 100, 2 * hour_ticks},
		{100, 0, 1000, 2 * hour_ticks},
		{5000, 2 * hour_ticks, 2500, 0},
		{100, 2 * hour_ticks, 1000, 0},
	};
	struct dispatch_ring *ring;
	struct dispatch *dispatch;
	struct rig_ring other;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	dispatch->options.spin_ns = -1;
	dispatch->crowded_spin_ticks = 100;
	dispatch->min_spin_ticks = 1000;
	dispatch->max_spin_ticks = hour_ticks;
	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		ring = put_to_sleep(&bench, 7);
		ring->spin_ticks = cases[i].before_ticks;
		ring->last_work_ticks = clock_ticks() - cases[i].idle_ticks;
		ring->done_ticks = clock_ticks() - cases[i].done_ticks;
		put_bare(&bench, RBK_OP_NOP, i, 0);
		ring_the_bell(&bench);
		assert_int_equal(ring->spin_ticks, cases[i].after_ticks);
		assert_int_equal(rig_work(&bench.rig), 1);
		expect_cqe(&bench, i, 0);
	}
	/* A new ring begins between the limits. */
	rig_ring_new(&bench.rig, N_ENTRIES, &other);
	assert_in_range(rig_dispatch_ring(&other)->spin_ticks, 1001, hour_ticks - 1);
	rig_ring_deinit(&other);
}

/* Under contention, a ring hardly spins, and its spin time is not adapted. */
TEST(test_sleep__contended)
{
	const uint64_t budget_ticks = clock_ns_to_ticks(3600000000000);
	struct dispatch_ring *ring;
	struct dispatch *dispatch;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	dispatch->options.spin_ns = -1;
	dispatch->max_spin_ticks = budget_ticks;
	ring = rig_dispatch_ring(&bench.ring);
	ring->spin_ticks = budget_ticks;
	ring->last_work_ticks = clock_ticks();
	dispatch_sleep_rings(dispatch, false);
	assert_true(ring->is_active);
	dispatch_set_contended(dispatch, true);
	while (ring->is_active)
		dispatch_sleep_rings(dispatch, false);
	assert_int_not_equal(bench.ring.cq->sq_wait, 0);
	put_bare(&bench, RBK_OP_NOP, 1, 0);
	ring_the_bell(&bench);
	assert_true(ring->is_active);
	assert_int_equal(ring->spin_ticks, budget_ticks);
	assert_int_equal(rig_work(&bench.rig), 1);
	expect_cqe(&bench, 1, 0);
	/* Afterwards the ring spins as long as before. */
	dispatch_set_contended(dispatch, false);
	dispatch_sleep_rings(dispatch, false);
	assert_true(ring->is_active);
	assert_int_equal(ring->spin_ticks, budget_ticks);
}

/*
 * Under contention an empty ring stays active beyond its spin time while the reactor has work, or
 * had some within the spin of a crowd, but not for ever.
 */
TEST(test_sleep__kept_while_busy)
{
	const uint64_t hour_ticks = clock_ns_to_ticks(3600000000000);
	const struct {
		bool has_worked;
		uint64_t idle_hours, keep_hours, since_work_hours;
		bool is_kept;
	} cases[] = {
		{true, 2, 4, 6, true},   {true, 6, 4, 0, false},  {false, 2, 4, 0, true},
		{false, 6, 4, 0, false}, {false, 2, 4, 2, false},
	};
	struct dispatch_ring *ring;
	struct dispatch *dispatch;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	dispatch->options.spin_ns = -1;
	dispatch->crowded_spin_ticks = hour_ticks;
	dispatch_set_contended(dispatch, true);
	dispatch->options.n_processors = 0; /* less than the one ring */
	ring = rig_dispatch_ring(&bench.ring);
	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		if (!ring->is_active)
			ring_activate(dispatch, ring, 0);
		ring->spin_ticks = hour_ticks;
		ring->last_work_ticks = clock_ticks() - cases[i].idle_hours * hour_ticks;
		dispatch->keep_ticks = cases[i].keep_hours * hour_ticks;
		dispatch->busy_ticks = clock_ticks() - cases[i].since_work_hours * hour_ticks;
		dispatch_sleep_rings(dispatch, cases[i].has_worked);
		assert_int_equal(ring->is_active, cases[i].is_kept);
	}
	/* Without contention, with enough processors, or if it is longer, the spin time counts. */
	dispatch_set_contended(dispatch, false);
	if (!ring->is_active)
		ring_activate(dispatch, ring, 0);
	ring->last_work_ticks = clock_ticks() - 2 * hour_ticks;
	dispatch->keep_ticks = 4 * hour_ticks;
	dispatch_sleep_rings(dispatch, true);
	assert_false(ring->is_active);
	dispatch_set_contended(dispatch, true);
	dispatch->options.n_processors = 1;
	ring_activate(dispatch, ring, clock_ticks() - 2 * hour_ticks);
	dispatch_sleep_rings(dispatch, true);
	assert_false(ring->is_active);
	dispatch->options.n_processors = 0;
	ring_activate(dispatch, ring, clock_ticks() - hour_ticks);
	ring->spin_ticks = 2 * hour_ticks;
	dispatch->keep_ticks = 1;
	dispatch_sleep_rings(dispatch, true);
	assert_true(ring->is_active);
}

/* Run a task while the ring sleeps. Return: true if the ring is polled after its completion. */
static bool is_polled_after(struct bench *bench, uint64_t user_data)
{
	struct dispatch_ring *ring;

	put_run(bench, bench->queued, user_data, 0);
	rig_work(&bench->rig);
	ring = put_to_sleep(bench, (uint32_t)user_data + 7);
	finish(bench, bench->cpu, user_data, 0);
	expect_cqe(bench, user_data, 0);
	assert_int_equal(ring->is_active, bench->ring.cq->sq_wait == 0);
	return ring->is_active;
}

/*
 * A ring that sleeps while a device has its task is polled again when the task completes, once a
 * bell has come soon after a completion, and until an entry stays away. Under contention, and if
 * its client sleeps, it is not.
 */
TEST(test_sleep__ends_with_the_task)
{
	const uint64_t hour_ticks = clock_ns_to_ticks(3600000000000);
	struct dispatch_ring *ring;
	struct dispatch *dispatch;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	dispatch->options.spin_ns = -1;
	dispatch->min_spin_ticks = 1000;
	dispatch->max_spin_ticks = hour_ticks;
	ring = rig_dispatch_ring(&bench.ring);
	/* A bell, but no completion before it */
	ring->done_ticks = clock_ticks() - 2 * hour_ticks;
	put_to_sleep(&bench, 1);
	put_bare(&bench, RBK_OP_NOP, 1, 0);
	ring_the_bell(&bench);
	rig_work(&bench.rig);
	expect_cqe(&bench, 1, 0);
	assert_false(is_polled_after(&bench, 2));

	put_bare(&bench, RBK_OP_NOP, 3, 0);
	ring_the_bell(&bench);
	rig_work(&bench.rig);
	expect_cqe(&bench, 3, 0);
	assert_true(is_polled_after(&bench, 4));
	assert_true(is_polled_after(&bench, 5));

	dispatch_set_contended(dispatch, true);
	assert_false(is_polled_after(&bench, 6));
	dispatch_set_contended(dispatch, false);
	ring_activate(dispatch, ring, clock_ticks());
	bench.ring.sq->cq_wait = 3;
	assert_false(is_polled_after(&bench, 7));
	bench.ring.sq->cq_wait = 0;
	ring_activate(dispatch, ring, clock_ticks());

	/* No entry comes. For the spin time, the last one is what counts. */
	ring->spin_ticks = 1;
	ring->last_work_ticks = clock_ticks() - hour_ticks;
	assert_true(is_polled_after(&bench, 8));
	while (ring->is_active)
		dispatch_sleep_rings(dispatch, false);
	assert_false(ring->goes_on);
	assert_true(ring->last_work_ticks < ring->done_ticks);
	ring_activate(dispatch, ring, clock_ticks());
	assert_false(is_polled_after(&bench, 9));
}

/* A ring that closes, and any ring while no entry is admitted, stays as it is. */
TEST(test_sleep__goes_on_at_the_end)
{
	struct dispatch_ring *ring;
	struct dispatch *dispatch;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	ring = rig_dispatch_ring(&bench.ring);
	put_run(&bench, bench.queued, 1, 0);
	put_run(&bench, bench.queued, 2, 0);
	put_run(&bench, bench.queued, 3, 0);
	rig_work(&bench.rig);
	put_to_sleep(&bench, 7);
	ring->goes_on = true;
	dispatch->is_holding = true;
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	assert_false(ring->is_active);
	dispatch->is_holding = false;
	finish(&bench, bench.cpu, 2, 0);
	expect_cqe(&bench, 2, 0);
	assert_true(ring->is_active);

	session_ring_close(bench.ring.ring);
	assert_false(ring->is_active);
	finish(&bench, bench.cpu, 3, 0);
	assert_int_equal(dispatch->n_active, 0);
}

/* The hints that the client sees while the reactor moves */
static struct {
	const struct rbk_cq_area *cq;
	uint64_t due_ns;
	uint32_t processor;
} move;

int __wrap_thread_leave_processor(void);
int __wrap_thread_leave_processor(void)
{
	move.due_ns = move.cq->due_ns;
	move.processor = move.cq->processor;
	return 0;
}

/* Pin this thread to the processor that it is on. Return: the processors that it may use. */
static cpu_set_t stay_here(uint32_t *ret_processor)
{
	cpu_set_t all, here;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	assert_int_equal(sched_setaffinity(0, sizeof(here), &here), 0);
	*ret_processor = (uint32_t)sched_getcpu();
	return all;
}

/*
 * Where the client is on the reactor's own processor, its ring hardly spins, and a bell makes the
 * reactor leave, but not again and again. Elsewhere, and where no processor is named, nothing
 * changes.
 */
TEST(test_sleep__beside_client)
{
	const uint64_t budget_ticks = clock_ns_to_ticks(3600000000000);
	struct dispatch_ring *ring;
	struct dispatch *dispatch;
	uint32_t processor;
	uint64_t moved_ticks;
	cpu_set_t all;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	dispatch->options.spin_ns = -1;
	dispatch->max_spin_ticks = budget_ticks;
	ring = rig_dispatch_ring(&bench.ring);
	all = stay_here(&processor);
	move.cq = bench.ring.cq;
	for (unsigned int i = 0; i < 2; i++) {
		bench.ring.sq->processor = i == 0 ? 0 : processor + 2;
		ring = put_to_sleep(&bench, 7 + i);
		put_bare(&bench, RBK_OP_NOP, i, 0);
		ring_the_bell(&bench);
		assert_int_equal(dispatch->moved_ticks, 0);
		assert_int_equal(bench.ring.cq->due_ns, 0);
		assert_int_equal(rig_work(&bench.rig), 1);
		expect_cqe(&bench, i, 0);
		ring->spin_ticks = budget_ticks;
		ring->last_work_ticks = clock_ticks() - budget_ticks / 2;
		dispatch_sleep_rings(dispatch, false);
		assert_true(ring->is_active);
		/* An idle reactor tells where it is. */
		assert_int_equal(bench.ring.cq->processor, processor + 1);
	}

	bench.ring.sq->processor = processor + 1;
	dispatch_sleep_rings(dispatch, false);
	assert_false(ring->is_active);
	put_bare(&bench, RBK_OP_NOP, 2, 0);
	ring_the_bell(&bench);
	moved_ticks = dispatch->moved_ticks;
	assert_int_not_equal(moved_ticks, 0);
	assert_true(ring->is_active);
	/* During the move the client was told to spin; now it knows where the reactor is. */
	assert_in_range(move.due_ns, 1, clock_now_ns() + 50000);
	assert_int_equal(move.processor, 0);
	assert_int_equal(bench.ring.cq->due_ns, 0);
	assert_int_equal(bench.ring.cq->processor, processor + 1);
	assert_int_equal(rig_work(&bench.rig), 1);
	expect_cqe(&bench, 2, 0);

	/*
	 * A move a moment ago, then contention, when no thread spins, then the first entry after a
	 * long time, then one processor, then no spinning: the reactor stays.
	 */
	for (unsigned int i = 0; i < 5; i++) {
		dispatch->options.n_processors = i == 3 ? 1 : 2;
		dispatch->options.spin_ns = i == 4 ? 0 : -1;
		moved_ticks = i == 0 ? clock_ticks() - 1000 : 0;
		dispatch->moved_ticks = moved_ticks;
		dispatch_set_contended(dispatch, i == 1);
		ring = put_to_sleep(&bench, 17 + i);
		if (i == 2)
			ring->last_work_ticks = clock_ticks() - budget_ticks;
		put_bare(&bench, RBK_OP_NOP, 3 + i, 0);
		ring_the_bell(&bench);
		if (i > 0)
			assert_int_equal(dispatch->moved_ticks, moved_ticks);
		else
			assert_true(clock_ticks() - moved_ticks > clock_ns_to_ticks(1000000) ||
				    dispatch->moved_ticks == moved_ticks);
		assert_int_equal(rig_work(&bench.rig), 1);
		expect_cqe(&bench, 3 + i, 0);
	}
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

/*
 * Ring 64 bells without entries.
 * Return: true if the last two were handled within 10 ms.
 */
static bool flood(struct bench *bench)
{
	struct dispatch_ring *ring = rig_dispatch_ring(&bench->ring);
	bool was_heard, is_muted;
	uint64_t start_ns;

	for (unsigned int i = 0; i < 63; i++) {
		ring->empty_bells_since_ns = clock_now_ns();
		ring_the_bell(bench);
		assert_false(ring->is_muted);
	}
	start_ns = ring->empty_bells_since_ns;
	ring_the_bell(bench);
	was_heard = !ring->is_muted;
	rig_settle(&bench->rig);
	is_muted = ring->is_muted;
	if (clock_now_ns() - start_ns > 10000000)
		return false;
	assert_false(was_heard);
	assert_true(is_muted);
	return true;
}

/* After 64 bells without entries, the bell is ignored for 10 ms. */
TEST(test_sleep__flood_is_muted)
{
	struct bench bench;
	bool was_in_time;

	do {
		bench_begin(&bench, 1, N_ENTRIES);
		put_to_sleep(&bench, 7);
		was_in_time = flood(&bench);
		if (!was_in_time)
			bench_end(&bench);
	} while (!was_in_time);
	/* An entry and bell after that are handled when the time is over. */
	put_bare(&bench, RBK_OP_NOP, 1, 0);
	assert_int_equal(send(bench.ring.bell, "", 1, MSG_DONTWAIT), 1);
	for (unsigned int i = 0; i < 1000 && !rig_dispatch_ring(&bench.ring)->is_active; i++) {
		rig_settle(&bench.rig);
		usleep(1000);
	}
	assert_false(rig_dispatch_ring(&bench.ring)->is_muted);
	assert_int_equal(rig_work(&bench.rig), 1);
	expect_cqe(&bench, 1, 0);
	bench_end(&bench);
}

/* A ring that floods again is muted for twice as long, up to a limit, after fewer bells. */
TEST(test_sleep__mute_time_doubles)
{
	uint64_t least_ns = 10000000, begin_ns;
	struct dispatch_ring *ring;
	unsigned int n_bells;

	BENCH(bench, 1, N_ENTRIES);
	ring = put_to_sleep(&bench, 7);
	for (unsigned int level = 0; level < 10; level++) {
		begin_ns = clock_now_ns();
		for (n_bells = 0; !ring->is_muted; n_bells++) {
			/* The count must not restart because this machine is slow. */
			ring->empty_bells_since_ns = clock_now_ns();
			ring_the_bell(&bench);
		}
		assert_int_equal(n_bells, 64 >> (level < 5 ? level : 5));
		assert_true(ring->muted_until_ns >= begin_ns + least_ns);
		assert_true(ring->muted_until_ns <= clock_now_ns() + least_ns);
		if (level < 5)
			least_ns *= 2;
		/* The dispatcher ignores events of these bells that the loop still has. */
		rig_settle(&bench.rig);
		rig_settle(&bench.rig);
		/* Let the muted time end now. */
		ring->muted_until_ns = clock_now_ns();
		loop_timer_arm(bench.rig.dispatch->mute_timer, 0);
		while (ring->is_muted)
			rig_settle(&bench.rig);
	}
	/* After a second without a flood, the level is reset. */
	ring->muted_until_ns = clock_now_ns() - 1100000000;
	ring_the_bell(&bench);
	assert_int_equal(ring->mute_level, 0);
}

/* 63 bells per 10 ms are no flood. */
TEST(test_sleep__slow_bells_are_forgiven)
{
	BENCH(bench, 1, N_ENTRIES);
	put_to_sleep(&bench, 7);
	for (unsigned int i = 0; i < 1000; i++) {
		if (i % 60 == 0)
			rig_dispatch_ring(&bench.ring)->empty_bells_since_ns = 0;
		ring_the_bell(&bench);
		assert_false(rig_dispatch_ring(&bench.ring)->is_muted);
	}
}

static bool is_rung_for(struct bench *bench)
{
	char byte;

	return recv(bench->ring.bell, &byte, 1, MSG_DONTWAIT) == 1;
}

TEST(test_sleep__client_is_rung_once)
{
	BENCH(bench, 1, N_ENTRIES);
	put_bare(&bench, RBK_OP_NOP, 1, 0);
	rig_work(&bench.rig);
	assert_false(is_rung_for(&bench));
	bench.ring.sq->cq_wait = 5;
	for (uint64_t i = 0; i < 3; i++) {
		put_bare(&bench, RBK_OP_NOP, i, 0);
		rig_work(&bench.rig);
	}
	assert_true(is_rung_for(&bench));
	assert_false(is_rung_for(&bench));
	/* The same sleep gets no second bell, the next one does. */
	put_bare(&bench, RBK_OP_NOP, 4, 0);
	rig_work(&bench.rig);
	assert_false(is_rung_for(&bench));
	bench.ring.sq->cq_wait = 6;
	put_bare(&bench, RBK_OP_NOP, 5, 0);
	rig_work(&bench.rig);
	assert_true(is_rung_for(&bench));
}

/* A client that sleeps is rung for when its task completes, not when the task is admitted. */
TEST(test_sleep__client_sleeps_through_admission)
{
	uint64_t before_ns;

	BENCH(bench, 1, N_ENTRIES);
	bench.ring.sq->cq_wait = 5;
	put_run(&bench, bench.queued, 1, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.ring.cq->sq_head, 1);
	assert_false(is_rung_for(&bench));
	assert_int_equal(bench.ring.cq->rung_ns, 0);
	before_ns = clock_now_ns();
	finish(&bench, bench.cpu, 1, 0);
	assert_true(is_rung_for(&bench));
	assert_in_range(bench.ring.cq->rung_ns, before_ns, clock_now_ns());
	expect_cqe(&bench, 1, 0);
}

/* --- Who is busy --- */

enum { WINDOW_US = 12000, MOST_WINDOWS = 1000, USE_PART = 4000 };

/* All flows have used enough of the reactor in the window that begins. */
static void use_reactor(struct dispatch *dispatch)
{
	list_for_each (node, &dispatch->flows)
		container_of(node, struct flow, link)->owed_ticks +=
			clock_ns_to_ticks(1000 * WINDOW_US);
}

/* Look until others than @tenant are busy (@expected), or no longer, window after window. */
static void expect_others_work(struct bench *bench, const struct tenant *tenant, bool expected)
{
	struct server_hooks hooks = dispatch_hooks(bench->rig.dispatch);

	for (unsigned int i = 0; i < MOST_WINDOWS; i++) {
		if (hooks.others_work(hooks.context, tenant) == expected)
			return;
		use_reactor(bench->rig.dispatch);
		usleep(WINDOW_US);
	}
	fail_msg("other tenants are always %s", expected ? "idle" : "busy");
}

/*
 * A tenant that keeps its rings active by a few entries does not count as busy: other tenants'
 * requests would wait for it at no cost to it. One that uses a small part of the reactor does.
 */
TEST(test_busy__few_entries)
{
	struct server_hooks hooks;
	struct dispatch *dispatch;
	struct flow *flow;
	struct rbk_cqe cqe;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	hooks = dispatch_hooks(dispatch);
	flow = rig_dispatch_ring(&bench.ring)->flow;
	for (unsigned int i = 0; i < 5; i++) {
		put_bare(&bench, RBK_OP_NOP, i, 0);
		rig_work(&bench.rig);
		assert_true(rig_take(&bench.ring, &cqe));
		usleep(WINDOW_US);
		assert_int_equal(flow->n_active, 1);
		assert_false(hooks.others_work(hooks.context, NULL));
	}
	for (unsigned int i = 0; i < 5; i++) {
		flow->owed_ticks += clock_ns_to_ticks(1000 * WINDOW_US) / (2 * USE_PART);
		usleep(WINDOW_US);
		assert_false(hooks.others_work(hooks.context, NULL));
	}
	for (unsigned int i = 0; !hooks.others_work(hooks.context, NULL); i++) {
		assert_true(i < MOST_WINDOWS);
		flow->owed_ticks += clock_ns_to_ticks(1000 * WINDOW_US) / (USE_PART / 2);
		usleep(WINDOW_US);
	}
}

/*
 * A tenant with a ring that is active all the time is in another tenant's way, and still for a
 * while after the ring went to sleep. A tenant with a task now and then is not. No tenant is in its
 * own way.
 */
TEST(test_busy__others)
{
	struct tenant other = {.weight = 100, .number = 4711, .n_refs = 1};
	struct server_hooks hooks;
	struct dispatch *dispatch;
	struct rig_ring ring;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	hooks = dispatch_hooks(dispatch);
	expect_others_work(&bench, NULL, true);
	expect_others_work(&bench, &other, true);
	for (unsigned int i = 0; i < 3; i++) {
		usleep(WINDOW_US);
		assert_false(hooks.others_work(hooks.context, bench.rig.session->tenant));
	}

	rig_ring_new_for(&bench.rig, &other, N_ENTRIES, &ring);
	ring_deactivate(dispatch, rig_dispatch_ring(&bench.ring));
	expect_others_work(&bench, bench.rig.session->tenant, true);
	assert_int_equal(dispatch->n_active, 1);
	use_reactor(dispatch);
	usleep(WINDOW_US);
	ring_deactivate(dispatch, rig_dispatch_ring(&ring));
	assert_true(dispatch->idled[0]->was_busy);
	expect_others_work(&bench, bench.rig.session->tenant, false);
	expect_others_work(&bench, NULL, false);

	/* A short activity after a long pause */
	usleep(WINDOW_US);
	ring_activate(dispatch, rig_dispatch_ring(&ring), clock_ticks());
	ring_deactivate(dispatch, rig_dispatch_ring(&ring));
	assert_ptr_equal(dispatch->idled[0]->tenant, &other);
	expect_others_work(&bench, bench.rig.session->tenant, false);

	/* The dispatcher forgets a flow that is freed. */
	assert_int_equal(session_ring_remove(bench.rig.session, 5, ring.ring->id), 0);
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	for (unsigned int i = 0; i < 100000 && other.n_refs > 1; i++)
		assert_true(loop_turn(bench.rig.loop, true) >= 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(dispatch->idled); i++)
		assert_true(!dispatch->idled[i] || dispatch->idled[i]->tenant != &other);
	rig_ring_deinit(&ring);
}

/* Return true if a question of the first of @n tenants finds @flow, and none of theirs is busy. */
static bool is_found_among(struct dispatch *dispatch, struct flow *flow,
			   const struct rig_ring *rings, unsigned int n)
{
	struct server_hooks hooks = dispatch_hooks(dispatch);
	bool is_found;

	list_remove(&flow->active_link);
	list_append(&dispatch->active_flows, &flow->active_link);
	is_found = hooks.others_work(hooks.context, rig_dispatch_ring(&rings[0])->flow->tenant);
	for (unsigned int i = 0; i < n; i++)
		is_found &= !rig_dispatch_ring(&rings[i])->flow->was_busy;
	return is_found;
}

/*
 * A question looks at a few active tenants. It finds a busy one also among many whose rings are
 * active, but that are not busy.
 */
TEST(test_busy__among_many)
{
	enum { N_OTHERS = 8, N_TRIES = 100 };
	struct tenant others[N_OTHERS];
	struct rig_ring rings[N_OTHERS];
	struct dispatch *dispatch;
	struct flow *flow;
	unsigned int n = 0;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	flow = rig_dispatch_ring(&bench.ring)->flow;
	expect_others_work(&bench, NULL, true);
	for (unsigned int i = 0; i < N_OTHERS; i++) {
		others[i] = (struct tenant){.weight = 100, .number = 4711 + i, .n_refs = 1};
		rig_ring_new_for(&bench.rig, &others[i], N_ENTRIES, &rings[i]);
	}
	assert_int_equal(dispatch->n_active_flows, N_OTHERS + 1);
	while (!is_found_among(dispatch, flow, rings, N_OTHERS)) {
		assert_true(n++ < N_TRIES);
		flow->owed_ticks += clock_ns_to_ticks(1000 * WINDOW_US);
		usleep(WINDOW_US);
	}

	/* The dispatcher forgets a flow that is freed. */
	for (unsigned int i = 0; i < N_OTHERS; i++) {
		dispatch->busy = rig_dispatch_ring(&rings[i])->flow;
		assert_int_equal(session_ring_remove(bench.rig.session, 5, rings[i].ring->id), 0);
		assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
		for (n = 0; n < 100000 && others[i].n_refs > 1; n++)
			assert_true(loop_turn(bench.rig.loop, true) >= 0);
		assert_null(dispatch->busy);
		rig_ring_deinit(&rings[i]);
	}
}

/* ---- Time in which the reactor was preempted ---- */

/* The processor time of a thread that never runs. */
static uint64_t read_nothing(void)
{
	return 0;
}

/* Such time during a bell is not its flow's. */
TEST(test_bell__costs_own_time)
{
	struct dispatch *dispatch;
	struct flow *flow;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	turn_end(dispatch->turn);
	dispatch->turn->read_cpu_ns = read_nothing;
	dispatch->turn->budget_ticks = TURN_LONG_PART;
	flow = rig_dispatch_ring(&bench.ring)->flow;
	flow->owed_ticks = 0;
	for (unsigned int i = 0; i < 100; i++) {
		dispatch_ring_bell(dispatch, bench.ring.ring);
		dispatch_answer_bells(dispatch);
	}
	assert_int_equal(flow->owed_ticks, 0);
}

/* Work for a client during which the reactor loses its processor, and the same again. */
struct preempted {
	struct bench bench;
	struct turn_owner owner;
	struct turn_job job;
	bool has_run;
	int64_t rest_ticks; /* left of the rest after the first run, when the second begins
			     */
	atomic_bool is_over;
};

static void run_preempted(struct turn_job *job)
{
	struct preempted *preempted = container_of(job, struct preempted, job);
	struct dispatch *dispatch = preempted->bench.rig.dispatch;

	if (preempted->has_run) {
		preempted->rest_ticks = (int64_t)(dispatch->rest_until_ticks - clock_ticks());
		atomic_store(&preempted->is_over, true);
		return;
	}
	preempted->has_run = true;
	usleep(3000);
	turn_queue_submit(&preempted->bench.rig.server->work, &preempted->owner, job);
}

static void await_preempted(void *data)
{
	struct preempted *preempted = data;

	while (!atomic_load(&preempted->is_over))
		usleep(1000);
}

/* The rest after work beside rings depends on the work, not on who got the processor
 * meanwhile. */
TEST(test_settling__rest_without_preemption)
{
	static struct preempted preempted;
	struct bench *bench = &preempted.bench;

	bench_begin(bench, 1, N_ENTRIES);
	turn_end(bench->rig.dispatch->turn);
	bench->rig.dispatch->turn->read_cpu_ns = read_nothing;
	turn_set_budget(bench->rig.dispatch->turn, 100000);
	turn_owner_init(&preempted.owner, 100, 0);
	turn_job_init(&preempted.job, RBK_TURN_OTHER, run_preempted);
	turn_queue_submit(&bench->rig.server->work, &preempted.owner, &preempted.job);
	rig_run(&bench->rig, await_preempted, &preempted);
	assert_true(preempted.rest_ticks < (int64_t)clock_ns_to_ticks(1000000));
	bench_end(bench);
}

/* A client that spun would take a processor from its task. */
TEST(test_sleep__without_processors)
{
	static struct bench bench;

	bench_begin_placement(&bench, 1, N_ENTRIES, NULL,
			      (const struct bench_speed[]){{.bytes_per_ns = 1}});
	for (unsigned int i = 0; i < 3; i++) {
		bench.rig.dispatch->options.n_processors =
			i ? 2 : bench.cpu->executor.info.n_threads;
		dispatch_set_contended(bench.rig.dispatch, i == 1);
		put_run(&bench, bench.queued, i, 0);
		rig_work(&bench.rig);
		assert_int_equal(bench.ring.cq->due_ns > 0, i == 2);
		finish(&bench, bench.cpu, i, 0);
		expect_cqe(&bench, i, 0);
	}
	bench_end(&bench);
}

/* A client that was woken, and does not run, may wait for the processor on which the reactor spins.
 */
TEST(test_sleep__not_spinning_for_late_client)
{
	const uint64_t budget_ticks = clock_ns_to_ticks(3600000000000);
	struct dispatch_ring *ring;
	struct dispatch *dispatch;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	ring = rig_dispatch_ring(&bench.ring);
	dispatch->late_ticks = budget_ticks / 4;
	rbk_ring_announce_sleep(&bench.ring.sq->cq_wait, 9);
	put_bare(&bench, RBK_OP_NOP, 1, 0);
	rig_work(&bench.rig);
	dispatch_ring_bells(dispatch);
	assert_int_equal(ring->rung_token, 9);
	ring->spin_ticks = budget_ticks;
	ring->last_work_ticks = clock_ticks() - budget_ticks / 2;
	dispatch_sleep_rings(dispatch, false);
	assert_true(ring->is_active);
	/* One that has come, and one that sleeps again, are not late. */
	ring->rung_ticks = clock_ticks() - budget_ticks / 2;
	rbk_ring_announce_awake(&bench.ring.sq->cq_wait);
	dispatch_sleep_rings(dispatch, false);
	assert_true(ring->is_active);
	rbk_ring_announce_sleep(&bench.ring.sq->cq_wait, 10);
	dispatch_sleep_rings(dispatch, false);
	assert_true(ring->is_active);
	rbk_ring_announce_sleep(&bench.ring.sq->cq_wait, 9);
	dispatch_sleep_rings(dispatch, false);
	assert_false(ring->is_active);
	expect_cqe(&bench, 1, 0);
}

/* --- processors of clients that are awake --- */

static uint32_t busy_processor_of(struct bench *bench, uint64_t user_data)
{
	uint32_t processor;

	put_run(bench, bench->queued, user_data, 0);
	rig_work(&bench->rig);
	processor = bench->cpu->tasks[0]->busy_processor;
	finish(bench, bench->cpu, user_data, 0);
	expect_cqe(bench, user_data, 0);
	return processor;
}

/* Workers stay off the processor of a client that was awake when its last task completed. */
TEST(test_sleep__processor_of_client)
{
	BENCH(bench, 1, N_ENTRIES);
	bench.ring.sq->processor = 3;
	assert_int_equal(busy_processor_of(&bench, 1), 0);
	assert_int_equal(busy_processor_of(&bench, 2), 3);
	bench.ring.sq->cq_wait = 1;
	assert_int_equal(busy_processor_of(&bench, 3), 3);
	assert_int_equal(busy_processor_of(&bench, 4), 0);
	bench.ring.sq->cq_wait = 0;
	assert_int_equal(busy_processor_of(&bench, 5), 0);
	/* A client that is awake now, but slept during its task, will do so again. */
	assert_int_equal(busy_processor_of(&bench, 6), 3);
	bench.ring.sq->slept = 7;
	assert_int_equal(busy_processor_of(&bench, 7), 3);
	assert_int_equal(busy_processor_of(&bench, 8), 0);
	assert_int_equal(busy_processor_of(&bench, 9), 3);
	dispatch_set_contended(bench.rig.dispatch, true);
	assert_int_equal(busy_processor_of(&bench, 10), 0);
}
