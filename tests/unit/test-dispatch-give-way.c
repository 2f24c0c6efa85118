/* SPDX-License-Identifier: MIT */
/* Clients that wait for the processor on which the reactor computes for another one */
#include <sched.h>

#include "dispatch/dispatch-private.h"
#include "shm/ring.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"
#include "util/clock.h"

enum { NAP_NS = 50000 }; /* of the fake */

/* One fake executor runs at a time. */
static struct {
	struct reactor_run *own;
	struct rig_ring *ring;    /* gets a NOP between two pieces of a task */
	bool may_soon;            /* the next nap need not wait */
	unsigned int n_naps;      /* of the reactor */
	unsigned int n_completed; /* in the completion area at the last nap */
	uint64_t end_ticks;       /* of the last nap */
	unsigned int n_moves;     /* of the reactor, to other processors */
} script;

void __wrap_thread_nap(uint32_t ns);
void __wrap_thread_nap(uint32_t ns)
{
	const uint64_t end_ticks = clock_ticks() + clock_ns_to_ticks(NAP_NS);

	while (clock_ticks() < end_ticks)
		;
	script.n_naps++;
	script.n_completed = rbk_ring_observe(&script.ring->cq->cq_tail);
	script.end_ticks = end_ticks;
}

int __wrap_thread_leave_processor(void);
int __wrap_thread_leave_processor(void)
{
	script.n_moves++;
	return 0;
}

static cpu_set_t all;

/* Keep this thread on its processor. Return: the processor. */
static uint32_t stay_here(void)
{
	const int processor = sched_getcpu();
	cpu_set_t here;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&here);
	CPU_SET((size_t)processor, &here);
	assert_int_equal(sched_setaffinity(0, sizeof(here), &here), 0);
	return (uint32_t)processor;
}

static void go_anywhere(void)
{
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

static void put_nop(uint64_t user_data)
{
	const struct rbk_sqe nop = {.opcode = RBK_OP_NOP, .user_data = user_data};

	rig_put(script.ring, &nop);
}

static void run_here(struct executor *executor, struct exec_task *task, unsigned int n_helpers,
		     exec_look_fn *look, void *context)
{
	task->start_ticks = task->end_ticks = clock_ticks();
	task->busy_ticks = 1;
	assert_true(exec_task_begin(task));
	look(context);
	/* Naps take a quarter of the time. */
	if (script.n_naps > 0)
		assert_true(script.own->next_way_ticks >=
			    script.end_ticks + 3 * clock_ns_to_ticks(NAP_NS));
	if (script.may_soon)
		script.own->next_way_ticks = 0;
	put_nop(7);
	look(context);
	look(context);
	assert_true(exec_task_end(task));
	task->res = 0;
}

/* Where the client of the ring is when it puts its entry, and whether the reactor leaves */
static const struct {
	bool is_own;    /* the task is this client's */
	bool is_here;   /* on the reactor's processor */
	bool is_asleep; /* and was not woken */
	bool is_early;  /* soon after another nap */
	bool is_short;  /* the task is */
	unsigned int n_naps;
} cases[] = {
	{.is_here = true, .n_naps = 1},       {.is_here = false},
	{.is_here = true, .is_asleep = true}, {.is_here = true, .is_own = true},
	{.is_here = true, .is_early = true},  {.is_here = true, .is_short = true},
};

/* Another client puts an entry before the task, and one between two of its pieces. */
static void try_case(size_t i, uint32_t processor)
{
	struct tenant tenant = {.weight = 100, .number = 77, .priority_max = RBK_PRIORITY_URGENT};
	struct rig_ring other;
	struct dispatch *dispatch;
	struct bench bench;
	struct rbk_cqe cqe;
	struct rbk_sqe sqe;

	bench_begin_placement(&bench, 1, 32, NULL,
			      (const struct bench_speed[]){{.bytes_per_ns = 1}});
	dispatch = bench.rig.dispatch;
	script.own = &dispatch->reactor_run;
	script.own->most_ns = REACTOR_TASK_NS;
	script.own->quiet_ticks = 0;
	script.own->long_piece_ticks = script.own->forgive_ticks = 1ull << 40;
	bench.cpu->ops.run_here = run_here;
	rig_ring_new_for(&bench.rig, &tenant, 32, &other);
	script.ring = cases[i].is_own ? &bench.ring : &other;
	script.n_naps = 0;
	script.ring->sq->processor = processor + (cases[i].is_here ? 1 : 2);
	put_nop(6);
	rig_work(&bench.rig);
	assert_true(rig_take(script.ring, &cqe));
	/* It waits for more than the completion of its entry. */
	if (cases[i].is_asleep) {
		script.ring->sq->cq_wanted = script.ring->cq->cq_tail + 9;
		rbk_ring_announce_sleep(&script.ring->sq->cq_wait, 1);
	}

	sqe = run_entry(&bench, bench.queued, 1);
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_int_equal(script.own->n_waiting, 1);
	if (!cases[i].is_short)
		script.own->work_ns += REACTOR_SWITCH_NS;
	script.own->way_ticks = clock_ticks();
	put_nop(5);
	rig_work(&bench.rig);
	assert_int_equal(script.n_naps, 0);
	script.may_soon = !cases[i].is_early;
	if (cases[i].is_early)
		script.own->next_way_ticks = clock_ticks() + (1ull << 40);
	reactor_run_next(dispatch);
	assert_int_equal(script.n_naps, 2 * cases[i].n_naps);
	/* After the answer, not before */
	if (cases[i].n_naps > 0)
		assert_int_equal(script.n_completed, 3);
	if (cases[i].is_early) {
		struct dispatch_ring *ring = rig_dispatch_ring(&other);

		script.own->next_way_ticks = 0;
		/* A bell that was rung is answered before. */
		turn_queue_submit(&dispatch->rung, &ring->flow->bells, &ring->bell_job);
		dispatch_give_way(dispatch, rig_dispatch_ring(&bench.ring));
		assert_int_equal(script.n_naps, 0);
		turn_queue_withdraw(&dispatch->rung, &ring->bell_job);
		for (unsigned int k = 0; k < 2; k++)
			dispatch_give_way(dispatch, rig_dispatch_ring(&bench.ring));
		assert_int_equal(script.n_naps, 1);
	}
	rig_ring_deinit(&other);
	bench_end(&bench);
}

/* Reasons for which the reactor stays on the processor of the client of a long task */
enum stays { LEAVES, CLIENT_IS_ELSEWHERE, CLIENT_SLEEPS, TASK_IS_SHORT, IS_CONTENDED };

static void try_move(enum stays stays, uint32_t processor)
{
	struct dispatch *dispatch;
	struct bench bench;
	struct rbk_sqe sqe;

	bench_begin_placement(&bench, 1, 32, NULL,
			      (const struct bench_speed[]){{.bytes_per_ns = 1}});
	dispatch = bench.rig.dispatch;
	dispatch->options.spin_ns = -1;
	dispatch->options.n_processors = 2;
	script.own = &dispatch->reactor_run;
	script.own->most_ns = REACTOR_TASK_NS;
	sqe = run_entry(&bench, bench.queued, 1);
	bench.cpu->ops.run_here = run_here;
	script.ring = &bench.ring;
	script.n_moves = script.n_naps = 0;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_int_equal(script.own->n_waiting, 1);
	script.own->work_ns += stays == TASK_IS_SHORT ? 400000 : 500000;
	bench.ring.sq->processor = processor + (stays == CLIENT_IS_ELSEWHERE ? 2 : 1);
	if (stays == CLIENT_SLEEPS)
		rbk_ring_announce_sleep(&bench.ring.sq->cq_wait, 1);
	dispatch->is_contended = stays == IS_CONTENDED;
	reactor_run_next(dispatch);
	/* On a slow machine, it may move again between the task's pieces. */
	assert_int_equal(script.n_moves > 0, stays == LEAVES);
	assert_int_equal(script.n_naps, 0);
	bench_end(&bench);
}

/*
 * A client that got an answer, and was last seen on the reactor's processor, can run before the
 * reactor computes for another one: once per answer, before the task or between two pieces of it,
 * not all the time, and not where the task is short.
 */
TEST(test_give_way__to_answered_clients)
{
	const uint32_t processor = stay_here();

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		try_case(i, processor);
	go_anywhere();
}

/* The reactor computes a long task on another processor than that on which its client polls. */
TEST(test_give_way__to_client_of_long_task)
{
	const uint32_t processor = stay_here();

	for (enum stays stays = LEAVES; stays <= IS_CONTENDED; stays++)
		try_move(stays, processor);
	go_anywhere();
}
