/* SPDX-License-Identifier: MIT */
/*
 * The dispatcher and a device that can stop running tasks: stopped tasks continue; tasks that are
 * cancelled, or whose ring closes, do not, also between two submissions; and no task is left on the
 * device.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "dispatch/dispatch-private.h"
#include "loop/loop.h"
#include "place/schedule.h"
#include "session/session.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"

static unsigned int n_abandoned;

static void abandon(struct executor *executor, struct exec_task *task)
{
	assert_true(task->has_progress);
	task->has_progress = false;
	n_abandoned++;
}

static void begin(struct bench *bench)
{
	bench_begin(bench, 1, N_ENTRIES);
	bench->cpu->ops.abandon = abandon;
	n_abandoned = 0;
}

#define BEGIN(name) SCOPED(bench, name, begin, bench_end)

static struct exec_task *held(const struct bench *bench, uint64_t user_data)
{
	for (unsigned int i = 0; i < bench->cpu->n_tasks; i++)
		if (fake_user_data(bench->cpu->tasks[i]) == user_data)
			return bench->cpu->tasks[i];
	fail_msg("the device does not have task %u", (unsigned int)user_data);
	return NULL;
}

static enum exec_state state_of(const struct bench *bench, uint64_t user_data)
{
	return (enum exec_state)atomic_load(&held(bench, user_data)->state);
}

/* Return the device's only task unfinished. */
static void stop(struct bench *bench)
{
	struct fake *cpu = bench->cpu;
	struct exec_task *task = cpu->tasks[0];

	assert_int_equal(cpu->n_tasks, 1);
	cpu->n_tasks = 0;
	task->start_ticks = clock_ticks();
	task->end_ticks = task->start_ticks + 1000;
	task->res = EXEC_UNFINISHED;
	task->has_progress = true;
	cpu->done[cpu->n_done++] = task;
	rig_work(&bench->rig);
}

static void begin_one(struct bench *bench, uint64_t user_data)
{
	put_run(bench, bench->queued, user_data, 0);
	rig_work(&bench->rig);
	assert_false(held(bench, user_data)->has_progress);
	assert_true(fake_begin(bench->cpu, user_data));
}

TEST(test_stopped__continues)
{
	struct rbk_cqe cqe;

	BEGIN(bench);
	begin_one(&bench, 1);
	for (unsigned int i = 0; i < 3; i++) {
		uint32_t count = held(&bench, 1)->count;

		stop(&bench);
		assert_true(held(&bench, 1)->has_progress);
		assert_false(held(&bench, 1)->is_urgent);
		assert_int_equal(held(&bench, 1)->count, count);
		assert_int_equal(state_of(&bench, 1), EXEC_QUEUED);
		expect_none(&bench);
		usleep(20000);
		assert_true(fake_begin(bench.cpu, 1));
	}
	held(&bench, 1)->has_progress = false;
	finish(&bench, bench.cpu, 1, 0);
	cqe = expect_cqe(&bench, 1, 0);
	/* The pauses do not count as execution. */
	assert_true(cqe.exec_ns < 20000000);
	assert_true(cqe.queue_ns >= 60000000);
	assert_int_equal(n_abandoned, 0);

	/* The slot's next task begins without progress. */
	begin_one(&bench, 2);
	finish(&bench, bench.cpu, 2, 0);
	expect_cqe(&bench, 2, 0);
}

/* Cancel a task whose submission has ended, before the dispatcher sees that it has. */
static void cancel_ended(struct bench *bench, uint64_t user_data, int expected)
{
	struct exec_task *task = held(bench, user_data);

	assert_true(fake_begin(bench->cpu, user_data));
	assert_true(exec_task_end(task));
	put_cancel(bench, 100, user_data, 0);
	rig_work(&bench->rig);
	expect_cqe(bench, 100, expected);
	assert_int_equal(atomic_load(&task->state), EXEC_ENDED);
	/* The fake ends a task that runs. */
	atomic_store(&task->state, EXEC_RUNNING);
	finish(bench, bench->cpu, user_data, 0);
}

TEST(test_cancel__begun)
{
	BEGIN(bench);
	begin_one(&bench, 1);
	put_cancel(&bench, 2, 1, 0);
	put_cancel(&bench, 3, 1, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 2, 0);
	expect_cqe(&bench, 3, -ENOENT);
	expect_none(&bench);
	assert_int_equal(state_of(&bench, 1), EXEC_CANCELLED);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, -ECANCELED);
	assert_int_equal(n_abandoned, 0);

	/* The task has ended already, but the dispatcher does not know. */
	put_run(&bench, bench.queued, 4, 0);
	rig_work(&bench.rig);
	cancel_ended(&bench, 4, -EALREADY);
	expect_cqe(&bench, 4, 0);
}

/* A task with a state runs to its end, unless its ring is closed. */
TEST(test_cancel__state)
{
	struct rig_ring closing;

	BEGIN(bench);
	bench.queued->plan->has_state = true;
	begin_one(&bench, 1);
	put_cancel(&bench, 2, 1, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 2, -EALREADY);
	assert_int_equal(state_of(&bench, 1), EXEC_RUNNING);
	stop(&bench);
	put_cancel(&bench, 3, 1, 0);
	rig_work(&bench.rig);
	/* The task has progress, although the device has not begun it again. */
	expect_cqe(&bench, 3, -EALREADY);
	held(&bench, 1)->has_progress = false;
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);

	closing = bench.ring;
	rig_ring_new(&bench.rig, N_ENTRIES, &bench.ring);
	begin_one(&bench, 4);
	assert_int_equal(session_ring_remove(bench.rig.session, 5, bench.ring.ring->id), 0);
	rig_work(&bench.rig);
	assert_int_equal(state_of(&bench, 4), EXEC_CANCELLED);
	finish(&bench, bench.cpu, 4, 0);
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	rig_ring_deinit(&bench.ring);
	bench.ring = closing;
	bench.queued->plan->has_state = false;
}

/*
 * Cancel a stopped task that is queued in the executor, queued in the dispatcher, or on its way
 * back.
 */
TEST(test_cancel__stopped)
{
	unsigned int capacity;

	BEGIN(bench);
	capacity = bench.cpu->capacity;
	begin_one(&bench, 1);
	bench.cpu->capacity = 0;
	stop(&bench);
	assert_int_equal(bench.rig.dispatch->n_queued, 1);
	put_cancel(&bench, 2, 1, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 2, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 1, -ECANCELED);
	assert_int_equal(n_abandoned, 1);

	bench.cpu->capacity = capacity;
	begin_one(&bench, 3);
	put_cancel(&bench, 4, 3, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 4, 0);
	stop(&bench);
	expect_cqe(&bench, 3, -ECANCELED);
	assert_int_equal(n_abandoned, 2);

	begin_one(&bench, 5);
	stop(&bench);
	put_cancel(&bench, 6, 5, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 6, 0);
	assert_int_equal(state_of(&bench, 5), EXEC_CANCELLED);
	/* Act as the device would. */
	held(&bench, 5)->has_progress = false;
	finish(&bench, bench.cpu, 5, 0);
	expect_cqe(&bench, 5, -ECANCELED);
}

/* A task that has rows left is cancelled although those on the device have just been computed. */
TEST(test_cancel__rows_left)
{
	enum { WIDE = 16, MAX_ROWS = 400, Y_OFFSET = 65536 };
	const struct bench_speed speed = {.bytes_per_ns = WIDE * 8 / 1000.f};
	struct place_config config = PLACE_CONFIG_DEFAULT;
	struct session_arena *arena;
	struct session_plan *plan;
	struct bench bench;
	struct rbk_sqe sqe;

	config.submission_max_ns = 100000;
	bench_begin_placement(&bench, 1, N_ENTRIES, &config, &speed);
	bench.cpu->ops.abandon = abandon;
	bench.cpu->row_ns = 1000;
	arena = rig_arena_new(&bench.rig, 2 * Y_OFFSET, false);
	plan = bench_relu(&bench, WIDE, MAX_ROWS);
	for (uint64_t i = 1; i <= 2; i++) {
		uint32_t n_left = MAX_ROWS;

		sqe = bench_entry(plan, arena, Y_OFFSET, n_left, i);
		rig_put(&bench.ring, &sqe);
		rig_work(&bench.rig);
		assert_in_range(held(&bench, i)->count, 1, n_left - 1);
		/* The second task is cancelled at its last rows, which is too late. */
		while (i == 2 && n_left > held(&bench, i)->count) {
			n_left -= held(&bench, i)->count;
			finish(&bench, bench.cpu, i, 0);
		}
		cancel_ended(&bench, i, i == 2 ? -EALREADY : 0);
		expect_cqe(&bench, i, i == 2 ? 0 : -ECANCELED);
		assert_int_equal(bench.cpu->n_tasks, 0);
	}
	bench_end(&bench);
}

static struct describe *two_nodes(void)
{
	struct describe *d = describe_new("two", 8);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	describe_scratch(d, "a");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	describe_node(d, "Relu", "", "x", "a");
	describe_node(d, "Neg", "", "a", "y");
	return d;
}

/* So is a task whose plan has another segment. */
TEST(test_cancel__segments_left)
{
	struct session_plan *plan;
	struct rbk_sqe sqe;

	BEGIN(bench);
	plan = bench_cut_plan(&bench, two_nodes(), two_nodes());
	for (uint64_t i = 1; i <= 2; i++) {
		sqe = bench_entry(plan, bench.arena, 4096, 1, i);
		rig_put(&bench.ring, &sqe);
		rig_work(&bench.rig);
		if (i == 2)
			finish(&bench, bench.cpu, i, 0);
		cancel_ended(&bench, i, i == 2 ? -EALREADY : 0);
		expect_cqe(&bench, i, i == 2 ? 0 : -ECANCELED);
		assert_int_equal(bench.cpu->n_tasks, 0);
	}
}

/* A device that is asked to stop one tenant's task for another tenant's. */
struct contended {
	struct bench bench;
	struct loop_timer *timer; /* of the device, each ms */
	unsigned int n_looks;
	bool is_asked;
	atomic_bool is_over;
};

/* Looks after which the device gives up, and the test fails. */
enum { CONTENDED_LOOKS = 5000 };

static void look(void *data)
{
	struct contended *contended = data;
	struct fake *cpu = contended->bench.cpu;

	for (unsigned int i = 0; i < cpu->n_tasks; i++)
		contended->is_asked |= atomic_load(&cpu->tasks[i]->state) == EXEC_STOPPING;
	if (contended->is_asked || ++contended->n_looks == CONTENDED_LOOKS)
		atomic_store(&contended->is_over, true);
	if (atomic_load(&contended->is_over))
		fake_finish_all(cpu, 0);
	loop_timer_arm(contended->timer, 1000000);
}

static void await_end(void *data)
{
	struct contended *contended = data;

	while (!atomic_load(&contended->is_over))
		usleep(1000);
}

/* A sleeping reactor wakes up to stop a task that has used its slice while another one waits. */
TEST(test_stop__wakes_sleeping_reactor)
{
	static struct contended contended;
	struct tenant tenant = {.weight = 100, .number = 77, .priority_max = RBK_PRIORITY_URGENT};
	struct bench *bench = &contended.bench;
	struct rig_ring ring;
	struct rbk_sqe sqe;

	begin(bench);
	place_set_preemptible(bench->rig.dispatch->placer, CPU);
	rig_ring_new_for(&bench->rig, &tenant, N_ENTRIES, &ring);
	begin_one(bench, 1);
	sqe = run_entry(bench, bench->queued, 2);
	rig_put(&ring, &sqe);
	rig_work(&bench->rig);
	assert_int_equal(loop_timer_new(bench->rig.loop, look, &contended, &contended.timer), 0);
	loop_timer_arm(contended.timer, 1);
	rig_run(&bench->rig, await_end, &contended);
	assert_true(contended.is_asked);
	loop_timer_free(contended.timer);
	rig_ring_deinit(&ring);
	bench_end(bench);
}
