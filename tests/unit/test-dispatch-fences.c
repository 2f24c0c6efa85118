/* SPDX-License-Identifier: MIT */
/* Sleeps of the dispatcher beside clients that leave their fences to it */
#include <errno.h>
#include <sys/socket.h>

#include "support/test.h"
#include "unit/dispatch-bench.h"
#include "util/clock.h"
#include "util/thread.h"

static void ring_the_bell(struct bench *bench)
{
	struct server_hooks hooks = dispatch_hooks(bench->rig.dispatch);

	assert_int_equal(send(bench->ring.bell, "", 1, MSG_DONTWAIT), 1);
	hooks.ring_bell(hooks.context, bench->ring.ring);
	dispatch_answer_bells(bench->rig.dispatch);
}

static struct {
	unsigned int n;
	int result;
	struct bench *publishes; /* its client publishes an entry meanwhile */
	uint32_t token;          /* at the last call */
} fences;

int __wrap_thread_fence_others(void);
int __wrap_thread_fence_others(void)
{
	struct bench *bench = fences.publishes;

	fences.n++;
	if (bench) {
		fences.token = bench->ring.cq->sq_wait;
		put_bare(bench, RBK_OP_NOP, 1, 0);
	}
	return fences.result;
}

/* Let the ring's spin end. Return: true if it sleeps. */
static bool falls_asleep(struct bench *bench)
{
	struct dispatch_ring *ring = rig_dispatch_ring(&bench->ring);

	ring->spin_ticks = 0;
	fences.n = 0;
	dispatch_sleep_rings(bench->rig.dispatch, false);
	assert_int_equal(ring->is_active, bench->ring.cq->sq_wait == 0);
	return !ring->is_active;
}

TEST(test_sleep__executes_fences_for_the_client)
{
	struct dispatch_ring *ring;

	fences.result = 0;
	BENCH(bench, 1, N_ENTRIES);
	ring = rig_dispatch_ring(&bench.ring);
	assert_int_equal(bench.ring.cq->has_barriers, 1);
	assert_true(falls_asleep(&bench));
	assert_int_equal(fences.n, 0);

	bench.ring.sq->unfenced = 1;
	ring_activate(bench.rig.dispatch, ring, 0);
	assert_true(falls_asleep(&bench));
	assert_int_equal(fences.n, 1);

	/* The entry becomes visible only by the fence. */
	ring_activate(bench.rig.dispatch, ring, 0);
	fences.publishes = &bench;
	assert_false(falls_asleep(&bench));
	fences.publishes = NULL;
	assert_int_not_equal(fences.token, 0);
	assert_int_equal(rig_work(&bench.rig), 1);
	expect_cqe(&bench, 1, 0);

	/* A broker that told the client that it executes none */
	ring->ring->has_barriers = false;
	assert_true(falls_asleep(&bench));
	assert_int_equal(fences.n, 0);
}

/* A client may miss the token of a broker whose fence failed. */
TEST(test_sleep__not_without_the_fence)
{
	struct dispatch_ring *ring;

	fences.result = 0;
	BENCH(bench, 1, N_ENTRIES);
	ring = rig_dispatch_ring(&bench.ring);
	bench.ring.sq->unfenced = 1;
	fences.result = -ENOMEM;
	assert_false(falls_asleep(&bench));
	assert_int_equal(fences.n, 1);
	fences.result = 0;
	assert_true(falls_asleep(&bench));

	/* Nor does it sleep again after a bell without work. */
	ring_the_bell(&bench);
	assert_false(ring->is_active);
	fences.result = -ENOMEM;
	ring_the_bell(&bench);
	assert_true(ring->is_active);
	fences.result = 0;
	assert_true(falls_asleep(&bench));
}

/* One fence serves all rings of a turn, and is charged: a client may have any number of rings. */
TEST(test_sleep__one_fence_for_all)
{
	enum { N = 5 };
	struct rig_ring rings[N];
	struct dispatch_ring *ring;
	struct dispatch *dispatch;

	fences.result = 0;
	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	dispatch->charge_ticks = UINT64_MAX;
	for (unsigned int i = 0; i < N; i++) {
		rig_ring_new_for(&bench.rig, bench.rig.session->tenant, 4, &rings[i]);
		rig_dispatch_ring(&rings[i])->spin_ticks = 0;
		/* The third has fences, and the fourth has work. */
		rings[i].sq->unfenced = i != 2;
	}
	rig_put(&rings[3], &(const struct rbk_sqe){.opcode = RBK_OP_NOP});
	rig_dispatch_ring(&rings[0])->flow->owed_ticks = 0;
	assert_true(falls_asleep(&bench));
	assert_int_equal(fences.n, 1);
	assert_true(rig_dispatch_ring(&rings[0])->flow->owed_ticks > 0);
	for (unsigned int i = 0; i < N; i++) {
		assert_int_equal(rig_dispatch_ring(&rings[i])->is_active, i == 3);
		assert_int_equal(rings[i].cq->sq_wait == 0, i == 3);
	}
	rig_work(&bench.rig);

	/* Each is checked once, wherever the look at them begins. */
	for (unsigned int start = 0; start < N; start++) {
		dispatch_poll_again(dispatch);
		dispatch->sleep_at = start;
		for (unsigned int i = 0; i < N; i++) {
			ring = rig_dispatch_ring(&rings[i]);
			ring->last_work_ticks = ring->sleep_token = 0;
		}
		dispatch_sleep_rings(dispatch, false);
		for (unsigned int i = 0; i < N; i++)
			assert_true(rig_dispatch_ring(&rings[i])->sleep_token <= 1);
		dispatch_sleep_rings(dispatch, false);
		assert_int_equal(dispatch->n_active, 0);
	}
	for (unsigned int i = 0; i < N; i++)
		rig_ring_deinit(&rings[i]);
}

/* A client that rings because the reactor announced a sleep, and called it off, is not muted. */
TEST(test_bell__of_a_sleep_called_off)
{
	struct dispatch_ring *ring;

	fences.result = 0;
	BENCH(bench, 1, N_ENTRIES);
	ring = rig_dispatch_ring(&bench.ring);
	bench.ring.sq->unfenced = 1;
	for (unsigned int i = 0; i < 3; i++) {
		fences.publishes = &bench;
		assert_false(falls_asleep(&bench));
		fences.publishes = NULL;
		assert_int_equal(rig_work(&bench.rig), 1);
		expect_cqe(&bench, 1, 0);
		/* The bell is read while the ring is polled, or when it sleeps. */
		if (i == 1)
			assert_true(falls_asleep(&bench));
		ring->n_empty_bells = 0;
		ring_the_bell(&bench);
		assert_int_equal(ring->n_empty_bells, 0);
		/* One bell is excused. */
		ring_the_bell(&bench);
		assert_int_equal(ring->n_empty_bells, 1);
		if (!ring->is_active)
			ring_activate(bench.rig.dispatch, ring, 0);
	}
}

/* Rings of a kernel or a container without the call */
TEST(test_ring__without_barriers)
{
	fences.result = -ENOSYS;
	BENCH(bench, 1, N_ENTRIES);
	assert_int_equal(bench.ring.cq->has_barriers, 0);
	bench.ring.sq->unfenced = 1;
	assert_true(falls_asleep(&bench));
	assert_int_equal(fences.n, 0);
	fences.result = 0;
}
