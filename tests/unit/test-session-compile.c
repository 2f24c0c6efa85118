/* SPDX-License-Identifier: MIT */
/*
 * Plans with a long compilation, as sessions see them: other requests are served meanwhile, and a
 * session may end. The device is a fake that counts parts.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/dispatch.h"
#include "loop/loop.h"
#include "place/placer-private.h"
#include "session/server-private.h"
#include "support/session-rig.h"
#include "support/test.h"

static _Atomic int n_left; /* remaining parts of plans called "long"; below 0: endless */
static _Atomic int n_compiled, n_prepared;
static _Atomic bool others_came; /* long plans make no part before this is set */

static int compile(struct executor *executor, struct plan *plan)
{
	if (strcmp(plan->name, "long") != 0 || atomic_load(&n_left) == 0)
		return 0;
	/* Return without blocking the thread, which also verifies the other plan. */
	if (!atomic_load(&others_came))
		return EXECUTOR_E_MORE;
	atomic_fetch_add(&n_compiled, 1);
	atomic_fetch_sub(&n_left, 1);
	return EXECUTOR_E_MORE;
}

static int prepare(struct executor *executor, struct plan *plan)
{
	atomic_fetch_add(&n_prepared, 1);
	plan->device_state[executor->index] = PLAN_DEVICE_READY;
	return 0;
}

static void begin(struct rig *rig, int n_parts)
{
	rig_init(rig, 2);
	rig->fakes[1].ops.plan_compile = compile;
	rig->fakes[1].ops.plan_prepare = prepare;
	atomic_store(&n_left, n_parts);
	atomic_store(&n_compiled, 0);
	atomic_store(&n_prepared, 0);
	atomic_store(&others_came, false);
}

/*
 * Ask for a plan called @name.
 * Return: the request's cookie.
 */
static uint32_t ask(struct rig *rig, const char *name)
{
	struct describe *describe = describe_new(name, 64);
	size_t bytes;
	void *desc;

	describe_input(describe, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_output(describe, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_node(describe, "Relu", "it", "x", "y");
	desc = describe_finish(describe, &bytes);
	assert_int_equal(session_plan_add(rig->session, ++rig->next_cookie, desc, bytes), 0);
	free(desc);
	return rig->next_cookie;
}

/* Let a long plan make its first part, once the other plan is being prepared, too. */
static void let_others_come(struct rig *rig)
{
	while (rig->session->plan_slots[1]->job.cause != OFFLOAD_PLAN_PREPARE)
		assert_true(loop_turn(rig->loop, false) >= 0);
	atomic_store(&others_came, true);
}

/* Return the cookie of the next plan that is ready. */
static uint32_t next_answer(struct rig *rig)
{
	struct rbk_wire_plan reply;

	assert_int_equal(rig_answer(rig, RBK_WIRE_PLAN_ADD, &reply, sizeof(reply)), 0);
	return reply.reply.cookie;
}

/* A second plan does not wait for the whole compilation of the first. */
TEST(test_compile__two_plans_interleave)
{
	uint32_t long_one, short_one;
	struct rig rig;

	begin(&rig, 5);
	long_one = ask(&rig, "long");
	short_one = ask(&rig, "short");
	let_others_come(&rig);
	assert_int_equal(next_answer(&rig), short_one);
	assert_int_equal(next_answer(&rig), long_one);
	assert_int_equal(n_compiled, 5);
	assert_int_equal(n_prepared, 2);
	rig_deinit(&rig);
}

/* The session ends: the remaining parts of an endless compilation are not made. */
TEST(test_compile__session_ends)
{
	struct rig rig;

	begin(&rig, -1);
	ask(&rig, "long");
	ask(&rig, "short");
	let_others_come(&rig);
	assert_int_equal(next_answer(&rig), rig.next_cookie);
	assert_int_equal(n_prepared, 1);
	while (n_compiled == 0)
		assert_true(loop_turn(rig.loop, false) >= 0);
	session_end(rig.session, false, "the test wants it");
	rig_deinit(&rig);
	assert_int_equal(n_prepared, 1);
}

/* Check that a compilation that has not begun when its session ends does not begin. */
TEST(test_compile__session_ends_before)
{
	enum { N = 50 };
	struct rig rig;

	begin(&rig, 1);
	ask(&rig, "long");
	for (unsigned int i = 0; i < N; i++)
		ask(&rig, "short");
	session_end(rig.session, false, "the test wants it");
	atomic_store(&others_came, true);
	rig_deinit(&rig);
	assert_int_equal(n_prepared, 0);
	assert_true(n_compiled <= 1);
}

/* The setup thread allocates placement's memory for many plans before it is needed. */
TEST(test_compile__prepares_placement)
{
	RIG(rig, 1);
	atomic_store(&rig.dispatch->placer->rests.is_low, true);
	assert_null(atomic_load(&rig.dispatch->placer->rests.spare));
	rig_relu(&rig, false);
	assert_non_null(atomic_load(&rig.dispatch->placer->rests.spare));
}
