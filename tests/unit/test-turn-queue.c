/* SPDX-License-Identifier: MIT */
/* Fair sharing of work: weights, order, budgets, owners that return, withdrawing */
#include "loop/turn-queue.h"
#include "support/test.h"
#include "util/clock.h"

static uint64_t now_ticks;
static uint64_t stolen_ticks; /* time in which other threads had the processor */

static uint64_t read_now(void)
{
	return now_ticks;
}

static uint64_t read_cpu_now(void)
{
	return clock_ticks_to_ns(now_ticks - stolen_ticks);
}

struct kit {
	struct turn turn;
	struct turn_queue queue;
};

/* A job that takes @ticks and is submitted @n_left more times. Others get @stolen of the ticks. */
struct piece {
	struct turn_job job;
	struct kit *kit;
	uint64_t ticks, stolen;
	unsigned int n_left, n_ran;
	unsigned int order; /* number of its last run */
};

static unsigned int n_runs;

static void run_piece(struct turn_job *job)
{
	struct piece *piece = container_of(job, struct piece, job);

	now_ticks += piece->ticks;
	stolen_ticks += piece->stolen;
	piece->n_ran++;
	piece->order = ++n_runs;
	if (piece->n_left > 0) {
		piece->n_left--;
		turn_queue_submit(&piece->kit->queue, job->owner, job);
	}
}

static void kit_init(struct kit *kit)
{
	turn_init(&kit->turn, 0);
	kit->turn.read_ticks = read_now;
	kit->turn.read_cpu_ns = read_cpu_now;
	kit->turn.budget_ticks = 1000;
	turn_reset(&kit->turn);
	turn_queue_init(&kit->queue, &kit->turn);
	n_runs = 0;
}

static void piece_init(struct piece *piece, struct kit *kit, uint64_t ticks, unsigned int n_left)
{
	*piece = (struct piece){.kit = kit, .ticks = ticks, .n_left = n_left};
	turn_job_init(&piece->job, RBK_TURN_MESSAGES, run_piece);
}

/* One owner has 100 jobs, the other has one: both get the same time. */
TEST(test_run__shares_time_by_owner)
{
	struct turn_owner many, one;
	struct piece pieces[100], single;
	struct kit kit;

	kit_init(&kit);
	turn_owner_init(&many, 100, 1);
	turn_owner_init(&one, 100, 2);
	for (unsigned int i = 0; i < 100; i++) {
		piece_init(&pieces[i], &kit, 10, 1000);
		turn_queue_submit(&kit.queue, &many, &pieces[i].job);
	}
	piece_init(&single, &kit, 10, 1000);
	turn_queue_submit(&kit.queue, &one, &single.job);
	assert_int_equal(turn_queue_run(&kit.queue, 4000), 400);
	assert_in_range(single.n_ran, 199, 201);
	/* Jobs of one owner take turns. */
	for (unsigned int i = 0; i < 100; i++)
		assert_in_range(pieces[i].n_ran, 1, 3);
}

TEST(test_run__weights_by_time)
{
	struct turn_owner heavy, light;
	struct piece of_heavy, of_light;
	struct kit kit;

	kit_init(&kit);
	turn_owner_init(&heavy, 300, 1);
	turn_owner_init(&light, 100, 2);
	piece_init(&of_heavy, &kit, 20, 10000);
	piece_init(&of_light, &kit, 5, 10000);
	turn_queue_submit(&kit.queue, &heavy, &of_heavy.job);
	turn_queue_submit(&kit.queue, &light, &of_light.job);
	turn_queue_run(&kit.queue, 80000);
	assert_in_range(of_heavy.n_ran * 20, 59000, 61000);
	assert_in_range(of_light.n_ran * 5, 19000, 21000);
}

/* However small the budget, one job runs. The others wait, in order. */
TEST(test_run__smallest_budget)
{
	struct turn_owner owner;
	struct piece pieces[5];
	struct kit kit;

	kit_init(&kit);
	turn_owner_init(&owner, 1, 1);
	for (unsigned int i = 0; i < 5; i++) {
		piece_init(&pieces[i], &kit, 50, 0);
		turn_queue_submit(&kit.queue, &owner, &pieces[i].job);
	}
	for (unsigned int i = 0; i < 5; i++) {
		assert_false(turn_queue_is_empty(&kit.queue));
		assert_int_equal(turn_queue_run(&kit.queue, 0), 1);
		assert_int_equal(pieces[i].order, i + 1);
	}
	assert_true(turn_queue_is_empty(&kit.queue));
	assert_int_equal(turn_queue_run(&kit.queue, 1000), 0);
}

/* An owner cannot save up time, nor lose a debt by being idle for a moment. */
TEST(test_owner__idle_keeps_debt)
{
	struct turn_owner steady, other;
	struct piece of_steady, of_other;
	struct kit kit;

	kit_init(&kit);
	turn_owner_init(&steady, 1, 1);
	turn_owner_init(&other, 1, 2);
	piece_init(&of_steady, &kit, 10, 100000);
	turn_queue_submit(&kit.queue, &steady, &of_steady.job);
	turn_queue_run(&kit.queue, 10000);
	assert_true(turn_owner_is_idle(&kit.queue, &other));

	piece_init(&of_other, &kit, 10, 99);
	turn_queue_submit(&kit.queue, &other, &of_other.job);
	of_steady.n_ran = 0;
	turn_queue_run(&kit.queue, 10000 + 1000);
	assert_in_range(of_steady.n_ran, 49, 51);
	assert_in_range(of_other.n_ran, 49, 51);
	turn_queue_withdraw(&kit.queue, &of_other.job);

	/* After one long piece of the other owner, the steady owner gets as much time first. */
	piece_init(&of_other, &kit, 1000, 0);
	turn_queue_submit(&kit.queue, &other, &of_other.job);
	while (of_other.n_ran == 0)
		turn_queue_run(&kit.queue, 0);
	assert_false(turn_owner_is_idle(&kit.queue, &other));
	of_steady.n_ran = of_other.n_ran = 0;
	turn_queue_submit(&kit.queue, &other, &of_other.job);
	while (of_other.n_ran == 0)
		turn_queue_run(&kit.queue, 0);
	assert_in_range(of_steady.n_ran, 95, 105);
}

/* A long job costs its owner at most an overrun. */
TEST(test_run__long_job)
{
	struct turn_owner steady, other;
	struct piece of_steady, of_other;
	struct kit kit;

	kit_init(&kit);
	turn_owner_init(&steady, FAIR_WEIGHT, 1);
	turn_owner_init(&other, FAIR_WEIGHT, 2);
	piece_init(&of_steady, &kit, 10, 100000);
	turn_queue_submit(&kit.queue, &steady, &of_steady.job);
	piece_init(&of_other, &kit, 1000000, 1);
	turn_queue_submit(&kit.queue, &other, &of_other.job);
	while (of_other.n_ran < 2)
		turn_queue_run(&kit.queue, 0);
	assert_int_equal(other.flow.spent, 2 * TURN_OVERRUN * kit.turn.budget_ticks);
	assert_in_range(of_steady.n_ran, 995, 1005);
}

/* Time in which the reactor was preempted costs the owner nothing, in whichever job of a turn. */
TEST(test_run__preempted)
{
	struct turn_owner owner;
	struct piece pieces[3];
	struct kit kit;

	kit_init(&kit);
	kit.turn.budget_ticks = 1000000;
	turn_owner_init(&owner, FAIR_WEIGHT, 1);
	for (unsigned int i = 0; i < 3; i++) {
		piece_init(&pieces[i], &kit, 300000, 0);
		turn_queue_submit(&kit.queue, &owner, &pieces[i].job);
	}
	pieces[1].stolen = 290000;
	pieces[2].ticks = 9000000;
	pieces[2].stolen = 8700000;
	assert_int_equal(turn_queue_run(&kit.queue, UINT64_MAX), 3);
	assert_in_range(owner.flow.spent, 609000, 611000);
}

/* A job costs its owner what it took, even if the reactor was preempted earlier in the turn. */
TEST(test_run__preempted_before)
{
	struct turn_owner owner;
	struct piece piece;
	struct kit kit;

	kit_init(&kit);
	kit.turn.budget_ticks = 1000000;
	turn_owner_init(&owner, FAIR_WEIGHT, 1);
	piece_init(&piece, &kit, 900000, 0);
	turn_queue_submit(&kit.queue, &owner, &piece.job);
	turn_time_cpu(&kit.turn);
	now_ticks += 2010000;
	stolen_ticks += 2000000;
	assert_int_equal(turn_queue_run(&kit.queue, UINT64_MAX), 1);
	assert_in_range(owner.flow.spent, 899000, 901000);
}

TEST(test_withdraw__keeps_other_jobs)
{
	struct turn_owner owner;
	struct piece pieces[3];
	struct kit kit;

	kit_init(&kit);
	turn_owner_init(&owner, 1, 1);
	for (unsigned int i = 0; i < 3; i++) {
		piece_init(&pieces[i], &kit, 10, 0);
		turn_queue_withdraw(&kit.queue, &pieces[i].job);
		turn_queue_submit(&kit.queue, &owner, &pieces[i].job);
		turn_queue_submit(&kit.queue, &owner, &pieces[i].job);
	}
	assert_int_equal(kit.queue.n_jobs, 3);
	turn_queue_withdraw(&kit.queue, &pieces[1].job);
	assert_int_equal(turn_queue_run(&kit.queue, 1000), 2);
	assert_int_equal(pieces[1].n_ran, 0);
	turn_queue_submit(&kit.queue, &owner, &pieces[1].job);
	turn_queue_withdraw(&kit.queue, &pieces[1].job);
	assert_true(turn_queue_is_empty(&kit.queue));
	assert_null(kit.queue.owners.flows);
}

/* A job longer than a turn is counted under its cause and its owner's tenant. */
TEST(test_run__counts_overruns)
{
	struct turn_owner owner;
	struct piece piece;
	struct kit kit;

	kit_init(&kit);
	turn_owner_init(&owner, 1, 42);
	piece_init(&piece, &kit, 10000, 0);
	turn_queue_submit(&kit.queue, &owner, &piece.job);
	turn_queue_run(&kit.queue, 1000);
	turn_end(&kit.turn);
	assert_int_equal(kit.turn.report.n_overruns[RBK_TURN_MESSAGES], 1);
	assert_int_equal(kit.turn.report.longest.tenant, 42);
}

TEST_MAIN(NULL, NULL, clock_init())
