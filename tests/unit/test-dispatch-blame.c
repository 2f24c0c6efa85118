/* SPDX-License-Identifier: MIT */
/* Tasks that crash brokers are given up; those that ran beside them complete. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "place/schedule-private.h"
#include "shm/ring.h"
#include "support/test.h"
#include "unit/restore-bench.h"
#include "util/crash.h"

static struct exec_task *held(const struct fake *fake, uint64_t user_data)
{
	for (unsigned int i = 0; i < fake->n_tasks; i++)
		if (fake_user_data(fake->tasks[i]) == user_data)
			return fake->tasks[i];
	return NULL;
}

static unsigned int marks(const struct bench *bench, uint64_t user_data)
{
	const struct rbk_task_record *records = bench->ring.ring->records;

	for (unsigned int i = 0; i < N_ENTRIES; i++)
		if ((records[i].flags & RBK_TASK_TAKEN) && !(records[i].flags & RBK_TASK_POSTED) &&
		    records[i].sqe.user_data == user_data)
			return records[i].n_crashes;
	return UINT32_MAX;
}

static void put_on_gpu(struct bench *bench, uint64_t user_data)
{
	put_strategy(bench, user_data, RBK_STRATEGY_ONLY_GPU);
}

/* A thread computes one task when it crashes. */
TEST(test_blame__one_task)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	HEIR(third, 1);

	put_run(first, first->queued, 1, 0);
	put_run(first, first->queued, 2, RBK_SQE_LINK);
	put_run(first, first->queued, 3, 0);
	rig_work(&first->rig);
	assert_true(fake_begin(first->cpu, 1));
	assert_true(fake_begin(first->cpu, 2));
	dispatch_blame(first->rig.dispatch, held(first->cpu, 2));
	assert_int_equal(marks(first, 1), 0);
	assert_int_equal(marks(first, 2), 1);

	die(&brokers);
	assert_non_null(held(second->cpu, 2));
	assert_int_equal(marks(second, 2), 1);
	assert_true(fake_begin(second->cpu, 1));
	dispatch_blame(second->rig.dispatch, held(second->cpu, 2));
	bequeath(second, &third);
	rig_work(&third.rig);
	expect_cqe(&third, 2, -ECONNABORTED);
	expect_cqe(&third, 3, -ECANCELED);
	expect_none(&third);
	finish(&third, third.cpu, 1, 0);
	expect_cqe(&third, 1, 0);
	/* The slots are as good as any. */
	for (uint64_t i = 4; i < 8; i++)
		put_run(&third, third.queued, i, 0);
	rig_work(&third.rig);
	for (uint64_t i = 4; i < 8; i++)
		assert_int_equal(marks(&third, i), 0);
	assert_int_equal(third.rig.dispatch->n_suspects, 0);
	fake_finish_all(third.cpu, 0);
	rig_work(&third.rig);
	remove_ring(&third);
}

/* A broker that is killed leaves no marks. */
TEST(test_blame__not_for_a_kill)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;

	put_run(first, first->queued, 1, 0);
	rig_work(&first->rig);
	for (unsigned int i = 0; i < 20; i++) {
		struct bench *dying = i % 2 ? second : first, *heir = i % 2 ? first : second;

		assert_true(fake_begin(dying->cpu, 1));
		bequeath(dying, heir);
		rig_work(&heir->rig);
		assert_int_equal(marks(heir, 1), 0);
		fake_finish_all(dying->cpu, 0);
		rig_work(&dying->rig);
		remove_ring(dying);
	}
}

static void begin(struct fake *fake, uint64_t user_data)
{
	assert_true(fake_begin(fake, user_data));
}

/* A driver's thread says nothing: what devices have begun is suspect, and runs alone. */
TEST(test_blame__what_devices_have_begun)
{
	struct brokers brokers;
	struct bench *first = &brokers.first, *second = &brokers.second;
	struct rbk_cqe cqe;
	HEIR(third, 2);

	brokers_begin(&brokers, 2);
	put_on_gpu(first, 5);
	rig_work(&first->rig);
	begin(first->gpu, 5);
	finish(first, first->gpu, 5, 0);
	expect_cqe(first, 5, 0);
	for (uint64_t i = 1; i <= 4; i++)
		put_on_gpu(first, i);
	put_strategy(first, 10, RBK_STRATEGY_ONLY_CPU);
	rig_work(&first->rig);
	for (uint64_t i = 1; i <= 3; i++)
		begin(first->gpu, i);
	begin(first->cpu, 10);
	dispatch_blame(first->rig.dispatch, NULL);
	/* Another look at several suspects makes none of them the culprit. */
	dispatch_blame(first->rig.dispatch, NULL);
	for (uint64_t i = 1; i <= 3; i++)
		assert_int_equal(marks(first, i), 1);
	assert_int_equal(marks(first, 4), 0);
	assert_int_equal(marks(first, 10), 0);

	die(&brokers);
	assert_non_null(held(second->cpu, 10));
	assert_non_null(held(second->gpu, 1));
	assert_int_equal(second->gpu->n_tasks, 1);
	put_on_gpu(second, 20);
	rig_work(&second->rig);
	assert_int_equal(second->gpu->n_tasks, 1);
	finish(second, second->gpu, 1, 0);
	assert_non_null(held(second->gpu, 2));
	assert_int_equal(second->gpu->n_tasks, 1);
	begin(second->gpu, 2);
	dispatch_blame(second->rig.dispatch, NULL);
	assert_int_equal(marks(second, 2), 2);
	assert_int_equal(marks(second, 3), 1);

	bequeath(second, &third);
	rig_work(&third.rig);
	expect_cqe(&third, 1, 0);
	expect_cqe(&third, 2, -ECONNABORTED);
	assert_non_null(held(third.gpu, 3));
	assert_int_equal(third.gpu->n_tasks, 1);
	finish(&third, third.gpu, 3, 0);
	/* Tasks that are not suspect need not be alone. */
	assert_int_equal(third.gpu->n_tasks, 2);
	fake_finish_all(third.gpu, 0);
	fake_finish_all(third.cpu, 0);
	rig_work(&third.rig);
	expect_cqe(&third, 3, 0);
	for (unsigned int i = 0; i < 3; i++) {
		assert_true(rig_take(&third.ring, &cqe));
		assert_int_equal(cqe.res, 0);
	}
	/* Their slots are as good as any. */
	for (uint64_t i = 30; i < 34; i++)
		put_on_gpu(&third, i);
	rig_work(&third.rig);
	assert_int_equal(third.gpu->n_tasks, 4);
	assert_int_equal(third.rig.dispatch->n_suspects, 0);
	fake_finish_all(third.gpu, 0);
	rig_work(&third.rig);
	assert_int_equal(third.rig.dispatch->n_suspects, 0);
	remove_ring(&third);
	brokers_end(&brokers);
}

/* Tasks that have completed are no suspects, nor are the next ones in their slots. */
TEST(test_blame__completed)
{
	struct bench bench;

	bench_begin(&bench, 2, N_ENTRIES);
	for (uint64_t i = 1; i <= 4; i++)
		put_on_gpu(&bench, i);
	rig_work(&bench.rig);
	for (uint64_t i = 1; i <= 4; i++)
		begin(bench.gpu, i);
	for (uint64_t i = 2; i <= 4; i++)
		finish(&bench, bench.gpu, i, 0);
	bench.gpu->capacity = 0;
	put_on_gpu(&bench, 5);
	put_on_gpu(&bench, 6);
	rig_work(&bench.rig);
	dispatch_blame(bench.rig.dispatch, NULL);
	dispatch_blame(bench.rig.dispatch, NULL);
	assert_int_equal(marks(&bench, 1), 2);
	bench_end(&bench);
}

/*
 * A broker with two devices dies by task 2 on the first one, beside task 1 on the second. The next
 * broker admits task 1 first.
 */
static void suspect_beside_other(struct brokers *brokers)
{
	struct bench *first = &brokers->first, *second = &brokers->second;

	brokers_begin(brokers, 3);
	put_strategy(first, 1, RBK_STRATEGY_DEVICE(2));
	put_strategy(first, 2, RBK_STRATEGY_DEVICE(1));
	rig_work(&first->rig);
	begin(first->gpu, 2);
	dispatch_blame(first->rig.dispatch, NULL);
	second->gpu->capacity = 0;
	die(brokers);
	second->gpu->capacity = FAKE_MAX_TASKS;
}

/* A suspect waits for what another device has, which gets nothing more meanwhile. */
TEST(test_blame__devices_wait)
{
	struct brokers brokers;
	struct bench *second = &brokers.second;
	struct fake *other = &second->rig.fakes[2];

	suspect_beside_other(&brokers);
	put_strategy(second, 3, RBK_STRATEGY_ONLY_CPU);
	rig_work(&second->rig);
	assert_non_null(held(other, 1));
	assert_int_equal(second->gpu->n_tasks, 0);
	put_strategy(second, 4, RBK_STRATEGY_DEVICE(2));
	rig_work(&second->rig);
	assert_int_equal(other->n_tasks, 1);
	finish(second, other, 1, 0);
	assert_non_null(held(second->gpu, 2));
	assert_int_equal(other->n_tasks, 0);
	finish(second, second->gpu, 2, 0);
	assert_non_null(held(other, 4));
	fake_finish_all(other, 0);
	fake_finish_all(second->cpu, 0);
	rig_work(&second->rig);
	brokers_end(&brokers);
}

/* The tenant of a suspect pays for the devices that are idle for it. */
TEST(test_blame__idle_devices_are_charged)
{
	const uint64_t nap_ns = 2000000;
	struct brokers brokers;
	struct bench *second = &brokers.second;
	struct fake *other = &second->rig.fakes[2];
	const struct place_flow *flow;
	uint64_t own_ns, other_ns;

	suspect_beside_other(&brokers);
	put_strategy(second, 4, RBK_STRATEGY_DEVICE(2));
	rig_work(&second->rig);
	flow = container_of(second->rig.dispatch->flows.next, struct flow, link)->place;

	/* It waits for the other device, while its own one is idle. */
	assert_non_null(held(other, 1));
	own_ns = flow->on[1].used_ns;
	other_ns = flow->on[2].used_ns;
	usleep(nap_ns / 1000);
	finish(second, other, 1, 0);
	assert_non_null(held(second->gpu, 2));
	assert_true(flow->on[1].used_ns - own_ns >= nap_ns);
	own_ns = flow->on[1].used_ns;
	other_ns = flow->on[2].used_ns;

	/* It runs, while the other device is idle. */
	usleep(nap_ns / 1000);
	finish(second, second->gpu, 2, 0);
	assert_non_null(held(other, 4));
	assert_true(flow->on[2].used_ns - other_ns >= nap_ns);
	assert_true(flow->on[1].used_ns - own_ns >= nap_ns);

	/* Nothing is charged any more. */
	own_ns = flow->on[1].used_ns;
	usleep(nap_ns / 1000);
	fake_finish_all(other, 0);
	rig_work(&second->rig);
	assert_int_equal(flow->on[1].used_ns, own_ns);
	brokers_end(&brokers);
}

/* A suspect that is cancelled keeps no device idle any more, also where nothing else is to run. */
TEST(test_blame__nothing_is_charged_after_a_cancel)
{
	const uint64_t nap_ns = 20000000;
	struct brokers brokers;
	struct bench *second = &brokers.second;
	struct fake *other = &second->rig.fakes[2];
	const struct place_flow *flow;
	uint64_t own_ns;

	suspect_beside_other(&brokers);
	put_strategy(second, 3, RBK_STRATEGY_ONLY_CPU);
	rig_work(&second->rig);
	flow = container_of(second->rig.dispatch->flows.next, struct flow, link)->place;
	assert_non_null(held(other, 1));
	assert_non_null(second->rig.dispatch->alone_flow);

	put_cancel(second, 4, 2, 0);
	rig_work(&second->rig);
	expect_cqe(second, 4, 0);
	expect_cqe(second, 2, -ECANCELED);
	finish(second, other, 1, 0);
	own_ns = flow->on[1].used_ns;
	usleep(nap_ns / 1000);
	put_strategy(second, 5, RBK_STRATEGY_DEVICE(1));
	rig_work(&second->rig);
	assert_non_null(held(second->gpu, 5));
	assert_true(flow->on[1].used_ns - own_ns < nap_ns);
	fake_finish_all(second->gpu, 0);
	fake_finish_all(second->cpu, 0);
	rig_work(&second->rig);
	brokers_end(&brokers);
}

/* Return the flow of @tenant. */
static const struct place_flow *flow_of(const struct dispatch *dispatch,
					const struct tenant *tenant)
{
	list_for_each (node, &dispatch->flows) {
		const struct flow *flow = container_of(node, struct flow, link);

		if (flow->tenant == tenant)
			return flow->place;
	}
	fail_msg("the tenant has no flow");
	return NULL;
}

/* Have @heir restore the ring of @dying for @tenant. */
static void bequeath_to(const struct bench *dying, struct bench *heir, struct tenant *tenant,
			struct rig_ring *ret)
{
	struct tenant *own = heir->rig.session->tenant;
	struct rig_areas areas;

	tenant->account = own->account;
	fair_flow_init(&tenant->setup);
	rig_areas_copy(&dying->ring, &areas);
	heir->rig.session->tenant = tenant;
	rig_ring_restore(&heir->rig, &areas, N_ENTRIES, ret);
	heir->rig.session->tenant = own;
	rig_areas_deinit(&areas);
}

/*
 * A suspect that begins before the one for which the devices became idle is the one that keeps them
 * idle from then on.
 */
TEST(test_blame__each_tenant_pays_for_its_own)
{
	const uint64_t nap_ns = 50000000;
	struct tenant tenant = {.weight = 100, .number = 4711, .n_refs = 1};
	const struct place_flow *waiting, *running;
	uint64_t waiting_ns[3], running_ns[3];
	struct brokers brokers;
	struct bench *first = &brokers.first, *second = &brokers.second;
	struct fake *other = &second->rig.fakes[2];
	struct rig_ring ring;
	struct rbk_cqe cqe;

	brokers_begin(&brokers, 3);
	put_strategy(first, 1, RBK_STRATEGY_DEVICE(1));
	put_strategy(first, 2, RBK_STRATEGY_DEVICE(2));
	rig_work(&first->rig);
	begin(&first->rig.fakes[2], 2);
	dispatch_blame(first->rig.dispatch, NULL);
	die(&brokers);
	assert_non_null(held(second->gpu, 1));
	assert_int_equal(other->n_tasks, 0);

	BENCH(third, 3, N_ENTRIES);
	put_strategy(&third, 12, RBK_STRATEGY_DEVICE(1));
	rig_work(&third.rig);
	begin(third.gpu, 12);
	dispatch_blame(third.rig.dispatch, NULL);
	bequeath_to(&third, second, &tenant, &ring);
	rig_work(&second->rig);
	assert_int_equal(second->gpu->n_tasks, 1);
	waiting = flow_of(second->rig.dispatch, second->rig.session->tenant);
	running = flow_of(second->rig.dispatch, &tenant);
	finish(second, second->gpu, 1, 0);
	assert_non_null(held(second->gpu, 12));
	assert_int_equal(other->n_tasks, 0);
	for (unsigned int i = 1; i < 3; i++) {
		waiting_ns[i] = waiting->on[i].used_ns;
		running_ns[i] = running->on[i].used_ns;
	}

	usleep(nap_ns / 1000);
	finish(second, second->gpu, 12, 0);
	assert_non_null(held(other, 2));
	for (unsigned int i = 1; i < 3; i++) {
		assert_true(waiting->on[i].used_ns - waiting_ns[i] < nap_ns);
		assert_true(running->on[i].used_ns - running_ns[i] >= nap_ns);
	}
	finish(second, other, 2, 0);
	assert_true(rig_take(&ring, &cqe));
	assert_int_equal(cqe.user_data, 12);
	assert_int_equal(cqe.res, 0);
	assert_int_equal(session_ring_remove(second->rig.session, 5, ring.ring->id), 0);
	assert_int_equal(rig_answer(&second->rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	rig_ring_deinit(&ring);
	fake_finish_all(third.gpu, 0);
	rig_work(&third.rig);
	brokers_end(&brokers);
}

/* A suspect that moves to the CPU while it waits keeps no device idle any more. */
TEST(test_blame__a_suspect_moves)
{
	struct brokers brokers;
	struct bench *second = &brokers.second;
	struct fake *other = &second->rig.fakes[2];
	struct run *run;

	suspect_beside_other(&brokers);
	assert_non_null(held(other, 1));
	assert_non_null(second->rig.dispatch->alone_flow);
	run = &rig_dispatch_ring(&second->ring)->tasks[1].run;
	assert_true(run->task->is_suspect);
	assert_true(run_evade(second->rig.dispatch, run));
	rig_work(&second->rig);
	assert_non_null(held(second->cpu, 2));
	assert_null(second->rig.dispatch->alone_flow);
	put_strategy(second, 4, RBK_STRATEGY_DEVICE(2));
	rig_work(&second->rig);
	assert_non_null(held(other, 4));
	fake_finish_all(other, 0);
	fake_finish_all(second->cpu, 0);
	rig_work(&second->rig);
	brokers_end(&brokers);
}

/* Pass @seconds for the watch over devices. */
static void watch(struct dispatch *dispatch, unsigned int seconds)
{
	for (unsigned int i = 0; i < seconds * 5; i++) {
		dispatch->watched_ticks -= clock_ns_to_ticks(200000000);
		liveness_check(dispatch);
	}
}

/* Devices that are idle for a suspect have not stalled; the one that it waits for may have. */
TEST(test_blame__waiting_is_no_stall)
{
	struct brokers brokers;
	struct bench *second = &brokers.second;
	struct fake *other = &second->rig.fakes[2];
	struct dispatch *dispatch;

	suspect_beside_other(&brokers);
	dispatch = second->rig.dispatch;
	begin(other, 1);
	watch(dispatch, 8);
	assert_int_equal(dispatch_n_stalls(dispatch, 1), 0);
	assert_int_equal(second->cpu->n_tasks, 0);
	watch(dispatch, 32);
	assert_int_equal(dispatch_n_stalls(dispatch, 1), 0);
	assert_int_equal(dispatch_n_stalls(dispatch, 2), 1);

	put_strategy(second, 4, RBK_STRATEGY_DEVICE(2));
	finish(second, other, 1, 0);
	assert_non_null(held(second->gpu, 2));
	begin(second->gpu, 2);
	watch(dispatch, 8);
	assert_int_equal(dispatch_n_stalls(dispatch, 2), 1);
	finish(second, second->gpu, 2, 0);
	assert_non_null(held(other, 4));
	fake_finish_all(other, 0);
	rig_work(&second->rig);
	brokers_end(&brokers);
}

/* A suspect waits for those that a device has already, and no others overtake it. */
TEST(test_blame__a_suspect_waits)
{
	struct brokers brokers;
	struct bench *first = &brokers.first, *second = &brokers.second;

	brokers_begin(&brokers, 2);
	put_on_gpu(first, 1);
	put_on_gpu(first, 2);
	put_on_gpu(first, 3);
	rig_work(&first->rig);
	begin(first->gpu, 2);
	dispatch_blame(first->rig.dispatch, NULL);
	die(&brokers);
	assert_int_equal(second->gpu->n_tasks, 1);
	assert_non_null(held(second->gpu, 1));
	/* It is not needed any more. */
	put_cancel(second, 4, 2, 0);
	rig_work(&second->rig);
	expect_cqe(second, 4, 0);
	expect_cqe(second, 2, -ECANCELED);
	assert_int_equal(second->gpu->n_tasks, 2);
	assert_int_equal(second->rig.dispatch->n_suspects, 0);
	assert_null(second->rig.dispatch->alone_flow);
	fake_finish_all(second->gpu, 0);
	rig_work(&second->rig);
	expect_cqe(second, 1, 0);
	expect_cqe(second, 3, 0);
	brokers_end(&brokers);
}

/* The broker that crashes at its @n-th inline task, and the next one */
struct inline_crash {
	struct bench *dying, *heir;
	unsigned int n;
};

static void crash_inline(void *data)
{
	struct inline_crash *crash = data;

	if (crash->dying->cpu->n_inline + 1 != crash->n)
		return;
	dispatch_blame(crash->dying->rig.dispatch, crash_thread.task);
	bequeath(crash->dying, crash->heir);
}

static void plan_crash(struct inline_crash *crash)
{
	crash->dying->cpu->on_inline = crash_inline;
	crash->dying->cpu->on_inline_data = crash;
}

/* Entries that complete at once, one of which crashes the broker twice */
TEST(test_blame__an_inline_task)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	struct inline_crash crash = {.dying = first, .heir = second, .n = 3}, again;
	HEIR(third, 1);

	/* A chain that is broken before, and goes on */
	put_bad(first, 1, RBK_SQE_LINK);
	put_run(first, first->tiny, 2, RBK_SQE_LINK);
	rig_work(&first->rig);
	put_run(first, first->tiny, 3, 0);
	put_run(first, first->queued, 4, RBK_SQE_LINK);
	put_run(first, first->tiny, 5, 0);
	put_run(first, first->tiny, 6, 0);
	put_run(first, first->tiny, 7, 0);
	put_run(first, first->tiny, 8, RBK_SQE_LINK);
	put_run(first, first->tiny, 9, 0);
	plan_crash(&crash);
	rig_work(&first->rig);
	assert_int_equal(marks(second, 8), 1);
	assert_int_equal(marks(second, 7), 0);
	assert_int_equal(marks(second, 9), UINT32_MAX);

	again = (struct inline_crash){.dying = second, .heir = &third, .n = 3};
	plan_crash(&again);
	rig_work(&second->rig);
	assert_int_equal(marks(&third, 8), 2);
	rig_work(&third.rig);
	finish(&third, third.cpu, 4, 0);
	finish(&third, third.cpu, 5, 0);
	expect_cqe(&third, 1, -ERANGE);
	for (uint64_t i = 2; i <= 3; i++)
		expect_cqe(&third, i, -ECANCELED);
	expect_cqe(&third, 6, 0);
	expect_cqe(&third, 7, 0);
	expect_cqe(&third, 8, -ECONNABORTED);
	expect_cqe(&third, 9, -ECANCELED);
	expect_cqe(&third, 4, 0);
	expect_cqe(&third, 5, 0);
	expect_none(&third);
	remove_ring(&third);
}

/* A crash of the reactor elsewhere blames no entry. */
TEST(test_blame__no_entry)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first;

	put_run(first, first->tiny, 1, 0);
	rig_work(&first->rig);
	assert_null(crash_thread.task);
	assert_int_equal(first->ring.cq->crash_end, 0);
}

/* Put @crash_end into an area of two entries that wait, and expect as many records. */
static void check_crash_end(uint64_t crash_end, uint32_t n_restored)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;

	put_run(first, first->tiny, 1, 0);
	rig_work(&first->rig);
	put_run(first, first->tiny, 2, 0);
	put_run(first, first->tiny, 3, 0);
	first->ring.ring->cq->crash_end = crash_end;
	die(&brokers);
	assert_int_equal(second->ring.ring->n_restored, n_restored);
	for (uint64_t i = 1; i <= 3; i++)
		expect_cqe(second, i, 0);
	expect_none(second);
	rig_work(&first->rig);
}

TEST(test_hostile__crash_end)
{
	check_crash_end(0, 0);
	check_crash_end(1, 0);
	check_crash_end(2, 1);
	check_crash_end(3, 2);
	check_crash_end(4, 0);
	check_crash_end(UINT64_MAX, 0);
	check_crash_end(1ull << 32, 0);
}

/* There are as many records as may be, so none is left for an entry that crashed. */
TEST(test_hostile__crash_end_without_room)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	struct rbk_cq_area *cq = first->ring.ring->cq;
	struct rbk_task_record *records = rbk_ring_records(cq, N_ENTRIES);

	for (unsigned int i = 0; i < N_ENTRIES; i++)
		records[i] = (struct rbk_task_record){
			.sqe = {.opcode = RBK_OP_NOP},
			.sq_index = i,
			.flags = RBK_TASK_TAKEN,
		};
	cq->commit = rbk_commit_word(N_ENTRIES, 0, 0);
	cq->crash_end = N_ENTRIES + 2;
	first->ring.sq->sq_tail = N_ENTRIES + 2;
	die(&brokers);
	assert_int_equal(second->ring.ring->n_restored, N_ENTRIES);
	first->ring.sq->sq_tail = 0;
}

/* A client may write what it likes into its own area. */
TEST(test_hostile__marks)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	struct rbk_cq_area *cq = first->ring.ring->cq;
	struct rbk_task_record *records = rbk_ring_records(cq, N_ENTRIES);

	for (unsigned int i = 0; i < 3; i++) {
		records[i] = (struct rbk_task_record){
			.sqe = run_entry(second, second->queued, i),
			.sq_index = i,
			.flags = RBK_TASK_TAKEN,
			.n_crashes = i ? UINT16_MAX : 1,
		};
	}
	records[2].sqe = (struct rbk_sqe){.opcode = RBK_OP_NOP, .user_data = 2};
	cq->commit = rbk_commit_word(3, 0, 0);
	first->ring.sq->sq_tail = 3;
	die(&brokers);
	expect_cqe(second, 1, -ECONNABORTED);
	expect_cqe(second, 2, -ECONNABORTED);
	finish(second, second->cpu, 0, 0);
	expect_cqe(second, 0, 0);
	assert_int_equal(second->rig.dispatch->n_suspects, 0);
	first->ring.sq->sq_tail = 0;
}
