/* SPDX-License-Identifier: MIT */
/*
 * The dispatcher with rings in ordinary memory and an executor that follows the test
 *
 * Indices start just below their wrap-around, so that every test here crosses it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "dispatch/dispatch-private.h"
#include "loop/loop.h"
#include "loop/turn.h"
#include "session/server-private.h"
#include "support/fake-residency.h"
#include "support/test.h"
#include "util/clock.h"
#include "util/waker.h"

enum {
	N_ENTRIES = 16,
	START = -5, /* of all indices */
	ARENA_BYTES = 4096,
	PLAN_ID = 1 << 16,
};

/* An executor that holds tasks until the test completes them. */
struct fake {
	struct executor executor;
	struct exec_task *held[64], *done[64];
	unsigned int n_held, n_done, capacity;
};

struct fixture {
	struct loop *loop;
	struct waker waker;
	struct residency *residency;
	struct dispatch *dispatch;
	struct fake cpu, gpu;
	struct executor *executors[2];
	struct server server;
	struct server_stats stats;
	struct tenant tenant;
	struct session session;
	struct session_arena arena, *arenas[1];
	struct session_plan slot, *plans[1];
	struct stats *counts;
	struct stats_tenant *tenant_counts;
	struct plan plan;
	struct session_ring ring, *rings[1];
	struct rbk_sq_area *sq;
	uint32_t tail, head;
};

static int fake_submit(struct executor *executor, struct exec_task *task)
{
	struct fake *fake = container_of(executor, struct fake, executor);

	if (fake->n_held == fake->capacity)
		return EXECUTOR_E_BUSY;
	fake->held[fake->n_held++] = task;
	return 0;
}

static void fake_flush(struct executor *executor)
{
}

static unsigned int fake_reap(struct executor *executor, struct exec_task **ret, unsigned int max)
{
	struct fake *fake = container_of(executor, struct fake, executor);
	unsigned int n = fake->n_done < max ? fake->n_done : max;

	memcpy(ret, fake->done, n * sizeof(*ret));
	memmove(fake->done, fake->done + n, (fake->n_done - n) * sizeof(*ret));
	fake->n_done -= n;
	return n;
}

static void fake_inline(struct executor *executor, struct exec_task *task)
{
	task->res = 0;
	task->start_ticks = clock_ticks();
	task->end_ticks = clock_ticks();
}

static const struct executor_ops fake_ops = {
	.run_inline = fake_inline,
	.submit = fake_submit,
	.flush = fake_flush,
	.reap = fake_reap,
};

/* Complete the oldest held task, as an executor does. */
static void finish(struct fake *fake, int res)
{
	struct exec_task *task = fake->held[0];

	assert_true(fake->n_held > 0);
	memmove(fake->held, fake->held + 1, --fake->n_held * sizeof(*fake->held));
	if (exec_task_begin(task)) {
		task->res = res;
		task->start_ticks = clock_ticks();
		task->end_ticks = clock_ticks();
	} else {
		task->res = -ECANCELED;
	}
	fake->done[fake->n_done++] = task;
}

static void work(struct fixture *f)
{
	struct dispatch_ring *hostile = NULL;

	while (dispatch_work(f->dispatch, &hostile) > 0)
		assert_null(hostile);
}

static int begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct dispatch_options options;
	int bell[2];

	assert_non_null(f);
	clock_init();
	assert_int_equal(loop_new(&f->loop), 0);
	/* The budget is large, so that no batch is cut on a slow machine or under a sanitizer. */
	turn_set_budget(loop_current(f->loop), 1000000000);
	assert_int_equal(waker_init(&f->waker), 0);
	f->cpu = (struct fake){.executor = {.ops = &fake_ops, .index = 0}, .capacity = 4};
	f->gpu = (struct fake){.executor = {.ops = &fake_ops, .index = 1}, .capacity = 4};
	f->executors[0] = &f->cpu.executor;
	f->executors[1] = &f->gpu.executor;
	assert_int_equal(residency_new(&(const struct residency_options){0}, &f->residency), 0);
	options = (struct dispatch_options){
		.loop = f->loop,
		.waker = &f->waker,
		.executors = f->executors,
		.n_executors = 2,
		.residency = f->residency,
		.config = PLACE_CONFIG_DEFAULT,
		.spin_ns = -1,
		.n_processors = 4,
	};
	assert_int_equal(dispatch_new(&options, &f->dispatch), 0);
	f->dispatch->stats = &f->stats;

	/* A plan that reads reference 0 and writes reference 1. */
	f->plan = (struct plan){
		.max_count = 4,
		.n_bindings = 2,
		.bindings = {{.row_bytes = 64}, {.row_bytes = 64, .written = true}},
		.device_state = {PLAN_DEVICE_READY, PLAN_DEVICE_READY},
	};
	f->slot = (struct session_plan){
		.plan = &f->plan, .session = &f->session, .id = PLAN_ID, .state = SLOT_READY};
	f->arena = (struct session_arena){
		.exec = {.bytes = ARENA_BYTES}, .session = &f->session, .state = SLOT_READY};
	assert_int_equal(dispatch_hooks(f->dispatch).plan_ready(f->dispatch, &f->slot), 0);
	f->slot.inline_max_count = 0;
	assert_int_equal(stats_new(2, 0, &f->counts), 0);
	assert_int_equal(stats_tenant_new(f->counts, 1, "tenant", &f->tenant_counts), 0);
	stats_plan_init(&f->slot.stats, f->tenant_counts,
			&(struct stats_plan_about){.name = f->plan.name, .plan_id = PLAN_ID}, 0);
	f->tenant =
		(struct tenant){.weight = 100, .priority_max = RBK_PRIORITY_URGENT, .n_refs = 1};
	f->plans[0] = &f->slot;
	f->arenas[0] = &f->arena;
	f->rings[0] = &f->ring;
	f->server.options.loop = f->loop;
	server_work_init(&f->server);
	f->session = (struct session){
		.plans = f->plans,
		.arenas = f->arenas,
		.n_plans = 1,
		.n_arenas = 1,
		.tenant = &f->tenant,
		.server = &f->server,
		.rings = f->rings,
		.tenant_stats = f->tenant_counts,
	};
	turn_job_init(&f->session.settle_job, RBK_TURN_ENDS, NULL);
	f->session.owner = owner_of_session(&f->session);
	f->session.user = owner_of_user(f->session.server, 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, bell), 0);
	close(bell[1]);
	f->sq = calloc(1, RBK_SQ_AREA_BYTES(N_ENTRIES));
	f->tail = f->head = (uint32_t)START;
	f->sq->sq_tail = f->sq->cq_head = (uint32_t)START;
	f->ring = (struct session_ring){
		.sq = f->sq,
		.cq = calloc(1, RBK_CQ_AREA_BYTES(N_ENTRIES)),
		.session = &f->session,
		.n_entries = N_ENTRIES,
		.mask = N_ENTRIES - 1,
		.sq_head = (uint32_t)START,
		.cq_tail = (uint32_t)START,
		.cq_head_seen = (uint32_t)START,
		.bell_fd = bell[0],
	};
	f->ring.cq->cq_tail = f->ring.cq->sq_head = (uint32_t)START;
	assert_int_equal(dispatch_hooks(f->dispatch).ring_make(f->dispatch, &f->ring), 0);
	assert_int_equal(dispatch_hooks(f->dispatch).ring_added(f->dispatch, &f->ring), 0);
	*state = f;
	return 0;
}

static int end(void **state)
{
	struct fixture *f = *state;
	struct server_hooks hooks = dispatch_hooks(f->dispatch);

	if (!f->ring.is_closing) {
		f->ring.is_closing = true;
		hooks.ring_closing(f->dispatch, &f->ring);
	}
	while (f->cpu.n_held)
		finish(&f->cpu, 0);
	while (f->gpu.n_held)
		finish(&f->gpu, 0);
	work(f);
	assert_fields(*f, (ring.n_in_flight, 0), (slot.n_in_flight, 0), (arena.n_in_flight, 0));
	hooks.ring_freed(f->dispatch, &f->ring);
	hooks.ring_unmake(f->dispatch, &f->ring);
	hooks.plan_freed(f->dispatch, &f->slot);
	stats_plan_deinit(&f->slot.stats);
	stats_free(f->counts);
	dispatch_free(f->dispatch);
	residency_free(f->residency);
	owners_deinit(&f->server);
	waker_deinit(&f->waker);
	loop_free(f->loop);
	close(f->ring.bell_fd);
	free(f->ring.cq);
	free(f->sq);
	free(f);
	return 0;
}

static struct rbk_sqe *put(struct fixture *f, uint8_t opcode, uint8_t flags, uint64_t user_data)
{
	struct rbk_sqe *sqe = &f->sq->sqes[f->tail++ % N_ENTRIES];

	*sqe = (struct rbk_sqe){.opcode = opcode, .flags = flags, .user_data = user_data};
	if (opcode == RBK_OP_RUN) {
		sqe->plan_id = PLAN_ID;
		sqe->count = 1;
		/* Otherwise a task that waits for the CPU might move. */
		sqe->strategy = RBK_STRATEGY_ONLY_CPU;
		sqe->refs[0] = RBK_REF(0, 0);
		sqe->refs[1] = RBK_REF(0, 2048);
	}
	f->sq->sq_tail = f->tail;
	return sqe;
}

static struct rbk_cqe take(struct fixture *f)
{
	struct rbk_cqe cqe;

	assert_int_not_equal(f->ring.cq->cq_tail, f->head);
	cqe = f->ring.cq->cqes[f->head++ % N_ENTRIES];
	f->sq->cq_head = f->head;
	return cqe;
}

static void expect(struct fixture *f, uint64_t user_data, int res)
{
	struct rbk_cqe cqe = take(f);

	assert_fields(cqe, (user_data, user_data), (res, res));
}

static void expect_nothing(struct fixture *f)
{
	assert_int_equal(f->ring.cq->cq_tail, f->head);
}

static void pin(struct fixture *f, uint8_t device)
{
	const struct server_hooks hooks = dispatch_hooks(f->dispatch);

	hooks.plan_freed(f->dispatch, &f->slot);
	f->plan.pinned = true;
	f->plan.pinned_device = device;
	assert_int_equal(hooks.plan_ready(f->dispatch, &f->slot), 0);
	f->slot.inline_max_count = 0;
}

/* ---- Indices ---- */

TEST(test_wrap__every_fill, begin, end)
{
	struct fixture *f = *state;
	uint64_t n = 0, n_taken = 0;

	for (unsigned int fill = 1; fill <= N_ENTRIES; fill++) {
		for (unsigned int i = 0; i < fill; i++)
			put(f, RBK_OP_NOP, 0, n++);
		work(f);
		assert_int_equal(f->ring.cq->sq_head, f->tail);
		for (unsigned int i = 0; i < fill; i++)
			expect(f, n_taken++, 0);
		expect_nothing(f);
	}
	assert_true(f->tail < 1000);
}

TEST(test_wrap__tasks_in_flight_and_unread, begin, end)
{
	struct fixture *f = *state;

	for (unsigned int i = 0; i < 3; i++)
		put(f, RBK_OP_RUN, 0, i);
	for (unsigned int i = 3; i < N_ENTRIES; i++)
		put(f, RBK_OP_NOP, 0, i);
	work(f);
	/* 3 in flight and 13 unread: the ring is full, across the wrap-around. */
	assert_int_equal(f->ring.n_in_flight, 3);
	for (unsigned int i = 0; i < N_ENTRIES; i++)
		put(f, RBK_OP_NOP, 0, 100 + i);
	work(f);
	assert_fields(*f->ring.cq, (cq_tail - f->head, 13), (sq_head, f->tail - N_ENTRIES));
	expect(f, 3, 0);
	expect(f, 4, 0);
	work(f);
	assert_fields(*f->ring.cq, (sq_head, f->tail - N_ENTRIES + 2), (cq_tail - f->head, 13));
	for (unsigned int i = 0; i < 3; i++)
		finish(&f->cpu, 0);
	work(f);
	assert_int_equal(f->ring.cq->cq_tail - f->head, N_ENTRIES);
	for (unsigned int i = 5; i < N_ENTRIES; i++)
		expect(f, i, 0);
	work(f);
	expect(f, 100, 0);
	expect(f, 101, 0);
	for (unsigned int i = 0; i < 3; i++)
		expect(f, i, 0);
	work(f);
	for (unsigned int i = 2; i < N_ENTRIES; i++)
		expect(f, 100 + i, 0);
	expect_nothing(f);
}

TEST(test_wrap__impossible, begin, end)
{
	static const uint32_t tails[] = {N_ENTRIES + 1, 1u << 31, UINT32_MAX};
	struct fixture *f = *state;
	struct dispatch_ring *hostile;

	for (unsigned int i = 0; i < 3; i++) {
		hostile = NULL;
		f->sq->sq_tail = f->tail + tails[i];
		dispatch_work(f->dispatch, &hostile);
		assert_ptr_equal(hostile, f->ring.dispatch);
	}
	/* The head claims completions that do not exist. */
	f->sq->sq_tail = f->tail;
	f->sq->cq_head = f->head + 1;
	for (unsigned int i = 0; i < N_ENTRIES; i++)
		put(f, RBK_OP_NOP, 0, i);
	hostile = NULL;
	dispatch_work(f->dispatch, &hostile);
	for (unsigned int i = 0; i < N_ENTRIES; i++)
		put(f, RBK_OP_NOP, 0, i);
	f->sq->cq_head = f->ring.cq_tail + 1;
	dispatch_work(f->dispatch, &hostile);
	assert_ptr_equal(hostile, f->ring.dispatch);
	f->sq->sq_tail = f->ring.sq_head;
}

/* ---- Executors ---- */

TEST(test_executor__busy, begin, end)
{
	struct fixture *f = *state;

	for (unsigned int i = 0; i < 10; i++)
		put(f, RBK_OP_RUN, 0, i);
	work(f);
	assert_fields(*f, (cpu.n_held, 4), (dispatch->n_queued, 6));
	for (unsigned int i = 0; i < 10; i++) {
		finish(&f->cpu, 0);
		work(f);
		expect(f, i, 0);
	}
	expect_nothing(f);
}

TEST(test_executor__pending_is_cancelled, begin, end)
{
	struct fixture *f = *state;

	for (unsigned int i = 0; i < 6; i++)
		put(f, RBK_OP_RUN, 0, i);
	put(f, RBK_OP_CANCEL, 0, 6)->target = 5;
	put(f, RBK_OP_CANCEL, 0, 7)->target = 0;
	put(f, RBK_OP_CANCEL, 0, 8)->target = 0;
	work(f);
	expect(f, 6, 0);
	expect(f, 7, 0);
	expect(f, 8, -ENOENT);
	/* Neither task was in an executor yet. */
	assert_int_equal(f->cpu.n_held, 4);
	expect(f, 5, -ECANCELED);
	expect(f, 0, -ECANCELED);
	for (unsigned int i = 1; i < 5; i++) {
		finish(&f->cpu, 0);
		work(f);
		expect(f, i, 0);
	}
	expect_nothing(f);
}

/* A running task is not stopped, and the CANCEL reports that. */
TEST(test_executor__running_is_not_cancelled, begin, end)
{
	struct fixture *f = *state;

	put(f, RBK_OP_RUN, 0, 1);
	work(f);
	assert_true(exec_task_begin(f->cpu.held[0]));
	put(f, RBK_OP_CANCEL, 0, 2)->target = 1;
	work(f);
	expect(f, 2, -EALREADY);
	atomic_store(&f->cpu.held[0]->state, EXEC_QUEUED);
	finish(&f->cpu, 0);
	work(f);
	expect(f, 1, 0);
}

TEST(test_fallback__on_the_cpu, begin, end)
{
	struct fixture *f = *state;
	struct rbk_cqe cqe;

	put(f, RBK_OP_RUN, 0, 1)->strategy = RBK_STRATEGY_PREFER_GPU;
	work(f);
	finish(&f->gpu, -EIO);
	work(f);
	expect_nothing(f);
	finish(&f->cpu, 0);
	work(f);
	cqe = take(f);
	assert_fields(cqe, (res, 0), (device, RBK_DEVICE_CPU), (reason, RBK_REASON_CPU_FALLBACK));
}

TEST(test_fallback__not_where_it_must_not, begin, end)
{
	struct fixture *f = *state;

	put(f, RBK_OP_RUN, 0, 1)->strategy = RBK_STRATEGY_ONLY_GPU;
	work(f);
	finish(&f->gpu, -EIO);
	work(f);
	expect(f, 1, -EIO);
	/* A state may be half updated. */
	f->plan.has_state = true;
	put(f, RBK_OP_RUN, 0, 2)->strategy = RBK_STRATEGY_PREFER_GPU;
	work(f);
	finish(&f->gpu, -EIO);
	work(f);
	expect(f, 2, -EIO);
	f->plan.has_state = false;
	pin(f, 1);
	put(f, RBK_OP_RUN, 0, 3)->strategy = RBK_STRATEGY_AUTO;
	work(f);
	finish(&f->gpu, -EIO);
	work(f);
	expect(f, 3, -EIO);
	/* After three failures in a row, the device is not used any more. */
	put(f, RBK_OP_RUN, 0, 4)->strategy = RBK_STRATEGY_AUTO;
	work(f);
	expect(f, 4, -ENODEV);
}

/* ---- Chains and barriers ---- */

TEST(test_chain__held_until_success, begin, end)
{
	struct fixture *f = *state;

	put(f, RBK_OP_RUN, RBK_SQE_LINK, 1);
	put(f, RBK_OP_NOP, RBK_SQE_LINK, 2);
	put(f, RBK_OP_RUN, 0, 3);
	put(f, RBK_OP_NOP, 0, 4);
	work(f);
	expect(f, 4, 0);
	assert_int_equal(f->cpu.n_held, 1);
	finish(&f->cpu, 0);
	work(f);
	expect(f, 1, 0);
	expect(f, 2, 0);
	expect_nothing(f);
	finish(&f->cpu, 0);
	work(f);
	expect(f, 3, 0);
}

TEST(test_chain__failed_by_a_device, begin, end)
{
	struct fixture *f = *state;

	put(f, RBK_OP_RUN, RBK_SQE_LINK, 1);
	put(f, RBK_OP_RUN, RBK_SQE_LINK, 2);
	put(f, RBK_OP_NOP, RBK_SQE_LINK, 3);
	work(f);
	finish(&f->cpu, -ENOMEM);
	work(f);
	expect(f, 1, -ENOMEM);
	expect(f, 2, -ECANCELED);
	expect(f, 3, -ECANCELED);
	/* The chain is still open. */
	put(f, RBK_OP_NOP, 0, 4);
	put(f, RBK_OP_NOP, 0, 5);
	work(f);
	expect(f, 4, -ECANCELED);
	expect(f, 5, 0);
}

TEST(test_barrier__waits, begin, end)
{
	struct fixture *f = *state;

	put(f, RBK_OP_RUN, RBK_SQE_LINK, 1);
	put(f, RBK_OP_RUN, 0, 2);
	put(f, RBK_OP_BARRIER, 0, 3);
	put(f, RBK_OP_NOP, 0, 4);
	work(f);
	expect_nothing(f);
	finish(&f->cpu, 0);
	work(f);
	expect(f, 1, 0);
	expect_nothing(f);
	finish(&f->cpu, 0);
	work(f);
	expect(f, 2, 0);
	expect(f, 3, 0);
	expect(f, 4, 0);
}

/* ---- The end of a ring, with tasks in every state ---- */

TEST(test_closing__everything_drains, begin, end)
{
	struct fixture *f = *state;

	put(f, RBK_OP_RUN, RBK_SQE_LINK, 1);
	put(f, RBK_OP_NOP, RBK_SQE_LINK, 2);
	put(f, RBK_OP_RUN, 0, 3);
	for (unsigned int i = 0; i < 6; i++)
		put(f, RBK_OP_RUN, 0, 10 + i);
	put(f, RBK_OP_BARRIER, 0, 20);
	work(f);
	assert_int_equal(f->ring.n_in_flight, 10);
	f->ring.is_closing = true;
	dispatch_hooks(f->dispatch).ring_closing(f->dispatch, &f->ring);
	/* No task runs any more: queued tasks are found cancelled. */
	while (f->cpu.n_held) {
		finish(&f->cpu, 0);
		assert_int_equal(f->cpu.done[f->cpu.n_done - 1]->res, -ECANCELED);
		work(f);
	}
	assert_int_equal(f->ring.n_in_flight, 0);
	assert_true(f->ring.is_drained);
	expect_nothing(f);
}

/* ---- Sleeping ---- */

/*
 * The client rings once per token. If a bell finds no work, the next entry must find another token,
 * or it would wait forever.
 */
TEST(test_bell__without_work, begin, end)
{
	struct fixture *f = *state;
	struct server_hooks hooks = dispatch_hooks(f->dispatch);
	struct dispatch_ring *ring = f->ring.dispatch;
	uint32_t token;

	ring_deactivate(f->dispatch, ring);
	ring->sleep_token = UINT32_MAX - 1;
	f->ring.cq->sq_wait = ring->sleep_token;
	for (unsigned int i = 0; i < 4; i++) {
		token = f->ring.cq->sq_wait;
		hooks.ring_bell(f->dispatch, &f->ring);
		assert_int_equal(dispatch_answer_bells(f->dispatch), 1);
		assert_false(ring->is_active);
		assert_int_not_equal(f->ring.cq->sq_wait, token);
		assert_int_not_equal(f->ring.cq->sq_wait, 0);
	}
	put(f, RBK_OP_NOP, 0, 1);
	hooks.ring_bell(f->dispatch, &f->ring);
	assert_int_equal(dispatch_answer_bells(f->dispatch), 1);
	assert_true(ring->is_active);
	assert_int_equal(f->ring.cq->sq_wait, 0);
	work(f);
	expect(f, 1, 0);
}

TEST(test_inline__small_counts_only, begin, end)
{
	struct fixture *f = *state;

	f->slot.inline_max_count = 2;
	put(f, RBK_OP_RUN, 0, 1)->count = 2;
	put(f, RBK_OP_RUN, 0, 2)->count = 3;
	work(f);
	expect(f, 1, 0);
	expect_nothing(f);
	finish(&f->cpu, 0);
	work(f);
	expect(f, 2, 0);
}
