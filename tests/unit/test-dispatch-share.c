/* SPDX-License-Identifier: MIT */
/* The dispatcher and devices that leased programs share: broker/dispatch/share-hot.c. */
#include <errno.h>

#include "dispatch/dispatch-private.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"

/* Stands in for lease/timeslice.h: what it was told, and what it answers. */
static struct {
	uint32_t shared_devices;
	struct timeslice_plans *plans;
	unsigned int n_calls;
	uint8_t n_open; /* answer to the next call */
	bool answers;
} other;

static void on_share(void *context, uint8_t device, struct timeslice_plans *changed)
{
	assert_ptr_equal(context, &other);
	assert_int_equal(device, CPU);
	assert_null(changed->next_changed);
	other.plans = changed;
	other.n_calls++;
	if (other.answers)
		changed->n_open = other.n_open;
}

static void share(struct bench *bench)
{
	struct dispatch *dispatch = bench->rig.dispatch;

	other = (typeof(other)){.shared_devices = 1u << CPU};
	dispatch->shared_devices = &other.shared_devices;
	dispatch->options.share_plans = on_share;
	dispatch->options.share_context = &other;
}

static void answer(uint8_t n_open)
{
	other.answers = true;
	other.n_open = n_open;
}

/* Tasks that come to an idle device begin, and are told of; later ones wait while they must. */
TEST(test_share__holds_tasks_back)
{
	BENCH(bench, 1, N_ENTRIES);
	share(&bench);
	put_run(&bench, bench.queued, 1, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.cpu->n_tasks, 1);
	assert_int_equal(other.n_calls, 1);
	assert_fields(*other.plans, (waiting, 0), (under_way, 1u << 2));
	answer(2);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	assert_int_equal(other.n_calls, 2);
	assert_fields(*other.plans, (waiting, 0), (under_way, 0));

	put_run(&bench, bench.queued, 2, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.cpu->n_tasks, 0);
	assert_int_equal(other.n_calls, 3);
	assert_fields(*other.plans, (waiting, 1u << 2), (under_way, 0));
	/* Nothing has changed. */
	rig_work(&bench.rig);
	assert_int_equal(other.n_calls, 3);
	/* A task that waits can be cancelled. */
	put_run(&bench, bench.queued, 3, 0);
	put_cancel(&bench, 4, 2, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 4, 0);
	expect_cqe(&bench, 2, -ECANCELED);
	assert_int_equal(bench.cpu->n_tasks, 0);

	other.plans->n_open = TIMESLICE_CLASSES;
	answer(TIMESLICE_CLASSES);
	rig_work(&bench.rig);
	assert_int_equal(bench.cpu->n_tasks, 1);
	assert_fields(*other.plans, (waiting, 0), (under_way, 1u << 2));
	finish(&bench, bench.cpu, 3, 0);
	expect_cqe(&bench, 3, 0);
}

/* Tasks of a higher priority begin, and none waits for leases that have left. */
TEST(test_share__by_priority)
{
	struct rbk_sqe sqe;

	BENCH(bench, 1, N_ENTRIES);
	share(&bench);
	bench.rig.session->features |= RBK_FEAT_PRIORITY;
	answer(3);
	put_run(&bench, bench.queued, 1, 0);
	rig_work(&bench.rig);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	sqe = run_entry(&bench, bench.queued, 2);
	sqe.priority = RBK_PRIORITY_LOW;
	rig_put(&bench.ring, &sqe);
	put_run(&bench, bench.queued, 3, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.cpu->n_tasks, 1);
	assert_fields(*other.plans, (waiting, 1u << 3), (under_way, 1u << 2));
	finish(&bench, bench.cpu, 3, 0);
	expect_cqe(&bench, 3, 0);
	assert_int_equal(bench.cpu->n_tasks, 0);

	other.shared_devices = 0;
	rig_work(&bench.rig);
	assert_int_equal(bench.cpu->n_tasks, 1);
	finish(&bench, bench.cpu, 2, 0);
	expect_cqe(&bench, 2, 0);
}

/* The answer may let tasks begin in the same turn. */
TEST(test_share__at_once)
{
	BENCH(bench, 1, N_ENTRIES);
	share(&bench);
	answer(0);
	put_run(&bench, bench.queued, 1, 0);
	rig_work(&bench.rig);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	answer(TIMESLICE_CLASSES);
	put_run(&bench, bench.queued, 2, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.cpu->n_tasks, 1);
	assert_fields(*other.plans, (waiting, 0), (under_way, 1u << 2));
	finish(&bench, bench.cpu, 2, 0);
	expect_cqe(&bench, 2, 0);
}

TEST_MAIN(NULL, NULL)
